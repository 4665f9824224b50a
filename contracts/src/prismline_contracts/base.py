"""The base class of all contracts, and the types that they share: ids, keys, timestamps."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    StringConstraints,
    field_validator,
)
from pydantic_core import CoreSchema

#: Namespace of all derived ids (UUIDs of version 5, RFC 9562).
ID_NAMESPACE = uuid.UUID("6f0e9ef0-54e1-5c0e-9d3b-6d1c5f8f6a51")

#: A survey is part of S3 keys and a partition value of a Hive dataset, so it has no slash and no equals sign.
SURVEY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

#: The same in words.
SURVEY_RULE = (
    "a survey's name has 1 to 64 characters, which are letters, digits, '.', '_' or '-', and begins with a letter or a"
    " digit"
)

#: ISO 8601 with a time zone.
TIMESTAMP_PATTERN = (
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$"
)


class Contract(BaseModel):
    """Base of all contract models.

    Strict: a string is never converted to a number. Unknown fields are ignored, because a newer writer of the same
    major version may add fields that an older reader does not know.

    A field with an alias has another name on the wire. The alias is what dumps and schemas show.
    """

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, serialize_by_alias=True)

    @classmethod
    def attribute(cls, field: str) -> str:
        """The name of `field` on the wire: in table items, messages and printed documents."""
        return cls.model_fields[field].alias or field


#: Least and greatest amount of a fraction that a client may send, unless it is 0. Tables hold 1e-130 to 9.9e125.
LEAST_AMOUNT, MOST_AMOUNT = 1e-100, 1e100
#: Greatest whole number that a client may send. JSON carries it unchanged to every program, also to a browser.
MOST_WHOLE = 2**53 - 1
#: Greatest number of a chunk's first item, or of a task: clients get the numbers of all cells as four bytes each.
MOST_INDEX = 2**31 - 1


#: White noise that gaussline adds to a correlation, as a fraction of its variance.
_WHITE_PART = 0.05


def noise_can_have(lags: Sequence[float]) -> bool:
    """Whether noise can have this correlation at lags 0, 1, ...: it is positive definite with gaussline's white noise.

    Levinson's recursion: the error with which each channel is predicted from those before it stays positive.
    """
    known, error = [1.0 + _WHITE_PART, *lags[1:]], 1.0 + _WHITE_PART
    weights: list[float] = []
    for lag in range(1, len(known)):
        rest = known[lag] - sum(weight * known[lag - 1 - i] for i, weight in enumerate(weights))
        reflection = rest / error
        weights = [weight - reflection * other for weight, other in zip(weights, reversed(weights), strict=True)]
        weights.append(reflection)
        error *= 1.0 - reflection**2
        if error <= 0.0:
            return False
    return True


def _of_noise(lags: list[float]) -> list[float]:
    if lags[0] != 1.0:
        raise ValueError("the correlation at lag 0, that of a channel with itself, is 1")
    if not noise_can_have(lags):
        raise ValueError("no noise has this correlation: it is not positive definite")
    return lags


#: A correlation at lags 0, 1, ... channels, of which the first one is 1, that noise can have.
Lags = Annotated[
    list[Annotated[float, Field(ge=-1, le=1)]], Field(min_length=2, max_length=8), AfterValidator(_of_noise)
]


class Submitted(BaseModel):
    """Base of the models that clients write: refuses numbers that a table, a message or a browser would change.

    The schemas do not show these limits, because a reader of a contract may not accept less than its last release did.
    Models of stored items have no such limits: a table may hold numbers that an older release accepted.
    """

    @field_validator("*")
    @classmethod
    def _is_carried(cls, value: Any) -> Any:
        return _carried(value) if isinstance(value, float | int) and not isinstance(value, bool) else value


def _carried(number: float) -> float:
    """`number`, with 0 for a negative zero. Raises ValueError if it is too large, too small or not finite."""
    if isinstance(number, int):
        if abs(number) > MOST_WHOLE:
            raise ValueError(f"a whole number is at most {MOST_WHOLE}")
        return number
    if number != 0 and not LEAST_AMOUNT <= abs(number) <= MOST_AMOUNT:
        raise ValueError(f"a number other than 0 is at least {LEAST_AMOUNT:g} and at most {MOST_AMOUNT:g}")
    return number or 0.0


#: The keyword, in a JSON Schema, of the values that a writer of this version writes. A validator accepts any other.
KNOWN_VALUES = "x-known-values"


@dataclass(frozen=True, init=False)
class Open:
    """Marks text whose values this version knows, but whose reader accepts others: `Annotated[str, Open("A", "B")]`.

    Old readers find values of newer releases in tables and messages. They must read such an item, and must not change
    what they do not understand in it. A value that is not text is still refused.
    """

    values: tuple[str, ...]

    def __init__(self, *values: str) -> None:
        object.__setattr__(self, "values", tuple(map(str, values)))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Mapping[str, Any]:
        return {**handler(schema), KNOWN_VALUES: list(self.values)}


#: Kept as text, so that the stored value is exactly what was sent. Services write UTC with milliseconds, so the texts
#: sort in the order of time.
Timestamp = Annotated[str, StringConstraints(pattern=TIMESTAMP_PATTERN)]
RunId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
#: `chunk-` and the index of the chunk's first item, seven digits or more.
ChunkId = Annotated[str, StringConstraints(pattern=r"^chunk-[0-9]{7,}$")]
Survey = Annotated[str, StringConstraints(pattern=SURVEY_PATTERN)]
#: An S3 key.
Key = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
#: Who submits jobs. It is part of S3 keys and of keys of items.
Tenant = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=0)]


def derived_id(*parts: str) -> str:
    """The UUID derived from `parts`. The same parts always give the same id, so a repeated message keeps its id."""
    return str(uuid.uuid5(ID_NAMESPACE, "\x1f".join(parts)))


def now() -> datetime:
    """The current time, in UTC. Only this function reads the wall clock, so that a simulation can replace it."""
    return datetime.now(UTC)


def timestamp(moment: datetime | None = None) -> str:
    """`moment` (default: now) as ISO 8601 in UTC with milliseconds and `Z`, e.g. `2026-03-01T12:00:00.000Z`."""
    moment = (moment or now()).astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_survey(value: str) -> bool:
    """Whether `value` is a valid survey name."""
    return re.fullmatch(SURVEY_PATTERN, value) is not None


def chunk_id(start: int) -> str:
    """The id of the chunk whose first item has the index `start`, e.g. `chunk-0000500`."""
    return f"chunk-{start:07d}"
