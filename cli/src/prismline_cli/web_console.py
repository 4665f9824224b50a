"""Addresses of the console in the browser. The API serves it."""

from __future__ import annotations


def console_address(api_url: str, run_id: str | None = None) -> str:
    """Where the console shows a run, or the list of runs."""
    return f"{api_url.rstrip('/')}/console/runs{f'/{run_id}' if run_id else ''}"
