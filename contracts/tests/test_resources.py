from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prismline_contracts.resources import normalize_instance_id


@given(st.from_regex(r"\s*([nN][oO][nN][eE])?\s*", fullmatch=True) | st.none())
def test_an_empty_parameter_or_none_means_no_instance(value: str | None) -> None:
    assert normalize_instance_id(value) is None


@given(st.from_regex(r"i-[0-9a-f]{17}", fullmatch=True), st.sampled_from(["", " ", "\n"]))
def test_an_instance_id_is_itself(instance_id: str, space: str) -> None:
    assert normalize_instance_id(f"{space}{instance_id}{space}") == instance_id
