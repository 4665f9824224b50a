"""Stacks: plan and execute a change set, or create or update a stack directly, without a change set."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, WaiterError

from prismline_deploy.endpoints import is_aws
from prismline_deploy.errors import DeployError

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient
    from mypy_boto3_cloudformation.literals import CapabilityType

#: Maximum size in bytes of a template in a request to CloudFormation.
TEMPLATE_BYTES = 51_200
#: The services' stacks create roles with names.
CAPABILITIES: list[CapabilityType] = ["CAPABILITY_NAMED_IAM"]
#: Seconds between two polls of a stack on AWS and on an emulator, and the time limit: half an hour.
AWS_LOOK_SECONDS, LOOK_SECONDS, WAIT_SECONDS = 5.0, 0.2, 1800.0
#: Statuses of a stack whose creation failed: it can only be deleted.
STILLBORN_STATES = frozenset({"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED"})
#: Status of a stack that a change set was made for and never executed.
PLANNED = "REVIEW_IN_PROGRESS"
#: States of a stack without resources: there is none, or it is empty, or its creation failed.
NOT_CREATED = STILLBORN_STATES | {None, PLANNED}
#: Parts of CloudFormation's reasons: for an update that changes nothing, and for a change set that changes nothing.
NO_UPDATES = "No updates are to be performed"
NO_CHANGES = ("didn't contain changes", NO_UPDATES)


def compact(template: str) -> str:
    """A template without what only its reader needs: lines that are empty or a comment."""
    lines = template.splitlines(keepends=True)
    return "".join(line for line in lines if line.strip() and not line.lstrip().startswith("#"))


@dataclass(frozen=True)
class Change:
    """The change of one resource."""

    action: str
    resource: str
    type: str
    #: Whether the resource is replaced, so that its content is lost: `True`, `False` or `Conditional`.
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
    """A change set that has not been executed. If `changes` is empty, CloudFormation has no change set."""

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

    def plan(
        self, stack: str, given: Mapping[str, str], template: str | None = None, chosen: Collection[str] | None = None
    ) -> ChangeSet:
        """Create a change set. Parameters that are not given get the default of `template`.

        Those in `chosen` keep their values in the stack, and so do those that have no default. chosen: None if it is
        not known what a person chose; then every value that is not the default of the stack's own template stays.
        template: None keeps the template that the stack has, with all values.
        Raises DeployError with CloudFormation's reason.
        """
        new = self._without_remains(stack, STILLBORN_STATES) in {None, PLANNED}
        if template is None:
            if new:
                raise DeployError(f"There is no stack {stack}.")
            body: dict[str, Any] = {"UsePreviousTemplate": True}
            summary = self._cloudformation.get_template_summary(StackName=stack)
        else:
            template = compact(template)
            if len(template.encode()) > TEMPLATE_BYTES:
                raise DeployError(f"The template of {stack} is longer than {TEMPLATE_BYTES} bytes.")
            body = {"TemplateBody": template}
            summary = self._cloudformation.get_template_summary(TemplateBody=template)
        held = {} if new else self.parameters(stack)
        if template is None:
            kept: Collection[str] = held
        else:
            kept = self.chosen(stack) if chosen is None and not new else chosen or ()
        parameters: list[Any] = []
        for entry in summary.get("Parameters", []):
            key = entry["ParameterKey"]
            if key in given:
                parameters.append({"ParameterKey": key, "ParameterValue": given[key]})
            elif key in held and (key in kept or "DefaultValue" not in entry):
                parameters.append({"ParameterKey": key, "UsePreviousValue": True})
        name = f"prismline-{secrets.token_hex(6)}"
        self._cloudformation.create_change_set(
            StackName=stack,
            ChangeSetName=name,
            ChangeSetType="CREATE" if new else "UPDATE",
            Parameters=parameters,
            Capabilities=CAPABILITIES,
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
            raise DeployError(f"CloudFormation refused the change of stack {stack}: {reason}") from error
        pages = self._cloudformation.get_paginator("describe_change_set").paginate(StackName=stack, ChangeSetName=name)
        return ChangeSet(stack, name, new, [Change.of(each) for page in pages for each in page.get("Changes", [])])

    def execute(self, planned: ChangeSet) -> None:
        """Execute a change set and wait. Raises DeployError with the first resource that failed, and its reason.

        After a failure, CloudFormation also deletes the tables and buckets that it has just created. Otherwise they
        would remain under their names, and the next try would fail because of them.
        """
        if not planned.changes and not planned.new:
            return
        self._cloudformation.execute_change_set(
            StackName=planned.stack, ChangeSetName=planned.name, RetainExceptOnCreate=True
        )
        self._wait(planned.stack, new=planned.new)

    def put(self, stack: str, given: Mapping[str, str], template: str) -> dict[str, str]:
        """Create or update a stack without a change set, wait, and return its outputs.

        Parameters that are not given get their defaults. Raises DeployError as `execute` does.
        """
        # Not ValidateTemplate: it refuses types that an emulator lacks, even if a condition excludes the resource.
        template = compact(template)
        summary = self._cloudformation.get_template_summary(TemplateBody=template)
        declared = {entry["ParameterKey"] for entry in summary.get("Parameters", [])}
        parameters: list[Any] = [
            {"ParameterKey": key, "ParameterValue": value} for key, value in given.items() if key in declared
        ]
        new = self._without_remains(stack, STILLBORN_STATES | {PLANNED}) is None
        change = self._cloudformation.create_stack if new else self._cloudformation.update_stack
        try:
            change(StackName=stack, TemplateBody=template, Parameters=parameters, Capabilities=CAPABILITIES)
            self._wait(stack, new=new)
        except ClientError as error:
            if NO_UPDATES not in str(error):
                raise
        return self.outputs(stack)

    def _without_remains(self, stack: str, remains: Collection[str]) -> str | None:
        """The status of a stack; None if there is none. A stack with a status of `remains` is deleted first."""
        state = self.state(stack)
        if state not in remains:
            return state
        self._cloudformation.delete_stack(StackName=stack)
        self._cloudformation.get_waiter("stack_delete_complete").wait(StackName=stack, WaiterConfig=self._waiting)
        return None

    def _wait(self, stack: str, *, new: bool) -> None:
        waiter: Any = self._cloudformation.get_waiter("stack_create_complete" if new else "stack_update_complete")
        try:
            waiter.wait(StackName=stack, WaiterConfig=self._waiting)
        except WaiterError as error:
            raise DeployError(f"The stack {stack} was not deployed: {self._failure(stack)}") from error

    def discard(self, planned: ChangeSet) -> None:
        """Delete a change set. If the stack is new, also delete the empty stack that CloudFormation created for it."""
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

    def names(self, stack: str) -> list[str]:
        """The full names of the stacks with this short name, in all environments of the account and the Region."""
        pages = self._cloudformation.get_paginator("describe_stacks").paginate()
        names = [each["StackName"] for page in pages for each in page["Stacks"]]
        return [name for name in names if name.startswith("prismline-") and name.endswith(f"-{stack}")]

    def parameters(self, stack: str) -> dict[str, str]:
        """The parameters of a stack."""
        described = self._cloudformation.describe_stacks(StackName=stack)["Stacks"][0]
        return {each["ParameterKey"]: each.get("ParameterValue", "") for each in described.get("Parameters", [])}

    def chosen(self, stack: str) -> set[str]:
        """The parameters of a stack whose values are not the defaults of its template; none if it was not created."""
        if self.state(stack) in NOT_CREATED:
            return set()
        summary = self._cloudformation.get_template_summary(StackName=stack)
        defaults = {each["ParameterKey"]: each.get("DefaultValue") for each in summary.get("Parameters", [])}
        return {key for key, value in self.parameters(stack).items() if value != defaults.get(key)}

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
