"""Start, query and stop the system. The command line and the tests call these functions.

state = up(Path(".prismline"))
state.client("sqs").list_queues()
down(Path(".prismline"))
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from prismline_localstack.errors import HarnessError, NotRunningError
from prismline_localstack.home import PRIVATE_FILE, PRIVATE_UMASK, SUPERVISOR, Home
from prismline_localstack.log_files import LogFiles, LogLine
from prismline_localstack.plan import HOME_TAKEN, Plan
from prismline_localstack.processes import stop
from prismline_localstack.queues import depths, queue_statuses
from prismline_localstack.settings import REPOSITORY, HarnessSettings, inherited_environment
from prismline_localstack.state import Phase, ProcessStatus, State, Status
from prismline_localstack.waiting import wait_until

#: Default time limit of `up`, in seconds.
UP_SECONDS = 120.0
#: `down` kills after this many seconds. A supervisor with a sensible grace time ends sooner.
DOWN_SECONDS = 60.0
#: Seconds between two polls of a log that is followed.
FOLLOW_SECONDS = 0.2


def load_state(home: Path | None = None) -> State:
    """The state of the system in `home`. Raises NotRunningError if none runs, with the reason if it failed."""
    place = Home.at(home)
    state = State.load(place.state)
    if state is not None and state.phase is Phase.FAILED:
        raise NotRunningError(f"Nothing runs in {place.path}: {state.error}")
    if state is None or not state.supervisor.alive:
        raise NotRunningError(f"Nothing runs in {place.path}. Start it with `prismline up`.")
    return state


def is_up(home: Path | None = None) -> bool:
    """Whether the system runs in `home` and is ready."""
    try:
        return load_state(home).phase is Phase.READY
    except NotRunningError:
        return False


def up(
    home: Path | None = None,
    *,
    root: Path = REPOSITORY,
    environment: str = "local",
    workers: int | None = None,
    services: Collection[str] | None = None,
    settings: Mapping[str, str] | None = None,
    parameters: Mapping[str, str] | None = None,
    pools: Mapping[str, str] | None = None,
    functions: bool = False,
    timeout: float = UP_SECONDS,
) -> State:
    """Start the system and return its state when it is ready. A system that is already ready stays unchanged.

    home: folder of state and logs (default: `PRISMLINE_HOME`, else `.prismline` here).
    root: the checkout with `platform/` and `services/`.
    workers: number of processes for a service with `count = "cores"`. services: run only these (all stacks are
    deployed). `standins` names the stand-ins for outside systems: they run with all services, but not with AWS itself.
    settings: environment variables for the services and the harness. parameters: for the templates that declare them.
    pools: the pools, with the interpreter that runs a pool's functions; empty: the one of their registration.
    functions: run the services as Lambda functions, deployed as `prismline deploy` does. Only with the emulator.

    Raises HarnessError with the reason if the system does not start. Then no process is left.
    """
    place = Home.at(home)
    if is_up(place.path):
        return load_state(place.path)
    endpoint = HarnessSettings().endpoint
    if functions and endpoint is not None:
        raise HarnessError(
            f"Functions run only on the emulator that the harness starts: unset AWS_ENDPOINT_URL, which is {endpoint}."
        )
    plan = Plan(
        home=place.path,
        endpoint=endpoint,
        root=root.absolute(),
        environment=environment,
        workers=workers,
        services=None if services is None else sorted(services),
        settings=dict(settings or {}),
        parameters=dict(parameters or {}),
        pools=dict(pools or {}),
        functions=functions,
    )
    supervisor = _start_supervisor(place, plan)

    def started_or_failed() -> bool:
        return is_up(place.path) or supervisor.poll() not in {None, HOME_TAKEN}

    try:
        in_time = wait_until(started_or_failed, timeout)
    finally:
        ready = is_up(place.path)
        if not ready:
            stop([supervisor], DOWN_SECONDS)
    if ready:
        return load_state(place.path)
    if not in_time:
        raise HarnessError(f"The system is not ready after {timeout:.0f} s. The logs are in {place.logs}.")
    state = State.load(place.state)
    raise HarnessError((state and state.error) or f"The supervisor ended. Its log is {place.log(SUPERVISOR)}.")


def _start_supervisor(place: Home, plan: Plan) -> subprocess.Popen[bytes]:
    place.close()
    log_file = place.log(SUPERVISOR)
    log_file.touch(PRIVATE_FILE)
    with log_file.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "prismline_localstack.supervisor", plan.model_dump_json()],
            env=inherited_environment(plan.endpoint),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            umask=PRIVATE_UMASK,
        )


def down(home: Path | None = None) -> bool:
    """Stop the system in `home`: first the services, gracefully, then the emulator. Return whether it ran."""
    place = Home.at(home)
    state = State.load(place.state)
    if state is None:
        return False
    ran = state.supervisor.alive
    state.supervisor.signal(signal.SIGTERM)
    if not wait_until(lambda: not state.supervisor.alive, DOWN_SECONDS):
        state.supervisor.signal(signal.SIGKILL)
        wait_until(lambda: not state.supervisor.alive, DOWN_SECONDS)
    if (left := State.load(place.state)) is not None:
        left.kill_leftovers()
        place.clear_scratch()
        place.state.unlink(missing_ok=True)
    return ran


def status(home: Path | None = None) -> Status:
    """The processes and the queue depths of the system in `home`.

    Raises NotRunningError if none runs, and HarnessError if the endpoint does not answer.
    """
    state = load_state(home)
    try:
        found = depths(state.client("sqs"), state.environment) if state.endpoint else {}
    except (ClientError, BotoCoreError) as error:
        raise HarnessError(f"The queues at {state.endpoint} do not answer: {error}") from error
    return Status(
        environment=state.environment,
        endpoint=state.endpoint,
        embedded=state.embedded,
        phase=state.phase,
        processes=[ProcessStatus.of(entry) for entry in state.processes.values()],
        queues=queue_statuses(found),
    )


def logs(home: Path | None = None, service: str | None = None, *, follow: bool = False) -> Iterator[LogLine]:
    """Log lines of the processes since the last `up`, file by file. With `follow`, also new lines until it stops.

    service: only the processes of this service, or the process of this name.
    Raises NotRunningError if there is no such log.
    """
    place = Home.at(home)
    files = LogFiles(place, service)
    yield from files.new_lines()
    while follow and is_up(place.path):
        time.sleep(FOLLOW_SECONDS)
        yield from files.new_lines()
