"""Every function runs with the credentials of its own role, on an emulator that enforces IAM policies."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from botocore.exceptions import ClientError

from prismline_emulator.permissions import LOG_VARIABLE, Decision, read_decisions
from prismline_localstack.api_keys import read_api_key
from prismline_localstack.standins.site import Site
from prismline_localstack.testing import serving
from tests.cubes import write_cube
from tests.invariants import assert_invariants
from tests.system import PATIENCE, System, wait_for

pytestmark = pytest.mark.e2e

#: Grants that the runs below do not use: `<service> <role> <action> <resource>` as a pattern, and the reason.
NOT_USED_HERE = {
    r".* (logs|xray):.*": "Lambda and Step Functions log and trace on AWS only",
    r".* sqs:(ReceiveMessage|DeleteMessage|GetQueueAttributes) .*": "Lambda receives with the rights of the function",
    r".* sqs:ChangeMessageVisibility .*": "a handler hides a message that it wants later",
    r".* sqs:(SendMessage|GetQueueUrl) .*-dlq": "a handler gives up a message",
    r"(worker|splitter) FunctionRole s3:GetObject ": "the parameter SourceObjects names nothing",
    r"status StateMachineRole .*": "the emulator calls for the state machine without asking",
    r"dlq-consumer FunctionRole (sqs|s3|states|ec2|dynamodb|events):.*": "nothing becomes a dead letter here",
    r"alerting .*": "the test sends no alert and no slash command",
    r"webhooks WebhooksRole .*": "no job here has a webhook",
    r"api ApiRole (cloudwatch|sqs|ssm):.*": "the console is not opened",
    r"api ApiRole dynamodb:(BatchGetItem|Query|Scan) .*": "nothing is listed here",
    r"api ApiRole s3:(GetObject|ListBucket) .*": "links are signed, not fetched; no spectra are submitted over HTTP",
    r"(worker|exporter|splitter) \w+ s3:AbortMultipartUpload .*": "no upload is broken off",
    r"splitter FunctionRole s3:(GetObject|DeleteObject) .*/(\w+)/\*": "not all workloads and deletions run here",
    r"splitter FunctionRole sqs:\w+ .*-tasks-\*": "no run here is large enough for a queue of its own",
    r"splitter FunctionRole (s3:ListBucket|sqs:(SendMessage|GetQueueUrl)) .*": "a deletion waits only for open runs",
    r"splitter FunctionRole dynamodb:\w+ .*": "what is written depends on the size of a run",
    r"worker FunctionRole s3:\w+ .*": "no captions, no refits, no chunks that refer to a cube",
    r"worker FunctionRole sqs:(SendMessage|GetQueueUrl) .*": "nothing waits for a slot, nothing is fitted again",
    r"worker FunctionRole ec2:.*": "captions ask for the GPU",
    r"exporter ExporterRole s3:(GetObject|DeleteObject|ListBucket) .*": "only pages are exported",
    r"exporter ExporterRole (sqs:SendMessage|sqs:GetQueueUrl|dynamodb:GetItem) .*": "the export ends in one message",
    r"exporter ExporterRole dynamodb:UpdateItem .*-runs": "no message raises what nobody expected",
    r"status FunctionRole states:(SendTaskFailure|StopExecution) .*": "nothing is cancelled before",
    r"status FunctionRole dynamodb:PutItem .*-runs": "no run is cancelled before it is split",
    r"status FunctionRole sqs:GetQueueUrl .*": "nothing is sent to itself",
}

BUCKET, DEPLOYMENTS = "prismline-local-000000000000-us-east-1", "prismline-local-deploy-000000000000-us-east-1"
Attempt = Callable[[Any], Any]


def put(key: str, bucket: str = BUCKET) -> Attempt:
    return lambda session: session.client("s3").put_object(Bucket=bucket, Key=key, Body=b"")


def get(key: str) -> Attempt:
    return lambda session: session.client("s3").get_object(Bucket=BUCKET, Key=key)


def send(queue: str) -> Attempt:
    return lambda session: session.client("sqs").send_message(
        QueueUrl=f"{os.environ['AWS_ENDPOINT_URL']}/000000000000/prismline-local-{queue}", MessageBody="{}"
    )


def delete_item(table: str, key: str = "PK") -> Attempt:
    return lambda session: session.client("dynamodb").delete_item(
        TableName=f"prismline-local-{table}",
        Key={name: {"S": "x"} for name in ((key, "SK") if key == "PK" else (key,))},
    )


def read_parameter(name: str) -> Attempt:
    return lambda session: session.client("ssm").get_parameter(Name=f"/prismline/local/{name}")


def mute(session: Any) -> Any:
    name = "/prismline/local/alerts/dlq_muted_until"
    return session.client("ssm").put_parameter(Name=name, Value="1", Type="String", Overwrite=True)


def start_run(session: Any) -> Any:
    arn = "arn:aws:states:us-east-1:000000000000:stateMachine:prismline-local-run"
    return session.client("stepfunctions").start_execution(stateMachineArn=arn)


#: Actions that a role without a list of its own must not be able to do.
REFUSED_TO_ANY: dict[str, Attempt] = {
    "submit a manifest": put("manifests/x.json"),
    "register a function": put("workloads/x.json"),
    "change the archive": put("dead-letter-archive/sqs/x"),
    "change a deployment": put("x", DEPLOYMENTS),
    "start a run": start_run,
    "split": send("split"),
    "delete from the ledger": delete_item("runs"),
    "read the webhook's URL": read_parameter("alerts/webhook_url"),
}
#: Actions that each of these roles must not be able to do.
REFUSED: dict[str, dict[str, Attempt]] = {
    "worker FunctionRole": {
        "submit a manifest": put("manifests/x.json"),
        "register a function": put("workloads/x.json"),
        "change the archive": put("dead-letter-archive/sqs/x"),
        "change an input": put("chunks/x"),
        "change a deployment": put("x", DEPLOYMENTS),
        "split": send("split"),
        "delete from the ledger": delete_item("runs"),
        "read the webhook's URL": read_parameter("alerts/webhook_url"),
    },
    "splitter FunctionRole": {
        "write a result": put("decompositions/x.parquet"),
        "change the archive": put("dead-letter-archive/sqs/x"),
        "submit a manifest": put("manifests/x.json"),
        "change a deployment": put("x", DEPLOYMENTS),
        "update a status": send("status"),
    },
    "status FunctionRole": {"read a cube": get("cubes/x"), "split": send("split"), "forget a run": delete_item("runs")},
    "status StateMachineRole": {"read a cube": get("cubes/x"), "send a chunk": send("chunks")},
    "dlq-consumer FunctionRole": {
        "write a result": put("results/x"),
        "start a run": start_run,
        "delete from the ledger": delete_item("runs"),
        "read the webhook's URL": read_parameter("alerts/webhook_url"),
    },
    "alerting NotifierRole": {"read a cube": get("cubes/x"), "split": send("split"), "change a post": put("alerts/x")},
    "alerting InteractionsRole": {
        "read the webhook's URL": read_parameter("alerts/webhook_url"),
        "read a cube": get("cubes/x"),
        "alert": send("alerts"),
    },
    "api ApiRole": {
        "write a result": put("results/x"),
        "change the archive": put("dead-letter-archive/sqs/x"),
        "start a run": start_run,
        "read the webhook's URL": read_parameter("alerts/webhook_url"),
    },
    "webhooks WebhooksRole": {
        "read a result": get("results/x"),
        "delete a job": delete_item("jobs"),
        "split": send("split"),
    },
    "exporter ExporterRole": {
        "write a result": put("results/x"),
        "delete a job": delete_item("jobs"),
        "fetch": send("tasks"),
    },
}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("iam") / "decisions.jsonl"


@pytest.fixture(scope="module")
def enforced(tmp_path_factory: pytest.TempPathFactory, log: Path) -> Iterator[System]:
    """A system whose services are functions that may only do what their roles allow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOG_VARIABLE, str(log))
        with System.running(tmp_path_factory.mktemp("enforced"), patch, functions=True) as running:
            yield running


def roles(system: System) -> dict[str, str]:
    """The generated names of the roles, by `<service> <logical id>`."""
    iam = boto3.client("iam")
    pattern = re.compile(rf"prismline-{system.connection.environment}-([a-z-]+)-(\w+Role)-")
    found = (
        pattern.match(role["RoleName"]) for page in iam.get_paginator("list_roles").paginate() for role in page["Roles"]
    )
    return {f"{match[1]} {match[2]}": match.string for match in found if match}


def grants(role: str) -> Iterator[tuple[str, str]]:
    """Every action and resource pattern that the policies of a role allow."""
    iam = boto3.client("iam")
    for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        document: Any = iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        document = json.loads(document) if isinstance(document, str) else document
        for statement in document["Statement"]:
            actions, resources = (
                each if isinstance(each, list) else [each] for each in (statement["Action"], statement["Resource"])
            )
            yield from ((action, resource) for action in actions for resource in resources)


@pytest.fixture(scope="module")
def decisions(enforced: System, log: Path, tmp_path_factory: pytest.TempPathFactory) -> set[Decision]:
    """The allowed and denied requests during runs of all kinds."""
    with serving(Site()) as site:
        run_all_kinds(enforced, write_cube(tmp_path_factory.mktemp("cube") / "cube.fits", ny=4, nx=5), site)
    return read_decisions(log)


def run_all_kinds(enforced: System, path: Path, site: str) -> None:
    """Run a cube, lists of URLs and a missing cube; export and delete a job; register a function."""
    cube = enforced.submit(path, chunk_size=5)
    key = read_api_key(Path(enforced.faults_file.parent) / "home" / "api-key")
    api = httpx.Client(
        base_url=f"{os.environ['PRISMLINE_API_URL']}/v1", headers={"Authorization": f"Bearer {key}"}, timeout=60
    )

    def ended(run_id: str) -> Any:
        def look() -> Any:
            run = api.get(f"/runs/{run_id}").raise_for_status().json()
            return run if run["status"] in {"completed", "failed", "cancelled"} else None

        return wait_for(look, f"the end of run {run_id}")

    urls = [f"{site}/page/{number}" for number in range(8)]
    listed = api.post("/jobs", json={"workload": "urls", "name": "pages", "urls": urls}).raise_for_status().json()
    body = "\n".join([*urls, "this is no URL"]).encode()
    upload = api.post("/uploads", json={"format": "text", "size_bytes": len(body)}).raise_for_status().json()
    httpx.put(upload["url"], content=body, headers=upload["headers"]).raise_for_status()
    job = {"workload": "urls", "name": "uploaded", "upload": upload["upload_id"]}
    uploaded = api.post("/jobs", json=job).raise_for_status().json()
    missing = enforced.submit("s3://" + enforced.connection.bucket + "/cubes/none.fits", chunk_size=5)

    limits = {"timeout": 60, "attempts": 3, "batch": 20, "memory": 2048, "processes": 64, "files": 1024}
    function = {"name": "measure", "code": "0" * 64, "item": {}, "parameters": {}, "limits": limits}
    api.post("/workloads", json=function).raise_for_status()

    view = enforced.wait(cube)
    assert (view.status, view.completed, view.failed) == ("completed", 4, 0)
    assert_invariants(enforced, cube, nx=5)
    assert ended(listed["run"]["run_id"])["counts"]["completed"] == 8
    assert ended(uploaded["run"]["run_id"])["n_rejected"] == 1
    assert enforced.wait(missing).status == "failed"
    export = api.post(f"/runs/{listed['run']['run_id']}/export", json={}).raise_for_status().json()
    wait_for(
        lambda: (
            api.get(f"/runs/{listed['run']['run_id']}/exports/{export['export_id']}").json()["status"] == "completed"
        ),
        "the export",
    )
    api.delete(f"/jobs/{uploaded['job_id']}").raise_for_status()
    wait_for(lambda: api.get(f"/jobs/{uploaded['job_id']}").status_code == 404, "the job to be deleted")
    files = enforced.connection.s3.list_objects_v2(Bucket=enforced.connection.bucket, Prefix="uploads/")
    assert "Contents" not in files


def test_runs_of_all_kinds_need_no_right_that_a_role_lacks(decisions: set[Decision]) -> None:
    assert [decision for decision in decisions if not decision.allowed] == []


@dataclass(frozen=True)
class Person:
    """A person who has assumed a role and uses the command line."""

    variables: dict[str, str]

    @classmethod
    def with_role(cls, role: str, home: Path) -> Person:
        found = session_of(f"prismline-local-{role}-us-east-1").get_credentials()
        assert found is not None
        keys = {
            "AWS_ACCESS_KEY_ID": found.access_key,
            "AWS_SECRET_ACCESS_KEY": found.secret_key,
            "AWS_SESSION_TOKEN": found.token or "",
            "PRISMLINE_HOME": str(home),  # no system runs in this home; only credentials, address and key matter
            "PRISMLINE_API_KEY": (Path(os.environ["PRISMLINE_HOME"]) / "api-key").read_text().strip(),
        }
        return cls(dict(os.environ) | keys)

    def types(self, *arguments: str, expect: int = 0) -> str:
        """Run `prismline`. Return what it prints."""
        command = [str(Path(sys.executable).with_name("prismline")), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False, env=self.variables
        )
        assert done.returncode == expect, f"{arguments}: {done.returncode}: {done.stderr}"
        return done.stdout + done.stderr


def test_a_submitter_submits_follows_and_fetches_and_may_do_no_more(enforced: System, tmp_path: Path) -> None:
    submitter = Person.with_role("submitter", tmp_path / "home")
    cube = write_cube(tmp_path / "cube.fits", ny=2, nx=3)
    run_id = submitter.types("submit", str(cube), "--survey", "mine").split()[0]
    assert enforced.wait(run_id).status == "completed"
    assert "completed" in submitter.types("run", run_id).lower()
    assert run_id in submitter.types("runs")
    submitter.types("results", run_id, "--to", str(tmp_path / "out"))
    refused = (get("dead-letter-archive/sqs/x"), put("decompositions/x"), delete_item("runs"), send("split"), mute)
    for attempt in refused:
        with pytest.raises(ClientError, match="AccessDenied"):
            attempt(session_of("prismline-local-submitter-us-east-1"))


def test_an_operator_mutes_cancels_retries_and_recovers(enforced: System, tmp_path: Path) -> None:
    operator = Person.with_role("operator", tmp_path / "home")
    operator.types("alerts", "mute", "1h")
    operator.types("alerts", "unmute")
    operator.types("deadletters", "stats")
    operator.types("deadletters", "recover", "--dry-run", "--wait")
    enforced.set_faults([{"point": "chunk.started", "action": "hang", "seconds": 5.0}])
    run_id = enforced.submit(write_cube(tmp_path / "cube.fits", ny=4, nx=5), chunk_size=1)
    wait_for(lambda: enforced.events(run_id, "chunk.completed"), "the first chunk to complete")
    operator.types("cancel", run_id)
    wait_for(lambda: enforced.item(run_id).ended_status == "cancelled", "the end of the run to be recorded")
    enforced.set_faults([])
    operator.types("retry", run_id, "--cancelled")
    wait_for(lambda: enforced.item(run_id).uncancelled_at, "the run to go on")
    with pytest.raises(ClientError, match="AccessDenied"):
        put("dead-letter-archive/sqs/x")(session_of("prismline-local-operator-us-east-1"))
    with pytest.raises(ClientError, match="AccessDenied"):
        delete_item("runs")(session_of("prismline-local-operator-us-east-1"))


def test_what_is_granted_is_used_or_has_a_reason(enforced: System, decisions: set[Decision]) -> None:
    unused = [
        f"{name} {action} {resource}"
        for name, role in roles(enforced).items()
        for action, resource in grants(role)
        if not any(used(decision, role, action, resource) for decision in decisions)
    ]
    assert [grant for grant in unused if not any(re.fullmatch(pattern, grant) for pattern in NOT_USED_HERE)] == []


def used(decision: Decision, role: str, action: str, resource: str) -> bool:
    return (decision.principal, decision.action) == (role, action) and fnmatchcase(decision.resource, resource)


def session_of(role: str) -> boto3.Session:
    """A session with the credentials of a role."""
    arn = f"arn:aws:iam::000000000000:role/{role}"
    found = boto3.client("sts").assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]
    return boto3.Session(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])


def refuses(role: str, attempt: Attempt) -> bool:
    """Whether the role is refused an attempt."""
    try:
        attempt(session_of(role))
    except ClientError as error:
        return "AccessDenied" in error.response["Error"]["Code"]
    return False


def test_a_role_without_a_list_is_refused_what_few_may_do(enforced: System) -> None:
    found = roles(enforced)
    assert set(REFUSED) <= set(found)
    for role in (set(found) - set(REFUSED)) | {"exporter ExporterRole"}:
        for what, attempt in REFUSED_TO_ANY.items():
            assert refuses(found[role], attempt), f"{role} may {what}"


@pytest.mark.parametrize(("role", "what"), [(role, what) for role, attempts in REFUSED.items() for what in attempts])
def test_a_role_is_refused_what_is_not_its_own(enforced: System, role: str, what: str) -> None:
    assert refuses(roles(enforced)[role], REFUSED[role][what])
