"""A splitter that raises what nobody expected: the run shows the error while its message is tried again."""

from __future__ import annotations

from typing import Any

import pytest
from astropy.io import fits
from splitter_world import SplitterWorld

from prismline_runtime import UnavailableError
from prismline_splitter import submission
from prismline_splitter.workloads.spectra import SpectraSplitter

pytestmark = pytest.mark.emulator

RUN, KEY = "run-1", "manifests/job.json"


def raises(error: Exception) -> Any:
    """A function that raises `error`, whatever its arguments are."""

    def function(*_: Any, **__: Any) -> Any:
        raise error

    return function


def error_of(world: SplitterWorld) -> tuple[str, str, int] | None:
    """The error that the run shows: who raised it, what it is, and how often."""
    shown = world.ledger.repeated_error(RUN)
    return shown and (shown.item.service, shown.item.error, shown.item.count)


def test_a_run_whose_split_raises_three_times_shows_the_error_until_the_split_succeeds(
    world: SplitterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(SpectraSplitter, "split", raises(ZeroDivisionError("integer division or modulo by zero")))
        for receive_count in (1, 2, 3):
            assert not world.split(RUN, KEY, receive_count=receive_count)
            seen.append(error_of(world))
    assert seen == [None, None, ("splitter", "ZeroDivisionError: integer division or modulo by zero", 3)]
    assert world.ledger.run(RUN).cancelled_at is None, "the run may still succeed"
    assert world.state_machine.refusals == []
    assert world.split(RUN, KEY, receive_count=4)
    assert world.ledger.run(RUN).chunks_total == 4
    assert error_of(world) is None


def test_the_count_continues_after_a_dead_letter_was_sent_back(
    world: SplitterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)
    with monkeypatch.context() as patch:
        patch.setattr(SpectraSplitter, "split", raises(MemoryError()))
        world.split(RUN, KEY, receive_count=4)
        assert world.split(RUN, KEY, receive_count=5), "it is moved, with the error"
        (dead,) = world.sqs.receive_message(QueueUrl=world.urls["split-dlq"], MessageAttributeNames=["All"])["Messages"]
        assert dead["MessageAttributes"]["raised"]["StringValue"] == "MemoryError"
        world.deliver(dead["Body"], attempt="2")
    assert error_of(world) == ("splitter", "MemoryError", 3)
    assert world.deliver(dead["Body"], attempt="2")
    assert error_of(world) is None


def test_an_outage_is_not_shown_as_an_unexpected_error(world: SplitterWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2)
    with monkeypatch.context() as patch:
        patch.setattr(SpectraSplitter, "split", raises(UnavailableError("Could not read s3://bucket/key: SlowDown.")))
        for receive_count in (1, 2, 3, 4):
            assert not world.split(RUN, KEY, receive_count=receive_count)
    assert error_of(world) is None


def test_a_job_whose_run_cannot_be_announced_shows_the_error_before_the_run_has_an_item(
    world: SplitterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.put_urls(urls=["https://example.org/"])
    key = "jobs/job/manifest-run-1.json"
    with monkeypatch.context() as patch:
        patch.setattr(submission, "describe_submission", raises(RecursionError("too deep")))
        for receive_count in (1, 2, 3):
            assert not world.ingest_job(RUN, key, receive_count=receive_count)
    assert world.ledger.get_run(RUN) is None
    assert error_of(world) == ("splitter", "RecursionError: too deep", 3)
    assert world.ingest_job(RUN, key, receive_count=4)
    assert error_of(world) is None


@pytest.mark.parametrize("chunk_input", ["copy", "reference"])
def test_a_splitter_that_once_has_no_memory_to_read_the_cube_splits_it_later(
    world: SplitterWorld, monkeypatch: pytest.MonkeyPatch, chunk_input: str
) -> None:
    world.put_cube("cubes/c.fits", n=8)
    world.put_manifest(KEY, chunk_size=2, chunk_input=chunk_input)
    with monkeypatch.context() as patch:
        patch.setattr(fits.Header, "fromfile", raises(MemoryError("Unable to allocate 7.28 GiB")))
        assert not world.split(RUN, KEY)
    assert world.state_machine.refusals == [], "the run has not failed"
    assert world.split(RUN, KEY, receive_count=2)
    assert world.ledger.run(RUN).chunks_total == 4
