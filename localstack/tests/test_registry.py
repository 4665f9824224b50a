"""The processes to run are read from the services' `pyproject.toml`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from prismline_localstack.errors import HarnessError
from prismline_localstack.registry import AppTable, ServerTable, service_processes
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

WEB = """
[[tool.prismline.processes]]
name = "web"
app = "prismline_web.server:create_app"
port = 8010
settings = { WEB_URL = "{url}/v1" }
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


def test_there_is_one_process_per_core_unless_a_number_is_given(tmp_path: Path) -> None:
    add_service(tmp_path, "worker", WORKER)
    assert [process.name for process in service_processes(tmp_path, workers=3)] == [
        "worker-1",
        "worker-2",
        "worker-3",
        "slow-lane",
    ]
    assert len(service_processes(tmp_path)) == (os.cpu_count() or 1) + 1


def test_a_table_with_an_app_becomes_a_command_that_serves_it(tmp_path: Path) -> None:
    add_service(tmp_path, "web", WEB)
    [web] = service_processes(tmp_path)
    assert (web.name, web.service) == ("web", "web")
    assert web.command == [sys.executable, "-m", "prismline_runtime.server", "prismline_web.server:create_app"]
    assert web.app == AppTable(
        name="web", app="prismline_web.server:create_app", port=8010, settings={"WEB_URL": "{url}/v1"}
    )


def test_a_table_with_a_module_becomes_a_command_that_is_given_its_port_later(tmp_path: Path) -> None:
    add_service(
        tmp_path,
        "store",
        """
[[tool.prismline.processes]]
name = "store"
module = "store.server"
scheme = "valkey"
settings = { STORE_URL = "{url}" }
""",
    )
    [store] = service_processes(tmp_path)
    assert store.command == [sys.executable, "-m", "store.server"]
    assert store.app is None
    assert store.listening == ServerTable(
        name="store", module="store.server", scheme="valkey", settings={"STORE_URL": "{url}"}
    )


def test_the_processes_of_the_harness_are_the_service_standins(tmp_path: Path) -> None:
    add_service(tmp_path, "worker", WORKER)
    (tmp_path / "localstack").mkdir()
    (tmp_path / "localstack" / "pyproject.toml").write_text(WEB)

    def names(**arguments: Any) -> set[str]:
        return {process.name for process in service_processes(tmp_path, workers=1, **arguments)}

    assert names() == {"worker", "slow-lane", "web"}
    assert names(services=["standins"]) == {"web"}
    assert names(services=["worker"]) == names(standins=False) == {"worker", "slow-lane"}
    with pytest.raises(HarnessError, match=r"no service standins\. The services are worker"):
        names(services=["standins"], standins=False)


def test_services_without_a_table_run_nothing(tmp_path: Path) -> None:
    add_service(tmp_path, "silent", "")
    assert service_processes(tmp_path) == []


def test_only_the_requested_services_run(tmp_path: Path) -> None:
    add_service(tmp_path, "worker", WORKER)
    add_service(tmp_path, "other", WORKER.replace('"worker"', '"other"').replace('"slow-lane"', '"other-lane"'))
    assert {process.service for process in service_processes(tmp_path, services=["other"])} == {"other"}


def test_an_unknown_service_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    add_service(tmp_path, "worker", WORKER)
    with pytest.raises(HarnessError, match=r"no service wroker\. The services are worker"):
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


@pytest.mark.parametrize(
    ("right", "wrong", "field"),
    [
        ("prismline_web.server:create_app", "prismline_web.server", "app"),
        ("port = 8010", "port = 65536", "port"),
        ("port = 8010", 'handler = "a.b:c"', "handler"),
        ("port = 8010", 'queues = ["chunks"]', "queues"),
        ("WEB_URL", "web-url", "settings"),
    ],
)
def test_a_wrong_table_with_an_app_is_an_error_that_names_file_and_field(
    tmp_path: Path, right: str, wrong: str, field: str
) -> None:
    add_service(tmp_path, "web", WEB.replace(right, wrong, 1))
    with pytest.raises(HarnessError, match=rf"services/web/pyproject\.toml: (.|\n)*{field}"):
        service_processes(tmp_path)


def test_this_checkout_declares_its_services_and_the_stand_in_for_the_gpu() -> None:
    processes = {process.name: process for process in service_processes(REPOSITORY)}
    assert {process.service for process in processes.values()} >= {"splitter", "worker"}
    gpu = processes["gpu"]
    assert gpu.service == "standins"
    assert gpu.app is not None
    assert gpu.app.settings == {"CAPTION_BASE_URL": "{url}/v1"}
