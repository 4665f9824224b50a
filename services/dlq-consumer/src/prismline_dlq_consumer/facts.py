"""Looks up the facts for decisions: the chunks, runs and resources of a batch of dead letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prismline_contracts.commands import TasksProcess
from prismline_contracts.items import ChunkItem, RunItem
from prismline_dlq_consumer.dead_letter import DeadLetterMessage
from prismline_dlq_consumer.decisions import Facts, Resource
from prismline_ledger import Ledger
from prismline_runtime import TransientError


class LookUp:
    """The facts of the letters of one batch.

    The first call reads the chunks and runs of all letters together. If that fails, it fails for every letter of the
    batch, without a second try. `resource_of` returns the resource that a letter needs.
    """

    def __init__(
        self,
        letters: Iterable[DeadLetterMessage],
        ledger: Ledger,
        resource_of: Callable[[DeadLetterMessage], Resource | None] = lambda _: None,
    ) -> None:
        known = [letter for letter in letters if letter.invalid is None]
        self._names = {letter.chunk_name for letter in known if letter.chunk_name is not None}
        self._run_ids = {letter.command.run_id for letter in known if letter.command is not None}
        self._ledger = ledger
        self._resource_of = resource_of
        self._read: tuple[dict[tuple[str, str], ChunkItem], dict[str, RunItem]] | TransientError | None = None

    def facts(self, letter: DeadLetterMessage) -> Facts:
        """The facts of `letter`. Raises TransientError if they cannot be read."""
        if letter.command is None:
            return Facts()
        chunks, runs = self._ledger_items()
        run = runs.get(letter.command.run_id)
        tasks = {}
        if isinstance(letter.data, TasksProcess) and run is not None:
            tasks = self._ledger.read_tasks(run, letter.data.task_ids)
        return Facts(
            chunk=chunks.get(letter.chunk_name) if letter.chunk_name is not None else None,
            run=run,
            tasks=tuple(tasks.values()),
            resource=self._resource_of(letter),
        )

    def _ledger_items(self) -> tuple[dict[tuple[str, str], ChunkItem], dict[str, RunItem]]:
        if self._read is None:
            try:
                self._read = self._ledger.find(self._names), self._ledger.find_runs(self._run_ids)
            except TransientError as error:
                self._read = error
        if isinstance(self._read, TransientError):
            raise TransientError(str(self._read)) from self._read
        return self._read
