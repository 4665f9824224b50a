"""The pages give the same limits for giving up a chunk as the code."""

from __future__ import annotations

import re

import pytest

from prismline_ledger import Patience
from prismline_localstack.settings import REPOSITORY

WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten"}
ATTEMPTS, HOURS = Patience().max_attempts, round(Patience().seconds / 3600)
SPELT = rf"{WORDS.get(ATTEMPTS, ATTEMPTS)} attempts .{{0,80}}{WORDS.get(HOURS, HOURS)} hours"
#: For each page, a pattern of its text with the present limits.
SAID = {
    "docs/delivery.md": rf"{ATTEMPTS} attempts .{{0,80}}{HOURS} hours",
    "docs/protocol.md": rf"`MAX_ATTEMPTS` \({ATTEMPTS}\).{{0,80}}{WORDS.get(HOURS, HOURS)} hours",
    "docs/architecture.md": SPELT,
    "docs/runbooks/dead-letters.md": SPELT,
    "services/dlq-consumer/README.md": rf"`PATIENCE_SECONDS` \| {ATTEMPTS}, {Patience().seconds:.0f} \|",
}


@pytest.mark.parametrize("page", SAID)
def test_a_page_gives_the_limits_of_now(page: str) -> None:
    text = " ".join((REPOSITORY / page).read_text().split())
    assert re.search(SAID[page], text), (
        f"{page} gives other limits than `Patience` of libs/ledger/src/prismline_ledger/judgement.py"
    )
