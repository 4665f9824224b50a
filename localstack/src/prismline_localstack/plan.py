"""The plan that `up` gives to a supervisor."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from prismline_localstack.queues import AGE_NAMESPACE
from prismline_localstack.settings import is_aws

#: Exit code that says another supervisor has this home.
HOME_TAKEN = 3
#: How long, in seconds, a process may take to stop beyond its own grace time before it is killed.
STOP_MARGIN_SECONDS = 3.0

#: Environment variables of the services, unless `up` gets others.
SERVICE_DEFAULTS = {
    "POWERTOOLS_LOG_LEVEL": "INFO",
    "POWERTOOLS_METRICS_NAMESPACE": "Prismline",
    "PRISMLINE_WAIT_SECONDS": "2",
    "PRISMLINE_VISIBILITY_SECONDS": "30",
    "PRISMLINE_GRACE_SECONDS": "10",
    "PYTHONUNBUFFERED": "1",
    # One process a core: more threads in each would only fight over them.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}

#: The pace of the harness itself in seconds, unless `up` gets another one: how often it asks for a sweep (an emulated
#: schedule beats once a minute at most), and the longest wait before it restarts a process that dies again and again.
HARNESS_DEFAULTS = {"PRISMLINE_SWEEP_SECONDS": "30", "PRISMLINE_RESTART_SECONDS": "15"}

#: More of them with the embedded emulator: a kill may lose messages, its message counts are exact at once, and the
#: harness publishes the ages of messages.
EMBEDDED_DEFAULTS = {"SWEEP_IDLE_SECONDS": "30", "QUEUE_AGE_NAMESPACE": AGE_NAMESPACE}


class Plan(BaseModel):
    """The processes to run, and their settings."""

    home: Path
    root: Path
    environment: str
    #: The endpoint that somebody else runs; None: start an emulator.
    endpoint: str | None
    workers: int | None = None
    services: list[str] | None = None
    #: Environment variables for the services and the harness, over the defaults.
    settings: dict[str, str] = {}
    #: Template parameters, over the defaults.
    parameters: dict[str, str] = {}
    #: Whether the services run as Lambda functions, deployed as to AWS, and not as processes.
    functions: bool = False

    def service_settings(self, *, embedded: bool) -> dict[str, str]:
        """The environment variables of the services: the defaults with the overrides."""
        return SERVICE_DEFAULTS | (EMBEDDED_DEFAULTS if embedded else {}) | self.settings

    @property
    def sweep_seconds(self) -> float:
        """Time between two sweeps that the harness asks for."""
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
