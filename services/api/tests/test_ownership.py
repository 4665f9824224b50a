"""Which objects the jobs of a tenant may name: each object has one owner, whatever tricks its key plays."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_api.ownership import Sources, sources_of

PREFIXES = ("cubes/", "noise/", "frames/")
TENANTS = ("local", "a", "ab", "acme", "Acme")
PIECES = st.sampled_from(
    [
        *("cubes", "noise", "frames", "results", *TENANTS, "ACME", "\uff41cme", "acme\u0301", "grs", "x.fits"),
        *("/", "//", ".", "..", "%2e", "%2E%2e", "%2f", "%252e", "%61", "\\", " ", "\n", "\x00"),
    ]
)
KEYS = st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=9).map("".join), st.lists(PIECES).map("/".join))


def sources(tenant: str) -> Sources:
    return sources_of(tenant, PREFIXES, default_tenant="local", tenants=TENANTS)


@given(KEYS)
def test_no_two_tenants_may_name_the_same_object(key: str) -> None:
    assert sum(sources(tenant).refusal(key) is None for tenant in TENANTS) <= 1


@given(KEYS, st.sampled_from(TENANTS))
def test_a_client_that_decodes_and_resolves_a_key_stays_in_the_tenants_sources(key: str, tenant: str) -> None:
    if sources(tenant).refusal(key) is None:
        assert sources(tenant).refusal(posixpath.normpath(unquote(key))) is None


@given(KEYS)
def test_without_other_tenants_the_default_tenant_owns_all_sources(key: str) -> None:
    alone = sources_of("local", PREFIXES, default_tenant="local", tenants=["local"])
    special = any(character in "\\\x7f" or character < " " for character in key)
    resolved = posixpath.normpath(unquote(key)) != key
    assert alone.refusal(key) is None or not key.startswith(PREFIXES) or resolved or special


@pytest.mark.parametrize(
    ("tenant", "key"),
    [
        ("acme", "cubes/acme/field.fits"),
        ("acme", "noise/acme/deep/er.fits"),
        ("a", "cubes/a/ab/x"),
        ("local", "cubes/field.fits"),
        ("local", "cubes/grs/field.fits"),
        ("local", "cubes/acme"),
        ("local", "cubes/ACME/x"),
        ("local", "cubes/50%.fits"),
        ("local", "cubes/local/x"),
    ],
)
def test_a_tenant_may_name_what_it_owns(tenant: str, key: str) -> None:
    assert sources(tenant).refusal(key) is None


@pytest.mark.parametrize(
    ("tenant", "key"),
    [
        ("a", "cubes/ab/x"),
        ("a", "cubes/a"),
        ("a", "cubes/field.fits"),
        ("acme", "cubes/Acme/x"),
        ("acme", "cubes/acme/../ab/x"),
        ("acme", "cubes/acme/%2e%2E/ab/x"),
        ("acme", "cubes/acme/..%2fab/x"),
        ("acme", "cubes/acme\\..\\ab/x"),
        ("acme", "cubes/acme//x"),
        ("acme", "/cubes/acme/x"),
        ("acme", "results/acme/x"),
        ("local", "cubes/acme/x"),
        ("local", "cubes//acme/x"),
        ("local", "cubes/./acme/x"),
        ("local", "cubes/%61cme/x"),
        ("local", "uploads/local/x"),
    ],
)
def test_a_tenant_may_not_name_what_another_one_owns(tenant: str, key: str) -> None:
    refusal = sources(tenant).refusal(key)
    assert refusal is not None
    assert repr(key) in refusal
