"""Checks the signatures of requests to the emulator, in its process.

Clients sign with the secret of the home, or with temporary credentials that the emulator's STS issued. The signature
(Version 4) covers the method, the path, the query, the headers that it names, and the body or its digest. A link to an
object is signed in its query, until it expires. The key id in it is no secret, so it gives access to nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from ministack.core.iam_evaluator import CredentialResolutionError, resolve_credential
from ministack.core.sigv4 import (
    HeaderSignature,
    header_signature_failure,
    parse_header_signature,
    parse_query_signature,
)

from prismline_emulator.clients import Refusal

#: The service for which links are signed.
LINKED_SERVICE = "s3"
#: How the header for the digest of a body begins if the body is signed in chunks.
IN_CHUNKS = "STREAMING-AWS4-"


@dataclass(frozen=True)
class SignedRequest:
    """A request before its body, with what it says about its signature."""

    method: str
    #: Path without the query, not decoded.
    path: str
    query: dict[str, list[str]]
    #: Names in lower case.
    headers: dict[str, str]

    @classmethod
    def of(cls, scope: dict[str, Any], headers: dict[str, str]) -> SignedRequest:
        """From the scope of an ASGI application."""
        query = (
            parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True) if scope["query_string"] else {}
        )
        return cls(scope["method"], scope["raw_path"].decode("latin-1"), query, headers)

    @property
    def linked(self) -> bool:
        """Whether the signature can only be in the query, as that of a link to an object."""
        return "authorization" not in self.headers

    @property
    def needs_body(self) -> bool:
        """Whether the signature covers the body itself. Otherwise it covers a header with its digest, or no body."""
        return not self.linked and self.headers.get("x-amz-content-sha256", IN_CHUNKS).startswith(IN_CHUNKS)

    def signature(self) -> HeaderSignature | None:
        """The parts of the signature. None if the request is not signed with Signature Version 4."""
        found = parse_query_signature(self.query) if self.linked else parse_header_signature(self.headers)
        return found if isinstance(found, HeaderSignature) and found.region_set is None else None

    def unsigned(self, signature: HeaderSignature) -> list[str]:
        """The headers that change what S3 does, for instance copy another object, and that the signature leaves out."""
        signed = signature.signed_headers.split(";")
        return [name for name in self.headers if name.startswith("x-amz-") and name not in signed]

    def token(self) -> str:
        """The token of temporary credentials. Empty if there is none."""
        return (
            self.query.get("X-Amz-Security-Token", [""])[0]
            if self.linked
            else self.headers.get("x-amz-security-token", "")
        )


@dataclass(frozen=True)
class UnverifiedSignature:
    """A signature with a known key, which is not checked yet."""

    request: SignedRequest
    signature: HeaderSignature
    secret: str

    @classmethod
    def of(cls, request: SignedRequest, services: frozenset[str]) -> UnverifiedSignature | Refusal:
        """The claim of a request to one of `services`. The age of a link is checked by ministack's S3."""
        signature = request.signature()
        if signature is None or not signature.access_key_id:
            return Refusal("The request is not signed with Signature Version 4.")
        service = signature.service
        if service not in services:
            return Refusal(f"This emulator does not run the service {service}.", service)
        if request.linked and service != LINKED_SERVICE:
            return Refusal("Only links to objects in S3 may be signed in the query.", service)
        if request.linked and (unsigned := request.unsigned(signature)):
            return Refusal(f"The link is not signed for the header {unsigned[0]}.", service)
        credential = resolve_credential(signature.access_key_id, session_token=request.token())
        if isinstance(credential, CredentialResolutionError):
            return Refusal("The access key of the request is unknown, or has expired.", service)
        return cls(request, signature, credential.secret_access_key)

    def refusal(self, body: bytes) -> Refusal | None:
        """Why the signature is wrong. None if it is right. body: needed if the request says so."""
        failure = header_signature_failure(
            self.signature,
            self.secret,
            self.request.method,
            self.request.path,
            self.request.query,
            self.request.headers,
            body,
            presigned=self.request.linked,
        )
        if failure is None:
            return None
        return Refusal("The request is not signed with the secret access key of this emulator.", self.signature.service)
