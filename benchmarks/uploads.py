"""What a run would gain if it began before the end of its cube's upload.

    python benchmarks/uploads.py [--side 300] [--channels 424] [--chunks 16]

S3 shows an object when its upload is complete; the parts of a multipart upload cannot be read before. So a run that
begins earlier would need an object for each part. A chunk could begin when the last part with values of its spectra has
been uploaded. The script records the ranges that a worker requests for each chunk, and prints how much of the file must
have been uploaded before the first chunk can begin, before half of the chunks can, and before the last one can.
"""

from __future__ import annotations

import argparse
import math

from prismline_contracts.references import CubeReference
from prismline_cube import reader_of

HEADER_BYTES = 2880
VALUE_BYTES = 4


class Notes:
    """A bucket of zeros that records the last requested byte."""

    def __init__(self) -> None:
        self.last = 0

    def size(self, key: str, *, etag: str) -> int:
        raise LookupError(f"A FITS cube needs no size: {key}, {etag}")

    open_version = size

    def read_range(self, key: str, start: int, stop: int, *, etag: str) -> bytes:  # noqa: ARG002
        self.last = max(self.last, stop)
        return bytes(stop - start)


def arrived(axes: list[int], spectral_axis: int, n_chunks: int) -> list[float]:
    """For each chunk, the share of the file that must have been uploaded before it can begin."""
    n_spectra = math.prod(axes) // axes[spectral_axis - 1]
    file_bytes = HEADER_BYTES + math.prod(axes) * VALUE_BYTES
    size = -(-n_spectra // n_chunks)
    shares = []
    for first in range(0, n_spectra, size):
        count = min(size, n_spectra - first)
        reference = CubeReference(
            key="k", etag="e", offset=HEADER_BYTES, bitpix=-32, axes=axes, spectral_axis=spectral_axis, first=first,
            count=count,
        )  # fmt: skip
        notes = Notes()
        for _ in reader_of(reference, notes).slabs(first, first + count):
            pass
        shares.append(notes.last / file_bytes)
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=300, help="of the field, in spectra")
    parser.add_argument("--channels", type=int, default=424)
    parser.add_argument("--chunks", type=int, default=16)
    args = parser.parse_args()
    print(
        "| spectral axis | first chunk can begin | half of the chunks can | last chunk can |\n| --- | --- | --- | --- |"
    )
    for name, number in {"last (most surveys)": 3, "middle": 2, "first": 1}.items():
        axes = [args.side, args.side]
        axes.insert(number - 1, args.channels)
        shares = sorted(arrived(axes, number, args.chunks))
        print(f"| {name} | {shares[0]:.1%} | {shares[len(shares) // 2 - 1]:.1%} | {shares[-1]:.1%} |")


if __name__ == "__main__":
    main()
