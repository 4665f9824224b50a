"""Draws the gallery of docs/explanation/notebooks: runs each notebook and saves its pictures. `make gallery`.

A notebook names a picture with `figure.set_label("name")`. Its code needs no Jupyter: a cell is run as plain Python, in
a folder of its own.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt

FOLDER = Path(__file__).resolve().parent / "explanation/notebooks"
DPI = 80


def run(notebook: Path, to: Path) -> tuple[dict[str, Any], list[Path]]:
    """Run the code of `notebook`, and save its pictures below `to`. Return its variables and the pictures' paths."""
    cells = json.loads(notebook.read_text())["cells"]
    variables: dict[str, Any] = {"__name__": "__main__"}
    mpl.use("Agg")
    plt.close("all")
    with _in_empty_folder():
        for cell in cells:
            if cell["cell_type"] == "code":
                code = compile("".join(cell["source"]), f"{notebook.name}, {cell['id']}", "exec")
                exec(code, variables)  # the notebook is ours
    pictures = []
    for figure in map(plt.figure, plt.get_fignums()):
        path = to / f"{notebook.stem}-{figure.get_label()}.png"
        figure.savefig(path, dpi=DPI, metadata={"Software": None})
        pictures.append(path)
    plt.close("all")
    return variables, pictures


@contextmanager
def _in_empty_folder() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


if __name__ == "__main__":
    for each in sorted(FOLDER.glob("*.ipynb")):
        for drawn in run(each, FOLDER)[1]:
            sys.stdout.write(f"{drawn}\n")
