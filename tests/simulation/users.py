"""The actions of people and timers: submit, cancel, recover dead letters, switch the GPU, deploy, sweep.

They use the command line's own code. Their calls take time and do not fail, because a person would only repeat a failed
call.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from prismline_cli.captions import submit_frames
from prismline_cli.submission import submit
from prismline_contracts.base import timestamp
from prismline_contracts.commands import Queue
from prismline_contracts.deadletters import DeadlettersRecover
from prismline_contracts.envelope import Envelope
from prismline_contracts.events import RunCancelRequested
from prismline_contracts.manifest import run_id_of
from prismline_runtime import Transport
from tests.simulation.lists import ListUsers
from tests.simulation.plan import RunPlan
from tests.simulation.scheduler import START, Process
from tests.simulation.virtual import uuid4
from tests.simulation.workloads import cube_file, frames_folder
from tests.simulation.world import World

#: Longest time between two sweeps, seconds.
LONGEST_SWEEP_SECONDS = 3600.0
#: Factor by which the pause between sweeps grows.
SWEEP_GROWTH = 1.5


@dataclass(frozen=True)
class Submission:
    """A run that was or will be submitted."""

    number: int
    plan: RunPlan
    run_id: str

    @property
    def healthy(self) -> bool:
        """Whether no part of it can fail for good."""
        return not self.plan.bad and not self.plan.invalid


class Users:
    """All people who use the system, and the schedule of sweeps."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.connection = world.connection()
        self.submissions = [
            Submission(number, run, run_id_of(world.bucket, _idempotency_key(number)))
            for number, run in enumerate(world.plan.runs, 1)
        ]
        world.trace.names = {each.run_id: f"run-{each.number}" for each in self.submissions}
        #: Ids of the requested recoveries.
        self.operations: list[str] = []
        #: Runs whose cancellation was requested, with their status at that time.
        self.cancelled: dict[str, str] = {}
        #: Runs whose cancellation was requested again after a person had them continue, as the event says.
        self.cancelled_again: set[str] = set()
        #: Stops of runs that a person wanted to undo: run and `cancelled_at`.
        self.continuations: set[tuple[str, str]] = set()
        #: Runs that a person has moved to other code.
        self.moved: set[str] = set()
        #: Runs whose source or execution a person changed, so that they may fail.
        self.meddled: set[str] = set()
        #: The error that was put into a counter of a run, until a service corrects it.
        self.drifted: dict[tuple[str, str], int] = {}
        #: The people who submit lists.
        self.lists = ListUsers(world, self)
        #: Seconds from the last sweep to the next.
        self.sweep_seconds = world.plan.sweep_seconds

    def start(self) -> None:
        """Start the actions of the plan."""
        plan = self._world.plan
        self._world.set_gpu("up")
        for submission in self.submissions:
            self._at(submission.plan.at, f"user-{submission.number}", partial(self._submit, submission))
            if submission.plan.cancel_at is not None:
                self._at(submission.plan.cancel_at, f"canceller-{submission.number}", partial(self.cancel, submission))
            if submission.plan.go_on_at is not None:
                self._at(submission.plan.go_on_at, f"resumer-{submission.number}", partial(self.have_go_on, submission))
            if submission.plan.cancel_again_at is not None:
                self._at(
                    submission.plan.cancel_again_at,
                    f"canceller-{submission.number}-again",
                    partial(self.cancel, submission),
                )
        for number, moment in enumerate(plan.recoveries, 1):
            self._at(moment, f"operator-{number}", self.recover)
        for moment in plan.redrives:
            self._world.scheduler.at(START + moment, self.redrive, "redrive")
        for moment, state in plan.gpu:
            self._world.scheduler.at(START + moment, partial(self._world.set_gpu, state), "gpu")
        for service, moment in plan.deploys:
            self._world.scheduler.at(START + moment, partial(self.deploy, service), "deploy")
        for queue, moment in plan.purges:
            self._world.scheduler.at(START + moment, partial(self._purge, queue), "purge")
        for service, moment, seconds in plan.pauses:
            self._world.scheduler.at(START + moment, partial(self._pause, service, seconds), "pause")
        self.lists.start()
        self._sweep_later()

    def _at(self, moment: float, name: str, act: Callable[[], None]) -> None:
        def body(_: Process) -> None:
            act()

        process = self._world.scheduler.spawn(name, "user", body, at=START + moment, trusted=True)
        self._world.processes.append(process)

    # ---- actions

    def _submit(self, submission: Submission) -> None:
        run = submission.plan
        fields: dict[str, Any] = {
            "idempotency_key": _idempotency_key(submission.number),
            "tolerated_failure_percent": run.tolerated_percent,
        }
        for _ in range(2 if run.twice else 1):
            if run.workload == "captions":
                folder = frames_folder(submission.number, run.chunks, run.bad)
                session = "session" if run.same_name else f"session-{submission.number}"
                submit_frames(self.connection, folder, 1, {**fields, "session_id": session, "user_id": "somebody"})
            else:
                params = {"decomposer": "phspectra"}
                cube = str(cube_file(submission.number, run))
                if run.invalid:
                    cube = f"s3://{self._world.bucket}/cubes/there-is-none.fits"
                if run.refers:
                    fields["chunk_input"] = "reference"
                submit(self.connection, cube, {**fields, "survey": "survey", "chunk_size": 2, "params": params})

    def cancel(self, submission: Submission) -> None:
        """Request the cancellation of a run, like `prismline cancel`."""
        item = self._world.aws.tables[self._world.states_table].get(submission.run_id)
        status = item["status"] if item else "unknown"
        run = self._world.aws.tables[self._world.runs_table].get(submission.run_id, "RUN") or {}
        seen = run.get("uncancelled_at") if status == "cancelled" and not run.get("cancelled_at") else None
        if status in {"completed", "failed", "cancelled"} and seen is None:
            return
        self.cancelled[submission.run_id] = status
        request = RunCancelRequested(run_id=submission.run_id, requested_at=timestamp(), uncancelled_at=seen)
        transport = self._transport()
        transport.publish(Envelope.wrap(request, source=transport.source, traceparent=None))

    def have_go_on(self, submission: Submission) -> None:
        """Request that a cancelled run continues, like `prismline retry --cancelled`."""
        self.have_continue(submission.run_id)

    def have_continue(self, run_id: str) -> None:
        """Request that a cancelled run continues, if it is one."""
        state = self._world.aws.tables[self._world.states_table].get(run_id) or {}
        run = self._world.aws.tables[self._world.runs_table].get(run_id, "RUN") or {}
        stopped = run.get("cancelled_at")
        if state.get("status") == "cancelled" and stopped:
            self.continuations.add((run_id, stopped))
            self.operations.append(self._request_recovery(run_id, retry=True, cancelled_at=stopped))

    def retry(self, run_id: str, code: str | None = None) -> None:
        """Request that the failed work of a run is tried again, like `prismline retry`, if there is such a run.

        code: the code that the run goes on with.
        """
        if self._world.aws.tables[self._world.runs_table].get(run_id, "RUN") is not None:
            self.moved |= {run_id} if code is not None else set()
            self.operations.append(self._request_recovery(run_id, retry=True, code=code))

    def _request_recovery(self, run_id: str | None = None, **fields: Any) -> str:
        """Send what a rule makes of the request of a recovery of a run, or of all. Return the id of the recovery."""
        operation_id = f"recovery-{run_id or 'all'}-{uuid4().hex[:12]}"
        request = DeadlettersRecover(operation_id=operation_id, only_run=run_id, requested_at=timestamp(), **fields)
        transport = self._transport()
        message = Envelope.wrap(request, source=transport.source, traceparent=None, key=(operation_id,))
        transport.send(Queue.RECOVERIES, [message])
        return operation_id

    def _transport(self) -> Transport:
        return Transport.connect(self.connection.environment, "cli")

    def recover(self) -> None:
        """Request the recovery of all dead letters, like `prismline deadletters recover`."""
        self.operations.append(self._request_recovery())

    def redrive(self) -> None:
        """Move all dead letters back to their source queues as new messages, like StartMessageMoveTask."""
        sqs = self._world.aws.sqs
        for name, queue in self._world.aws.queues.items():
            if name.endswith("-dlq"):
                messages, queue.messages = list(queue.messages.values()), {}
                for message in messages:
                    sqs.enqueue(self._world.aws.queues[name.removesuffix("-dlq")], message.body, message.attributes)

    def replace_source(self, number: int) -> None:
        """Replace a run's cube by another one."""
        run_id, bucket = self.submissions[number - 1].run_id, self._world.bucket
        (key,) = (key for key in self._world.aws.objects[bucket] if key.startswith("cubes/") and run_id in key)
        cube = cube_file(number + 50, self.submissions[number - 1].plan)
        self._world.aws.s3.put_object(Bucket=bucket, Key=key, Body=cube.read_bytes())
        self.meddled.add(run_id)

    def stop_execution(self, number: int) -> None:
        """Stop the execution of a run, as in the AWS console."""
        self._world.aws.stepfunctions.stop_execution(executionArn=self._execution(number))
        self.meddled.add(self.submissions[number - 1].run_id)

    def lose_execution(self, number: int) -> None:
        """Remove the execution of a run without an event, as after the restart of an emulator."""
        arn = self._execution(number)
        self._world.aws.executions[arn].status = "ABORTED"
        del self._world.aws.executions[arn]
        self.meddled.add(self.submissions[number - 1].run_id)

    def _execution(self, number: int) -> str:
        run_id = self.submissions[number - 1].run_id
        return next(arn for arn in self._world.aws.executions if arn.endswith(run_id))

    def drift(self, number: int, counter: str, by: int) -> None:
        """Make a counter of a run wrong, as an older release may have left it."""
        run_id = self.submissions[number - 1].run_id
        self.drifted[run_id, counter] = by
        self._world.aws.dynamodb.update_item(
            TableName=self._world.runs_table,
            Key={"PK": {"S": run_id}, "SK": {"S": "RUN"}},
            UpdateExpression="ADD #counter :by",
            ExpressionAttributeNames={"#counter": counter},
            ExpressionAttributeValues={":by": {"N": str(by)}},
        )

    def deploy(self, service: str) -> None:
        """Stop the processes of a service, and start them again."""
        for consumer in self._world.consumers:
            if consumer.service.name == service:
                consumer.stop(release=True)

    def _pause(self, service: str, seconds: float) -> None:
        for consumer in self._world.consumers:
            if consumer.service.name == service:
                consumer.pause(seconds)

    def _purge(self, name: str) -> None:
        queue = self._world.queue(name)
        self._world.trace.note(self._world.scheduler.time, "somebody", f"PURGES {name} of {len(queue.messages)}")
        queue.messages = {}

    # ---- sweeps

    def _sweep_later(self) -> None:
        scheduler = self._world.scheduler
        scheduler.at(scheduler.time + self.sweep_seconds, self._sweep, "sweep is due")

    def _sweep(self) -> None:
        """The sweeper's schedule with fewer sweeps: most sweeps find nothing to do and would only cost time."""
        self.sweep_seconds = min(LONGEST_SWEEP_SECONDS, self.sweep_seconds * SWEEP_GROWTH)
        self.sweep()
        self._sweep_later()

    def sweep(self) -> None:
        """Trigger a sweep."""
        world, queue = self._world, self._world.queue("sweeps")
        if not world.is_down("sqs") and len(queue.messages) < 3:
            world.aws.sqs.enqueue(queue, json.dumps({"source": "aws.events", "detail-type": "Scheduled Event"}))


def _idempotency_key(number: int) -> str:
    return f"run-{number}"
