"""Which headers an object gets whose type somebody else chose: a browser must not run it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismline_runtime.downloads import INERT_TYPES, OPAQUE_TYPE, Download, download_of

RUN_BY_BROWSERS = [
    "text/html",
    "image/svg+xml",
    "application/xhtml+xml",
    "application/xml",
    "text/xml",
    "application/pdf",
    "text/javascript",
    "multipart/x-mixed-replace",
    "message/rfc822",
]
PARTS = st.sampled_from(
    [*RUN_BY_BROWSERS, *INERT_TYPES, *(";", ",", " ", "\r\n", "charset=utf-8", "charset=utf-7", '"', "\x00")]
)


@pytest.mark.parametrize("content_type", [*RUN_BY_BROWSERS, "*/*", "unknown/unknown", "", None])
def test_what_a_browser_might_run_is_an_attachment_without_a_type(content_type: str | None) -> None:
    assert download_of(content_type) == Download("application/octet-stream", "attachment")


@pytest.mark.parametrize(
    ("content_type", "shown_as"),
    [
        ("text/plain", "text/plain"),
        ("text/plain; charset=UTF-8", "text/plain; charset=utf-8"),
        ('application/json;charset="utf-8"', "application/json; charset=utf-8"),
        ("text/plain; charset=utf-7", "text/plain"),
        ("IMAGE/PNG ; q=1", "image/png"),
    ],
)
def test_an_inert_type_is_shown_as_itself(content_type: str, shown_as: str) -> None:
    assert download_of(content_type) == Download(shown_as, "inline")


@pytest.mark.parametrize(
    "content_type",
    ["text/plain, text/html", "text/html; text/plain", "text/plain\r\nX: y", "text/plainx", "x text/plain"],
)
def test_a_type_that_only_resembles_an_inert_one_is_not_shown(content_type: str) -> None:
    assert download_of(content_type) == Download(OPAQUE_TYPE, "attachment")


@given(st.one_of(st.text(), st.lists(PARTS).map("".join)))
def test_no_type_of_a_site_gets_more_than_an_inert_type_into_the_headers(content_type: str) -> None:
    download = download_of(content_type)
    if download.content_disposition == "attachment":
        assert download.content_type == OPAQUE_TYPE
    else:
        assert download.content_type.removesuffix("; charset=utf-8") in INERT_TYPES
