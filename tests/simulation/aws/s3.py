"""S3: objects with conditional writes, versions, listings, and events of new objects."""
# ruff: noqa: N803  boto3's parameter names

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError

from tests.simulation.aws.base import ACCOUNT, Client, Paginator, client_error, operation

#: Most keys in one page of a listing and in one DeleteObjects.
MAX_KEYS = 1000


@dataclass(frozen=True, slots=True)
class Object:
    """One version of an object."""

    key: str
    body: bytes
    #: ETag with its quotes.
    etag: str
    #: Seconds since the epoch.
    modified: float
    version_id: str = "null"
    metadata: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "binary/octet-stream"


class Bucket(dict[str, Object]):
    """A bucket: its configuration, and its current objects by key."""

    def __init__(self, name: str, *, versioned: bool = False, announces: bool = False) -> None:
        super().__init__()
        self.name = name
        self.versioned = versioned
        #: Whether "Object Created" goes to the default event bus.
        self.announces = announces
        #: All versions of each key, the oldest first. None is a delete marker. Empty without versioning.
        self.versions: dict[str, list[Object | None]] = {}

    def empty_copy(self) -> Bucket:
        """A bucket like this one, without objects."""
        return Bucket(self.name, versioned=self.versioned, announces=self.announces)


class Body(io.BytesIO):
    """The `Body` in an answer of `get_object`."""

    def iter_chunks(self, chunk_size: int = 1024) -> Iterator[bytes]:
        while chunk := self.read(chunk_size):
            yield chunk


@dataclass
class Parts:
    """An upload in parts."""

    bucket: str
    key: str
    content_type: str
    bodies: dict[int, bytes] = field(default_factory=dict)


class S3(Client):
    """The part of boto3's S3 client that Prismline uses."""

    service = "s3"

    def __init__(self, aws: Any) -> None:
        super().__init__(aws)
        self._buckets: dict[str, Bucket] = aws.objects
        self._versions = 0
        #: Keys whose next conditional write gets 409 ConditionalRequestConflict, like a write that races with another
        #: one.
        self.conflicts: set[str] = set()
        #: Uploads in parts that are neither complete nor aborted, by id.
        self.uploads: dict[str, Parts] = {}

    # ---- buckets

    @operation
    def create_bucket(self, *, Bucket: str, **others: Any) -> dict[str, Any]:
        if Bucket in self._buckets:
            raise client_error(
                "CreateBucket",
                "BucketAlreadyOwnedByYou",
                "Your previous request to create the named bucket succeeded and you already own it.",
                status=409,
            )
        self._buckets[Bucket] = _new_bucket(Bucket)
        return {"Location": f"/{Bucket}"}

    @operation
    def put_bucket_versioning(self, *, Bucket: str, VersioningConfiguration: Mapping[str, str]) -> dict[str, Any]:
        self._bucket("PutBucketVersioning", Bucket).versioned = VersioningConfiguration["Status"] == "Enabled"
        return {}

    @operation
    def put_bucket_notification_configuration(
        self, *, Bucket: str, NotificationConfiguration: Mapping[str, Any]
    ) -> dict[str, Any]:
        bucket = self._bucket("PutBucketNotificationConfiguration", Bucket)
        bucket.announces = "EventBridgeConfiguration" in NotificationConfiguration
        return {}

    # ---- objects

    @operation
    def put_object(
        self,
        *,
        Bucket: str,
        Key: str,
        Body: Any = b"",
        IfNoneMatch: str | None = None,
        IfMatch: str | None = None,
        Metadata: Mapping[str, str] | None = None,
        ContentType: str = "binary/octet-stream",
        ContentDisposition: str | None = None,
    ) -> dict[str, Any]:
        bucket = self._bucket("PutObject", Bucket)
        self._check_write("PutObject", bucket, Key, IfNoneMatch, IfMatch)
        body = Body.encode() if isinstance(Body, str) else bytes(Body.read() if hasattr(Body, "read") else Body)
        return _written(self._store(bucket, Key, body, Metadata, ContentType, "PutObject"))

    def _check_write(
        self, name: str, bucket: Bucket, key: str, if_none_match: str | None, if_match: str | None
    ) -> None:
        if if_none_match is None and if_match is None:
            return
        if key in self.conflicts:
            self.conflicts.discard(key)
            raise client_error(
                name,
                "ConditionalRequestConflict",
                "The conditional request cannot succeed due to a conflicting operation against this resource.",
                status=409,
            )
        current = bucket.get(key)
        if if_match is not None and current is None:
            raise _no_such_key(name)
        if (if_none_match is not None and current is not None) or (
            if_match is not None and current is not None and if_match.strip('"') != current.etag.strip('"')
        ):
            raise _precondition_failed(name, "If-None-Match" if if_none_match is not None else "If-Match")

    def _store(
        self,
        bucket: Bucket,
        key: str,
        body: bytes,
        metadata: Mapping[str, str] | None,
        content_type: str,
        reason: str,
        *,
        etag: str | None = None,
    ) -> Object:
        version_id = "null"
        if bucket.versioned:
            self._versions += 1
            version_id = f"version-{self._versions:08d}"
        stored = Object(key, body, etag or _etag(body), self._hub.now(), version_id, dict(metadata or {}), content_type)
        bucket[key] = stored
        if bucket.versioned:
            bucket.versions.setdefault(key, []).append(stored)
        for listener in self._aws.on_put_object:
            listener(bucket.name, key, stored)
        if bucket.announces:
            self._announce(bucket, stored, reason)
        return stored

    def _announce(self, bucket: Bucket, stored: Object, reason: str) -> None:
        described = {"key": stored.key, "size": len(stored.body), "etag": stored.etag.strip('"')}
        described["sequencer"] = f"{round(stored.modified * 1000):016X}"
        if bucket.versioned:
            described["version-id"] = stored.version_id
        self._aws.events.accept(
            "default",
            source="aws.s3",
            detail_type="Object Created",
            resources=[f"arn:aws:s3:::{bucket.name}"],
            detail={
                "version": "0",
                "bucket": {"name": bucket.name},
                "object": described,
                "request-id": "simulated",
                "requester": ACCOUNT,
                "source-ip-address": "127.0.0.1",
                "reason": reason,
            },
        )

    @operation
    def get_object(
        self,
        *,
        Bucket: str,
        Key: str,
        Range: str | None = None,
        IfMatch: str | None = None,
        VersionId: str | None = None,
    ) -> dict[str, Any]:
        found = self._object("GetObject", Bucket, Key, VersionId)
        if IfMatch is not None and IfMatch.strip('"') != found.etag.strip('"'):
            raise _precondition_failed("GetObject", "If-Match")
        if Range is None:
            return _described(found) | {"Body": _body(found.body), "ContentLength": len(found.body)}
        start, stop = _span(Range, len(found.body))
        part = found.body[start:stop]
        return _described(found) | {
            "Body": _body(part),
            "ContentLength": len(part),
            "ContentRange": f"bytes {start}-{stop - 1}/{len(found.body)}",
        }

    @operation
    def head_object(
        self, *, Bucket: str, Key: str, VersionId: str | None = None, IfMatch: str | None = None
    ) -> dict[str, Any]:
        try:
            found = self._object("HeadObject", Bucket, Key, VersionId)
        except ClientError as error:  # the answer to a HEAD has no body
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            reason = {404: "Not Found", 403: "Forbidden"}.get(status, "Bad Request")
            raise client_error("HeadObject", str(status), reason, status=status) from None
        if IfMatch is not None and IfMatch.strip('"') != found.etag.strip('"'):
            raise client_error("HeadObject", "412", "Precondition Failed", status=412)
        return _described(found) | {"ContentLength": len(found.body)}

    @operation
    def copy_object(
        self, *, Bucket: str, Key: str, CopySource: Any, CopySourceIfMatch: str | None = None, **others: Any
    ) -> dict[str, Any]:
        if isinstance(CopySource, str):
            name, _, key = CopySource.lstrip("/").partition("/")
            version = None
        else:
            name, key, version = CopySource["Bucket"], CopySource["Key"], CopySource.get("VersionId")
        source = self._object("CopyObject", name, key, version)
        if CopySourceIfMatch is not None and CopySourceIfMatch.strip('"') != source.etag.strip('"'):
            raise _precondition_failed("CopyObject", "x-amz-copy-source-If-Match")
        bucket = self._bucket("CopyObject", Bucket)
        stored = self._store(bucket, Key, source.body, source.metadata, source.content_type, "CopyObject")
        return {"CopyObjectResult": {"ETag": stored.etag, "LastModified": _moment(stored.modified)}}

    @operation
    def delete_object(self, *, Bucket: str, Key: str, VersionId: str | None = None) -> dict[str, Any]:
        self._remove(self._bucket("DeleteObject", Bucket), Key, VersionId)
        return {}

    @operation
    def delete_objects(self, *, Bucket: str, Delete: Mapping[str, Any]) -> dict[str, Any]:
        bucket = self._bucket("DeleteObjects", Bucket)
        if not 1 <= len(Delete["Objects"]) <= MAX_KEYS:
            raise client_error(
                "DeleteObjects",
                "MalformedXML",
                "The XML you provided was not well-formed or did not validate against our published schema",
            )
        for each in Delete["Objects"]:
            self._remove(bucket, each["Key"], each.get("VersionId"))
        return {} if Delete.get("Quiet") else {"Deleted": [{"Key": each["Key"]} for each in Delete["Objects"]]}

    @staticmethod
    def _remove(bucket: Bucket, key: str, version_id: str | None) -> None:
        if not bucket.versioned:
            bucket.pop(key, None)
            return
        versions = bucket.versions.setdefault(key, [])
        if version_id is None:
            versions.append(None)
        else:
            versions[:] = [each for each in versions if each is None or each.version_id != version_id]
        current = versions[-1] if versions else None
        if current is None:
            bucket.pop(key, None)
        else:
            bucket[key] = current

    # ---- tags, which have no effect here

    @operation
    def put_object_tagging(self, *, Bucket: str, Key: str, Tagging: Mapping[str, Any]) -> dict[str, Any]:
        self._object("PutObjectTagging", Bucket, Key, None)
        return {}

    # ---- uploads in parts

    @operation
    def create_multipart_upload(self, *, Bucket: str, Key: str, ContentType: str, **others: Any) -> dict[str, Any]:
        self._bucket("CreateMultipartUpload", Bucket)
        self._versions += 1
        upload_id = f"upload-{self._versions:08d}"
        self.uploads[upload_id] = Parts(Bucket, Key, ContentType)
        return {"Bucket": Bucket, "Key": Key, "UploadId": upload_id}

    @operation
    def upload_part(self, *, Bucket: str, Key: str, UploadId: str, PartNumber: int, Body: Any) -> dict[str, Any]:
        body = bytes(Body)
        self._parts("UploadPart", UploadId).bodies[PartNumber] = body
        return {"ETag": _etag(body)}

    @operation
    def complete_multipart_upload(
        self, *, Bucket: str, Key: str, UploadId: str, MultipartUpload: Mapping[str, Any]
    ) -> dict[str, Any]:
        parts = self._parts("CompleteMultipartUpload", UploadId)
        bodies = []
        for part in MultipartUpload["Parts"]:
            body = parts.bodies.get(part["PartNumber"])
            if body is None or _etag(body).strip('"') != part["ETag"].strip('"'):
                raise client_error(
                    "CompleteMultipartUpload",
                    "InvalidPart",
                    "One or more of the specified parts could not be found.  The part may not have been uploaded, or "
                    "the specified entity tag may not match the part's entity tag.",
                )
            bodies.append(body)
        del self.uploads[UploadId]
        bucket = self._bucket("CompleteMultipartUpload", Bucket)
        digests = b"".join(hashlib.md5(body, usedforsecurity=False).digest() for body in bodies)
        etag = f'{_etag(digests)[:-1]}-{len(bodies)}"'
        stored = self._store(
            bucket, Key, b"".join(bodies), None, parts.content_type, "CompleteMultipartUpload", etag=etag
        )
        return {"Bucket": Bucket, "Key": Key, "ETag": stored.etag}

    @operation
    def abort_multipart_upload(self, *, Bucket: str, Key: str, UploadId: str) -> dict[str, Any]:
        self._parts("AbortMultipartUpload", UploadId)
        del self.uploads[UploadId]
        return {}

    def _parts(self, operation_name: str, upload_id: str) -> Parts:
        parts = self.uploads.get(upload_id)
        if parts is None:
            raise client_error(
                operation_name,
                "NoSuchUpload",
                "The specified upload does not exist. The upload ID may be invalid, or the upload may have been "
                "aborted or completed.",
                status=404,
            )
        return parts

    # ---- listings

    @operation
    def list_objects_v2(
        self,
        *,
        Bucket: str,
        Prefix: str = "",
        StartAfter: str = "",
        ContinuationToken: str | None = None,
        MaxKeys: int = MAX_KEYS,
        Delimiter: str = "",
    ) -> dict[str, Any]:
        bucket = self._bucket("ListObjectsV2", Bucket)
        after = StartAfter if ContinuationToken is None else ContinuationToken
        limit = min(MaxKeys, MAX_KEYS)
        contents: list[dict[str, Any]] = []
        prefixes: dict[str, None] = {}
        last, truncated = "", False
        for key in sorted(bucket):
            if not key.startswith(Prefix) or key <= after or (Delimiter and _is_below(key, after, Delimiter, Prefix)):
                continue
            common = _common_prefix(key, Prefix, Delimiter)
            if common is not None and common in prefixes:
                continue
            if len(contents) + len(prefixes) == limit:
                truncated = True
                break
            if common is not None:
                prefixes[common] = None
                last = common
            else:
                contents.append(_listed(bucket[key]))
                last = key
        answer: dict[str, Any] = {
            "Name": Bucket,
            "Prefix": Prefix,
            "MaxKeys": limit,
            "KeyCount": len(contents) + len(prefixes),
            "IsTruncated": truncated,
        }
        if contents:
            answer["Contents"] = contents
        if prefixes:
            answer["CommonPrefixes"] = [{"Prefix": prefix} for prefix in prefixes]
        if truncated:
            answer["NextContinuationToken"] = last
        return answer

    def get_paginator(self, operation_name: str) -> Paginator:
        return Paginator(getattr(self, operation_name), ("NextContinuationToken", "ContinuationToken"))

    # ---- files

    def upload_file(self, Filename: str, Bucket: str, Key: str, **others: Any) -> None:
        """Put a file as one object, without parts. Raises S3UploadFailedError like the transfer manager."""
        try:
            self.put_object(Bucket=Bucket, Key=Key, Body=Path(Filename).read_bytes())
        except ClientError as error:
            raise S3UploadFailedError(f"Failed to upload {Filename} to {Bucket}/{Key}: {error}") from error

    def download_file(self, Bucket: str, Key: str, Filename: str, **others: Any) -> None:
        """Write an object to a file. A missing object is a 404, as the transfer manager requests the head first."""
        self.head_object(Bucket=Bucket, Key=Key)
        Path(Filename).write_bytes(self.get_object(Bucket=Bucket, Key=Key)["Body"].read())

    # ---- common

    def _bucket(self, operation_name: str, name: str) -> Bucket:
        try:
            return self._buckets[name]
        except KeyError:
            raise client_error(
                operation_name, "NoSuchBucket", "The specified bucket does not exist", status=404
            ) from None

    def _object(self, operation_name: str, bucket_name: str, key: str, version_id: str | None) -> Object:
        bucket = self._bucket(operation_name, bucket_name)
        if version_id is None:
            if key not in bucket:
                raise _no_such_key(operation_name)
            return bucket[key]
        for each in bucket.versions.get(key, ()):
            if each is not None and each.version_id == version_id:
                return each
        if version_id == "null" and not bucket.versioned and key in bucket:
            return bucket[key]
        raise client_error(operation_name, "NoSuchVersion", "The specified version does not exist.", status=404)


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


def _new_bucket(name: str) -> Bucket:
    return Bucket(name)


def _body(content: bytes) -> Body:
    return Body(content)


def _written(stored: Object) -> dict[str, Any]:
    answer = {"ETag": stored.etag}
    return answer if stored.version_id == "null" else answer | {"VersionId": stored.version_id}


def _described(found: Object) -> dict[str, Any]:
    answer = {
        "ETag": found.etag,
        "LastModified": _moment(found.modified),
        "ContentType": found.content_type,
        "Metadata": dict(found.metadata),
        "AcceptRanges": "bytes",
    }
    return answer if found.version_id == "null" else answer | {"VersionId": found.version_id}


def _listed(found: Object) -> dict[str, Any]:
    return {
        "Key": found.key,
        "LastModified": _moment(found.modified),
        "ETag": found.etag,
        "Size": len(found.body),
        "StorageClass": "STANDARD",
    }


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), tz=UTC)


def _common_prefix(key: str, prefix: str, delimiter: str) -> str | None:
    if not delimiter:
        return None
    at = key.find(delimiter, len(prefix))
    return None if at < 0 else key[: at + len(delimiter)]


def _is_below(key: str, after: str, delimiter: str, prefix: str) -> bool:
    """Whether a listing that continues after the common prefix `after` has already shown the key's prefix."""
    return bool(after) and after.endswith(delimiter) and _common_prefix(key, prefix, delimiter) == after


def _span(text: str, size: int) -> tuple[int, int]:
    """The first byte of a range, and the byte after its last."""
    first, _, last = text.removeprefix("bytes=").partition("-")
    if not first:
        start, stop = max(0, size - int(last)), size
    else:
        start, stop = int(first), min(int(last) + 1, size) if last else size
    if start >= size:
        raise client_error(
            "GetObject",
            "InvalidRange",
            "The requested range is not satisfiable",
            status=416,
            ActualObjectSize=str(size),
            RangeRequested=text,
        )
    return start, stop


def _no_such_key(operation_name: str) -> ClientError:
    return client_error(operation_name, "NoSuchKey", "The specified key does not exist.", status=404)


def _precondition_failed(operation_name: str, condition: str) -> ClientError:
    return client_error(
        operation_name,
        "PreconditionFailed",
        "At least one of the pre-conditions you specified did not hold",
        status=412,
        Condition=condition,
    )
