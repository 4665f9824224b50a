"""Parsing of arguments that several commands of the harness share."""

from __future__ import annotations

from collections.abc import Iterable

import typer


def pairs(values: Iterable[str]) -> dict[str, str]:
    """Parse `NAME=VALUE` arguments."""
    parsed = {}
    for value in values:
        name, separator, content = value.partition("=")
        if not (name and separator):
            raise typer.BadParameter(f"{value} is not NAME=VALUE.")
        parsed[name] = content
    return parsed
