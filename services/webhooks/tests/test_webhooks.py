"""Webhooks: the posts that a target gets, retries if it does not accept them, and forbidden targets."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as Verifier
from standardwebhooks import WebhookVerificationError
from webhook_world import JOB_ID, RUN_ID, SECRET, Target, WebhookWorld

from prismline_contracts.base import timestamp
from prismline_contracts.jobs import WebhookItem, WebhookSecretError
from prismline_runtime import Delivery, Transport
from prismline_web import guarded_async_client
from prismline_webhooks import handler as handler_module
from prismline_webhooks.posting import Poster
from prismline_webhooks.retrying import PATIENCE, Answer, Delivered, GiveUp, TryAgain, decide
from prismline_webhooks.signing import signed_headers

emulator = pytest.mark.emulator


@pytest.fixture
def target() -> Iterator[Target]:
    with Target.listening() as target:
        yield target


@pytest.fixture
def world(aws_env: dict[str, str], monkeypatch: pytest.MonkeyPatch, target: Target) -> WebhookWorld:
    return WebhookWorld.create(aws_env["ENVIRONMENT"], monkeypatch, target)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes postponed messages visible again at once. Returns the waits that were requested."""
    waits: list[int] = []
    postpone = Transport.postpone

    def at_once(transport: Transport, delivery: Delivery, seconds: int) -> None:
        waits.append(seconds)
        postpone(transport, delivery, 0)

    monkeypatch.setattr(Transport, "postpone", at_once)
    return waits


# ---- signatures, checked by an independent library


@given(secret=st.binary(min_size=24, max_size=64), event_id=st.uuids().map(str), body=st.text().map(str.encode))
def test_the_independent_library_accepts_what_is_signed(secret: bytes, event_id: str, body: bytes) -> None:
    verifier = Verifier(secret)
    text = "whsec_" + base64.b64encode(secret).decode()
    headers = signed_headers(text, event_id, body, datetime.now(UTC))
    verifier.verify(body, headers, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        verifier.verify(body + b"x", headers, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        verifier.verify(body, headers | {"webhook-id": "other"}, json_parse=False)


@given(secret=st.from_regex(r"whsec_[A-Za-z0-9+/]{30,130}={0,2}", fullmatch=True))
def test_a_secret_signs_exactly_if_it_is_base64_of_24_to_96_bytes(secret: str) -> None:
    text = secret.removeprefix("whsec_").rstrip("=")
    if len(text) % 4 == 1 or not 32 <= len(text) <= 128:
        with pytest.raises(WebhookSecretError, match="whsec_ and base64"):
            signed_headers(secret, "id", b"body", datetime.now(UTC))
    else:
        headers = signed_headers(secret, "id", b"body", datetime.now(UTC))
        Verifier(text + "=" * (-len(text) % 4)).verify(b"body", headers, json_parse=False)


# ---- decisions


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def item(attempts: int = 1) -> WebhookItem:
    return WebhookItem(
        PK="RUN#r",
        SK="WEBHOOK#e",
        job_id="j",
        tenant="t",
        event_type="prismline.run.completed.v1",
        attempts=attempts,
        first_attempt_at=timestamp(NOW),
    )


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_a_success_delivers(status: int) -> None:
    assert decide(Answer(status), item(), NOW) == Delivered()


@pytest.mark.parametrize("answer", [Answer(s) for s in (301, 400, 404, 429, 500, 503)] + [Answer(error="No answer.")])
def test_anything_else_is_tried_again(answer: Answer) -> None:
    assert isinstance(decide(answer, item(), NOW), TryAgain)


def test_a_target_that_is_gone_or_refused_is_given_up() -> None:
    assert decide(Answer(410), item(), NOW) == GiveUp("The target answered 410.")
    assert decide(Answer(error="It may not be reached.", final=True), item(), NOW) == GiveUp("It may not be reached.")


def test_the_waits_grow_to_an_hour_and_end_after_a_day() -> None:
    now, attempts, waits = NOW, 1, []
    while isinstance(decision := decide(Answer(500), item(attempts), now), TryAgain):
        waits.append(decision.seconds)
        now += timedelta(seconds=decision.seconds)
        attempts += 1
    assert waits[0] <= 5 < waits[2] < waits[4]
    assert max(waits) <= 3600
    assert timedelta(hours=23) <= now - NOW <= PATIENCE
    assert attempts < 100, "fewer than the receives before a redrive"
    assert decision == GiveUp(f"The target answered 500. Given up after {attempts} attempts in 24 hours.")


def test_a_target_may_ask_for_a_longer_wait_up_to_a_limit() -> None:
    assert decide(Answer(429, retry_after=120), item(), NOW) == TryAgain(120)
    assert decide(Answer(429, retry_after=10**7), item(), NOW) == TryAgain(3600)


# ---- the process


@emulator
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_target_is_told_once_how_a_run_ended(world: WebhookWorld, target: Target, status: str) -> None:
    world.deps = replace(world.deps, clock=lambda: datetime.now(UTC))  # the library checks the time
    world.submit()
    world.end(status)
    assert world.handle() == []
    ((body, headers),) = target.posts
    document = Verifier(SECRET).verify(body, headers)
    assert document["type"] == f"run.{status}"
    data = document["data"]
    assert (data["run_id"], data["job_id"], data["status"]) == (RUN_ID, JOB_ID, status)
    assert (data["total"], data["completed"], data["failed"]) == (2, 0, 0)
    assert data.get("error") == ("All chunks failed." if status == "failed" else None)
    assert (world.item()["status"], world.item()["attempts"], world.item()["http_status"]) == ("DELIVERED", 1, 200)


@emulator
@pytest.mark.parametrize(("drained", "status"), [(False, "cancelled"), (True, "cancelled"), (True, "completed")])
def test_a_target_is_told_whether_the_counts_are_final(
    world: WebhookWorld, target: Target, drained: bool, status: str
) -> None:
    world.submit()
    ledger = world.deps.ledger
    if drained:
        for chunk in list(ledger.chunks(RUN_ID)):
            ledger.fail_chunk(chunk, "It has no spectra.")
    world.end(status)
    assert world.handle() == []
    data = json.loads(target.posts[0][0])["data"]
    assert (data["failed"], data["counts_final"]) == (2 if drained else 0, drained)


@emulator
def test_an_event_that_comes_again_is_not_posted_again(world: WebhookWorld, target: Target) -> None:
    world.submit()
    for _ in range(2):
        world.end()
        assert world.handle() == []
    assert len(target.posts) == 1


@emulator
def test_a_post_is_repeated_with_the_same_id_until_it_is_accepted(
    world: WebhookWorld, target: Target, impatient: list[int]
) -> None:
    target.answers = [(503, {}), (429, {"Retry-After": "77"}), (302, {"Location": "http://127.0.0.1:1/"})]
    world.submit()
    world.end()
    assert [len(world.handle() or ()) for _ in range(4)] == [1, 1, 1, 0]
    assert len({headers["webhook-id"] for _, headers in target.posts}) == 1
    assert len({body for body, _ in target.posts}) == 1
    assert len(target.posts) == 4, "no redirect was followed"
    assert impatient[1] == 77
    assert world.item()["status"] == "DELIVERED"


@emulator
def test_after_a_day_a_post_is_a_dead_letter_and_can_be_sent_back(
    world: WebhookWorld, target: Target, impatient: list[int]
) -> None:
    target.answers = [(500, {})] * 100
    world.submit()
    world.end()
    attempts = 0
    while world.handle():
        attempts += 1
        world.clock.advance(impatient[-1])
    assert attempts > 20
    reason = f"The target answered 500. Given up after {attempts + 1} attempts in 24 hours."
    assert world.dead_letters() == [reason]
    assert (world.item()["status"], world.item()["last_error"]) == ("FAILED", reason)
    target.answers = []
    world.send_back()
    assert world.handle() == []
    assert (world.item()["status"], world.item()["attempts"]) == ("DELIVERED", 1)


@emulator
@pytest.mark.parametrize(("point", "posts"), [("webhook.counted", 1), ("webhook.posted", 2)])
def test_a_process_that_dies_at_the_post_posts_again_with_the_same_id(
    world: WebhookWorld, target: Target, monkeypatch: pytest.MonkeyPatch, point: str, posts: int
) -> None:
    class CrashError(BaseException):
        pass

    def die(name: str, **_: str) -> None:
        if name == point:
            raise CrashError

    world.submit()
    world.end()
    monkeypatch.setattr(handler_module, "fault_point", die)
    with pytest.raises(CrashError):
        world.handle()
    monkeypatch.undo()
    world.end()
    assert world.handle() == []
    assert len(target.posts) == posts
    assert len({headers["webhook-id"] for _, headers in target.posts}) == 1
    assert world.item()["status"] == "DELIVERED"


@emulator
def test_a_late_failure_does_not_undo_a_delivery(world: WebhookWorld) -> None:
    world.submit()
    deliveries = world.deps.deliveries
    job = deliveries.job_of(RUN_ID)
    assert job is not None
    first, second = (deliveries.begin(RUN_ID, "event", job, "prismline.run.completed.v1") for _ in range(2))
    assert first is not None
    assert second is not None
    deliveries.delivered(second, 200)
    deliveries.note(first, status="FAILED", last_error="The target did not answer.")
    item = world.item()
    assert (item["status"], item["http_status"], item.get("last_error")) == ("DELIVERED", 200, None)


@emulator
@pytest.mark.parametrize("case", ["no webhook", "job is being deleted", "not of a job"])
def test_without_a_target_or_a_job_nothing_is_posted(world: WebhookWorld, target: Target, case: str) -> None:
    if case == "no webhook":
        world.submit(webhook=False)
    elif case == "job is being deleted":
        world.submit(state="deleting")
    world.end()
    assert world.handle() == []
    assert target.posts == []


# ---- forbidden targets


@emulator
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "[::ffff:127.0.0.1]", "169.254.169.254"])
def test_a_target_in_a_private_network_gets_nothing(world: WebhookWorld, target: Target, host: str) -> None:
    world.deps = replace(world.deps, poster=Poster(guarded_async_client, 5.0))
    world.submit(url=target.url.replace("127.0.0.1", host))
    world.end()
    assert world.handle() == []
    assert target.posts == []
    (reason,) = world.dead_letters()
    assert "may not be reached" in reason
    assert "WEBHOOK_ALLOW_PRIVATE=true" in reason


def test_a_target_that_does_not_answer_is_waited_for_until_the_limit(target: Target) -> None:
    target.hold = threading.Event()
    poster = Poster(partial(guarded_async_client, allow_private=True), 0.3)
    assert poster.post(target.url, b"{}", {}) == Answer(error="The target did not answer within 0.3 s.")
    target.hold.set()


#: URLs to which no client can post. The api accepted some of them in earlier releases.
MALFORMED = ["ftp://example.org/", "http://", "http://[::bad/", "http://[::1", "http://e.org:99999999/", "http://a..b/"]


@pytest.mark.parametrize("url", MALFORMED)
def test_a_target_that_is_not_a_url_is_given_up(url: str) -> None:
    assert Poster(guarded_async_client, 1.0).post(url, b"{}", {}).final


@emulator
@pytest.mark.parametrize(
    ("target_of_job", "reason"),
    [
        ({"url": "http://[::1"}, "The target's URL cannot be requested"),
        ({"url": "http://example.org:99999999/"}, "The target's URL cannot be requested"),
        ({"secret": f"whsec_{'A' * 33}"}, "The webhook's secret is not"),
    ],
)
def test_a_post_that_can_never_work_fails_at_once_with_its_reason(
    world: WebhookWorld, target: Target, target_of_job: dict[str, str], reason: str
) -> None:
    """Jobs of an earlier release may have such a target."""
    world.submit(**target_of_job)
    world.end()
    assert world.handle() == []
    assert target.posts == []
    item = world.item()
    assert (item["status"], item["attempts"]) == ("FAILED", 1)
    assert reason in item["last_error"]
    assert world.dead_letters() == [item["last_error"]]


def test_a_target_that_is_down_is_tried_again() -> None:
    poster = Poster(partial(guarded_async_client, allow_private=True), 5.0)
    answer = poster.post("http://127.0.0.1:1/", b"{}", {})
    assert answer == Answer(error="The target cannot be reached: ConnectError.")
