"""What holds after every write, whoever made it. Written from the documents, not from the services' own predicates.

The tables of allowed transitions are the simulation's own.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.simulation.workloads import SPECTRA_PER_CHUNK, caption_of, read_output

if TYPE_CHECKING:
    from tests.simulation.users import Submission, Users
    from tests.simulation.world import World

#: Attempts that a chunk has at least before it may be given up.
ATTEMPTS = 5
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
    }
)
ENDED_CHUNK = frozenset({"COMPLETED", "FAILED"})
ENDED_RUN = frozenset({"completed", "failed", "cancelled"})

Item = Mapping[str, Any]


class Safety:
    """Watches the account of a world and reports what is wrong the moment it happens."""

    def __init__(self, world: World, users: Users) -> None:
        self._world = world
        self._submissions: dict[str, Submission] = {each.run_id: each for each in users.submissions}
        self._users = users
        #: Numbers of chunks by status, and their timed-out items, by run: counted from the items that were written.
        self._counted: dict[str, Counter[str]] = defaultdict(Counter)
        #: Terminal statuses that were announced, by run: event ids by type.
        self.announced: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        #: Ids of messages that are, or were, in the archive.
        self.archived: set[str] = set()
        #: Operations that were said to be done.
        self.recovered: set[str] = set()
        world.aws.on_commit.append(self._on_commit)
        world.aws.on_put_object.append(self._on_put)
        world.aws.on_event.append(self._on_event)
        world.on_acknowledged = self._on_delete
        #: (table's kind, before, after) of every status that was changed.
        self.transitions: Counter[tuple[str, str, str]] = Counter()

    # ---- the tables

    def _on_commit(self, changes: list[Any]) -> None:
        runs = set()
        for change in changes:
            if change.table == self._world.states_table:
                self._state(change.before, change.after)
                continue
            run_id, sort = change.key
            if sort.startswith("CHUNK#"):
                self._chunk(run_id, change.before, change.after)
            if sort == "RUN" or sort.startswith("CHUNK#"):
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
        late_before, late = (before or {}).get("n_timed_out", 0), after.get("n_timed_out", 0)
        counted["n_timed_out"] += late - late_before
        if was is None:
            counted["items"] += 1
        if was == now == "COMPLETED" and late > late_before:
            self._wrong("n_timed_out falls only", f"{name}: from {late_before} to {late}")
        if now == "FAILED" and was != "FAILED":
            self._failed(run_id, name, after)
        if now == "COMPLETED":
            self._output(run_id, name, after)

    def _failed(self, run_id: str, name: str, chunk: Item) -> None:
        if not chunk.get("error"):
            self._wrong("failed with a reason", f"{name} is FAILED without an error")
        submission = self._submissions.get(run_id)
        if submission is not None and _index(chunk, submission) in submission.plan.bad:
            return
        attempts = chunk.get("attempts", 0)
        if attempts < ATTEMPTS or self._world.faults.harm < ATTEMPTS:
            self._wrong(
                "failed only for a reason",
                f"{name} is FAILED after {attempts} attempts, of which at most {self._world.faults.harm} met a fault"
                f" of their own, though it can be worked on: {chunk.get('error')}",
            )

    def _output(self, run_id: str, name: str, chunk: Item) -> None:
        found = self._world.aws.objects[self._world.bucket].get(chunk.get("output_key") or "")
        submission = self._submissions[run_id]
        if found is None:
            self._wrong("output before COMPLETED", f"{name} is COMPLETED and its output does not exist")
            return
        index = _index(chunk, submission)
        if submission.plan.workload == "captions":
            expected = f"frame {submission.number} {index} frame"
            if caption_of(found.body) != expected:
                self._wrong("outputs are the run's own", f"{name} says {caption_of(found.body)!r}, not {expected!r}")
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
        if chunk.get("n_timed_out", 0) < output.n_timed_out:
            self._wrong(
                "n_timed_out covers the file",
                f"{name}: {chunk.get('n_timed_out', 0)} in the ledger, {output.n_timed_out} rows in the file",
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
        ):
            if run.get(counter, 0) != counted[state]:
                self._wrong(
                    "counters equal items",
                    f"{counter} of {name} is {run.get(counter, 0)}, but its items say {counted[state]}",
                )
        total, ended = run.get("jobs_total"), counted["COMPLETED"] + counted["FAILED"]
        if total is not None:
            if ended > total:
                self._wrong("total >= ended", f"{ended} of {total} chunks of {name} have ended")
            if total != counted["items"]:
                self._wrong("total equals items", f"{name} has {counted['items']} items and a total of {total}")
        if run.get("latched_at") and total is None:
            self._wrong("latched with a total", f"{name} is latched without a total")
        if run.get("drained_at") and ended != total:
            self._wrong("drained when all have ended", f"{name} is drained with {ended} of {total} chunks ended")

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
        if now == "failed":
            reason = after.get("error_message")
            if not reason:
                self._wrong("failed with a reason", f"{name} is failed without a reason")
            if was == "failed" and before is not None and before.get("error_message") != reason:
                self._wrong(
                    "the reason stays", f"{name} failed because {before.get('error_message')!r}, now of {reason!r}"
                )
        if now == "completed" and was != "completed":
            self._completed(run_id, name, after)

    def _completed(self, run_id: str, name: str, state: Item) -> None:
        run = self._world.aws.tables[self._world.runs_table].get(run_id, "RUN") or {}
        if not run.get("drained_at"):
            self._wrong("completed when drained", f"{name} is completed and has not drained")
        total, failed = run.get("jobs_total") or 0, run.get("jobs_failed", 0)
        if total and 100 * failed / total > float(state.get("tolerated_failure_percent") or 0):
            self._wrong("completed within tolerance", f"{name} is completed with {failed} of {total} chunks failed")

    # ---- what is said

    def _on_event(self, entry: Mapping[str, Any]) -> None:
        kind = str(entry["detail-type"])
        if not kind.startswith("prismline."):
            return
        detail = entry["detail"]
        run_id = detail.get("runid")
        kind = kind.removeprefix("prismline.").removesuffix(".v1")
        if kind == "deadletters.recovered":
            self.recovered.add(detail["data"]["operation_id"])
        if run_id is None:
            return
        said = self.announced[run_id]
        said[kind].add(detail["id"])
        name = self._name(run_id)
        if kind in {"run.completed", "run.failed", "run.cancelled"}:
            self._ending_said(run_id, name, kind)
        if kind == "run.drained":
            run = self._world.aws.tables[self._world.runs_table].get(run_id, "RUN") or {}
            if not run.get("drained_at"):
                self._wrong("said when it is so", f"{name} was said to have drained and has not")
        if kind in {"run.drained", "run.completed", "run.failed", "run.cancelled"} and len(said[kind]) > 1:
            self._wrong("said once", f"{kind} of {name} was said with {len(said[kind])} event ids")

    def _ending_said(self, run_id: str, name: str, kind: str) -> None:
        state = self._world.aws.tables[self._world.states_table].get(run_id) or {}
        status = kind.removeprefix("run.")
        if state.get("status") != status and not (status == "failed" and state.get("status") == "completed"):
            self._wrong("said when it is so", f"{name} was said to be {status} and is {state.get('status')}")
        endings = {said for said in ("run.completed", "run.failed", "run.cancelled") if self.announced[run_id][said]}
        if len(endings) > 1 and endings != {"run.completed", "run.failed"}:
            self._wrong("one ending", f"{name} was said to be {' and '.join(sorted(endings))}")

    # ---- messages and objects

    def _on_put(self, _bucket: str, key: str, found: Any) -> None:
        if key.startswith("dead-letter-archive/sqs/"):
            self.archived.add(json.loads(found.body)["messageId"])

    def _on_delete(self, queue: str, message: Any) -> None:
        if queue.endswith("-dlq"):
            if message.message_id not in self.archived:
                self._wrong(
                    "archived before acknowledged", f"a dead letter of {queue} was deleted and is not in the archive"
                )
        elif queue.endswith("-chunks"):
            self._chunk_acknowledged(message)

    def _chunk_acknowledged(self, message: Any) -> None:
        data = json.loads(message.body).get("data") or {}
        run_id, chunk_id = data.get("run_id"), data.get("chunk_id")
        table = self._world.aws.tables[self._world.runs_table]
        chunk, run = table.get(run_id, f"CHUNK#{chunk_id}"), table.get(run_id, "RUN")
        if chunk is None or run is None or chunk["status"] in ENDED_CHUNK or run.get("cancelled_at"):
            return
        held = self._world.queue("chunks").messages.values(), self._world.queue("chunks-dlq").messages.values()
        others = [other for messages in held for other in messages if other is not message and chunk_id in other.body]
        if not others:
            self._wrong(
                "durable before acknowledged",
                f"the last message of {chunk_id} of {self._name(run_id)} was deleted while it is {chunk['status']}",
            )

    # ----

    def _name(self, run_id: str) -> str:
        submission = self._submissions.get(run_id)
        return f"run {submission.number}" if submission else f"run {run_id}"

    def _wrong(self, check: str, message: str) -> None:
        self._world.found(check, message)


def _index(chunk: Item, submission: Submission) -> int:
    """The number of a chunk in its run, from 0."""
    start = int(str(chunk["SK"]).rpartition("-")[2])
    return start if submission.plan.workload == "captions" else start // SPECTRA_PER_CHUNK
