"""Reads and writes of S3 objects, with Prismline's two families of errors."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from boto3.exceptions import S3UploadFailedError
from boto3.s3.transfer import TransferConfig
from botocore.exceptions import ClientError

from prismline_contracts.base import timestamp
from prismline_runtime.errors import PermanentError, UnavailableError, aws_errors, error_code
from prismline_runtime.presigned import PresignedRanges
from prismline_runtime.transport import batches

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

#: Error codes of a conditional request whose condition does not hold. A 409 is not one of them: it means that two
#: writes collided, and that the client should retry.
_CONDITION_CODES = frozenset({"PreconditionFailed", "412"})


#: Transfers of whole files. A few long requests cost less than many short ones, for the client and for S3.
TRANSFER = TransferConfig(multipart_threshold=64 * 2**20, multipart_chunksize=32 * 2**20, max_concurrency=4)
#: Most keys in one DeleteObjects request.
DELETE_BATCH = 1000
#: Bytes of one ranged read of a large object. Large enough that latency does not dominate.
PART_BYTES = 8 * 2**20


class TooLargeError(PermanentError):
    """An object has more bytes than its reader accepts."""


class ObjectReader(io.RawIOBase):
    """A seekable file of `size` bytes. Each read is one call of `get`, for the bytes from `start` to `stop`."""

    def __init__(self, get: Callable[[int, int], bytes | memoryview], size: int) -> None:
        super().__init__()
        self._get = get
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """True: an object can be read."""
        return True

    def seekable(self) -> bool:
        """True: an object can be read from any position."""
        return True

    def tell(self) -> int:
        """The position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position, and return it. Raises ValueError for one before the beginning."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"cannot seek to {start + offset}")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        """Read into `buffer`, and return how many bytes. 0: the end."""
        stop = min(self._position + len(buffer), self._size)
        if stop <= self._position:
            return 0
        body = self._get(self._position, stop)
        buffer[: len(body)] = body
        self._position += len(body)
        return len(body)


class Bucket:
    """One S3 bucket.

    Raises PermanentError if the object does not exist, and UnavailableError if S3 does not answer.
    """

    def __init__(self, s3: S3Client, name: str, presigned: PresignedRanges | None = None) -> None:
        """presigned: tries each ranged read before boto3 does, for readers of many ranges. Default: only boto3."""
        self._s3 = s3
        self._presigned = presigned
        self.name = name

    def read(self, key: str, *, most: int | None = None) -> bytes:
        """The whole object. Raises TooLargeError, before it is read, if it has more than `most` bytes."""
        name = f"s3://{self.name}/{key}"
        with aws_errors(f"read {name}"):
            answer = self._s3.get_object(Bucket=self.name, Key=key)
            if most is not None and answer["ContentLength"] > most:
                answer["Body"].close()
                raise TooLargeError(f"{name} has {answer['ContentLength']:,} bytes; at most {most:,} are read.")
            return answer["Body"].read()

    def read_versioned(self, key: str) -> tuple[bytes, str]:
        """The whole object, and its ETag for `replace`."""
        with aws_errors(f"read s3://{self.name}/{key}"):
            answer = self._s3.get_object(Bucket=self.name, Key=key)
            return answer["Body"].read(), answer["ETag"]

    def version(self, key: str) -> str:
        """The ETag of the object."""
        with aws_errors(f"read the metadata of s3://{self.name}/{key}"):
            return self._s3.head_object(Bucket=self.name, Key=key)["ETag"]

    def size(self, key: str, *, etag: str) -> int:
        """Length of a version of an object, in bytes. Raises PermanentError if the object now has another version."""
        name = f"s3://{self.name}/{key}"
        with aws_errors(f"read the metadata of {name}"), _pinned(name):
            return self._s3.head_object(Bucket=self.name, Key=key, IfMatch=etag)["ContentLength"]

    def open(self, key: str, *, etag: str | None = None) -> BinaryIO:
        """The object as a seekable file. A large object is fetched in parts as it is read.

        etag: the expected version. Raises PermanentError if the object has another one.
        """
        with aws_errors(f"read s3://{self.name}/{key}"):
            try:
                first = self._s3.get_object(Bucket=self.name, Key=key, Range=f"bytes=0-{PART_BYTES - 1}")
            except ClientError as error:
                if error_code(error) != "InvalidRange":
                    raise
                first = self._s3.get_object(Bucket=self.name, Key=key)  # an empty object has no first byte
            body = first["Body"].read()
        if etag is not None and first["ETag"] != etag:
            raise _replaced(f"s3://{self.name}/{key}")
        size = int(first["ContentRange"].rpartition("/")[2]) if "ContentRange" in first else len(body)
        if len(body) == size:
            return io.BytesIO(body)

        def get(start: int, stop: int) -> bytes:
            with aws_errors(f"read s3://{self.name}/{key}"):
                return self._get_range(key, start, stop, first["ETag"])

        return io.BufferedReader(ObjectReader(get, size), PART_BYTES)

    def open_version(self, key: str, *, etag: str, size: int, part_bytes: int) -> io.BufferedReader:
        """One version of an object as a seekable file of `size` bytes, which is fetched in parts as it is read.

        Reads raise the errors of `read_range`.
        """

        def get(start: int, stop: int) -> bytes:
            return self.read_range(key, start, stop, etag=etag)

        return io.BufferedReader(ObjectReader(get, size), part_bytes)

    def read_range(self, key: str, start: int, stop: int, *, etag: str) -> bytes:
        """The bytes from `start` to `stop` (exclusive) of one version of an object.

        Raises PermanentError if the object now has another version, and UnavailableError if bytes are missing.
        """
        name = f"s3://{self.name}/{key}"
        with aws_errors(f"read {name}"), _pinned(name):
            body = self._get_range(key, start, stop, etag)
        if len(body) != stop - start:
            raise UnavailableError(f"Could not read {name}: {len(body)} of {stop - start} bytes arrived.")
        return body

    def _get_range(self, key: str, start: int, stop: int, etag: str) -> bytes:
        if self._presigned is not None:
            body = self._presigned.read(self.name, key, start, stop, etag=etag)
            if body is not None:
                return body
        answer = self._s3.get_object(Bucket=self.name, Key=key, Range=f"bytes={start}-{stop - 1}", IfMatch=etag)
        return answer["Body"].read()

    def download(self, key: str, to: Path, *, etag: str | None = None) -> None:
        """Download the whole object to a file, in parts, without holding it in memory.

        etag: the expected version. Raises PermanentError if the object has another one.
        """
        with aws_errors(f"read s3://{self.name}/{key}"):
            self._s3.download_file(self.name, key, str(to), Config=TRANSFER)
            if etag is not None and self._s3.head_object(Bucket=self.name, Key=key)["ETag"] != etag:
                raise _replaced(f"s3://{self.name}/{key}")

    def write(self, key: str, body: bytes) -> None:
        """Put an object. An existing object is replaced."""
        with aws_errors(f"write s3://{self.name}/{key}"):
            self._s3.put_object(Bucket=self.name, Key=key, Body=body)

    def upload(self, path: Path, key: str) -> None:
        """Upload a file, a large one in parts, without holding it in memory."""
        with aws_errors(f"write s3://{self.name}/{key}"):
            try:
                self._s3.upload_file(str(path), self.name, key, Config=TRANSFER)
            except S3UploadFailedError as error:  # the transfer manager wraps the error of S3
                raise (error.__context__ if isinstance(error.__context__, ClientError) else error) from None

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """The keys with `prefix` that come after the key `after`, in order. They are listed page by page."""
        with aws_errors(f"list s3://{self.name}/{prefix}"):
            pages = self._s3.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.name, Prefix=prefix, StartAfter=after):
                for entry in page.get("Contents", []):
                    yield entry["Key"]

    def entries(self, prefix: str, *, after: str = "") -> Iterator[dict[str, str | int]]:
        """The objects that `list` names: `key`, `size`, `etag` with its quotes, and `last_modified` as a timestamp."""
        with aws_errors(f"list s3://{self.name}/{prefix}"):
            pages = self._s3.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.name, Prefix=prefix, StartAfter=after):
                for entry in page.get("Contents", []):
                    yield {
                        "key": entry["Key"],
                        "size": entry["Size"],
                        "etag": entry["ETag"],
                        "last_modified": timestamp(entry["LastModified"]),
                    }

    def delete(self, keys: Iterable[str]) -> int:
        """Delete objects, and return how many keys there were. Keys that do not exist are ignored."""
        count = 0
        for batch in batches(keys, DELETE_BATCH):
            with aws_errors(f"delete objects from s3://{self.name}"):
                answer = self._s3.delete_objects(
                    Bucket=self.name, Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True}
                )
            if errors := answer.get("Errors"):
                first = errors[0].get("Message")
                raise UnavailableError(f"Could not delete {len(errors)} objects, the first: {first}.")
            count += len(batch)
        return count

    def create(self, key: str, body: bytes) -> bool:
        """Put an object if there is none with this key. False if there is one."""
        return self._write_if(key, body, IfNoneMatch="*")

    def replace(self, key: str, body: bytes, etag: str) -> bool:
        """Replace an object if it still has `etag`. False if it has another one."""
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


@contextmanager
def _pinned(name: str) -> Iterator[None]:
    """Map an unmet condition in the block to a PermanentError: the object was replaced since the run was submitted."""
    try:
        yield
    except ClientError as error:
        if error_code(error) in _CONDITION_CODES:
            raise _replaced(name) from error
        raise


def _replaced(name: str) -> PermanentError:
    return PermanentError(f"{name} was replaced after the run had been submitted; submit it again.")
