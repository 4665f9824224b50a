"""Sweeps over a ledger, queues and a bus of the emulator. They send lost messages and repeat announcements."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from prismline_contracts.base import timestamp
from prismline_contracts.envelope import Envelope
from prismline_contracts.items import RUN_SK, ChunkItem, ChunkStatus
from prismline_dlq_consumer import sweeper
from prismline_dlq_consumer.sweep_decisions import SweepLimits
from prismline_dlq_consumer.sweeper import SweeperDependencies, on_sweep, sweep
from prismline_ledger import Ledger, NewChunk, NewRun, Outcome, Patience, Started, TaskEnding
from prismline_ledger.testing import Context, lambda_event_of, split_run
from prismline_localstack.state import make_client
from prismline_localstack.testing import create_runs_table, drained, observe_bus
from prismline_runtime import Change, RunQueues, Table, Transport, UnavailableError, queue_handler, service_logger

pytestmark = pytest.mark.emulator

QUEUES = ("chunks", "chunks-dlq", "refits", "refits-dlq", "split", "sweeps", "sweeps-dlq")
HOUR, DAY = 60, 24 * 60


class DiedError(BaseException):
    """The process is gone. No handler of the code under test catches this."""


@dataclass
class SweeperWorld:
    """A ledger, queues and a bus on the emulator, a sweeper on them, and a clock that all of them use."""

    env: dict[str, str]
    deps: SweeperDependencies
    clients: dict[str, Any]
    #: How far the clock is ahead of the real one, in minutes.
    minutes: float = 0.0
    #: How many more AWS calls that change something the process makes before it dies. None: it does not die.
    changes_left: int | None = None

    @classmethod
    def create(cls, env: dict[str, str], clients: dict[str, Any]) -> SweeperWorld:
        environment = env["ENVIRONMENT"]
        table, bus = f"prismline-{environment}-runs", f"prismline-{environment}"
        create_runs_table(clients["dynamodb"], table)
        for queue in QUEUES:
            clients["sqs"].create_queue(QueueName=f"prismline-{environment}-{queue}")
        clients["events"].create_event_bus(Name=bus)
        observe_bus(clients["sqs"], clients["events"], bus)
        deps = SweeperDependencies(
            ledger=Ledger(clients["dynamodb"], table, clock=lambda: timestamp(world.now())),
            transport=Transport(
                environment=environment,
                service="dlq-consumer",
                sqs=clients["sqs"],
                events=clients["events"],
                stepfunctions=clients["stepfunctions"],
            ),
            sqs=clients["sqs"],
            run_queues=RunQueues(clients["sqs"], environment),
            bucket_name="the-bucket",
            patience=Patience(),
            limits=SweepLimits(),
            logger=service_logger("sweeper-tests"),
        )
        world = cls(env, deps, clients)
        return world

    def count_change(self, *, model: Any, **_: Any) -> None:
        """Called before every AWS call. It ignores reads: dying before one is like dying before the next change."""
        if self.changes_left is None or model.name.startswith(("Get", "List", "Query", "BatchGet", "Receive")):
            return
        if self.changes_left == 0:
            raise DiedError
        self.changes_left -= 1

    @property
    def ledger(self) -> Ledger:
        return self.deps.ledger

    @property
    def table(self) -> Table:
        """The ledger's table, for writes that bypass the ledger, as a bug or a restored backup would."""
        return Table(self.clients["dynamodb"], f"prismline-{self.env['ENVIRONMENT']}-runs")

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(minutes=self.minutes)

    def split(
        self,
        run_id: str,
        n_chunks: int,
        *,
        latch: bool = True,
        token: str | None = None,
        workload: str = "spectra",
        shard_count: int = 1,
    ) -> list[str]:
        return split_run(
            self.ledger,
            run_id,
            [NewChunk(f"chunk-{n:07d}", f"in/{n}", 1) for n in range(n_chunks)],
            latch=latch,
            survey="s",
            workload=workload,
            params='{"beta": 4.0}',
            traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
            manifest_key="manifests/m.json",
            split_token=token,
            shard_count=shard_count,
        )

    def start(self, run_id: str, chunk_id: str) -> ChunkItem:
        started = self.ledger.start_chunk(run_id, chunk_id)
        assert isinstance(started, Started)
        return started.chunk

    def complete(self, run_id: str, chunk_id: str, *, n_timed_out: int = 0) -> None:
        chunk = self.ledger.chunk(run_id, chunk_id)
        self.ledger.complete_chunk(chunk, Outcome(f"out/{chunk_id}", n_timed_out=n_timed_out), duration_ms=1)

    def fail(self, run_id: str, chunk_id: str, error: str = "e") -> None:
        self.ledger.fail_chunk(self.ledger.chunk(run_id, chunk_id), error)

    def exhaust(self, run_id: str, chunk_id: str) -> None:
        """Five attempts whose workers died, the first of them two hours ago."""
        for _ in range(5):
            self.start(run_id, chunk_id)
        self.ledger.record_error(run_id, chunk_id, "The kernel died.")
        self.minutes += 2 * HOUR

    def hear(self, run_id: str, status: str = "completed") -> None:
        """The status service records the run's end."""
        assert self.ledger.record_end(self.ledger.run(run_id), status)

    def sweep(self, minutes: float = 0.0) -> sweeper.SweepCounts:
        """Sweep after `minutes` more minutes."""
        self.minutes += minutes
        return sweep(self.deps, now=self.now())

    def is_open(self, run_id: str) -> bool:
        return run_id in [run.run_id for run in self.ledger.open_runs()]

    def url(self, queue: str) -> str:
        name = f"prismline-{self.env['ENVIRONMENT']}-{queue}"
        return str(self.clients["sqs"].get_queue_url(QueueName=name)["QueueUrl"])

    def put(self, queue: str) -> None:
        """Put any message into a queue."""
        self.clients["sqs"].send_message(QueueUrl=self.url(queue), MessageBody='"somebody\'s"')

    def take(self, queue: str) -> list[Any]:
        """Take all messages out of a queue."""
        return drained(self.clients["sqs"], self.url(queue))

    def announced(self, kind: str = "") -> list[Envelope]:
        """Events published since the last call whose types contain `kind`."""
        events = [Envelope.model_validate(event) for event in self.take("observer")]
        return [event for event in events if kind in event.type]


@pytest.fixture(scope="module")
def clients(emulator_env: dict[str, str]) -> dict[str, Any]:
    return {name: make_client(name, emulator_env) for name in ("dynamodb", "sqs", "events", "stepfunctions")}


@pytest.fixture
def world(aws_env: dict[str, str], clients: dict[str, Any]) -> Iterator[SweeperWorld]:
    world = SweeperWorld.create(aws_env, clients)
    for client in clients.values():
        client.meta.events.register("before-call", world.count_change)
    yield world
    for client in clients.values():
        client.meta.events.unregister("before-call", world.count_change)


def chunk_ids(messages: list[Any]) -> list[str]:
    return sorted(message["data"]["chunk_id"] for message in messages if isinstance(message, dict))


class TestDeadWorkers:
    def test_a_chunk_whose_worker_died_is_sent_again_once(self, world: SweeperWorld) -> None:
        dead, done, waiting = world.split("r", 3)
        world.put("chunks")
        for chunk_id in (dead, done):
            world.start("r", chunk_id)
        world.complete("r", done)
        assert world.sweep(19).chunks_resent == 0
        assert world.sweep(2).chunks_resent == 1
        assert world.sweep().chunks_resent == 0
        _, message = world.take("chunks")
        assert message["type"] == "prismline.chunk.process.v1"
        assert message["traceparent"].startswith("00-aaaa")
        assert message["runid"] == "r"
        assert message["data"] == {
            "run_id": "r",
            "job_id": "j",
            "survey": "s",
            "workload": "spectra",
            "chunk_id": dead,
            "n_items": 1,
            "bucket": "the-bucket",
            "chunk_key": "in/0",
            "params": {"beta": 4.0},
            "attempt": 2,
            "deferrals": 0,
        }
        chunk = world.ledger.chunk("r", dead)
        assert (chunk.state, chunk.attempts) == (ChunkStatus.PENDING, 1)
        assert world.ledger.chunk("r", waiting).resends == 0

    def test_an_exhausted_chunk_fails_and_its_run_is_announced(self, world: SweeperWorld) -> None:
        (only,) = world.split("r", 1)
        world.exhaust("r", only)
        counts = world.sweep()
        assert (counts.chunks_given_up, counts.chunks_resent, counts.drains_announced) == (1, 0, 1)
        chunk, run = world.ledger.chunk("r", only), world.ledger.run("r")
        assert chunk.state is ChunkStatus.FAILED
        assert chunk.error == "The kernel died. Given up after 5 attempts."
        assert (run.chunks_failed, run.drained_at is not None) == (1, True)
        failed, drained = sorted(world.announced(), key=lambda event: event.type)
        assert (failed.type, failed.data["error"]) == ("prismline.chunk.failed.v1", chunk.error)
        assert (drained.type, drained.data["jobs_failed"]) == ("prismline.run.drained.v1", 1)
        assert world.take("chunks") == []
        world.sweep()
        assert world.announced("chunk.failed") == [], "what was announced is not announced again"

    def test_a_chunk_that_used_up_its_attempts_in_minutes_is_tried_on(self, world: SweeperWorld) -> None:
        (only,) = world.split("r", 1)
        for _ in range(5):
            world.start("r", only)
        counts = world.sweep(21)
        assert (counts.chunks_given_up, counts.chunks_resent) == (0, 1)

    def test_attempts_that_ended_with_errors_do_not_fail_a_chunk_that_waits_in_a_backlog(
        self, world: SweeperWorld
    ) -> None:
        (only,) = world.split("r", 1)
        for _ in range(5):
            chunk = world.start("r", only)
            assert world.ledger.end_attempt(chunk, "S3 said 503.", interrupted=False)
        world.put("chunks")
        for _ in range(6):
            world.sweep(HOUR)
        assert world.ledger.chunk("r", only).state is ChunkStatus.PENDING
        assert world.start("r", only).attempts == 6, "the worker that receives the message begins another attempt"

    @pytest.mark.parametrize("happening", ["start", "complete", "defer", "give back"])
    def test_a_chunk_that_something_happens_to_just_before_it_is_given_up_is_spared(
        self, world: SweeperWorld, monkeypatch: pytest.MonkeyPatch, happening: str
    ) -> None:
        (only,) = world.split("r", 1)
        world.exhaust("r", only)
        happen: dict[str, Callable[[], object]] = {
            "start": lambda: world.start("r", only),
            "complete": lambda: world.complete("r", only),
            "defer": lambda: world.ledger.record_deferral("r", only),
            "give back": lambda: world.ledger.end_attempt(world.ledger.chunk("r", only), "e", interrupted=True),
        }
        read = world.ledger.chunks

        def chunks(run_id: str) -> Iterator[ChunkItem]:
            for chunk in list(read(run_id)):
                happen[happening]()
                yield chunk

        monkeypatch.setattr(world.ledger, "chunks", chunks)
        assert world.sweep().chunks_given_up == 0
        assert world.ledger.chunk("r", only).state is not ChunkStatus.FAILED
        assert world.announced("chunk.failed") == []


class TestLostMessages:
    @pytest.mark.parametrize("holder", ["chunks", "chunks-dlq"])
    def test_a_waiting_chunk_is_sent_again_soon_once_no_message_can_be_its_own(
        self, world: SweeperWorld, holder: str
    ) -> None:
        sqs = world.clients["sqs"]
        world.split("r", 2)
        world.put(holder)
        assert world.sweep(10).chunks_resent == 0
        in_flight = sqs.receive_message(QueueUrl=world.url(holder))["Messages"]
        assert world.sweep().chunks_resent == 0, "a message that is being worked on is a message"
        sqs.delete_message(QueueUrl=world.url(holder), ReceiptHandle=in_flight[0]["ReceiptHandle"])
        assert world.sweep().chunks_resent == 2
        assert world.sweep().chunks_resent == 0
        assert chunk_ids(world.take("chunks")) == ["chunk-0000000", "chunk-0000001"]

    def test_a_message_that_waits_for_a_resource_hides_no_lost_one(self, world: SweeperWorld) -> None:
        """A deferred message gives a sign of life every 15 minutes. A message that was silent for an hour is lost."""
        (deferred,) = world.split("captions", 1, workload="captions")
        (lost,) = world.split("r", 1)
        world.put("chunks-dlq")
        for _ in range(3):
            world.minutes += 15
            world.ledger.record_deferral("captions", deferred)
            assert world.sweep().chunks_resent == 0
        world.minutes += 16
        world.ledger.record_deferral("captions", deferred)
        assert world.sweep().chunks_resent == 1
        assert chunk_ids(world.take("chunks")) == [lost]
        assert world.ledger.chunk("captions", deferred).resends == 0

    def test_a_backlog_hides_a_lost_message_for_a_day_and_then_for_twice_as_long(self, world: SweeperWorld) -> None:
        world.split("r", 1)
        world.put("chunks")
        resent = [world.sweep(DAY / 2 + 1).chunks_resent for _ in range(2 * 3)]
        assert resent == [0, 1, 0, 0, 0, 1]

    def test_messages_that_get_lost_every_time_fail_no_chunk(self, world: SweeperWorld) -> None:
        world.split("r", 1)
        for _ in range(20):
            assert world.sweep(10).chunks_resent == 1
            world.take("chunks")
        chunk = world.ledger.chunk("r", "chunk-0000000")
        assert (chunk.state, chunk.resends, chunk.error) == (ChunkStatus.PENDING, 20, None)

    def test_chunks_that_a_stopped_run_skipped_are_sent_once_it_is_resumed(self, world: SweeperWorld) -> None:
        (only,) = world.split("r", 1)
        world.ledger.stop_run("r", "failed")
        world.hear("r", "failed")
        assert world.sweep(10).chunks_resent == 0
        assert not world.is_open("r")
        assert world.ledger.resume_run(world.ledger.run("r"))
        assert world.sweep(4).chunks_resent == 0
        assert world.sweep(2).chunks_resent == 1
        assert chunk_ids(world.take("chunks")) == [only]


class TestSlowLane:
    def test_rows_that_nobody_refits_are_sent_to_the_slow_lane_again(self, world: SweeperWorld) -> None:
        waiting, done = world.split("r", 2)
        world.complete("r", waiting, n_timed_out=3)
        world.complete("r", done)
        assert world.sweep(4).refits_resent == 0
        assert world.sweep(2).refits_resent == 1
        assert world.sweep().refits_resent == 0
        (message,) = world.take("refits")
        assert message["type"] == "prismline.spectra.refit.v1"
        assert message["traceparent"].startswith("00-aaaa")
        data = message["data"]
        assert data["params"]["beta"] == 4.0
        assert {name: data[name] for name in ("run_id", "survey", "chunk_id", "bucket", "chunk_key", "output_key")} == {
            "run_id": "r",
            "survey": "s",
            "chunk_id": waiting,
            "bucket": "the-bucket",
            "chunk_key": "in/0",
            "output_key": f"out/{waiting}",
        }

    @pytest.mark.parametrize(("holder", "minutes"), [("refits-dlq", HOUR), ("refits", DAY)])
    def test_a_refit_that_may_still_be_in_a_queue_is_given_time(
        self, world: SweeperWorld, holder: str, minutes: float
    ) -> None:
        (only,) = world.split("r", 1)
        world.complete("r", only, n_timed_out=3)
        world.put(holder)
        world.put("chunks")
        assert world.sweep(minutes - 1).refits_resent == 0
        assert world.sweep(2).refits_resent == 1

    @pytest.mark.parametrize("ending", ["fitted", "given up"])
    def test_a_run_stays_open_until_the_slow_lane_is_empty(self, world: SweeperWorld, ending: str) -> None:
        (only,) = world.split("r", 1)
        world.complete("r", only, n_timed_out=3)
        world.hear("r")
        world.sweep()
        assert world.is_open("r")
        if ending == "fitted":
            world.ledger.record_refit("r", only, remaining=0)
        else:
            world.ledger.give_up_refit("r", only, "The chunk's input is gone.")
        world.sweep()
        assert not world.is_open("r")
        world.sweep(DAY)
        assert world.take("refits") == []


class TestEndings:
    def test_a_drained_run_is_announced_with_the_same_id_until_its_end_is_recorded(self, world: SweeperWorld) -> None:
        (only,) = world.split("r", 1)
        world.complete("r", only)
        for _ in range(3):
            assert world.sweep().drains_announced == 1
        events = world.announced()
        assert [event.type for event in events] == ["prismline.run.drained.v1"] * 3
        assert len({event.id for event in events}) == 1
        assert (events[0].data["jobs_completed"], events[0].data["drains"]) == (1, 1)
        world.hear("r")
        assert world.sweep().runs_swept == 1
        assert world.announced() == []
        assert world.sweep().runs_swept == 0

    def test_a_run_that_nobody_drained_is_drained_and_announced(self, world: SweeperWorld) -> None:
        (only,) = world.split("r", 1, latch=False)
        world.complete("r", only)
        latched = Change({"latched_at": timestamp()})  # a splitter that died between latch and drain
        world.table.update({"PK": "r", "SK": RUN_SK}, latched)
        assert world.sweep().drains_announced == 1
        assert [event.data["jobs_completed"] for event in world.announced("drained")] == [1]

    def test_a_late_success_is_announced_until_its_end_is_recorded_too(self, world: SweeperWorld) -> None:
        (only,) = world.split("r", 1)
        world.fail("r", only)
        world.hear("r", "failed")
        world.sweep()
        assert not world.is_open("r")
        world.complete("r", only)
        world.announced()
        for _ in range(2):
            world.sweep()
        assert [event.data["jobs_completed"] for event in world.announced("drained")] == [1, 1]
        world.hear("r")
        world.sweep()
        assert world.announced() == []
        assert not world.is_open("r")

    def test_a_reopened_run_is_announced_with_another_id(self, world: SweeperWorld) -> None:
        (only,) = world.split("r", 1)
        world.fail("r", only)
        world.sweep()
        world.hear("r", "failed")
        assert world.ledger.reopen_chunk(world.ledger.chunk("r", only), "op")
        world.complete("r", only)
        world.sweep()
        first, second = world.announced("drained")
        assert first.id != second.id
        assert second.data["drains"] == 2

    @pytest.mark.parametrize("reason", ["cancelled", "failed"])
    def test_a_stopped_run_is_looked_at_until_its_end_is_recorded_and_its_chunks_are_left_alone(
        self, world: SweeperWorld, reason: Any
    ) -> None:
        begun, _, timed_out = world.split("r", 3)
        world.start("r", begun)
        world.complete("r", timed_out, n_timed_out=2)
        world.ledger.stop_run("r", reason)
        for _ in range(3):
            counts = world.sweep(HOUR)
            assert (counts.checks_requested, counts.repairs) == (1, 0)
        assert [event.type for event in world.announced()] == ["prismline.run.check.requested.v1"] * 3
        world.hear("r", reason)
        assert world.sweep().checks_requested == 0
        assert not world.is_open("r"), "the slow lane skips a stopped run"
        assert world.take("chunks") == world.take("refits") == []

    def test_a_stopped_run_whose_last_chunk_ends_after_all_is_announced_although_it_was_closed(
        self, world: SweeperWorld
    ) -> None:
        (only,) = world.split("r", 1)
        world.start("r", only)
        world.ledger.stop_run("r", "failed")
        world.hear("r", "failed")
        world.sweep()
        assert not world.is_open("r")
        world.complete("r", only)
        assert world.sweep().drains_announced == 1

    def test_a_run_that_goes_on_is_looked_at_every_quarter_of_an_hour(self, world: SweeperWorld) -> None:
        (only,) = world.split("r", 1)
        world.put("chunks")
        assert [world.sweep(4).checks_requested for _ in range(9)] == [0, 0, 0, 1, 0, 0, 0, 1, 0]
        assert len(world.announced("run.check.requested")) == 2
        world.complete("r", only)
        world.hear("r")
        assert world.sweep(HOUR).checks_requested == 0


class TestSplit:
    def test_a_run_that_was_never_latched_is_split_again_with_the_token_that_waits(self, world: SweeperWorld) -> None:
        world.split("r", 1, latch=False, token="the-token")
        assert world.sweep(39).splits_resent == 0
        assert world.sweep(2).splits_resent == 1
        assert world.sweep().splits_resent == 0
        (message,) = world.take("split")
        assert message["type"] == "prismline.run.split.v1"
        assert message["tasktoken"] == "the-token"
        assert message["data"] == {
            "run_id": "r",
            "job_id": "j",
            "bucket": "the-bucket",
            "manifest_key": "manifests/m.json",
        }

    def test_a_split_is_asked_for_as_long_as_it_takes_and_its_run_is_not_stopped(self, world: SweeperWorld) -> None:
        world.split("r", 1, latch=False)
        assert [world.sweep(41).splits_resent for _ in range(8)] == [1] * 8
        assert world.ledger.run("r").cancelled_at is None

    def test_a_run_that_was_latched_just_before_its_split_is_asked_for_again_goes_on(
        self, world: SweeperWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world.split("r", 1, latch=False)
        for _ in range(4):
            world.sweep(41)
        claim = world.ledger.claim_sweep

        def claim_and_latch(seen: Any) -> Any:
            claimed = claim(seen)
            world.ledger.latch("r")
            return claimed

        monkeypatch.setattr(world.ledger, "claim_sweep", claim_and_latch)
        world.sweep(41)
        run = world.ledger.run("r")
        assert (run.cancelled_at, run.split_resends) == (None, 4)
        assert run.latched_at is not None

    def test_a_stopped_run_is_not_split(self, world: SweeperWorld) -> None:
        world.split("r", 1, latch=False)
        world.ledger.stop_run("r", "cancelled")
        assert world.sweep(DAY).splits_resent == 0


class TestCounters:
    def test_counters_that_disagree_with_the_items_are_corrected_and_measured(
        self, world: SweeperWorld, capsys: pytest.CaptureFixture[str]
    ) -> None:
        first, second, third, _ = world.split("r", 4)
        world.complete("r", first, n_timed_out=2)
        world.fail("r", second)
        world.complete("r", third, n_timed_out=1)
        world.ledger.give_up_refit("r", third, "e")
        wrong = Change({"jobs_completed": 3, "jobs_failed": 0, "n_timed_out": 7, "n_refit_failed": 0})
        world.table.update({"PK": "r", "SK": RUN_SK}, wrong)
        assert world.sweep().ledger_drift == 1
        run = world.ledger.run("r")
        assert (run.chunks_completed, run.chunks_failed, run.n_timed_out, run.n_refit_failed) == (2, 1, 2, 1)
        assert run.drained_at is None
        assert world.sweep().ledger_drift == 0
        assert emf(capsys, "LedgerDrift") == [1.0, 0.0]

    def test_drift_that_kept_a_run_from_draining_is_mended_in_the_same_sweep(self, world: SweeperWorld) -> None:
        first, second = world.split("r", 2)
        world.complete("r", first)
        world.table.update({"PK": "r", "SK": RUN_SK}, Change({"jobs_completed": 0}))
        world.complete("r", second)
        assert world.ledger.run("r").drained_at is None
        counts = world.sweep()
        assert (counts.ledger_drift, counts.drains_announced) == (1, 1)
        assert world.ledger.run("r").chunks_completed == 2

    def test_counters_of_shards_are_corrected_and_the_run_drains_in_the_same_sweep(self, world: SweeperWorld) -> None:
        *others, last = world.split("r", 5, shard_count=2)
        for name in others:
            world.complete("r", name)
        shard = {"PK": "r#1", "SK": "SHARD"}
        world.table.update(shard, Change({"completed": 1}))
        world.fail("r", last)
        assert world.ledger.run("r").drained_at is None
        counts = world.sweep()
        assert (counts.ledger_drift, counts.drains_announced) == (1, 1)
        run = world.ledger.run("r")
        assert (run.chunks_completed, run.chunks_failed) == (4, 1)
        assert [(item.completed, item.failed) for item in world.ledger.shards(run)] == [(2, 1), (2, 0)]
        assert world.sweep().ledger_drift == 0

    def test_sums_of_a_drained_run_with_shards_are_corrected(self, world: SweeperWorld) -> None:
        for name in world.split("r", 3, shard_count=2):
            world.complete("r", name)
        world.table.update({"PK": "r", "SK": RUN_SK}, Change({"jobs_completed": 2}))
        assert world.sweep().ledger_drift == 1
        assert world.ledger.run("r").chunks_completed == 3

    def test_a_run_of_shards_that_goes_on_is_not_called_wrong(self, world: SweeperWorld) -> None:
        first, *_ = world.split("r", 3, shard_count=2)
        world.complete("r", first)
        assert world.sweep().ledger_drift == 0

    def test_a_run_of_tasks_is_not_counted_by_chunks(self, world: SweeperWorld) -> None:
        fixed: Any = {"survey": "s", "job_id": "j", "workload": "urls", "params": None, "traceparent": None}
        run = world.ledger.open_run(NewRun(run_id="r", unit="task", **fixed))
        world.ledger.add_tasks(run, 0, ["https://example.org"])
        world.ledger.set_task_total("r", [1])
        (task,) = world.ledger.tasks(run)
        world.ledger.end_tasks(run, [TaskEnding(task, error="404")])
        assert world.sweep().ledger_drift == 0
        assert world.ledger.run("r").chunks_failed == 1

    def test_a_counter_that_moves_while_it_is_checked_is_not_called_wrong(
        self, world: SweeperWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (only,) = world.split("r", 1)
        read = world.ledger.chunks

        def chunks(run_id: str) -> Iterator[ChunkItem]:
            yield from read(run_id)
            world.complete(run_id, only)

        monkeypatch.setattr(world.ledger, "chunks", chunks)
        assert world.sweep().ledger_drift == 0
        assert world.ledger.run("r").chunks_completed == 1

    def test_a_chunk_that_is_reopened_while_another_fails_is_not_counted_twice(
        self, world: SweeperWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The counters are the same before and after, and the listing saw both chunks FAILED."""
        reopened, fails = world.split("r", 2)
        world.fail("r", reopened)
        read, races = world.ledger.chunks, ["one"]

        def chunks(run_id: str) -> Iterator[ChunkItem]:
            yield world.ledger.chunk(run_id, reopened)
            if races:
                races.clear()
                world.ledger.reopen_chunk(world.ledger.chunk(run_id, reopened), "op")
                world.fail(run_id, fails)
            yield from list(read(run_id))[1:]

        monkeypatch.setattr(world.ledger, "chunks", chunks)
        assert world.sweep().ledger_drift == 0
        assert world.ledger.run("r").chunks_failed == 1

    def test_a_missing_item_is_measured(self, world: SweeperWorld) -> None:
        world.split("r", 2)
        key = {"PK": {"S": "r"}, "SK": {"S": "CHUNK#chunk-0000001"}}
        world.clients["dynamodb"].delete_item(TableName=world.table.name, Key=key)
        assert world.sweep().ledger_drift == 1
        assert world.ledger.run("r").chunks_total == 2

    def test_a_run_whose_numbers_were_wrong_is_looked_at_once_more_before_it_is_closed(
        self, world: SweeperWorld
    ) -> None:
        (only,) = world.split("r", 1)
        world.complete("r", only, n_timed_out=2)
        world.hear("r")
        world.table.update({"PK": "r", "SK": RUN_SK}, Change({"n_timed_out": 0}))
        assert world.sweep().ledger_drift == 1
        assert world.is_open("r")
        assert world.ledger.run("r").n_timed_out == 2


class TestTogetherAndApart:
    def test_two_sweeps_at_once_do_each_thing_once(self, world: SweeperWorld) -> None:
        for n in range(6):
            for chunk_id in world.split(f"r{n}", 4):
                world.start(f"r{n}", chunk_id)
            world.split(f"never-latched-{n}", 1, latch=False)
        world.minutes = HOUR
        with ThreadPoolExecutor(4) as pool:
            all_counts = list(pool.map(lambda _: sweep(world.deps, now=world.now()), range(4)))
        sent = Counter((message["runid"], message["data"]["chunk_id"]) for message in world.take("chunks"))
        assert len(sent) == 24
        assert set(sent.values()) == {1}
        assert Counter(message["runid"] for message in world.take("split")) == {
            f"never-latched-{n}": 1 for n in range(6)
        }
        assert sum(counts.runs_swept for counts in all_counts) >= 12

    def test_a_sweep_may_die_before_any_of_its_writes_and_the_next_one_does_the_rest(self, world: SweeperWorld) -> None:
        for n in count():
            story = Story(world, f"dies-{n}")
            world.changes_left = n
            try:
                world.sweep()
            except DiedError:
                died = True
            else:
                died = False
            world.changes_left = None
            if died:
                world.sweep()
            story.check()
            if not died:
                assert n > 15
                return

    def test_a_sweep_repairs_a_limited_number_of_chunks_and_the_next_sweep_continues(
        self, world: SweeperWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sweeper, "REPAIRS_PER_SWEEP", 3)
        for chunk_id in world.split("r", 8):
            world.start("r", chunk_id)
        assert [world.sweep(21 if first else 0).chunks_resent for first in (1, 0, 0, 0)] == [3, 3, 2, 0]
        assert len(set(chunk_ids(world.take("chunks")))) == 8

    def test_a_run_is_not_closed_before_all_its_announcements_are_made(
        self, world: SweeperWorld, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sweeper, "REPAIRS_PER_SWEEP", 1)
        for chunk_id in world.split("r", 3):
            world.ledger.give_up_chunk(world.ledger.chunk("r", chunk_id), "e", announcement_pending=True)
        world.hear("r", "failed")
        for announced in (1, 1, 1):
            assert world.is_open("r")
            assert world.sweep().chunk_ends_announced == announced
        assert not world.is_open("r")
        assert len({event.data["chunk_id"] for event in world.announced("chunk.failed")}) == 3

    @pytest.mark.parametrize("bound", ["RUNS_PER_SWEEP", "CHUNKS_PER_SWEEP"])
    def test_runs_beyond_the_limit_of_a_sweep_are_the_first_of_the_next_sweep(
        self, world: SweeperWorld, monkeypatch: pytest.MonkeyPatch, bound: str
    ) -> None:
        monkeypatch.setattr(sweeper, bound, 1)
        for n in range(3):
            (only,) = world.split(f"r{n}", 1)
            world.start(f"r{n}", only)
        world.minutes = 21
        for _ in range(3):
            assert world.sweep().runs_swept == 1
        assert sorted(message["runid"] for message in world.take("chunks")) == ["r0", "r1", "r2"]

    def test_a_sweep_that_has_no_time_left_begins_no_run(self, world: SweeperWorld) -> None:
        world.split("r", 1)
        assert sweep(world.deps, now=world.now(), deadline=0.0).runs_swept == 0

    def test_a_run_that_cannot_be_swept_stops_no_other(self, world: SweeperWorld) -> None:
        for run_id in ("broken", "whole"):
            (only,) = world.split(run_id, 1)
            world.start(run_id, only)
        world.table.update({"PK": "broken", "SK": RUN_SK}, Change({"params": '{"beta": '}))
        assert world.sweep(21).runs_swept == 2
        assert [message["runid"] for message in world.take("chunks")] == ["whole"]

    def test_a_queue_that_cannot_be_reached_leaves_the_work_to_the_next_sweep(self, world: SweeperWorld) -> None:
        (only,) = world.split("r", 1)
        world.start("r", only)

        class Unreachable(Transport):
            def send(self, *_: Any, **__: Any) -> None:
                raise UnavailableError("SQS is down.")

        transport = Unreachable(
            environment=world.env["ENVIRONMENT"],
            service="dlq-consumer",
            sqs=world.clients["sqs"],
            events=world.clients["events"],
            stepfunctions=world.clients["stepfunctions"],
        )
        world.minutes = 21
        assert sweep(replace(world.deps, transport=transport), now=world.now()).runs_not_swept == 1
        assert world.ledger.chunk("r", only).state is ChunkStatus.IN_PROGRESS
        assert world.sweep().chunks_resent == 1

    def test_the_schedules_event_starts_a_sweep(self, world: SweeperWorld) -> None:
        (only,) = world.split("r", 1)
        world.complete("r", only)
        world.hear("r")
        handler = queue_handler(
            world.deps.transport,
            world.deps.logger,
            {},
            {"aws.events/Scheduled Event": lambda event, delivery: on_sweep(event, delivery, world.deps)},
        )
        body = json.dumps({"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}})
        event = lambda_event_of(body, world.env["ENVIRONMENT"], "sweeps")
        assert handler(event, Context()) == {"batchItemFailures": []}
        assert not world.is_open("r")


class Story:
    """One run of each kind that a sweep repairs, and the results that a sweep must have."""

    def __init__(self, world: SweeperWorld, name: str) -> None:
        self.world = world
        self.mixed, self.unsplit, self.ended = f"{name}-mixed", f"{name}-unsplit", f"{name}-ended"
        self.exhausted, self.dead, self.unfitted, self.lost = world.split(self.mixed, 4)
        world.split(self.unsplit, 1, latch=False)
        (only,) = world.split(self.ended, 1)
        world.complete(self.ended, only)
        world.complete(self.mixed, self.unfitted, n_timed_out=1)
        world.start(self.mixed, self.dead)
        world.exhaust(self.mixed, self.exhausted)
        world.announced()

    def check(self) -> None:
        world = self.world
        chunk = world.ledger.chunk(self.mixed, self.exhausted)
        assert (chunk.state, chunk.announcement_pending) == (ChunkStatus.FAILED, False)
        dead, lost = (world.ledger.chunk(self.mixed, name) for name in (self.dead, self.lost))
        assert (dead.state, dead.resends) == (ChunkStatus.PENDING, 1)
        assert lost.resends <= 1, "a message that was sent but not recorded is in its queue"
        run = world.ledger.run(self.mixed)
        assert (run.chunks_completed, run.chunks_failed, run.drained_at) == (1, 1, None)
        events = {(event.type.split(".", 1)[1], event.runid, event.data.get("chunk_id")) for event in world.announced()}
        assert events >= {
            ("chunk.failed.v1", self.mixed, self.exhausted),
            ("run.check.requested.v1", self.mixed, None),
            ("run.check.requested.v1", self.unsplit, None),
            ("run.drained.v1", self.ended, None),
        }
        assert {kind for kind, _, chunk_id in events if chunk_id} == {"chunk.failed.v1"}
        sent = Counter(message["data"]["chunk_id"] for message in world.take("chunks"))
        assert set(sent) == {self.dead, self.lost}
        assert max(sent.values()) <= 2
        assert 1 <= len(world.take("refits")) <= 2
        assert 1 <= len(world.take("split")) <= 2
        for run_id in (self.mixed, self.unsplit):
            world.ledger.stop_run(run_id, "cancelled")
        for run_id in (self.mixed, self.unsplit, self.ended):
            world.hear(run_id)
        world.sweep()
        assert list(world.ledger.open_runs()) == []
        world.take("observer")


def emf(capsys: pytest.CaptureFixture[str], metric: str) -> list[float]:
    """The values of a metric that were written so far, as CloudWatch reads them."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if metric in line]
    return [value for line in lines if "_aws" in line for value in line[metric]]
