"""The lines of JSON between a runner and its supervisor.

The supervisor writes a `Request`, a `BatchRequest` or a `FinalRequest`, the runner answers with `Done`, `BatchDone` or
`Failed`, one at a time. Before the first request the runner writes `Ready` or `Refused`. Both ends may be of different
versions of this package: a field that one end does not know is ignored, and `version` changes if that is not enough.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from prismline.values import MAX_VALUE_BYTES, NotJsonError, decode
from prismline.workload import Limits

#: Version of the protocol.
VERSION = 1
#: Longest line in bytes: a value, and what a `Done` or `Failed` says besides.
MAX_LINE_BYTES = MAX_VALUE_BYTES + 64 * 1024
#: Longest values of a batch together, in bytes. The supervisor holds them in memory.
MAX_BATCH_BYTES = 16 * 2**20


class Description(BaseModel):
    """What a service has to know of a workload. It never imports the code."""

    name: str
    #: JSON Schema of an item.
    item: dict[str, Any]
    #: JSON Schema of the parameters, an object.
    parameters: dict[str, Any]
    limits: Limits
    #: Digest of the source files, hexadecimal.
    code: str
    #: The function takes a list of items: a `BatchRequest`, too.
    vectorized: bool = False
    #: The workload has a function for a `FinalRequest`.
    finalize: bool = False


class Usage(BaseModel):
    """What a runner holds between two items."""

    #: Resident memory of the runner in bytes.
    memory: int
    #: Open files of the runner.
    files: int
    #: Its child processes, and those that these left behind.
    children: int


class Request(BaseModel):
    """One attempt of an item."""

    item: Any
    item_id: str
    attempt: int
    #: When the supervisor will kill the process, in seconds since the epoch.
    deadline: float
    parameters: dict[str, Any]


class Entry(BaseModel):
    """One item of a batch."""

    item: Any
    item_id: str
    attempt: int


class BatchRequest(BaseModel):
    """One call of a vectorized function. The answer is `BatchDone`, or `Failed` with the id of the first item."""

    entries: list[Entry]
    deadline: float
    parameters: dict[str, Any]


class FinalRequest(BaseModel):
    """One call of the function of `finalize`. The answer is that to an item."""

    #: The file with the results (`prismline.results`).
    results: str
    item_id: str
    attempt: int
    deadline: float
    parameters: dict[str, Any]


class Ready(BaseModel):
    """The workload is imported, and its limits are set."""

    kind: Literal["ready"] = "ready"
    version: int = VERSION
    description: Description
    usage: Usage


class Refused(BaseModel):
    """The workload cannot be imported or described."""

    kind: Literal["refused"] = "refused"
    error: str
    error_type: str


class Done(BaseModel):
    """The item succeeded."""

    kind: Literal["done"] = "done"
    item_id: str
    value: Any
    duration_ms: int
    usage: Usage


class BatchDone(BaseModel):
    """All items of a batch succeeded."""

    kind: Literal["batch_done"] = "batch_done"
    #: Id of the first item.
    item_id: str
    values: list[Any]
    #: Of the whole batch.
    duration_ms: int
    usage: Usage


class Failed(BaseModel):
    """The item failed."""

    kind: Literal["failed"] = "failed"
    item_id: str
    error: str
    error_type: str
    traceback: str = ""
    permanent: bool
    #: Attempts that the item has in total, and seconds before the second one.
    attempts: int
    delay: float
    #: Memory or file handles were used up, perhaps by an earlier item.
    starved: bool = False
    duration_ms: int
    usage: Usage


AnyReply = Ready | Refused | Done | BatchDone | Failed
Reply = Annotated[AnyReply, Field(discriminator="kind")]
REPLY: TypeAdapter[AnyReply] = TypeAdapter(Reply)


def read_reply(line: bytes) -> AnyReply | None:
    """The reply in a line, or None if it is none."""
    try:
        return REPLY.validate_python(decode(line))
    except (NotJsonError, ValidationError):
        return None
