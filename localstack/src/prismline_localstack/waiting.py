"""Wait for a condition that no event announces."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import Retrying, retry_if_not_result, stop_after_delay, wait_fixed

#: Seconds between two checks.
POLL_SECONDS = 0.05


def wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    """Check until `condition` holds or `timeout` seconds have passed. Return whether it holds."""
    looking = Retrying(
        retry=retry_if_not_result(bool),
        stop=stop_after_delay(timeout),
        wait=wait_fixed(POLL_SECONDS),
        retry_error_callback=lambda _: False,
    )
    return looking(condition)
