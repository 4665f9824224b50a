"""Which processes run. The source is a supervisor on a laptop, and CloudWatch's metrics on AWS."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from botocore.exceptions import ClientError
from pydantic import Field, ValidationError

from prismline_api.models import Response
from prismline_contracts.base import timestamp
from prismline_contracts.processes import PROCESSES_PARAMETER, ProcessesReport
from prismline_runtime import aws_errors, error_code

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_cloudwatch.type_defs import MetricDataQueryTypeDef
    from mypy_boto3_ssm import SSMClient

#: The service whose functions may run on Fargate instead, all in its cluster.
ON_FARGATE = "worker"
#: How far back a sign of life is looked for, and the length of a period of the metrics.
WINDOW, PERIOD = timedelta(hours=3), timedelta(minutes=5)


class ProcessView(Response):
    """Processes of one kind, or a function."""

    name: Annotated[str, Field(examples=["worker"])]
    service: Annotated[str, Field(description="The service that it belongs to.")]
    version: str | None = None
    running: Annotated[int | None, Field(description="How many run. Absent for a function and on Fargate.")] = None
    since: Annotated[str | None, Field(description="When the latest one started, or the service was deployed.")] = None
    heard_at: Annotated[
        str | None,
        Field(description="The last sign of life; on AWS within five minutes. Absent: none for three hours."),
    ] = None
    restarts: Annotated[int | None, Field(description="How often one ended by itself. Absent: not known.")] = None


def reported(ssm: SSMClient, environment: str) -> list[ProcessView]:
    """The processes that a laptop's supervisor has reported. Empty if there is no report."""
    name = PROCESSES_PARAMETER.format(environment=environment)
    with aws_errors(f"read the parameter {name}"):
        try:
            text = ssm.get_parameter(Name=name)["Parameter"]["Value"]
        except ClientError as error:
            if error_code(error) == "ParameterNotFound":
                return []
            raise
    try:
        report = ProcessesReport.model_validate_json(text)
    except ValidationError:
        return []
    return [ProcessView(**each.model_dump(), heard_at=report.at if each.running else None) for each in report.processes]


def measured(
    cloudwatch: CloudWatchClient, environment: str, functions: Mapping[str, Iterable[str]], now: datetime
) -> list[ProcessView]:
    """The functions and the services on Fargate, with the last sign of life of each.

    functions: the short names of the functions of each service, as its deployment recorded them.
    """
    names = [(service, name) for service in sorted(functions) for name in functions[service]]
    queries = [
        _query(number, kind, f"prismline-{environment}-{name}", environment)
        for number, (service, name) in enumerate(names)
        for kind in (("function", "task") if service == ON_FARGATE else ("function",))
    ]
    if not queries:
        return []
    with aws_errors("read when functions were last invoked"):
        results = cloudwatch.get_metric_data(
            MetricDataQueries=queries, StartTime=now - WINDOW, EndTime=now, ScanBy="TimestampDescending"
        )["MetricDataResults"]
    last_seen: dict[int, datetime] = {}
    for result in results:
        moments = [moment for moment, value in zip(result["Timestamps"], result["Values"], strict=True) if value > 0]
        if moments:
            number = int(result["Id"].partition("_")[2])
            last_seen[number] = max([*moments, *([last_seen[number]] if number in last_seen else [])])
    return [
        ProcessView(name=name, service=service, heard_at=timestamp(last_seen[number]) if number in last_seen else None)
        for number, (service, name) in enumerate(names)
    ]


def _query(number: int, kind: str, name: str, environment: str) -> MetricDataQueryTypeDef:
    """The metric of its activity: invocations of a function, or processor time of tasks on Fargate."""
    function = kind == "function"
    dimensions = {"FunctionName": name}
    if not function:
        dimensions = {"ClusterName": f"prismline-{environment}-worker", "ServiceName": name}
    return {
        "Id": f"{kind}_{number}",
        "MetricStat": {
            "Metric": {
                "Namespace": "AWS/Lambda" if function else "AWS/ECS",
                "MetricName": "Invocations" if function else "CPUUtilization",
                "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
            },
            "Period": int(PERIOD.total_seconds()),
            "Stat": "Sum" if function else "Maximum",
        },
    }
