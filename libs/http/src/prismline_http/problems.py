"""Errors as problem details (RFC 9457). Every `detail` is a sentence that says what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

from aws_lambda_powertools import Logger
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from prismline_runtime import TransientError
from prismline_runtime.errors import one_line

#: Media type of all errors.
MEDIA_TYPE = "application/problem+json"
#: Prefix of the `type` of a problem.
TYPE_PREFIX = "urn:prismline:problem:"
#: Seconds after which a client may repeat a request that met an outage.
RETRY_SECONDS = 2
#: Most invalid fields that an answer lists.
MOST_FIELDS = 20


class InvalidField(BaseModel):
    """An invalid field of a request."""

    field: Annotated[str, Field(description="Where it is, e.g. `body.urls.0`.")]
    reason: str


class ProblemDetails(BaseModel):
    """What is wrong, and what to do about it (RFC 9457)."""

    type: Annotated[str, Field(description="A stable name of the kind of problem.")] = "about:blank"
    title: str
    status: int
    detail: Annotated[str, Field(description="A sentence that says what to do.")]
    errors: Annotated[list[InvalidField] | None, Field(description="The invalid fields of a request.")] = None


class ProblemError(HTTPException):
    """Ends a request with an error.

    It is an HTTPException because FastAPI replaces any other error that is raised while it reads a body by a 400.
    """

    def __init__(self, status: int, kind: str, detail: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.kind = kind


def not_found(what: str) -> ProblemError:
    """A 404. The answer does not tell whether the resource does not exist or belongs to another tenant."""
    return ProblemError(
        404, "not-found", f"There is no {what}. Check the id, and that the API key is of the same tenant."
    )


def conflict(kind: str, detail: str) -> ProblemError:
    """A 409: the state of the resource does not allow the request."""
    return ProblemError(409, kind, detail)


def invalid(detail: str) -> ProblemError:
    """A 422: the request is well-formed but cannot be carried out."""
    return ProblemError(422, "invalid-request", detail)


def problem_response(
    status: int,
    kind: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    errors: list[InvalidField] | None = None,
) -> JSONResponse:
    """The response of an error."""
    body = ProblemDetails(
        type=f"{TYPE_PREFIX}{kind}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=one_line(detail),
        errors=errors,
    )
    return JSONResponse(body.model_dump(exclude_none=True), status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def install(app: FastAPI, logger: Logger) -> None:
    """Make `app` answer every error with problem details."""

    @app.exception_handler(ProblemError)
    async def _problem(_request: Request, error: ProblemError) -> JSONResponse:
        return problem_response(error.status_code, error.kind, error.detail, headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def _invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        fields = [_field(one) for one in error.errors()[:MOST_FIELDS]]
        first = f"{fields[0].field}: {fields[0].reason}" if fields else "it cannot be read"
        return problem_response(
            422, "invalid-request", f"The request is invalid: {first}. Correct it and send it again.", errors=fields
        )

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        detail = {
            404: "There is no such path. The paths are in /openapi.json.",
            405: "This path does not allow this method. The Allow header names the allowed methods.",
        }.get(error.status_code, str(error.detail))
        kind = HTTPStatus(error.status_code).phrase.lower().replace(" ", "-")
        headers = dict(error.headers or {})
        if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers["Allow"] = ", ".join(sorted(_methods(app, request)))
        return problem_response(error.status_code, kind, detail, headers=headers)

    @app.exception_handler(TransientError)
    async def _transient(request: Request, error: TransientError) -> JSONResponse:
        logger.warning("request_put_off", extra={"path": request.url.path, "reason": str(error)})
        return problem_response(
            503,
            "unavailable",
            "A dependency of the service did not answer. Repeat the request, with the same Idempotency-Key.",
            headers={"Retry-After": str(error.retry_after or RETRY_SECONDS)},
        )

    @app.exception_handler(Exception)
    async def _fault(request: Request, error: Exception) -> JSONResponse:
        logger.error("request_failed", exc_info=error, extra={"path": request.url.path})
        return problem_response(
            500, "fault", "The service has a fault, which is in its log. Report it with the time of the request."
        )


def _methods(app: FastAPI, request: Request) -> set[str]:
    """The methods of all operations at the request's path. FastAPI itself names only those of the first operation."""
    found: set[str] = set()
    for path, methods in app.openapi()["paths"].items():
        pattern = re.sub(r"\\{[^}]*\\}", "[^/]+", re.escape(path))
        if re.fullmatch(pattern, request.url.path):
            found |= {method.upper() for method in methods}
    return found


def _field(error: Mapping[str, Any]) -> InvalidField:
    where = ".".join(str(part) for part in error.get("loc", ()))
    return InvalidField(field=where or "body", reason=str(error.get("msg", "invalid")).removeprefix("Value error, "))


#: The errors of every operation, for the OpenAPI document.
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {
        "model": ProblemDetails,
        "description": description,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
    }
    for status, description in {
        400: "The cursor, or the JSON of the body, cannot be read.",
        401: "The API key is missing or not valid.",
        403: "The API key lacks the scope.",
        404: "This tenant has no such resource.",
        409: "The state of the resource does not allow the request.",
        413: "The body is too large.",
        422: "The request is invalid.",
        429: "Too many requests. Retry-After says when to send the next one.",
        503: "A dependency did not answer. Repeat the request.",
    }.items()
}
