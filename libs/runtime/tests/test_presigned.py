"""Reads of ranges by presigned URLs."""

from __future__ import annotations

from collections.abc import Callable

import boto3
import pytest
from botocore.config import Config
from botocore.stub import Stubber

from prismline_runtime import Bucket, PermanentError, PresignedRanges, UnavailableError, clients

pytestmark = pytest.mark.emulator
BODY = bytes(range(256)) * 4


@pytest.fixture
def name(aws_env: dict[str, str]) -> str:
    """A bucket with one object, `k`."""
    name = f"bucket-{aws_env['ENVIRONMENT']}"
    boto3.client("s3").create_bucket(Bucket=name)
    boto3.client("s3").put_object(Bucket=name, Key="k", Body=BODY)
    return name


@pytest.fixture
def silent() -> Stubber:
    """An S3 client that signs URLs, but cannot make a request."""
    stubber = Stubber(clients.s3())
    stubber.activate()
    return stubber


def test_ranges_are_read_without_a_request_of_the_client(name: str, silent: Stubber) -> None:
    etag = Bucket(boto3.client("s3"), name).version("k")
    bucket = Bucket(silent.client, name, PresignedRanges(silent.client))
    for start, stop in ((0, 1), (10, 700), (1023, 1024), (0, 1024)):
        assert bucket.read_range("k", start, stop, etag=etag) == BODY[start:stop]


def replaced(name: str) -> None:
    boto3.client("s3").put_object(Bucket=name, Key="k", Body=BODY[::-1])


def removed(name: str) -> None:
    boto3.client("s3").delete_object(Bucket=name, Key="k")


@pytest.mark.parametrize(("change", "message"), [(replaced, "was replaced"), (removed, "does not exist")])
def test_the_error_of_the_client_says_what_is_wrong(name: str, change: Callable[[str], None], message: str) -> None:
    s3 = clients.s3()
    bucket = Bucket(s3, name, PresignedRanges(s3))
    etag = bucket.version("k")
    assert bucket.read_range("k", 0, 10, etag=etag) == BODY[:10]
    change(name)
    with pytest.raises(PermanentError, match=message):
        bucket.read_range("k", 0, 10, etag=etag)


def test_after_a_failure_the_client_makes_the_requests_for_a_while(name: str, silent: Stubber) -> None:
    etag, now = Bucket(boto3.client("s3"), name).version("k"), [0.0]
    ranges = PresignedRanges(silent.client, lambda: now[0])
    assert ranges.read(name, "k", 0, 10, etag='"another"') is None
    assert ranges.read(name, "k", 0, 10, etag=etag) is None
    now[0] = 31.0
    assert ranges.read(name, "k", 0, 10, etag=etag) == BODY[:10]


def test_an_unreachable_server_is_an_unavailable_error() -> None:
    config = Config(connect_timeout=1, retries={"total_max_attempts": 1})
    s3 = boto3.client("s3", endpoint_url="http://127.0.0.1:9", config=config)
    with pytest.raises(UnavailableError, match="Could not read s3://nowhere/k"):
        Bucket(s3, "nowhere", PresignedRanges(s3)).read_range("k", 0, 10, etag="e")


def test_no_presigned_request_is_made_if_a_proxy_is_configured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    s3 = clients.s3()
    etag = Bucket(s3, name).version("k")
    assert PresignedRanges(s3).read(name, "k", 0, 10, etag=etag) == BODY[:10]
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert PresignedRanges(s3).read(name, "k", 0, 10, etag=etag) is None


def test_the_url_is_signed_again_before_it_expires(name: str, silent: Stubber, monkeypatch: pytest.MonkeyPatch) -> None:
    signed = []
    sign = silent.client.generate_presigned_url

    def counted(*arguments: object, **options: object) -> str:
        signed.append(options["ExpiresIn"])
        return sign(*arguments, **options)

    monkeypatch.setattr(silent.client, "generate_presigned_url", counted)
    etag, now = Bucket(boto3.client("s3"), name).version("k"), [0.0]
    ranges = PresignedRanges(silent.client, lambda: now[0])
    for now[0] in (0.0, 10.0, 299.0, 310.0, 320.0):
        assert ranges.read(name, "k", 0, 10, etag=etag) == BODY[:10]
    assert signed == [900, 900]
    assert ranges.read(name, "k", 0, 10, etag='"another"') is None
    now[0] = 360.0
    assert ranges.read(name, "k", 0, 10, etag=etag) == BODY[:10]
    assert len(signed) == 3, "a URL that failed is not used again"
