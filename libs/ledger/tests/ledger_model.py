"""A model of a run, its chunks and its stop item in plain Python, written from docs/explanation/protocol.md.

The property test compares the ledger with this model. It shares no code with the ledger: items are dictionaries with
the names of the stored attributes. An absent attribute is 0 or None.

Each operation is a generator. It yields after every write that is durable by itself, and wherever the protocol allows
another process to act between a read and a write. The process may die at such a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")
Item = dict[str, Any]
#: An operation: runs from one such moment to the next, and returns what its caller gets.
Steps = Generator[None, None, T]

PENDING, IN_PROGRESS, COMPLETED, FAILED = "PENDING", "IN_PROGRESS", "COMPLETED", "FAILED"
UNENDED = (PENDING, IN_PROGRESS)


class ImpossibleError(Exception):
    """Stands for the ledger's PermanentError: the call can never succeed."""


class TooEarlyError(Exception):
    """Stands for the ledger's TransientError: a later call may succeed."""


class Model:
    """One run."""

    def __init__(self) -> None:
        self.run: Item | None = None
        self.chunks: dict[str, Item] = {}
        #: The stop item: the run was stopped before it was opened.
        self.note: Item | None = None

    def copy(self) -> Model:
        twin = Model()
        twin.run = None if self.run is None else dict(self.run)
        twin.chunks = {name: dict(chunk) for name, chunk in self.chunks.items()}
        twin.note = None if self.note is None else dict(self.note)
        return twin

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self.items() == other.items()

    __hash__ = None  # type: ignore[assignment]

    def items(self) -> dict[str, Item]:
        """All items by sort key, without empty attributes."""
        named = {f"CHUNK#{name}": chunk for name, chunk in self.chunks.items()}
        named |= {sk: item for sk, item in (("RUN", self.run), ("STOP", self.note)) if item is not None}
        return {sk: {name: value for name, value in item.items() if value} for sk, item in named.items()}

    def n(self, counter: str) -> int:
        """The value of a counter of the run."""
        assert self.run is not None
        return int(self.run.get(counter, 0))

    def add(self, counter: str, change: int) -> None:
        assert self.run is not None
        self.run[counter] = self.n(counter) + change

    def open_again(self, now: str) -> None:
        """Something may change the run's end, so its end is removed and the sweeper checks the run again."""
        assert self.run is not None
        self.run.update(GSI2_PK="OPEN", GSI2_SK=now, ended_at=None, ended_status=None)

    # ---- the splitter

    def open(self, now: str) -> Steps[None]:
        if self.run is None:
            self.run = {"created_at": now, "GSI1_SK": now, "GSI2_PK": "OPEN", "GSI2_SK": now}
        yield
        if self.note is not None and not self.note.get("resumed_at"):
            self._stop_now(now, self.note["stop_reason"], {})
        yield

    def set_plan(self, now: str, read: Item, plan: str) -> Steps[str]:
        """Two callers with different plans both get the first one."""
        assert self.run is not None
        if same(self.run, read, "plan"):
            self.run["plan"] = plan
        yield
        return str(self.run["plan"])

    def add_chunks(self, now: str, names: list[str]) -> Steps[None]:
        for name in names:
            self.chunks.setdefault(name, {"status": PENDING, "created_at": now})
        yield

    def set_total(self, now: str, total: int) -> Steps[None]:
        if len(self.chunks) != total:
            raise ImpossibleError
        yield
        if self.run is None or (self.run.get("latched_at") and self.n("jobs_total") != total):
            raise ImpossibleError
        self.run.update(jobs_total=total, n_chunks=total, n_spectra=total)
        yield

    def latch(self, now: str) -> Steps[Item]:
        assert self.run is not None
        if self.run.get("jobs_total") and not self.run.get("latched_at"):
            self.run["latched_at"] = now
        yield
        return (yield from self.drain(now))

    def drain(self, now: str) -> Steps[Item]:
        """Drain a run that is latched and has nothing left to do, once for each time that this becomes true."""
        run = self.run
        assert run is not None
        ended = self.n("jobs_completed") + self.n("jobs_failed")
        if run.get("latched_at") and not run.get("drained_at") and ended >= self.n("jobs_total"):
            run["drained_at"] = now
            self.add("drains", 1)
            self.open_again(now)
        read = dict(run)
        yield
        return read

    # ---- the worker

    def start(self, now: str, name: str, worker: str | None) -> Steps[str]:
        chunk = self._chunk(name)
        if chunk["status"] not in UNENDED:
            return "skipped"
        chunk.update(status=IN_PROGRESS, started_at=now, attempts=chunk.get("attempts", 0) + 1)
        chunk["first_started_at"] = chunk.get("first_started_at") or now
        chunk.update(n_done=0, worker=worker)
        yield
        return "started"

    def report_progress(self, now: str, name: str, read: Item, n_done: int) -> Steps[bool]:
        """Only the latest attempt may report progress, and only until it ends."""
        chunk = self._chunk(name)
        if not same(chunk, read, "status", "attempts"):
            return False
        chunk["n_done"] = n_done
        yield
        return True

    def end_attempt(self, now: str, name: str, read: Item, error: str, interrupted: bool) -> Steps[bool]:
        chunk = self._chunk(name)
        if not same(chunk, read, "status", "attempts"):
            return False
        chunk.update(status=PENDING, last_error=error, attempt_ended_at=now)
        chunk["uncharged_ms"] = chunk.get("uncharged_ms", 0) + 1
        self._note_error(chunk, chunk, now, error, interrupted)
        chunk["interruptions"] = chunk.get("interruptions", 0) + interrupted
        yield
        return True

    def _note_error(self, chunk: Item, attempted: Item, now: str, error: str, interrupted: bool = False) -> None:
        noted = {"attempt": attempted.get("attempts", 0), "at": now, "duration_ms": 1, "error": error}
        noted |= {"worker": attempted["worker"]} if attempted.get("worker") else {}
        chunk["errors"] = [*chunk.get("errors", []), noted | ({"interrupted": True} if interrupted else {})]

    def _charge(self, chunk: Item, took: int) -> None:
        """Add each attempt and its duration to the run's costs once."""
        self.add("worked_ms", chunk.get("uncharged_ms", 0) + took)
        self.add("n_attempts", chunk.get("attempts", 0) - chunk.get("charged_attempts", 0))
        chunk.update(uncharged_ms=0, charged_attempts=chunk.get("attempts", 0))

    def record_error(self, now: str, name: str, error: str) -> Steps[None]:
        if name in self.chunks and self.chunks[name]["status"] in UNENDED:
            self.chunks[name]["last_error"] = error
        yield

    def complete(self, now: str, name: str, n_timed_out: int) -> Steps[tuple[bool, bool, Item]]:
        chunk = self._chunk(name)
        changed, late = chunk["status"] != COMPLETED, chunk["status"] == FAILED
        if changed:
            chunk.update(status=COMPLETED, completed_at=now, error=None, unsaid=late or None, n_done=0)
            chunk.update(output_key="o", duration_ms=1, n_bytes=9, n_timed_out=n_timed_out)
            self._charge(chunk, 1)
            self.add("n_bytes", 9)
            self.add("jobs_completed", 1)
            self.add("n_timed_out", n_timed_out)
            if late:
                self.add("jobs_failed", -1)
                self.open_again(now)
            yield
        return changed, late, (yield from self.drain(now))

    def fail(self, now: str, name: str, read: Item, error: str) -> Steps[tuple[bool, bool, Item]]:
        """Not with an error from before the recovery that reopened the chunk."""
        may = lambda chunk: same(chunk, read, "recovery")  # noqa: E731
        return (yield from self._fail(now, name, may, attempted=read, error=error))

    def give_up(self, now: str, name: str, read: Item, error: str, unsaid: bool) -> Steps[tuple[bool, bool, Item]]:
        """Only if nothing has happened to the chunk since it was read."""
        happened = ("status", "attempts", "interruptions", "started_at", "deferred_at", "sent_at")
        may = lambda chunk: same(chunk, read, *happened)  # noqa: E731
        return (yield from self._fail(now, name, may, error=error, unsaid=unsaid))

    def _fail(
        self, now: str, name: str, may: Callable[[Item], bool], attempted: Item | None = None, **fields: Any
    ) -> Steps[tuple[bool, bool, Item]]:
        chunk = self._chunk(name)
        changed = chunk["status"] in UNENDED and may(chunk)
        if changed:
            chunk.update(status=FAILED, completed_at=now, **fields)
            self._charge(chunk, 0 if attempted is None else 1)
            if attempted is not None:
                chunk["duration_ms"] = 1
                self._note_error(chunk, attempted, now, fields["error"])
            self.add("jobs_failed", 1)
            yield
        return changed, False, (yield from self.drain(now))

    # ---- the slow lane

    def record_refit(self, now: str, name: str, remaining: int) -> Steps[bool]:
        """The number of rows that are not fitted only falls. Rows that were given up never wait again."""
        chunk = self._chunk(name)
        if chunk["status"] != COMPLETED:
            raise TooEarlyError
        waiting, given_up = chunk.get("n_timed_out", 0), chunk.get("n_refit_failed", 0)
        if remaining >= waiting + given_up:
            return False
        if given_up:
            self._set_rows(chunk, 0, remaining, chunk["refit_error"])
        else:
            self._set_rows(chunk, remaining, 0, None)
        yield
        return True

    def give_up_refit(self, now: str, name: str, error: str) -> Steps[bool]:
        chunk = self._chunk(name)
        if not chunk.get("n_timed_out"):
            return False
        self._set_rows(chunk, 0, chunk["n_timed_out"] + chunk.get("n_refit_failed", 0), error)
        yield
        return True

    def _set_rows(self, chunk: Item, waiting: int, given_up: int, error: str | None) -> None:
        for counter, value in (("n_timed_out", waiting), ("n_refit_failed", given_up)):
            self.add(counter, value - chunk.get(counter, 0))
            chunk[counter] = value
        chunk["refit_error"] = error if given_up else None

    # ---- the status service

    def stop(self, now: str, reason: str, known: Item) -> Steps[None]:
        """A run without an item is stopped when it opens. A resumed run is stopped only by a caller that knows that."""
        if self.run is None:
            yield
            self.note = self.note or {"stop_reason": reason, "at": now}
        yield
        self._stop_now(now, reason, known)
        yield

    def _stop_now(self, now: str, reason: str, known: Item) -> None:
        over = self.run is None or self.run.get("cancelled_at") or self.run.get("drained_at")
        if self.run is None or over:
            return
        if (
            same(self.run, known, "uncancelled_at") and ("drains" not in known or same(self.run, known, "drains"))
            if reason == "cancelled"
            else (same(self.run, known, "resumed_at") and not self.run.get("drains"))
        ):
            self.run.update(cancelled_at=now, stop_reason=reason)

    def record_end(self, now: str, read: Item, status: str) -> Steps[bool]:
        """The end is recorded, unless it may now be a different one."""
        run = self.run
        assert run is not None
        over = run.get("drained_at") or run.get("cancelled_at")
        if not over or not same(run, read, "drained_at", "cancelled_at", "drains", "jobs_completed", "jobs_failed"):
            return False
        run.update(ended_at=now, ended_status=status)
        yield
        return True

    # ---- the dead-letter consumer and its recoveries

    def defer(self, now: str, name: str) -> Steps[bool]:
        if name not in self.chunks or self.chunks[name]["status"] not in UNENDED:
            return False
        chunk = self.chunks[name]
        chunk.update(deferred_at=now, deferrals=chunk.get("deferrals", 0) + 1)
        yield
        return True

    def reopen(self, now: str, name: str, read: Item, recovery: str) -> Steps[bool]:
        chunk = self._chunk(name)
        if chunk["status"] == COMPLETED or not same(chunk, read, "status", "attempts", "recovery"):
            return False
        chunk["recovery"] = recovery
        if chunk["status"] == FAILED:
            chunk.update(last_error=chunk["error"], interruptions=chunk.get("attempts", 0))
            chunk.update(status=PENDING, sent_at=now, error=None, completed_at=None, first_started_at=None, unsaid=None)
            self.add("jobs_failed", -1)
            assert self.run is not None
            self.run["drained_at"] = None
            self.open_again(now)
        yield
        return True

    def resume(self, now: str, read: Item, requested: str | None = None) -> Steps[bool]:
        """Takes back the stop that was read: because the run had failed, or because a person who saw it wants to."""
        cancelled = read.get("ended_status") == "cancelled" and requested == read.get("cancelled_at")
        if not read.get("cancelled_at") or not (cancelled if requested else read["stop_reason"] == "failed"):
            return False
        if self.note is not None and self.note["stop_reason"] == read["stop_reason"]:
            self.note["resumed_at"] = now
        yield
        assert self.run is not None
        if not same(self.run, read, "cancelled_at", "stop_reason"):
            return False
        self.run.update(cancelled_at=None, stop_reason=None, resumed_at=now)
        if requested:
            self.run["uncancelled_at"] = now
        self.open_again(now)
        yield
        return True

    # ---- the sweeper

    def claim(self, now: str, read: Item) -> Steps[bool]:
        assert self.run is not None
        if not self.run.get("GSI2_PK") or not same(self.run, read, "GSI2_SK"):
            return False
        self.run["GSI2_SK"] = now
        yield
        return True

    def close(self, now: str, read: Item) -> Steps[bool]:
        """Only if its end is recorded and no row waits that will be fitted."""
        assert self.run is not None
        done = read.get("ended_at") and (not read.get("n_timed_out") or read.get("cancelled_at"))
        if not done or not same(self.run, read, "ended_at", "n_timed_out", "cancelled_at"):
            return False
        self.run.update(GSI2_PK=None, GSI2_SK=None)
        yield
        return True

    def mark_announced(self, now: str, name: str, read: Item) -> Steps[None]:
        chunk = self._chunk(name)
        if same(chunk, read, "completed_at"):
            chunk["unsaid"] = None
        yield

    def resend(self, now: str, name: str, read: Item, reason: str) -> Steps[bool]:
        chunk = self._chunk(name)
        if chunk["status"] not in UNENDED or not same(chunk, read, "status", "started_at", "sent_at"):
            return False
        chunk.update(status=PENDING, sent_at=now, last_error=reason, resends=chunk.get("resends", 0) + 1)
        yield
        return True

    def resend_refit(self, now: str, name: str, read: Item) -> Steps[bool]:
        chunk = self._chunk(name)
        if not same(chunk, read, "n_timed_out", "refit_sent_at"):
            return False
        chunk["refit_sent_at"] = now
        yield
        return True

    def resend_split(self, now: str, read: Item) -> Steps[bool]:
        assert self.run is not None
        if not same(self.run, read, "latched_at", "split_sent_at"):
            return False
        self.run.update(split_sent_at=now, split_resends=self.n("split_resends") + 1)
        yield
        return True

    def check(self, now: str) -> Steps[None]:
        assert self.run is not None
        self.run["checked_at"] = now
        yield

    def correct(self, now: str, read: Item, counted: dict[str, int]) -> Steps[bool]:
        """Only while no counter has changed since the run was read."""
        assert self.run is not None
        if not same(self.run, read, "jobs_completed", "jobs_failed", "n_timed_out", "n_refit_failed"):
            return False
        self.run.update(counted)
        yield
        return True

    def _chunk(self, name: str) -> Item:
        if name not in self.chunks:
            raise ImpossibleError
        return self.chunks[name]


def same(item: Item, read: Item, *names: str) -> bool:
    """Whether these attributes still have the values that were read."""
    return all((item.get(name) or None) == (read.get(name) or None) for name in names)


def broken_rules(now: Model, before: Model) -> list[str]:
    """The invariants of the documents that the model breaks now, or by the change from `before`, an earlier moment.

    They are checked on the model, so that it is not wrong in the same way as the ledger.
    """
    wrong = []
    run, states = now.run, [chunk["status"] for chunk in now.chunks.values()]
    if run is not None:
        total, ended = run.get("jobs_total"), states.count(COMPLETED) + states.count(FAILED)
        sums = {name: sum(c.get(name, 0) for c in now.chunks.values()) for name in ("n_timed_out", "n_refit_failed")}
        sums |= {"n_attempts": sum(chunk.get("charged_attempts", 0) for chunk in now.chunks.values())}
        sums |= {"jobs_completed": states.count(COMPLETED), "jobs_failed": states.count(FAILED)}
        wrong += [f"{name} is not the sum over the items" for name, value in sums.items() if now.n(name) != value]
        if total is not None and total != len(states):
            wrong.append("the total is not the number of items")
        if run.get("drained_at") and not (run.get("latched_at") and ended == total):
            wrong.append("drained with something left to do")
        if run.get("ended_at") and not (run.get("drained_at") or run.get("cancelled_at")):
            wrong.append("ended without having drained or been stopped")
        if not run.get("GSI2_PK") and not run.get("ended_at"):
            wrong.append("the sweeper does not look at it, and its end is not recorded")
        if not run.get("GSI2_PK") and run.get("n_timed_out") and not run.get("cancelled_at"):
            wrong.append("the sweeper does not look at it, and rows wait")
    for name, chunk in now.chunks.items():
        was = before.chunks.get(name, {})
        if was.get("status") == COMPLETED and chunk["status"] != COMPLETED:
            wrong.append("COMPLETED was left")
        if (chunk["status"] == FAILED) != bool(chunk.get("error")):
            wrong.append("an error without a failure, or a failure without one")
        if chunk.get("unsaid") and chunk["status"] in UNENDED:
            wrong.append("an end that has not happened is to be announced")
        if chunk.get("attempts", 0) < max(was.get("attempts", 0), chunk.get("interruptions", 0)):
            wrong.append("attempts were taken back")
        if was.get("status") == COMPLETED and rows(chunk) > rows(was):
            wrong.append("rows came back")
        if rows(chunk) and chunk["status"] != COMPLETED:
            wrong.append("rows of an output that does not exist")
    return wrong


def rows(chunk: Item) -> int:
    """Rows of a chunk's output that were not fitted."""
    return int(chunk.get("n_timed_out", 0)) + int(chunk.get("n_refit_failed", 0))
