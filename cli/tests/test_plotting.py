"""`prismline plot`: wrong use that it refuses before it fetches anything, and the titles of its pictures."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from prismline_cli import plotting, tables
from prismline_cli.downloading import outputs
from prismline_cli.results import Decomposition, geometry_of
from prismline_cli.runs import RunView
from prismline_cli.tables import runs_table
from prismline_cli.whole import app
from prismline_client import ApiError, Client, Counts, Run
from prismline_contracts.objects import CubeGeometry


@pytest.mark.parametrize(
    ("arguments", "message"),
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
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.png").mkdir()
    result = CliRunner().invoke(app, ["plot", "some-run", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_beside_an_api_of_an_earlier_release_there_are_no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> object:
        raise ApiError("There is no such path. The paths are in /openapi.json.", 404)

    def without_links(*_: object, **__: object) -> object:
        chunk = {"chunk_id": "c", "status": "completed", "n_items": 1, "created_at": NOW, "attempts": 1, "deferrals": 0}
        return {"items": [chunk | {"output_key": "k"}]}

    client = Client("http://127.0.0.1:9", "k")
    for answer, ask in ((unknown, geometry_of), (without_links, outputs)):
        monkeypatch.setattr(Client, "_ask", answer)
        with pytest.raises(ApiError, match="The API is of an earlier release") as refused:
            ask(client, "r")
        assert "Upgrade the service api." in str(refused.value)


NOW = "2026-01-01T00:00:00.000Z"


def view() -> RunView:
    """An ended run of 20 chunks with 2,000 spectra."""
    return RunView(
        Run(
            run_id="1a2b3c4d-run", job_id="first light", name="grs", workload="spectra", status="completed", ended=True,
            created_at=NOW, unit="chunk", counts=Counts(total=20, completed=20, failed=0), n_items=2000,
            params={"beta": 4.5, "preset": "best"},
        )
    )  # fmt: skip


def test_a_title_names_object_survey_run_and_job_and_all_parameters() -> None:
    geometry = CubeGeometry(
        n_channels=4, ny=1, nx=1, ctype="VRAD", crval=0.0, crpix=1.0, cdelt=1.0, cunit="m/s", bunit="K",
        object_name="W49", cube_key="c",
    )  # fmt: skip
    title = plotting.title_of(view(), Decomposition(geometry, None))  # type: ignore[arg-type]
    assert title.heading == "W49, grs, run 1a2b3c4d"
    assert title.lines == ("job first light", "beta 4.5 \u00b7 preset best")
    assert title.warnings == ()


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
