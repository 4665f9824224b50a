"""`POST /interactions`: the endpoint that Discord calls when a user types a slash command.

The service verifies the signature before it reads anything else of a request. No command is executed twice: the service
stores the id of a command before it executes it, and refuses commands with an id that is not greater.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from mangum import Mangum
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from prismline_alerting.commands import (
    APPLICATION_COMMAND,
    PING,
    PONG,
    Interaction,
    Mute,
    Refuse,
    Unmute,
    answer,
    decide,
)
from prismline_alerting.dependencies import InteractionDependencies
from prismline_alerting.signatures import claimed
from prismline_runtime import PermanentError, PrismlineError, TransientError, describe_invalid

#: Largest body, in bytes. An interaction has a few kilobytes.
MAX_BODY_BYTES = 64 * 1024


def create_app() -> FastAPI:
    """The application, with the settings in the environment."""
    return build_app(InteractionDependencies.from_environment())


def build_app(deps: InteractionDependencies) -> FastAPI:
    """The application with its dependencies."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/interactions")
    async def interactions(request: Request) -> JSONResponse:
        body = await read_body(request)
        if body is None:
            return JSONResponse({"error": "The body is too large or incomplete."}, 413)
        status, document = await run_in_threadpool(respond, request.headers, body, deps)
        return JSONResponse(document, status)

    return app


async def read_body(request: Request) -> bytes | None:
    """The body of a request. None if it is larger than `MAX_BODY_BYTES` or the connection breaks off."""
    announced = request.headers.get("Content-Length", "0")
    if not announced.isdecimal() or int(announced) > MAX_BODY_BYTES:
        return None
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > MAX_BODY_BYTES:
                return None
    except ClientDisconnect:
        return None
    return body


def respond(headers: Mapping[str, str], body: bytes, deps: InteractionDependencies) -> tuple[int, dict[str, Any]]:
    """The HTTP status and the JSON document that answer a request."""
    claim = claimed(headers, deps.clock())
    try:
        signed = claim is not None and claim.holds(body, deps.public_key.get())
    except PermanentError as error:
        deps.logger.error("interactions_not_configured", extra={"reason": str(error)})
        signed = False
    except TransientError as error:
        deps.logger.error("interaction_not_checked", extra={"reason": str(error)})
        return 503, {"error": "The signature cannot be checked now."}
    if claim is None or not signed:
        return 401, {"error": "The request signature is missing, wrong or too old."}
    try:
        interaction = Interaction.model_validate_json(body)
    except ValidationError as error:
        return 400, {"error": f"The body is not an interaction: {describe_invalid(error)}."}
    if interaction.type == PING:
        return 200, {"type": PONG}
    if interaction.type != APPLICATION_COMMAND:
        return 400, {"error": "This endpoint only answers pings and commands."}
    return 200, _carry_out(interaction, decide(interaction, claim.moment, deps.authority), deps)


def _carry_out(
    interaction: Interaction, command: Mute | Unmute | Refuse, deps: InteractionDependencies
) -> dict[str, Any]:
    if isinstance(command, Refuse):
        return answer(command.why, only_to_author=True)
    parameters = deps.parameters
    try:
        if interaction.number <= parameters.last_interaction():
            return answer("This command, or a later one, was carried out already.", only_to_author=True)
        parameters.set_last_interaction(interaction.number)
        match command:
            case Mute(until, duration):
                parameters.set_muted_until(until)
                deps.logger.info("alert_muted", extra={"duration": duration, "muted_until": until})
                return answer(f"Alerts muted until <t:{until}:f> ({duration})")
            case Unmute():
                parameters.set_muted_until(0)
                deps.logger.info("alert_unmuted")
                return answer("Alerts active")
    except PrismlineError as error:
        deps.logger.error("mute_not_written", extra={"reason": str(error)})
        return answer("Sorry, that did not work: the setting cannot be reached. Try again.", only_to_author=True)


@cache
def _lambda_handler() -> Mangum:
    return Mangum(create_app(), lifespan="off")


def handler(event: dict[str, Any], context: Any) -> Any:
    """Entry point in Lambda, behind a function URL."""
    return _lambda_handler()(event, context)
