"""The supervisor's report of its processes."""

from __future__ import annotations

from pathlib import Path

from prismline_contracts.processes import ProcessReport
from prismline_localstack.registry import ServiceProcess
from prismline_localstack.reporting import Sign, report_of

AT, EARLIER = "2026-03-01T12:00:05.000Z", "2026-03-01T11:00:00.000Z"


def sign(name: str, service: str, folder: Path, *, running: bool = True, since: str = AT, restarts: int = 0) -> Sign:
    definition = ServiceProcess(name=name, service=service, command=[], folder=folder)
    return Sign(definition, running, since, restarts)


def test_processes_of_a_kind_are_counted_together_with_their_version(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.2.0"\n')
    report = report_of(
        [
            sign("worker-1", "worker", tmp_path, since=EARLIER, restarts=1),
            sign("worker-2", "worker", tmp_path, restarts=2),
            sign("fetcher", "worker", tmp_path, running=False),
            sign("valkey", "standins", tmp_path / "elsewhere"),
        ],
        at=AT,
    )
    assert report.at == AT
    assert report.processes == [
        ProcessReport(name="valkey", service="standins", running=1, since=AT),
        ProcessReport(name="fetcher", service="worker", version="1.2.0", running=0, since=AT),
        ProcessReport(name="worker", service="worker", version="1.2.0", running=2, since=AT, restarts=3),
    ]
