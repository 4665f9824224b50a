"""The duration of a mute, `^(\\d+)(m|h|d)$`: any text gives a number of seconds or a helpful sentence."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts.alerts import DurationError, parse_duration, parse_muted_until

SECONDS = {"m": 60, "h": 3600, "d": 86_400}
THIRTY_DAYS = 30 * 86_400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30m", 1800), ("4h", 14_400), ("12h", 43_200), ("1d", 86_400), ("2d", 172_800), ("030m", 1800)],
)
def test_what_people_type(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["30d", "720h", "43200m"])
def test_thirty_days_are_allowed_and_not_a_minute_more(text: str) -> None:
    assert parse_duration(text) == THIRTY_DAYS
    number, unit = int(text[:-1]), text[-1]
    with pytest.raises(DurationError, match="30d at most"):
        parse_duration(f"{number + 1}{unit}")


@pytest.mark.parametrize("text", ["0m", "0h", "0d", "000d"])
def test_zero_is_refused_with_what_to_do_instead(text: str) -> None:
    with pytest.raises(DurationError, match="unmute"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text", ["", "banana", "1", "d", "1w", "-1d", "+1d", "1.5h", "1 d", "1d ", " 1d", "1d\n", "1D", "\u0661d"]
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(DurationError, match="such as 30m, 4h or 2d"):
        parse_duration(text)


def test_a_number_of_any_length_is_refused_like_any_that_is_too_large() -> None:
    with pytest.raises(DurationError, match="30d at most"):
        parse_duration("9" * 10_000 + "m")


@given(st.text(max_size=20) | st.from_regex(r"\A[0-9]{0,12}[mhd]\Z") | st.from_regex(r"^(\d+)(m|h|d)$"))
def test_any_text_is_a_duration_within_bounds_or_a_sentence(text: str) -> None:
    match = re.fullmatch(r"([0-9]+)([mhd])", text)
    seconds = int(match[1]) * SECONDS[match[2]] if match else 0
    if 0 < seconds <= THIRTY_DAYS:
        assert parse_duration(text) == seconds
    else:
        with pytest.raises(DurationError, match=r"\.$"):
            parse_duration(text)


@given(st.text(max_size=20) | st.from_regex(r"\A[0-9]{1,14}\Z"))
def test_the_mute_parameter_holds_unix_seconds_or_nothing(text: str) -> None:
    if re.fullmatch(r"[0-9]{1,12}", text.strip()):
        assert parse_muted_until(text) == int(text)
    else:
        with pytest.raises(ValueError, match="unix seconds"):
            parse_muted_until(text)
