"""The whole harness with a small test service: start, crash, stop, recover."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
import valkey

from prismline_emulator.endpoints import accepts
from prismline_localstack.emulator import Emulator
from prismline_localstack.errors import HarnessError, NotRunningError
from prismline_localstack.harness import down, is_up, load_state, logs, status, up
from prismline_localstack.processes import ProcessId
from prismline_localstack.settings import REPOSITORY
from prismline_localstack.state import State
from prismline_localstack.testing import metric_values
from prismline_localstack.waiting import wait_until

pytestmark = pytest.mark.e2e

TEMPLATE = """
Parameters:
  Environment: {Type: String}
Resources:
  DeadLetterQueue:
    Type: AWS::SQS::Queue
    Properties: {QueueName: !Sub "prismline-${Environment}-echo-dlq"}
  Queue:
    Type: AWS::SQS::Queue
    Properties:
      QueueName: !Sub "prismline-${Environment}-echo"
      RedrivePolicy: {deadLetterTargetArn: !GetAtt DeadLetterQueue.Arn, maxReceiveCount: 5}
Outputs:
  EchoQueueName: {Value: !GetAtt Queue.QueueName}
"""

WEB_PYPROJECT = """
[[tool.prismline.processes]]
name = "web"
app = "web:create_app"
settings = { WEB_URL = "{url}/v1" }
"""

#: Answers with the pid of its process. `/slow` takes a second.
WEB = """
import asyncio, os

def create_app():
    async def app(scope, receive, send):
        assert scope["type"] == "http"
        if scope["path"] == "/slow":
            await asyncio.sleep(1)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
    return app
"""

PYPROJECT = """
[[tool.prismline.processes]]
name = "echo"
handler = "echo:handler"
queues = ["echo"]
"""

#: Logs each message to a file and follows its orders: {"say": text, "seconds": duration, "fails": number of receives
#: that fail, "get": a URL to request at the end}. It leaves a temporary folder behind for each message.
HANDLER = """
import json, os, tempfile, time
from pathlib import Path
from urllib.request import urlopen

def note(**what):
    with Path(os.environ["ECHO_FILE"]).open("a") as file:
        file.write(json.dumps({"pid": os.getpid(), **what}) + "\\n")

def handler(event, context):
    failures = []
    for record in event["Records"]:
        order = json.loads(record["body"])
        count = int(record["attributes"]["ApproximateReceiveCount"])
        note(say=order["say"], count=count, did="begin", folder=tempfile.mkdtemp())
        time.sleep(order.get("seconds", 0))
        if count <= order.get("fails", 0):
            failures.append({"itemIdentifier": record["messageId"]})
            continue
        if "get" in order:
            urlopen(order["get"]).read()
        note(say=order["say"], count=count, did="end", env=dict(os.environ))
    return {"batchItemFailures": failures}
"""


class EchoSystem:
    """A checkout with the service `echo`, and a home to run it in."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        self.home = folder / "home"
        self.file = folder / "echo.jsonl"
        service = self.root / "services" / "echo"
        (service / "src").mkdir(parents=True)
        shutil.copytree(REPOSITORY / "platform", self.root / "platform")
        (service / "template.yaml").write_text(TEMPLATE)
        (service / "pyproject.toml").write_text(PYPROJECT)
        (service / "src" / "echo.py").write_text(HANDLER)

    def up(self, **arguments: Any) -> State:
        settings = {"ECHO_FILE": str(self.file), "PRISMLINE_WAIT_SECONDS": "1", **arguments.pop("settings", {})}
        return up(self.home, root=self.root, settings=settings, **arguments)

    def add_web(self, pyproject: str = WEB_PYPROJECT, source: str = WEB) -> None:
        """Add a service that serves HTTP to the checkout."""
        service = self.root / "services" / "web"
        (service / "src").mkdir(parents=True)
        (service / "pyproject.toml").write_text(pyproject)
        (service / "src" / "web.py").write_text(source)

    def send(self, say: str, **order: Any) -> None:
        sqs = load_state(self.home).client("sqs")
        url = sqs.get_queue_url(QueueName="prismline-local-echo")["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody=json.dumps({"say": say, **order}))

    def notes(self, say: str, did: str) -> list[dict[str, Any]]:
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return [note for note in map(json.loads, lines) if (note["say"], note["did"]) == (say, did)]

    def wait_for(self, say: str, did: str, times: int = 1, seconds: float = 20) -> list[dict[str, Any]]:
        assert wait_until(lambda: len(self.notes(say, did)) >= times, seconds), f"{say}: {did} did not come"
        return self.notes(say, did)

    def echo(self) -> ProcessId:
        process = load_state(self.home).processes["echo"].process
        assert process is not None
        return process

    def queue(self) -> tuple[int, int, int]:
        """The numbers of visible messages, of messages in flight and of dead letters."""
        [queue] = status(self.home).queues
        return queue.visible, queue.in_flight, queue.dead_letters

    def written(self, service: str) -> str:
        """The state of an AWS service that the emulator has stored so far."""
        paths = sorted((self.home / "emulator" / "state").glob(f"[0-9]*/{service}.json"))
        return paths[-1].read_text() if paths else ""

    def processes(self) -> list[ProcessId]:
        """All processes: supervisor, emulator, service."""
        state = load_state(self.home)
        processes = [entry.process for entry in state.processes.values() if entry.process]
        return [state.supervisor, *processes]


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EchoSystem]:
    for name in ("AWS_ENDPOINT_URL", "LOCALSTACK_HOST"):
        monkeypatch.delenv(name, raising=False)
    made = EchoSystem(tmp_path)
    yield made
    down(made.home)


def get(url: str) -> str:
    with urlopen(url, timeout=20) as answer:
        body: bytes = answer.read()
        return body.decode()


def port_is_open(endpoint: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(endpoint).port or 0)) == 0


def all_ended(processes: list[ProcessId], seconds: float = 10) -> bool:
    return wait_until(lambda: not any(process.alive for process in processes), seconds)


def test_a_service_gets_its_settings_and_processes_a_message(system: EchoSystem) -> None:
    state = system.up()
    system.send("hello")
    [note] = system.wait_for("hello", "end")
    assert note["pid"] == system.echo().pid
    expected = {
        "AWS_ENDPOINT_URL": state.endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "ENVIRONMENT": "local",
        "RUNS_TABLE": "prismline-local-runs",
        "ECHO_QUEUE_NAME": "prismline-local-echo",
        "POWERTOOLS_SERVICE_NAME": "prismline-echo",
        "OMP_NUM_THREADS": "1",
        "PRISMLINE_WAIT_SECONDS": "1",
        "PRISMLINE_VISIBILITY_SECONDS": "30",
    }
    assert {name: note["env"].get(name) for name in expected} == expected
    assert wait_until(lambda: system.queue() == (0, 0, 0), 5)


def test_a_shell_takes_the_variables_for_aws_tools_from_a_file_while_the_system_runs(system: EchoSystem) -> None:
    state = system.up()
    file = system.home / "environment"
    program = "import boto3; print(boto3.client('sqs').list_queues()['QueueUrls'])"
    command = f'. "{file}" && "{sys.executable}" -c "{program}"'
    printed = subprocess.run(["sh", "-c", command], env={}, capture_output=True, text=True, check=True).stdout
    assert "prismline-local-echo" in printed
    assert state.env["AWS_SECRET_ACCESS_KEY"] not in {"test", ""}
    down(system.home)
    assert not file.exists()


def readable_by_others(home: Path) -> list[str]:
    """The files and folders of a home that other accounts of the machine may read or write."""
    paths = [home, *home.rglob("*")]
    return [str(path.relative_to(home)) for path in paths if path.lstat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]


def test_other_accounts_may_read_nothing_in_the_home(system: EchoSystem) -> None:
    before = os.umask(0o022)
    try:
        state = system.up()
        state.client("s3").put_object(Bucket=state.outputs["BUCKET"], Key="object", Body=b"object")
        system.send("hello")
        system.wait_for("hello", "end")
        assert readable_by_others(system.home) == []
        assert len(list(system.home.rglob("*"))) > 20
    finally:
        os.umask(before)


def test_a_home_that_an_earlier_version_left_open_is_closed(system: EchoSystem) -> None:
    system.home.mkdir(mode=0o755)
    system.home.chmod(0o755)
    system.up()
    assert stat.S_IMODE(system.home.stat().st_mode) == 0o700


def test_a_second_up_changes_nothing_and_down_leaves_no_process(system: EchoSystem) -> None:
    first = system.up()
    processes = system.processes()
    assert len(processes) == 3
    assert system.up() == first
    assert system.processes() == processes
    assert all(process.alive for process in processes)
    assert down(system.home) is True
    assert not any(process.alive for process in processes)
    assert not port_is_open(first.endpoint)
    assert not is_up(system.home)
    with pytest.raises(NotRunningError, match="prismline up"):
        status(system.home)
    assert down(system.home) is False


def test_the_state_of_the_emulator_is_unchanged_after_down_and_up(system: EchoSystem) -> None:
    before = system.up(services=[])
    before.client("s3").put_object(Bucket=before.outputs["BUCKET"], Key="kept", Body=b"object")
    item = {"PK": {"S": "RUN#1"}, "SK": {"S": "META"}}
    before.client("dynamodb").put_item(TableName=before.outputs["RUNS_TABLE"], Item=item)
    system.send("kept")
    down(system.home)
    after = system.up()
    assert after.endpoint == before.endpoint
    assert after.client("s3").get_object(Bucket=after.outputs["BUCKET"], Key="kept")["Body"].read() == b"object"
    assert after.client("dynamodb").scan(TableName=after.outputs["RUNS_TABLE"])["Items"] == [item]
    system.wait_for("kept", "end")


def test_a_killed_service_is_restarted_and_its_message_is_not_lost(system: EchoSystem) -> None:
    system.up(settings={"PRISMLINE_VISIBILITY_SECONDS": "2"})
    system.send("work", seconds=1)
    system.wait_for("work", "begin")
    killed = system.echo()
    killed.signal(signal.SIGKILL)
    [note] = system.wait_for("work", "end")
    assert note["count"] == 2
    assert note["pid"] != killed.pid
    [echo] = [process for process in status(system.home).processes if process.name == "echo"]
    assert (echo.pid, echo.alive, echo.restarts) == (note["pid"], True, 1)


def test_the_wait_before_restarts_of_a_service_that_cannot_start_grows(system: EchoSystem) -> None:
    (system.root / "services" / "echo" / "src" / "echo.py").write_text("raise RuntimeError('no such luck')")
    system.up(settings={"PRISMLINE_RESTART_SECONDS": "1"})
    assert wait_until(lambda: load_state(system.home).processes["echo"].restarts >= 3, 30)
    assert any("no such luck" in line.text for line in logs(system.home, "echo"))
    waits = [json.loads(line.text)["restart_in"] for line in logs(system.home, "supervisor")]
    assert waits[:3] == [0.5, 1.0, 1.0], "the wait does not exceed the longest one"
    (system.root / "services" / "echo" / "src" / "echo.py").write_text(HANDLER)
    system.send("better")
    system.wait_for("better", "end")


def test_on_sigterm_work_in_flight_may_finish(system: EchoSystem) -> None:
    system.up()
    system.send("work", seconds=2)
    system.wait_for("work", "begin")
    system.echo().signal(signal.SIGTERM)
    system.wait_for("work", "end")
    assert wait_until(lambda: system.queue() == (0, 0, 0), 10)
    assert len(system.notes("work", "begin")) == 1


def test_on_sigterm_work_that_takes_too_long_is_released_at_once(system: EchoSystem) -> None:
    system.up(settings={"PRISMLINE_GRACE_SECONDS": "0.5", "PRISMLINE_VISIBILITY_SECONDS": "600"})
    system.send("work", seconds=600)
    system.wait_for("work", "begin")
    system.echo().signal(signal.SIGTERM)
    begun = system.wait_for("work", "begin", times=2)
    assert [note["count"] for note in begun] == [1, 2]
    assert begun[0]["pid"] != begun[1]["pid"]


def test_down_deletes_the_temporary_files_of_work_that_it_cut_short(system: EchoSystem) -> None:
    system.up(settings={"PRISMLINE_GRACE_SECONDS": "0.5"})
    system.send("work", seconds=600)
    [begun] = system.wait_for("work", "begin")
    assert Path(begun["folder"]).is_dir()
    down(system.home)
    assert not Path(begun["folder"]).exists()


def test_a_long_message_is_delivered_once(system: EchoSystem) -> None:
    system.up(settings={"PRISMLINE_VISIBILITY_SECONDS": "4"})
    system.send("long", seconds=10)
    system.wait_for("long", "end")
    assert wait_until(lambda: system.queue() == (0, 0, 0), 5)
    assert len(system.notes("long", "begin")) == 1


def test_only_the_failed_part_of_a_batch_is_received_again_and_becomes_a_dead_letter(system: EchoSystem) -> None:
    system.up(settings={"PRISMLINE_VISIBILITY_SECONDS": "2"})
    system.send("good")
    system.send("better", fails=1)
    system.send("bad", fails=99)
    [better] = system.wait_for("better", "end")
    assert better["count"] == 2
    assert wait_until(lambda: system.queue() == (0, 0, 1), 30)
    assert len(system.notes("good", "begin")) == 1
    assert len(system.notes("bad", "begin")) == 5


def test_systems_in_two_checkouts_do_not_affect_each_other(system: EchoSystem, tmp_path: Path) -> None:
    other = EchoSystem(tmp_path / "elsewhere")
    try:
        with ThreadPoolExecutor() as pool:
            here, there = pool.map(lambda each: each.up(), (system, other))
        assert here.endpoint != there.endpoint
        other.send("there")
        other.wait_for("there", "end")
        assert not system.file.exists()
    finally:
        down(other.home)
    system.send("here")
    system.wait_for("here", "end")


def test_starting_twice_at_once_starts_one_system(system: EchoSystem) -> None:
    with ThreadPoolExecutor() as pool:
        states = [future.result() for future in [pool.submit(system.up) for _ in range(3)]]
    assert len({state.supervisor for state in states}) == 1
    arguments = subprocess.run(
        ["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert sum("prismline_localstack.supervisor" in line and str(system.home) in line for line in arguments) == 1
    assert all(process.alive for process in system.processes())


@pytest.mark.skipif(not Path("/proc").exists(), reason="only Linux ends the children of a killed parent")
def test_a_killed_supervisor_leaves_no_orphan_and_up_recovers(system: EchoSystem) -> None:
    before = system.up()
    system.send("busy", seconds=600)
    system.wait_for("busy", "begin")
    assert wait_until(lambda: '\\"busy\\"' in system.written("sqs"), 20)
    processes = system.processes()
    before.supervisor.signal(signal.SIGKILL)
    assert all_ended(processes)
    with pytest.raises(NotRunningError):
        status(system.home)
    after = system.up()
    assert after.supervisor != before.supervisor
    system.wait_for("busy", "begin", times=2, seconds=120)  # after its visibility timeout


def test_a_stale_state_does_not_harm_a_process_that_reuses_a_pid(system: EchoSystem) -> None:
    state = system.up()
    down(system.home)
    with subprocess.Popen(["sleep", "60"]) as innocent:
        gone = ProcessId(pid=innocent.pid, started="1")
        echo = state.processes["echo"].model_copy(update={"process": gone})
        state.model_copy(update={"supervisor": gone, "processes": {"echo": echo}}).save(system.home / "state.json")
        with pytest.raises(NotRunningError):
            load_state(system.home)
        system.up()
        assert system.echo().alive
        assert innocent.poll() is None
        innocent.kill()


def test_processes_of_a_dead_supervisor_are_ended(system: EchoSystem, tmp_path: Path) -> None:
    state = system.up()
    down(system.home)
    orphan = Emulator.start(tmp_path / "orphan", tmp_path / "orphan.log")
    left = ProcessId.of(orphan.child.pid)
    entry = state.processes["emulator"].model_copy(update={"process": left})
    stale = state.model_copy(update={"processes": {"emulator": entry}})
    stale.save(system.home / "state.json")
    assert down(system.home) is False
    assert all_ended([left])


def test_when_the_emulator_dies_everything_stops_and_status_says_why(system: EchoSystem) -> None:
    state = system.up()
    processes = system.processes()
    emulator = state.processes["emulator"].process
    assert emulator is not None
    emulator.signal(signal.SIGKILL)
    assert all_ended(processes, 20)
    with pytest.raises(NotRunningError, match=r"The emulator ended unexpectedly\. Its log is .*emulator\.log"):
        status(system.home)
    assert system.up().phase == "ready"


def test_a_failed_start_says_why_and_leaves_nothing_running(system: EchoSystem) -> None:
    template = system.root / "services" / "echo" / "template.yaml"
    template.write_text(TEMPLATE.replace("!GetAtt DeadLetterQueue.Arn", "!ImportValue no-such-export"))
    with pytest.raises(HarnessError, match=r"prismline-local-echo .*no-such-export"):
        system.up()
    state = State.load(system.home / "state.json")
    assert state is not None
    assert not state.supervisor.alive
    assert not port_is_open(state.endpoint)


def test_a_service_that_serves_http_answers_once_up_returns_and_the_others_have_its_url(system: EchoSystem) -> None:
    system.add_web()
    state = system.up()
    url = state.url("web")
    entry = {process.name: process for process in status(system.home).processes}["web"]
    assert (entry.url, entry.alive) == (url, True)
    assert get(f"{url}/?token=s3cret") == str(entry.pid)
    system.send("hello")
    [note] = system.wait_for("hello", "end")
    assert note["env"]["WEB_URL"] == state.env["WEB_URL"] == f"{url}/v1"
    down(system.home)
    lines = (system.home / "logs" / "web.log").read_text()
    assert {json.loads(line)["service"] for line in lines.splitlines()} == {"prismline-runtime"}
    assert "s3cret" not in lines
    assert not port_is_open(url)
    with pytest.raises(HarnessError, match="No process echo that serves HTTP"):
        state.url("echo")


def test_settings_of_up_override_those_that_a_process_gives_to_all(system: EchoSystem) -> None:
    system.add_web()
    state = system.up(settings={"WEB_URL": "http://elsewhere"})
    system.send("hello")
    [note] = system.wait_for("hello", "end")
    assert note["env"]["WEB_URL"] == state.env["WEB_URL"] == "http://elsewhere"


def test_a_killed_server_restarts_at_its_address_and_answers_earlier_requests(system: EchoSystem) -> None:
    system.add_web()
    state = system.up()
    killed = state.processes["web"].process
    assert killed is not None
    killed.signal(signal.SIGKILL)
    assert all_ended([killed])
    assert get(state.url("web")) not in {"", str(killed.pid)}
    [web] = [process for process in status(system.home).processes if process.name == "web"]
    assert (web.url, web.restarts) == (state.url("web"), 1)


def test_on_down_requests_may_finish_and_busy_services_still_reach_a_server(system: EchoSystem) -> None:
    system.add_web()
    url = system.up().url("web")
    system.send("work", seconds=2, get=f"{url}/slow")
    system.wait_for("work", "begin")
    with ThreadPoolExecutor() as pool:
        under_way = pool.submit(get, f"{url}/slow")
        down(system.home)
        assert under_way.result()
    system.wait_for("work", "end", seconds=0)


def test_a_server_that_cannot_start_fails_the_start_and_says_where_to_look(system: EchoSystem) -> None:
    system.add_web(source="raise RuntimeError('no such luck')")
    with pytest.raises(HarnessError, match=r"The process web did not start\. The reason is in .*web\.log"):
        system.up()
    assert any("no such luck" in line.text for line in logs(system.home, "web"))
    state = State.load(system.home / "state.json")
    assert state is not None
    assert not port_is_open(state.endpoint)


def test_a_port_in_use_is_an_error_that_names_process_port_and_table(system: EchoSystem) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        system.add_web(WEB_PYPROJECT + f"port = {port}\n")
        with pytest.raises(HarnessError, match=rf"process web cannot listen at port {port} .*services/web/pyproject"):
            system.up()
    assert system.up().url("web") == f"http://127.0.0.1:{port}"


def test_the_gpus_stand_in_runs_with_all_services_or_on_request(system: EchoSystem) -> None:
    (system.root / "localstack").mkdir()
    shutil.copy(REPOSITORY / "localstack" / "pyproject.toml", system.root / "localstack")
    url = system.up().url("gpu")
    assert json.loads(get(f"{url}/v1/models"))["object"] == "list"
    system.send("hello")
    [note] = system.wait_for("hello", "end")
    assert note["env"]["CAPTION_BASE_URL"] == f"{url}/v1"
    down(system.home)
    assert set(system.up(services=["echo"]).processes) == {"emulator", "echo"}


def test_a_killed_valkey_restarts_at_its_address_and_the_services_have_its_url(system: EchoSystem) -> None:
    (system.root / "localstack").mkdir()
    shutil.copy(REPOSITORY / "localstack" / "pyproject.toml", system.root / "localstack")
    state = system.up()
    url = state.url("valkey")
    assert state.env["PRISMLINE_VALKEY_URL"] == url
    system.send("hello")
    [note] = system.wait_for("hello", "end")
    assert note["env"]["PRISMLINE_VALKEY_URL"] == url
    with valkey.Valkey.from_url(url) as client:
        assert client.set("k", "v")
    killed = state.processes["valkey"].process
    assert killed is not None
    killed.signal(signal.SIGKILL)
    assert all_ended([killed])

    def answers() -> bool:
        try:
            with valkey.Valkey.from_url(url) as client:
                return bool(client.ping())
        except valkey.ConnectionError:  # it accepts connections a moment before it answers
            return False

    assert wait_until(answers, 20)
    with valkey.Valkey.from_url(url) as client:
        assert client.get("k") is None
    down(system.home)
    assert not accepts(url)


def test_after_the_emulator_died_all_processes_listen_at_the_same_ports(system: EchoSystem) -> None:
    system.add_web()
    before = system.up(services=["web"])
    emulator = before.processes["emulator"].process
    assert emulator is not None
    emulator.signal(signal.SIGKILL)
    assert wait_until(lambda: not is_up(system.home), 20)
    after = system.up(services=["web"])
    assert (after.endpoint, after.url("web")) == (before.endpoint, before.url("web"))


def test_a_second_up_has_the_same_addresses(system: EchoSystem) -> None:
    system.add_web()
    before = system.up(services=["web"])
    down(system.home)

    after = system.up(services=["web"])

    assert after.moved == []
    assert (after.endpoint, after.url("web")) == (before.endpoint, before.url("web"))


def test_if_a_port_of_the_last_time_is_taken_up_says_so(system: EchoSystem) -> None:
    system.add_web()
    port = system.up(services=["web"]).ports["web"]
    down(system.home)

    with socket.create_server(("127.0.0.1", port)):
        after = system.up(services=["web"])

    assert after.ports["web"] != port
    [notice] = after.moved
    assert notice.startswith(f"web listens at port {after.ports['web']}, ")
    assert f"port {port}" in notice


def test_the_age_of_the_oldest_message_of_each_queue_is_published(system: EchoSystem) -> None:
    state = system.up(services=[])
    cloudwatch = state.client("cloudwatch")
    system.send("waiting")

    def ages(queue: str) -> list[float]:
        return metric_values(cloudwatch, queue, "Prismline/QueueAges", "ApproximateAgeOfOldestMessage")

    assert wait_until(lambda: bool(ages("prismline-local-echo")), 15)
    assert all(0 <= age < 60 for age in ages("prismline-local-echo"))
    assert ages("prismline-local-echo-dlq") == []


def test_queue_depths_are_published_as_metrics_hidden_messages_and_zeros_included(system: EchoSystem) -> None:
    state = system.up(services=[])
    cloudwatch, sqs = state.client("cloudwatch"), state.client("sqs")
    for _ in range(2):
        system.send("waiting")
    url = sqs.get_queue_url(QueueName="prismline-local-echo")["QueueUrl"]
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=600)

    def values(queue: str) -> set[float]:
        return set(metric_values(cloudwatch, queue, "Prismline/Queues", queue))

    assert wait_until(lambda: 2.0 in values("prismline-local-echo"), 15)
    assert values("prismline-local-echo-dlq") == {0.0}


def test_logs_show_what_a_process_wrote_and_follow_until_the_end(system: EchoSystem) -> None:
    system.up()
    assert wait_until(lambda: any("consumer_started" in line.text for line in logs(system.home, "echo")), 20)
    assert {line.process for line in logs(system.home)} >= {"echo", "emulator"}
    assert {line.process for line in logs(system.home, "echo")} == {"echo"}
    with pytest.raises(NotRunningError, match="no log of ehco"):
        list(logs(system.home, "ehco"))
    with ThreadPoolExecutor() as pool:
        following = pool.submit(lambda: [line.text for line in logs(system.home, "echo", follow=True)])
        down(system.home)
        assert any("consumer_stopped" in text for text in following.result(timeout=20))


def test_an_external_endpoint_is_used_and_not_stopped(
    system: EchoSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator = Emulator.start(tmp_path / "theirs", tmp_path / "theirs.log")
    try:
        monkeypatch.setenv("LOCALSTACK_HOST", emulator.endpoint.removeprefix("http://"))
        monkeypatch.setenv("PRISMLINE_EMULATOR_SECRET", emulator.secret)
        for attempt in ("first", "second"):
            state = system.up()
            assert (state.endpoint, state.embedded) == (emulator.endpoint, False)
            assert set(state.processes) == {"echo"}
            system.send(attempt)
            system.wait_for(attempt, "end")
            down(system.home)
            assert emulator.child.poll() is None
    finally:
        emulator.stop()


def test_an_endpoint_where_nothing_answers_is_an_error(system: EchoSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(HarnessError, match=r"Nothing answers at http://127\.0\.0\.1:9\. Start it, or unset"):
        system.up()
