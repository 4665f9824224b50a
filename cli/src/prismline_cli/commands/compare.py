"""`prismline compare`: compare the results of two runs of one cube."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from prismline_cli.commands.options import AsJson, RunId
from prismline_cli.finding import consists_of, find_run
from prismline_cli.output import console, print_json, stderr
from prismline_cli.tables import warn
from prismline_client import Client

if TYPE_CHECKING:
    from prismline_cli.comparison import Comparison


def compare(
    first: RunId,
    second: RunId,
    to: Annotated[Path | None, typer.Option(help="The picture to write: .png, .pdf or .svg.")] = None,
    top: Annotated[int, typer.Option(min=0, help="Show at most this many of the pixels that differ most.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Compare two runs of one cube: counts, distributions, maps of the differences, and the pixels that differ most."""
    # Importing the modules that read and draw results takes a second.
    from prismline_cli import comparison, plotting  # noqa: PLC0415

    if to is not None:
        plotting.check_target(to)
    client = Client.open()
    views = find_run(client, first), find_run(client, second)
    for view in views:
        consists_of(view.run.unit, view)
    with stderr.status("comparing"):
        target = to or Path(f"{views[0].run_id[:8]}-{views[1].run_id[:8]}.png")
        found, path = plotting.draw_comparison(client, views, target)
    differing = plotting.differing_params(*views)
    if as_json:
        runs = [view.run_id for view in views]
        print_json(comparison.as_json(found, runs, differing, top) | {"picture": str(path)})
        return
    for view in views:
        warn(view)
    _show(found, (views[0].run_id[:8], views[1].run_id[:8]), differing, top)
    console.print(str(path), soft_wrap=True)


def _show(found: Comparison, names: tuple[str, str], differing: dict[str, list[Any]], top: int) -> None:
    from prismline_cli.comparison import DISTINCT, Spread  # noqa: PLC0415

    counts = Table("", *names, box=None)
    for name, pair in differing.items():
        counts.add_row(name, *("-" if value is None else str(value) for value in pair))
    for name in vars(found.counts[0]):
        counts.add_row(name.replace("_", " "), *(f"{getattr(each, name):,}" for each in found.counts))
    for name, values in found.values.items():
        spreads = (Spread.of(each) for each in values)
        counts.add_row(name, *(f"{s.median:.4g} ({s.p16:.4g} to {s.p84:.4g})" if s.n else "-" for s in spreads))
    console.print(counts)
    console.print(
        f"{len(found.pixels):,} pixels fitted in both runs: {found.identical:,} with identical components,"
        f" {found.distinct:,} that differ by more than {DISTINCT:g} times the noise.",
        soft_wrap=True,
    )
    pixels = Table("x", "y", "difference", "components", "integrated", "strongest at", box=None)
    for pixel in [pixel for pixel in found.pixels[:top] if pixel.difference != 0.0]:
        pixels.add_row(
            str(pixel.x),
            str(pixel.y),
            f"{pixel.difference:.1f}",
            "{} and {}".format(*pixel.components),
            "{:.4g} and {:.4g}".format(*pixel.integrated),
            " and ".join("-" if value is None else f"{value:.4g}" for value in pixel.strongest),
        )
    if pixels.row_count:
        console.print(pixels)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(compare)
