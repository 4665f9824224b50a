"""The workload `count-sources`: an image in, the number of its sources out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from prismline import Permanent, workload


@dataclass
class Image:
    """A row of pixels. A real one would name a file."""

    name: str
    pixels: list[float]


@dataclass
class Found:
    """What an image holds."""

    sources: int
    brightest: float


@workload(timeout=10, attempts=2)
def count_sources(item: Image, *, threshold: float = 5.0) -> Found:
    """Count the groups of neighbouring pixels that are brighter than the threshold."""
    if not item.pixels:
        raise Permanent(f"The image {item.name} has no pixels.")
    bright = [False, *(pixel > threshold for pixel in item.pixels)]
    return Found(sources=sum(now and not before for before, now in pairwise(bright)), brightest=max(item.pixels))
