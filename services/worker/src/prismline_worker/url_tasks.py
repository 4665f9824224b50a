"""The `urls` workload: fetches the URLs of many tasks at a time, within the limits of their runs and hosts.

One event loop, in a thread of its own, serves all messages of the process. They share its HTTP client, its limit of
fetches at a time, and its slots in Valkey.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import cache
from typing import TYPE_CHECKING, Any, Self, TypeVar

import httpx

from prismline_contracts.commands import TasksProcess
from prismline_contracts.items import RunItem
from prismline_contracts.tasks import TaskItem, TaskResult, UrlParams, result_key
from prismline_coordination import Cache, Leases, RateLimit
from prismline_runtime import UnavailableError, clients
from prismline_web import guarded_async_client
from prismline_worker.body_store import BodyStore
from prismline_worker.concurrency import SlotPool, Slots
from prismline_worker.dependencies import Dependencies
from prismline_worker.fair_places import FairPlaces
from prismline_worker.fetch_decisions import ThrottledError
from prismline_worker.fetcher import Fetcher
from prismline_worker.host_pauses import HostPauses
from prismline_worker.params import read_params
from prismline_worker.settings import WorkerSettings
from prismline_worker.task_decisions import Attempted, NoTimeError, RunStoppedError, host_of
from prismline_worker.task_work import Work

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

#: Requests to S3 that a process makes at a time. boto3 blocks, so each has a thread.
S3_AT_A_TIME = 24
#: Other blocking calls that a process makes at a time: name resolution, the ledger, Valkey.
BLOCKING_AT_A_TIME = 64
#: Longest time, in seconds, that a task waits in the worker for its turn in the rate limit of its host.
LONGEST_RATE_WAIT_SECONDS = 20.0
#: Interval, in seconds, at which ended tasks are recorded while others of their message continue.
RECORD_SECONDS = 1.0

T = TypeVar("T")


class UrlTasks:
    """Works on tasks of the `urls` workload."""

    def __init__(self, deps: Dependencies, s3: S3Client) -> None:
        self._deps = deps
        self._s3 = s3
        self._executor = ThreadPoolExecutor(S3_AT_A_TIME, thread_name_prefix="s3")
        self._rates = RateLimit(deps.valkey)
        self._pauses = HostPauses(Cache(deps.valkey))
        self._store = cache(self._store_of)
        self._start = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def connect(cls, deps: Dependencies) -> Self:
        """Make the workload with the clients that it needs."""
        return cls(deps, clients.s3())

    def terms(self, command: TasksProcess, run: RunItem) -> UrlParams:  # noqa: ARG002  as for every kind of tasks
        """The parameters of the run."""
        return read_params(UrlParams, command.params)

    def work(self, tasks: Sequence[TaskItem], work: Work[UrlParams]) -> dict[str, float | None]:
        """Fetch the URLs of tasks of one run. Return ids of tasks that were not begun, with the seconds they wait.

        None in place of the seconds: the run or the host has no slot now, or Valkey does not answer.

        Passes on errors of the methods of `work`.
        """
        return self._in_loop(self._work(tasks, work))

    # ---- in the event loop

    async def _work(self, tasks: Sequence[TaskItem], work: Work[UrlParams]) -> dict[str, float | None]:
        async with AsyncExitStack() as stack:
            try:
                run = await self._run_slots(stack, tasks, work.command.max_concurrency)
            except UnavailableError as error:
                await asyncio.to_thread(work.waits, str(error))
                return dict.fromkeys(task.task_id for task in tasks)
            hosts, waits, missing = await self._host_slots(stack, tasks)
            if missing is not None:
                await asyncio.to_thread(work.waits, missing)
            ready = [task for task in tasks if task.task_id not in waits]
            started = await asyncio.to_thread(work.begin, ready) if ready else []
            fetches = [
                asyncio.create_task(self._attempt(task, work, [hosts.get(host_of(task.source)), run]))
                for task in started
            ]
            try:
                await _recording(fetches, work.record)
            finally:
                for fetch in fetches:
                    fetch.cancel()
                await asyncio.gather(*fetches, return_exceptions=True)
        return waits

    async def _run_slots(
        self, stack: AsyncExitStack, tasks: Sequence[TaskItem], max_concurrency: int | None
    ) -> Slots | None:
        if max_concurrency is None:
            return None
        wanted = min(len(tasks), self._settings.urls_concurrency)
        resource = f"run:{tasks[0].run_id}"
        return await stack.enter_async_context(self._slot_pool.slots(resource, max_concurrency, wanted))

    async def _host_slots(
        self, stack: AsyncExitStack, tasks: Sequence[TaskItem]
    ) -> tuple[dict[str, Slots], dict[str, float | None], str | None]:
        """The slots of each host; the waits of tasks that cannot begin because of their host, by task id; and the
        reason if a host has no slot.
        """
        groups: dict[str, list[TaskItem]] = {}
        for task in tasks:
            groups.setdefault(host_of(task.source), []).append(task)
        hosts: dict[str, Slots] = {}
        waits: dict[str, float | None] = {}
        missing: str | None = None
        for host, group in groups.items():
            if self._deps.valkey.exists:
                await asyncio.to_thread(self._pauses.learn, host)
            if (wait := self._pauses.wait(host)) > 0:
                waits |= {task.task_id: wait for task in group}
                continue
            limit = self._settings.urls_host_concurrency
            if host and limit and self._deps.valkey.exists:
                wanted = min(len(group), self._settings.urls_concurrency)
                try:
                    slots = self._slot_pool.slots(f"host:{host}", limit, wanted)
                    hosts[host] = await stack.enter_async_context(slots)
                except UnavailableError as error:
                    self._deps.logger.info("host_waits", extra={"host": host, "reason": str(error)})
                    waits |= dict.fromkeys(task.task_id for task in group)
                    missing = str(error)
        return hosts, waits, missing

    async def _attempt(self, task: TaskItem, work: Work[UrlParams], slots: Iterable[Slots | None]) -> Attempted:
        began = time.monotonic()
        try:
            async with AsyncExitStack() as stack:
                for held in slots:
                    if held is not None:
                        await stack.enter_async_context(held.turn(task.run_id))
                await stack.enter_async_context(self._room.place(task.run_id))
                began = time.monotonic()
                outcome: TaskResult | Exception = await self._fetch(task, work)
        except Exception as error:
            outcome = error
        return Attempted(task, outcome, round((time.monotonic() - began) * 1000))

    async def _fetch(self, task: TaskItem, work: Work[UrlParams]) -> TaskResult:
        host = host_of(task.source)
        if (wait := self._pauses.wait(host)) > 0:
            raise ThrottledError(f"{host} wants fewer requests.", wait=wait)
        if self._settings.urls_host_per_second:
            admission = await asyncio.to_thread(
                self._rates.take,
                f"host:{host}",
                per_second=self._settings.urls_host_per_second,
                burst=self._settings.urls_host_burst,
                longest_wait=LONGEST_RATE_WAIT_SECONDS,
            )
            if not admission.granted:
                raise ThrottledError(f"The rate limit of {host} is used up.", wait=admission.wait)
            await asyncio.sleep(admission.wait)
        if work.stopped:
            raise RunStoppedError("The run was stopped.", retry_after=0)
        if time.monotonic() >= work.deadline:
            raise NoTimeError("There was no time left to fetch it.", retry_after=0)
        key = result_key(task.run_id, task.task_id)
        try:
            return await self._fetcher.fetch(task.source, work.terms, self._store(work.command.bucket), key)
        except ThrottledError as error:
            await asyncio.to_thread(self._pauses.pause, host, error.wait)
            raise

    # ---- the loop and what it uses

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        with self._start:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="fetches", daemon=True).start()
                asyncio.run_coroutine_threadsafe(self._prepare(), self._loop).result()
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _prepare(self) -> None:
        # A slow name server blocks a thread for seconds. There must be other threads for the ledger then.
        threads = ThreadPoolExecutor(BLOCKING_AT_A_TIME, thread_name_prefix="blocking")
        asyncio.get_running_loop().set_default_executor(threads)
        most = self._settings.urls_concurrency
        self._http = guarded_async_client(
            allow_private=self._settings.urls_allow_private,
            gateway=self._settings.urls_gateway,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=most, keepalive_expiry=10.0),
            headers={"user-agent": self._settings.urls_user_agent},
        )
        self._fetcher = Fetcher(self._http)
        self._slot_pool = SlotPool(Leases(self._deps.valkey), self._deps.logger)
        #: Limits how many fetches this process makes at a time.
        self._room = FairPlaces(most)

    @property
    def _settings(self) -> WorkerSettings:
        return self._deps.settings

    def _store_of(self, bucket: str) -> BodyStore:
        return BodyStore(self._s3, bucket, self._executor)


async def _recording(fetches: Sequence[asyncio.Task[Attempted]], record: Callable[[list[Attempted]], None]) -> None:
    """Wait for all fetches. Record those that have ended every second and at the end."""
    pending = set(fetches)
    while pending:
        done, pending = await asyncio.wait(pending, timeout=RECORD_SECONDS)
        if done:
            await asyncio.to_thread(record, [fetch.result() for fetch in done])
