"""The input of a chunk that is a copy of its spectra: the arrays of an `.npz` file.

The splitter writes it, the worker reads it. Beside the arrays it holds `geometry.json`, a `CubeGeometry`. A chunk that
refers to its cube has no such file.

Rule for versions: a new version only adds arrays. A reader works without those that an older file lacks.
"""

from __future__ import annotations

from dataclasses import dataclass

from prismline_contracts.objects import CHUNK_GEOMETRY_MEMBER


@dataclass(frozen=True)
class ChunkArray:
    """One array of the file: the member `<name>.npy`."""

    name: str
    #: Types of its values, by their NumPy names.
    types: tuple[str, ...]
    #: Its axes. Where there are several entries, it has one of these shapes.
    shapes: tuple[str, ...]
    unit: str
    description: str
    #: Whether every file has it.
    required: bool = False


CHUNK_ARRAYS = (
    ChunkArray("spectra", ("float32", "float64"), ("(n, channels)",), "{signal}", "The spectra.", required=True),
    ChunkArray(
        "x", ("int32",), ("(n,)",), "pixel", "Index of each spectrum along the cube's first axis.", required=True
    ),
    ChunkArray("y", ("int32",), ("(n,)",), "pixel", "Index along the second axis.", required=True),
    ChunkArray("longitude", ("float64",), ("(n,)",), "deg", "Celestial longitude; NaN where the pixel has none."),
    ChunkArray("latitude", ("float64",), ("(n,)",), "deg", "Celestial latitude; NaN where the pixel has none."),
    ChunkArray("noise", ("float64",), ("(n, 1)", "(1, channels)"), "{signal}", "Noise of each spectrum, or channel."),
)


def chunk_input_schema() -> dict[str, object]:
    """The arrays in the form of a schema: each has types, shapes and a unit."""
    arrays: dict[str, object] = {
        each.name: {
            "type": "array",
            "description": each.description,
            "x-type": " or ".join(each.types),
            "x-shape": " or ".join(each.shapes),
            "x-unit": each.unit,
        }
        for each in CHUNK_ARRAYS
    }
    return {
        "properties": arrays | {CHUNK_GEOMETRY_MEMBER: {"type": "object"}},
        "required": [each.name for each in CHUNK_ARRAYS if each.required],
        "type": "object",
    }
