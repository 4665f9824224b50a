"""What every contract has in common: strict values, unknown fields ignored, ids and timestamps."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

#: Namespace of every id that is derived instead of drawn, so that a repeat gets the same id (RFC 9562, version 5).
ID_NAMESPACE = uuid.UUID("6f0e9ef0-54e1-5c0e-9d3b-6d1c5f8f6a51")

#: A survey is a segment of S3 keys and a partition value of a Hive dataset: no slash, no equals sign.
SURVEY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

#: ISO 8601 with a time zone.
TIMESTAMP_PATTERN = (
    r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$"
)


class Contract(BaseModel):
    """Base of all contract models.

    Strict: a string is not a number. Unknown fields are ignored, because a newer writer of the same major version
    may add what an older reader does not know.
    """

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


#: Kept as text: what is stored is what was sent, and in UTC with a fixed precision text sorts like time.
Timestamp = Annotated[str, StringConstraints(pattern=TIMESTAMP_PATTERN)]
RunId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,80}$")]
#: `chunk-` and the index of the chunk's first item, seven digits or more.
ChunkId = Annotated[str, StringConstraints(pattern=r"^chunk-[0-9]{7,}$")]
Survey = Annotated[str, StringConstraints(pattern=SURVEY_PATTERN)]
#: An S3 key.
Key = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Count = Annotated[int, Field(ge=0)]


def derived_id(*parts: str) -> str:
    """The UUID that belongs to `parts`: the same parts give the same id on every machine and every repeat."""
    return str(uuid.uuid5(ID_NAMESPACE, "\x1f".join(parts)))


def now() -> datetime:
    """The current moment, in UTC. The one place that reads the wall clock, so that a simulation can set it."""
    return datetime.now(UTC)


def timestamp(moment: datetime | None = None) -> str:
    """`moment` (default: now) as ISO 8601 in UTC with milliseconds and `Z`, e.g. `2026-03-01T12:00:00.000Z`."""
    moment = (moment or now()).astimezone(UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_survey(value: str) -> bool:
    """Whether `value` can name a survey."""
    return re.fullmatch(SURVEY_PATTERN, value) is not None


def chunk_id(start: int) -> str:
    """The id of the chunk whose first item has the index `start`, e.g. `chunk-0000500`."""
    return f"chunk-{start:07d}"
