from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from prismline_ledger import Ledger
from prismline_localstack.settings import client_environment
from prismline_localstack.state import make_client
from prismline_localstack.testing import create_runs_table


@pytest.fixture(scope="session")
def ledger(emulator_endpoint: str) -> Iterator[Ledger]:
    """A ledger on a table of the emulator, with the key schema of `platform/template.yaml`."""
    dynamodb, table = make_client("dynamodb", client_environment(emulator_endpoint)), "ledger-tests"
    create_runs_table(dynamodb, table)
    yield Ledger(dynamodb, table)
    dynamodb.delete_table(TableName=table)


@pytest.fixture(scope="session")
def new_run_id() -> Callable[[], str]:
    """Ids that no other test uses."""
    numbers = count()
    return lambda: f"run-{next(numbers)}"
