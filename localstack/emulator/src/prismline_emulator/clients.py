"""Which clients the guard of the emulator accepts, and what browsers may do with an answer.

Every web page that a browser on this machine shows can send requests to the emulator. This module decides by the
headers of a request: `prismline_emulator.guard` applies it.
"""

from __future__ import annotations

from dataclasses import dataclass

from prismline_emulator.endpoints import LOOPBACK

Headers = list[tuple[bytes, bytes]]

#: Names of this machine that every emulator answers to.
OWN_NAMES = (LOOPBACK, "localhost")
#: Headers of every answer: a browser believes the stored type, gives the object an origin of its own, runs no script of
#: it, and lets no other site embed it.
ALWAYS: Headers = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"sandbox; default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-site"),
    (b"referrer-policy", b"no-referrer"),
]
#: How the names of ministack's headers begin that allow every page to read an answer.
ALLOWING = (b"Access-Control-", b"access-control-")


@dataclass(frozen=True)
class Refusal:
    """Why a request is refused: a sentence, and the service that the request is signed for. Empty if for none."""

    sentence: str
    service: str = ""


@dataclass(frozen=True)
class Clients:
    """Who may send requests."""

    #: Host names under which clients know the emulator.
    hosts: frozenset[str]
    #: Origins whose pages may call the emulator.
    origins: frozenset[str]

    @classmethod
    def of(cls, hosts: str, origins: str) -> Clients:
        """From lists with commas: further names of the host, and origins."""
        return cls(frozenset([*OWN_NAMES, *_listed(hosts)]), frozenset(_listed(origins)))

    def refusal(self, method: str, headers: dict[str, str]) -> Refusal | None:
        """Why a request is refused. None if its headers are those of an accepted client."""
        if headers.get("host", "").partition(":")[0].lower() not in self.hosts:
            names = " or ".join(sorted(self.hosts))
            return Refusal(f"The Host of the request is not a name of this emulator, which is {names}.")
        origin = headers.get("origin")
        if origin is not None:
            return None if origin in self.origins else Refusal("The emulator answers no web page but the console.")
        if headers.get("sec-fetch-site", "none") == "none" or _is_followed_link(method, headers):
            return None
        return Refusal("The emulator answers web pages only if a person follows a link.")


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _is_followed_link(method: str, headers: dict[str, str]) -> bool:
    return (method, headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("GET", "navigate", "document")


def guarded_headers(headers: Headers, origin: str | None, *, linked: bool) -> Headers:
    """The headers of an answer, with those for browsers instead of ministack's, which allow every origin.

    A browser saves an object that a link leads to, unless the object or the link names another disposition.
    origin: the origin of the console, if it asked. linked: whether the answer holds an object that a link led to.
    """
    kept = [header for header in headers if not header[0].startswith(ALLOWING)]
    if linked and not any(name.lower() == b"content-disposition" for name, _ in kept):
        kept.append((b"content-disposition", b"attachment"))
    return [*kept, *allowed_origin(origin), *ALWAYS]


def allowed_origin(origin: str | None) -> Headers:
    """The headers with which pages of `origin` may read an answer."""
    return [] if origin is None else [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin")]
