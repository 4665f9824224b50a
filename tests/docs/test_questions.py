"""Twelve questions of readers: each has its answer at most two pages after the start page and its navigation."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import yaml

from prismline_localstack.settings import REPOSITORY


class Question(NamedTuple):
    """A question, the title in the navigation that its reader chooses, the last page to open, and the answer."""

    reader: str
    text: str
    #: The title of the first page in the navigation.
    title: str
    #: The page with the answer: the first one itself, or one that it links.
    page: str
    #: A phrase of the answer.
    answer: str


QUESTIONS = (
    Question(
        "astronomer",
        "My cube has 100 GB. Do I have to cut it into pieces that fit into memory?",
        "A cube",
        "docs/explanation/references-and-copies.md",
        "reads the header and a sample of spectra, whatever the size",
    ),
    Question(
        "astronomer",
        "Some errors in my table are NaN and some lists of errors are null. Did the fit fail?",
        "Read results",
        "docs/how-to/read-results.md",
        "NaN: unknown, because the parameter is on its bound",
    ),
    Question(
        "astronomer",
        "My N2H+ is optically thick. How do I fit all of its lines together, with their optical depth?",
        "A cube",
        "docs/reference/run-parameters.md",
        "`optical_depth`",
    ),
    Question(
        "data engineer",
        "I have three million URLs in a file. What may the file look like, and how do I submit it from a program?",
        "A list of URLs",
        "docs/reference/http-api.md",
        "a JSON string or object with `url` on each line (`jsonl`)",
    ),
    Question(
        "data engineer",
        "How often is a URL tried again whose site answers 503?",
        "A list of URLs",
        "docs/reference/limits.md",
        "attempts at a URL that its site answered with an error",
    ),
    Question(
        "data engineer",
        "Can the services on AWS run my Python function over my list?",
        "A function of your own",
        "docs/tutorials/own-work.md",
        "On AWS, [pools](../../services/worker/pools.md) run functions",
    ),
    Question(
        "platform engineer",
        "What do I pay for a month in which nobody submits anything, and who has measured that?",
        "Cost",
        "docs/reference/cost.md",
        "**Computed, not measured**",
    ),
    Question(
        "platform engineer",
        "Can our pipeline, or somebody who takes it over, delete the tables or give itself more rights?",
        "Deploy from a pipeline",
        "docs/how-to/deploy-from-a-pipeline.md",
        "may delete neither tables nor buckets",
    ),
    Question(
        "platform engineer",
        "Somebody has deleted the table of the ledger. Are the runs gone?",
        "Restore a table",
        "docs/how-to/restore-a-table.md",
        "A table that was deleted has a backup by the system for 35 days",
    ),
    Question(
        "on call",
        "The backlog of dead letters has raised an alarm at night. Are we losing data, and what do I do first?",
        "Answer an alert",
        "docs/how-to/dead-letters.md",
        "They use up no attempt, and none is lost",
    ),
    Question(
        "on call",
        "A run has been running for hours, and no chunk has failed. Where is the error?",
        "Answer an alert",
        "docs/how-to/dead-letters.md",
        "Being retried after an unexpected error",
    ),
    Question(
        "on call",
        "Which log group on AWS has the attempts at URLs?",
        "Read logs",
        "docs/how-to/read-logs.md",
        "| attempts of URLs | `/aws/lambda/prismline-<environment>-fetcher` |",
    ),
)


def entries(navigation: list[Any]) -> Iterator[tuple[str, str]]:
    """The title and the path of each page in the navigation that has a title."""
    for each in navigation:
        if isinstance(each, dict):
            for title, below in each.items():
                if isinstance(below, str):
                    yield title, below
                else:
                    yield from entries(below)


@pytest.fixture(scope="module")
def titles() -> dict[str, str]:
    text = (REPOSITORY / "mkdocs.yml").read_text()
    return dict(entries(yaml.safe_load(text[text.index("\nnav:") :])["nav"]))


def linked(page: str) -> set[str]:
    """The pages that a page links."""
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", (REPOSITORY / page).read_text())
    return {posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) for target in targets}


def test_each_kind_of_reader_has_three_questions() -> None:
    assert set(Counter(question.reader for question in QUESTIONS).values()) == {3}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.text)
def test_the_answer_is_at_most_two_pages_away(question: Question, titles: dict[str, str]) -> None:
    first = titles[question.title]
    assert question.page in {first, *linked(first)}, f"{first} does not link {question.page}"
    text = " ".join((REPOSITORY / question.page).read_text().split())
    assert question.answer in text, f"{question.page} does not answer: {question.text}"
