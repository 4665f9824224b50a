"""The paths about the whole deployment. Alerts and the system need the scope `all`."""

from __future__ import annotations

from fastapi import APIRouter

from prismline_api.deployment.alerts import AlertsView, MuteRequest, MuteView
from prismline_api.deployment.contracts import ContractsView, contracts_view
from prismline_api.deployment.system import SystemView
from prismline_api.parameters import Deps
from prismline_contracts.alerts import DurationError, parse_duration
from prismline_http import problems
from prismline_http.access import KeyRoute, OverseeingOperator, Overseer, Reader
from prismline_http.problems import invalid

router = APIRouter(prefix="/v1", route_class=KeyRoute, responses=problems.RESPONSES)


@router.get("/alerts", tags=["alerts"], response_model_exclude_none=True)
def get_alerts(_caller: Overseer, deps: Deps) -> AlertsView:
    """Show the alarms of this deployment, their latest changes, and until when alerts are muted."""
    return deps.alerts.view()


@router.get("/alerts/mute", tags=["alerts"], response_model_exclude_none=True)
def get_mute(_caller: Overseer, deps: Deps) -> MuteView:
    """Show whether alerts are muted, and until when."""
    return deps.alerts.mute()


@router.post("/alerts/mute", tags=["alerts"], response_model_exclude_none=True)
def mute_alerts(body: MuteRequest, caller: OverseeingOperator, deps: Deps) -> MuteView:
    """Mute alerts from now on: none is posted. An alarm that is still on at the end of the mute is posted then."""
    try:
        seconds = parse_duration(body.duration)
    except DurationError as error:
        raise invalid(str(error)) from error
    muted = deps.alerts.mute_for(seconds)
    deps.logger.info("alert_muted", extra={"duration": body.duration, "key_id": caller.key_id})
    return muted


@router.post("/alerts/unmute", tags=["alerts"], response_model_exclude_none=True)
def unmute_alerts(caller: OverseeingOperator, deps: Deps) -> MuteView:
    """End the mute. An alarm that is still on is posted within a quarter of an hour."""
    unmuted = deps.alerts.mute_for(0)
    deps.logger.info("alert_unmuted", extra={"key_id": caller.key_id})
    return unmuted


@router.get("/system", tags=["system"], response_model_exclude_none=True)
def get_system(_caller: Overseer, deps: Deps) -> SystemView:
    """Show the queues with their depth and the age of their oldest message, and the deployed services."""
    return deps.system.view()


@router.get("/contracts", tags=["system"], response_model_exclude_none=True)
def get_contracts(_caller: Reader) -> ContractsView:
    """Show the producers and consumers of each message, item and object, and the changes of each release."""
    return contracts_view()
