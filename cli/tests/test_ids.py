"""Every command takes a whole id or its beginning, and refuses an ambiguous one."""

from __future__ import annotations

from typing import Any

import pytest
from cli_world import CliWorld

from prismline_cli.finding import match
from prismline_cli.output import CommandError

pytestmark = pytest.mark.emulator

RUN, OTHER, TWIN = "e4e1aaaa-0000", "0b0b0000-0000", "0b0b1111-0000"

#: Every command that takes a run, with its other required arguments.
OF_A_RUN = [
    ("run",),
    ("watch",),
    ("chunks",),
    ("stuck",),
    ("failures",),
    ("cancel",),
    ("results", "--to", "."),
    ("plot",),
    ("deadletters", "ls", "--run"),
    ("deadletters", "stats", "--run"),
    ("deadletters", "recover", "--run"),
]


@pytest.fixture
def three(world: CliWorld) -> CliWorld:
    for run_id in (RUN, OTHER, TWIN):
        world.add_run(run_id)
        world.add_chunk(run_id, 0)
    return world


def with_id(command: tuple[str, ...], run_id: str) -> tuple[str, ...]:
    if command[-1] == "--run":
        return (*command, run_id)
    return (command[0], run_id, *command[1:])


def test_an_ambiguous_id_is_refused_with_the_candidates(three: Any) -> None:
    for command in OF_A_RUN:
        refused = three.json(*with_id(command, "0b0b"), expect=2)
        assert refused["candidates"] == [OTHER, TWIN], command


def test_an_id_that_matches_nothing_is_exit_code_2(three: Any) -> None:
    for command in OF_A_RUN:
        assert "There is no run nope" in three.run(*with_id(command, "nope"), expect=2).stderr, command
        assert "is empty" in three.run(*with_id(command, ""), expect=2).stderr, command


def test_the_beginning_of_an_id_is_enough(three: Any) -> None:
    for command in ("run", "watch", "chunks", "failures"):
        assert RUN in three.run(command, "e4e1", "--json").stdout, command


def test_a_whole_id_is_not_ambiguous_even_if_another_begins_with_it() -> None:
    assert match("ab", ["ab", "abc"], what="run") == "ab"


def test_many_candidates_are_not_all_listed() -> None:
    with pytest.raises(CommandError) as refused:
        match("a", [f"a{n:03d}" for n in range(100)], what="run")
    assert "100 runs" in refused.value.message
    assert len(refused.value.candidates) == 20


def test_ids_of_recoveries_sessions_and_dead_letters_follow_the_same_rules(three: Any) -> None:
    assert "There is no recovery operation nope" in three.run("deadletters", "operation", "nope", expect=2).stderr
    assert "There is no session nope" in three.run("segments", "--session", "nope", expect=2).stderr
    assert "There is no dead letter nope" in three.run("deadletters", "show", "nope", expect=2).stderr
