"""The pacts say which fields services need in each other's messages, and all producers keep them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from prismline_contracts.base import timestamp
from prismline_contracts_tool.command import main
from prismline_contracts_tool.deploying import Verifications, pact_digest, read_deployed
from prismline_contracts_tool.registry import read_registry
from prismline_deploy.record import Release, first
from tests.contracts import pacts
from tests.contracts.pacts import (
    PACTS,
    VERIFICATIONS,
    pacts_in,
    producers,
    replace_pacts,
    verify,
    verify_all,
    write_pacts,
)
from tests.contracts.scenes import Link, Sighting, richest, sightings_of
from tests.contracts.versions import ROOT, version_of

pytestmark = pytest.mark.slow


def test_every_pact_is_what_its_consumer_needs_now(tmp_path: Path) -> None:
    """Each consumer's handler works with only the fields of its pact."""
    write_pacts(tmp_path)
    stated, committed = (
        {path.name: pact_digest(each) for path, each in pacts_in(folder).items() if path.parent == folder}
        for folder in (tmp_path, PACTS)
    )
    assert committed == stated, "run `make pacts`"


def test_every_producer_keeps_every_pact_and_that_is_recorded() -> None:
    assert verify_all(PACTS) == Verifications.read(VERIFICATIONS), "run `make pacts`"


def seen(consumer: str, producer: str, kind: str, workload: str = "") -> tuple[str, Sighting]:
    """The scene and the message in which a consumer reads the most fields."""
    link = Link(consumer, producer, f"prismline.{kind}")
    return next(each for each in richest() if (each[1].link, each[1].workload) == (link, workload))


def test_a_handler_is_not_asked_for_what_it_neither_requires_nor_reads() -> None:
    _, sighting = seen("status", "worker", "run.drained.v1")
    assert {"drains", "unit"} <= sighting.body["data"].keys()
    assert not {"drains", "unit"} & sighting.needs()["data"].keys()
    assert "traceparent" not in sighting.needs()


def test_an_optional_field_that_a_handler_reads_is_part_of_its_pact() -> None:
    scene, sighting = seen("worker", "splitter", "chunk.process.v2", "spectra")
    assert scene == "a cube whose chunks refer to it"
    assert sighting.needs()["data"]["reference"]["axes"] == [4, 1, 4]


def test_a_worker_states_what_it_needs_for_each_workload() -> None:
    _, captions = seen("worker", "splitter", "chunk.process.v1", "captions")
    assert captions.needs()["data"]["params"].keys() == {"max_tokens", "prompt"}
    _, urls = seen("worker", "splitter", "tasks.process.v1", "urls")
    assert {"task_ids", "bucket", "params"} <= urls.needs()["data"].keys()


@pytest.mark.parametrize(
    ("producer", "consumer", "kind", "field"),
    [
        ("splitter", "worker", "chunk.process.v2", "reference"),
        ("splitter", "status", "run.submitted.v1", "tolerated_failure_percent"),
        ("worker", "status", "run.drained.v1", "failed_percent"),
        ("status", "splitter", "run.split.v1", "tasktoken"),
        ("cli", "dlq-consumer", "deadletters.recover.v1", "only_run"),
        ("api", "dlq-consumer", "deadletters.recover.requested.v1", "only_run"),
        ("api", "status", "run.submitted.v1", "tolerated_failure_percent"),
        ("api", "splitter", "job.ingest.v1", "manifest_key"),
        ("api", "splitter", "job.delete.requested.v1", "run_ids"),
        ("api", "worker", "tasks.process.v1", "task_ids"),
        ("api", "exporter", "export.requested.v1", "tenant"),
        ("dlq-consumer", "exporter", "export.requested.v1", "given_up"),
        ("status", "webhooks", "run.completed.v1", "completed_at"),
        ("status", "webhooks", "run.failed.v1", "error"),
        ("status", "alerting", "run.failed.v1", "error"),
        ("splitter", "worker", "tasks.process.v1", "bucket"),
        ("worker", "worker", "tasks.process.v1", "task_ids"),
    ],
)
def test_a_producer_that_leaves_out_what_a_consumer_reads_is_told_whom_it_breaks(
    monkeypatch: pytest.MonkeyPatch, producer: str, consumer: str, kind: str, field: str
) -> None:
    link = Link(consumer, producer, f"prismline.{kind}")
    for scene in {scene for scene, sighting in richest() if sighting.link == link}:
        body = sightings_of(scene)[link].body
        monkeypatch.delitem(body if field in body else body["data"], field, raising=False)
    with pytest.raises(pacts.UnkeptError) as raised:
        verify(producer, PACTS)
    output = str(raised.value)
    assert f"{producer} does not send what {consumer} needs" in output
    assert field in output
    assert f"prismline.{kind}" in output


def test_a_field_that_is_removed_from_the_code_breaks_its_readers_by_name(tmp_path: Path) -> None:
    """The test removes the field in a copy of the contracts and runs the splitter's own code with it."""
    shutil.copytree(ROOT / "contracts/src/prismline_contracts", tmp_path / "prismline_contracts")
    events = tmp_path / "prismline_contracts/events.py"
    code = events.read_text()
    removed = "    tolerated_failure_percent: Percent = 0.0\n"
    assert code.count(removed) == 1
    events.write_text(code.replace(removed, "    tolerated_failure_percent: ClassVar[float] = 0.0\n"))
    done = subprocess.run(
        [sys.executable, "-m", "tests.contracts.pacts", "splitter"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "splitter does not send what status needs" in done.stderr
    assert "tolerated_failure_percent" in done.stderr
    assert "what worker needs" not in done.stderr


def test_whoever_sends_or_takes_a_message_is_in_the_registry() -> None:
    registry = read_registry(ROOT / "contracts/registry")
    for link in {sighting.link for _, sighting in richest()}:
        entry = registry[link.type.removeprefix("prismline.")]
        assert link.producer in entry.producers, f"{link.producer} sends {link.type}"
        assert link.consumer in entry.consumers, f"{link.consumer} takes {link.type}"


#: Consumers in the registry that have no pact on a message, and why.
WITHOUT_PACT = {
    **{
        ("dlq-consumer", f"{kind}.v1"): "it reads dead letters of other services by its own code"
        for kind in ("chunk.process", "run.split", "spectra.refit", "tasks.process")
    },
    **{("dlq-consumer", f"{kind}.v2"): "as for the first version" for kind in ("chunk.process", "spectra.refit")},
    ("dlq-consumer", "tasks.process.v2"): "as for the first version",
    ("ledger", "deadletters.recover.v1"): "a library, which the dead-letter consumer calls",
    ("worker", "spectra.refit.v2"): "no scene has a spectrum for the slow lane in a chunk that refers to its cube",
    ("status", "run.recovered.v1"): "no scene has a chunk that was given up complete late",
    ("status", "run.tasks.recovered.v1"): "nor a task",
}


def test_whoever_takes_a_message_by_the_registry_has_a_pact_on_it() -> None:
    stated = {
        (each["consumer"]["name"], interaction["description"].partition(" of ")[0].removeprefix("prismline."))
        for each in pacts_in(PACTS).values()
        for interaction in each["interactions"]
    }
    entries = read_registry(ROOT / "contracts/registry").items()
    taken = {(who, name) for name, entry in entries if entry.channel for who in entry.consumers if who != "people"}
    assert taken - stated == WITHOUT_PACT.keys(), (
        "have a scene of tests/contracts/jobs.py play it, or say in WITHOUT_PACT why none does"
    )


def test_whoever_sends_what_a_service_takes_keeps_a_pact() -> None:
    messages = [entry for entry in read_registry(ROOT / "contracts/registry").values() if entry.channel]
    taken = [entry for entry in messages if set(entry.consumers) - {"people"}]
    assert set(producers(PACTS)) == {who for entry in taken for who in entry.producers}
    assert len(richest()) >= 35


# ---- pacts of older versions


@dataclass
class Older:
    """A copy of the pacts, in which an older version of the worker has another pact with the splitter."""

    folder: Path
    verifications: Path

    @classmethod
    def create(cls, folder: Path, needs: dict[str, Any]) -> Older:
        """needs: fields of a chunk's message that the older worker reads in addition to those of the present one."""
        older = cls(folder / "pacts", folder / "verifications.json")
        shutil.copytree(PACTS, older.folder)
        stated = json.loads(older.pact.read_text())
        for interaction in stated["interactions"]:
            if interaction["description"].startswith("prismline.chunk.process.v1"):
                interaction["contents"]["content"]["data"] |= needs
        older.pact.write_text(json.dumps(stated))
        recorded = Verifications.read(VERIFICATIONS)
        recorded.needs["worker"]["0.9.0"] = {"splitter": pact_digest(stated)}
        recorded.takes["worker"]["0.9.0"] = recorded.takes["worker"][version_of("worker")]
        recorded.write(older.verifications)
        return older

    @property
    def pact(self) -> Path:
        return self.folder / "worker-splitter.json"

    @property
    def kept(self) -> list[Path]:
        """The pacts of older versions."""
        return sorted(self.folder.glob("older/*"))


@pytest.fixture
def nobody_writes_pacts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the committed pacts as the current ones."""
    monkeypatch.setattr(pacts, "write_pacts", lambda folder: shutil.copytree(PACTS, folder, dirs_exist_ok=True))


@pytest.mark.usefixtures("nobody_writes_pacts")
def test_a_pact_of_an_older_version_is_kept_and_the_producers_of_now_are_verified_against_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = Older.create(tmp_path, {"attempt": 1})
    monkeypatch.setattr(pacts, "VERIFICATIONS", older.verifications)
    stated = older.pact.read_text()
    replace_pacts(older.folder)
    assert json.loads(older.pact.read_text()) == json.loads((PACTS / "worker-splitter.json").read_text())
    assert [json.loads(path.read_text()) for path in older.kept] == [json.loads(stated)]
    verify("splitter", older.folder)


@pytest.mark.usefixtures("nobody_writes_pacts")
def test_a_producer_that_breaks_an_older_version_is_told_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = Older.create(tmp_path, {"weight": 2.5})
    monkeypatch.setattr(pacts, "VERIFICATIONS", older.verifications)
    replace_pacts(older.folder)
    (kept,) = older.kept
    assert kept.name.startswith("worker-splitter.")
    with pytest.raises(pacts.UnkeptError) as raised:
        verify("splitter", older.folder)
    assert "splitter does not send what worker 0.9.0 needs" in str(raised.value)
    assert "weight" in str(raised.value)
    kept.unlink()
    verify("splitter", older.folder)


@pytest.mark.usefixtures("nobody_writes_pacts")
def test_a_splitter_may_be_deployed_beside_an_older_worker_whose_pact_it_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    older = Older.create(tmp_path, {"attempt": 1})
    monkeypatch.setattr(pacts, "VERIFICATIONS", older.verifications)
    monkeypatch.setattr(pacts, "producers", lambda _: ["splitter"])
    replace_pacts(older.folder)
    (tmp_path / "prod").mkdir()
    folder = deployed(tmp_path / "prod", worker="0.9.0")
    ask = ["--contracts", str(folder), "can-i-deploy", "splitter", now("splitter"), "--to", "prod"]
    shutil.copy(older.verifications, folder)
    assert main(ask) == 1
    assert "worker 0.9.0, which is in prod, needs messages of splitter" in capsys.readouterr().err
    verify_all(older.folder).write(folder / "verifications.json")
    assert main(ask) == 0


# ---- can-i-deploy, with the current pacts


def deployed(tmp_path: Path, **versions: str) -> Path:
    """A folder `contracts` whose record says that these versions are deployed in `prod`."""
    (tmp_path / "deployed").mkdir()
    record = {service.replace("_", "-"): {"version": version} for service, version in versions.items()}
    (tmp_path / "deployed/prod.json").write_text(json.dumps(record))
    shutil.copy(VERIFICATIONS, tmp_path)
    return tmp_path


def now(service: str) -> str:
    return version_of(service)


def test_the_versions_of_now_may_be_deployed_beside_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    services = ("splitter", "status", "dlq_consumer", "worker")
    folder = deployed(tmp_path, **{name: now(name.replace("_", "-")) for name in services})
    assert main(["--contracts", str(folder), "can-i-deploy", "worker", now("worker"), "--to", "prod"]) == 0
    assert "works with what is in prod: dlq-consumer" in capsys.readouterr().out


def test_what_a_deployment_records_is_read() -> None:
    before, now = (Release(version=version, code={}, deployed_at=timestamp()) for version in ("1.2.0", "1.3.0"))
    written = first(before, ["worker"]).replaced_by(now, ["worker"])
    printed = {"Parameters": [{"Name": "/prismline/prod/deployed/worker", "Value": written.model_dump_json()}]}
    assert read_deployed(json.dumps(printed))["worker"].version == "1.3.0"


def test_a_worker_may_not_be_deployed_beside_a_splitter_that_nobody_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = deployed(tmp_path, splitter="0.9.0", status=now("status"))
    assert main(["--contracts", str(folder), "can-i-deploy", "worker", now("worker"), "--to", "prod"]) == 1
    output = capsys.readouterr().err
    assert "Nothing was verified for splitter 0.9.0, which is in prod." in output
    assert "status" not in output
