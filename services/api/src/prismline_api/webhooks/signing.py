"""Signs a post as the Standard Webhooks specification says. Pure.

Source: https://github.com/standard-webhooks/standard-webhooks, "Verifying webhook authenticity".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from datetime import datetime

#: A secret: a prefix, and base64 of 24 to 96 bytes with or without its padding.
SECRET = re.compile(r"whsec_([A-Za-z0-9+/]{32,128})={0,2}")


class SecretError(ValueError):
    """A secret cannot sign."""


def signing_key(secret: str) -> bytes:
    """The bytes that a secret stands for. Raises SecretError."""
    found = SECRET.fullmatch(secret)
    if found is None or len(found[1]) % 4 == 1:  # no number of bytes has so many letters
        raise SecretError("it is not whsec_ and base64 of 24 to 96 bytes")
    return base64.b64decode(found[1] + "=" * (-len(found[1]) % 4))


def signed_headers(secret: str, event_id: str, body: bytes, now: datetime) -> dict[str, str]:
    """The headers of a post: the event's id, the time in Unix seconds, and the HMAC-SHA256 over both and the body.

    Raises SecretError.
    """
    moment = str(int(now.timestamp()))
    digest = hmac.new(signing_key(secret), f"{event_id}.{moment}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": event_id,
        "webhook-timestamp": moment,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
        "content-type": "application/json",
    }
