"""Makes the emulator enforce IAM policies, and records each decision: principal, action, resource, verdict.

ministack checks two permissions differently from AWS. This module corrects them:

| call | ministack demands | AWS demands |
| --- | --- | --- |
| `SendMessageBatch` | an action of that name | `sqs:SendMessage` |
| `DescribeAlarms` | the action on `*` | the action on the alarms that are described |
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

#: Environment variable with the path of the file of decisions. The emulator enforces policies if it is set.
LOG_VARIABLE = "PRISMLINE_IAM_LOG"
#: Action that ministack demands on the resource `*` -> actions of which AWS demands one, on the resource itself.
UNSPECIFIC = {
    "cloudwatch:DescribeAlarms": {"cloudwatch:DescribeAlarms"},
}


@dataclass(frozen=True)
class Decision:
    """A request of a principal, and whether its policies allowed it."""

    #: Name of the role or user.
    principal: str
    action: str
    resource: str
    allowed: bool


def read_decisions(log: Path) -> set[Decision]:
    """The distinct decisions that were recorded."""
    return {Decision(**json.loads(line)) for line in log.read_text().splitlines()}


def enforce_policies(log: Path) -> None:
    """Make ministack, in this process, enforce policies and record its decisions. The root user may do anything."""
    from ministack import app  # noqa: PLC0415 - only in the emulator's process
    from ministack.core import iam_evaluator  # noqa: PLC0415
    from ministack.core.responses import get_account_id  # noqa: PLC0415

    inner = iam_evaluator.enforce
    seen: set[Decision] = set()

    def enforce(access_key_id: str, iam_action: str, service: str, region: str, *args: Any, **kwargs: Any) -> Any:
        action = iam_action.removesuffix("Batch") if iam_action.startswith("sqs:") else iam_action
        denied = inner(access_key_id, action, service, region, *args, **kwargs)
        principal = iam_evaluator.resolve_principal(access_key_id or "", get_account_id())
        policies = getattr(principal, "policies", None)
        if policies is None:  # root, or an unknown principal
            return denied
        asked = {(action, str(kwargs.get("resource_arn", args[0] if args else "*")))}
        if action in UNSPECIFIC:
            statements = [statement for policy in policies for statement in policy if statement.effect == "Allow"]
            granted = {
                (each, resource)
                for statement in statements
                for each in UNSPECIFIC[action].intersection(statement.actions)
                for resource in statement.resources
            }
            denied, asked = (None, granted) if granted else (denied, asked)
        for decision in {Decision(principal.arn.split("/")[1], *each, denied is None) for each in asked} - seen:
            seen.add(decision)
            with log.open("a") as file:
                file.write(json.dumps(asdict(decision)) + "\n")
        return denied

    app.AUTH = True
    iam_evaluator.enforce = enforce
