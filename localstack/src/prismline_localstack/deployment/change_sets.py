"""Change sets: what a deployment would change in a stack, and the change itself."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, WaiterError

from prismline_localstack.errors import HarnessError
from prismline_localstack.settings import is_aws

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

#: The most bytes of a template that CloudFormation takes in a request.
TEMPLATE_BYTES = 51_200
#: Seconds between two looks at a stack of AWS or of an emulator, and how long it may take: half an hour.
AWS_LOOK_SECONDS, LOOK_SECONDS, WAIT_SECONDS = 5.0, 0.2, 1800.0
#: States of a stack that never came up: it can only be deleted.
STILLBORN_STATES = frozenset({"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED"})
#: Parts of the reasons that CloudFormation gives for a change set without changes.
NO_CHANGES = ("didn't contain changes", "No updates are to be performed")


@dataclass(frozen=True)
class Change:
    """What happens to one resource."""

    action: str
    resource: str
    type: str
    #: Whether the resource is made anew, with what it holds lost: `True`, `False` or `Conditional`.
    replacement: str

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> Change:
        """A change as `DescribeChangeSet` describes it."""
        change = described["ResourceChange"]
        return cls(
            change["Action"],
            change["LogicalResourceId"],
            change["ResourceType"],
            change.get("Replacement") or ("True" if change["Action"] == "Remove" else "False"),
        )


@dataclass(frozen=True)
class ChangeSet:
    """A change set that has not been executed. Without changes there is none in CloudFormation."""

    stack: str
    name: str
    new: bool
    changes: list[Change]


class Stacks:
    """The stacks of an AWS account, or of an emulator."""

    def __init__(self, cloudformation: CloudFormationClient) -> None:
        self._cloudformation = cloudformation
        delay = AWS_LOOK_SECONDS if is_aws(cloudformation.meta.endpoint_url) else LOOK_SECONDS
        self._waiting: Any = {"Delay": delay, "MaxAttempts": round(WAIT_SECONDS / delay)}

    def plan(self, stack: str, given: Mapping[str, str], template: str | None = None) -> ChangeSet:
        """Make a change set. Parameters that are not given, but declared, keep their values in the stack.

        template: None keeps the template that the stack has. Raises HarnessError with CloudFormation's reason.
        """
        state = self.state(stack)
        if state in STILLBORN_STATES:
            self._cloudformation.delete_stack(StackName=stack)
            self._cloudformation.get_waiter("stack_delete_complete").wait(StackName=stack, WaiterConfig=self._waiting)
            state = None
        new = state in {None, "REVIEW_IN_PROGRESS"}
        if template is None:
            if new:
                raise HarnessError(f"There is no stack {stack}.")
            body: dict[str, Any] = {"UsePreviousTemplate": True}
            summary = self._cloudformation.get_template_summary(StackName=stack)
        else:
            if len(template.encode()) > TEMPLATE_BYTES:
                raise HarnessError(f"The template of {stack} is longer than {TEMPLATE_BYTES} bytes.")
            body = {"TemplateBody": template}
            summary = self._cloudformation.get_template_summary(TemplateBody=template)
        held = {} if new else self.parameters(stack)
        parameters: list[Any] = []
        for entry in summary.get("Parameters", []):
            key = entry["ParameterKey"]
            if key in given:
                parameters.append({"ParameterKey": key, "ParameterValue": given[key]})
            elif key in held:
                parameters.append({"ParameterKey": key, "UsePreviousValue": True})
        name = f"prismline-{secrets.token_hex(6)}"
        self._cloudformation.create_change_set(
            StackName=stack,
            ChangeSetName=name,
            ChangeSetType="CREATE" if new else "UPDATE",
            Parameters=parameters,
            Capabilities=["CAPABILITY_NAMED_IAM"],
            **body,
        )
        return self._described(stack, name, new=new)

    def _described(self, stack: str, name: str, *, new: bool) -> ChangeSet:
        waiter = self._cloudformation.get_waiter("change_set_create_complete")
        try:
            waiter.wait(StackName=stack, ChangeSetName=name, WaiterConfig=self._waiting)
        except WaiterError as error:
            described = self._cloudformation.describe_change_set(StackName=stack, ChangeSetName=name)
            reason = described.get("StatusReason", str(error))
            self._cloudformation.delete_change_set(StackName=stack, ChangeSetName=name)
            if any(text in reason for text in NO_CHANGES):
                return ChangeSet(stack, name, new, [])
            raise HarnessError(f"CloudFormation refused the change of stack {stack}: {reason}") from error
        pages = self._cloudformation.get_paginator("describe_change_set").paginate(StackName=stack, ChangeSetName=name)
        return ChangeSet(stack, name, new, [Change.of(each) for page in pages for each in page.get("Changes", [])])

    def execute(self, planned: ChangeSet) -> None:
        """Execute a change set and wait. Raises HarnessError with the first resource that failed, and its reason."""
        if not planned.changes and not planned.new:
            return
        self._cloudformation.execute_change_set(StackName=planned.stack, ChangeSetName=planned.name)
        waiter: Any = self._cloudformation.get_waiter(
            "stack_create_complete" if planned.new else "stack_update_complete"
        )
        try:
            waiter.wait(StackName=planned.stack, WaiterConfig=self._waiting)
        except WaiterError as error:
            raise HarnessError(f"The stack {planned.stack} was not deployed: {self._failure(planned.stack)}") from error

    def discard(self, planned: ChangeSet) -> None:
        """Delete a change set, and the empty stack that CloudFormation made for that of a new one."""
        if planned.new:
            self._cloudformation.delete_stack(StackName=planned.stack)
        elif planned.changes:
            self._cloudformation.delete_change_set(StackName=planned.stack, ChangeSetName=planned.name)

    def state(self, stack: str) -> str | None:
        """The status of a stack. None if there is no such stack."""
        try:
            return self._cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]
        except ClientError as error:
            if "does not exist" in str(error):
                return None
            raise

    def parameters(self, stack: str) -> dict[str, str]:
        """The parameters of a stack."""
        described = self._cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
        return {each["ParameterKey"]: each.get("ParameterValue", "") for each in described.get("Parameters", [])}

    def outputs(self, stack: str) -> dict[str, str]:
        """The outputs of a stack."""
        described = self._cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
        return {each["OutputKey"]: each["OutputValue"] for each in described.get("Outputs", [])}

    def _failure(self, stack: str) -> str:
        """The first resource that failed in the latest attempt, and the reason."""
        failure = "see its events for the reason."
        pages = self._cloudformation.get_paginator("describe_stack_events").paginate(StackName=stack)
        for event in (event for page in pages for event in page["StackEvents"]):  # the newest first
            status = event.get("ResourceStatus", "")
            if event.get("ResourceType") == "AWS::CloudFormation::Stack":
                if status in {"CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS"}:
                    break
            elif status.endswith("_FAILED"):
                reason = event.get("ResourceStatusReason", "no reason given")
                failure = f"{event.get('LogicalResourceId')} ({event.get('ResourceType')}): {reason}"
        return failure
