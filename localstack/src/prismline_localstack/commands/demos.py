"""The demonstrations as commands. Each imports its modules when it runs, because the import takes a second."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prismline_cli.commands.options import AsJson
from prismline_cli.output import ExitCode, print_json, story_on_stderr
from prismline_deploy.failing import deploy_errors
from prismline_localstack.demos import DemoResult


def demo(
    cube: Annotated[Path | None, typer.Option(help="A FITS cube; default: a generated one with known truth.")] = None,
    survey: Annotated[str | None, typer.Option(help="The survey's name; default: from the file's name.")] = None,
    chunk_size: Annotated[int | None, typer.Option(min=1, help="Spectra per chunk; small cubes: 20 chunks.")] = None,
    to: Annotated[Path, typer.Option(help="Folder of the cube, the results and the picture.")] = Path("demo-output"),
    keep: Annotated[bool, typer.Option("--keep", help="Continue to serve the console until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start the system, decompose a cube, show the results, and shut down."""
    from prismline_localstack.demos.cube import demo as run_demo  # noqa: PLC0415

    with deploy_errors(), story_on_stderr(as_json):
        done = run_demo(cube, survey, chunk_size, to, keep=keep)
    _end(done, as_json=as_json)


def demo_captions(
    to: Annotated[Path, typer.Option(help="Folder of the frames, the logs and the state.")] = Path("demo-output"),
    as_json: AsJson = False,
) -> None:
    """Caption a recording through a GPU outage: the alert, the mute, the captions."""
    from prismline_localstack.demos.captions import demo_captions as run_demo  # noqa: PLC0415

    with deploy_errors(), story_on_stderr(as_json):
        done = run_demo(to)
    _end(done, as_json=as_json)


def demo_faults(
    to: Annotated[Path, typer.Option(help="Folder of the cube, the logs and the state.")] = Path("demo-output"),
    as_json: AsJson = False,
) -> None:
    """Start the system, inject many faults at once, and show the end of each chunk."""
    from prismline_localstack.demos.faults import demo_faults as run_demo  # noqa: PLC0415

    with deploy_errors(), story_on_stderr(as_json):
        done = run_demo(to)
    _end(done, as_json=as_json)


def demo_urls(
    urls: Annotated[int, typer.Option(min=1, help="Number of URLs in the list.")] = 20_000,
    to: Annotated[Path, typer.Option(help="Folder of the archive, the logs and the state.")] = Path("demo-output"),
    as_json: AsJson = False,
) -> None:
    """Submit a list of URLs over HTTP, kill Valkey and a worker meanwhile, and export all pages in one archive."""
    from prismline_localstack.demos.urls import demo_urls as run_demo  # noqa: PLC0415

    with deploy_errors(), story_on_stderr(as_json):
        done = run_demo(urls, to)
    _end(done, as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (demo, demo_faults, demo_captions, demo_urls):
        app.command()(command)


def _end(done: DemoResult, *, as_json: bool) -> None:
    if as_json:
        print_json({"ok": done.ok, "run_id": done.run_id})
    if not done.ok:
        raise typer.Exit(ExitCode.FAILED_CHUNKS)
