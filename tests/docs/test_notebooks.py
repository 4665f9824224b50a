"""The notebooks run, find what is in their cubes, and their pictures are those of the gallery."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

from docs.gallery import FOLDER, run
from prismline_gaussline import kernel_available

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.skipif(not kernel_available(), reason="gaussline was built without a C compiler")
def test_the_notebook_goes_from_a_cube_to_a_comparison_with_the_truth(tmp_path: Path) -> None:
    (notebook,) = NOTEBOOKS
    found, pictures = run(notebook, tmp_path)
    assert found["table"].shape == found["second"].shape == (32, 32)
    assert found["jumps"]["second"] < found["jumps"]["first"]
    assert found["residual"].std() == pytest.approx(np.median(found["second"].rms), rel=0.1)
    assert 0.8 < (found["high"] - found["low"]) / 2 < 1.3
    assert abs(found["velocity"] - 1.5) < 4 * found["error"]

    page = (FOLDER / "README.md").read_text()
    assert set(re.findall(r"\]\((\S+\.png)\)", page)) == {picture.name for picture in pictures}
    for picture in pictures:
        drawn = matplotlib.image.imread(picture)
        assert drawn.shape == matplotlib.image.imread(FOLDER / picture.name).shape, f"run make gallery: {picture.name}"
        assert drawn.std() > 0.05, f"{picture.name} is empty"
