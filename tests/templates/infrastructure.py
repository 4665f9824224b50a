"""Rules for the infrastructure in the templates. A test shows each rule a template that breaks it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from prismline_api.uploads import LONGEST_WAIT, WAITING_TAG
from prismline_contracts.commands import Queue
from prismline_contracts.delivery import DEAD_LETTER_FUNCTION_SECONDS, LIMITS
from prismline_contracts.pools import pool_queue
from tests.templates.damage import Case, changed, properties, removed, without
from tests.templates.reading import Stacks, branches, exports, imports, leaves, of_kind, referred

#: The value that omits a property.
NO_VALUE = {"Ref": "AWS::NoValue"}
#: Functions that reserve concurrency, so that a large run cannot use it up.
RESERVED = {"ApiFunction", "InteractionsFunction", "DeadLettersFunction", "Function of dlq-consumer"}

#: Services that only look at whether there is a cache, and do not connect to it.
ONLY_ASK = {"splitter"}


def function_of(stacks: Stacks, stack: str, mapping: dict[str, Any]) -> dict[str, Any]:
    """The properties of the function that a mapping calls."""
    name = mapping["FunctionName"]
    found = {(each, logical_id): properties for each, logical_id, properties in of_kind(stacks, "Lambda::Function")}
    if "Fn::ImportValue" in name:
        return found["dlq-consumer", name["Fn::ImportValue"]["Fn::Sub"].rsplit("-", 1)[-1]]
    return found[stack, name["Ref"]]


def visible_too_early(stacks: Stacks) -> Iterator[str]:
    """Lambda asks for a visibility timeout of six times the function's timeout."""
    for stack, logical_id, mapping in of_kind(stacks, "Lambda::EventSourceMapping"):
        queue = stacks[stack]["Resources"].get(referred(mapping["EventSourceArn"]))
        if queue is None:
            yield f"{stack}: {logical_id} maps a queue that another stack owns"
        elif queue["Properties"].get("VisibilityTimeout", 30) < 6 * function_of(stacks, stack, mapping)["Timeout"]:
            yield f"{stack}: {logical_id}: its queue hides a message for less than six times the function's timeout"


def other_timeouts(stacks: Stacks) -> Iterator[str]:
    """The timeout of each function is that of the table of limits, because leases are derived from it."""
    limits = {f"prismline-${{Environment}}-{queue}": each.function_seconds for queue, each in LIMITS.items()}
    limits[f"prismline-${{Environment}}-{pool_queue('${Pool}')}"] = LIMITS[Queue.TASKS].function_seconds
    limits |= {f"{name}-dlq": DEAD_LETTER_FUNCTION_SECONDS for name in limits}
    for stack, logical_id, mapping in of_kind(stacks, "Lambda::EventSourceMapping"):
        queue = stacks[stack]["Resources"].get(referred(mapping["EventSourceArn"]), {"Properties": {}})["Properties"]
        name = queue.get("QueueName", {}).get("Fn::Sub")
        if limits.get(name) != function_of(stacks, stack, mapping)["Timeout"]:
            yield f"{stack}: {logical_id}: the timeout of its function is not that of the table of limits"


def unbounded_mappings(stacks: Stacks) -> Iterator[str]:
    """Each queue has a limit, so that it cannot use all of the account's concurrency."""
    for stack, logical_id, mapping in of_kind(stacks, "Lambda::EventSourceMapping"):
        if "MaximumConcurrency" not in mapping.get("ScalingConfig", {}):
            yield f"{stack}: {logical_id} has no maximum concurrency"


def unreserved_functions(stacks: Stacks) -> Iterator[str]:
    """The Discord endpoint and the dead-letter consumer keep working while everything else is busy.

    A flood of requests to the api's public URL uses no more than what the api reserves.
    """
    wanted: dict[str, int] = {}
    for stack, _, mapping in of_kind(stacks, "Lambda::EventSourceMapping"):
        function = function_of(stacks, stack, mapping)["FunctionName"]["Fn::Sub"]
        most = mapping.get("ScalingConfig", {}).get("MaximumConcurrency", 0)
        wanted[function] = wanted.get(function, 0) + (most if isinstance(most, int) else 0)
    reserved = set()
    for stack, logical_id, function in of_kind(stacks, "Lambda::Function"):
        if "ReservedConcurrentExecutions" not in function:
            continue
        condition, amount, otherwise = function["ReservedConcurrentExecutions"]["Fn::If"]
        if condition != "WithReservedConcurrency" or otherwise != {"Ref": "AWS::NoValue"}:
            yield f"{stack}: {logical_id} reserves concurrency where an account's limit is too small for it"
        if stacks[stack]["Parameters"]["ReserveConcurrency"]["Default"] != "true":
            yield f"{stack}: reserved concurrency is not the default"
        reserved.add(f"Function of {stack}" if logical_id == "Function" else logical_id)
        if isinstance(amount, dict):
            amount = stacks[stack]["Parameters"][amount["Ref"]]["Default"]
        if amount < wanted.get(function["FunctionName"]["Fn::Sub"], 0):
            yield f"{stack}: {logical_id} reserves less concurrency than its mappings use"
    for missing in sorted(RESERVED - reserved):
        yield f"{missing} reserves no concurrency"


def valkey_out_of_reach(stacks: Stacks) -> Iterator[str]:
    """A cache can be reached only from inside its VPC. Outside of it, a function does not get the address."""
    for stack, logical_id, function in of_kind(stacks, "Lambda::Function"):
        url = function["Environment"]["Variables"].get("PRISMLINE_VALKEY_URL")
        if url is None:
            continue
        if not isinstance(url, dict) or url.get("Fn::If", [None])[0] != "WithValkey":
            yield f"{stack}: {logical_id} gets the address of a cache that it may not reach"
        if stack in ONLY_ASK:
            continue
        if "VpcConfig" not in function:
            yield f"{stack}: {logical_id} uses Valkey and cannot be put into a VPC"
        role = stacks[stack]["Resources"][referred(function["Role"])]["Properties"]
        if "AWSLambdaVPCAccessExecutionRole" not in str(role.get("ManagedPolicyArns")):
            yield f"{stack}: the role of {logical_id} cannot create network interfaces"


def lost_events(stacks: Stacks) -> Iterator[str]:
    """An event that a rule cannot deliver goes to a dead-letter queue."""
    for stack, logical_id, rule in of_kind(stacks, "Events::Rule"):
        for target in rule["Targets"]:
            if "DeadLetterConfig" not in target or "RetryPolicy" not in target:
                yield f"{stack}: a target of {logical_id} has no dead-letter queue or no retry policy"


def open_dead_letter_queues(stacks: Stacks) -> Iterator[str]:
    """Only the queue itself may redrive to its dead-letter queue."""
    for stack, logical_id, queue in of_kind(stacks, "SQS::Queue"):
        if not logical_id.endswith("DeadLetterQueue"):
            continue
        allowed = queue.get("RedriveAllowPolicy", {})
        name = queue["QueueName"]["Fn::Sub"].removesuffix("-dlq")
        if name.endswith("-tasks"):  # queues of single runs also redrive there, and they have no fixed names
            expected = allowed == {"redrivePermission": "allowAll"}
        else:
            sources = [str(arn["Fn::Sub"]).rsplit(":", 1)[-1] for arn in allowed.get("sourceQueueArns", [])]
            expected = allowed.get("redrivePermission") == "byQueue" and sources == [name]
        if not expected:
            yield f"{stack}: {logical_id} does not say which queue redrives to it"


def _refuses_plain_text(policy: dict[str, Any], resource: str) -> bool:
    return any(
        isinstance(statement, dict)
        and statement.get("Effect") == "Deny"
        and statement["Principal"] == "*"
        and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        and any(referred(each) == resource for each in branches(statement["Resource"]))
        for statement in branches(policy["PolicyDocument"]["Statement"])
    )


def plain_text(stacks: Stacks) -> Iterator[str]:
    """Queues and buckets accept only requests over TLS."""
    for kind, policy_kind, member in (
        ("SQS::Queue", "SQS::QueuePolicy", "Queues"),
        ("S3::Bucket", "S3::BucketPolicy", "Bucket"),
    ):
        for stack, logical_id, _ in of_kind(stacks, kind):
            policies = [
                policy
                for each, _, policy in of_kind(stacks, policy_kind)
                if each == stack and logical_id in [referred(one) for one in branches(policy[member])]
            ]
            if len(policies) != 1:  # a queue has only one policy: the last one replaces the others
                yield f"{stack}: {logical_id} has {len(policies)} policies"
            elif not _refuses_plain_text(policies[0], logical_id):
                yield f"{stack}: the policy of {logical_id} does not refuse requests without TLS"


def unencrypted(stacks: Stacks) -> Iterator[str]:
    """Queues, tables and buckets encrypt what they store."""
    for stack, logical_id, queue in of_kind(stacks, "SQS::Queue"):
        if queue.get("SqsManagedSseEnabled") is not True:
            yield f"{stack}: {logical_id} is not encrypted"
    for stack, logical_id, table in of_kind(stacks, "DynamoDB::Table"):
        if table.get("SSESpecification") != {"SSEEnabled": True}:
            yield f"{stack}: {logical_id} is not encrypted"
    for stack, logical_id, bucket in of_kind(stacks, "S3::Bucket"):
        if "BucketEncryption" not in bucket:
            yield f"{stack}: {logical_id} is not encrypted"


def unprotected_tables(stacks: Stacks) -> Iterator[str]:
    """A table survives the deletion of its stack and a wrong command, and its last month can be restored."""
    for stack, logical_id, table in of_kind(stacks, "DynamoDB::Table"):
        resource = stacks[stack]["Resources"][logical_id]
        if table.get("DeletionProtectionEnabled") != {"Ref": "DeletionProtection"}:
            yield f"{stack}: {logical_id} is not protected against deletion"
        if stacks[stack].get("Parameters", {}).get("DeletionProtection", {}).get("Default") != "true":
            yield f"{stack}: deletion protection is not the default"
        if table.get("PointInTimeRecoverySpecification") != {"PointInTimeRecoveryEnabled": True}:
            yield f"{stack}: {logical_id} cannot be restored"
        if resource.get("DeletionPolicy") != "Retain":
            yield f"{stack}: {logical_id} is deleted with its stack"
    jobs = stacks["api"]["Resources"]["JobsTable"]["Properties"]
    if jobs.get("TimeToLiveSpecification") != {"AttributeName": "expires_at", "Enabled": True}:
        yield "api: items of JobsTable do not expire"


def silent_functions(stacks: Stacks) -> Iterator[str]:
    """Each function has a log group with a retention, and traces."""
    for stack, logical_id, function in of_kind(stacks, "Lambda::Function"):
        group = stacks[stack]["Resources"].get(referred(function.get("LoggingConfig", {}).get("LogGroup")))
        name = function["FunctionName"]["Fn::Sub"]
        if group is None or group["Properties"]["LogGroupName"] != {"Fn::Sub": f"/aws/lambda/{name}"}:
            yield f"{stack}: {logical_id} has no log group of its own"
        if function.get("TracingConfig") != {"Mode": "Active"}:
            yield f"{stack}: {logical_id} is not traced"
    for stack, logical_id, group in of_kind(stacks, "Logs::LogGroup"):
        if "RetentionInDays" not in group:
            yield f"{stack}: {logical_id} keeps logs for ever"
    for stack, logical_id, machine in of_kind(stacks, "StepFunctions::StateMachine"):
        if machine.get("LoggingConfiguration", {}).get("Level") not in ("ERROR", "ALL"):
            yield f"{stack}: {logical_id} logs no errors"
        if machine.get("TracingConfiguration") != {"Enabled": True}:
            yield f"{stack}: {logical_id} is not traced"


def kept_for_ever(stacks: Stacks) -> Iterator[str]:
    """Temporary objects expire, and the inputs of chunks are kept longer than the dead letters that need them."""
    ((_, _, bucket),) = [each for each in of_kind(stacks, "S3::Bucket") if each[1] == "Bucket"]
    expire = {rule.get("Prefix"): rule for rule in bucket["LifecycleConfiguration"]["Rules"]}
    for prefix in ("chunks/", "dead-letter-archive/", "exports/", "athena-results/"):
        if "ExpirationInDays" not in expire.get(prefix, {}):
            yield f"platform: objects under {prefix} do not expire"
    everywhere = {key for rule in bucket["LifecycleConfiguration"]["Rules"] if "Prefix" not in rule for key in rule}
    if "AbortIncompleteMultipartUpload" not in everywhere:
        yield "platform: the parts of uploads that were given up do not expire"
    if not {"NoncurrentVersionExpiration", "ExpiredObjectDeleteMarker"} <= everywhere:
        yield "platform: versions of objects that were deleted do not expire"
    parameters = stacks["platform"]["Parameters"]
    if parameters["ChunkDays"]["Default"] < parameters["DeadLetterArchiveDays"]["Default"]:
        yield "platform: a dead letter outlives the input of its chunk"


def lost_objects(stacks: Stacks) -> Iterator[str]:
    """An object that was deleted or overwritten by mistake can be restored."""
    versioning = {"Status": {"Fn::If": ["OnAws", "Enabled", "Suspended"]}}
    if properties(stacks, "platform", "Bucket").get("VersioningConfiguration") != versioning:
        yield "platform: the bucket keeps no versions"


def lost_uploads(stacks: Stacks) -> Iterator[str]:
    """The bucket expires every upload that waits for a job, after the api has ceased to give it to one, and no other.

    An upload that a job has taken has no tag, and neither has an upload of an earlier release.
    """
    ((_, _, bucket),) = [each for each in of_kind(stacks, "S3::Bucket") if each[1] == "Bucket"]
    rules = [rule for rule in bucket["LifecycleConfiguration"]["Rules"] if "ExpirationInDays" in rule]
    if not any(_expires(rule, "uploads/acme/1", WAITING_TAG) for rule in rules):
        yield "platform: an upload that no job takes is kept for ever"
    if any(_expires(rule, "uploads/acme/1", {}) for rule in rules):
        yield "platform: the bucket expires the upload of a job"
    least = stacks["platform"]["Parameters"]["UploadDays"]["MinValue"]
    if timedelta(days=least) < LONGEST_WAIT + timedelta(days=1):
        yield "platform: an upload may expire while a job takes it"
    for rule in bucket["CorsConfiguration"]["Fn::If"][1]["CorsRules"]:
        if not {"if-none-match", "x-amz-tagging"} <= set(rule["AllowedHeaders"]):
            yield "platform: the console cannot upload a file"


def _expires(rule: Any, key: str, tags: Mapping[str, str]) -> bool:
    """Whether a rule of a lifecycle applies to an object."""
    wanted = {each["Key"]: each["Value"] for each in rule.get("TagFilters", [])}
    return rule["Status"] == "Enabled" and key.startswith(rule.get("Prefix", "")) and wanted.items() <= tags.items()


def homeless_buckets(stacks: Stacks) -> Iterator[str]:
    """Names of buckets have to be unique among all accounts and Regions."""
    for stack, logical_id, bucket in of_kind(stacks, "S3::Bucket"):
        if not bucket["BucketName"]["Fn::Sub"].endswith("-${AWS::AccountId}-${AWS::Region}"):
            yield f"{stack}: the name of {logical_id} lacks account or Region"


def fixed_partitions(stacks: Stacks) -> Iterator[str]:
    """ARNs do not contain the partition `aws`, because China and GovCloud have other partitions."""
    for stack, template in stacks.items():
        for leaf in leaves(template["Resources"]):
            if isinstance(leaf, str) and re.search(r"\barn:aws[\w-]*:", leaf):
                yield f"{stack}: {leaf} names a partition"


def alarms_without_actions(stacks: Stacks) -> Iterator[str]:
    """Alarms notify alerting; the alarms of alerting itself also notify another target."""
    for stack, logical_id, alarm in of_kind(stacks, "CloudWatch::Alarm"):
        topics = [each["Fn::ImportValue"]["Fn::Sub"].rsplit("-", 1)[-1] for each in alarm.get("AlarmActions", [])]
        expected = ["AlarmTopicArn", "AlertingAlarmTopicArn"] if stack == "alerting" else ["AlarmTopicArn"]
        if topics != expected or alarm.get("OKActions") != alarm["AlarmActions"]:
            yield f"{stack}: {logical_id} notifies {topics}"
    protocols = {(referred(each["TopicArn"]), each["Protocol"]) for _, _, each in of_kind(stacks, "SNS::Subscription")}
    if ("AlertingAlarmTopic", "email") not in protocols:
        yield "platform: only alerting itself is notified when alerting does not work"


def _watched(stacks: Stacks) -> set[tuple[str, str | None]]:
    found = set()
    for stack, _, alarm in of_kind(stacks, "CloudWatch::Alarm"):
        metrics = [each["MetricStat"]["Metric"] for each in branches(alarm.get("Metrics", [])) if "MetricStat" in each]
        for metric in metrics or [alarm]:
            for dimension in metric["Dimensions"] if isinstance(metric.get("Dimensions"), list) else []:
                found.add((f"{stack} {metric['MetricName']}", referred(dimension["Value"])))
    return found


def unwatched(stacks: Stacks) -> Iterator[str]:
    """There are alarms on the age of messages, errors, throttles, and the metrics of the services."""
    watched = _watched(stacks)
    for stack, logical_id, _ in of_kind(stacks, "SQS::Queue"):
        if (
            not logical_id.endswith("DeadLetterQueue")
            and (
                f"{stack} ApproximateAgeOfOldestMessage",
                logical_id,
            )
            not in watched
        ):
            yield f"{stack}: there is no alarm on old messages in {logical_id}"
    for stack, logical_id, _ in of_kind(stacks, "Lambda::Function"):
        for metric in ("Errors", "Throttles"):
            if (f"{stack} {metric}", logical_id) not in watched:
                yield f"{stack}: there is no alarm on {metric.lower()} of {logical_id}"
    for metric in ("RunsSwept", "LedgerDrift", "DeadLettersFail"):
        if (f"dlq-consumer {metric}", "Environment") not in watched:
            yield f"dlq-consumer: no alarm reads {metric}"


def circles(stacks: Stacks) -> Iterator[str]:
    """A stack imports only from stacks that can be deployed before it."""
    deployed: set[str] = set()
    ready: set[str] = set()
    while waiting := [name for name in stacks if name not in deployed]:
        possible = [name for name in waiting if imports(stacks[name]) <= ready]
        if not possible:
            missing = {name: sorted(imports(stacks[name]) - ready) for name in waiting}
            yield f"in no order of deployment does every stack get its imports: {missing}"
            return
        deployed.update(possible)
        ready |= {each for name in possible for each in exports(stacks[name])}


def wide_rights(stacks: Stacks) -> Iterator[str]:
    """A role writes only below the prefixes of its service; only deployments write to their bucket."""
    bucket = "arn:${AWS::Partition}:s3:::prismline-${Environment}-${AWS::AccountId}-${AWS::Region}/"
    for stack, logical_id, role in of_kind(stacks, "IAM::Role"):
        if logical_id == "DeployerRole":  # test_roles.py
            continue
        for policy in branches(role.get("Policies", [])):
            for statement in policy["PolicyDocument"]["Statement"] if "PolicyName" in policy else []:
                for action in branches(statement["Action"]):
                    if action == "*" or action.endswith(":*"):
                        yield f"{stack}: {logical_id} may do everything with {action}"
                    if not action.startswith("s3:") or action == "s3:ListBucket":
                        continue
                    for resource in branches(statement["Resource"]):
                        name = resource.get("Fn::Sub", "")
                        name = name if isinstance(name, str) else name[0].replace(bucket, "${Bucket}/")
                        path = (
                            name.replace(bucket, "")
                            .replace("${Bucket.Arn}/", "")
                            .replace("arn:${AWS::Partition}:s3:::${Bucket}/", "")
                        )
                        if resource != {"Ref": "SourceObjects"} and not re.fullmatch(
                            r"[a-z-]+/([a-z-]+/|\$\{Pool\}_)?\*", path
                        ):
                            yield f"{stack}: {logical_id}: {action} is not limited to a prefix of the bucket"


# ---- damage that each rule has to detect


def _circle(stacks: Stacks) -> None:
    stacks["platform"]["Metadata"] = {"Fn::ImportValue": {"Fn::Sub": "prismline-${Environment}-JobsTable"}}


def reserved(amount: int, otherwise: Any = NO_VALUE) -> dict[str, Any]:
    """A reserved concurrency that a parameter can omit."""
    return {"Fn::If": ["WithReservedConcurrency", amount, otherwise]}


def _unreserved_by_default(stacks: Stacks) -> None:
    stacks["dlq-consumer"]["Parameters"]["ReserveConcurrency"]["Default"] = "false"


def _short_wait(stacks: Stacks) -> None:
    stacks["platform"]["Parameters"]["UploadDays"]["MinValue"] = 6


def _whole_bucket(stacks: Stacks) -> None:
    policy = properties(stacks, "splitter", "FunctionRole")["Policies"][1]
    statement = next(each for each in policy["PolicyDocument"]["Statement"] if "s3:PutObject" in each["Action"])
    statement["Resource"] = {"Fn::Sub": "arn:${AWS::Partition}:s3:::prismline-${Environment}/*"}


#: The log messages that alarms count, by the end of the alarm's name.
COUNTED = {"ledger-drift": "ledger_drift", "runs-not-swept": "run_not_swept", "dead-letters-failed": "dlq_decided"}


def unsaved_queries(stacks: Stacks) -> Iterator[str]:
    """A saved query reads each log group of a service's functions and tasks, and looks for what alarms count."""
    for stack in sorted(stacks.keys() - {"platform"}):
        queries = [query for name, _, query in of_kind(stacks, "Logs::QueryDefinition") if name == stack]
        for name, _, alarm in of_kind(stacks, "CloudWatch::Alarm"):
            short = str(alarm["AlarmName"]).partition("${Environment}-")[2].rstrip("'}")
            message = COUNTED.get(short)
            if name == stack and message and not any(f'"{message}"' in query["QueryString"] for query in queries):
                yield f"{stack}: no query looks for {message}, which the alarm {short} counts"
        read = {referred(group) for query in queries for group in query["LogGroupNames"]}
        for name, logical_id, _ in of_kind(stacks, "Logs::LogGroup"):
            if name == stack and logical_id not in read | {"StateMachineLogs"}:
                yield f"{stack}: no query reads {logical_id}"


MAPPED_ELSEWHERE = {"Fn::Sub": "arn:${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}:other"}
CASES: list[Case] = [
    (visible_too_early, changed("worker", "ChunksQueue", 960, "VisibilityTimeout")),
    (visible_too_early, without("worker", "ChunksDeadLetterQueue", "VisibilityTimeout")),
    (visible_too_early, changed("worker", "TasksEventSource", MAPPED_ELSEWHERE, "EventSourceArn")),
    (other_timeouts, changed("status", "Function", 29, "Timeout")),
    (unbounded_mappings, without("worker", "ChunksEventSource", "ScalingConfig")),
    (unreserved_functions, without("alerting", "InteractionsFunction", "ReservedConcurrentExecutions")),
    (unreserved_functions, changed("dlq-consumer", "DeadLettersFunction", reserved(5), "ReservedConcurrentExecutions")),
    (unreserved_functions, changed("alerting", "InteractionsFunction", reserved(5, 5), "ReservedConcurrentExecutions")),
    (unreserved_functions, _unreserved_by_default),
    (valkey_out_of_reach, without("worker", "TasksFunction", "VpcConfig")),
    (valkey_out_of_reach, without("worker", "FunctionRole", "ManagedPolicyArns")),
    (valkey_out_of_reach, changed("splitter", "Function", "x", "Environment", "Variables", "PRISMLINE_VALKEY_URL")),
    (lost_events, without("splitter", "ManifestRule", "Targets", 0, "DeadLetterConfig")),
    (lost_events, without("splitter", "ManifestRule", "Targets", 0, "RetryPolicy")),
    (open_dead_letter_queues, without("worker", "RefitsDeadLetterQueue", "RedriveAllowPolicy")),
    (plain_text, removed("platform", "BucketPolicy")),
    (plain_text, without("splitter", "SplitQueuePolicy", "PolicyDocument", "Statement", 1)),
    (unencrypted, without("webhooks", "WebhooksQueue", "SqsManagedSseEnabled")),
    (unencrypted, without("platform", "RunsTable", "SSESpecification")),
    (unencrypted, without("platform", "DeploymentBucket", "BucketEncryption")),
    (unprotected_tables, without("platform", "RunsTable", "DeletionProtectionEnabled")),
    (unprotected_tables, without("api", "JobsTable", "TimeToLiveSpecification")),
    (silent_functions, without("api", "ApiFunction", "LoggingConfig")),
    (silent_functions, without("api", "ApiFunction", "TracingConfig")),
    (silent_functions, without("splitter", "FunctionLogs", "RetentionInDays")),
    (silent_functions, without("status", "StateMachine", "LoggingConfiguration")),
    (kept_for_ever, without("platform", "Bucket", "LifecycleConfiguration", "Rules", 4)),
    (kept_for_ever, without("platform", "Bucket", "LifecycleConfiguration", "Rules", 1)),
    (kept_for_ever, without("platform", "Bucket", "LifecycleConfiguration", "Rules", 0)),
    (lost_objects, without("platform", "Bucket", "VersioningConfiguration")),
    (lost_uploads, without("platform", "Bucket", "LifecycleConfiguration", "Rules", 6)),
    (lost_uploads, without("platform", "Bucket", "LifecycleConfiguration", "Rules", 6, "TagFilters")),
    (lost_uploads, _short_wait),
    (homeless_buckets, changed("platform", "Bucket", {"Fn::Sub": "prismline-${Environment}"}, "BucketName")),
    (fixed_partitions, changed("worker", "ChunksQueue", "arn:aws:sqs:x", "QueueName")),
    (alarms_without_actions, without("alerting", "DeadLetterAlarm", "AlarmActions", 1)),
    (alarms_without_actions, removed("platform", "AlertingAlarmEmail")),
    (unwatched, removed("worker", "ChunksAgeAlarm")),
    (unwatched, removed("api", "ThrottlesAlarm")),
    (unwatched, removed("dlq-consumer", "SweeperSilentAlarm")),
    (unwatched, removed("dlq-consumer", "LedgerDriftAlarm")),
    (circles, _circle),
    (wide_rights, _whole_bucket),
]
