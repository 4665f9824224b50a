"""SSM: parameters."""
# ruff: noqa: N803  boto3's parameter names

from __future__ import annotations

from typing import Any

from tests.simulation.aws.base import ACCOUNT, REGION, Client, client_error, operation


class SSM(Client):
    """The part of boto3's SSM client that Prismline uses."""

    service = "ssm"

    def __init__(self, aws: Any) -> None:
        super().__init__(aws)
        self._values: dict[str, str] = aws.parameters
        self._versions: dict[str, int] = {}

    @operation
    def get_parameter(self, *, Name: str, WithDecryption: bool = False) -> dict[str, Any]:
        if Name not in self._values:
            raise client_error("GetParameter", "ParameterNotFound", f"Parameter {Name} not found.")
        return {
            "Parameter": {
                "Name": Name,
                "Type": "String",
                "Value": self._values[Name],
                "Version": self._versions.get(Name, 1),
                "ARN": f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter{Name}",
            }
        }

    @operation
    def put_parameter(
        self, *, Name: str, Value: str, Type: str = "String", Overwrite: bool = False, **others: Any
    ) -> dict[str, Any]:
        if Name in self._values and not Overwrite:
            raise client_error(
                "PutParameter",
                "ParameterAlreadyExists",
                "The parameter already exists. To overwrite this value, set the overwrite option in the request "
                "to true.",
            )
        self._versions[Name] = self._versions.get(Name, 1) + 1 if Name in self._values else 1
        self._values[Name] = Value
        return {"Version": self._versions[Name], "Tier": "Standard"}
