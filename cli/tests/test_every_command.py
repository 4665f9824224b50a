"""Every command, the harness's too, takes `--json` and `--home`, has a schema, and reports wrong use in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

import jsonschema
import pytest
from cli_world import CliWorld
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner

from docs.reference import leaves
from prismline_cli import recovering, watching
from prismline_cli.printed import OUTPUTS, output_schema_name
from prismline_cli.whole import app
from prismline_contracts_tool.schemas import output_schema_of
from prismline_deploy import targets
from prismline_localstack import harness
from prismline_localstack.errors import HarnessError

RUN = "e4e1aaaa-0000"


COMMANDS = dict(leaves(get_command(app)))
NAMES = sorted(" ".join(path) for path in COMMANDS)


@pytest.mark.parametrize("name", NAMES)
def test_every_command_takes_json_and_home_and_has_a_schema(name: str) -> None:
    options = {option for parameter in COMMANDS[tuple(name.split())].params for option in parameter.opts}
    assert {"--json", "--home"} <= options
    assert name in OUTPUTS, "the output of a command is a contract: add it to prismline_cli.printed"


def test_every_schema_belongs_to_a_command() -> None:
    assert sorted({name.partition(" --")[0] for name in OUTPUTS}) == NAMES


def test_home_chooses_the_system_that_a_command_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    for name in ("runs", "status", "deadletters stats", "gpu status"):
        result = CliRunner().invoke(app, [*name.split(), "--home", str(tmp_path / "elsewhere")])
        assert result.exit_code == 3
        assert str(tmp_path / "elsewhere") in result.stderr.replace("\n", "")


#: Arguments that a person may type, or that a script passes from an empty variable.
WORDS = st.one_of(
    st.sampled_from(
        [
            *(
                "",
                " ",
                "-1",
                "0",
                "1",
                "nope",
                RUN,
                "e4e1",
                "0b0b",
                "1e999",
                "nan",
                "-",
                "--",
                "--json",
                "--x",
                "..",
                ".",
            ),
            *(
                "s3://",
                "s3://x/y",
                "[/red]",
                "[bold]",
                "*",
                "a/b",
                "2026-03-10",
                "2026-13-99",
                "chunk-0000000",
                "failed",
            ),
            *("picture.png", "picture.pdf", "/nonexistent/picture.png", "/proc/picture.png", "cube.fits", "folder"),
            *("n2h+10_37", "dead-letter-archive/", "9" * 400, "\U0001f52d", "4h", "fits"),
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), max_size=8),
)
#: Options that make a command wait.
ENDLESS = {"--wait", "--follow"}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A command with some of its arguments and options, with arbitrary values."""
    path = draw(st.sampled_from(sorted(COMMANDS)))
    words = list(path)
    for parameter in COMMANDS[path].params:
        if ENDLESS & set(parameter.opts) or "--help" in parameter.opts or "--home" in parameter.opts:
            continue
        if not draw(st.integers(0, 9 if parameter.required else 2)):
            continue
        if parameter.param_type_name == "argument":
            words.append(draw(WORDS))
        elif getattr(parameter, "is_flag", False):
            words.append(parameter.opts[0])
        else:
            words += [parameter.opts[0], draw(WORDS)]
    return words


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise HarnessError("This test starts nothing.")


@pytest.fixture
def wrong_world(world: CliWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliWorld:
    """A world with some runs, in a folder with a file and a folder. Nothing can be started, and polls do not wait."""
    world.add_run(RUN, jobs_total=2, jobs_completed=1, jobs_failed=1)
    world.add_chunk(RUN, 0, output_key="gone.parquet")
    world.add_chunk(RUN, 2, status="FAILED", error="[/bold] broken")
    for twin in ("0b0b0000-0000", "0b0b1111-0000"):
        world.add_run(twin, status="failed")
    (tmp_path / "cube.fits").write_bytes(b"no cube")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(harness, "up", refuse)
    monkeypatch.setattr(targets, "find_target", refuse)
    monkeypatch.setattr(recovering, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.0)
    return world


@pytest.mark.emulator
@pytest.mark.timeout(600)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=command_lines())
def test_any_command_line_ends_with_a_documented_exit_code_and_no_traceback(
    wrong_world: CliWorld, words: list[str]
) -> None:
    result = wrong_world.run(*words, expect=None)
    text = f"{words}: {result.output} {result.exception!r}"
    assert result.exception is None or isinstance(result.exception, SystemExit), text
    assert result.exit_code in {0, 1, 2, 3}, text
    assert "Traceback" not in result.output
    if result.exit_code > 1:
        assert result.stderr.strip(), text
    if "--json" in words and "--help" not in words:
        document = json.loads(result.stdout)
        failed = isinstance(document, dict) and "exit_code" in document
        name = next(n for n in range(len(words), 0, -1) if tuple(words[:n]) in COMMANDS)
        printed = [*words[:name], *(["--estimate"] if "--estimate" in words else [])]
        schema = "error.v1" if failed else output_schema_name(" ".join(printed))
        jsonschema.validate(document, output_schema_of(schema))


def test_listed_mistakes_are_refused_with_the_right_sentence(wrong_world: CliWorld) -> None:
    for words, message in (
        (("submit", "", "--survey", "s"), "The name of the file is empty."),
        (("submit", "folder", "--survey", "s"), "folder is a folder"),
        (("submit", "cube.fits", "--survey", "n2h+10_37"), "letters, digits"),
        (("demo", "--cube", "n2h+10_37.fits"), "There is no file"),
        (("run", ""), "is empty"),
        (("plot", RUN, "--to", "picture.doc"), "does not end in .png"),
        (("plot", RUN, "--to", "nowhere/picture.png"), "There is no folder nowhere"),
        (("deadletters", "recover", "--prefix", "sqs/"), "dead-letter-archive/"),
    ):
        assert message in wrong_world.run(*words, expect=2).stderr.replace("\n", " "), words


def test_a_missing_object_is_not_reported_as_an_unreachable_system(wrong_world: CliWorld) -> None:
    output = wrong_world.run("plot", RUN, "--x", "100", "--y", "0", expect=2).stderr
    assert "not in the bucket" in output
    assert "Cannot reach" not in output


def test_runs_are_readable_in_60_columns(wrong_world: CliWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong_world.add_run("77777777-0000", status="cancelled", survey="x", jobs_total=123456, jobs_completed=99999)
    monkeypatch.setattr("prismline_cli.output.console.width", 60)
    lines = wrong_world.run("runs").stdout.splitlines()
    assert len(lines) == 5, "a heading and one line for each"
    assert max(map(len, lines)) <= 60
    (shown,) = [line for line in lines if "cancelled" in line]
    assert "99999/123456" in shown
    assert wrong_world.run("run", shown.split()[0]).exit_code == 0, "the short id is accepted"
