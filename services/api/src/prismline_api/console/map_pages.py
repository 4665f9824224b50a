"""The pages of maps and spectra: the cube of a run, and two runs of one cube side by side."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from prismline_api.console.pages import Opened, page, page_of_run
from prismline_api.parameters import Deps

router = APIRouter(include_in_schema=False)

OtherRun = Annotated[str, Query(max_length=80)]


@router.get("/console/runs/{run_id}/cube")
def cube_page(request: Request, run_id: str, opened: Opened, deps: Deps) -> Response:
    """The maps and the spectra of a run."""
    return page_of_run(request, opened, deps, "cube.html", run_id)


@router.get("/console/compare")
def compare_page(request: Request, opened: Opened, deps: Deps, a: OtherRun = "", b: OtherRun = "") -> Response:
    """Two runs of one cube."""
    return page(request, opened, deps, "compare.html", first=a, second=b)
