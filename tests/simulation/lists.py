"""Lists of URLs, or of items of a function: their clients, who use the functions of the api, the sites, and the targets
of webhooks.

A request to the api takes time, fails and is cut off like the work of any other service. A client with an
Idempotency-Key repeats it until it is answered; another client never learns what became of it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from prismline_api.actions import cancel_run, delete_job, request_export, rerun_job
from prismline_api.dependencies import Dependencies as ApiDependencies
from prismline_api.manifests import CONTENT_TYPES, upload_metadata
from prismline_api.models import BatchRequest, FunctionJob, RerunRequest, UrlsJob
from prismline_api.open_jobs import add_batch, close_job
from prismline_api.reading import find_job
from prismline_api.settings import ApiSettings
from prismline_api.store import JobStore
from prismline_api.submission import submit
from prismline_contracts.base import derived_id, timestamp
from prismline_contracts.commands import TasksProcess, queue_name
from prismline_contracts.finalization import due_finalization
from prismline_contracts.items import OPEN_RUNS, RunItem
from prismline_contracts.jobs import UploadItem, upload_item_key, upload_key
from prismline_contracts.pools import in_pool
from prismline_contracts.tasks import TaskItem, TaskResult, UrlParams, result_key
from prismline_coordination import Lease
from prismline_http.auth import Caller
from prismline_http.problems import ProblemError
from prismline_ledger import Ledger
from prismline_runtime import (
    Bucket,
    PermanentError,
    PrismlineError,
    Table,
    TransientError,
    Transport,
    UnavailableError,
)
from prismline_webhooks.retrying import Answer
from prismline_worker.concurrency import LostSlotError, renewed
from prismline_worker.params import read_params
from prismline_worker.task_decisions import Attempted, NoTimeError
from tests.simulation.functions import CODES, FUNCTION, POOL, item_of, register
from tests.simulation.plan import FUNCTION_SERVICE, ListPlan
from tests.simulation.scheduler import START, Process
from tests.simulation.slots import StandInValkey

if TYPE_CHECKING:
    from tests.simulation.users import Users
    from tests.simulation.world import World

TENANT = "acme"
CALLER = Caller(tenant=TENANT, key_id="key", scopes=frozenset({"read", "submit", "operate"}))
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TARGET = "https://target.example/hook"
#: Seconds of one fetch.
FETCH_SECONDS = 0.3
#: A site that answers only the third request.
FLAKY_REQUESTS = 2
#: Longest time of a request to the api, in seconds. A deletion counts on its end.
REQUEST_SECONDS = 600.0
#: Seconds until a client repeats a request: at first, and at most.
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 2.0, 600.0
#: Seconds between two looks at the runs that wait for the old code of a function.
MOVE_SECONDS = 900.0
#: Kinds of problems that a client repeats a request for: another client has to do something first.
_TRANSIENT = frozenset({"batch-incomplete", "job-busy"})


def page_of(url: str) -> bytes:
    """The page at a URL."""
    return f"page of {url}".encode()


def url_of(number: int, index: int, plan: ListPlan) -> str:
    """The URL of a task."""
    kind = "gone" if index in plan.gone else "flaky" if index in plan.flaky else "page"
    return f"https://site-{number}.example/{kind}/{index}"


@dataclass
class ListJob:
    """A list that was or will be submitted, and what its client knows of it."""

    number: int
    plan: ListPlan
    #: Known in advance if the request has a key. Otherwise from the answer, if there is one.
    job_id: str | None
    run_id: str | None
    #: The URLs of the tasks of batches that were accepted, by the number of the batch.
    batches: dict[int, list[str]] = field(default_factory=dict)
    submitted: bool = False
    closed: bool = False
    deleted: bool = False
    #: The run of the rerun, once the request was answered.
    rerun: str | None = None
    #: Exports that were accepted, with the run.
    exports: list[tuple[str, str]] = field(default_factory=list)

    def urls(self, batch: int = 0) -> list[str]:
        """The URLs of the list, or of a batch."""
        start = batch * self.plan.tasks
        return [url_of(self.number, start + index, self.plan) for index in range(self.plan.tasks)]

    @property
    def expected(self) -> list[str] | None:
        """The URLs of all tasks. None: nobody knows them, because the job was not closed."""
        if self.plan.how != "open":
            return self.urls()
        return [url for _, urls in sorted(self.batches.items()) for url in urls] if self.closed else None


def _waits_for_its_end(run: Mapping[str, Any]) -> bool:
    return due_finalization(RunItem.model_validate(run)) is not None


class ListUsers:
    """The clients of the api."""

    def __init__(self, world: World, users: Users) -> None:
        self._world = world
        self._users = users
        self.jobs = [self._job(number, plan) for number, plan in enumerate(world.plan.lists, 1)]
        for job in self.jobs:
            if job.run_id is not None:
                world.trace.names[job.run_id] = f"list-{job.number}"
        #: The posts that targets of webhooks have accepted.
        self.posts: list[dict[str, Any]] = []
        self.sites = StandInUrls.sites = Sites(world)
        StandInPoster.accept = lambda body: self.posts.append(json.loads(body))

    @staticmethod
    def _job(number: int, plan: ListPlan) -> ListJob:
        key = f"list-{number}" if plan.keyed else None
        job_id, run_id = (derived_id(kind, TENANT, key) if key else None for kind in ("job", "run"))
        return ListJob(number, plan, job_id, run_id and in_pool(run_id, POOL if plan.pool else None))

    def start(self) -> None:
        """Start the actions of the plan."""
        for job in self.jobs:
            plan, name = job.plan, f"client-{job.number}"
            self._at(plan.at, name, partial(self._submit, job), again=plan.keyed)
            for number, moment in enumerate(plan.batches):
                self._at(moment, f"{name}-batch-{number}", partial(self._add_batch, job, number))
            for chosen, act in (
                (plan.close_at, self._close),
                (plan.cancel_at, self._cancel),
                (plan.export_at, self._export),
                (plan.rerun_at, self._rerun),
                (plan.delete_at, self._delete),
            ):
                if chosen is not None:
                    self._at(chosen, f"{name}{act.__name__.replace('_', '-')}", partial(act, job))
            if plan.go_on_at is not None:
                self._at(plan.go_on_at, f"{name}-resumer", partial(self._have_go_on, job), service="user")
            if plan.retry_at is not None:
                self._at(plan.retry_at, f"{name}-retrier", partial(self._retry, job), service="user")
        for moment in self._world.plan.queue_losses:
            self._world.scheduler.at(START + moment, self._lose_queues, "somebody deletes the queues of runs")
        if any(job.plan.function for job in self.jobs):
            register(self._world, CODES[0])
            if self._world.plan.upgraded_at is not None:
                self._world.scheduler.at(
                    START + self._world.plan.upgraded_at, self._upgrade, "the function has new code"
                )

    def run_ids(self) -> list[str]:
        """The runs of all lists that their clients know."""
        return [run_id for job in self.jobs for run_id in (job.run_id, job.rerun) if run_id is not None]

    def job_of(self, run_id: str) -> ListJob | None:
        """The list of a run."""
        return next((job for job in self.jobs if run_id in (job.run_id, job.rerun)), None)

    def _lose_queues(self) -> None:
        for name in [name for name in self._world.aws.queues if self._world.is_run_queue(name)]:
            self._world.aws.sqs.remove(name)

    def _upgrade(self) -> None:
        """Replace the code of the function in all workers, and register it."""
        register(self._world, CODES[1])
        for service in ("fetcher", FUNCTION_SERVICE):
            self._users.deploy(service)
        self._move_later()

    def _move_later(self) -> None:
        scheduler = self._world.scheduler
        scheduler.at(scheduler.time + MOVE_SECONDS, self._move, "somebody looks at the runs that wait")

    def _move(self) -> None:
        """Have the runs that wait for the old code go on with the new one, like `prismline retry --code latest`."""
        for run in self._world.aws.tables[self._world.runs_table].items():
            waits = run["SK"] == "RUN" and run.get("code") == CODES[0] and run.get("GSI2_PK") == OPEN_RUNS
            if waits and not run.get("cancelled_at") and (not run.get("drained_at") or _waits_for_its_end(run)):
                self._users.retry(run["PK"], code=CODES[1])
        self._move_later()

    # ---- requests

    def _at(
        self,
        moment: float,
        name: str,
        act: Callable[[ApiDependencies], None],
        *,
        again: bool = True,
        service: str = "api",
    ) -> None:
        """Let a client make a request. again: it repeats the request until it is answered."""
        answered = False

        def body(process: Process) -> None:
            nonlocal answered
            pause = FIRST_PAUSE_SECONDS
            while not answered:
                if service == "api":
                    process.deadline = self._world.scheduler.time + REQUEST_SECONDS
                try:
                    act(self._dependencies())
                except ProblemError as problem:
                    answered = problem.kind not in _TRANSIENT
                except (PrismlineError, ClientError, BotoCoreError, OSError, MemoryError):  # the api answers 500
                    answered = not again
                else:
                    answered = True
                if not answered:
                    self._world.scheduler.wait(pause)
                    pause = min(2 * pause, LAST_PAUSE_SECONDS)

        def cut_off(_: Process) -> None:
            if again and not answered and not self._world.closing:
                spawn(self._world.scheduler.time + FIRST_PAUSE_SECONDS)

        def spawn(at: float) -> None:
            process = self._world.scheduler.spawn(name, service, body, at=at, trusted=service == "user", ended=cut_off)
            self._world.processes.append(process)

        spawn(START + moment)

    def _dependencies(self) -> ApiDependencies:
        world = self._world
        aws: Any = world.aws
        settings: Any = world.settings_of(ApiSettings)
        nothing: Any = None
        return ApiDependencies(
            settings=settings,
            store=JobStore(aws.dynamodb, settings.jobs_table),
            key_store=nothing,
            ledger=Ledger(aws.dynamodb, settings.runs_table),
            operations=nothing,
            states=Table(aws.dynamodb, settings.workflow_state_table),
            bucket=Bucket(aws.s3, settings.bucket),
            s3=aws.s3,
            signer=_Signer(),  # type: ignore[arg-type]
            transport=Transport(
                environment=settings.environment,
                service="api",
                sqs=aws.sqs,
                events=aws.events,
                stepfunctions=aws.stepfunctions,
            ),
            alerts=nothing,
            system=_System(world),  # type: ignore[arg-type]
            logger=world.logger,  # type: ignore[arg-type]
            limit=nothing,
            cache=nothing,
        )

    def _submit(self, job: ListJob, deps: ApiDependencies) -> None:
        plan, fields = job.plan, dict[str, Any]()
        if plan.function:
            fields |= {"workload": FUNCTION, "pool": POOL if plan.pool else None, "source": self._source(job, deps)}
        elif plan.how == "open":
            fields["open"] = True
        elif plan.how == "upload":
            fields["upload"] = self._upload(job, deps)
        else:
            fields |= {"urls": job.urls(), "async": plan.how == "manifest"}
        fields.setdefault("workload", "urls")
        if plan.webhook:
            fields["webhook"] = {"url": TARGET, "secret": SECRET}
        if plan.deadline_at is not None:
            fields["deadline_at"] = timestamp(datetime.fromtimestamp(START + plan.deadline_at, UTC))
        request = (FunctionJob if plan.function else UrlsJob)(
            name="list",
            tolerated_failure_percent=plan.tolerated_percent,
            tolerated_failures=plan.tolerated_failures,
            max_concurrency=plan.max_concurrency,
            **fields,
        )
        key = f"list-{job.number}" if plan.keyed else None
        submitted = submit(request, CALLER, key, None, deps)
        job.job_id, job.run_id, job.submitted = submitted.job.job_id, submitted.run.run_id, True

    def _source(self, job: ListJob, deps: ApiDependencies) -> dict[str, Any]:
        """The source of the items of a function."""
        if job.plan.how == "upload":
            return {"kind": "upload", "upload": self._upload(job, deps)}
        return {"kind": "inline", "items": [item_of(url) for url in job.urls()]}

    @staticmethod
    def _upload(job: ListJob, deps: ApiDependencies) -> str:
        """Upload the list, as with the URL that the api gives."""
        upload_id = f"{job.number:032x}"
        deps.store.create_upload(UploadItem(PK=upload_item_key(TENANT, upload_id)["PK"], expires_at=9_999_999_999))
        lines = "".join(json.dumps({"url": url}) + "\n" for url in job.urls())
        deps.s3.put_object(
            Bucket=deps.bucket.name,
            Key=upload_key(TENANT, upload_id),
            Body=lines.encode(),
            ContentType=CONTENT_TYPES["jsonl"],
            Metadata=upload_metadata("jsonl", gzip=False),
        )
        return upload_id

    def _known(self, job: ListJob) -> str:
        """The id of the job, once its client knows it. Raises TransientError before, so that the client waits."""
        if not job.submitted or job.job_id is None:
            if not job.plan.keyed:
                raise ProblemError(404, "not-found", "The client does not know its job.")
            raise TransientError("The job is not submitted yet.")
        return job.job_id

    def _add_batch(self, job: ListJob, number: int, deps: ApiDependencies) -> None:
        urls = job.urls(number)
        add_batch(BatchRequest(urls=urls), self._known(job), CALLER, f"batch-{number}", deps)
        job.batches[number] = urls

    def _close(self, job: ListJob, deps: ApiDependencies) -> None:
        close_job(find_job(CALLER, self._known(job), deps), deps)
        job.closed = True

    def _cancel(self, job: ListJob, deps: ApiDependencies) -> None:
        self._known(job)
        assert job.run_id is not None
        self._users.cancelled.setdefault(job.run_id, "unknown")
        cancel_run(CALLER, job.run_id, deps)
        job.closed = job.closed or job.plan.how == "open"

    def _have_go_on(self, job: ListJob, _deps: ApiDependencies) -> None:
        if job.run_id is not None:
            self._users.have_continue(job.run_id)

    def _retry(self, job: ListJob, _deps: ApiDependencies) -> None:
        if job.run_id is not None:
            self._users.retry(job.run_id)

    def _export(self, job: ListJob, deps: ApiDependencies) -> None:
        self._known(job)
        assert job.run_id is not None
        view = request_export(CALLER, job.run_id, "export", deps)
        job.exports.append((job.run_id, view.export_id))

    def _rerun(self, job: ListJob, deps: ApiDependencies) -> None:
        only: Any = job.plan.rerun_only
        _, run, _ = rerun_job(RerunRequest(only=only), CALLER, self._known(job), "rerun", deps)
        job.rerun = run.run_id
        self._world.trace.names[run.run_id] = f"rerun-{job.number}"

    def _delete(self, job: ListJob, deps: ApiDependencies) -> None:
        job_id = self._known(job)
        job.deleted = True
        for run_id in (job.run_id, job.rerun, self._rerun_id(job, job_id)):
            if run_id is not None:
                self._users.cancelled.setdefault(run_id, "unknown")
        delete_job(CALLER, job_id, deps)

    @staticmethod
    def _rerun_id(job: ListJob, job_id: str) -> str:
        return in_pool(derived_id("rerun", TENANT, job_id, "rerun"), POOL if job.plan.pool else None)


class _System:
    """The queues of the account, for the api's check of a pool."""

    def __init__(self, world: World) -> None:
        self._world = world

    def queue(self, name: str) -> Any:
        """A queue by its short name. None if there is none."""
        return self._world.aws.queues.get(queue_name(self._world.aws.environment, name))


class _Signer:
    """Signs nothing: nobody opens a link."""

    @staticmethod
    def generate_presigned_url(*_: Any, **__: Any) -> str:
        """A URL."""
        return "https://simulated.example/link"


# ---- what the services reach outside


class Sites:
    """The sites of all URLs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.requests: Counter[str] = Counter()
        #: When the sites have answered each request, by run: also if the process that asked is frozen or dead by then.
        self._answered_at: dict[str, list[float]] = defaultdict(list)
        self.leases = StandInValkey(world).leases()

    def fetch(self, url: str, run_id: str, limit: int | None) -> bytes:
        """The page. Raises the errors of the worker's fetcher. limit: most requests of the run at a time."""
        now = self._world.scheduler.time
        opened = [moment for moment in self._answered_at[run_id] if moment > now]
        self._answered_at[run_id] = [*opened, now + FETCH_SECONDS]
        if limit is not None and len(opened) >= limit:
            self._world.found("no more at a time", f"{len(opened) + 1} requests of a run, which may have {limit}")
        self._world.scheduler.wait(FETCH_SECONDS)
        self.requests[url] += 1
        kind = urlsplit(url).path.split("/")[1]
        if kind == "gone":
            raise PermanentError("The site answered 404 Not Found.")
        if kind == "flaky" and self.requests[url] <= FLAKY_REQUESTS:
            raise TransientError("The site answered 503 Service Unavailable.")
        return page_of(url)


class StandInUrls:
    """Replaces `UrlTasks`: fetches the URLs of a message one after the other, and stores their pages."""

    #: The sites of the world.
    sites: Sites

    def __init__(self, deps: Any) -> None:
        self._deps = deps

    @classmethod
    def connect(cls, deps: Any) -> StandInUrls:
        """Make the stand-in with the worker's dependencies."""
        return cls(deps)

    def terms(self, command: TasksProcess, _run: RunItem) -> UrlParams:
        """The parameters of the run."""
        return read_params(UrlParams, command.params)

    def work(self, tasks: Sequence[TaskItem], work: Any) -> dict[str, float | None]:
        """The answer of `UrlTasks.work`. With `max_concurrency`, one slot of the run serves all tasks in turn."""
        limit, leases, held = work.command.max_concurrency, self.sites.leases, list[Lease]()
        if limit is not None:
            try:
                held = leases.take(f"run:{tasks[0].run_id}", limit)
            except UnavailableError as error:
                work.waits(str(error))
            if not held:
                return dict.fromkeys(task.task_id for task in tasks)
        for task in work.begin(list(tasks)):
            held = renewed(leases, held)
            work.record([self._attempt(task, work, held)])
        with suppress(UnavailableError):
            leases.release(held)
        return {}

    def _attempt(self, task: TaskItem, work: Any, held: list[Lease]) -> Attempted:
        scheduler = self.sites._world.scheduler  # noqa: SLF001  both are parts of the world
        began = scheduler.time
        try:
            if scheduler.time - START >= work.deadline:
                raise NoTimeError("There was no time left to fetch it.", retry_after=0)
            limit = work.command.max_concurrency
            if limit is not None and not any(self.sites.leases.valid(lease) for lease in held):
                raise LostSlotError("The lease of the run was lost.")
            body = self.sites.fetch(task.source, task.run_id, limit)
            key = result_key(task.run_id, task.task_id)
            self._deps.open_bucket(work.command.bucket).write(key, body)
            digest = hashlib.sha256(body).hexdigest()
            outcome: Any = TaskResult(key=key, http_status=200, length=len(body), sha256=digest, final_url=task.source)
        except Exception as error:
            outcome = error
        return Attempted(task, outcome, round((scheduler.time - began) * 1000))


class StandInPoster:
    """Replaces the webhooks service's `Poster`: the target accepts every post."""

    #: Gets the body of each post.
    accept: Callable[[bytes], None] = staticmethod(lambda body: None)

    def __init__(self, *_: Any) -> None: ...

    def post(self, _url: str, body: bytes, _headers: Any) -> Answer:
        """Post."""
        type(self).accept(body)
        return Answer(204)
