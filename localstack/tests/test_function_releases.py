"""A function reuses its environments, and a replaced release ends after its last invocation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prismline_localstack import harness
from prismline_localstack.errors import HarnessError
from prismline_localstack.functions.environment import EnvironmentFailedError, Outcome
from prismline_localstack.functions.function import (
    IDLE_SECONDS,
    OLDEST_SECONDS,
    THROTTLED,
    Function,
    Functions,
    Release,
)
from prismline_runtime import service_logger

RELEASE = Release("probe", "prismline/probe@sha256:0", "1", timeout=5.0)


class Environment:
    """A fake execution environment."""

    def __init__(self, *, fails: bool = False) -> None:
        self.alive = True
        self.cold_start = None
        self.started = self.idle_since = time.monotonic()
        self.go_on, self.invoked = threading.Event(), threading.Event()
        self._fails = fails

    def invoke(self, event: bytes, timeout: float) -> Outcome:
        if self._fails:
            raise EnvironmentFailedError("It did not start.")
        self.invoked.set()
        if event == b"wait":
            self.go_on.wait(20)
        return Outcome(b"done")

    def stop(self) -> None:
        self.alive = False


class Started(list[Environment]):
    """Creates fake environments, and is the list of them."""

    def __call__(self) -> Any:
        self.append(Environment())
        return self[-1]


@pytest.fixture
def started() -> Started:
    return Started()


@pytest.fixture
def function(started: Started) -> Function:
    return Function(RELEASE, started, service_logger("probe"))


@pytest.fixture
def in_background() -> Iterator[Callable[..., Any]]:
    with ThreadPoolExecutor(2) as pool:
        yield pool.submit


@pytest.fixture
def under_way(started: Started, in_background: Callable[..., Any]) -> Callable[..., Any]:
    """Begins a call that invokes the first environment with `wait`, and returns when the environment has it."""

    def begin(*call: Any) -> Any:
        future = in_background(*call, b"wait")
        while not (started and started[0].invoked.wait(0.01)):
            pass
        return future

    return begin


def test_an_environment_is_used_again(function: Function, started: Started) -> None:
    for _ in range(3):
        assert function.invoke(b"").answer == b"done"
    assert len(started) == 1


def test_invocations_at_the_same_time_have_environments_of_their_own(
    function: Function, started: Started, under_way: Callable[..., Any]
) -> None:
    first = under_way(function.invoke)
    function.invoke(b"")
    assert len(started) == 2
    started[0].go_on.set()
    assert first.result().answer == b"done"


def test_a_request_waits_for_a_function_that_is_being_deployed(
    function: Function, in_background: Callable[..., Any]
) -> None:
    functions = Functions()
    request = in_background(functions.find, "probe", 20.0)
    functions.replace("probe", function)
    assert request.result() is function
    assert functions.find("another") is None


def test_a_replaced_release_ends_after_its_last_invocation(
    function: Function, started: Started, under_way: Callable[..., Any]
) -> None:
    first = under_way(function.invoke)
    function.invoke(b"")
    function.retire()
    assert [environment.alive for environment in started] == [True, False], "only an idle environment ends at once"
    started[0].go_on.set()
    assert first.result().answer == b"done"
    assert not started[0].alive


@pytest.mark.parametrize(("reserved", "expected"), [(1, THROTTLED), (2, Outcome(b"done")), (None, Outcome(b"done"))])
def test_there_are_never_more_invocations_than_are_reserved(
    started: Started, under_way: Callable[..., Any], reserved: int | None, expected: Outcome
) -> None:
    """The limit covers all releases together: invocations in a replaced release count until they end."""
    functions = Functions()
    for revision in ("1", "2"):
        release = replace(RELEASE, revision=revision, reserved=reserved)
        functions.replace("probe", Function(release, started, service_logger("probe")))
        if not started:
            first = under_way(functions.invoke, "probe")
        assert functions.invoke("probe", b"") == expected
    started[0].go_on.set()
    assert first.result().answer == b"done"
    assert functions.invoke("probe", b"") == Outcome(b"done"), "ended invocations do not count"


def test_a_function_with_a_reserved_concurrency_of_0_is_never_invoked(started: Started) -> None:
    functions = Functions()
    functions.replace("probe", Function(replace(RELEASE, reserved=0), started, service_logger("probe")))
    assert functions.invoke("probe", b"") is THROTTLED
    assert functions.invoke("another", b"") is None
    assert not started


@pytest.mark.parametrize("wear", ["dead", "old"])
def test_an_environment_that_is_dead_or_old_is_not_used_again(function: Function, started: Started, wear: str) -> None:
    function.invoke(b"")
    if wear == "dead":
        started[0].alive = False
    else:
        started[0].started -= OLDEST_SECONDS + 1
        function.invoke(b"")  # its credentials are still valid long enough for one more invocation
    function.invoke(b"")
    assert len(started) == 2
    assert not started[0].alive


def test_an_unused_environment_ends(function: Function, started: Started) -> None:
    function.invoke(b"")
    function.end_unused()
    assert started[0].alive
    started[0].idle_since -= IDLE_SECONDS + 1
    function.end_unused()
    assert not started[0].alive


def test_a_function_that_does_not_start_fails_its_invocation() -> None:
    environment: Any = Environment(fails=True)
    outcome = Function(RELEASE, lambda: environment, service_logger("probe")).invoke(b"")
    assert (outcome.answer, outcome.error) == (None, "Runtime.InitError")


def test_functions_run_on_the_embedded_emulator_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(HarnessError, match="Functions run only on the emulator that the harness starts"):
        harness.up(tmp_path, functions=True)
