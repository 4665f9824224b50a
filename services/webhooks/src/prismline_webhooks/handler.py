"""The Lambda handler of the webhooks service: posts the end of a run to the target of its job.

The message stays in the queue until the target has accepted the post, and is hidden between two attempts. It is given
up after a time, which the webhook's item records, and not after a number of receipts. A post that is given up becomes a
dead letter. If a person sends it back, it is tried for another day.
"""

from __future__ import annotations

import json
from functools import cache, partial
from typing import Any

from prismline_contracts.events import RunCancelled, RunCompleted, RunFailed
from prismline_contracts.jobs import JobItem, Webhook, WebhookSecretError
from prismline_runtime import Message, PermanentError, TransientError, fault_point, queue_handler
from prismline_runtime.routing import LambdaHandler
from prismline_webhooks.dependencies import Dependencies
from prismline_webhooks.retrying import Answer, Delivered, GiveUp, TryAgain, decide
from prismline_webhooks.signing import signed_headers

#: The status of the run in a post, by the type of its last event.
_STATUS = {RunCompleted.TYPE: "completed", RunFailed.TYPE: "failed", RunCancelled.TYPE: "cancelled"}

RunEnded = RunCompleted | RunFailed | RunCancelled


def on_run_ended(event: RunEnded, message: Message, deps: Dependencies) -> None:
    """Post the end of a run, if its job has a target."""
    job = deps.deliveries.job_of(event.run_id)
    if job is None or job.webhook is None or job.state == "deleting":
        return
    event_id = message.envelope.id
    item = deps.deliveries.begin(event.run_id, event_id, job, event.TYPE)
    if item is None:
        return
    fault_point("webhook.counted", run_id=event.run_id)
    body = _body(event, message, job, deps)
    answer = _post(job.webhook, event_id, body, deps)
    fault_point("webhook.posted", run_id=event.run_id)
    facts = {"attempt": item.attempts, "http_status": answer.status}
    match decide(answer, item, deps.clock()):
        case Delivered():
            deps.deliveries.delivered(item, answer.status or 0)
            deps.logger.info("webhook_delivered", extra=facts)
        case TryAgain(seconds):
            deps.deliveries.note(item, last_error=answer.why_not, http_status=answer.status)
            deps.logger.info("webhook_postponed", extra=facts | {"reason": answer.why_not, "seconds": seconds})
            raise TransientError(answer.why_not, retry_after=seconds)
        case GiveUp(reason):
            deps.deliveries.note(item, status="FAILED", last_error=reason, http_status=answer.status)
            deps.logger.warning("webhook_given_up", extra=facts | {"reason": reason})
            raise PermanentError(reason)


def _post(target: Webhook, event_id: str, body: bytes, deps: Dependencies) -> Answer:
    try:
        headers = signed_headers(target.secret, event_id, body, deps.clock())
    except WebhookSecretError as error:
        return Answer(error=f"The webhook's secret is not valid: {error}.", final=True)
    return deps.poster.post(target.url, body, headers)


def _body(event: RunEnded, message: Message, job: JobItem, deps: Dependencies) -> bytes:
    """The body of the post: a Standard Webhooks payload with `type`, `timestamp` and `data`."""
    run = deps.ledger.get_run(event.run_id)
    counts = deps.ledger.counts(run) if run is not None else None
    data: dict[str, Any] = {
        "job_id": job.job_id,
        "run_id": event.run_id,
        "name": job.survey,
        "workload": job.workload,
        "status": _STATUS[event.TYPE],
        "completed_at": event.completed_at,
    }
    if run is not None and counts is not None:
        data |= {"total": counts.total, "completed": counts.completed, "failed": counts.failed}
        # workers may still end what they had begun when a run was cancelled
        data["counts_final"] = run.drained_at is not None
    if isinstance(event, RunFailed):
        data["error"] = event.error
    kind = f"run.{_STATUS[event.TYPE]}"
    return json.dumps({"type": kind, "timestamp": message.envelope.time, "data": data}).encode()


def build_handler(deps: Dependencies) -> LambdaHandler:
    """The handler with its dependencies."""
    ended = partial(on_run_ended, deps=deps)
    return queue_handler(
        deps.transport,
        deps.logger,
        {RunCompleted: ended, RunFailed: ended, RunCancelled: ended},
        errors=deps.ledger,
    )


@cache
def process_handler() -> LambdaHandler:
    """The handler of this process."""
    return build_handler(Dependencies.from_environment())


def handler(event: dict[str, Any], context: Any) -> Any:
    """Entry point. Takes Lambda's SQS event and answers with `batchItemFailures`."""
    return process_handler()(event, context)
