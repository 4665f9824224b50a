"""Ranges of S3 objects by presigned URLs: one signature for many requests.

boto3 builds, signs and parses each request anew. That takes three times the processor time of the request itself, and a
worker that reads a part of a cube makes 424 requests or more. A presigned URL signs neither the range nor the version.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import urllib3
from botocore.httpsession import get_cert_path
from botocore.utils import get_environ_proxies

from prismline_runtime.clients import CONNECT_SECONDS, CONNECTIONS, READ_SECONDS

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

#: Seconds that a URL is used. New credentials are taken over by then.
USED_SECONDS = 300.0
#: Seconds that a signature holds: longer, because a request may begin late.
SIGNED_SECONDS = 900
#: Seconds that nothing is asked for in this way after an answer that was not the range.
PAUSE_SECONDS = 30.0


class PresignedRanges:
    """Reads ranges with the rights of an S3 client. It makes one attempt, and says of a failure only that it failed.

    Behind a proxy it reads nothing.
    """

    def __init__(self, s3: S3Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._s3 = s3
        self._clock = clock
        self._http = urllib3.PoolManager(
            maxsize=CONNECTIONS,
            retries=False,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
            ca_certs=os.environ.get("AWS_CA_BUNDLE") or get_cert_path(True),
        )
        #: Bucket, key, URL, and when it was signed.
        self._signed: tuple[str, str, str | None, float] | None = None
        self._paused_until = 0.0

    def read(self, bucket: str, key: str, start: int, stop: int, *, etag: str) -> bytes | None:
        """The bytes from `start` to `stop` (exclusive) of one version of an object.

        None for whatever else happens: ask through boto3, which tries again and knows the error.
        """
        if self._clock() < self._paused_until:
            return None
        url = self._url(bucket, key)
        if url is None:
            return None
        try:
            answer = self._http.request("GET", url, headers={"Range": f"bytes={start}-{stop - 1}", "If-Match": etag})
        except urllib3.exceptions.HTTPError:
            body = None
        else:
            body = answer.data if answer.status == 206 and len(answer.data) == stop - start else None
        if body is None:
            self._paused_until = self._clock() + PAUSE_SECONDS
        return body

    def _url(self, bucket: str, key: str) -> str | None:
        """The URL of an object. None if a proxy is to make the requests."""
        now, signed = self._clock(), self._signed
        if signed is None or signed[:2] != (bucket, key) or now - signed[3] > USED_SECONDS:
            object_ = {"Bucket": bucket, "Key": key}
            url = self._s3.generate_presigned_url("get_object", Params=object_, ExpiresIn=SIGNED_SECONDS)
            self._signed = signed = (bucket, key, None if get_environ_proxies(url) else url, now)
        return signed[2]
