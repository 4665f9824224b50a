"""What the supervisor reports of its processes: how many of each kind run, since when, and of which version."""

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
    """A process at a moment."""

    definition: ServiceProcess
    running: bool
    #: When it was last started.
    since: str
    restarts: int


def report_of(signs: Sequence[Sign], *, at: str) -> ProcessesReport:
    """The report at the moment `at`. Processes that differ only in their number, as worker-1 and worker-2, are one."""
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
    """The version in a service's `pyproject.toml`. None: there is none, or it does not say."""
    try:
        version = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
    except (OSError, tomllib.TOMLDecodeError, KeyError):
        return None
    return str(version)
