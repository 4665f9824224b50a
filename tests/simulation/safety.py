"""The promises after every write of any process. Written from the documents, not from the services' own predicates.

The tables of allowed transitions belong to the simulation.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.simulation.workloads import SPECTRA_PER_CHUNK, OutputSummary, caption_of, read_output

if TYPE_CHECKING:
    from tests.simulation.users import Submission, Users
    from tests.simulation.world import World

#: Uninterrupted attempts, and seconds since the first of them began, before a chunk may be given up.
ATTEMPTS, PATIENCE_SECONDS = 5, 7200.0
#: Longest attempt in seconds: Lambda's longest timeout.
LONGEST_ATTEMPT_SECONDS = 900.0
#: Seconds after which no process acts any more on a read from before the stop of a run: longer than any freeze.
LONGEST_RIPPLE_SECONDS = 7200.0
CHUNK_TRANSITIONS = frozenset(
    {
        (None, "PENDING"),
        ("PENDING", "IN_PROGRESS"),
        ("PENDING", "COMPLETED"),
        ("PENDING", "FAILED"),
        ("IN_PROGRESS", "PENDING"),
        ("IN_PROGRESS", "COMPLETED"),
        ("IN_PROGRESS", "FAILED"),
        ("FAILED", "COMPLETED"),
        ("FAILED", "PENDING"),  # only by a recovery: see `_reopened`
    }
)
RUN_TRANSITIONS = frozenset(
    {
        (None, "pending"),
        ("pending", "running"),
        ("pending", "failed"),
        ("pending", "cancelled"),
        ("running", "completed"),
        ("running", "failed"),
        ("running", "cancelled"),
        ("failed", "completed"),
        ("cancelled", "completed"),  # only if a person made it continue: see `_left_cancelled`
        ("cancelled", "failed"),
    }
)
ENDED_CHUNK = frozenset({"COMPLETED", "FAILED"})
#: Attributes of a chunk's item with the moments of its activity.
ACTIVITY = ("sent_at", "started_at", "attempt_ended_at", "deferred_at")
#: Attributes of a run item that never change once they are set.
FINAL = ("jobs_total", "latched_at", "plan", "manifest_key")

#: In the error of a run that failed because of its chunks: the share that failed, and the tolerated share.
_PERCENTAGES = re.compile(r"\(([0-9.]+) %\), ([0-9.]+) % are tolerated")

Item = Mapping[str, Any]


class Safety:
    """Watches the account of a world and reports a broken promise when it happens."""

    def __init__(self, world: World, users: Users) -> None:
        self._world = world
        self._submissions: dict[str, Submission] = {each.run_id: each for each in users.submissions}
        self._users = users
        #: By run, counted from the written items: chunks by status, rows that wait, rows that were given up.
        self._counted: dict[str, Counter[str]] = defaultdict(Counter)
        #: Terminal statuses that were announced, by run: event ids by type.
        self.announced: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        #: The announced drains of a run: event ids by the drain's number.
        self.drains: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        #: Ids of messages that are or were in the archive.
        self.archived: set[str] = set()
        #: The content of each output.
        self._outputs: dict[str, OutputSummary | None] = {}
        #: Recoveries that were announced as done.
        self.recovered: set[str] = set()
        #: The service that ended a chunk, by run and chunk.
        self.ended_by: dict[tuple[str, str], str] = {}
        #: Cancelled runs that a person made continue.
        self.went_on: set[str] = set()
        #: Announced endings of chunks, by run: chunk and status.
        self.endings: dict[str, set[tuple[str, str]]] = defaultdict(set)
        world.aws.on_commit.append(self._on_commit)
        world.aws.on_put_object.append(self._on_put)
        world.aws.on_event.append(self._on_event)
        world.on_acknowledged = self._on_delete
        #: (table's kind, before, after) of every change of a status.
        self.transitions: Counter[tuple[str, str, str]] = Counter()

    # ---- the tables

    def _on_commit(self, changes: list[Any]) -> None:
        runs = set()
        for change in changes:
            if change.table == self._world.states_table:
                self._state(change.before, change.after)
            if change.table != self._world.runs_table:
                continue
            run_id, sort = change.key
            if sort.startswith("CHUNK#"):
                self._chunk(run_id, change.before, change.after)
            if sort == "RUN":
                self._run_item(run_id, change.before, change.after)
            is_run = sort == "RUN" and (change.after or change.before)["unit"] == "chunk"
            if is_run or sort.startswith("CHUNK#"):
                runs.add(run_id)
        for run_id in runs:
            self._run(run_id)

    def _chunk(self, run_id: str, before: Item | None, after: Item | None) -> None:
        if after is None:
            self._wrong("items stay", f"a chunk of run {run_id} was deleted")
            return
        was, now = before["status"] if before else None, after["status"]
        name = f"{after['SK'].removeprefix('CHUNK#')} of {self._name(run_id)}"
        counted = self._counted[run_id]
        if was != now:
            self.transitions["chunk", str(was), now] += 1
            if (was, now) not in CHUNK_TRANSITIONS:
                self._wrong("allowed transitions", f"{name} went from {was} to {now}")
            counted[now] += 1
            if was is not None:
                counted[was] -= 1
            if now in ENDED_CHUNK:
                self.ended_by[run_id, after["SK"].removeprefix("CHUNK#")] = self._service()
        for rows in ("n_timed_out", "n_refit_failed"):
            counted[rows] += after.get(rows, 0) - (before or {}).get(rows, 0)
        if was is None:
            counted["items"] += 1
        if was == now == "COMPLETED" and unfitted(after) > unfitted(before or {}):
            self._wrong("unfitted rows fall only", f"{name}: from {unfitted(before or {})} to {unfitted(after)}")
        if before is not None:
            self.attempts(name, before, after, forgotten=("first_started_at",))
            if after.get("resends", 0) > before.get("resends", 0):
                self._resent(run_id, name, after)
        if now == "FAILED" and was != "FAILED":
            self._failed(run_id, name, before or {}, after)
        if now == "COMPLETED":
            self._output(run_id, name, after)

    def _resent(self, run_id: str, name: str, chunk: Item) -> None:
        """The sweeper sends a chunk again whose message may be hidden. If there is none, it was never sent, or lost."""
        run = self._world.aws.tables[self._world.runs_table].get(run_id, "RUN") or {}
        if self._world.plan.loses_messages or run.get("resumed_at") or run_id in self.went_on or chunk.get("recovery"):
            return
        if not self._messages_of(run_id, chunk["SK"].removeprefix("CHUNK#")):
            self._wrong("nothing is lost", f"the sweeper sent {name} again, which had no message, though none was lost")

    def attempts(self, name: str, before: Item, after: Item, *, forgotten: tuple[str, ...]) -> None:
        """An attempt is counted when it begins, an interruption when it ends; a recovery starts the counts again.

        before, after: a chunk or a task. forgotten: the attributes that a recovery removes.
        """
        began = after.get("attempts", 0) - before.get("attempts", 0)
        cut_short = after.get("interruptions", 0) - before.get("interruptions", 0)
        if before["status"] == "FAILED" and after["status"] == "PENDING":
            if after.get("recovery") == before.get("recovery"):
                self._wrong("allowed transitions", f"{name} went from FAILED to PENDING without a recovery")
            if after.get("interruptions", 0) != after.get("attempts", 0) or began or any(map(after.get, forgotten)):
                self._wrong("a recovery begins anew", f"{name} was reopened as {dict(after)}")
            return
        if began not in {0, 1} or (began and after["status"] != "IN_PROGRESS"):
            self._wrong("attempts count attempts", f"attempts of {name} changed by {began} in {after['status']}")
        if after.get("started_at") != before.get("started_at") and began != 1:
            self._wrong("attempts count attempts", f"an attempt at {name} began and was not counted")
        if began:
            self.wanted(name, after)
        if began and not after.get("first_started_at"):
            self._wrong("attempts count attempts", f"the beginning of the first attempt at {name} is not recorded")
        ended = before["status"] == "IN_PROGRESS" and after["status"] == "PENDING"
        if cut_short not in {0, 1} or (cut_short and not ended):
            self._wrong("attempts count attempts", f"interruptions of {name} changed by {cut_short}")
        first = before.get("first_started_at")
        if first and after.get("first_started_at") != first:
            self._wrong("attempts count attempts", f"the first attempt at {name} began at {first}, and then later")

    def wanted(self, name: str, chunk: Item) -> None:
        """No process works on a stopped run for long."""
        run = self._world.aws.tables[self._world.runs_table].get(chunk["PK"].partition("#")[0], "RUN") or {}
        if self.ago(run.get("cancelled_at")) > LONGEST_RIPPLE_SECONDS:
            self._wrong(
                "a stopped run rests", f"an attempt at {name} began {self.ago(run['cancelled_at']):.0f} s later"
            )

    def _failed(self, run_id: str, name: str, before: Item, chunk: Item) -> None:
        """A chunk is FAILED for a permanent error, or after enough attempts and time, while no worker processes it."""
        error = chunk.get("error")
        if not error:
            self._wrong("failed with a reason", f"{name} is FAILED without an error")
        submission = self._submissions.get(run_id)
        if chunk.get("recovery") and not chunk.get("first_started_at"):
            self._wrong("failed only for a reason", f"{name} is FAILED without an attempt since a recovery")
        if submission is not None and index_of(chunk, submission) in submission.plan.bad:
            return
        used = chunk.get("attempts", 0) - chunk.get("interruptions", 0)
        tried = self.ago(chunk.get("first_started_at"))
        if used < ATTEMPTS or tried < PATIENCE_SECONDS or self._world.faults.harm < ATTEMPTS:
            self._wrong(
                "failed only for a reason",
                f"{name} is FAILED after {used} attempts in {tried:.0f} s and {self._world.faults.harm} faults that"
                f" could have cost one, although it can be processed: {error}",
            )
        if before.get("status") == "IN_PROGRESS" and self.ago(chunk.get("started_at")) < LONGEST_ATTEMPT_SECONDS:
            self._wrong("failed only for a reason", f"{name} was given up while a worker may process it: {error}")

    def ago(self, moment: str | None) -> float:
        """Seconds since a timestamp; 0 if there is none."""
        return self._world.scheduler.time - datetime.fromisoformat(moment).timestamp() if moment else 0.0

    def _output(self, run_id: str, name: str, chunk: Item) -> None:
        found = self._world.aws.objects[self._world.bucket].get(chunk.get("output_key") or "")
        submission = self._submissions[run_id]
        if found is None:
            self._wrong("output before COMPLETED", f"{name} is COMPLETED and its output does not exist")
            return
        index = index_of(chunk, submission)
        if submission.plan.workload == "captions":
            expected = f"frame {submission.number} {index} frame"
            if caption_of(found.body) != expected:
                self._wrong("outputs are the run's own", f"{name} has {caption_of(found.body)!r}, not {expected!r}")
            return
        output = read_output(found.body)
        if output is None or len(output.rows) != chunk["n_items"]:
            self._wrong("output whole before COMPLETED", f"the output of {name} is {output}")
            return
        for offset, row in enumerate(output.rows):
            expected_row = (submission.number, index * SPECTRA_PER_CHUNK + offset)
            if row is not None and row != expected_row:
                self._wrong(
                    "outputs are the run's own",
                    f"row {offset} of {name} is of (cube, spectrum) {row}, not of {expected_row}",
                )
        if unfitted(chunk) < output.n_timed_out:
            self._wrong(
                "the ledger covers the file",
                f"{name}: {unfitted(chunk)} unfitted rows in the ledger, {output.n_timed_out} in the file",
            )

    def _run(self, run_id: str) -> None:
        run = self._world.aws.tables[self._world.runs_table].get(run_id, "RUN")
        if run is None:
            return
        counted, name = self._counted[run_id], self._name(run_id)
        for counter, state in (
            ("jobs_completed", "COMPLETED"),
            ("jobs_failed", "FAILED"),
            ("n_timed_out", "n_timed_out"),
            ("n_refit_failed", "n_refit_failed"),
        ):
            wrong_by = run.get(counter, 0) - counted[state]
            if not wrong_by:
                self._users.drifted.pop((run_id, counter), None)
            elif wrong_by != self._users.drifted.get((run_id, counter)):
                self._wrong(
                    "counters equal items",
                    f"{counter} of {name} is {run.get(counter, 0)}, but its items say {counted[state]}",
                )
        total, ended = run.get("jobs_total"), counted["COMPLETED"] + counted["FAILED"]
        if total is not None and total != counted["items"]:
            self._wrong("total equals items", f"{name} has {counted['items']} items and a total of {total}")
        if (run.get("latched_at") or run.get("drained_at")) and total is None:
            self._wrong("latched with a total", f"{name} is latched without a total")
        if run.get("drained_at") and ended != total:
            self._wrong("drained when all have ended", f"{name} is drained with {ended} of {total} chunks ended")

    def _run_item(self, run_id: str, before: Item | None, after: Item | None) -> None:
        """An attribute of a run's item changes only for a reason."""
        if after is None:
            job = self._users.lists.job_of(run_id)
            if job is None or not job.deleted:
                self._wrong("items stay", f"the item of run {run_id} was deleted")
            return
        was, name = before or {}, self._name(run_id)
        for attribute in FINAL:
            value = was.get(attribute)
            # until the latch another delivery may write the same total again, and more of the plan
            if value is not None and after.get(attribute) != value and not (attribute == "plan" and value in "{}"):
                self._final(name, attribute, value, after.get(attribute))
        drained, drains = after.get("drained_at"), after.get("drains", 0)
        if drains != was.get("drains", 0) + int(bool(drained) and not was.get("drained_at")):
            self._wrong("drains are counted", f"{name}: {was.get('drains', 0)} drains, then {drains}")
        if drained and not after.get("latched_at"):
            self._wrong("drained when all have ended", f"{name} is drained and not latched")
        if was.get("cancelled_at") and not after.get("cancelled_at"):
            if (run_id, was["cancelled_at"]) in self._users.continuations:
                self.went_on.add(run_id)
            elif was.get("stop_reason") != "failed":
                self._wrong("a cancelled run stays so", f"{name} was {was.get('stop_reason')} and continues")
        if after.get("cancelled_at") and not was.get("cancelled_at") and after.get("stop_reason") == "cancelled":
            self._stopped_as_cancelled(run_id, name)
        if after.get("ended_at") and after.get("ended_at") != was.get("ended_at"):
            self._end_recorded(run_id, name, after)
        if after.get("cancelled_at") and not was.get("cancelled_at") and after.get("stop_reason") == "failed":
            self._stopped_as_failed(run_id, name, after)
        if after.get("latched_at") and not was.get("latched_at"):
            self._latched(run_id, name, after)
        if not after.get("ended_at") and not after.get("GSI2_PK"):
            self._wrong("open until it is over", f"{name} continues, but is not in the open index: {dict(after)}")
        if was.get("GSI2_PK") and not after.get("GSI2_PK"):
            waits = after.get("n_timed_out", 0) and not after.get("cancelled_at")
            if not after.get("ended_at") or waits:
                self._wrong("open until it is over", f"{name} was removed from the open index: {dict(after)}")

    def _latched(self, run_id: str, name: str, run: Item) -> None:
        """Each chunk's message has been sent: it is in a queue, or the chunk has ended."""
        if run.get("cancelled_at") or self._world.plan.loses_messages or run_id in self.went_on:
            return  # messages were skipped while the run was stopped: the sweeper sends them
        for (sort, _), version in self._world.aws.tables[self._world.runs_table].partition(run_id):
            chunk = version.plain
            if sort.startswith("CHUNK#") and chunk["status"] not in ENDED_CHUNK and not is_reopened(chunk):
                chunk_id = sort.removeprefix("CHUNK#")
                if not self._messages_of(run_id, chunk_id):
                    self._wrong("sent before latched", f"{name} is latched, but there is no message of {chunk_id}")

    def _messages_of(self, run_id: str, chunk_id: str) -> list[Any]:
        """The messages about a chunk in the queue of chunks or its dead-letter queue."""
        held = self._world.queue("chunks").messages.values(), self._world.queue("chunks-dlq").messages.values()
        return [each for messages in held for each in messages if run_id in each.body and chunk_id in each.body]

    def _final(self, name: str, attribute: str, before: object, after: object) -> None:
        if attribute == "plan" and after:
            noted, later = json.loads(str(before)), json.loads(str(after))
            if all(later.get(key) == value for key, value in noted.items()):
                return
        self._wrong("noted once", f"{attribute} of {name} was {before} and is {after}")

    def _stopped_as_failed(self, run_id: str, name: str, run: Item) -> None:
        """A failed run is stopped before its failure is announced; work in it afterwards belongs to a recovery."""
        if run.get("drains"):
            self._wrong("a recovery goes on", f"{name} was stopped, although it had drained")
        if self.announced[run_id]["run.failed"] and self._service() == "status":
            self._wrong("a recovery goes on", f"{name} was stopped after its failure was announced")

    def _stopped_as_cancelled(self, run_id: str, name: str) -> None:
        """A run is stopped only if its status is cancelled; if it went on, only by a person who knows that."""
        if run_id in self.went_on and run_id not in self._users.cancelled_again:
            self._wrong(
                "only a requested continuation", f"{name} went on and was stopped again, but no user requested that"
            )
        status = (self._world.aws.tables[self._world.states_table].get(run_id) or {}).get("status")
        job = self._users.lists.job_of(run_id)
        if job is not None and job.deleted:
            return  # a deletion also stops runs that the status service does not know yet
        if status != "cancelled":  # nothing would undo that stop
            self._wrong("stopped with the reason of its status", f"{name} was stopped as cancelled, but is {status}")

    def _end_recorded(self, run_id: str, name: str, run: Item) -> None:
        """After the end is recorded, no process announces it again. So it must have been announced before."""
        state = self._world.aws.tables[self._world.states_table].get(run_id) or {}
        status = run.get("ended_status")
        if state.get("status") != status:
            self._wrong("an end is announced", f"{name} ended {status} in the ledger and is {state.get('status')}")
        if not self.announced[run_id][f"run.{status}"]:
            self._wrong("an end is announced", f"{name} ended {status} in the ledger, but that was not announced")
        if run.get("drained_at") and not self.drains[run_id][run["drains"]]:
            self._wrong("an end is announced", f"{name} ended {status}, but its drain was not announced")
        if not run.get("drained_at") and not run.get("cancelled_at"):
            self._wrong("an end is announced", f"{name} ended {status} in the ledger and continues")

    def _state(self, before: Item | None, after: Item | None) -> None:
        if after is None:
            self._wrong("items stay", "a run's status was deleted")
            return
        was, now, run_id = before["status"] if before else None, after["status"], after["run_id"]
        name = self._name(run_id)
        if was != now:
            self.transitions["run", str(was), now] += 1
            if (was, now) not in RUN_TRANSITIONS:
                self._wrong("allowed transitions", f"{name} went from {was} to {now}")
            if was == "cancelled":
                self._left_cancelled(run_id, name, now)
        if now == "failed":
            reason = after.get("error_message")
            numbers = _PERCENTAGES.search(reason or "")
            if numbers and float(numbers[1]) <= float(numbers[2]):
                self._wrong("failed beyond tolerance", f"{name} is failed because {reason}")
            if not reason:
                self._wrong("failed with a reason", f"{name} is failed without a reason")
            if was == "failed" and before is not None and before.get("error_message") != reason:
                self._wrong(
                    "the reason stays", f"{name} failed because {before.get('error_message')!r}, now of {reason!r}"
                )
        if now == "completed" and was != "completed":
            self._completed(run_id, name, after)

    def _left_cancelled(self, run_id: str, name: str, now: str) -> None:
        """The status leaves `cancelled` only in a run that a person made continue and that was not cancelled again."""
        run = self._world.aws.tables[self._world.runs_table].get(run_id, "RUN") or {}
        if run_id not in self.went_on or run.get("stop_reason") == "cancelled":
            self._wrong("a cancelled run stays so", f"{name} was cancelled and is {now}: {dict(run)}")

    def _completed(self, run_id: str, name: str, state: Item) -> None:
        run = self._world.aws.tables[self._world.runs_table].get(run_id, "RUN") or {}
        if not run.get("drains"):
            self._wrong("completed when drained", f"{name} is completed and has never drained")
        total, failed = run.get("jobs_total") or 0, run.get("jobs_failed", 0)
        percent = float(state.get("tolerated_failure_percent") or 0)
        if is_too_many(failed, total, percent, state.get("tolerated_failures")):
            self._wrong("completed within tolerance", f"{name} is completed with {failed} of {total} chunks failed")

    # ---- announcements

    def _on_event(self, entry: Mapping[str, Any]) -> None:
        kind = str(entry["detail-type"])
        if not kind.startswith("prismline."):
            return
        detail = entry["detail"]
        run_id = detail.get("runid")
        kind = kind.removeprefix("prismline.").removesuffix(".v1")
        if kind == "deadletters.recovered":
            self.recovered.add(detail["data"]["operation_id"])
            self._check_recovery_announced(detail["data"]["operation_id"])
        if run_id is None:
            return
        announced = self.announced[run_id]
        announced[kind].add(detail["id"])
        name = self._name(run_id)
        if kind in {"chunk.completed", "chunk.failed"}:
            self.endings[run_id].add((detail["data"]["chunk_id"], kind.removeprefix("chunk.").upper()))
        if kind in {"run.completed", "run.failed", "run.cancelled"}:
            self._check_ending_announced(run_id, name, kind)
        if kind == "run.cancel.requested" and detail["data"].get("uncancelled_at"):
            self._users.cancelled_again.add(run_id)
        if kind == "run.drained":
            self._check_drain_announced(run_id, name, detail)
        if kind in {"run.completed", "run.failed", "run.cancelled"} and len(announced[kind]) > 1:
            self._wrong("announced once", f"{kind} of {name} was published with {len(announced[kind])} event ids")

    def _check_recovery_announced(self, operation_id: str) -> None:
        """A recovery is done only when every chunk that it retried has ended."""
        table = self._world.aws.tables[self._world.runs_table]
        for run_id in self._submissions:
            if (table.get(run_id, "RUN") or {}).get("cancelled_at"):
                continue
            for (sort, _), version in table.partition(run_id):
                chunk = version.plain
                if not sort.startswith("CHUNK#") or chunk["status"] in ENDED_CHUNK:
                    continue
                if chunk.get("recovery") == operation_id:
                    self._wrong(
                        "announced when it is so",
                        f"{operation_id} was announced as done, but {sort} is {chunk['status']}",
                    )

    def _check_drain_announced(self, run_id: str, name: str, detail: Mapping[str, Any]) -> None:
        """Each drain has one event id, however often it is announced, and only drains that happened are announced."""
        run = self._world.aws.tables[self._world.runs_table].get(run_id, "RUN") or {}
        number = detail["data"]["drains"]
        job = self._users.lists.job_of(run_id)
        if number > run.get("drains", 0) and not (job is not None and job.deleted):
            self._wrong(
                "announced when it is so", f"drain {number} of {name} was announced, but it has {run.get('drains', 0)}"
            )
        ids = self.drains[run_id]
        ids[number].add(detail["id"])
        if len(set().union(*ids.values())) != len([each for each in ids.values() if each]):
            self._wrong("announced once", f"the drains of {name} were announced with the event ids {dict(ids)}")

    def _check_ending_announced(self, run_id: str, name: str, kind: str) -> None:
        state = self._world.aws.tables[self._world.states_table].get(run_id) or {}
        status = kind.removeprefix("run.")
        since = {"failed": {"completed"}, "cancelled": {"completed", "failed"} if run_id in self.went_on else set()}
        if state.get("status") not in {status} | since.get(status, set()):
            self._wrong("announced when it is so", f"{name} was announced as {status}, but is {state.get('status')}")

    # ---- messages and objects

    def _on_put(self, _bucket: str, key: str, found: Any) -> None:
        if key.startswith("dead-letter-archive/sqs/"):
            self.archived.add(json.loads(found.body)["messageId"])
        if key.startswith("decompositions/"):
            self._rewritten(key, read_output(found.body))

    def _rewritten(self, key: str, output: OutputSummary | None) -> None:
        """A process that writes an output again keeps the fitted rows."""
        before, self._outputs[key] = self._outputs.get(key), output
        lost = before is not None and (
            output is None
            or any(row is not None and row != now for row, now in zip(before.rows, output.rows, strict=True))
        )
        if lost:
            self._wrong("what is fitted stays", f"{key} was {before} and is {output}")

    def _on_delete(self, queue: str, message: Any) -> None:
        if queue.endswith("-dlq") and message.message_id not in self.archived:
            self._wrong(
                "archived before acknowledged", f"a dead letter of {queue} was deleted and is not in the archive"
            )
        if queue.endswith(("-chunks", "-chunks-dlq")):
            self._chunk_acknowledged(message)

    def _chunk_acknowledged(self, message: Any) -> None:
        data: Any = json.loads(message.body).get("data") or {}
        run_id, chunk_id = data.get("run_id"), data.get("chunk_id")
        table = self._world.aws.tables[self._world.runs_table]
        chunk, run = table.get(run_id, f"CHUNK#{chunk_id}"), table.get(run_id, "RUN")
        if chunk is None or run is None or chunk["status"] in ENDED_CHUNK or run.get("cancelled_at"):
            return
        if run_id in self.went_on:  # it may have been skipped just before: the sweeper sends it
            return
        if is_reopened(chunk):
            return  # a message from before the recovery
        if is_silent(chunk, run):
            return  # the message may have been skipped just before the run was resumed
        others = [other for other in self._messages_of(run_id, chunk_id) if other is not message]
        if not others and not self._world.plan.loses_messages:
            self._wrong(
                "durable before acknowledged",
                f"the last message of {chunk_id} of {self._name(run_id)} was deleted while it is {chunk['status']}",
            )

    # ----

    def _service(self) -> str:
        """The service of the writing process."""
        current = self._world.scheduler.current
        return current.service if current is not None else ""

    def _name(self, run_id: str) -> str:
        submission = self._submissions.get(run_id)
        if submission is not None:
            return f"run {submission.number}"
        return self._world.trace.names.get(run_id) or f"run {run_id}"

    def _wrong(self, check: str, message: str) -> None:
        self._world.found(check, message)


def is_reopened(chunk: Item) -> bool:
    """Whether no attempt has begun since a recovery, which keeps a record until the chunk has ended, and sends it."""
    return bool(chunk.get("recovery")) and chunk.get("started_at", "") < chunk.get("sent_at", "")


def is_silent(chunk: Item, run: Item) -> bool:
    """Whether a chunk has shown no activity since its run was resumed. Then the sweeper sends it."""
    signs = (run.get("latched_at", ""), *(chunk.get(name, "") for name in ACTIVITY))
    return bool(max(signs) < run.get("resumed_at", ""))


def unfitted(chunk: Item) -> int:
    """Rows of a chunk's output that are not fitted according to the ledger: they wait, or were given up."""
    return int(chunk.get("n_timed_out", 0)) + int(chunk.get("n_refit_failed", 0))


def index_of(chunk: Item, submission: Submission) -> int:
    """The number of a chunk in its run, from 0."""
    start = int(str(chunk["SK"]).rpartition("-")[2])
    return start if submission.plan.workload == "captions" else start // SPECTRA_PER_CHUNK


def stopped_early(state: Mapping[str, Any], tolerated_percent: float, tolerated_failures: int | None = None) -> bool:
    """Whether the sweeper stopped the run because more of it had failed than it tolerates."""
    limited = tolerated_percent > 0 or tolerated_failures is not None
    return limited and "are skipped." in (state.get("error_message") or "")


def is_too_many(failed: int, total: int, percent: float, failures: int | None) -> bool:
    """Whether more have failed than are tolerated. Beside a number of failures, 0 % is no limit."""
    beyond = failures is not None and failed > failures
    return beyond or (bool(percent or failures is None) and total > 0 and 100 * failed / total > percent)
