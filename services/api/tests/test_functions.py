"""Jobs of functions over HTTP: the registration decides whether a job fits, and a refusal names the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from api_world import Api, ApiWorld

from prismline_contracts.commands import queue_name
from prismline_contracts.finalization import Finalization
from prismline_contracts.jobs import TenantItem
from prismline_contracts.pools import pool_of, pool_queue
from prismline_contracts.tasks import TaskValue
from prismline_contracts.workloads import FunctionManifest, RegisteredWorkload, latest_workload_key, workload_key
from prismline_ledger import TaskEnding
from prismline_ledger.testing import ingest_run
from prismline_localstack.standins.site import Site

pytestmark = pytest.mark.emulator

CODE, OLDER = "a" * 64, "b" * 64
ITEM = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
PARAMETERS = {
    "type": "object",
    "properties": {"threshold": {"type": "number"}},
    "required": ["threshold"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def registered(world: ApiWorld) -> None:
    limits = {"timeout": 60.0, "attempts": 3, "batch": 20, "memory": 2048, "processes": 64, "files": 1024}
    for code in (OLDER, CODE):
        document = {"name": "measure", "code": code, "item": ITEM, "parameters": PARAMETERS, "limits": limits}
        each = RegisteredWorkload.model_validate({**document, "registered_at": "2026-03-01T12:00:00.000Z"})
        for key in (workload_key("measure", code), latest_workload_key("measure")):
            world.deps.bucket.write(key, each.model_dump_json().encode())


def job(**fields: Any) -> dict[str, Any]:
    source = {"kind": "inline", "items": [{"path": "a.fits"}, {"path": "b.fits"}]}
    return {"workload": "measure", "name": "night", "source": source, "params": {"threshold": 4}} | fields


def test_what_may_be_submitted_is_listed_with_its_schemas(acme: Api) -> None:
    found = {each["name"]: each for each in acme.get("/workloads")["items"]}
    assert sorted(found) == ["captions", "measure", "spectra", "urls"]
    assert (found["measure"]["kind"], found["measure"]["code"]) == ("function", CODE)
    assert (found["measure"]["item"], found["measure"]["parameters"]) == (ITEM, PARAMETERS)
    assert "timeout_s" in found["urls"]["parameters"]["properties"]


def test_a_job_is_accepted_and_its_run_is_pinned_to_the_latest_code(world: ApiWorld, acme: Api) -> None:
    accepted = acme.post("/jobs", job(priority=7), expect=202)
    assert accepted["run"]["unit"] == "task"
    (message,) = [each for each in world.received("split") if not each["data"]["in_advance"]]
    manifest = FunctionManifest.model_validate_json(world.deps.bucket.read(message["data"]["manifest_key"]))
    assert (manifest.code, manifest.priority, manifest.tenant) == (CODE, 7, "acme")
    assert manifest.params.values == {"threshold": 4}


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"workload": "mesure"}, "workload: there is no workload 'mesure'. Choose one of captions, measure, spectra"),
        ({"code": "c" * 64}, "with the code cccccccccccc"),
        ({"params": {"threshold": "high"}}, "params.threshold: 'high' is not of type 'number'"),
        ({"params": {}}, "params: 'threshold' is a required property"),
        ({"params": {"threshold": 1, "colour": 2}}, "'colour' was unexpected"),
        ({"source": {"kind": "inline", "items": [{"path": "a"}, {"path": 7}]}}, "source.items.1.path: 7 is not"),
        ({"source": {"kind": "object", "key": "chunks/x"}}, "'chunks/x' is not among the sources of your tenant"),
        ({"source": {"kind": "object", "key": "cubes/globex/x"}}, "is in the folder of another tenant"),
        ({"source": {"kind": "object", "key": "cubes/acme/x"}}, "source.key: there is no object"),
        ({"source": {"kind": "object", "key": "cubes/acme/x", "bucket": "other"}}, "source.bucket"),
        ({"source": {"kind": "prefix", "prefix": "cubes/globex/"}}, "is in the folder of another tenant"),
        ({"source": {"kind": "prefix", "prefix": "cubes/glo"}}, "source.prefix"),
        ({"source": {"kind": "prefix", "prefix": "cubes/"}}, "source.prefix"),
        ({"pool": "green"}, "pool: There is no pool green in this environment."),
        ({"pool": "a_b"}, "pool"),
        ({"source": {"kind": "inventory", "key": "cubes/acme/manifest.json"}}, "source.kind"),
    ],
)
def test_a_job_that_does_not_fit_is_refused_with_the_field(world: ApiWorld, fields: dict[str, Any], named: str) -> None:
    world.put("jobs", TenantItem(SK="globex").model_dump(exclude_none=True))
    acme = world.caller()
    answer = acme.post("/jobs", job(**fields), expect=422)
    assert named in answer["detail"]
    assert acme.get("/jobs")["items"] == []


def test_a_job_and_its_reruns_belong_to_the_pool_that_it_names(world: ApiWorld, acme: Api) -> None:
    boto3.client("sqs").create_queue(QueueName=queue_name(world.deps.settings.environment, pool_queue("red")))
    accepted = acme.post("/jobs", job(pool="red"), key="k", expect=202)
    run_id = accepted["run"]["run_id"]
    ingest_run(world.deps.ledger, run_id, ['{"path":"a"}'], workload="measure", code=CODE)
    run = world.deps.ledger.run(run_id)
    world.deps.ledger.end_tasks(run, [TaskEnding(task, error="no") for task in world.deps.ledger.tasks(run)])
    again = acme.post(f"/jobs/{accepted['job_id']}/rerun", {"only": "failed"}, expect=202)["run_id"]
    messages = world.received("split")
    manifests = [world.deps.bucket.read(message["data"]["manifest_key"]) for message in messages]
    assert {FunctionManifest.model_validate_json(each).pool for each in manifests} == {"red"}
    assert [pool_of(each) for each in (run_id, again)] == ["red", "red"]
    assert run_id != again
    assert acme.get(f"/runs/{again}")["run_id"] == again


def test_a_task_shows_its_item_and_the_value_of_the_function(world: ApiWorld, acme: Api) -> None:
    accepted = acme.post("/jobs", job(), expect=202)
    run_id = accepted["run"]["run_id"]
    sources = [json.dumps({"path": "a.fits"}), json.dumps({"path": "b.fits"})]
    ingest_run(world.deps.ledger, run_id, sources, workload="measure", code=CODE)
    run = world.deps.ledger.run(run_id)
    first, second = sorted(world.deps.ledger.tasks(run), key=lambda task: task.index)
    value = TaskValue(text='{"n":3}', length=7)
    world.deps.ledger.end_tasks(
        run,
        [
            TaskEnding(first, result=value, duration_ms=5, code=CODE),
            TaskEnding(second, error="no", error_type="ValueError", duration_ms=5, code=CODE),
        ],
    )
    shown = {task["index"]: task for task in acme.get(f"/runs/{run_id}/tasks")["items"]}
    assert (shown[0]["item"], shown[0]["value"], shown[0]["code"]) == ({"path": "a.fits"}, {"n": 3}, CODE)
    assert (shown[1]["error"], shown[1]["error_type"]) == ("no", "ValueError")
    assert "url" not in shown[0]


@pytest.mark.parametrize(("asked", "code"), [("same", OLDER), ("latest", None)])
def test_a_rerun_of_the_failed_keeps_the_code_unless_the_latest_is_asked_for(
    world: ApiWorld, acme: Api, asked: str, code: str | None
) -> None:
    accepted = acme.post("/jobs", job(code=OLDER), expect=202)
    run_id = accepted["run"]["run_id"]
    ingest_run(world.deps.ledger, run_id, ['{"path":"a"}'], workload="measure", code=OLDER)
    run = world.deps.ledger.run(run_id)
    world.deps.ledger.end_tasks(run, [TaskEnding(task, error="no") for task in world.deps.ledger.tasks(run)])
    world.received("split")
    acme.post(f"/jobs/{accepted['job_id']}/rerun", {"only": "failed", "code": asked}, expect=202)
    (message,) = world.received("split")
    manifest = FunctionManifest.model_validate_json(world.deps.bucket.read(message["data"]["manifest_key"]))
    assert manifest.code == code
    assert manifest.rerun is not None


def test_a_retry_with_the_latest_code_names_its_digest(world: ApiWorld, acme: Api) -> None:
    run_id = acme.post("/jobs", job(code=OLDER), expect=202)["run"]["run_id"]
    wanted = {"run_id": run_id, "retry": True, "code": "latest"}
    world.announced()
    acme.post("/dead-letters/recover", wanted, expect=202)
    (event,) = world.announced()
    assert event["data"]["code"] == CODE
    acme.post("/dead-letters/recover", wanted | {"retry": False}, expect=422)
    acme.post("/dead-letters/recover", wanted | {"code": OLDER}, expect=422)


REGISTRATION = {
    "name": "seeing:measure",
    "code": CODE,
    "item": ITEM,
    "parameters": PARAMETERS,
    "limits": {"timeout": 60.0, "attempts": 3, "batch": 20, "memory": 2048, "processes": 64, "files": 1024},
    "local": {"python": "/usr/bin/python3", "paths": ["/tmp"]},
}


def test_a_function_of_a_machine_is_registered_only_there_and_an_installed_one_with_the_scope_all(
    world: ApiWorld,
) -> None:
    acme = world.caller()
    refused = acme.post("/workloads", REGISTRATION, expect=403)
    assert "Install the function in the image of the workers" in refused["detail"]
    installed = {name: value for name, value in REGISTRATION.items() if name != "local"}
    refused = world.caller(scopes=("read", "submit")).post("/workloads", installed, expect=403)
    assert "a key with the scope all" in refused["detail"]
    operator = world.caller(scopes=("submit", "all"))
    refused = operator.post("/workloads", installed, expect=422)
    assert "no worker finds seeing:measure by its name" in refused["detail"]
    assert world.keys("workloads/seeing") == []
    shown = operator.post("/workloads", installed | {"name": "measuring"}, expect=201)
    assert (shown["name"], shown.get("local")) == ("measuring", None)
    operator.post("/workloads", REGISTRATION, expect=403)
    world.caller(scopes=("read", "operate", "all")).post("/workloads", installed | {"name": "measuring"}, expect=403)
    world.deps.settings.functions_local = True
    shown = acme.post("/workloads", REGISTRATION, expect=201)
    assert (shown["name"], shown["code"], shown["kind"]) == ("seeing:measure", CODE, "function")
    for key in (workload_key("seeing:measure", CODE), latest_workload_key("seeing:measure")):
        kept = RegisteredWorkload.model_validate_json(world.deps.bucket.read(key))
        assert (kept.local is not None and kept.local.paths, kept.parameters) == (["/tmp"], PARAMETERS)
    acme.post("/jobs", job(workload="seeing:measure"), expect=202)
    acme.post("/workloads", REGISTRATION | {"name": "urls"}, expect=422)
    answer = acme.post("/workloads", REGISTRATION | {"item": {"type": "nonsense"}}, expect=422)
    assert "item: 'nonsense' is not valid" in answer["detail"]
    world.caller(scopes=("read",)).post("/workloads", REGISTRATION, expect=403)


def test_a_schema_makes_the_api_fetch_nothing(
    world: ApiWorld, acme: Api, site: tuple[str, Site], tmp_path: Path
) -> None:
    address, asked = site[0], site[1].counts
    (tmp_path / "schema.json").write_text('{"type": "string"}')
    world.deps.settings.functions_local = True
    for ref in (f"{address}/page/1", f"file://{tmp_path}/schema.json", "#/$defs/missing", "#"):
        acme.post("/workloads", REGISTRATION | {"item": {"$ref": ref}}, expect=201)
        refused = acme.post("/jobs", job(workload="seeing:measure"), expect=422)
        assert "source.items.0: the function's schema refers to what it does not have" in refused["detail"]
    assert not asked
    within = {"$ref": "#/$defs/it", "$defs": {"it": ITEM}}
    acme.post("/workloads", REGISTRATION | {"item": within}, expect=201)
    acme.post("/jobs", job(workload="seeing:measure"), expect=202)


@pytest.mark.parametrize(
    ("finalization", "shown", "ended"),
    [
        (Finalization(), {"status": "pending", "attempts": 0}, False),
        (
            Finalization(status="COMPLETED", drains=1, attempts=1, value=TaskValue(text='{"n":3}', length=7)),
            {"status": "completed", "attempts": 1, "value": {"n": 3}},
            True,
        ),
        (
            Finalization(status="FAILED", drains=1, attempts=3, error="a bug", error_type="ValueError"),
            {"status": "failed", "attempts": 3, "error": "a bug", "error_type": "ValueError"},
            True,
        ),
    ],
)
def test_a_run_shows_how_far_its_finalization_has_come(
    world: ApiWorld, acme: Api, finalization: Finalization, shown: dict[str, Any], ended: bool
) -> None:
    run_id = acme.post("/jobs", job(), expect=202)["run"]["run_id"]
    text = finalization.as_json()
    ingest_run(world.deps.ledger, run_id, ['{"path":"a"}'], workload="measure", code=CODE, finalization=text)
    run = world.deps.ledger.run(run_id)
    value = TaskValue(text="1", length=1)
    world.deps.ledger.end_tasks(run, [TaskEnding(task, result=value) for task in world.deps.ledger.tasks(run)])
    world.set_status(run_id, "completed")
    view = acme.get(f"/runs/{run_id}")
    assert {name: each for name, each in view["finalization"].items() if each is not None} == shown
    assert view["ended"] is ended
    assert ("finalizing" in {each["name"] for each in view["conditions"]}) is not ended
    failed = finalization.status == "FAILED"
    assert view["warnings"] == (["`finalize` has failed: a bug"] if failed else [])
    assert {each["name"]: each["allowed"] for each in view["actions"]}["retry"] is failed


@pytest.mark.parametrize(("code", "keeps"), [(OLDER, True), (CODE, False)])
def test_a_run_that_keeps_an_earlier_code_alive_says_so(world: ApiWorld, acme: Api, code: str, keeps: bool) -> None:
    run_id = acme.post("/jobs", job(code=code), expect=202)["run"]["run_id"]
    ingest_run(world.deps.ledger, run_id, ['{"path":"a"}'], workload="measure", code=code)
    found = {each["name"]: each["sentence"] for each in acme.get(f"/runs/{run_id}")["conditions"]}
    assert ("keeps_code" in found) is keeps
    assert not keeps or f"prismline retry {run_id} --code latest" in found["keeps_code"]


def test_earlier_code_that_runs_need_is_listed_with_them(world: ApiWorld, acme: Api) -> None:
    runs = {code: acme.post("/jobs", job(code=code), expect=202)["run"]["run_id"] for code in (OLDER, CODE)}
    for code, run_id in runs.items():
        ingest_run(world.deps.ledger, run_id, ['{"path":"a"}'], workload="measure", code=code)

    def earlier(caller: Api) -> Any:
        (found,) = [each for each in caller.get("/workloads")["items"] if each["name"] == "measure"]
        return found["earlier"]

    assert earlier(acme) == [{"code": OLDER, "run_ids": [runs[OLDER]]}]
    assert earlier(world.caller("globex")) == [], "another tenant"
    run = world.deps.ledger.run(runs[OLDER])
    value = TaskValue(text="1", length=1)
    world.deps.ledger.end_tasks(run, [TaskEnding(task, result=value) for task in world.deps.ledger.tasks(run)])
    assert earlier(acme) == [], "it needs no code any more"
