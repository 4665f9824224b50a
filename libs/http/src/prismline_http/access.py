"""Who may make a request: operations that need an API key or a session, with the scopes that they need."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from prismline_contracts.jobs import Scope
from prismline_http.auth import Caller, Keys, TokenBuckets
from prismline_http.key_store import KeyStore
from prismline_http.problems import ProblemError
from prismline_http.sessions import CSRF_HEADER, SAFE_METHODS, Session, Sessions, carries_token

_bearer = HTTPBearer(auto_error=False, description="An API key, from `prismline jobs keys create`.")


@dataclass(frozen=True)
class Access:
    """Finds the callers of a service's requests, and limits how many requests each tenant makes."""

    store: KeyStore
    keys: Keys
    limit: TokenBuckets
    #: Requests of one tenant: in a second on average, and at once. Services with the same `limit` count together.
    requests_per_second: float
    request_burst: int

    def install(self, app: FastAPI) -> None:
        """Make the operations of `app` whose route is a `KeyRoute` ask this object who calls."""
        app.state.access = self

    @cached_property
    def sessions(self) -> Sessions:
        """The sessions of the console."""
        return Sessions(self.store.secret("sessions"))

    def caller(self, request: Request, credentials: HTTPAuthorizationCredentials | None) -> Caller:
        """The caller of a request, by its key or its session. Raises ProblemError (401, 403, 429)."""
        session = None if credentials else self._session(request)
        if session is not None:
            found = self.keys.caller_by_hash(session.key_sha256, address_of(request))
        else:
            found = self.keys.caller(credentials.credentials if credentials else None, address_of(request))
        self._admit(found.tenant)
        return found

    def _session(self, request: Request) -> Session | None:
        """The session that the request belongs to. Raises ProblemError (403) if its token is missing."""
        if "Authorization" in request.headers:
            return None
        session = self.sessions.find(request.cookies)
        if session is not None and request.method not in SAFE_METHODS and not carries_token(session, request.headers):
            raise ProblemError(
                403, "token-missing", f"Send the session's token in {CSRF_HEADER}, or an API key. Load the page again."
            )
        return session

    def _admit(self, tenant: str) -> None:
        """Count a request of the tenant. Raises ProblemError (429) if it makes too many."""
        admission = self.limit.take(f"api:{tenant}", per_second=self.requests_per_second, burst=self.request_burst)
        if not admission.granted:
            seconds = max(1, math.ceil(admission.wait))
            raise ProblemError(
                429,
                "too-many-requests",
                f"Your tenant may make {self.requests_per_second:g} requests a second. Wait {seconds} s.",
                headers={"Retry-After": str(seconds)},
            )


class KeyRoute(APIRoute):
    """A path that needs a key. The key, and the rate of its tenant, are checked before the body of the request is read.

    FastAPI itself reads the body before it calls a dependency.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function that answers a request."""
        handle = super().get_route_handler()

        async def handle_caller(request: Request) -> Response:
            access: Access = request.app.state.access
            credentials = await _bearer(request)
            request.state.caller = await run_in_threadpool(access.caller, request, credentials)
            return await handle(request)

        return handle_caller


def _caller_with(*scopes: Scope) -> Callable[..., Awaitable[Caller]]:
    """The dependency of an operation that needs a key with all of `scopes`. The operation's path is a `KeyRoute`."""

    async def caller(request: Request, _: Annotated[object, Depends(_bearer)]) -> Caller:
        found: Caller = request.state.caller
        for scope in scopes:
            found.require(scope)
        return found

    return caller


def address_of(request: Request) -> str:
    """The address of the client, for limits. A server behind a proxy has to name the proxy in FORWARDED_ALLOW_IPS."""
    return request.client.host if request.client else ""


Reader = Annotated[Caller, Depends(_caller_with("read"))]
Submitter = Annotated[Caller, Depends(_caller_with("submit"))]
Operator = Annotated[Caller, Depends(_caller_with("operate"))]
#: Callers who may see, and who may change, settings and state of the whole deployment.
Overseer = Annotated[Caller, Depends(_caller_with("read", "all"))]
OverseeingOperator = Annotated[Caller, Depends(_caller_with("operate", "all"))]
