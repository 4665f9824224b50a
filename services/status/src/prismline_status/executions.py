"""Executions of the state machine. Each run has one, and the execution's name is the run's id."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from prismline_contracts.envelope import trace_id_of
from prismline_contracts.events import RunSubmitted
from prismline_ledger import Tolerance
from prismline_runtime import aws_errors, error_code

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

#: Error codes of StopExecution for an execution that is not running.
_NOT_RUNNING_CODES = frozenset({"ExecutionDoesNotExist", "ValidationException"})


class Executions:
    """Starts and stops executions. Raises TransientError if Step Functions does not answer."""

    def __init__(self, stepfunctions: SFNClient, state_machine_arn: str) -> None:
        self._stepfunctions = stepfunctions
        self._state_machine_arn = state_machine_arn

    def arn(self, run_id: str) -> str:
        """The ARN of the run's execution."""
        return f"{self._state_machine_arn.replace(':stateMachine:', ':execution:')}:{run_id}"

    def start(self, run: RunSubmitted, traceparent: str | None) -> None:
        """Start the run's execution, unless it exists already."""
        tolerance = Tolerance(run.tolerated_failure_percent, run.tolerated_failures)
        document = {
            "run_id": run.run_id,
            "job_id": run.job_id,
            "bucket": run.bucket,
            "manifest_key": run.manifest_key,
            "tolerated_failure_percent": tolerance.greatest_percent,
            "tolerated": tolerance.text,
            "traceparent": traceparent,
            "trace_id": trace_id_of(traceparent) if traceparent else None,
        }
        with aws_errors(f"start the execution of run {run.run_id}"):
            try:
                self._stepfunctions.start_execution(
                    stateMachineArn=self._state_machine_arn, name=run.run_id, input=json.dumps(document)
                )
            except ClientError as error:
                if error_code(error) != "ExecutionAlreadyExists":
                    raise

    def is_running(self, run_id: str) -> bool:
        """Whether the run's execution is running.

        On AWS it runs until the run has ended. An emulator loses its executions in a restart.
        """
        with aws_errors(f"describe the execution of run {run_id}"):
            try:
                answer = self._stepfunctions.describe_execution(executionArn=self.arn(run_id))
            except ClientError as error:
                if error_code(error) == "ExecutionDoesNotExist":
                    return False
                raise
        return answer["status"] == "RUNNING"

    def stop(self, run_id: str, cause: str) -> None:
        """Stop the run's execution, if it is running."""
        with aws_errors(f"stop the execution of run {run_id}"):
            try:
                self._stepfunctions.stop_execution(executionArn=self.arn(run_id), error="RunCancelled", cause=cause)
            except ClientError as error:
                if error_code(error) not in _NOT_RUNNING_CODES:
                    raise
