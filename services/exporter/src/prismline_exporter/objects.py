"""The objects of an export in S3: the results that it reads, its multipart upload, and its segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from prismline_exporter.zip_archive import SLICE_BYTES, Body, Kind
from prismline_runtime import aws_errors, batches, error_code

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

#: Limits of a multipart upload: the least size of a part in bytes, except for the last one, and the number of parts.
MIN_PART_BYTES, MAX_PARTS = 5 * 2**20, 10_000
#: Most keys in one request to delete objects.
_KEYS_PER_DELETE = 1000


class StoredBodies:
    """The results in the bucket."""

    def __init__(self, s3: S3Client, bucket: str) -> None:
        self._s3 = s3
        self._bucket = bucket

    def read(self, key: str) -> Body:
        """The result, with its content unless it is longer than `SLICE_BYTES`."""
        with aws_errors(f"read s3://{self._bucket}/{key}"):
            answer = self._s3.get_object(Bucket=self._bucket, Key=key)
            with answer["Body"] as stream:
                size = answer["ContentLength"]
                return Body(size, answer["ETag"], stream.read() if size <= SLICE_BYTES else None)

    def read_all(self, key: str) -> bytes:
        """The content of the result, however long it is."""
        with aws_errors(f"read s3://{self._bucket}/{key}"):
            return self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()

    def read_slice(self, key: str, etag: str, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop` of the version `etag`."""
        with aws_errors(f"read s3://{self._bucket}/{key}"):
            answer = self._s3.get_object(Bucket=self._bucket, Key=key, IfMatch=etag, Range=f"bytes={start}-{stop - 1}")
            return answer["Body"].read()


class Upload:
    """The multipart upload of an export."""

    def __init__(self, s3: S3Client, bucket: str, key: str) -> None:
        self._s3 = s3
        self._bucket = bucket
        self.key = key

    def begin(self, content_type: str) -> str:
        """Begin the upload and return its id."""
        with aws_errors(f"begin the upload of s3://{self._bucket}/{self.key}"):
            answer = self._s3.create_multipart_upload(
                Bucket=self._bucket, Key=self.key, ContentType=content_type, ContentDisposition="attachment"
            )
            return answer["UploadId"]

    def put(self, upload_id: str, number: int, content: bytearray) -> str:
        """Upload the part `number`, from 1. Return its ETag, without quotes."""
        with aws_errors(f"write part {number} of s3://{self._bucket}/{self.key}"):
            answer = self._s3.upload_part(
                Bucket=self._bucket,
                Key=self.key,
                UploadId=upload_id,
                PartNumber=number,
                Body=content,  # type: ignore[arg-type]  # botocore accepts it, which saves a copy of the part
            )
            return answer["ETag"].strip('"')

    def complete(self, upload_id: str, etags: list[str]) -> None:
        """Make the object from its parts. Does nothing if an earlier call has done it."""
        parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, start=1)]
        with aws_errors(f"complete s3://{self._bucket}/{self.key}"):
            try:
                self._s3.complete_multipart_upload(
                    Bucket=self._bucket,
                    Key=self.key,
                    UploadId=upload_id,
                    MultipartUpload={"Parts": parts},  # type: ignore[typeddict-item]
                )
            except ClientError as error:
                if error_code(error) != "NoSuchUpload":
                    raise
                self._s3.head_object(Bucket=self._bucket, Key=self.key)

    def abort(self, upload_id: str) -> None:
        """Remove the parts of an upload that is given up."""
        with aws_errors(f"abort the upload of s3://{self._bucket}/{self.key}"):
            try:
                self._s3.abort_multipart_upload(Bucket=self._bucket, Key=self.key, UploadId=upload_id)
            except ClientError as error:
                if error_code(error) != "NoSuchUpload":
                    raise


class StoredSegments:
    """The segments of an archive, below a prefix of their own."""

    def __init__(self, s3: S3Client, bucket: str, prefix: str) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._prefix = prefix

    def write(self, kind: Kind, number: int, content: bytes) -> None:
        """Store a segment. An existing one is replaced."""
        key = self._key(kind, number)
        with aws_errors(f"write s3://{self._bucket}/{key}"):
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=content)

    def read(self, kind: Kind, number: int) -> bytes:
        """The segment."""
        key = self._key(kind, number)
        with aws_errors(f"read s3://{self._bucket}/{key}"):
            return self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read()

    def delete(self) -> None:
        """Delete all segments."""
        with aws_errors(f"delete s3://{self._bucket}/{self._prefix}"):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
            keys = (item["Key"] for page in pages for item in page.get("Contents", []))
            for batch in batches(keys, _KEYS_PER_DELETE):
                self._s3.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True}
                )

    def _key(self, kind: Kind, number: int) -> str:
        return f"{self._prefix}{kind}-{number:06d}"
