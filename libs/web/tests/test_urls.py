"""URLs that a client can request: what urllib and httpx read alike."""

from __future__ import annotations

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_web import unusable


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org",
        "http://user:secret@example.org:8080/a?b=c#d",
        "http://[2001:db8::1]:80/",
        "http://127.0.0.1:9/hook",
        "https://xn--mnchen-3ya.de/",
        "https://münchen.de/straße",
        "HTTPS://EXAMPLE.ORG/",
    ],
)
def test_a_url_that_a_client_can_request_is_usable(url: str) -> None:
    assert unusable(url) is None


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://[::1", "malformed"),
        ("http://[v1.a]/", "malformed"),
        ("http://example.org:99999999/", "malformed"),
        ("http://example.org:65536/", "malformed"),
        ("http://example.org:0/", "malformed"),
        ("http://example.org:8o/", "malformed"),
        ("http://example.org:\uff18\uff10/", "malformed"),
        ("http://a..b/", "malformed"),
        (f"http://{'a' * 64}.org/", "malformed"),
        ("http://fe80::1%25eth0/", "malformed"),
        ("http://%zz/", "malformed"),
        ("http://a b/", "a space or a control character"),
        ("http://example.org/\n", "a space or a control character"),
        ("http://example.org/\udc80", "a space or a control character"),
        ("http:///path", "it names no host"),
        ("ftp://example.org/", "it is not an http or https URL"),
        ("example.org", "it is not an http or https URL"),
        ("", "it is not an http or https URL"),
    ],
)
def test_a_malformed_url_is_refused_with_a_reason(url: str, reason: str) -> None:
    assert reason in (unusable(url) or "")


def test_a_reason_does_not_repeat_a_password() -> None:
    assert "hunter2" not in (unusable("http://user:hunter2@\u2100.org/") or "hunter2")


@given(st.text(st.characters(codec="utf-8")) | st.from_regex(r"https?://[a-z0-9.:\[\]%@-]{1,12}(/|$)", fullmatch=True))
def test_any_text_is_judged_and_a_usable_url_has_a_host_that_can_be_resolved(url: str) -> None:
    if unusable(url) is None:
        request = httpx.Request("POST", url)
        assert request.url.raw_host.decode("ascii").encode("idna")
        assert 0 < (request.url.port or 80) < 2**16
