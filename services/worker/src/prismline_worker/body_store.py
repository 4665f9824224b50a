"""Stores the bodies of responses in S3, each under a key of its own, complete or not at all.

The first body under a key wins, because two workers may fetch the same task: the ledger and the object then agree.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from prismline_runtime import Download, PermanentError, PrismlineError, aws_errors, download_of, error_code

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

#: A body up to this many bytes is held in memory and put in one request.
SMALL_BYTES = 1024 * 1024
#: Bytes of one part of a larger body. S3 accepts a smaller part only as the last one.
PART_BYTES = 5 * 1024 * 1024
#: Larger bodies that a process stores at a time. Each holds up to one part in memory, so this bounds the memory.
LARGE_AT_A_TIME = 8

InThread = Callable[[Callable[[], Any]], Awaitable[Any]]


@dataclass(frozen=True)
class StoredBody:
    """A body in S3."""

    #: Length in bytes.
    length: int
    #: SHA-256 in hexadecimal digits.
    sha256: str


class TooLongError(PermanentError):
    """The body is longer than the job allows."""


class BodyStore:
    """Stores bodies in one bucket.

    executor: runs the requests to S3, because boto3 blocks.
    """

    def __init__(self, s3: S3Client, bucket: str, executor: Executor) -> None:
        self._s3 = s3
        self._bucket = bucket
        self._executor = executor
        self._large = asyncio.Semaphore(LARGE_AT_A_TIME)

    async def store(
        self, key: str, pieces: AsyncIterator[bytes], *, content_type: str | None, most_bytes: int
    ) -> StoredBody:
        """Store the body that comes in `pieces`. If there is one under `key` already, describe that one.

        content_type: the type that the site gives. The object gets it only if no browser runs it (`download_of`).
        Passes on errors of `pieces`. Raises TooLongError if the body is longer than `most_bytes`, and UnavailableError
        if S3 does not answer. After an error nothing is stored.
        """
        digest, length, buffer, download = hashlib.sha256(), 0, bytearray(), download_of(content_type)
        upload: _Upload | None = None
        try:
            async for piece in pieces:
                length += len(piece)
                if length > most_bytes:
                    raise TooLongError(f"The body is longer than {most_bytes} bytes.")
                digest.update(piece)
                buffer += piece
                if len(buffer) > SMALL_BYTES and upload is None:
                    await self._large.acquire()
                    upload = _Upload(self._s3, self._bucket, key, self._in_thread)
                    await upload.begin(download)
                while upload is not None and len(buffer) >= PART_BYTES:
                    await upload.add(bytes(buffer[:PART_BYTES]))
                    del buffer[:PART_BYTES]
            if upload is None:
                created = await self._put(key, bytes(buffer), download)
            else:
                await upload.add(bytes(buffer))
                created = await upload.complete()
        except BaseException:
            if upload is not None:
                await asyncio.shield(upload.abort())
            raise
        finally:
            if upload is not None:
                self._large.release()
        return StoredBody(length, digest.hexdigest()) if created else await self._existing(key)

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        """Run a request to S3 in a thread, so that it does not block the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def _put(self, key: str, body: bytes, download: Download) -> bool:
        def put() -> bool:
            return _created(
                f"write s3://{self._bucket}/{key}",
                lambda: self._s3.put_object(
                    Bucket=self._bucket,
                    Key=key,
                    Body=body,
                    IfNoneMatch="*",
                    ContentType=download.content_type,
                    ContentDisposition=download.content_disposition,
                ),
            )

        created: bool = await self._in_thread(put)
        return created

    async def _existing(self, key: str) -> StoredBody:
        def read() -> StoredBody:
            digest, length = hashlib.sha256(), 0
            with aws_errors(f"read s3://{self._bucket}/{key}"):
                for piece in self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].iter_chunks(SMALL_BYTES):
                    digest.update(piece)
                    length += len(piece)
            return StoredBody(length, digest.hexdigest())

        found: StoredBody = await self._in_thread(read)
        return found


class _Upload:
    """One multipart upload."""

    def __init__(self, s3: S3Client, bucket: str, key: str, in_thread: InThread) -> None:
        self._s3, self._bucket, self._key = s3, bucket, key
        self._in_thread = in_thread
        self._doing = f"write s3://{bucket}/{key}"
        self._id = ""
        self._parts: list[CompletedPartTypeDef] = []

    async def begin(self, download: Download) -> None:
        def create() -> str:
            with aws_errors(self._doing):
                answer = self._s3.create_multipart_upload(
                    Bucket=self._bucket,
                    Key=self._key,
                    ContentType=download.content_type,
                    ContentDisposition=download.content_disposition,
                )
                return answer["UploadId"]

        self._id = await self._in_thread(create)

    async def add(self, part: bytes) -> None:
        number = len(self._parts) + 1

        def upload() -> str:
            with aws_errors(self._doing):
                answer = self._s3.upload_part(
                    Bucket=self._bucket, Key=self._key, UploadId=self._id, PartNumber=number, Body=part
                )
                return answer["ETag"]

        self._parts.append({"PartNumber": number, "ETag": await self._in_thread(upload)})

    async def complete(self) -> bool:
        """Complete the upload. False if the key has an object already."""

        def complete() -> bool:
            return _created(
                self._doing,
                lambda: self._s3.complete_multipart_upload(
                    Bucket=self._bucket,
                    Key=self._key,
                    UploadId=self._id,
                    MultipartUpload={"Parts": self._parts},
                    IfNoneMatch="*",
                ),
            )

        created: bool = await self._in_thread(complete)
        if not created:
            await self.abort()
        return created

    async def abort(self) -> None:
        """Give up the upload. If that fails, the bucket's lifecycle removes its parts."""

        def abort() -> None:
            with suppress(PrismlineError), aws_errors(self._doing):
                self._s3.abort_multipart_upload(Bucket=self._bucket, Key=self._key, UploadId=self._id)

        if self._id:
            await self._in_thread(abort)


def _created(doing: str, write: Callable[[], object]) -> bool:
    """Make a conditional write. False if the key has an object already."""
    with aws_errors(doing):
        try:
            write()
        except ClientError as error:
            if error_code(error) in {"PreconditionFailed", "412"}:
                return False
            raise
    return True
