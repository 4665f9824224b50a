from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from prismline_contracts.base import timestamp
from prismline_ledger import Ledger
from prismline_localstack.state import make_client
from prismline_localstack.testing import create_runs_table
from prismline_runtime import Table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

# The tests import their helpers by name.
sys.path.insert(0, str(Path(__file__).parent))

from scenes import Scene


@pytest.fixture(scope="session")
def dynamodb(emulator_env: dict[str, str]) -> DynamoDBClient:
    """A client of the emulator's DynamoDB."""
    return make_client("dynamodb", emulator_env)


@pytest.fixture(scope="session")
def table(dynamodb: DynamoDBClient) -> Iterator[Table]:
    """The ledger's table, with the key schema of `platform/template.yaml`, for writes that bypass the ledger."""
    name = "ledger-tests"
    create_runs_table(dynamodb, name)
    yield Table(dynamodb, name)
    dynamodb.delete_table(TableName=name)


@pytest.fixture(scope="session")
def ledger(dynamodb: DynamoDBClient, table: Table) -> Ledger:
    """A ledger on that table, whose clock advances by a second each time that it is read."""
    seconds = count()
    start = datetime(2026, 3, 1, 12, tzinfo=UTC)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PRISMLINE_WRITES_PER_TRANSACTION", "10")  # so that 25 items need several transactions
        return Ledger(dynamodb, table.name, clock=lambda: timestamp(start + timedelta(seconds=next(seconds))))


@pytest.fixture(scope="session")
def new_run_id() -> Callable[[], str]:
    """Returns ids that no other test uses."""
    numbers = count()
    return lambda: f"run-{next(numbers)}"


@pytest.fixture
def scene(ledger: Ledger, dynamodb: DynamoDBClient, table: Table, new_run_id: Callable[[], str]) -> Scene:
    """A run that nobody has opened yet."""
    return Scene(ledger, dynamodb, table, new_run_id())
