"""The slow lane: it fits all waiting rows, or gives them up with the reason."""

from __future__ import annotations

import json

import boto3
import pytest
from worker_world import FIRST, GOOD, HOPELESS, RUN_ID, SLOW, WorkerWorld

from prismline_contracts.decomposition import arrow_schema
from prismline_contracts.items import ChunkStatus
from prismline_ledger import Ledger
from prismline_runtime import Bucket
from prismline_worker.output import from_parquet, to_parquet

pytestmark = pytest.mark.emulator


def waiting(world: WorkerWorld) -> tuple[int, int]:
    """The number of waiting rows in the chunk's item and in the run's item."""
    return world.chunk().n_timed_out, world.run().n_timed_out


def with_rows(body: str, rows: list[int]) -> str:
    """A message to the slow lane as an older worker sent it."""
    message = json.loads(body)
    message["data"]["rows"] = rows
    return json.dumps(message)


@pytest.fixture
def body(world: WorkerWorld) -> str:
    """The message to the slow lane for a chunk whose rows 1 to 4 ran out of time."""
    world.open_run(spectra={FIRST: [GOOD, SLOW, SLOW, SLOW, SLOW]})
    assert world.process()
    assert waiting(world) == (4, 4)
    ((message, _),) = world.take("refits")
    return message


def test_rows_that_ran_out_of_time_are_fitted_and_counted(world: WorkerWorld, body: str) -> None:
    assert world.refit(body)
    assert world.rows() == ["fitted"] * 5
    assert waiting(world) == (0, 0)
    assert world.take("refits") == []
    assert world.refit(body), "a redelivery finds nothing to do"
    assert waiting(world) == (0, 0)


def test_the_message_is_small_however_many_rows_ran_out_of_time(world: WorkerWorld) -> None:
    """SQS accepts at most 1 MiB. If its worker had no time at all, a chunk has 200,000 timed-out rows."""
    world.open_run(spectra={FIRST: [GOOD] * 200_000})
    assert world.process(seconds=0.0)
    assert waiting(world) == (200_000, 200_000)
    ((message, _),) = world.take("refits")
    assert len(message) < 2000


def test_rows_for_which_an_invocation_has_no_time_get_another_message(world: WorkerWorld, body: str) -> None:
    world.fitter.most_slow = 3
    assert world.refit(body)
    assert world.rows() == ["fitted"] * 4 + ["timed_out"]
    assert waiting(world) == (1, 1)
    world.fitter.most_slow = None
    assert world.refit()
    assert waiting(world) == (0, 0)


def test_a_refit_that_waits_while_a_worker_with_more_columns_is_deployed_succeeds(
    world: WorkerWorld, body: str
) -> None:
    key = world.chunk().output_key
    assert key is not None
    table = from_parquet(Bucket(boto3.client("s3"), world.bucket).read(key))
    world.put(key, to_parquet(table.select(arrow_schema(version=1).names).replace_schema_metadata(None)))
    assert world.refit(body)
    assert waiting(world) == (0, 0)
    assert world.rows() == ["fitted"] * 5
    assert world.take("refits-dlq") == []


def test_a_message_for_which_there_was_no_time_is_delivered_again(world: WorkerWorld, body: str) -> None:
    world.fitter.most_slow = 0
    assert not world.refit(body)
    assert waiting(world) == (4, 4)
    assert world.take("refits") == []


def test_the_rows_that_an_older_worker_names_are_a_filter(world: WorkerWorld, body: str) -> None:
    assert world.refit(with_rows(body, [0, 2, 3]))
    assert world.rows() == ["fitted", "timed_out", "fitted", "fitted", "timed_out"]
    assert waiting(world) == (2, 2)
    assert world.take("refits") == [], "the others are in another message"


def test_the_number_of_rows_that_wait_never_rises_again(
    world: WorkerWorld, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker patches the output and is slow to record it. Meanwhile another worker fits the rest."""
    record = Ledger.record_refit

    def late(ledger: Ledger, *names: str, remaining: int) -> bool:
        monkeypatch.setattr(Ledger, "record_refit", record)
        world.fitter.most_slow = None
        assert world.refit(body)
        assert waiting(world) == (0, 0)
        return record(ledger, *names, remaining=remaining)

    monkeypatch.setattr(Ledger, "record_refit", late)
    world.fitter.most_slow = 2
    assert world.refit(body)
    assert world.rows() == ["fitted"] * 5
    assert waiting(world) == (0, 0)


def test_two_concurrent_refits_lose_no_patch_and_fit_nothing_twice(
    world: WorkerWorld, body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker has fitted rows 1 and 2. Before it writes them, another worker writes rows 3 and 4."""
    replace = Bucket.replace

    def meet(bucket: Bucket, key: str, content: bytes, etag: str) -> bool:
        monkeypatch.setattr(Bucket, "replace", replace)
        assert world.refit(with_rows(body, [3, 4]))
        assert waiting(world) == (2, 2)
        return replace(bucket, key, content, etag)

    monkeypatch.setattr(Bucket, "replace", meet)
    fits: list[float] = []
    fit = world.fitter.fit
    monkeypatch.setattr(world.fitter, "fit", lambda spectrum, *a, **k: fits.append(1.0) or fit(spectrum, *a, **k))
    assert world.refit(with_rows(body, [1, 2]))
    assert world.rows() == ["fitted"] * 5
    assert waiting(world) == (0, 0)
    assert len(fits) == 4


def test_the_redelivery_finds_a_patch_whose_answer_was_lost(world: WorkerWorld, body: str) -> None:
    world.aws.lost = {"PutObject"}
    assert not world.refit(body)
    world.aws.lost = set()
    assert world.refit(body)
    assert waiting(world) == (0, 0)


# ---- rows that cannot be fitted


def test_rows_that_can_never_be_fitted_are_given_up_with_the_reason(world: WorkerWorld) -> None:
    world.open_run(spectra={FIRST: [GOOD, SLOW, HOPELESS]})
    world.process()
    assert waiting(world) == (2, 2)
    assert world.refit(), "the message is not tried again"
    chunk, run = world.chunk(), world.run()
    assert waiting(world) == (0, 0), "they do not wait any more"
    assert (chunk.n_refit_failed, run.n_refit_failed) == (2, 2)
    assert "x=2, y=2 failed: ValueError: it cannot be fitted" in (chunk.refit_error or "")
    assert world.rows() == ["fitted", "timed_out", "timed_out"], "the output still shows them as timed out"
    ((letter, attributes),) = world.take("refits-dlq")
    assert attributes["error"] == chunk.refit_error
    assert FIRST in letter


def test_rows_are_given_up_only_after_the_message_was_copied(world: WorkerWorld) -> None:
    world.open_run(spectra={FIRST: [HOPELESS]})
    world.process()
    ((message, _),) = world.take("refits")
    world.aws.down = {"SendMessage"}
    assert not world.refit(message)
    assert waiting(world) == (1, 1)
    world.aws.down = {"TransactWriteItems"}
    assert not world.refit(message)
    assert waiting(world) == (1, 1)
    assert len(world.take("refits-dlq")) == 1
    world.aws.down = set()
    assert world.refit(message)
    assert waiting(world) == (0, 0)


def test_rows_that_were_given_up_can_be_fitted_when_the_cause_is_removed(
    world: WorkerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.open_run(spectra={FIRST: [GOOD, HOPELESS]})
    world.process()
    world.refit()
    ((letter, _),) = world.take("refits-dlq")
    fit = world.fitter.fit
    monkeypatch.setattr(world.fitter, "fit", lambda spectrum, *a, **k: fit([GOOD, 0.0, 0.0], *a, **k))
    assert world.refit(letter)
    chunk, run = world.chunk(), world.run()
    assert (chunk.n_refit_failed, run.n_refit_failed, chunk.refit_error) == (0, 0, None)
    assert world.rows() == ["fitted"] * 2


# ---- refits that have to wait or are skipped


def test_a_refit_waits_until_its_chunk_is_completed(world: WorkerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.open_run(spectra={FIRST: [SLOW]})
    world.aws.down = {"TransactWriteItems"}
    assert not world.process()
    world.aws.down = set()
    ((message, _),) = world.take("refits")
    assert not world.refit(message)
    assert world.rows() == ["timed_out"]
    assert world.process()
    assert waiting(world) == (1, 1)
    assert world.refit(message)
    assert waiting(world) == (0, 0)


def test_a_refit_of_a_failed_chunk_is_acknowledged_and_skipped(world: WorkerWorld) -> None:
    world.open_run(spectra={FIRST: [SLOW]})
    world.aws.down = {"TransactWriteItems"}
    assert not world.process()
    world.aws.down = set()
    ((message, _),) = world.take("refits")
    world.ledger.fail_chunk(world.chunk(), "It is broken.")
    assert world.refit(message)
    assert world.rows() == ["timed_out"]


def test_a_refit_of_a_stopped_run_is_skipped(world: WorkerWorld) -> None:
    world.open_run(FIRST, "chunk-0000100", spectra={FIRST: [SLOW]})
    world.process()
    ((message, _),) = world.take("refits")
    world.ledger.stop_run(RUN_ID, "cancelled")
    assert world.refit(message)
    assert world.rows() == ["timed_out"]
    assert world.chunk().state is ChunkStatus.COMPLETED


@pytest.mark.parametrize("missing", [{"run_id": "run-777"}, {"chunk_id": "chunk-0000777"}])
def test_a_refit_of_a_missing_run_or_chunk_is_one_dead_letter(
    world: WorkerWorld, body: str, missing: dict[str, str]
) -> None:
    message = json.loads(body)
    message["data"] |= missing
    assert world.refit(json.dumps(message))
    assert len(world.take("refits-dlq")) == 1
