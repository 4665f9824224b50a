"""Reads the parameters that a message carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import ValidationError

from prismline_contracts.manifest import Params
from prismline_runtime import PermanentError, UnavailableError, describe_invalid

P = TypeVar("P", bound=Params)

#: pydantic's error type for a value that is not one of those that this release knows.
UNKNOWN_VALUE = "literal_error"


def read_params(model: type[P], given: Mapping[str, object]) -> P:
    """The parameters in force: those that were given, and the defaults.

    The splitter has validated them, so a parameter or value that this worker does not know is from a newer release. The
    work then waits for a newer worker: UnavailableError, which uses up no attempt. Any other invalid value is a
    PermanentError.
    """
    if unknown := model.unknown(given):
        raise UnavailableError(f"This worker is too old for the parameter {unknown[0]}: deploy a newer worker.")
    try:
        return model.model_validate(given)
    except ValidationError as error:
        if any(found["type"] == UNKNOWN_VALUE for found in error.errors(include_url=False)):
            raise UnavailableError(
                f"This worker is too old for the parameters ({describe_invalid(error)}): deploy a newer worker."
            ) from error
        raise PermanentError(f"The parameters are invalid: {describe_invalid(error)}.") from error
