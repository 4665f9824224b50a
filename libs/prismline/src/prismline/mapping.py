"""`prismline.map`: submit a function over a list from Python. It needs the extra `client`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismline.errors import WorkloadError
from prismline.supervisor import Supervisor
from prismline.workload import Workload

if TYPE_CHECKING:
    from prismline_client import Client, FunctionRun


def map_items(
    function: Callable[..., Any] | str,
    items: Iterable[Any] | Path | str,
    *,
    params: Mapping[str, Any] | None = None,
    client: Client | None = None,
    python: str | None = None,
    **options: Any,
) -> FunctionRun:
    """Call a function for each item of a list on the workers, and return its run.

    run = prismline.map(measure, [{"path": "a.fits"}, {"path": "b.fits"}], params={"threshold": 4})
    run.wait()
    for row in run.rows():
        print(row.item, row.value, row.error)

    function: a function of a module, which is registered with its present code; or a name. `module:function` is
    registered too; any other name is that of a function which is installed where the workers run.
    items: values that JSON has; or the path of a file with one JSON value a line, or .csv or .parquet with rows.
    client: default: the system that runs on this machine, or that of PRISMLINE_API_URL and PRISMLINE_API_KEY.
    python: the interpreter of the function's environment. Default: this one.
    options: as in `prismline_client.Client.map`, for instance `name`, `key` and `pool`.

    Raises WorkloadError or WorkloadUnavailableError if the function cannot be used, ApiError if the API refuses it.
    """
    try:
        from prismline_client import Client as ApiClient  # noqa: PLC0415  the runner of functions does without it
    except ImportError as error:
        raise WorkloadError("prismline.map needs the package prismline-client: install prismline[client].") from error
    name, folder = _place(function)
    client = client or ApiClient.open()
    if ":" not in name:
        return client.map(name, items, params=params, **options)
    python = python or sys.executable
    with Supervisor(name, python=python, paths=[str(folder)]) as supervisor:
        description = supervisor.description.model_dump(mode="json")
    client.register(description | {"local": {"python": python, "paths": [str(folder)]}})
    return client.map(name, items, params=params, code=description["code"], **options)


def _place(function: Callable[..., Any] | str) -> tuple[str, Path]:
    """The name by which a runner finds a function, and the folder that its module is imported from."""
    if isinstance(function, str):
        return function, Path.cwd()
    plain = function.function if isinstance(function, Workload) else function
    module, name = plain.__module__, plain.__qualname__
    if not name.isidentifier():
        raise WorkloadError(f"{name} is not at the top level of its module: a worker could not find it.")
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        raise WorkloadError(f"{name} is in no file. Write it into a module, and import it from there.")
    path = Path(file).resolve()
    if module == "__main__":
        return f"{path.stem}:{name}", path.parent
    levels = module.count(".") + (path.name == "__init__.py")
    return f"{module}:{name}", path.parents[levels]
