"""Sessions of the console: a cookie that stands for an API key, and the token that protects it.

The cookie holds the hash of the API key, under which the key's item is stored, and not the key itself. Somebody who
reads a cookie can use it until it expires, but cannot make a request with the key. Revoking the key ends its sessions.

A browser sends the cookie with every request, even with one that another site caused. So a request that changes
something needs the session's token in a header. Only a page of the console knows this token.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prismline_http.cursors import ForgedCursorError, seal, unseal

#: How long a session lasts, in seconds: 12 h.
SESSION_SECONDS = 12 * 3600
#: The header with the session's token.
CSRF_HEADER = "X-Prismline-CSRF"
#: Methods that change nothing. They need no token.
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_SUBJECT = "console-session"


@dataclass(frozen=True)
class Session:
    """A session that has not expired."""

    key_sha256: str
    cookie: str
    csrf_token: str


class Sessions:
    """Opens sessions and reads their cookies. All instances have the same `secret`."""

    def __init__(self, secret: bytes, *, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self._clock = clock
        #: Depends on the secret, because a browser shares cookies between all ports of one host.
        self.cookie_name = f"prismline_session_{hashlib.sha256(secret).hexdigest()[:8]}"

    def open(self, key_sha256: str) -> Session:
        """A new session of the API key with this hash."""
        return self._session(
            key_sha256, seal(self._secret, _SUBJECT, [key_sha256, int(self._clock()) + SESSION_SECONDS])
        )

    def find(self, cookies: Mapping[str, str]) -> Session | None:
        """The session that a request's cookies name. None if there is none, or it has expired."""
        cookie = cookies.get(self.cookie_name)
        if cookie is None:
            return None
        try:
            key_sha256, until = unseal(self._secret, _SUBJECT, cookie)
        except ForgedCursorError:
            return None
        return self._session(key_sha256, cookie) if self._clock() < until else None

    def _session(self, key_sha256: str, cookie: str) -> Session:
        token = hmac.digest(self._secret, f"csrf\0{cookie}".encode(), hashlib.sha256).hex()
        return Session(key_sha256, cookie, token)


def carries_token(session: Session, headers: Mapping[str, str]) -> bool:
    """Whether the request's headers hold the session's token."""
    return hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), session.csrf_token.encode())
