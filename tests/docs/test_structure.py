"""The pages of docs/ are of four kinds, short, and in the navigation of the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from prismline_localstack.settings import REPOSITORY
from tests.docs.pages import GENERATED, PAGES

KINDS = ("tutorials", "how-to", "reference", "explanation")
#: Most words of a page that a person writes.
MOST_WORDS = 2500
#: A table that a program writes into a page.
TABLE = re.compile(r"<!-- table -->.*?<!-- end of table -->", re.DOTALL)
#: A code block: fenced, or indented by four.
CODE = re.compile(r"^\s*```.*?^\s*```|(?<=\n\n)(?: {4,}\S[^\n]*\n)+", re.DOTALL | re.MULTILINE)
WRITTEN = sorted(PAGES.keys() - GENERATED)


def words(page: str) -> int:
    """The words of a page without its generated table."""
    return len(TABLE.sub("", PAGES[page].read_text()).split())


def in_navigation() -> str:
    text = (REPOSITORY / "mkdocs.yml").read_text()
    return text[text.index("\nnav:") :]


def test_every_page_of_docs_is_of_one_of_four_kinds() -> None:
    folders = {page.split("/")[1] for page in PAGES if page.startswith("docs/")}
    assert folders == set(KINDS)


@pytest.mark.parametrize("page", sorted(PAGES))
def test_a_page_is_in_the_navigation(page: str) -> None:
    assert re.search(rf"(?:: |- ){re.escape(page)}$", in_navigation(), re.MULTILINE), "add it to nav in mkdocs.yml"


def test_the_navigation_begins_with_the_kinds() -> None:
    names = [next(iter(each)) for each in yaml.safe_load(in_navigation())["nav"]]
    assert names[:5] == ["Prismline", "Tutorials", "How-to", "Reference", "Explanation"]


@pytest.mark.parametrize("page", WRITTEN)
def test_a_page_is_short(page: str) -> None:
    assert words(page) <= MOST_WORDS


def test_the_readme_is_one_screen_of_text() -> None:
    assert words("README.md") <= 550


#: Most words of a README, and words of prose of all hand-written pages together.
MOST_WORDS_OF_A_README, MOST_WORDS_OF_PROSE = 900, 42_000
#: The folders of these pages.
FOLDERS = ("benchmarks", "cli", "contracts", "deploy", "libs", "localstack", "platform", "services", "tests", "tools")
OUTSIDE = sorted(
    path
    for path in [*REPOSITORY.glob("*.md"), *(page for name in FOLDERS for page in (REPOSITORY / name).rglob("*.md"))]
    if path.name != "CHANGELOG.md" and not any(part.startswith(".") for part in path.relative_to(REPOSITORY).parts)
)


@pytest.mark.parametrize(
    "page",
    [path for path in OUTSIDE if path.name == "README.md"],
    ids=lambda path: path.relative_to(REPOSITORY).as_posix(),
)
def test_a_readme_is_short(page: Path) -> None:
    assert len(page.read_text().split()) <= MOST_WORDS_OF_A_README


def prose(page: Path) -> int:
    """The words of a page without code blocks, generated tables and the bars of the others."""
    text = CODE.sub("", TABLE.sub("", page.read_text()))
    return sum(re.search(r"\w", word) is not None for word in text.split())


def test_all_pages_together_are_short() -> None:
    pages = {PAGES[page].resolve() for page in WRITTEN} | {page.resolve() for page in OUTSIDE}
    assert sum(map(prose, pages)) <= MOST_WORDS_OF_PROSE
