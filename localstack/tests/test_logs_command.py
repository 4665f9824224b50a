"""`prismline logs`, on log files in the format of the processes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from prismline_cli.whole import app
from prismline_contracts_tool.schemas import output_schema_of

RUN, OTHER = "e4e1aaaa-0000", "e4e1bbbb-0000"


def line(time: str, message: str, level: str = "INFO", **fields: Any) -> str:
    return json.dumps({"level": level, "message": message, "timestamp": time, "service": "s"} | fields)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    logs = tmp_path / "logs"
    logs.mkdir()
    now = datetime.now(UTC).isoformat()
    old = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
    ago = (datetime.now(UTC) - timedelta(minutes=5)).isoformat()
    (logs / "worker-1.log").write_text(
        "\n".join(
            [
                line(old, "chunk_started", run_id=RUN, chunk_id="chunk-0000002"),
                json.dumps({"_aws": {"Timestamp": 1}, "ChunksCompleted": 1}),
                line(now, "chunk_failed", "ERROR", run_id=RUN, chunk_id="chunk-0000002", reason="no memory"),
                "Traceback (most recent call last):",
                "MemoryError",
                line(now, "half a line")[:-3],
            ]
        )
    )
    (logs / "splitter.log").write_text(line(ago, "split", run_id=OTHER) + "\n")
    (logs / "emulator.log").write_text("POST / 200\n")
    return tmp_path


def shown(home: Path, *arguments: str, expect: int = 0) -> list[str]:
    result = CliRunner(env={"PRISMLINE_HOME": str(home)}).invoke(app, ["logs", *arguments])
    assert result.exit_code == expect, result.output
    return result.stderr.splitlines() if expect else result.stdout.splitlines()


def test_lines_are_readable_and_ordered_by_time_without_metrics_and_emulator(home: Path) -> None:
    started, split, failed, *trace = shown(home)
    assert "chunk_started" in started
    assert "splitter" in split
    assert "ERROR    worker-1       chunk_failed  e4e1aaaa-0000 chunk-0000002  reason=no memory" in failed
    assert [text.split()[-1] for text in trace] == ["last):", "MemoryError"]
    assert not any("POST" in text or "_aws" in text for text in shown(home))
    assert "POST / 200" in shown(home, "emulator")[0], "its lines are shown on request"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--run", "e4e1a"), ["chunk_started", "chunk_failed"]),
        (("--run", OTHER), ["split"]),
        (("--chunk", "2"), ["chunk_started", "chunk_failed"]),
        (("--service", "splitter"), ["split"]),
        (("--since", "10m", "--run", "e4e1a"), ["chunk_failed"]),
        (("--tail", "1"), ["MemoryError"]),
        (("--level", "error"), ["chunk_failed", "Traceback (most recent call last):", "MemoryError"]),
    ],
)
def test_options_select_lines(home: Path, arguments: tuple[str, ...], message: list[str]) -> None:
    documents = [json.loads(text) for text in shown(home, *arguments, "--json")]
    assert [document["message"] for document in documents] == message
    for document in documents:
        jsonschema.validate(document, output_schema_of("logs.v1"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--run", "e4e1"), OTHER),
        (("--run", "nope"), "There is no run nope"),
        (("--chunk", "99"), "There is no chunk 99"),
        (("--since", "yesterday"), "neither an age"),
        (("worker", "--service", "splitter"), "not both"),
        (("--level", "loud"), "loud"),
    ],
)
def test_arguments_that_match_nothing_are_exit_code_2(home: Path, arguments: tuple[str, ...], message: str) -> None:
    assert any(message in text for text in shown(home, *arguments, expect=2))
