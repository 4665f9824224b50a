"""Small sources for the real workloads: cubes whose spectra contain their origin, frames, a fitter and a model.

A spectrum of a generated cube holds the number of its cube, its index, and its kind. So an output
shows which cube it was made from, and the stand-in for the fitter knows which spectra take long or cannot be fitted.
"""

from __future__ import annotations

import base64
import io
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from astropy.io import fits
from numpy.typing import NDArray

from prismline_cube.cube_file import Cube
from prismline_cube.errors import CubeError
from prismline_worker.fit_process import Fit, FitError, FitTimeoutError
from tests.simulation.plan import RunPlan

#: Spectra in a chunk.
SPECTRA_PER_CHUNK = 2
#: Channels of a spectrum: its cube's number, its index, its kind, and zeros.
CHANNELS = 4
ORDINARY, SLOW, BAD, HOPELESS = 0.0, 1.0, 2.0, 3.0
#: The length of a FITS file is a multiple of so many bytes.
FITS_BLOCK = 2880
#: Seconds of a fit in the fast lane, and of a slow spectrum without a budget: two of the latter take longer than
#: one invocation.
FIT_SECONDS, SLOW_FIT_SECONDS = 0.2, 500.0
#: Seconds until the caption model answers.
MODEL_SECONDS = 3.0
#: The smallest valid beginning of a PNG file; the frame's number follows.
PNG = b"\x89PNG\r\n\x1a\n"
#: Content of a frame that the model refuses.
REFUSED = b"refused"


@cache
def scratch_folder() -> str:
    """A folder for the files of this process, in memory if the system has such a file system."""
    memory = Path("/dev/shm")
    holder = tempfile.TemporaryDirectory(prefix="prismline-simulation-", dir=memory if memory.is_dir() else None)
    _holders.append(holder)
    return holder.name


_holders: list[tempfile.TemporaryDirectory[str]] = []
_cubes: dict[bytes, Cube | CubeError] = {}


def open_cube_once(open_cube: Callable[[Path, Path], Cube], path: Path, workdir: Path) -> Cube:
    """`open_cube`, which reads the header of each content once; the result does not depend on the file's name."""
    content = path.read_bytes()
    if content not in _cubes:
        try:
            _cubes[content] = open_cube(path, workdir)
        except CubeError as error:
            _cubes[content] = error
    found = _cubes[content]
    if isinstance(found, CubeError):
        raise found
    return replace(found, path=path)


def cube_file(number: int, run: RunPlan) -> Path:
    """A FITS cube for a run. Cubes with the same name are in different folders."""
    return _cube_file(number, run.chunks * SPECTRA_PER_CHUNK, run.slow, run.hopeless, run.bad, run.same_name)


@lru_cache(maxsize=4096)
def _cube_file(
    number: int, n: int, slow: tuple[int, ...], hopeless: tuple[int, ...], bad: tuple[int, ...], same_name: bool
) -> Path:
    values = np.zeros((CHANNELS, 1, n), np.float32)
    values[0] = number
    values[1, 0] = np.arange(n)
    values[2, 0, list(slow)] = SLOW
    values[2, 0, list(hopeless)] = HOPELESS
    values[2, 0, [chunk * SPECTRA_PER_CHUNK for chunk in bad]] = BAD
    path = Path(tempfile.mkdtemp(dir=scratch_folder())) / ("cube-1.fits" if same_name else f"cube-{number}.fits")
    body = values.astype(">f4").tobytes()
    path.write_bytes(_header(n) + body + bytes(-len(body) % FITS_BLOCK))
    return path


@lru_cache
def _header(n: int) -> bytes:
    """The header of a cube of `n` spectra, as bytes of the file."""
    header = fits.Header({"CTYPE3": "VELO-LSR", "CRVAL3": 0.0, "CRPIX3": 1.0, "CDELT3": 100.0, "CUNIT3": "m/s"})
    hdu = fits.PrimaryHDU(np.zeros((CHANNELS, 1, n), np.float32), header)
    return bytes(hdu.header.tostring().encode("ascii"))


@lru_cache(maxsize=4096)
def frames_folder(number: int, chunks: int, bad: tuple[int, ...]) -> Path:
    """A folder with one frame for each window of a run."""
    folder = Path(tempfile.mkdtemp(dir=scratch_folder()))
    for index in range(chunks):
        mark = REFUSED if index in bad else b"frame"
        (folder / f"{index:04d}.png").write_bytes(PNG + b"%d %d " % (number, index) + mark)
    return folder


class StandInFitter:
    """Replaces the fit: a spectrum's only component has its cube's number as amplitude and its index as mean."""

    #: Lets virtual time pass; set by the world.
    work: Callable[[float], None] = staticmethod(lambda seconds: None)
    #: `time.monotonic` of the world.
    clock: Callable[[], float] = staticmethod(lambda: 0.0)
    #: When a person removes the cause of the bad chunks of a run, by the run's number.
    mended: Mapping[int, float | None] = MappingProxyType({})

    def fit(
        self,
        spectrum: NDArray[np.float64],
        params: Mapping[str, Any],
        *,
        budget_s: float | None = None,
        deadline: float | None = None,
    ) -> Fit:
        """The answer of a `FitProcess`, in virtual time."""
        number, index, kind = (float(value) for value in spectrum[:3])
        if kind == BAD and not is_mended(round(number)):
            raise FitError("ValueError: this spectrum cannot be fitted")
        if kind in {SLOW, HOPELESS}:
            if budget_s is not None:
                type(self).work(budget_s)
                raise FitTimeoutError
            left = SLOW_FIT_SECONDS if deadline is None else deadline - type(self).clock()
            type(self).work(min(SLOW_FIT_SECONDS, left))
            if left < SLOW_FIT_SECONDS:
                raise FitTimeoutError
            if kind == HOPELESS:
                raise FitError("ValueError: this spectrum cannot be fitted")
        else:
            type(self).work(FIT_SECONDS)
        return Fit(0.1, [(number, index, 1.0)])


def is_mended(number: int) -> bool:
    """Whether the cause of the bad chunks of the run with this number has been removed."""
    moment = StandInFitter.mended.get(number)
    return moment is not None and StandInFitter.clock() >= moment


@dataclass(frozen=True)
class OutputSummary:
    """The content of an output file of a spectra chunk."""

    #: (cube's number, spectrum's index) for each fitted row, None for others.
    rows: tuple[tuple[int, int] | None, ...]
    n_timed_out: int


@lru_cache(maxsize=20_000)
def read_output(body: bytes) -> OutputSummary | None:
    """The content of a Parquet file. None if it is not complete."""
    try:
        table = pq.ParquetFile(pa.BufferReader(body)).read(
            columns=["component_amplitudes", "component_means", "status"], use_threads=False
        )
    except (pa.ArrowException, OSError):
        return None
    columns = (table[name].to_pylist() for name in ("component_amplitudes", "component_means"))
    rows = tuple(
        (round(amplitudes[0]), round(means[0])) if amplitudes else None
        for amplitudes, means in zip(*columns, strict=True)
    )
    return OutputSummary(rows, table["status"].to_pylist().count("timed_out"))


def caption_of(body: bytes) -> str | None:
    """The text of a caption file. None if it is not complete."""
    try:
        return str(json.loads(body)["caption"])
    except (ValueError, KeyError):
        return None


class CaptionModel:
    """An `httpx.Client` whose OpenAI-compatible server answers with the number of the received frame.

    `ask` may refuse a request.
    """

    def __init__(self, ask: Callable[[str, Callable[[], httpx.Response]], httpx.Response]) -> None:
        self._ask = ask

    @contextmanager
    def stream(self, method: str, url: str, *, json: Any = None, **_: Any) -> Iterator[httpx.Response]:
        """Answer a request."""
        path = url.rpartition("/v1")[2]
        yield self._ask(path, lambda: self._answer(path, json))

    @staticmethod
    def _answer(path: str, document: Any) -> httpx.Response:
        if path == "/models":
            return _MODELS
        content = document["messages"][0]["content"]
        frame = base64.b64decode(content[1]["image_url"]["url"].partition(",")[2])
        content = frame.removeprefix(PNG)
        if content.endswith(REFUSED) and is_mended(int(content.split()[0])):
            content = content.removesuffix(REFUSED) + b"frame"
        return _refusal() if content.endswith(REFUSED) else _caption(content.decode())


_MODELS = httpx.Response(200, json={"data": [{"id": "stand-in"}]})


@cache
def _refusal() -> httpx.Response:
    return httpx.Response(400, json={"error": {"message": "the image is refused"}})


@lru_cache(maxsize=4096)
def _caption(content: str) -> httpx.Response:
    answer = {"model": "stand-in", "choices": [{"message": {"content": f"frame {content}"}}]}
    return httpx.Response(200, json=answer)


def buffer(body: bytes) -> io.BytesIO:
    """`body` as a file."""
    return io.BytesIO(body)
