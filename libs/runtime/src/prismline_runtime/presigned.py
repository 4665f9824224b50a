"""Ranges of S3 objects by presigned URLs: one signature for many requests.

boto3 builds, signs and parses each request. With boto3 a ranged request takes three times the processor time that it
takes with a presigned URL, and a worker that reads a part of a cube makes hundreds of them. The signature of the URL
covers neither the range nor the ETag, so one URL serves all ranges of an object.
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

#: Seconds after which the URL is signed again, so that it carries the client's present credentials.
USED_SECONDS = 300.0
#: Seconds after which S3 refuses the URL. Longer, because a request may wait before it is sent.
SIGNED_SECONDS = 900
#: After a failed request, `read` makes no request for this number of seconds.
PAUSE_SECONDS = 30.0


class PresignedRanges:
    """Reads ranges with the rights of an S3 client. It tries each range once and does not say why a request failed.

    It makes no request if the environment names a proxy for S3: boto3 knows how to use one.
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

        None if the request failed in any way. The caller then uses boto3, which retries and raises the error.
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
            self._signed, self._paused_until = None, self._clock() + PAUSE_SECONDS
        return body

    def _url(self, bucket: str, key: str) -> str | None:
        """The presigned URL of an object. None if requests go through a proxy."""
        now, signed = self._clock(), self._signed
        if signed is None or signed[:2] != (bucket, key) or now - signed[3] > USED_SECONDS:
            object_ = {"Bucket": bucket, "Key": key}
            url = self._s3.generate_presigned_url("get_object", Params=object_, ExpiresIn=SIGNED_SECONDS)
            self._signed = signed = (bucket, key, None if get_environ_proxies(url) else url, now)
        return signed[2]
