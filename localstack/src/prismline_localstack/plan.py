"""The plan that `up` gives to a supervisor."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from prismline_deploy.endpoints import is_aws
from prismline_localstack.queues import AGE_NAMESPACE

#: Exit code of a supervisor whose home another supervisor already uses.
HOME_TAKEN = 3
#: A process is killed this many seconds after its own grace time.
STOP_MARGIN_SECONDS = 3.0

#: Default environment variables of the services. `up` can override them.
SERVICE_DEFAULTS = {
    "POWERTOOLS_LOG_LEVEL": "INFO",
    "POWERTOOLS_METRICS_NAMESPACE": "Prismline",
    "PRISMLINE_WAIT_SECONDS": "2",
    "PRISMLINE_VISIBILITY_SECONDS": "30",
    "PRISMLINE_GRACE_SECONDS": "10",
    "PYTHONUNBUFFERED": "1",
    # With one process per core, more threads in each would only compete for the cores.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}

#: Default intervals of the harness in seconds, which `up` can override: the time between two sweeps (an emulated
#: schedule fires at most once a minute), and the longest wait before it restarts a process that dies repeatedly.
HARNESS_DEFAULTS = {"PRISMLINE_SWEEP_SECONDS": "30", "PRISMLINE_RESTART_SECONDS": "15"}

#: Further defaults with the emulator: a kill may lose messages, its message counts are always exact, and the
#: harness publishes the ages of messages.
EMBEDDED_DEFAULTS = {
    "SWEEP_IDLE_SECONDS": "30",
    "QUEUE_AGE_NAMESPACE": AGE_NAMESPACE,
    # All of it belongs to one user.
    "FUNCTIONS_LOCAL": "true",
}


class Plan(BaseModel):
    """The processes to run, and their settings."""

    home: Path
    root: Path
    environment: str
    #: The endpoint of an external emulator or of AWS. None: start the emulator.
    endpoint: str | None
    workers: int | None = None
    services: list[str] | None = None
    #: Environment variables for the services and the harness. They override the defaults.
    settings: dict[str, str] = {}
    #: Template parameters. They override the defaults.
    parameters: dict[str, str] = {}
    #: Pools, which have a worker process each: the interpreter of its functions by the pool's name. Empty: the
    #: interpreter that a function was registered with.
    pools: dict[str, str] = {}
    #: Whether the services run as Lambda functions, deployed as to AWS, and not as processes.
    functions: bool = False

    def service_settings(self, *, embedded: bool) -> dict[str, str]:
        """The environment variables of the services: the defaults with the overrides."""
        return SERVICE_DEFAULTS | (EMBEDDED_DEFAULTS if embedded else {}) | self.settings

    @property
    def sweep_seconds(self) -> float:
        """Time between two sweeps that the harness requests."""
        return self._harness_setting("PRISMLINE_SWEEP_SECONDS")

    @property
    def longest_restart_seconds(self) -> float:
        """Longest wait before a process is restarted."""
        return self._harness_setting("PRISMLINE_RESTART_SECONDS")

    def _harness_setting(self, name: str) -> float:
        return float((HARNESS_DEFAULTS | self.settings)[name])

    @property
    def standins(self) -> bool:
        """Whether stand-ins for outside systems may run. They do not run with AWS itself."""
        return self.endpoint is None or not is_aws(self.endpoint)

    @property
    def stop_seconds(self) -> float:
        """Time that a service process has to stop before it is killed."""
        settings = self.service_settings(embedded=False)
        return float(settings["PRISMLINE_GRACE_SECONDS"]) + STOP_MARGIN_SECONDS
