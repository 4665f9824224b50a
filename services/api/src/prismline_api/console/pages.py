"""The pages of the console. Each is a shell whose script fetches the content."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, urlsplit

from fastapi import APIRouter, Depends, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse
from starlette.templating import Jinja2Templates

from prismline_api.dependencies import Dependencies
from prismline_api.parameters import Deps
from prismline_api.reading import find_run
from prismline_contracts.commands import Queue
from prismline_contracts.jobs import api_key_sha256
from prismline_http.access import address_of
from prismline_http.auth import Caller
from prismline_http.limits import short_body
from prismline_http.problems import ProblemError
from prismline_http.sessions import SESSION_SECONDS, Session

#: The first page of the console.
HOME = "/console/runs"
#: Values of `Host` for this machine. A page of another site whose name resolves to this address sends its own name.
LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
#: The headers in which a proxy with a sign-in sends the shared secret and the user.
PROXY_SECRET_HEADER, PROXY_USER_HEADER = "X-Prismline-Proxy-Secret", "X-Forwarded-Email"
#: Longest body of the sign-in form, in bytes.
MAX_FORM_BYTES = 4096

#: The parts of the console that the navigation leads to.
PAGES = frozenset({"compare", "runs", "dead-letters", "alerts", "system"})
#: Parts that concern all tenants. Only a key with the scope `all` sees them.
OVERSEEING_PAGES = frozenset({"alerts", "system"})

templates = Jinja2Templates(directory=Path(__file__).parent / "templates")
templates.env.globals["pages"] = PAGES
templates.env.globals["overseeing_pages"] = OVERSEEING_PAGES
router = APIRouter(include_in_schema=False)
#: The answer to every other path below `/console`. It comes after all others.
no_page = APIRouter(include_in_schema=False)


class SignInRequiredError(Exception):
    """The page needs a session, so the user has to sign in."""


def _session(request: Request, deps: Deps) -> tuple[Session, Caller]:
    """The session of the request. A new one is opened if the sign-in mode has no form."""
    settings = deps.settings
    if settings.console_sign_in == "none":
        _require_this_account(request, deps)
    elif settings.console_sign_in == "proxy":
        _require_proxy(request, settings.console_proxy_secret or "")
    session = deps.access.sessions.find(request.cookies)
    own = settings.console_key_sha256 if settings.console_sign_in != "key" else None
    if own is not None and (session is None or session.key_sha256 != own):
        session = deps.access.sessions.open(own)
    if session is None:
        raise SignInRequiredError
    try:
        return session, deps.access.keys.caller_by_hash(session.key_sha256, address_of(request))
    except ProblemError as error:
        if own is None:
            raise SignInRequiredError from error  # the key was revoked
        raise


Opened = Annotated[tuple[Session, Caller], Depends(_session)]


def _require_this_account(request: Request, deps: Dependencies) -> None:
    """Refuse a request whose `Host` is not this machine, or that another account sent. Raises ProblemError (403)."""
    if (urlsplit(f"//{request.headers.get('Host', '')}").hostname or "") not in LOOPBACK_NAMES:
        raise ProblemError(
            403,
            "foreign-host",
            "This console has no sign-in, so it answers only on this machine: open it at 127.0.0.1. To serve others,"
            " set CONSOLE_SIGN_IN to key or proxy.",
        )
    if not deps.is_own_account(request.client):
        raise ProblemError(
            403,
            "other-account",
            "This console has no sign-in, so it answers only the account that started it. To let other accounts of this"
            " machine in, set CONSOLE_SIGN_IN to key.",
        )


def _require_proxy(request: Request, secret: str) -> None:
    """Refuse a request that did not come through the proxy. Raises ProblemError (403)."""
    given = request.headers.get(PROXY_SECRET_HEADER, "")
    if not secret or not hmac.compare_digest(given.encode(), secret.encode()):
        raise ProblemError(403, "not-through-proxy", "Open the console through its proxy, which signs you in.")


def page(request: Request, opened: tuple[Session, Caller], deps: Dependencies, name: str, **context: Any) -> Response:
    """The page of the template `name`, with the session's cookie."""
    session, caller = opened
    response = templates.TemplateResponse(
        request,
        name,
        {
            "csrf": session.csrf_token,
            "caller": caller,
            "user": request.headers.get(PROXY_USER_HEADER) if deps.settings.console_sign_in == "proxy" else None,
            "may_sign_out": deps.settings.console_sign_in == "key",
            **context,
        },
    )
    if request.cookies.get(deps.access.sessions.cookie_name) != session.cookie:
        _remember(response, request, session, deps)
    return response


def page_of_run(
    request: Request, opened: tuple[Session, Caller], deps: Dependencies, name: str, run_id: str
) -> Response:
    """The page `name` of a run. If the caller has no such run, a page that says so and looks again."""
    _, caller = opened
    try:
        find_run(caller, run_id, deps)
    except ProblemError as error:
        return not_found_page(request, opened, deps, error.detail, run_id=run_id)
    return page(request, opened, deps, name, run_id=run_id)


def not_found_page(
    request: Request, opened: tuple[Session, Caller], deps: Dependencies, why: str, run_id: str | None = None
) -> Response:
    """The page that says what does not exist, with the status 404. That of a run looks again for the run."""
    response = page(request, opened, deps, "not-found.html", why=why, run_id=run_id)
    response.status_code = HTTPStatus.NOT_FOUND
    return response


def _remember(response: Response, request: Request, session: Session, deps: Dependencies) -> None:
    response.set_cookie(
        deps.access.sessions.cookie_name,
        session.cookie,
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


@router.get("/")
@router.get("/console")
def home() -> Response:
    """Redirects to the list of runs."""
    return RedirectResponse(HOME, HTTPStatus.SEE_OTHER)


@router.get("/console/runs")
def runs_page(request: Request, opened: Opened, deps: Deps) -> Response:
    """The list of runs."""
    return page(request, opened, deps, "runs.html")


@router.get("/console/runs/{run_id}")
def run_page(request: Request, run_id: str, opened: Opened, deps: Deps) -> Response:
    """One run."""
    return page_of_run(request, opened, deps, "run.html", run_id)


@router.get("/console/dead-letters")
def dead_letters_page(request: Request, opened: Opened, deps: Deps) -> Response:
    """The archive of dead letters."""
    return page(request, opened, deps, "dead-letters.html", queues=[queue.value for queue in Queue])


@router.get("/console/alerts")
def alerts_page(request: Request, opened: Opened, deps: Deps) -> Response:
    """The alarms and the mute."""
    return page(request, opened, deps, "alerts.html")


@router.get("/console/system")
def system_page(request: Request, opened: Opened, deps: Deps) -> Response:
    """The queues, and what was deployed."""
    return page(request, opened, deps, "system.html")


@router.get("/console/contracts")
def contracts_page(request: Request, opened: Opened, deps: Deps) -> Response:
    """The contracts: the producers and consumers of each message."""
    return page(request, opened, deps, "contracts.html")


@no_page.get("/console/{path:path}")
def missing_page(request: Request, path: str, opened: Opened, deps: Deps) -> Response:
    """A page that does not exist."""
    return not_found_page(request, opened, deps, f"The console has no page /console/{path}. Check the address.")


# ---- signing in with an API key


@router.get("/console/login")
def login_page(request: Request, deps: Deps) -> Response:
    """The form that takes an API key."""
    if deps.settings.console_sign_in != "key":
        return RedirectResponse(HOME, HTTPStatus.SEE_OTHER)
    return _login(request)


@router.post("/console/login")
async def login(request: Request, deps: Deps) -> Response:
    """Opens a session of the API key in the form."""
    if deps.settings.console_sign_in != "key":
        return RedirectResponse(HOME, HTTPStatus.SEE_OTHER)
    _require_same_origin(request)
    form = parse_qs((await short_body(request, MAX_FORM_BYTES)).decode(errors="replace"))
    key = form.get("key", [""])[0].strip()
    try:
        await run_in_threadpool(deps.access.keys.caller, key, address_of(request))
    except ProblemError as error:
        return _login(request, error=error.detail, status=error.status_code)
    response = RedirectResponse(_next(request), HTTPStatus.SEE_OTHER)
    _remember(response, request, await run_in_threadpool(lambda: deps.access.sessions.open(api_key_sha256(key))), deps)
    return response


@router.post("/console/logout")
def logout(request: Request, deps: Deps) -> Response:
    """Deletes the session's cookie."""
    _require_same_origin(request)
    response = RedirectResponse("/console/login", HTTPStatus.SEE_OTHER)
    response.delete_cookie(deps.access.sessions.cookie_name, httponly=True, samesite="strict")
    return response


def _login(request: Request, *, error: str | None = None, status: int = 200) -> Response:
    context = {"error": error, "next": _next(request)}
    return templates.TemplateResponse(request, "login.html", context, status_code=status)


def _require_same_origin(request: Request) -> None:
    """Refuse a form that another site sent. Raises ProblemError (403)."""
    origin = request.headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("Host"):
        raise ProblemError(
            403, "foreign-form", "The form was sent by another site. Open the console and sign in there."
        )


def _next(request: Request) -> str:
    """The page to open after signing in: a page of the console, never another site."""
    wanted = request.query_params.get("next", "")
    return wanted if wanted.startswith("/console/") else HOME


def to_login(request: Request, _error: Exception) -> Response:
    """The answer to a page that needs a session: a redirect to the form, which leads back to the page."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/console/login?next={quote(wanted)}", HTTPStatus.SEE_OTHER)
