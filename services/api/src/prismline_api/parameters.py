"""Parameters of operations: the dependencies, the caller with a scope, ids, and the part of a list."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from prismline_api.auth import Caller
from prismline_api.dependencies import Dependencies
from prismline_api.problems import ProblemError
from prismline_api.sessions import CSRF_HEADER, SAFE_METHODS, Session, carries_token
from prismline_contracts.jobs import Scope
from prismline_contracts.tasks import TaskStatus

#: Items of a page: the default and the maximum.
PAGE_ITEMS, MOST_PAGE_ITEMS = 100, 1000

_bearer = HTTPBearer(auto_error=False, description="An API key, from `prismline jobs keys create`.")

JobId = Annotated[str, Path(max_length=80, description="The job's id.")]
#: Pattern of a run's id.
RUN_ID = r"^[A-Za-z0-9_-]{1,80}$"
RunId = Annotated[str, Path(max_length=80, description="The run's id.")]
ExportId = Annotated[str, Path(max_length=80, description="The export's id.")]
OperationId = Annotated[str, Path(max_length=80, description="The recovery's id.")]
#: A day of the archive of dead letters, in UTC.
DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
ArchiveDay = Annotated[str, Path(pattern=DAY, description="The dead letter's day in the archive, in UTC.")]
MessageId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_.-]{1,100}$", description="The id of the message.")]
TaskAddress = Annotated[str, Path(max_length=200, description="The task's address: `<run_id>.<id>`.")]
Limit = Annotated[int, Query(ge=1, le=MOST_PAGE_ITEMS, description="Most items of this part of the list.")]
Cursor = Annotated[str | None, Query(description="`next_cursor` of the previous part.")]
Status = Annotated[TaskStatus | None, Query(description="Only items with this status.")]
RunStatus = Annotated[
    Literal["pending", "running", "completed", "failed", "cancelled"] | None,
    Query(description="Only runs with this status."),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=r"^[!-~]{1,64}$",
        description="Identifies the request. A repeat with the same key and body has no further effect.",
    ),
]
TraceParent = Annotated[str | None, Header(description="W3C trace context of the submitter.")]


async def _dependencies(request: Request) -> Dependencies:
    deps: Dependencies = request.app.state.deps
    return deps


Deps = Annotated[Dependencies, Depends(_dependencies)]


class KeyRoute(APIRoute):
    """A path that needs a key. The key, and the rate of its tenant, are checked before the body of the request is read.

    FastAPI itself reads the body before it calls a dependency.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function that answers a request."""
        handle = super().get_route_handler()

        async def handle_caller(request: Request) -> Response:
            credentials = await _bearer(request)
            request.state.caller = await run_in_threadpool(_admitted, request, credentials)
            return await handle(request)

        return handle_caller


def _admitted(request: Request, credentials: HTTPAuthorizationCredentials | None) -> Caller:
    """The caller of a request. Raises ProblemError (401, 403, 429)."""
    deps: Dependencies = request.app.state.deps
    session = None if credentials else _session(request, deps)
    if session is not None:
        found = deps.keys.caller_by_hash(session.key_sha256, address_of(request))
    else:
        found = deps.keys.caller(credentials.credentials if credentials else None, address_of(request))
    deps.admit(found.tenant)
    return found


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


def _session(request: Request, deps: Dependencies) -> Session | None:
    """The session of the console that the request belongs to. Raises ProblemError (403) if its token is missing."""
    if "Authorization" in request.headers:
        return None
    session = deps.sessions.find(request.cookies)
    if session is not None and request.method not in SAFE_METHODS and not carries_token(session, request.headers):
        raise ProblemError(
            403, "token-missing", f"Send the session's token in {CSRF_HEADER}, or an API key. Load the page again."
        )
    return session


Reader = Annotated[Caller, Depends(_caller_with("read"))]
Submitter = Annotated[Caller, Depends(_caller_with("submit"))]
Operator = Annotated[Caller, Depends(_caller_with("operate"))]
#: Callers who may see, and who may change, settings and state of the whole deployment.
Overseer = Annotated[Caller, Depends(_caller_with("read", "all"))]
OverseeingOperator = Annotated[Caller, Depends(_caller_with("operate", "all"))]
