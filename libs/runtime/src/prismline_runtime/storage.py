"""A bucket: whole objects, read and written with the error families of Prismline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from prismline_runtime.errors import aws_errors, error_code

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

#: What S3 answers when the condition of a write does not hold.
_CONDITION_CODES = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412", "409"})


class Bucket:
    """One S3 bucket. An object that does not exist is a PermanentError, an unreachable bucket a TransientError."""

    def __init__(self, s3: S3Client, name: str) -> None:
        self._s3 = s3
        self.name = name

    def read(self, key: str) -> bytes:
        """The whole object."""
        return self.read_versioned(key)[0]

    def read_versioned(self, key: str) -> tuple[bytes, str]:
        """The whole object and its ETag, for `replace`."""
        with aws_errors(f"read s3://{self.name}/{key}"):
            answer = self._s3.get_object(Bucket=self.name, Key=key)
            return answer["Body"].read(), answer["ETag"]

    def download(self, key: str, to: Path) -> None:
        """The whole object into a file, in parts, without holding it in memory."""
        with aws_errors(f"read s3://{self.name}/{key}"):
            self._s3.download_file(self.name, key, str(to))

    def write(self, key: str, body: bytes) -> None:
        """Put an object under `key`, replacing what was there."""
        with aws_errors(f"write s3://{self.name}/{key}"):
            self._s3.put_object(Bucket=self.name, Key=key, Body=body)

    def create(self, key: str, body: bytes) -> bool:
        """Put an object under `key` unless there is one; False if there is."""
        return self._write_if(key, body, IfNoneMatch="*")

    def replace(self, key: str, body: bytes, etag: str) -> bool:
        """Replace the object under `key` if it is still the one with `etag`; False if it is not."""
        return self._write_if(key, body, IfMatch=etag)

    def _write_if(self, key: str, body: bytes, **condition: str) -> bool:
        with aws_errors(f"write s3://{self.name}/{key}"):
            try:
                self._s3.put_object(Bucket=self.name, Key=key, Body=body, **condition)  # type: ignore[arg-type]
            except ClientError as error:
                if error_code(error) in _CONDITION_CODES:
                    return False
                raise
        return True
