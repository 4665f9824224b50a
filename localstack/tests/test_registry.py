"""What to run is read from the services' `pyproject.toml`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from prismline_localstack.errors import HarnessError
from prismline_localstack.registry import service_processes
from prismline_localstack.settings import REPOSITORY

WORKER = """
[[tool.prismline.processes]]
name = "worker"
handler = "prismline_worker.handler:handler"
queues = ["chunks", "more"]
batch_size = 1
count = "cores"

[[tool.prismline.processes]]
name = "slow-lane"
handler = "prismline_worker.handler:handler"
queues = ["refits"]
"""


def add_service(root: Path, name: str, pyproject: str) -> None:
    folder = root / "services" / name
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(f'[project]\nname = "{name}"\n{pyproject}')


def test_a_table_becomes_a_command_of_the_runtime(tmp_path: Path) -> None:
    add_service(tmp_path, "worker", WORKER)
    worker, slow_lane = service_processes(tmp_path, workers=1)
    assert worker.name == "worker"
    assert worker.service == slow_lane.service == "worker"
    assert worker.folder == tmp_path / "services" / "worker"
    assert worker.command == [
        *(sys.executable, "-m", "prismline_runtime"),
        *("--queue", "chunks", "--queue", "more", "--batch-size", "1"),
        "prismline_worker.handler:handler",
    ]
    assert slow_lane.command[-3:-1] == ["--batch-size", "10"]


def test_a_process_a_core_unless_told_how_many(tmp_path: Path) -> None:
    add_service(tmp_path, "worker", WORKER)
    assert [process.name for process in service_processes(tmp_path, workers=3)] == [
        "worker-1",
        "worker-2",
        "worker-3",
        "slow-lane",
    ]
    assert len(service_processes(tmp_path)) == (os.cpu_count() or 1) + 1


def test_services_without_a_table_run_nothing(tmp_path: Path) -> None:
    add_service(tmp_path, "silent", "")
    assert service_processes(tmp_path) == []


def test_only_the_services_asked_for(tmp_path: Path) -> None:
    add_service(tmp_path, "worker", WORKER)
    add_service(tmp_path, "other", WORKER.replace('"worker"', '"other"').replace('"slow-lane"', '"other-lane"'))
    assert {process.service for process in service_processes(tmp_path, services=["other"])} == {"other"}


def test_an_unknown_service_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    add_service(tmp_path, "worker", WORKER)
    with pytest.raises(HarnessError, match="no service wroker; there are worker"):
        service_processes(tmp_path, services=["wroker"])


def test_two_processes_of_one_name_are_an_error(tmp_path: Path) -> None:
    add_service(tmp_path, "worker", WORKER)
    add_service(tmp_path, "xworker", WORKER)
    with pytest.raises(HarnessError, match="another process named worker-1, of worker"):
        service_processes(tmp_path, workers=2, services=["worker", "xworker"])


@pytest.mark.parametrize(
    ("right", "wrong", "field"),
    [
        ('queues = ["chunks", "more"]', "", "queues"),
        ('queues = ["chunks", "more"]', "queues = []", "queues"),
        ("prismline_worker.handler:handler", "prismline_worker.handler", "handler"),
        ("batch_size = 1", "batch_size = 11", "batch_size"),
        ('"cores"', '"many"', "count"),
        ('"cores"', "0", "count"),
        ("batch_size", "bath_size", "bath_size"),
        ("batch_size = 1", "batch_size =", "line 8"),
    ],
)
def test_a_wrong_table_is_an_error_that_names_file_and_field(
    tmp_path: Path, right: str, wrong: str, field: str
) -> None:
    add_service(tmp_path, "worker", WORKER.replace(right, wrong, 1))
    with pytest.raises(HarnessError, match=rf"services/worker/pyproject\.toml: (.|\n)*{field}"):
        service_processes(tmp_path)


def test_this_checkout_declares_its_services() -> None:
    assert {process.service for process in service_processes(REPOSITORY)} >= {"splitter", "worker"}
