"""Common parts of the clients: the gate before every call, and errors like those of botocore."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from botocore.exceptions import ClientError

from prismline_localstack.settings import EMULATOR_REGION

if TYPE_CHECKING:
    from tests.simulation.aws import Aws

#: Account, Region and endpoint in ARNs and URLs: those of the emulator, so that answers can be compared.
REGION = EMULATOR_REGION
ACCOUNT = "000000000000"

F = TypeVar("F", bound=Callable[..., Any])


class Client:
    """A client of one service. Its public operations have boto3's names and parameters."""

    service = ""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self._hub = aws.hub


def operation(method: F) -> F:
    """Make a method an operation of a client: each call passes the hub's gate."""
    name = method.__name__

    @wraps(method)
    def call(self: Client, **parameters: Any) -> Any:
        return self._hub.gate(self.service, name, parameters, partial(method, self, **parameters))

    return cast("F", call)


def client_error(operation_name: str, code: str, message: str, *, status: int = 400, **more: Any) -> ClientError:
    """An error as botocore raises it; `more` are further members of the response."""
    response: dict[str, Any] = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}, "RetryAttempts": 0, "RequestId": "simulated"},
        **more,
    }
    return ClientError(response, operation_name)  # type: ignore[arg-type]


class Paginator:
    """Pages of an operation that continues with a token."""

    def __init__(self, call: Callable[..., Mapping[str, Any]], token: tuple[str, str]) -> None:
        self._call = call
        self._answered, self._asked = token

    def paginate(self, **parameters: Any) -> Any:
        while True:
            page = self._call(**parameters)
            yield page
            if not page.get(self._answered):
                return
            parameters[self._asked] = page[self._answered]
