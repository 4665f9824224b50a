"""`prismline cancel`: the request that it sends to the status service, and the runs that it refuses to cancel."""

from __future__ import annotations

from typing import Any

import pytest
from cli_world import CliWorld

from prismline_contracts.envelope import Envelope
from prismline_contracts.events import RunCancelRequested
from prismline_localstack.state import make_client
from prismline_localstack.testing import observe_bus

pytestmark = pytest.mark.emulator

FIRST_CANCEL, GOES_ON = "2026-03-10T12:00:00.000Z", "2026-03-10T12:05:00.000Z"


@pytest.fixture
def observed(world: CliWorld, aws_env: dict[str, str]) -> Any:
    """The world, with a queue that receives the events of the bus."""
    sqs, events = make_client("sqs", aws_env), make_client("events", aws_env)
    bus = f"prismline-{aws_env['ENVIRONMENT']}"
    events.create_event_bus(Name=bus)
    world.sqs, world.url = sqs, observe_bus(sqs, events, bus)
    return world


def asked(world: Any) -> RunCancelRequested:
    (message,) = world.sqs.receive_message(QueueUrl=world.url, WaitTimeSeconds=5)["Messages"]
    return RunCancelRequested.model_validate(Envelope.model_validate_json(message["Body"]).data)


def test_a_run_that_was_continued_after_a_cancel_is_cancelled_again(observed: Any) -> None:
    """Its status is `cancelled` until it ends. The request has the `uncancelled_at` that the user saw."""
    observed.add_run("run", status="cancelled", resumed_at=GOES_ON, uncancelled_at=GOES_ON, jobs_total=2)
    assert observed.json("cancel", "run") == {"run_id": "run", "requested": "cancel"}
    request = asked(observed)
    assert (request.run_id, request.uncancelled_at) == ("run", GOES_ON)


def test_a_run_that_was_never_cancelled_is_cancelled_for_the_first_time(observed: Any) -> None:
    observed.add_run("run", status="running", jobs_total=2)
    assert "Requested the cancellation of run run." in observed.run("cancel", "run").stdout
    assert asked(observed).uncancelled_at is None


@pytest.mark.parametrize(
    "fields",
    [
        {"cancelled_at": FIRST_CANCEL, "stop_reason": "cancelled"},
        {"cancelled_at": GOES_ON, "stop_reason": "cancelled", "uncancelled_at": FIRST_CANCEL},
    ],
    ids=["once", "twice"],
)
def test_a_cancelled_run_that_was_not_continued_is_not_cancelled_again(observed: Any, fields: dict[str, str]) -> None:
    observed.add_run("run", status="cancelled", **fields)
    assert "Run run is cancelled already." in observed.run("cancel", "run", expect=2).stderr
