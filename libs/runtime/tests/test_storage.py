"""Objects on a real S3 interface."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import boto3
import numpy as np
import pytest
from botocore.exceptions import ClientError
from pydantic import TypeAdapter

from prismline_contracts.base import Timestamp
from prismline_runtime import Bucket, PermanentError, PrismlineError, TooLargeError, UnavailableError, storage

pytestmark = pytest.mark.emulator


@pytest.fixture
def bucket(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """An empty bucket; objects of more than 1000 bytes count as large."""
    monkeypatch.setattr(storage, "PART_BYTES", 1000)
    name = f"bucket-{aws_env['ENVIRONMENT']}"
    boto3.client("s3").create_bucket(Bucket=name)
    return Bucket(boto3.client("s3"), name)


@pytest.mark.parametrize("size", [1, 999, 1000, 1001, 54_321])
def test_an_object_is_read_as_a_file_at_any_position(bucket: Bucket, size: int) -> None:
    body = np.random.default_rng(size).bytes(size)
    bucket.write("k", body)
    with bucket.open("k") as file:
        assert file.read() == body
        assert file.read(10) == b""
        for at in (0, size // 3, size - 1):
            file.seek(at)
            assert file.read(700) == body[at : at + 700]
        assert file.seek(-1, io.SEEK_END) == size - 1
        assert file.read() == body[-1:]


def test_an_empty_object_is_an_empty_file(bucket: Bucket) -> None:
    bucket.write("k", b"")
    with bucket.open("k") as file:
        assert file.read() == b""


@pytest.mark.parametrize("size", [10, 5000])
def test_an_object_is_opened_only_in_the_version_that_is_expected(bucket: Bucket, size: int) -> None:
    bucket.write("k", bytes(size))
    etag = bucket.version("k")
    with bucket.open("k", etag=etag) as file:
        assert file.read() == bytes(size)
    bucket.write("k", b"x" * size)
    with pytest.raises(PermanentError, match="was replaced after the run had been submitted"):
        bucket.open("k", etag=etag)


def test_a_zip_file_is_read_from_the_bucket(bucket: Bucket, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, numbers=np.arange(5000))
    bucket.upload(path, "a.npz")
    with bucket.open("a.npz") as file, zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        np.testing.assert_array_equal(np.load(archive.open("numbers.npy")), np.arange(5000))


def test_an_object_that_is_replaced_while_it_is_read_is_noticed(bucket: Bucket) -> None:
    bucket.write("k", bytes(5000))
    with bucket.open("k") as file:
        assert file.read(10) == bytes(10)
        bucket.write("k", b"x" * 5000)
        file.seek(4000)
        with pytest.raises(Exception, match="Could not read s3://"):
            file.read(10)


def test_a_missing_object_is_a_permanent_error(bucket: Bucket, tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="it does not exist"):
        bucket.open("nowhere")
    (tmp_path / "a").write_bytes(b"a")
    with pytest.raises(PrismlineError, match="Could not write s3://nowhere/k: NoSuchBucket"):
        Bucket(boto3.client("s3"), "nowhere").upload(tmp_path / "a", "k")


def test_the_first_of_two_objects_stays(bucket: Bucket) -> None:
    assert bucket.create("k", b"first")
    assert not bucket.create("k", b"second")
    assert bucket.read("k") == b"first"


def test_a_write_that_collided_is_retried_and_not_taken_for_an_object_that_exists(bucket: Bucket) -> None:
    """S3 answers 409 while another conditional write of the same key is in progress; that one may still fail."""

    class Meeting:
        def put_object(self, **_: object) -> None:
            raise ClientError({"Error": {"Code": "ConditionalRequestConflict"}}, "PutObject")

    with pytest.raises(UnavailableError, match="ConditionalRequestConflict"):
        Bucket(Meeting(), bucket.name).create("k", b"x")  # type: ignore[arg-type]


def test_a_source_that_was_replaced_is_not_downloaded(bucket: Bucket, tmp_path: Path) -> None:
    bucket.write("cube", b"first")
    pinned = bucket.version("cube")
    bucket.download("cube", tmp_path / "a", etag=pinned)
    assert (tmp_path / "a").read_bytes() == b"first"
    bucket.write("cube", b"second")
    with pytest.raises(PermanentError, match="was replaced after the run had been submitted; submit it again"):
        bucket.download("cube", tmp_path / "b", etag=pinned)


def test_objects_are_listed_from_any_key_and_deleted(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "DELETE_BATCH", 2)
    for name in ("a/1", "a/2", "a/3", "b/1"):
        bucket.write(name, b"x")
    assert list(bucket.list("a/")) == ["a/1", "a/2", "a/3"]
    assert list(bucket.list("a/", after="a/1")) == ["a/2", "a/3"]
    entry = next(bucket.entries("a/", after="a/1"))
    assert (entry["key"], entry["size"], entry["etag"]) == ("a/2", len(bucket.read("a/2")), bucket.version("a/2"))
    TypeAdapter(Timestamp).validate_python(entry["last_modified"])
    assert bucket.delete([*bucket.list("a/"), "a/none"]) == 4
    assert list(bucket.list("")) == ["b/1"]


def test_an_object_that_is_larger_than_its_reader_accepts_is_refused_unread(bucket: Bucket) -> None:
    bucket.write("k", bytes(11))
    assert bucket.read("k", most=11) == bytes(11)
    with pytest.raises(TooLargeError, match="has 11 bytes; at most 10 are read"):
        bucket.read("k", most=10)
