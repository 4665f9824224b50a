"""Decides with which headers an object is served whose type somebody else chose, such as a web page. Pure.

A browser runs HTML, SVG, XML and PDF in the origin that serves it. So only types that a browser never runs are served
as themselves, and everything else as an attachment of no particular type. S3 cannot send `X-Content-Type-Options:
nosniff`. It is not needed here: a browser saves an attachment without looking into it, and does not take one of
`INERT_TYPES` for a type that it runs. The answers of the api have the header.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Types that no browser runs. SVG, HTML and XML may have scripts, and PDF has them in some viewers.
INERT_TYPES = frozenset({"application/json", "image/gif", "image/jpeg", "image/png", "image/webp", "text/plain"})
#: The type of everything else.
OPAQUE_TYPE = "application/octet-stream"


@dataclass(frozen=True)
class Download:
    """The headers of a download."""

    content_type: str = OPAQUE_TYPE
    content_disposition: Literal["attachment", "inline"] = "attachment"


def download_of(content_type: str | None) -> Download:
    """The headers for an object of this type. None: no type is known.

    No text of `content_type` gets into the headers: the type is taken from `INERT_TYPES`, and of its parameters only
    the charset UTF-8 is kept.
    """
    named, _, parameters = (content_type or "").lower().partition(";")
    inert = named.strip()
    if inert not in INERT_TYPES:
        return Download()
    is_utf8 = parameters.strip().replace('"', "") == "charset=utf-8"
    return Download(f"{inert}; charset=utf-8" if is_utf8 else inert, "inline")
