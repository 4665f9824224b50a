"""The paths of cells."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Path, Response

from prismline_api.cells.detail import cell_logs, cell_view
from prismline_api.cells.models import CellLogsView, CellsView, CellView
from prismline_api.parameters import Deps, RunId
from prismline_api.reading import find_run
from prismline_contracts.base import MOST_INDEX
from prismline_http import problems
from prismline_http.access import KeyRoute, Reader

router = APIRouter(prefix="/v1/runs/{run_id}/cells", route_class=KeyRoute, tags=["cells"], responses=problems.RESPONSES)

#: The number of a chunk has seven digits, or more in the largest cubes.
Cell = Annotated[int, Path(ge=0, le=MOST_INDEX, description="The cell's number.")]


@router.get(
    "",
    response_model=CellsView,
    response_model_exclude_none=True,
    responses={304: {"description": "The cells have not changed since the version in If-None-Match."}},
)
def get_cells(
    run_id: RunId,
    caller: Reader,
    deps: Deps,
    if_none_match: Annotated[str | None, Header(description="`ETag` of the previous answer.")] = None,
    accept_encoding: Annotated[str, Header(include_in_schema=False)] = "",
) -> Response:
    """Show the state, attempts and times of all chunks or tasks of a run. One answer can hold 100,000 of them.

    A large run is read part by part: while `complete` is false, repeat the request.
    """
    find_run(caller, run_id, deps)
    picture = deps.cells.run(run_id).picture()
    headers = {"ETag": f'"{picture.version}"', "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if if_none_match == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if "gzip" in accept_encoding:
        headers["Content-Encoding"] = "gzip"
        return Response(picture.compressed, headers=headers, media_type="application/json")
    return Response(picture.body, headers=headers, media_type="application/json")


@router.get("/{cell}", response_model_exclude_none=True)
def get_cell(run_id: RunId, cell: Cell, caller: Reader, deps: Deps) -> CellView:
    """Show one chunk or task with everything that is known about it."""
    find_run(caller, run_id, deps)
    return cell_view(run_id, cell, deps)


@router.get("/{cell}/logs", response_model_exclude_none=True)
def get_cell_logs(run_id: RunId, cell: Cell, caller: Reader, deps: Deps) -> CellLogsView:
    """Show what the services logged about one chunk or task: on a laptop the lines, on AWS a link to them."""
    find_run(caller, run_id, deps)
    return cell_logs(run_id, cell, deps)
