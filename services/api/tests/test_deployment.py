"""Operations about the whole deployment: alerts and their mute, queues, versions. They need the scope `all`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import boto3
import pytest
from api_world import ALL_SCOPES, Api, ApiWorld

from prismline_api.deployment.processes import measured, reported
from prismline_contracts.alerts import muted_until_parameter
from prismline_contracts.commands import queue_name
from prismline_contracts.processes import PROCESSES_PARAMETER, ProcessesReport, ProcessReport

pytestmark = pytest.mark.emulator


@pytest.fixture
def overseer(world: ApiWorld) -> Api:
    """A client whose key has all scopes, `all` included."""
    return world.caller("ops", (*ALL_SCOPES, "all"))


def put_alarm(name: str, queue: str) -> None:
    """Create an alarm that keeps the state that a test sets."""
    boto3.client("cloudwatch").put_metric_alarm(
        AlarmName=name,
        AlarmDescription="Too many.",
        Namespace="AWS/SQS",
        MetricName="ApproximateNumberOfMessagesVisible",
        Dimensions=[{"Name": "QueueName", "Value": queue}],
        Statistic="Maximum",
        Period=300,
        EvaluationPeriods=1,
        Threshold=100,
        ComparisonOperator="GreaterThanThreshold",
        TreatMissingData="ignore",
    )


class TestAccess:
    def test_a_key_without_the_scope_all_is_refused(self, world: ApiWorld, acme: Api) -> None:
        reader = world.caller("ops", ("read", "all"))
        for method, path in (
            ("GET", "/alerts"),
            ("GET", "/system"),
            ("POST", "/alerts/mute"),
            ("POST", "/alerts/unmute"),
        ):
            body = {"duration": "1h"} if path.endswith("/mute") else None
            assert acme(method, path, body).status_code == 403, path
            assert reader(method, path, body).status_code == (200 if method == "GET" else 403), path


class TestAlerts:
    def test_alarms_that_are_on_come_first_with_what_changed(self, world: ApiWorld, overseer: Api) -> None:
        cloudwatch, prefix = boto3.client("cloudwatch"), queue_name(world.environment, "")
        for name in ("a", "b"):
            put_alarm(f"{prefix}{name}-dlq", f"{prefix}{name}-dlq")
        put_alarm(f"elsewhere-{world.environment}", "x")
        for name in (f"{prefix}b-dlq", f"elsewhere-{world.environment}"):
            cloudwatch.set_alarm_state(AlarmName=name, StateValue="ALARM", StateReason="101 > 100 <script>")
        shown = overseer.get("/alerts")
        assert [alarm["name"] for alarm in shown["alarms"]] == [f"{prefix}b-dlq", f"{prefix}a-dlq"]
        on = shown["alarms"][0]
        assert (on["state"], on["queue"], on["threshold"]) == ("ALARM", "b-dlq", 100)
        assert on["reason"] == "101 > 100 <script>"
        assert on["since"]
        assert {change["name"] for change in shown["changes"]} <= {f"{prefix}a-dlq", f"{prefix}b-dlq"}
        newest = next(change for change in shown["changes"] if change["name"] == f"{prefix}b-dlq")
        assert (newest["after"], newest["reason"]) == ("ALARM", "101 > 100 <script>")
        assert not shown["muted"]

    def test_a_mute_lasts_as_long_as_it_says_and_can_be_ended(self, world: ApiWorld, overseer: Api) -> None:
        muted = overseer.post("/alerts/mute", {"duration": "4h"}, expect=200)
        until = datetime.fromisoformat(muted["muted_until"])
        assert timedelta(hours=3, minutes=59) < until - datetime.now(UTC) < timedelta(hours=4, minutes=1)
        assert overseer.get("/alerts")["muted_until"] == muted["muted_until"]
        parameter = boto3.client("ssm").get_parameter(Name=muted_until_parameter(world.environment))["Parameter"]
        assert int(parameter["Value"]) == int(until.timestamp())
        assert overseer.post("/alerts/unmute", expect=200) == {"muted": False}
        assert not overseer.get("/alerts")["muted"]

    @pytest.mark.parametrize(("duration", "message"), [("0h", "zero"), ("31d", "30d"), ("soon", "duration")])
    def test_a_wrong_duration_is_refused_with_what_to_give(self, overseer: Api, duration: str, message: str) -> None:
        assert message in overseer.post("/alerts/mute", {"duration": duration}, expect=422)["detail"]
        assert not overseer.get("/alerts")["muted"]

    def test_a_mute_that_cannot_be_read_mutes_nothing_and_says_so(self, world: ApiWorld, overseer: Api) -> None:
        name = muted_until_parameter(world.environment)
        boto3.client("ssm").put_parameter(Name=name, Value="for ever", Type="String")
        shown = overseer.get("/alerts")
        assert not shown["muted"]
        assert "unix seconds" in shown["muted_problem"]
        overseer.post("/alerts/unmute", expect=200)
        assert "muted_problem" not in overseer.get("/alerts")


class TestSystem:
    def test_queues_have_their_depths_ages_and_dead_letters(self, world: ApiWorld, overseer: Api) -> None:
        sqs, name = boto3.client("sqs"), queue_name(world.environment, "tasks")
        url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
        for delay in (0, 0, 900):
            sqs.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=delay)
        sqs.receive_message(QueueUrl=url, VisibilityTimeout=600)
        sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName=f"{name}-dlq")["QueueUrl"], MessageBody="x")
        boto3.client("cloudwatch").put_metric_data(
            Namespace="AWS/SQS",
            MetricData=[
                {
                    "MetricName": "ApproximateAgeOfOldestMessage",
                    "Dimensions": [{"Name": "QueueName", "Value": queue}],
                    "Value": 75.0,
                }
                for queue in (name, queue_name(world.environment, "split"))
            ],
        )
        shown = overseer.get("/system")
        queues = {queue["name"]: queue for queue in shown["queues"]}
        assert queues["tasks"] == {
            "name": "tasks",
            "visible": 1,
            "in_flight": 1,
            "delayed": 1,
            "oldest_seconds": 75.0,
            "dead_letters": 1,
        }
        assert "oldest_seconds" not in queues["split"], "it is empty: its last metric is about a message that is gone"
        assert shown["environment"] == world.environment
        assert shown["contracts_version"]

    def test_many_requests_at_once_read_sqs_once(self, world: ApiWorld, overseer: Api) -> None:
        before = overseer.get("/system")
        url = boto3.client("sqs").get_queue_url(QueueName=queue_name(world.environment, "tasks"))["QueueUrl"]
        boto3.client("sqs").send_message(QueueUrl=url, MessageBody="x")
        assert overseer.get("/system") == before

    def test_deployed_services_are_shown_as_far_as_their_records_can_be_read(
        self, world: ApiWorld, overseer: Api
    ) -> None:
        ssm = boto3.client("ssm")
        for service, text in (
            (
                "worker",
                (
                    '{"version": "1.2.0", "code": {"ImageUri": "registry/worker@sha256:ab"},'
                    ' "deployed_at": "2026-03-01T12:00:00.000Z", "previous": []}'
                ),
            ),
            ("api", "no record"),
        ):
            name = f"/prismline/{world.environment}/deployed/{service}"
            ssm.put_parameter(Name=name, Value=text, Type="String")
        assert overseer.get("/system")["deployed"] == [
            {"service": "api"},
            {
                "service": "worker",
                "version": "1.2.0",
                "digest": "sha256:ab",
                "deployed_at": "2026-03-01T12:00:00.000Z",
            },
        ]


class TestProcesses:
    def test_the_report_of_a_supervisor_is_shown(self, world: ApiWorld) -> None:
        report = ProcessesReport(
            at="2026-03-01T12:00:05.000Z",
            processes=[
                ProcessReport(
                    name="worker", service="worker", version="1.2.0", running=2, since="2026-03-01T12:00:00.000Z"
                ),
                ProcessReport(name="api", service="api", running=0, since="2026-03-01T12:00:00.000Z", restarts=3),
            ],
        )
        assert reported(boto3.client("ssm"), world.environment) == []
        name = PROCESSES_PARAMETER.format(environment=world.environment)
        boto3.client("ssm").put_parameter(Name=name, Value=report.model_dump_json(), Type="String")
        worker, api = reported(boto3.client("ssm"), world.environment)
        assert (worker.running, worker.version, worker.heard_at) == (2, "1.2.0", "2026-03-01T12:00:05.000Z")
        assert (api.running, api.heard_at, api.restarts) == (0, None, 3), (
            "a process that does not run gives no sign of life"
        )

    def test_the_last_invocation_of_a_function_is_its_sign_of_life(self, world: ApiWorld) -> None:
        now = datetime.now(UTC)
        for name, ago, value in (("worker", 40, 3), ("worker", 10, 1), ("fetcher", 20, 0)):
            boto3.client("cloudwatch").put_metric_data(
                Namespace="AWS/Lambda",
                MetricData=[
                    {
                        "MetricName": "Invocations",
                        "Dimensions": [{"Name": "FunctionName", "Value": f"prismline-{world.environment}-{name}"}],
                        "Timestamp": now - timedelta(minutes=ago),
                        "Value": value,
                    }
                ],
            )
        functions = {"worker": ["worker", "slow-lane", "fetcher"]}
        found = {view.name: view for view in measured(boto3.client("cloudwatch"), world.environment, functions, now)}
        assert set(found) == {"worker", "slow-lane", "fetcher"}
        last_seen = found["worker"].heard_at
        assert last_seen is not None
        assert timedelta(minutes=5) < now - datetime.fromisoformat(last_seen) < timedelta(minutes=16)
        assert found["slow-lane"].heard_at is None

    def test_the_functions_are_those_that_the_deployments_recorded(self, world: ApiWorld, overseer: Api) -> None:
        boto3.client("ssm").put_parameter(
            Name=f"/prismline/{world.environment}/deployed/tally",
            Value='{"version": "1.2.0", "code": {}, "deployed_at": "t", "functions": ["tally", "tally-slow"]}',
            Type="String",
        )
        shown = [each for each in overseer.get("/system")["processes"] if each["service"] == "tally"]
        assert [(each["name"], each["version"]) for each in shown] == [("tally", "1.2.0"), ("tally-slow", "1.2.0")]
