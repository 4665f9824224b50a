"""`prismline plot`: wrong use that it refuses before it fetches anything, and the titles of its pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from prismline_cli import plotting, tables
from prismline_cli.results import Decomposition
from prismline_cli.runs import RunView
from prismline_cli.tables import runs_table
from prismline_cli.whole import app
from prismline_contracts.items import RunItem, WorkflowStateItem
from prismline_contracts.objects import CubeGeometry


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "r5.gif"], "r5.gif does not end in .png, .pdf or .svg"),
        (["--to", "r5"], "r5 does not end in"),
        (["--to", "no/such/folder/r5.png"], "There is no folder no/such/folder"),
        (["--to", "a.png"], "a.png is a folder"),
        (["--x", "1"], "Give both --x and --y, or neither."),
        (["--x", "1", "--y", "1", "--diagnostics"], "diagnostics cover the whole run"),
    ],
)
def test_wrong_usage_is_refused_in_a_sentence_before_anything_is_fetched(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.png").mkdir()
    result = CliRunner().invoke(app, ["plot", "some-run", *arguments])
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


NOW = "2026-01-01T00:00:00.000Z"


def view(**counts: int) -> RunView:
    """An ended run of 20 chunks with 2,000 spectra. All chunks are completed unless `counts` changes that."""
    numbers = {"jobs_total": 20, "jobs_completed": 20, "n_spectra": 2000, "n_blank": 3} | counts
    item = RunItem(
        PK="1a2b3c4d-run", GSI1_PK="grs", GSI1_SK=NOW, survey="grs", workload="spectra", job_id="first light",
        created_at=NOW, params='{"beta": 4.5, "preset": "best"}', **numbers,
    )  # fmt: skip
    state = WorkflowStateItem(run_id="1a2b3c4d-run", status="completed", updated_at=NOW, job_id="first light")
    return RunView("1a2b3c4d-run", state, item)


def test_a_title_names_object_survey_run_and_job_and_all_parameters() -> None:
    geometry = CubeGeometry(
        n_channels=4, ny=1, nx=1, ctype="VRAD", crval=0.0, crpix=1.0, cdelt=1.0, cunit="m/s", bunit="K",
        object_name="W49", cube_key="c",
    )  # fmt: skip
    title = plotting.title_of(view(), Decomposition(geometry, None))  # type: ignore[arg-type]
    assert title.heading == "W49, grs, run 1a2b3c4d"
    assert title.lines == ("job first light", "beta 4.5 \u00b7 preset best")
    assert title.warnings == ()


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ({"jobs_completed": 15, "jobs_failed": 3}, "Partial: 15 of 20 chunks completed (3 failed, 2 not finished)."),
        ({"n_blank": 2000}, "All 2,000 spectra of the cube are blank: nothing was fitted."),
        ({"n_timed_out": 7}, "7 spectra ran out of time and wait to be fitted again."),
        ({"n_refit_failed": 7}, "7 spectra ran out of time and could not be fitted again."),
    ],
)
def test_incomplete_results_are_a_warning(counts: dict[str, int], said: str) -> None:
    assert view(**counts).warnings == [said]
    assert view(**counts).as_json()["warnings"] == [said]


def test_runs_are_listed_with_their_jobs_and_all_their_parameters() -> None:
    console = Console(width=240)
    with console.capture() as captured:
        console.print(runs_table([view()], 240))
    assert "first light" in captured.get()
    assert "beta 4.5, preset best" in captured.get()
    narrow = Console(width=60)
    with narrow.capture() as captured:
        narrow.print(runs_table([view()], 60))
    assert max(len(line) for line in captured.get().splitlines()) <= 60


def test_one_run_is_shown_with_all_its_parameters() -> None:
    shown = Console(width=240)
    with shown.capture() as captured, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "console", shown)
        tables.show_run(view(), as_json=False)
    assert "beta 4.5, preset best" in captured.get()
    assert "first light" in captured.get()
