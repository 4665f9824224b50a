from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from prismline_ledger import Ledger
from prismline_localstack.settings import client_environment
from prismline_localstack.state import make_client

KEYS = ("PK", "SK", "GSI1_PK", "GSI1_SK", "GSI2_PK", "GSI2_SK")


@pytest.fixture(scope="session")
def ledger(emulator_endpoint: str) -> Iterator[Ledger]:
    """A ledger on a table of the emulator, with the key schema of `platform/template.yaml`."""
    dynamodb, table = make_client("dynamodb", client_environment(emulator_endpoint)), "ledger-tests"
    dynamodb.create_table(
        TableName=table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in KEYS],
        KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
        GlobalSecondaryIndexes=[
            {
                "IndexName": index,
                "KeySchema": [
                    {"AttributeName": f"{index}_PK", "KeyType": "HASH"},
                    {"AttributeName": f"{index}_SK", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
            for index in ("GSI1", "GSI2")
        ],
    )
    yield Ledger(dynamodb, table)
    dynamodb.delete_table(TableName=table)


@pytest.fixture(scope="session")
def new_run_id() -> Callable[[], str]:
    """Ids that no other test uses."""
    numbers = count()
    return lambda: f"run-{next(numbers)}"
