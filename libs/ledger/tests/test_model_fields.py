"""The model of the ledger knows every attribute of a chunk, so that the ledger is compared with it."""

from __future__ import annotations

import re
from pathlib import Path

from prismline_contracts.items import ChunkItem

#: Attributes that no call in the model's stories changes: keys, and values that splitter or worker only pass on.
CONSTANT = {"PK", "SK", "chunk_key", "n_blank", "n_items", "reference", "shard", "summary"}


def test_the_model_knows_every_attribute_of_a_chunk() -> None:
    known = set(re.findall(r"\w+", (Path(__file__).parent / "ledger_model.py").read_text()))
    unknown = {field.alias or name for name, field in ChunkItem.model_fields.items()} - known - CONSTANT
    assert not unknown, (
        f"libs/ledger/tests/ledger_model.py has to change {sorted(unknown)} as the ledger does,"
        " or CONSTANT here has to name it if no call of the model changes it"
    )
