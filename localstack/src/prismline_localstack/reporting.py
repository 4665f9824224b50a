"""The supervisor's report of its processes: how many of each kind run, since when, and in which version."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prismline_contracts.processes import ProcessesReport, ProcessReport
from prismline_localstack.registry import ServiceProcess


@dataclass(frozen=True)
class Sign:
    """The state of a process at one moment."""

    definition: ServiceProcess
    running: bool
    #: When it was last started.
    since: str
    restarts: int


def report_of(signs: Sequence[Sign], *, at: str) -> ProcessesReport:
    """The report at the moment `at`. Processes that differ only in their number (worker-1, worker-2) are one row."""
    kinds: dict[tuple[str, str], list[Sign]] = {}
    for sign in signs:
        name = re.sub(r"-\d+$", "", sign.definition.name)
        kinds.setdefault((sign.definition.service, name), []).append(sign)
    return ProcessesReport(
        at=at,
        processes=[
            ProcessReport(
                name=name,
                service=service,
                version=_version(some[0].definition.folder),
                running=sum(sign.running for sign in some),
                since=max(sign.since for sign in some),
                restarts=sum(sign.restarts for sign in some),
            )
            for (service, name), some in sorted(kinds.items())
        ],
    )


def _version(folder: Path) -> str | None:
    """The version in a service's `pyproject.toml`. None if there is no such file, or no version in it."""
    try:
        version = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
    except (OSError, tomllib.TOMLDecodeError, KeyError):
        return None
    return str(version)
