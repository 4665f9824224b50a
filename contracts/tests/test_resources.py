from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts import normalize_instance_id


@given(st.from_regex(r"\s*([nN][oO][nN][eE])?\s*", fullmatch=True) | st.none())
def test_whatever_stands_for_no_instance_is_none(value: str | None) -> None:
    assert normalize_instance_id(value) is None


@given(st.from_regex(r"i-[0-9a-f]{17}", fullmatch=True), st.sampled_from(["", " ", "\n"]))
def test_an_instance_id_is_itself(instance_id: str, space: str) -> None:
    assert normalize_instance_id(f"{space}{instance_id}{space}") == instance_id
