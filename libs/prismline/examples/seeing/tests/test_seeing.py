"""The tests that an author writes: of the function, and that it can be run over a list."""

import pytest
from seeing.counting import Found, Image, count_sources

from prismline import Permanent
from prismline.testing import check


def test_neighbouring_bright_pixels_are_one_source():
    assert count_sources(Image("a", [1, 7, 8, 2, 9]), threshold=5) == Found(sources=2, brightest=9)


def test_an_image_without_pixels_can_never_succeed():
    with pytest.raises(Permanent):
        count_sources(Image("empty", []))


def test_it_can_be_run_over_a_list():
    items = [{"name": "a", "pixels": [1, 7]}, {"name": "empty", "pixels": []}]
    assert check(count_sources, items).outcomes[0].value == {"sources": 1, "brightest": 7.0}
