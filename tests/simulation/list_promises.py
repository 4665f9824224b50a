"""The promises about lists: after every write, and some time after the last fault."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prismline_contracts.commands import RUN_QUEUE_TAG, dead_letter_queue_name
from prismline_contracts.finalization import Finalization
from prismline_contracts.jobs import export_key, job_key, job_run_key
from prismline_contracts.pools import pool_of, pool_queue
from prismline_contracts.prefixes import EXPORTS_PREFIX, JOBS_PREFIX, RESULTS_PREFIX
from prismline_contracts.tasks import result_key
from prismline_dlq_consumer.sweep_decisions import SweepLimits
from tests.simulation.functions import ITEM_ATTEMPTS, POOL, final_value_of, url_in, value_of
from tests.simulation.lists import TENANT, ListJob, page_of
from tests.simulation.plan import FUNCTION_SERVICE
from tests.simulation.safety import (
    ATTEMPTS,
    CHUNK_TRANSITIONS,
    ENDED_CHUNK,
    PATIENCE_SECONDS,
    is_too_many,
    stopped_early,
)

if TYPE_CHECKING:
    from tests.simulation.safety import Safety
    from tests.simulation.users import Users
    from tests.simulation.world import World

#: The attributes of a task that a recovery removes.
FORGOTTEN = ("error", "first_started_at", "not_before", "completed_at")
#: Longest time from a sweep to the stop of a run, while nothing goes wrong.
STOP_SECONDS = 60.0
#: Terminal statuses of a run.
ENDED_RUN = frozenset({"completed", "failed", "cancelled"})

#: Ends of the names of the queues of tasks.
TASK_QUEUES = ("-tasks", "-tasks-dlq", f"-{pool_queue(POOL)}", f"-{dead_letter_queue_name(pool_queue(POOL))}")

Item = Mapping[str, Any]


class ListSafety:
    """Watches the tasks of all runs and reports a broken promise when it happens."""

    def __init__(self, world: World, users: Users, safety: Safety) -> None:
        self._world = world
        self._users = users
        self._safety = safety
        #: Tasks by status, counted from the written items, by partition.
        self._counted: dict[str, Counter[str]] = defaultdict(Counter)
        #: The latest moment at which the sweeper stops a run of which too many have failed.
        self._stopped_until: dict[str, float] = {}
        #: The codes that each run of a function has named.
        self._codes: dict[str, set[str]] = defaultdict(set)
        world.aws.on_commit.append(self._on_commit)
        acknowledged = world.on_acknowledged

        def watched(queue: str, message: Any) -> None:
            acknowledged(queue, message)
            self._on_delete(queue, message)

        world.on_acknowledged = watched
        remove = world.aws.sqs.remove

        def removed(name: str) -> None:
            self._on_removed(name)
            remove(name)

        vars(world.aws.sqs).update(remove=removed)

    # ---- the table

    def _on_commit(self, changes: list[Any]) -> None:
        runs = set()
        for change in changes:
            if change.table != self._world.runs_table:
                continue
            partition, sort = change.key
            if sort.startswith("TASK#"):
                self._task(partition, change.before, change.after)
            if sort.startswith("TASK#") or sort in {"SHARD", "RUN"}:
                runs.add(partition.partition("#")[0])
            if sort == "RUN" and change.after is not None:
                self._coded(partition, change.before, change.after)
            if sort == "RUN" and change.before is not None and change.after is not None:
                self._resent(change.before, change.after)
                self._forgotten(change.before, change.after)
                self._finalized(change.before, change.after)
            latches = sort == "RUN" and change.after is not None and change.after.get("latched_at")
            if latches and not (change.before or {}).get("latched_at") and change.after["unit"] == "task":
                self._latched(change.after)
        for run_id in runs:
            self._run(run_id)

    def _finalized(self, before: Item, after: Item) -> None:
        """A finalization ends only while its run has the end that it belongs to."""
        text = after.get("finalization")
        if text is None or text == before.get("finalization"):
            return
        found = Finalization.model_validate_json(text)
        end = (after.get("drains", 0), after.get("jobs_failed", 0)) if after.get("drained_at") else None
        if (found.drains, found.failed) != end:
            name = self._world.trace.names.get(after["PK"], after["PK"])
            self._wrong("finalized at the end", f"{name} is finalized for another end than it has: {text}")

    def _task(self, partition: str, before: Item | None, after: Item | None) -> None:
        run_id, counted = partition.partition("#")[0], self._counted[partition]
        job = self._users.lists.job_of(run_id)
        name = f"task {(after or before or {})['index']} of {self._world.trace.names.get(run_id, run_id)}"
        was, now = before["status"] if before else None, after["status"] if after else None
        if was is not None:
            counted[was] -= 1
        if now is None or after is None:
            if job is None or not job.deleted:
                self._wrong("items stay", f"{name} was deleted")
            return
        counted[now] += 1
        if was != now:
            self._safety.transitions["task", str(was), now] += 1
            if (was, now) not in CHUNK_TRANSITIONS:
                self._wrong("allowed transitions", f"{name} went from {was} to {now}")
        if before is not None:
            self._safety.attempts(name, before, after, forgotten=FORGOTTEN)
            if after.get("attempts", 0) > before.get("attempts", 0):
                self._began(run_id, name)
        if now == "FAILED" and was != "FAILED":
            self._failed(name, after)
            if job is not None:
                self._note_failures(run_id, job)
        if now == "COMPLETED" and was != "COMPLETED":
            self._completed(run_id, name, after)

    def _began(self, run_id: str, name: str) -> None:
        """The workers of a pool, and no others, work on its runs. A run with too many failures is stopped."""
        current, pool = self._world.scheduler.current, pool_of(run_id)
        if current is not None and (current.service == FUNCTION_SERVICE) != (pool is not None):
            self._wrong("a pool works on its own runs", f"{current.service} began {name}, whose pool is {pool}")

    def _note_failures(self, run_id: str, job: ListJob) -> None:
        """If more tasks of a run have failed than its number of tolerated ones, note until when it is stopped."""
        limit = job.plan.tolerated_failures
        counted = (each for name, each in self._counted.items() if name.partition("#")[0] == run_id)
        if limit is not None and sum(each["FAILED"] for each in counted) > limit:
            patience = self._users.sweep_seconds + STOP_SECONDS
            self._stopped_until.setdefault(run_id, self._world.scheduler.time + patience)

    def _failed(self, name: str, task: Item) -> None:
        """A task is FAILED because its site has no page, or after enough attempts and time."""
        error = task.get("error")
        if not error:
            self._wrong("failed with a reason", f"{name} is FAILED without an error")
        if "/gone/" in task["source"]:
            return
        used = task.get("attempts", 0) - task.get("interruptions", 0)
        if is_item(task) and "/flaky/" in task["source"] and used >= ITEM_ATTEMPTS:
            return
        tried = self._safety.ago(task.get("first_started_at"))
        if used < ATTEMPTS or tried < PATIENCE_SECONDS or self._world.faults.harm < ATTEMPTS:
            self._wrong(
                "failed only for a reason",
                f"{name} is FAILED after {used} attempts in {tried:.0f} s and {self._world.faults.harm} faults that"
                f" could have cost one, although its page exists: {error}",
            )

    def _completed(self, run_id: str, name: str, task: Item) -> None:
        if is_item(task):
            self._has_value(run_id, name, task)
            return
        key = result_key(run_id, task["SK"].removeprefix("TASK#"))
        found = self._world.aws.objects[self._world.bucket].get(key)
        job = self._users.lists.job_of(run_id)
        if found is None and job is not None and job.deleted:
            return
        if found is None or found.body != page_of(task["source"]):
            self._wrong("output before COMPLETED", f"{name} is COMPLETED, and its page is {found and found.body!r}")
        if task.get("error"):
            self._wrong("allowed transitions", f"{name} is COMPLETED and has an error: {task['error']}")

    def _has_value(self, run_id: str, name: str, task: Item) -> None:
        """An item of a function has the value of its own code, which its run had named."""
        code = task.get("code")
        if code not in self._codes[run_id]:
            self._wrong("a run keeps its code", f"{name} ended with the code {code}, not {sorted(self._codes[run_id])}")
        found = json.loads((task.get("value") or {}).get("text", "null"))
        if found != value_of(url_in(task["source"]), str(code)):
            self._wrong("output before COMPLETED", f"{name} is COMPLETED, and its value is {found}")
        if task.get("error"):
            self._wrong("allowed transitions", f"{name} is COMPLETED and has an error: {task['error']}")

    def _coded(self, run_id: str, before: Item | None, after: Item) -> None:
        """The code of a run changes only if a person moves it."""
        if (code := after.get("code")) is None:
            return
        self._codes[run_id].add(code)
        if before is None or before.get("code") == code:
            return
        if run_id not in self._users.moved:
            self._wrong("a run keeps its code", f"{run_id} has the code {code} now, and nobody moved it")
        if self._world.scheduler.time > self._stopped_until.get(run_id, float("inf")) and not self._world.plan.troubled:
            self._wrong("stopped early", f"{run_id} goes on with other code, but too many of its tasks had failed")

    def _run(self, run_id: str) -> None:
        """The counters of each shard, and the sums of a drained run, equal the items."""
        table = self._world.aws.tables[self._world.runs_table]
        run = table.get(run_id, "RUN")
        job = self._users.lists.job_of(run_id)
        if run is None or run["unit"] != "task" or (job is not None and job.deleted):
            return
        name, n_shards = self._world.trace.names.get(run_id, run_id), run["shard_count"]
        partitions = [run_id] if n_shards == 1 else [f"{run_id}#{shard}" for shard in range(n_shards)]
        sums, whole = Counter[str](), True
        for partition in partitions:
            counted = self._counted[partition]
            sums.update(counted)
            item = run if n_shards == 1 else table.get(partition, "SHARD") or {}
            names = (
                ("jobs_completed", "jobs_failed", "jobs_total") if n_shards == 1 else ("completed", "failed", "total")
            )
            completed, failed, total = (item.get(each) for each in names)
            if (completed or 0, failed or 0) != (counted["COMPLETED"], counted["FAILED"]):
                self._wrong(
                    "counters equal items",
                    f"{partition} of {name} counts {completed} + {failed}, but its items say {dict(+counted)}",
                )
            if total is not None and total != counted.total():
                self._wrong("total equals items", f"{partition} of {name} has {dict(+counted)} and a total of {total}")
            whole = whole and total is not None and (completed or 0) + (failed or 0) == total
        if run.get("jobs_total") is not None and run["jobs_total"] != sums.total():
            self._wrong("total equals items", f"{name} has {dict(+sums)} and a total of {run['jobs_total']}")
        if run.get("latched_at") and run.get("jobs_total") is None:
            self._wrong("latched with a total", f"{name} is latched without a total")
        if run.get("drained_at"):
            if not whole:
                self._wrong("drained when all have ended", f"{name} is drained with {dict(+sums)}")
            if (run.get("jobs_completed", 0), run.get("jobs_failed", 0)) != (sums["COMPLETED"], sums["FAILED"]):
                self._wrong(
                    "counters equal items",
                    f"{name} drained with {run.get('jobs_completed')} + {run.get('jobs_failed')}, not {dict(+sums)}",
                )

    # ---- messages

    def _resent(self, before: Item, after: Item) -> None:
        """The sweeper sends tasks again only if something may have lost their messages."""
        if after.get("task_resends", 0) <= before.get("task_resends", 0) or not after.get("latched_at"):
            return
        if self._world.plan.loses_messages or after.get("resumed_at") or after["PK"] in self._safety.went_on:
            return
        tasks = tasks_of(after, self._world)
        if any(task.get("recovery") for task in tasks):
            return  # a recovery that was interrupted after it reopened tasks sends them later
        if all(task["status"] in ENDED_CHUNK for task in tasks):
            return  # they ended after the sweeper had read how many were left: it has sent nothing
        if after.get("cancelled_at"):
            return  # the run was stopped after the sweeper had read it: the messages change nothing
        job = self._users.lists.job_of(after["PK"])
        if after.get("task_queue") and job is not None and job.plan.how == "open":
            return  # the messages of batches are in the shared queue, and the sweeper looks only at the run's own one
        silent = self._safety.ago(before.get("progress_at"))
        if silent > SweepLimits.deferred_seconds and any(
            queue.messages for name, queue in self._world.aws.queues.items() if name.endswith(TASK_QUEUES[1::2])
        ):
            return  # they are dead letters that nobody can archive, for example while S3 is down
        name = self._world.trace.names.get(after["PK"], after["PK"])
        self._wrong("nothing is lost", f"the sweeper sent the tasks of {name} again, but nothing lost their messages")

    def _forgotten(self, before: Item, after: Item) -> None:
        """A run loses its queue only after its end is recorded."""
        if before.get("task_queue") and not after.get("task_queue") and not after.get("ended_at"):
            name = self._world.trace.names.get(after["PK"], after["PK"])
            self._wrong("a queue outlives its run", f"{name} lost its queue before its end was recorded")

    def _on_removed(self, queue: str) -> None:
        """A service deletes the queue of a run only after the run's end is recorded.

        A run that is continued after it has lost its queue uses the shared one.
        """
        if self._world.scheduler.current is None or not self._world.is_run_queue(queue):
            return  # a person did that
        run_id = self._world.aws.queues[queue].tags[RUN_QUEUE_TAG]
        run = self._world.aws.tables[self._world.runs_table].get(run_id, "RUN")
        if run is None or run.get("ended_at"):
            return
        if not run.get("task_queue") and (run.get("resumed_at") or run.get("drains")):
            return
        name = self._world.trace.names.get(run_id, run_id)
        self._wrong("a queue outlives its run", f"the queue of {name} was deleted before its end was recorded")

    def _latched(self, run: Item) -> None:
        """Each task that has not ended has a message."""
        job = self._users.lists.job_of(run["PK"])
        if run.get("cancelled_at") or run.get("resumed_at") or self._world.plan.loses_messages:
            return  # while the run was stopped, messages were acknowledged: the sweeper sends its tasks
        if job is not None and job.deleted:
            return
        held = self._messages()
        for task in tasks_of(run, self._world):
            if task["status"] not in ENDED_CHUNK and not any(task["SK"][5:] in each.body for each in held):
                name = self._world.trace.names.get(run["PK"], run["PK"])
                self._wrong("sent before latched", f"{name} is latched, but task {task['index']} has no message")

    def _messages(self) -> list[Any]:
        """All messages that may name tasks."""
        return [
            message
            for name, queue in self._world.aws.queues.items()
            if name.endswith(TASK_QUEUES) or self._world.is_run_queue(name)
            for message in queue.messages.values()
        ]

    def _on_delete(self, queue: str, message: Any) -> None:
        """The last message of a task is acknowledged only after the task has ended."""
        if not (queue.endswith(TASK_QUEUES) or self._world.is_run_queue(queue)):
            return
        data: Any = json.loads(message.body).get("data") or {}
        run_id, table = data.get("run_id"), self._world.aws.tables[self._world.runs_table]
        run = table.get(run_id, "RUN")
        job = self._users.lists.job_of(run_id)
        if run is None or run.get("cancelled_at") or run_id in self._safety.went_on or run.get("resumed_at"):
            return  # a stopped run needs no message; when it is resumed, the sweeper sends all of its tasks
        if self._world.plan.loses_messages or (job is not None and job.deleted):
            return
        held = [other.body for other in self._messages() if other is not message]
        for task_id in data.get("task_ids", ()):
            task = self.task(run, task_id)
            if task is None or task["status"] in ENDED_CHUNK or any(task_id in body for body in held):
                continue
            if task.get("recovery") and task["status"] == "PENDING":
                continue  # the message may be from before a recovery, which sends the task after it has reopened it
            self._wrong(
                "durable before acknowledged",
                f"the last message of task {task['index']} of {self._world.trace.names.get(run_id, run_id)} was deleted"
                f" while it is {task['status']}",
            )

    def task(self, run: Item, task_id: str) -> Item | None:
        """A task's item."""
        table, n_shards = self._world.aws.tables[self._world.runs_table], run["shard_count"]
        partition = run["PK"] if n_shards == 1 else f"{run['PK']}#{int(task_id[:8], 16) % n_shards}"
        item: Item | None = table.get(partition, f"TASK#{task_id}")
        return item

    def _wrong(self, check: str, message: str) -> None:
        self._world.found(check, message)


# ---- some time after the last fault


def list_complaints(world: World, users: Users, safety: Safety) -> Iterator[str]:
    """A sentence for each thing about lists that has not ended."""
    for job in users.lists.jobs:
        if job.deleted:
            yield from _rests(job, world)
            continue
        if job.plan.keyed and not job.submitted and job.plan.deadline_at is None:
            yield f"list {job.number} was never accepted"
        if job.job_id is None or world.aws.tables[world.jobs_table].get(*job_key(TENANT, job.job_id).values()) is None:
            continue
        if job.plan.how == "open" and not job.closed:
            if job.plan.keyed:
                yield f"list {job.number} was never closed"
            continue
        for run_id in (job.run_id, job.rerun):
            if run_id is not None and (job.expected or run_id == job.rerun):
                yield from _run_complaints(job, run_id, world, users, safety)
        yield from _export_complaints(job, world)
    yield from _unanswered(world)
    for name in world.aws.queues:
        if world.is_run_queue(name):
            yield f"the queue {name} was not deleted"


def _unanswered(world: World) -> Iterator[str]:
    """A closed job that was written starts its runs, also if its client got no answer."""
    for item in world.aws.tables[world.jobs_table].items():
        if item["SK"] == "JOB" and item["state"] == "closed":
            for run_id in item["run_ids"]:
                state = world.aws.tables[world.states_table].get(run_id)
                if state is None or state["status"] not in ENDED_RUN:
                    yield f"run {run_id} of a job is {state['status'] if state else 'unknown'}"


def _run_complaints(job: ListJob, run_id: str, world: World, users: Users, safety: Safety) -> Iterator[str]:
    name = world.trace.names.get(run_id) or f"list {job.number}"
    table = world.aws.tables[world.runs_table]
    run, state = table.get(run_id, "RUN"), world.aws.tables[world.states_table].get(run_id)
    if state is None:
        yield f"{name} has no status"
        return
    status = state["status"]
    if status not in ENDED_RUN:
        yield f"{name} is {status}"
    elif not safety.announced[run_id][f"run.{status}"]:
        yield f"{name} is {status}, but that was not announced"
    if status == "cancelled" and run_id not in users.cancelled:
        yield f"{name} is cancelled, but no user requested that"
    if job.plan.webhook and status in ENDED_RUN and run_id == job.run_id:
        posted = [post for post in users.lists.posts if post["data"]["run_id"] == run_id]
        if status not in {post["data"]["status"] for post in posted}:
            yield f"{name} is {status}, but nothing was posted to its target"
    if run is None:
        if run_id not in users.cancelled:
            yield f"{name} was never ingested; its status is {status}: {state.get('error_message')}"
        return
    stopped = run.get("cancelled_at") is not None
    if (run_id, run.get("cancelled_at")) in users.continuations:
        yield f"{name} is still stopped, but a user made it continue"
    late = job.plan.deadline_at is not None and run.get("stop_reason") == "failed"
    early = stopped_early(state, *_limits(job)) or late
    if stopped and run_id not in users.cancelled and not early:
        yield f"{name} was stopped, but no user requested that; it is {status}: {state.get('error_message')}"
    if run.get("ended_status") != status or not run.get("ended_at"):
        yield f"{name} is {status}, but its end in the ledger is {run.get('ended_status')}"
    if run.get("GSI2_PK"):
        yield f"the sweeper still checks {name}"
    if run.get("task_queue"):
        yield f"{name} still has its queue {run['task_queue']}"
    if stopped:
        return
    tasks = tasks_of(run, world)
    unended = sorted(task["index"] for task in tasks if task["status"] not in ENDED_CHUNK)
    if unended:
        yield f"tasks {unended} of {name} have not ended"
    if run_id == job.run_id and sorted(url_in(task["source"]) for task in tasks) != sorted(job.expected or ()):
        yield f"{name} has {len(tasks)} tasks, but {len(job.expected or ())} were submitted"
    if run_id == job.rerun and job.plan.rerun_only == "all":
        first = [] if job.run_id is None else tasks_of(table.get(job.run_id, "RUN") or run, world)
        if sorted(task["source"] for task in tasks) != sorted(task["source"] for task in first):
            yield f"{name} has {len(tasks)} tasks, but the run that it repeats has {len(first)}"
    yield from _final_complaints(name, run, tasks)
    failed = sum(task["status"] == "FAILED" for task in tasks)
    tolerable = not is_too_many(failed, len(tasks), *_limits(job))
    if status in {"completed", "failed"} and (status == "completed") != tolerable:
        yield f"{name} is {status} with {failed} of {len(tasks)} tasks failed: {state.get('error_message')}"


def _final_complaints(name: str, run: Item, tasks: list[Item]) -> Iterator[str]:
    """A run of a function is finalized with the results that it has at the end."""
    if not run.get("finalization"):
        if run.get("code"):
            yield f"{name} does not know that it is to be finalized"
        return
    found = Finalization.model_validate_json(run["finalization"])
    if (found.drains, found.failed) != (run["drains"], run["jobs_failed"]):
        yield f"{name} was finalized for drain {found.drains} with {found.failed} failed, but has ended otherwise"
    elif found.status == "COMPLETED":
        value = json.loads((found.value and found.value.text) or "null")
        if value != final_value_of(tasks):
            yield f"{name} was finalized with {value}, but its results are {final_value_of(tasks)}"
    elif found.status != "FAILED" or found.attempts < ITEM_ATTEMPTS:
        yield f"the finalization of {name} is {found.status} after {found.attempts} attempts: {found.error}"


def _limits(job: ListJob) -> tuple[float, int | None]:
    return job.plan.tolerated_percent, job.plan.tolerated_failures


def is_item(task: Item) -> bool:
    """Whether a task is an item of a function, and not a URL."""
    return str(task["source"]).startswith("{")


def tasks_of(run: Item, world: World) -> list[Item]:
    table, n_shards = world.aws.tables[world.runs_table], run["shard_count"]
    partitions = [run["PK"]] if n_shards == 1 else [f"{run['PK']}#{shard}" for shard in range(n_shards)]
    return [
        version.plain
        for partition in partitions
        for (sort, _), version in table.partition(partition)
        if sort.startswith("TASK#")
    ]


def _export_complaints(job: ListJob, world: World) -> Iterator[str]:
    for run_id, export_id in job.exports:
        item = world.aws.tables[world.jobs_table].get(*export_key(run_id, export_id).values())
        if item is None or item["status"] not in {"COMPLETED", "FAILED"}:
            yield f"the export of list {job.number} is {item['status'] if item else 'gone'}"
        elif item["status"] == "COMPLETED" and item["key"] not in world.aws.objects[world.bucket]:
            yield f"the export of list {job.number} is COMPLETED, but there is no object"
        elif item["status"] == "FAILED" and "has not ended" not in item["error"]:
            yield f"the export of list {job.number} failed: {item['error']}"


def _rests(job: ListJob, world: World) -> Iterator[str]:
    """What a deletion has left behind."""
    ledger, jobs = world.aws.tables[world.runs_table], world.aws.tables[world.jobs_table]
    if job.job_id is not None and jobs.get(*job_key(TENANT, job.job_id).values()) is not None:
        yield f"the item of list {job.number} is not deleted"
    for run_id in (job.run_id, job.rerun):
        if run_id is None:
            continue
        rest = [key for key in ledger.versions if key[0].partition("#")[0] == run_id and key[1] != "STOP"]
        if rest:
            yield f"{len(rest)} items of list {job.number} are not deleted, for example {rest[0]}"
        owner = job_run_key(run_id)["PK"]
        if any(key[0] == owner for key in jobs.versions):
            yield f"an item of the run of list {job.number} is not deleted"
        prefixes = (f"{RESULTS_PREFIX}{run_id}/", f"{EXPORTS_PREFIX}{run_id}/", f"{JOBS_PREFIX}{job.job_id}/")
        left = [key for key in world.aws.objects[world.bucket] if key.startswith(prefixes)]
        if left:
            yield f"{len(left)} objects of list {job.number} are not deleted, for example {left[0]}"
