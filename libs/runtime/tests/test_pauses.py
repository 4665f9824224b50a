"""How often a consumer calls SQS while SQS does not answer, in virtual time."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from prismline_runtime import consumer, service_logger
from prismline_runtime.consumer import Consumer, Polled
from prismline_runtime.settings import ConsumerSettings

MINUTE, DAY = 60.0, 86_400.0


class Outages:
    """An SQS client that does not answer during some times. Time passes while the consumer waits, until `end`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *times: tuple[float, float], end: float) -> None:
        self.now, self.waits, self._times, self._end = 0.0, list[tuple[float, float]](), times, end
        outages = self

        class Event:
            def is_set(self) -> bool:
                return outages.now >= outages._end

            def wait(self, seconds: float) -> bool:
                outages.waits.append((outages.now, seconds))
                outages.now += seconds
                return self.is_set()

        class Module:
            Lock, monotonic = threading.Lock, staticmethod(lambda: outages.now)

        Module.Event = Event  # type: ignore[attr-defined]
        monkeypatch.setattr(consumer, "threading", Module)
        monkeypatch.setattr(consumer, "time", Module)

    def run(self) -> list[tuple[float, float]]:
        """Let a consumer run. Returns the moments and the lengths of its pauses."""
        sqs: Any = self
        settings = ConsumerSettings(wait_seconds=20)
        polled, logger = Polled("chunks", 10), service_logger("test")
        Consumer(
            sqs=sqs, polled=polled, handler=lambda *_: None, settings=settings, logger=logger, turn=threading.Lock()
        ).run()
        return self.waits

    def _answer(self) -> None:
        if any(start <= self.now < end for start, end in self._times):
            raise EndpointConnectionError(endpoint_url="https://sqs.test")

    def get_queue_url(self, **_: Any) -> dict[str, str]:
        self._answer()
        return {"QueueUrl": "https://sqs.test/chunks"}

    def get_queue_attributes(self, **_: Any) -> dict[str, dict[str, str]]:
        return {"Attributes": {"QueueArn": "arn:aws:sqs:us-east-1:000000000000:chunks"}}

    def receive_message(self, **parameters: Any) -> dict[str, Any]:
        self._answer()
        self.now += parameters["WaitTimeSeconds"]
        return {}


@pytest.mark.parametrize("start", [0.0, 10.0], ids=["of a queue that it has not found", "of its queue"])
def test_a_consumer_asks_seldom_during_a_day_without_sqs(monkeypatch: pytest.MonkeyPatch, start: float) -> None:
    pauses = [length for _, length in Outages(monkeypatch, (start, DAY), end=DAY).run()]
    assert len(pauses) < DAY / 10, "a line of the log for each call"
    assert pauses[:10] == [1.0] * 10
    assert max(pauses) <= 15.0, "the queue is polled soon after the end of the outage"


def test_a_consumer_is_back_soon_after_a_short_outage_and_asks_as_often_in_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = (20.0, 20.0 + MINUTE), (10 * MINUTE, 11 * MINUTE)
    pauses = Outages(monkeypatch, first, second, end=15 * MINUTE).run()
    assert max(at + length for at, length in pauses if at < first[1]) < first[1] + 0.1 * MINUTE
    assert [length for at, length in pauses if at >= second[0]][:10] == [1.0] * 10
