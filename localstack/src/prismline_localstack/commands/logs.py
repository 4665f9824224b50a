"""`prismline logs`: the logs of the system on this machine."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from prismline_cli.commands.options import AsJson
from prismline_cli.finding import match
from prismline_cli.output import fail
from prismline_cli.printed import checked_output
from prismline_deploy.failing import deploy_errors
from prismline_localstack import harness
from prismline_localstack.home import Home
from prismline_localstack.log_files import Entry, Level, LogFiles, Reader
from prismline_localstack.supervisor import EMULATOR

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True)
class Wanted:
    """A filter for log entries."""

    run_id: str | None = None
    chunk_id: str | None = None
    since: datetime | None = None
    level: Level = Level.DEBUG
    #: The emulator logs every request, so its lines are left out by default.
    emulator: bool = False

    def __contains__(self, entry: Entry) -> bool:
        """Whether the entry passes the filter."""
        return (
            (self.emulator or entry.process != EMULATOR)
            and (self.run_id is None or entry.run_id == self.run_id)
            and (self.chunk_id is None or entry.chunk_id == self.chunk_id)
            and (self.since is None or (entry.moment is not None and entry.moment >= self.since))
            and entry.level.rank >= self.level.rank
        )


def logs(
    service: Annotated[
        str | None, typer.Argument(help="A service or one of its processes.", show_default="all but the emulator")
    ] = None,
    named: Annotated[str | None, typer.Option("--service", help="The same as the argument.")] = None,
    run: Annotated[str | None, typer.Option(metavar="ID", help="Only lines about this run.")] = None,
    chunk: Annotated[str | None, typer.Option(metavar="ID", help="Only lines about this chunk.")] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only lines since then: an age (30s, 10m, 2h, 1d) or a time in UTC."),
    ] = None,
    tail: Annotated[int | None, typer.Option(min=0, help="Only the last lines, this many.")] = None,
    level: Annotated[
        Level, typer.Option(case_sensitive=False, help="Only lines of this level or a higher one.")
    ] = Level.DEBUG,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new lines until the system stops.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the logs of the services, ordered by time. With --json, print one document per line."""
    if service is not None and named is not None and service != named:
        fail(f"Name {service} or {named}, not both.")
    after = _moment(since) if since is not None else None
    with deploy_errors():
        for entry in _entries(service or named, run, chunk, after, tail, level, follow=follow):
            if as_json:
                document = entry.as_json()
                checked_output("logs", document)
                typer.echo(json.dumps(document))
            else:
                typer.echo(str(entry))


def _entries(
    service: str | None,
    run: str | None,
    chunk: str | None,
    since: datetime | None,
    tail: int | None,
    level: Level,
    *,
    follow: bool,
) -> Iterator[Entry]:
    home = Home.at(None)
    files, reader = LogFiles(home, service), Reader()
    entries = list(reader.entries(files.new_lines()))
    wanted = Wanted(
        run_id=match(run, (entry.run_id for entry in entries if entry.run_id), what="run") if run is not None else None,
        chunk_id=f"chunk-{int(chunk):07d}" if chunk is not None and chunk.isdecimal() else chunk,
        since=since,
        level=level,
        emulator=service is not None,
    )
    first = datetime.min.replace(tzinfo=UTC)
    shown = sorted((entry for entry in entries if entry in wanted), key=lambda entry: entry.moment or first)
    if chunk is not None and not any(entry.chunk_id == wanted.chunk_id for entry in entries) and not follow:
        fail(f"There is no chunk {chunk} in the logs.")
    yield from shown if tail is None else shown[max(0, len(shown) - tail) :]
    while follow and harness.is_up(home.path):
        time.sleep(harness.FOLLOW_SECONDS)
        yield from (entry for entry in reader.entries(files.new_lines()) if entry in wanted)


def _moment(text: str) -> datetime:
    """The time that an age, such as `10m` for ten minutes ago, or an ISO 8601 time gives. Without an offset: UTC."""
    try:
        if ago := re.fullmatch(r"(\d{1,6})([smhd])", text):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        fail(f"{text!r} is neither an age, such as 10m or 2h, nor a time, such as 2026-03-01T12:00.")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(logs)
