"""A cube with noisy channels: the splitter estimates the shape of the noise once, and every kind of run uses it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import fits

from prismline_gaussline import kernel_available
from tests.workload_kit import Kit

pytestmark = pytest.mark.skipif(not kernel_available(), reason="only gaussline's kernel takes a shape of the noise")

NY, NX, CHANNELS = 16, 16, 200
LEVEL = np.where(np.arange(CHANNELS) < 30, 4.0, 1.0)


def work_off(folder: Path, chunk_input: str, **params: Any) -> pa.Table:
    """The table of a run of a cube of noise."""
    folder.mkdir()
    rng, body, kit = np.random.default_rng(7), io.BytesIO(), Kit(folder)
    values = rng.normal(size=(CHANNELS, NY, NX)) * LEVEL[:, None, None] * rng.uniform(0.5, 2.0, (NY, NX))
    axis = {"CTYPE3": "VRAD", "CUNIT3": "km/s", "CRVAL3": 0.0, "CRPIX3": 1.0, "CDELT3": 0.2}
    fits.PrimaryHDU(values.astype(np.float32), fits.Header(axis)).writeto(body)
    kit.put("cubes/c.fits", body.getvalue())
    manifest = {"workload": "spectra", "survey": "s", "cube_key": "cubes/c.fits", "chunk_input": chunk_input}
    worked = kit.run(
        {**manifest, "chunk_size": 64, "params": params}, deadline_margin_seconds=1.0, spectrum_budget_seconds=60.0
    )
    return pa.concat_tables([pq.read_table(io.BytesIO(chunk.output)) for chunk in worked])


@pytest.mark.parametrize(
    ("chunk_input", "params"),
    [
        ("copy", {}),
        ("reference", {}),
        ("reference", {"second_pass": True}),
        ("copy", {"line": "hcn_1-0"}),
    ],
    ids=["copy", "reference", "second pass", "line"],
)
def test_noisy_channels_make_no_components_and_the_table_has_the_shape(
    tmp_path: Path, chunk_input: str, params: dict[str, Any]
) -> None:
    table = work_off(tmp_path / "run", chunk_input, **params)
    assert sum(table["n_components"].to_pylist()) <= 2
    shape = json.loads(table.schema.metadata[b"prismline.geometry"])["noise_shape"]
    assert len(shape) == CHANNELS
    assert np.corrcoef(shape, LEVEL)[0, 1] > 0.9
    assert 3.0 < np.median(shape[:28]) < 5.0


def test_without_the_shape_they_do(tmp_path: Path) -> None:
    """A number for the noise says that its level is the same in all channels."""
    assert sum(work_off(tmp_path / "run", "copy", noise=1.0)["n_components"].to_pylist()) > 50
