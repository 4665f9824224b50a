"""What is lost is found: the sweeper's decisions, and its sweeps over a real ledger and real queues."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts import ChunkItem, ChunkStatus, RunItem, timestamp
from prismline_dlq_consumer import sweeper
from prismline_dlq_consumer.sweeper import (
    GiveUp,
    Resend,
    SweeperDependencies,
    SweepLimits,
    on_sweep,
    process_command,
    sweep,
    sweep_chunk,
    sweep_split,
)
from prismline_ledger import Ledger, NewChunk
from prismline_localstack.state import make_client
from prismline_localstack.testing import create_runs_table, observe_bus
from prismline_runtime import TransientError, Transport, faults, queue_handler, service_logger

LIMITS = SweepLimits(workload_lease_seconds={"captions": 60.0})
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def run_item(**fields: Any) -> RunItem:
    base = {
        "PK": "r",
        "GSI1_PK": "s",
        "GSI1_SK": timestamp(START),
        "survey": "s",
        "workload": "spectra",
        "job_id": "j",
        "created_at": timestamp(START),
        "latched_at": timestamp(START),
        "manifest_key": "manifests/m.json",
        "jobs_total": 1,
    }
    return RunItem.model_validate({name: value for name, value in (base | fields).items() if value is not None})


def chunk_item(status: str = "PENDING", **fields: Any) -> ChunkItem:
    base = {
        "PK": "r",
        "SK": "CHUNK#chunk-0000000",
        "status": status,
        "chunk_key": "in/0",
        "n_spectra": 1,
        "n_items": 1,
        "created_at": timestamp(START),
    }
    return ChunkItem.model_validate(base | fields)


def begun(**fields: Any) -> ChunkItem:
    return chunk_item("IN_PROGRESS", **{"started_at": timestamp(START), "attempts": 1} | fields)


def decide(chunk: ChunkItem, now: datetime, *, run: RunItem | None = None, empty: bool = True) -> object:
    return sweep_chunk(chunk, run or run_item(), now, LIMITS, queues_empty=empty)


class TestDecisions:
    def test_a_chunk_is_its_workers_until_the_lease_has_run_out(self) -> None:
        assert decide(begun(), after(900)) is None
        assert decide(begun(), after(901)) == Resend("Its worker did not end it within 15 minutes.")

    def test_a_workload_has_a_lease_of_its_own(self) -> None:
        captions = run_item(workload="captions")
        assert decide(begun(), after(60), run=captions) is None
        assert decide(begun(), after(61), run=captions) == Resend("Its worker did not end it within 60 seconds.")

    def test_a_chunk_whose_attempts_are_used_up_is_given_up_with_its_last_error(self) -> None:
        chunk = begun(attempts=5, last_error="The kernel died.")
        assert decide(chunk, after(900)) is None
        decision = decide(chunk, after(901))
        assert isinstance(decision, GiveUp)
        assert decision.error == (
            "Its worker did not end it within 15 minutes, at attempt 5 of 5. Before that: The kernel died."
        )

    def test_a_waiting_chunk_is_lost_when_no_queue_holds_a_message(self) -> None:
        assert decide(chunk_item(), after(300)) is None
        assert isinstance(decide(chunk_item(), after(301)), Resend)

    def test_a_waiting_chunk_may_wait_as_long_as_a_message_may_be_its_own(self) -> None:
        fortnight = 14 * 86_400
        assert decide(chunk_item(), after(fortnight), empty=False) is None
        assert isinstance(decide(chunk_item(), after(fortnight + 1), empty=False), Resend)

    def test_a_chunk_waits_for_its_message_from_when_it_was_last_sent(self) -> None:
        sent = chunk_item(sent_at=timestamp(after(1000)), resends=1)
        assert decide(sent, after(1300)) is None
        assert isinstance(decide(sent, after(1301)), Resend)

    def test_a_chunk_whose_messages_get_lost_again_and_again_is_given_up(self) -> None:
        sent = chunk_item(sent_at=timestamp(START), resends=5)
        decision = decide(sent, after(301))
        assert isinstance(decision, GiveUp)
        assert "sent again 5 times" in decision.error

    def test_a_chunk_of_a_run_that_is_still_being_split_waits(self) -> None:
        assert decide(chunk_item(), after(10**7), run=run_item(latched_at=None)) is None

    def test_a_deferred_chunk_waits_for_its_resource_and_not_for_a_worker(self) -> None:
        deferred = begun(attempts=5, deferrals=96, deferred_at=timestamp(after(86_400)))
        assert decide(deferred, after(86_400 + 1800), empty=False) is None
        assert isinstance(decide(deferred, after(86_400 + 1800)), Resend), "its message is not in any queue"
        again = begun(started_at=timestamp(after(90_000)), deferrals=96, deferred_at=timestamp(after(86_400)))
        assert isinstance(decide(again, after(90_901), empty=False), Resend), "a worker has it again"

    @pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
    def test_what_has_ended_is_left_alone(self, status: str) -> None:
        assert decide(chunk_item(status), after(10**8)) is None

    @pytest.mark.parametrize("chunk", [chunk_item(), begun()])
    def test_a_cancelled_run_is_left_alone(self, chunk: ChunkItem) -> None:
        assert decide(chunk, after(10**8), run=run_item(cancelled_at=timestamp(START))) is None

    def test_a_run_that_was_never_latched_is_split_again_a_few_times(self) -> None:
        run = run_item(latched_at=None)
        assert sweep_split(run, after(2400), LIMITS) is None
        assert sweep_split(run, after(2401), LIMITS) == Resend("The run was not split within 40 minutes.")
        again = run_item(latched_at=None, split_sent_at=timestamp(after(2401)), split_resends=1)
        assert sweep_split(again, after(4801), LIMITS) is None
        assert isinstance(sweep_split(again, after(4802), LIMITS), Resend)
        assert isinstance(sweep_split(run_item(latched_at=None, split_resends=3), after(2401), LIMITS), GiveUp)

    @pytest.mark.parametrize("fields", [{}, {"latched_at": None, "cancelled_at": timestamp(START)}])
    def test_a_run_that_is_latched_or_cancelled_is_not_split_again(self, fields: dict[str, Any]) -> None:
        assert sweep_split(run_item(**fields), after(10**8), LIMITS) is None

    def test_the_command_is_the_splitters_once_more(self) -> None:
        run = run_item(params='{"beta": 4.0}')
        command = process_command(begun(resends=1, deferrals=7), run, "bucket")
        assert (command.attempt, command.deferrals) == (3, 7)
        assert command.params == {"beta": 4.0}
        assert (command.chunk_key, command.bucket, command.n_items) == ("in/0", "bucket", 1)

    @given(
        st.lists(
            st.tuples(st.floats(0, 3 * 14 * 86_400), st.sampled_from(["lost", "begun and died", "in a queue"])),
            min_size=1,
            max_size=60,
        )
    )
    def test_whatever_happens_a_chunk_is_sent_again_a_bounded_number_of_times(
        self, story: list[tuple[float, str]]
    ) -> None:
        """Each step: time passes and something happens to the message, then a sweep."""
        chunk, now, sends = chunk_item(), START, 0
        for seconds, fate in story:
            now += timedelta(seconds=seconds)
            if fate == "begun and died" and not chunk.state.terminal:
                fields = {"status": "IN_PROGRESS", "started_at": timestamp(now), "attempts": chunk.attempts + 1}
                chunk = chunk.model_copy(update=fields)
            decision = decide(chunk, now, empty=fate != "in a queue")
            if isinstance(decision, Resend):
                sends += 1
                fields = {"status": "PENDING", "sent_at": timestamp(now), "resends": chunk.resends + 1}
                chunk = chunk.model_copy(update=fields)
                assert decide(chunk, now) is None, "two sweeps in a row send once"
            if isinstance(decision, GiveUp):
                chunk = chunk.model_copy(update={"status": "FAILED"})
        starts = sum(fate == "begun and died" for _, fate in story)
        assert sends <= LIMITS.max_attempts + min(starts, LIMITS.max_attempts)


@dataclass
class Clock:
    """The time that ledger and sweeper go by: minutes ahead of ours."""

    ahead: timedelta = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@dataclass
class World:
    """A ledger, queues and a bus on the emulator."""

    env: dict[str, str]
    deps: SweeperDependencies
    sqs: Any
    clock: Clock

    @property
    def ledger(self) -> Ledger:
        return self.deps.ledger

    def url(self, queue: str) -> str:
        return str(self.sqs.get_queue_url(QueueName=f"prismline-{self.env['ENVIRONMENT']}-{queue}")["QueueUrl"])

    def split(self, run_id: str, n_chunks: int, *, latch: bool = True, token: str | None = None) -> list[str]:
        self.ledger.open_run(
            run_id=run_id,
            survey="s",
            job_id="j",
            workload="spectra",
            params='{"beta": 4.0}',
            traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
            manifest_key="manifests/m.json",
            split_token=token,
        )
        chunks = [NewChunk(f"chunk-{n:07d}", f"in/{n}", 1) for n in range(n_chunks)]
        self.ledger.add_chunks(run_id, chunks)
        self.ledger.set_total(run_id, jobs_total=n_chunks, n_spectra=n_chunks, n_blank=0)
        if latch:
            self.ledger.latch(run_id)
        return [chunk.chunk_id for chunk in chunks]

    def sweep(self, minutes: float = 0.0) -> sweeper.Tally:
        """A sweep, so long after the test began."""
        self.clock.ahead = timedelta(minutes=minutes)
        return sweep(self.deps, now=self.clock.now())

    def take(self, queue: str) -> list[dict[str, Any]]:
        """All messages of a queue, which is empty afterwards."""
        found = []
        url = self.url(queue)
        while messages := self.sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for message in messages:
                found.append(json.loads(message["Body"]))
                self.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found

    def said(self) -> list[dict[str, Any]]:
        """Events on the bus since the last time."""
        return self.take("observer")

    def damage(self, run_id: str, **values: Any) -> None:
        """A write that goes round the ledger, as a bug or a restored backup would."""
        self.ledger._update(run_id, "RUN", sets=values)


@pytest.fixture
def world(aws_env: dict[str, str]) -> Iterator[World]:
    environment = aws_env["ENVIRONMENT"]
    dynamodb, sqs, events = (make_client(name, aws_env) for name in ("dynamodb", "sqs", "events"))
    table = f"prismline-{environment}-runs"
    create_runs_table(dynamodb, table)
    for queue in ("chunks", "chunks-dlq", "split", "sweeps", "sweeps-dlq"):
        sqs.create_queue(QueueName=f"prismline-{environment}-{queue}")
    bus = f"prismline-{environment}"
    events.create_event_bus(Name=bus)
    observe_bus(sqs, events, bus)
    clock = Clock()
    deps = SweeperDependencies(
        ledger=Ledger(dynamodb, table, clock=lambda: timestamp(clock.now())),
        transport=Transport(
            environment=environment,
            service="dlq-consumer",
            sqs=sqs,
            events=events,
            stepfunctions=make_client("stepfunctions", aws_env),
        ),
        sqs=sqs,
        bucket="the-bucket",
        limits=LIMITS,
        logger=service_logger("sweeper-tests"),
    )
    yield World(aws_env, deps, sqs, clock)
    dynamodb.delete_table(TableName=table)


@pytest.fixture
def break_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Make the sweeper fail once at a fault point."""
    rules = tmp_path / "faults.json"
    monkeypatch.setenv("PRISMLINE_FAULTS_FILE", str(rules))
    faults._rules_file.cache_clear()
    yield lambda point: rules.write_text(json.dumps([{"point": point, "action": "transient", "times": 1}])) and None
    faults._rules_file.cache_clear()


@pytest.mark.emulator
class TestSweeps:
    def test_a_chunk_whose_worker_died_is_sent_again_once(self, world: World) -> None:
        dead, done, waiting = world.split("r", 3)
        world.sqs.send_message(QueueUrl=world.url("chunks"), MessageBody='"the waiting one\'s"')
        for chunk_id in (dead, done):
            world.ledger.start_chunk("r", chunk_id)
        world.ledger.complete_chunk("r", done, output_key="o", duration_ms=1)
        assert world.sweep(14).chunks_resent == 0
        assert world.sweep(16).chunks_resent == 1
        assert world.sweep(16).chunks_resent == 0
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
            "params": message["data"]["params"] | {"beta": 4.0},
            "attempt": 2,
            "deferrals": 0,
        }
        chunk = world.ledger.chunk("r", dead)
        assert (chunk.state, chunk.attempts) == (ChunkStatus.PENDING, 1)
        assert world.ledger.chunk("r", waiting).resends == 0

    def test_a_chunk_whose_attempts_are_used_up_fails_and_says_so(self, world: World) -> None:
        (only,) = world.split("r", 1)
        for _ in range(5):
            world.ledger.start_chunk("r", only)
        world.ledger.record_error("r", only, "The kernel died.")
        tally = world.sweep(16)
        assert (tally.chunks_given_up, tally.chunks_resent, tally.runs_drained) == (1, 0, 1)
        chunk, run = world.ledger.chunk("r", only), world.ledger.run("r")
        assert chunk.state is ChunkStatus.FAILED
        assert "The kernel died." in (chunk.error or "")
        assert (run.jobs_failed, run.drained_by) == (1, "sweeper")
        failed, drained = sorted(world.said(), key=lambda event: event["type"])
        assert (failed["type"], failed["data"]["error"]) == ("prismline.chunk.failed.v1", chunk.error)
        assert (drained["type"], drained["data"]["jobs_failed"]) == ("prismline.run.drained.v1", 1)
        assert world.take("chunks") == []

    @pytest.mark.parametrize("holder", ["chunks", "chunks-dlq"])
    def test_a_waiting_chunk_is_sent_again_only_once_no_message_can_be_its_own(self, world: World, holder: str) -> None:
        world.split("r", 2)
        world.sqs.send_message(QueueUrl=world.url(holder), MessageBody='"somebody\'s"')
        assert world.sweep(10).chunks_resent == 0
        in_flight = world.sqs.receive_message(QueueUrl=world.url(holder))["Messages"]
        assert world.sweep(10).chunks_resent == 0, "a message that is being worked on is a message"
        world.sqs.delete_message(QueueUrl=world.url(holder), ReceiptHandle=in_flight[0]["ReceiptHandle"])
        assert world.sweep(10).chunks_resent == 2
        assert world.sweep(10).chunks_resent == 0
        assert sorted(message["data"]["chunk_id"] for message in world.take("chunks")) == [
            "chunk-0000000",
            "chunk-0000001",
        ]

    def test_messages_that_get_lost_every_time_end_in_a_failure_and_not_in_a_loop(self, world: World) -> None:
        (only,) = world.split("r", 1)
        deliveries = 0
        for minutes in range(10, 200, 10):
            world.sweep(minutes)
            deliveries += len(world.take("chunks"))
        assert deliveries == LIMITS.max_attempts
        assert "sent again 5 times" in (world.ledger.chunk("r", only).error or "")
        assert world.ledger.run("r").drained_at is not None
        assert list(world.ledger.open_runs()) == []

    def test_a_run_that_nobody_drained_is_drained_and_announced_once(self, world: World) -> None:
        (only,) = world.split("r", 1, latch=False)
        world.ledger.complete_chunk("r", only, output_key="o", duration_ms=1)
        world.damage("r", latched_at=timestamp())  # a splitter that died between latch and drain
        assert world.ledger.run("r").drained_at is None
        assert world.sweep().runs_drained == 1
        (event,) = world.said()
        assert (event["type"], event["data"]["jobs_completed"]) == ("prismline.run.drained.v1", 1)
        assert world.sweep().runs_swept == 0
        assert world.said() == []

    def test_a_run_that_drained_by_itself_is_looked_at_once_more_and_not_announced(self, world: World) -> None:
        (only,) = world.split("r", 1)
        world.ledger.complete_chunk("r", only, output_key="o", duration_ms=1)
        tally = world.sweep()
        assert (tally.runs_swept, tally.runs_drained) == (1, 0)
        assert world.sweep().runs_swept == 0
        assert world.said() == []

    def test_counters_that_disagree_with_the_items_are_corrected_and_measured(
        self, world: World, capsys: pytest.CaptureFixture[str]
    ) -> None:
        first, second, _ = world.split("r", 3)
        world.ledger.complete_chunk("r", first, output_key="o", duration_ms=1, n_timed_out=2)
        world.ledger.fail_chunk("r", second, "e")
        world.damage("r", jobs_completed=2, jobs_failed=0, n_timed_out=7)
        assert world.sweep().ledger_drift == 1
        run = world.ledger.run("r")
        assert (run.jobs_completed, run.jobs_failed, run.n_timed_out, run.drained_at) == (1, 1, 2, None)
        assert world.sweep().ledger_drift == 0
        assert emf(capsys, "LedgerDrift") == [1.0, 0.0]

    def test_drift_that_kept_a_run_from_draining_is_mended_in_the_same_sweep(self, world: World) -> None:
        first, second = world.split("r", 2)
        world.ledger.complete_chunk("r", first, output_key="o", duration_ms=1)
        world.damage("r", jobs_completed=0)
        world.ledger.complete_chunk("r", second, output_key="o", duration_ms=1)
        assert world.ledger.run("r").drained_at is None
        tally = world.sweep()
        assert (tally.ledger_drift, tally.runs_drained) == (1, 1)
        assert world.ledger.run("r").jobs_completed == 2
        assert list(world.ledger.open_runs()) == []

    def test_a_counter_that_moves_while_it_is_checked_is_not_called_wrong(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (only,) = world.split("r", 1)
        read = world.ledger.chunks

        def chunks(run_id: str, **arguments: Any) -> Iterator[ChunkItem]:
            yield from read(run_id, **arguments)
            world.ledger.complete_chunk(run_id, only, output_key="o", duration_ms=1)

        monkeypatch.setattr(world.ledger, "chunks", chunks)
        assert world.sweep().ledger_drift == 0
        assert world.ledger.run("r").jobs_completed == 1
        assert [run.run_id for run in world.ledger.open_runs()] == ["r"], "its end has not been checked yet"
        assert world.sweep().ledger_drift == 0
        assert list(world.ledger.open_runs()) == []

    def test_a_missing_item_is_measured(self, world: World) -> None:
        world.split("r", 2)
        world.ledger._dynamodb.delete_item(
            TableName=world.ledger._table, Key={"PK": {"S": "r"}, "SK": {"S": "CHUNK#chunk-0000001"}}
        )
        assert world.sweep().ledger_drift == 1
        assert world.ledger.run("r").jobs_total == 2

    def test_a_run_that_was_never_latched_is_split_again_with_the_token_that_waits(self, world: World) -> None:
        world.split("r", 1, latch=False, token="the-token")
        assert world.sweep(30).splits_resent == 0
        assert world.sweep(41).splits_resent == 1
        assert world.sweep(41).splits_resent == 0
        (message,) = world.take("split")
        assert message["type"] == "prismline.run.split.v1"
        assert message["tasktoken"] == "the-token"
        assert message["data"] == {
            "run_id": "r",
            "job_id": "j",
            "bucket": "the-bucket",
            "manifest_key": "manifests/m.json",
        }

    def test_a_run_that_cannot_be_split_fails_its_execution_and_is_asked_for_no_more(self, world: World) -> None:
        stepfunctions = make_client("stepfunctions", world.env)
        states = {
            "Split": {
                "Type": "Task",
                "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
                "Parameters": {"QueueUrl": world.url("split"), "MessageBody": {"token.$": "$$.Task.Token"}},
                "End": True,
            }
        }
        machine = stepfunctions.create_state_machine(
            name=f"split-{world.env['ENVIRONMENT']}",
            definition=json.dumps({"StartAt": "Split", "States": states}),
            roleArn="arn:aws:iam::000000000000:role/r",
        )
        execution = stepfunctions.start_execution(stateMachineArn=machine["stateMachineArn"])["executionArn"]
        tokens: list[dict[str, Any]] = []
        while not tokens:
            tokens = world.take("split")
        world.split("r", 1, latch=False, token=tokens[0]["token"])
        tallies = [world.sweep(minutes) for minutes in range(41, 500, 41)]
        assert sum(tally.splits_resent for tally in tallies) == LIMITS.max_split_resends == len(world.take("split"))
        assert sum(tally.splits_given_up for tally in tallies) == 1
        while (ended := stepfunctions.describe_execution(executionArn=execution))["status"] == "RUNNING":
            pass
        assert (ended["status"], ended["error"]) == ("FAILED", "SplitGivenUp")
        assert world.ledger.run("r").cancelled_at is not None
        assert list(world.ledger.open_runs()) == []

    def test_a_cancelled_run_is_taken_off_the_list_and_its_chunks_are_left_alone(self, world: World) -> None:
        begun_chunk, _ = world.split("r", 2)
        world.ledger.start_chunk("r", begun_chunk)
        world.ledger.stop_run("r")
        tally = world.sweep(10**6)
        assert (tally.runs_swept, tally.repairs) == (1, 0)
        assert world.sweep().runs_swept == 0
        assert world.take("chunks") == []

    def test_two_sweeps_at_once_do_each_thing_once(self, world: World) -> None:
        for n in range(6):
            for chunk_id in world.split(f"r{n}", 4):
                world.ledger.start_chunk(f"r{n}", chunk_id)
            world.split(f"never-latched-{n}", 1, latch=False)
        with ThreadPoolExecutor(4) as pool:
            tallies = list(pool.map(world.sweep, [60] * 4))
        sent = Counter((m["runid"], m["data"]["chunk_id"]) for m in world.take("chunks"))
        assert len(sent) == 24
        assert set(sent.values()) == {1}
        assert Counter(m["runid"] for m in world.take("split")) == {f"never-latched-{n}": 1 for n in range(6)}
        assert sum(tally.runs_swept for tally in tallies) >= 12

    def test_a_sweep_that_dies_before_it_wrote_down_what_it_sent_is_made_good(
        self, world: World, break_at: Callable[[str], None]
    ) -> None:
        (only,) = world.split("r", 1)
        world.ledger.start_chunk("r", only)
        break_at("sweep.sent")
        with pytest.raises(TransientError):
            world.sweep(16)
        assert world.ledger.chunk("r", only).state is ChunkStatus.IN_PROGRESS
        world.sweep(16)
        world.sweep(16)
        assert len(world.take("chunks")) == 2, "once by the one that died, once by the next"
        assert world.ledger.chunk("r", only).resends == 1

    def test_a_drain_that_a_sweep_died_before_announcing_is_announced(
        self, world: World, break_at: Callable[[str], None]
    ) -> None:
        (only,) = world.split("r", 1)
        for _ in range(5):
            world.ledger.start_chunk("r", only)
        break_at("sweep.drained")
        with pytest.raises(TransientError):
            world.sweep(16)
        assert [event["type"] for event in world.said()] == ["prismline.chunk.failed.v1"]
        assert world.ledger.run("r").drained_at is not None
        world.sweep(16)
        assert [event["type"] for event in world.said()] == ["prismline.run.drained.v1"]
        assert world.sweep().runs_swept == 0

    def test_a_sweep_repairs_a_bounded_number_of_chunks_and_the_next_goes_on(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sweeper, "REPAIRS_PER_SWEEP", 3)
        for chunk_id in world.split("r", 8):
            world.ledger.start_chunk("r", chunk_id)
        assert [world.sweep(16).chunks_resent for _ in range(4)] == [3, 3, 2, 0]
        assert len({message["data"]["chunk_id"] for message in world.take("chunks")}) == 8

    @pytest.mark.parametrize("bound", ["RUNS_PER_SWEEP", "CHUNKS_PER_SWEEP"])
    def test_runs_that_a_sweep_has_no_room_for_are_first_at_the_next(
        self, world: World, monkeypatch: pytest.MonkeyPatch, bound: str
    ) -> None:
        monkeypatch.setattr(sweeper, bound, 1)
        for n in range(3):
            (only,) = world.split(f"r{n}", 1)
            world.ledger.start_chunk(f"r{n}", only)
        for _ in range(3):
            assert world.sweep(16).runs_swept == 1
        assert sorted(message["runid"] for message in world.take("chunks")) == ["r0", "r1", "r2"]

    def test_a_sweep_that_has_no_time_left_begins_no_run(self, world: World) -> None:
        world.split("r", 1)
        assert sweep(world.deps, now=datetime.now(UTC), deadline=0.0).runs_swept == 0

    def test_a_run_that_cannot_be_swept_stops_no_other(self, world: World) -> None:
        for run_id in ("broken", "whole"):
            (only,) = world.split(run_id, 1)
            world.ledger.start_chunk(run_id, only)
        world.damage("broken", params='{"beta": ')
        assert world.sweep(16).runs_swept == 2
        assert [message["runid"] for message in world.take("chunks")] == ["whole"]

    def test_a_queue_that_cannot_be_reached_leaves_the_work_to_the_next_sweep(self, world: World) -> None:
        (only,) = world.split("r", 1)
        world.ledger.start_chunk("r", only)

        class Unreachable:
            environment, source = world.deps.transport.environment, "test"

            def send(self, *_: Any) -> None:
                raise TransientError("SQS is down.")

        broken = replace(world.deps, transport=Unreachable())  # type: ignore[arg-type]
        later = datetime.now(UTC) + timedelta(minutes=16)
        with pytest.raises(TransientError):
            sweep(broken, now=later)
        assert world.ledger.chunk("r", only).state is ChunkStatus.IN_PROGRESS
        assert world.sweep(16).chunks_resent == 1

    def test_the_schedules_event_starts_a_sweep(self, world: World) -> None:
        (only,) = world.split("r", 1)
        world.ledger.complete_chunk("r", only, output_key="o", duration_ms=1)
        handler = queue_handler(
            world.deps.transport,
            world.deps.logger,
            {},
            {"aws.events/Scheduled Event": lambda event, delivery: on_sweep(event, delivery, world.deps)},
        )
        record = {
            "messageId": "m",
            "receiptHandle": "h",
            "body": json.dumps({"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}),
            "attributes": {"ApproximateReceiveCount": "1"},
            "eventSourceARN": f"arn:aws:sqs:us-east-1:000000000000:prismline-{world.env['ENVIRONMENT']}-sweeps",
        }

        class Context:
            @staticmethod
            def get_remaining_time_in_millis() -> int:
                return 900_000

        assert handler({"Records": [record]}, Context()) == {"batchItemFailures": []}
        assert list(world.ledger.open_runs()) == []


def emf(capsys: pytest.CaptureFixture[str], metric: str) -> list[float]:
    """The values of a metric that were written so far, as CloudWatch reads them."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if metric in line]
    return [value for line in lines if "_aws" in line for value in line[metric]]
