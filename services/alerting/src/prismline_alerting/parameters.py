"""The service's SSM parameters. They are read every time, because they change while the service runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_lambda_powertools import Logger
from botocore.exceptions import ClientError

from prismline_contracts.alerts import (
    NOT_MUTED,
    last_interaction_parameter,
    muted_until_parameter,
    parse_muted_until,
    public_key_parameter,
    webhook_url_parameter,
)
from prismline_runtime import PrismlineError, aws_errors, error_code

if TYPE_CHECKING:
    from mypy_boto3_ssm import SSMClient


class AlertParameters:
    """The parameters below `/prismline/<environment>/alerts/`. Raises PrismlineError if SSM does not answer."""

    def __init__(self, ssm: SSMClient, environment: str, logger: Logger) -> None:
        self._ssm = ssm
        self._environment = environment
        self._logger = logger

    def muted_until(self) -> int:
        """The end of the mute, in Unix seconds. 0 if it cannot be read, because one alert too many does no harm."""
        try:
            return parse_muted_until(self._get(muted_until_parameter(self._environment)) or NOT_MUTED)
        except (PrismlineError, ValueError) as error:
            self._logger.warning("mute_unreadable", extra={"reason": str(error)})
            return 0

    def set_muted_until(self, moment: int) -> None:
        """Mute alerts until `moment`, in Unix seconds. 0 unmutes them."""
        self._put(muted_until_parameter(self._environment), str(moment))

    def last_interaction(self) -> int:
        """The id of the last slash command that was executed, or 0."""
        value = self._get(last_interaction_parameter(self._environment)) or "0"
        return int(value) if value.isdecimal() else 0

    def set_last_interaction(self, interaction_id: int) -> None:
        """Store the id of a slash command that is being executed."""
        self._put(last_interaction_parameter(self._environment), str(interaction_id))

    def webhook_url(self) -> str | None:
        """The URL of the Discord webhook, a secret. None if there is no such parameter."""
        return self._get(webhook_url_parameter(self._environment), decrypt=True)

    def public_key(self) -> str | None:
        """The public key of the Discord application, in hex. None if there is no such parameter."""
        return self._get(public_key_parameter(self._environment))

    def _get(self, name: str, *, decrypt: bool = False) -> str | None:
        with aws_errors(f"read the parameter {name}"):
            try:
                return self._ssm.get_parameter(Name=name, WithDecryption=decrypt)["Parameter"]["Value"].strip()
            except ClientError as error:
                if error_code(error) == "ParameterNotFound":
                    return None
                raise

    def _put(self, name: str, value: str) -> None:
        with aws_errors(f"write the parameter {name}"):
            self._ssm.put_parameter(Name=name, Value=value, Type="String", Overwrite=True)
