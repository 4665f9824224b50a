"""The background process that owns the emulator and the service processes.

The supervisor starts them, restarts a service process that dies, and writes the state file. It publishes queue depths
for the alarms of an emulator. It requests sweeps from the sweeper, because the schedules of an emulator are too slow.
`up` starts `python -m prismline_localstack.supervisor PLAN`, and `down` sends SIGTERM.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from aws_lambda_powertools import Logger
from botocore.exceptions import BotoCoreError, ClientError

from prismline_contracts.base import timestamp
from prismline_contracts.jobs import api_key_sha256
from prismline_contracts.processes import PROCESSES_PARAMETER
from prismline_deploy.deploying import deploy
from prismline_deploy.endpoints import is_aws
from prismline_deploy.errors import DeployError
from prismline_emulator.endpoints import FIRST_ANSWER_SECONDS, LOOPBACK, accepts, answers, listen, url_of
from prismline_localstack.api_keys import ensure_api_key
from prismline_localstack.deploying import local_target
from prismline_localstack.emulator import Emulator
from prismline_localstack.errors import HarnessError
from prismline_localstack.forking import Forker
from prismline_localstack.functions.parameters import parameters_for
from prismline_localstack.home import SUPERVISOR, Home
from prismline_localstack.plan import HOME_TAKEN, Plan
from prismline_localstack.processes import ProcessId, spawn, stop
from prismline_localstack.queues import METRICS_SECONDS, depths, publish_ages, publish_depths, request_sweep
from prismline_localstack.registry import STANDINS, ServiceProcess, function_driver, service_processes
from prismline_localstack.reporting import Sign, report_of
from prismline_localstack.resuming import resume
from prismline_localstack.settings import client_environment, inherited_environment
from prismline_localstack.stacks import create_stacks, merge_outputs
from prismline_localstack.state import API, Phase, ProcessState, State, make_client
from prismline_localstack.waiting import wait_until
from prismline_runtime.telemetry import service_logger

#: Seconds between two checks of the processes.
WATCH_SECONDS = 0.2
#: Wait in seconds before the first restart of a process. It doubles at each further restart, up to the plan's maximum.
FIRST_RESTART_SECONDS = 0.5
#: After a process has run for this many seconds, the wait before its next restart is the first one again.
WELL_SECONDS = 30.0
#: Time limit for the first answer of a process that serves HTTP, in seconds. On an idle machine it takes about one.
APP_START_SECONDS = 60.0
#: The environment variable with the URL of the Valkey server. Functions get it from a parameter of the platform stack.
VALKEY_SETTING = "PRISMLINE_VALKEY_URL"
#: Seconds between two reports of the processes, for the console.
REPORT_SECONDS = 10.0
#: Name of the emulator in the process table.
EMULATOR = "emulator"


class _Supervised:
    """A service process, across all its restarts.

    A process that serves HTTP inherits its listening socket. So it keeps its port, and requests that arrive while it is
    down wait for the next process. A process that opens its own socket gets the same port again.
    """

    def __init__(
        self,
        definition: ServiceProcess,
        environment: dict[str, str],
        log: Path,
        logger: Logger,
        listener: socket.socket | None,
        url: str | None,
        longest_wait: float,
        forker: Forker | None,
    ) -> None:
        self.definition = definition
        self._spawn = spawn if forker is None else forker.spawn
        self.state = ProcessState(name=definition.name, service=definition.service, process=None, url=url, log=log)
        self._listener = listener
        source = str(definition.folder / "src")
        self._environment = environment | {
            "POWERTOOLS_SERVICE_NAME": f"prismline-{definition.service}",
            "PRISMLINE_PROCESS_NAME": definition.name,
            "PYTHONPATH": ":".join(filter(None, [source, environment.get("PYTHONPATH")])),
        }
        self._logger = logger
        self._wait, self._longest_wait = FIRST_RESTART_SECONDS, longest_wait
        self.start()

    @property
    def serves(self) -> bool:
        """Whether other processes may need this process while they stop."""
        return self.state.url is not None

    @property
    def sign(self) -> Sign:
        """Its entry in the report."""
        return Sign(self.definition, self.child.poll() is None, self.since, self.state.restarts)

    def start(self) -> None:
        """Start the process."""
        sockets = [self._listener.fileno()] if self._listener else []
        place = [argument for fd in sockets for argument in ("--fd", str(fd))]
        if self.definition.server is not None:
            place = ["--port", str(urlsplit(self.state.url or "").port)]
        self.child = self._spawn(
            [*self.definition.command, *place],
            environment=self._environment,
            log=self.state.log,
            folder=self.definition.folder,
            pass_fds=sockets,
        )
        self.state.process = ProcessId.of(self.child.pid)
        self._started_at = time.monotonic()
        self.since = timestamp()
        self._restart_at: float | None = None

    def restarted(self) -> bool:
        """Restart the process if it has died and its wait is over. Return whether it was restarted."""
        now = time.monotonic()
        if self._restart_at is None:
            if self.child.poll() is not None:
                if now - self._started_at >= WELL_SECONDS:
                    self._wait = FIRST_RESTART_SECONDS
                self._logger.warning(
                    "process_ended",
                    extra={"service_process": self.state.name, "code": self.child.returncode, "restart_in": self._wait},
                )
                self._restart_at = now + self._wait
                self._wait = min(2 * self._wait, self._longest_wait)
            return False
        if now < self._restart_at:
            return False
        self.start()
        self.state.restarts += 1
        return True

    def wait_until_ready(self) -> None:
        """If the process listens, wait until it answers. Raises HarnessError if it ends or takes too long."""
        url = self.state.url
        if url is None:
            return
        ready = accepts if self.definition.server is not None else answers
        wait_until(lambda: self.child.poll() is not None or ready(url), APP_START_SECONDS)
        if self.child.poll() is not None or not ready(url):
            raise HarnessError(f"The process {self.state.name} did not start. The reason is in {self.state.log}.")


class Supervisor:
    """Starts, watches and stops the emulator and all service processes."""

    def __init__(self, plan: Plan, home: Home, logger: Logger, ports_before: Mapping[str, int]) -> None:
        self._plan = plan
        self._ports_before = ports_before
        self._home = home
        self._logger = logger
        self._emulator: Emulator | None = None
        self._services: list[_Supervised] = []
        self._forker: Forker | None = None
        self._ports: dict[str, int] = {}
        self._state = State(phase=Phase.STARTING, supervisor=ProcessId.of(os.getpid()), environment=plan.environment)

    def start(self) -> None:
        """Start everything. Raises DeployError, of which HarnessError is one kind."""
        self._save()
        definitions = service_processes(
            self._plan.root,
            workers=self._plan.workers,
            services=self._plan.services,
            standins=self._plan.standins,
            pools=self._plan.pools,
        )
        listeners = _listen(definitions, self._ports_before)
        urls = _urls(definitions, listeners)
        self._ports = {name: listener.getsockname()[1] for name, listener in listeners.items()}
        if sys.platform == "linux" and not self._plan.functions:
            # It imports while the stacks are deployed.
            settings = self._plan.service_settings(embedded=self._plan.endpoint is None)
            self._forker = Forker(inherited_environment(self._plan.endpoint) | settings, self._home.log(SUPERVISOR))
        self._connect(urls.get(API))
        self._keep_ports(definitions)
        if self._plan.functions:
            outputs = self._deploy_functions(self._settings_of(definitions, urls))
        else:
            cloudformation, s3 = (make_client(service, self._state.env) for service in ("cloudformation", "s3"))
            outputs = create_stacks(
                cloudformation,
                s3,
                self._plan.root,
                self._plan.environment,
                self._plan.parameters,
                pools=self._plan.pools,
            )
        self._state.outputs = outputs
        console: dict[str, str] = {}
        if "JOBS_TABLE" in outputs:
            dynamodb = make_client("dynamodb", self._state.env)
            console = self._console(ensure_api_key(self._home.api_key, dynamodb, outputs["JOBS_TABLE"]))
        if self._emulator is not None:
            self._emulator.keep()
            self._state.resumed = resume(self._state)
        self._state.env |= outputs | self._settings_of(definitions, urls)
        environment = inherited_environment(self._state.endpoint) | self._state.env
        environment |= console | {"TMPDIR": str(self._home.scratch), "LOGS_FOLDER": str(self._home.logs)}
        environment |= self._plan.service_settings(embedded=self._emulator is not None)
        if self._plan.functions:
            definitions = self._with_functions(definitions, listeners)
        self._home.scratch.mkdir(exist_ok=True)
        for definition in definitions:
            log, listener = self._home.log(definition.name), listeners.get(definition.name)
            if definition.server is not None and listener is not None:
                listener.close()  # it reserved the port until now
                listener = None
            service = _Supervised(
                definition,
                environment | dict(definition.settings),
                log,
                self._logger,
                listener,
                urls.get(definition.name),
                self._plan.longest_restart_seconds,
                self._forker,
            )
            self._services.append(service)
            self._state.processes[definition.name] = service.state
            self._save()
        for service in self._services:
            service.wait_until_ready()
        self._home.environment.write_text(self._state.exports)
        self._state.phase = Phase.READY
        self._save()

    def _keep_ports(self, definitions: list[ServiceProcess]) -> None:
        """Record the ports for the next start, and which processes could not have their port of the last one."""
        chosen = {each.name for each in definitions if each.listening is not None and each.listening.port}
        self._state.moved = [
            f"{name} listens at port {port}, because another program has port {before}, where it was the last time."
            for name, port in self._ports.items()
            if (before := self._ports_before.get(name, port)) != port and name not in chosen
        ]
        self._home.ports.write_text(json.dumps({**self._ports_before, **self._ports}, indent=2))

    def _console(self, key: str) -> dict[str, str]:
        """The settings of the console: no sign-in is needed on this machine, unless the endpoint is AWS itself."""
        if is_aws(self._state.endpoint):
            return {}
        console = {"CONSOLE_SIGN_IN": "none", "CONSOLE_KEY_SHA256": api_key_sha256(key)}
        # Functions have no processes to report, and their roles may not read the report.
        return console if self._plan.functions else {**console, "PROCESS_REPORTS": "true"}

    def _deploy_functions(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Deploy the checkout with functions, as `prismline deploy` does, and return the outputs of the stacks."""
        # The variables of a template come before those of the driver, so a setting becomes its parameter.
        chosen = {**self._plan.service_settings(embedded=True), **settings}
        given = parameters_for(self._plan.root, chosen) | self._plan.parameters | {"DeployFunctions": "true"}
        target = local_target(self._state, self._home, given)
        if VALKEY_SETTING in settings:
            target = replace(target, parameters={"ValkeyUrl": settings[VALKEY_SETTING], **target.parameters})
        return merge_outputs(deploy(target, self._plan.root, lambda _: True))

    def _with_functions(
        self, definitions: list[ServiceProcess], listeners: dict[str, socket.socket]
    ) -> list[ServiceProcess]:
        """The stand-ins, and the process that runs the functions instead of the services' own processes.

        This process serves the URL of each function at the port of the process that it replaces.
        """
        ports = {}
        for definition in definitions:
            if definition.app is not None and definition.service != STANDINS:
                listener = listeners.pop(definition.name)
                ports[definition.name] = listener.getsockname()[1]
                listener.close()
        driver = function_driver(
            self._plan.root, self._home.images, self._home.logs, ports, self._plan.workers or os.cpu_count() or 1
        )
        return [*(each for each in definitions if each.service == STANDINS), driver]

    def _settings_of(self, definitions: list[ServiceProcess], urls: dict[str, str]) -> dict[str, str]:
        """The settings that listening processes give to all processes. Settings of `up` override them."""
        return {
            name: self._plan.settings.get(name, value.replace("{url}", urls[definition.name]))
            for definition in definitions
            if (table := definition.listening) is not None
            for name, value in table.settings.items()
        }

    def _connect(self, console: str | None) -> None:
        """Start the emulator, which pages at the URL `console` may call, or check the given endpoint."""
        endpoint = self._plan.endpoint
        if endpoint is None:
            log = self._home.log(EMULATOR)
            port = self._ports_before.get(EMULATOR)
            self._emulator = Emulator.start(
                self._home.emulator, log, port=port, console=console, functions=self._plan.functions
            )
            endpoint = self._emulator.endpoint
            self._ports[EMULATOR] = urlsplit(endpoint).port or 0
            process = ProcessId.of(self._emulator.child.pid)
            self._state.processes[EMULATOR] = ProcessState(
                name=EMULATOR, service=EMULATOR, process=process, url=endpoint, log=log
            )
        elif not answers(endpoint, timeout=FIRST_ANSWER_SECONDS):
            raise HarnessError(
                f"Nothing answers at {endpoint}. Start it, or unset AWS_ENDPOINT_URL and LOCALSTACK_HOST."
            )
        self._state.endpoint = endpoint
        self._state.embedded = self._emulator is not None
        secret = self._emulator.secret if self._emulator is not None else None
        self._state.env = client_environment(endpoint, secret) | {"ENVIRONMENT": self._plan.environment}
        self._save()

    def watch(self) -> NoReturn:
        """Keep all processes running. Raises HarnessError if the emulator ends."""
        next_metrics = next_sweep = next_report = time.monotonic()
        emulated = not is_aws(self._state.endpoint)
        while True:
            restarted = [service.restarted() for service in self._services]
            if any(restarted):
                self._save()
            if self._emulator is not None and self._emulator.child.poll() is not None:
                raise HarnessError(
                    f"The emulator ended unexpectedly. Its log is {self._home.log(EMULATOR)}. "
                    "`prismline up` starts it again, with all runs."
                )
            if emulated and time.monotonic() >= next_metrics:
                due = self._emulator is not None and time.monotonic() >= next_sweep
                self._see_to_queues(sweep=due)
                next_metrics = time.monotonic() + METRICS_SECONDS
                if due:
                    next_sweep = time.monotonic() + self._plan.sweep_seconds
            if emulated and time.monotonic() >= next_report:
                self._report()
                next_report = time.monotonic() + REPORT_SECONDS
            time.sleep(WATCH_SECONDS)

    def _report(self) -> None:
        """Write the report of the processes to SSM, for the console."""
        report = report_of([service.sign for service in self._services], at=timestamp())
        name = PROCESSES_PARAMETER.format(environment=self._plan.environment)
        try:
            ssm = make_client("ssm", self._state.env)
            ssm.put_parameter(Name=name, Value=report.model_dump_json(exclude_none=True), Type="String", Overwrite=True)
        except (ClientError, BotoCoreError) as error:
            self._logger.warning("processes_not_reported", extra={"reason": str(error)})

    def _see_to_queues(self, *, sweep: bool) -> None:
        try:
            sqs = make_client("sqs", self._state.env)
            found = depths(sqs, self._plan.environment)
            cloudwatch = make_client("cloudwatch", self._state.env)
            publish_depths(cloudwatch, found)
            if self._emulator is not None:
                publish_ages(cloudwatch, self._emulator.ages())
            if sweep:
                request_sweep(sqs, self._plan.environment, found)
        except (ClientError, BotoCoreError, OSError) as error:
            self._logger.warning("queue_upkeep_failed", extra={"reason": str(error)})

    def stop(self) -> None:
        """Stop the queue consumers first, then the processes that serve, then the emulator."""
        for serving in (False, True):
            children = [service.child for service in self._services if service.serves is serving]
            stop(children, self._plan.stop_seconds)
        if self._forker is not None:
            self._forker.stop()
        self._home.clear_scratch()
        self._home.environment.unlink(missing_ok=True)
        if self._emulator is not None:
            self._emulator.stop()
        self._home.state.unlink(missing_ok=True)

    def fail(self, error: str) -> None:
        """Record why the system does not run, for `up` and `status`."""
        self._state.phase = Phase.FAILED
        self._state.error = error
        self._save()

    def _save(self) -> None:
        self._state.save(self._home.state)


def _ports_of_last_time(home: Home, stale: State | None) -> dict[str, int]:
    """The ports at which the processes of the home listened. A state file that was left behind is newer."""
    kept: dict[str, int] = {}
    # There is no such file before the first start. It is damaged if the disk was full when it was written.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        kept = {str(name): int(port) for name, port in json.loads(home.ports.read_text()).items()}
    return kept | (stale.ports if stale is not None else {})


def _listen(definitions: list[ServiceProcess], ports_before: Mapping[str, int]) -> dict[str, socket.socket]:
    """A listening socket for each process that listens, by its name. Raises HarnessError for a port in use.

    A process that may listen at any port gets the same port as before, so that open pages of the console still work.
    """
    listeners = {}
    for definition in definitions:
        if (table := definition.listening) is not None:
            if not table.port and (before := ports_before.get(definition.name)) is not None:
                with contextlib.suppress(OSError):
                    listeners[definition.name] = listen(before)
                    continue
            try:
                listeners[definition.name] = listen(table.port)
            except OSError as error:
                raise HarnessError(
                    f"The process {definition.name} cannot listen at port {table.port} of {LOOPBACK}: "
                    f"{error.strerror}. Free the port, or change it in {definition.folder / 'pyproject.toml'}."
                ) from error
    return listeners


def _urls(definitions: list[ServiceProcess], listeners: dict[str, socket.socket]) -> dict[str, str]:
    """The URL of each process that listens, by name."""
    urls = {name: url_of(listener) for name, listener in listeners.items()}
    for definition in definitions:
        if definition.server is not None:
            urls[definition.name] = urlsplit(urls[definition.name])._replace(scheme=definition.server.scheme).geturl()
    return urls


@contextlib.contextmanager
def _only_supervisor_of(home: Home) -> Iterator[None]:
    with home.lock.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(HOME_TAKEN)
        yield


def _end(*_: object) -> NoReturn:
    sys.exit(0)


def main() -> None:
    """Run the plan until SIGTERM. The only argument is the plan, in JSON."""
    plan = Plan.model_validate_json(sys.argv[1])
    home = Home(plan.home)
    logger = service_logger(SUPERVISOR)
    with _only_supervisor_of(home):
        home.clear_logs()
        if (stale := State.load(home.state)) is not None:
            stale.kill_leftovers()
        home.clear_scratch()
        supervisor = Supervisor(plan, home, logger, _ports_of_last_time(home, stale))
        error = None
        signal.signal(signal.SIGTERM, _end)
        try:
            supervisor.start()
            supervisor.watch()
        except DeployError as failure:
            error = str(failure)
        except Exception:
            logger.exception("supervisor_failed")
            error = f"The supervisor failed. The reason is in {home.log(SUPERVISOR)}."
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            supervisor.stop()
            if error is not None:
                supervisor.fail(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
