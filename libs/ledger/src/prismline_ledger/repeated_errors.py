"""Errors that the same message of a run raises again and again, although its consumer did not expect them.

Every consumer of a queue writes them, by the router of `prismline_runtime`. They have items of their own, because a
message may raise before its run has an item. No decision about a message, a chunk or a run depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.conditions import Attr, Key

from prismline_contracts.items import ERROR_SK_PREFIX, REPEATED_FROM, RepeatedErrorItem
from prismline_ledger.base import LedgerBase, as_read
from prismline_runtime import Change, ConditionFailedError

if TYPE_CHECKING:
    from prismline_runtime import Work


@dataclass(frozen=True)
class RepeatedError:
    """What a run shows: the latest error that a message repeats, and how many other messages repeat one."""

    item: RepeatedErrorItem
    others: int = 0

    def as_document(self) -> dict[str, Any]:
        """The fields that the command line and the API show."""
        fields = ("service", "message_type", "part", "error", "count", "first_at", "last_at")
        shown = {name: getattr(self.item, name) for name in fields}
        return shown | {"others": self.others, "sentence": self.sentence}

    @property
    def sentence(self) -> str:
        """The error, who raised it, at which message, how often and when, for a person."""
        item = self.item
        message = item.message_type.removeprefix("prismline.").removesuffix(".v1")
        where = f"{item.service}, {message}" + (f" of {item.part}" if item.part else "")
        more = f"; {self.others} more messages of the run are in trouble" if self.others else ""
        return f"{item.error} ({where}, {item.count} times from {item.first_at} to {item.last_at}{more})"


def after_error(read: RepeatedErrorItem | None, work: Work, *, service: str, error: str, at: str) -> RepeatedErrorItem:
    """The item after the message raised an unexpected error. read: the item before; None if there was none."""
    before = read if read is not None and read.over_at is None else None
    return RepeatedErrorItem(
        **_key(work),
        service=service,
        message_type=work.type,
        part=work.part,
        error=error,
        count=1 if before is None else before.count + 1,
        first_at=at if before is None else before.first_at,
        last_at=at,
    )


def latest(items: Iterable[RepeatedErrorItem], *, after: str | None = None) -> RepeatedError | None:
    """What a run with these items shows. None if no message has raised `REPEATED_FROM` errors in a row.

    after: the end of a run that has ended. Errors from before it are over: the run needs their messages no more.
    """
    found = [
        item
        for item in items
        if item.over_at is None and item.count >= REPEATED_FROM and (after is None or item.last_at > after)
    ]
    return RepeatedError(max(found, key=lambda item: item.last_at), len(found) - 1) if found else None


class RepeatedErrors(LedgerBase):
    """Writes and reads of unexpected errors."""

    def note_error(self, work: Work, *, service: str, error: str) -> None:
        """Count an unexpected error that a message raised."""
        while True:
            found = self._table.get(_key(work))
            read = None if found is None else RepeatedErrorItem.model_validate(found)
            item = after_error(read, work, service=service, error=error, at=self._clock())
            condition = Attr("PK").not_exists() if read is None else as_read(read, "count", "last_at", "over_at")
            sets = item.model_dump(exclude={"PK", "SK"}, exclude_none=True)
            with suppress(ConditionFailedError):  # another delivery of the message raised too
                self._table.update(_key(work), Change(sets, removes=("over_at",), condition=condition))
                return

    def forget_error(self, work: Work) -> None:
        """Record that the message succeeded or was given up, if it had raised."""
        found = self._table.get(_key(work))
        read = None if found is None else RepeatedErrorItem.model_validate(found)
        if read is None or read.over_at is not None:
            return
        change = Change({"over_at": self._clock()}, condition=as_read(read, "count", "last_at", "over_at"))
        with suppress(ConditionFailedError):  # another delivery of the message has raised since
            self._table.update(_key(work), change)

    def repeated_error(self, run_id: str, *, after: str | None = None) -> RepeatedError | None:
        """The error that the run shows; `after` as in `latest`. `Query(PK=run_id, SK begins_with "ERROR#")`"""
        key = Key("PK").eq(run_id) & Key("SK").begins_with(ERROR_SK_PREFIX)
        repeated = Attr("over_at").not_exists() & Attr("count").gte(REPEATED_FROM)
        items = self._table.query(key, where=repeated)
        return latest(map(RepeatedErrorItem.model_validate, items), after=after)


def _key(work: Work) -> dict[str, str]:
    part = "" if work.part is None else f"#{work.part}"
    return {"PK": work.run_id, "SK": f"{ERROR_SK_PREFIX}{work.type}{part}"}
