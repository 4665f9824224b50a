"""The envelope of every message: a CloudEvents 1.0 JSON object with extension attributes of Prismline.

On EventBridge the envelope is the `detail`, and its `type` is the `detail-type`. On SQS it is the body.
Sources: CloudEvents 1.0.2; W3C Trace Context.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self

from pydantic import ConfigDict, Field, StringConstraints

from prismline_contracts.base import Contract, Name, RunId, Timestamp, derived_id, timestamp

MessageType = Annotated[str, StringConstraints(pattern=r"^prismline(\.[a-z][a-z_]*)+\.v[1-9][0-9]*$")]
TraceParent = Annotated[str, StringConstraints(pattern=r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")]


class MessageData(Contract):
    """Base of the models of an envelope's `data`. Every subclass names its message type."""

    model_config = ConfigDict(validate_by_name=True)

    TYPE: ClassVar[str]
    run_id: RunId


class Wrappable(Protocol):
    """A model that an envelope can carry: it has a message type and, if it concerns a run, the run's id."""

    TYPE: ClassVar[str]

    @property
    def run_id(self) -> str | None: ...

    def model_dump(self, *, mode: str, exclude_none: bool) -> dict[str, Any]: ...


class Envelope(Contract):
    """A message, on SQS or EventBridge. Its `type` says which model validates `data`."""

    specversion: Literal["1.0"] = "1.0"
    id: Name
    source: Name
    type: MessageType
    subject: Annotated[str, Field(max_length=400)] | None = None
    time: Timestamp
    datacontenttype: Literal["application/json"] = "application/json"
    dataschema: str | None = None
    traceparent: TraceParent | None = None
    runid: RunId | None = None
    tasktoken: Annotated[str, Field(min_length=1, max_length=2048)] | None = None
    data: dict[str, Any]

    @property
    def trace_id(self) -> str | None:
        """The trace id: 32 hexadecimal digits that all messages of one submission share."""
        return trace_id_of(self.traceparent) if self.traceparent else None

    @classmethod
    def wrap(
        cls,
        data: Wrappable,
        *,
        source: str,
        traceparent: str | None,
        key: tuple[str, ...] = (),
        tasktoken: str | None = None,
    ) -> Self:
        """Put `data` into an envelope.

        The id is derived from the message type, the run and `key`, so that a repeated message has the same id. `key`
        distinguishes messages of the same type in a run, for example by the chunk id.
        """
        return cls(
            id=derived_id(data.TYPE, data.run_id or "", *key),
            source=source,
            type=data.TYPE,
            subject="/".join(filter(None, (data.run_id, *key))),
            time=timestamp(),
            dataschema=f"{data.TYPE.removeprefix('prismline.')}.json",
            traceparent=traceparent,
            runid=data.run_id,
            tasktoken=tasktoken,
            data=data.model_dump(mode="json", exclude_none=True),
        )

    def to_json(self) -> str:
        """The JSON text of the envelope, without absent attributes."""
        return self.model_dump_json(exclude_none=True)


def traceparent_of(run_id: str) -> str:
    """The W3C trace context of a run that was submitted without one. The same run always gets the same one."""
    digest = hashlib.sha256(run_id.encode()).hexdigest()
    return f"00-{digest[:32]}-{digest[32:48]}-01"


def trace_id_of(traceparent: str) -> str:
    """The trace id in `traceparent`."""
    return traceparent.split("-")[1]
