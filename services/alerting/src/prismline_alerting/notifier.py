"""The notifier: parses an alert, decides about it, and posts it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from prismline_alerting import embeds
from prismline_alerting.alerts import Alert, alert_of_failed_run, alert_of_notification
from prismline_alerting.decisions import Ignore, Post, SubjectRecord, Suppress, Wait, decide
from prismline_alerting.dependencies import RECHECK, NotifierDependencies
from prismline_contracts.events import RunFailed
from prismline_runtime import Delivery, Message, TransientError, fault_point

#: Age up to which a message about an alarm is trusted without asking CloudWatch.
FRESH = timedelta(minutes=1)
#: Seconds after which a notifier that lost the race for a claim checks again.
LOST_RACE_SECONDS = 1


def on_notification(document: dict[str, Any], delivery: Delivery, deps: NotifierDependencies) -> None:
    """Handle a notification of SNS about an alarm.

    A fresh message is trusted. A late message, or one that comes again after a mute or a failed post, may be outdated.
    The notifier then asks CloudWatch for the alarm's current state, and posts nothing if it differs from the message's.
    """
    alert = alert_of_notification(document)
    with deps.logger.append_context_keys(alarm=alert.name, state=alert.state):
        first = delivery.receive_count == 1 and RECHECK not in delivery.attributes
        if not first or deps.clock() - alert.at > FRESH:
            present = deps.alarms.look_up(alert.name)
            if present is None or present.state is not alert.state:
                deps.logger.info("alert_ignored", extra={"reason": "the alarm has changed since"})
                return
            alert = present
        notify(alert, delivery, deps)


def on_run_failed(run: RunFailed, message: Message, deps: NotifierDependencies) -> None:
    """Handle the failure of a run."""
    notify(alert_of_failed_run(run), message.delivery, deps)


def notify(alert: Alert, delivery: Delivery, deps: NotifierDependencies) -> None:
    """Post an alert, unless it was posted before or alerts are muted."""
    memory, version = deps.posts.recall(alert.subject)
    now = deps.clock()
    muted_until = deps.parameters.muted_until()
    match decide(alert, memory, muted=muted_until > now.timestamp(), now=now):
        case Ignore(reason):
            deps.logger.info("alert_ignored", extra={"reason": reason})
        case Wait(seconds):
            raise TransientError("Another notifier is posting about this alarm or run.", retry_after=seconds)
        case Suppress(look_again):
            if look_again:
                deps.recheck(delivery, seconds=muted_until - int(now.timestamp()))
            deps.logger.info("alert_suppressed", extra={"muted_until": muted_until})
        case Post():
            _post(alert, memory, version, deps)


def _post(alert: Alert, memory: SubjectRecord, version: str, deps: NotifierDependencies) -> None:
    """Claim, post, record. Without a webhook the alert is only logged."""
    url = deps.webhook_url()
    message = embeds.message(alert, deps.facts.find(alert), deps.settings.environment)
    token = deps.posts.claim(alert, memory, version, deps.clock())
    if token is None:
        raise TransientError("Another notifier is posting about this alarm or run.", retry_after=LOST_RACE_SECONDS)
    fault_point("alert.claimed", subject=alert.subject)
    posted = False
    try:
        if url is None:
            deps.logger.warning("alert_not_configured", extra={"alert": message["embeds"][0]})
        else:
            deps.webhook.post(url, message)
        posted = True
        fault_point("alert.posted", subject=alert.subject)
    finally:
        if not deps.posts.end_claim(alert, token, posted=posted):
            deps.logger.warning("claim_lost", extra={"posted": posted})
    if url is not None:
        deps.logger.info("alert_posted")
