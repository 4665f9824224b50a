"""Which texts are URLs that a client can request. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

import httpx

_MALFORMED = "its host or its port is malformed"


def unusable(url: str) -> str | None:
    """Why no client can request `url`, in words that contain no part of it. None if a client can.

    Python's urllib and httpx have to read the same host and port: services check a URL with one and request it with the
    other. The URL may still name an address that may not be reached: the guarded clients find that out.
    """
    if " " in url or not url.isprintable():
        return "it has a space or a control character"
    try:
        parts, target = urlsplit(url), httpx.URL(url)
        host, port = parts.hostname or "", parts.port
        resolved = target.raw_host.decode("ascii").encode("idna").decode("ascii")  # as the resolver encodes it
    except (ValueError, httpx.InvalidURL):  # a UnicodeError is a ValueError
        return _MALFORMED
    if parts.scheme not in {"http", "https"}:
        return "it is not an http or https URL"
    if not host:
        return "it names no host"
    differs = host.isascii() and host.casefold() != resolved.casefold()
    return _MALFORMED if differs or "%" in host or port == 0 else None
