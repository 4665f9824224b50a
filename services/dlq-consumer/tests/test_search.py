"""The template's search with Athena: the table has the fields of the record, and the saved query finds records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from prismline_contracts.deadletters import DeadLetterRecord
from prismline_contracts.prefixes import DEAD_LETTERS_PREFIX

TEMPLATE = Path(__file__).parents[1] / "template.yaml"
#: DuckDB's type for each type of the table.
TYPES = {
    "string": "VARCHAR",
    "bigint": "BIGINT",
    "array<string>": "VARCHAR[]",
    "map<string,string>": "MAP(VARCHAR, VARCHAR)",
    "map<string,struct<stringvalue:string,binaryvalue:string,datatype:string>>": "MAP(VARCHAR, JSON)",
}


class Loader(yaml.SafeLoader):
    """Reads CloudFormation's short forms as the node below the tag."""


def _below(loader: Loader, _tag: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_mapping(node, deep=True) if isinstance(node, yaml.MappingNode) else node.value


Loader.add_multi_constructor("!", _below)


@pytest.fixture(scope="module")
def resources() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(TEMPLATE.read_text(), Loader)["Resources"]
    return found


@pytest.fixture
def table(resources: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = resources["DeadLettersTable"]["Properties"]["TableInput"]
    return found


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Six days of records in the archive's layout: a folder for each date, a line for each record."""
    for day in range(9, 17):
        for n in range(6):
            letter = DeadLetterRecord(
                body='{"a": "line\\nbreak"}',
                error=f"error of {n}",
                granules=None if n == 3 else [f"chunk-{n * 100:07d}", None],
                messageId=f"m-{day}-{n}",
                attributes={"ApproximateReceiveCount": "6"},
                messageAttributes={"error": {"stringValue": "e", "binaryValue": None, "dataType": "String"}},
                run_id="run",
                source_queue="chunks",
                receive_count=6,
            )
            path = tmp_path / DEAD_LETTERS_PREFIX / f"2026-03-{day:02d}" / f"{letter.messageId}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(letter.model_dump_json())
    return tmp_path


def test_the_tables_columns_are_the_fields_of_the_record(table: dict[str, Any]) -> None:
    columns = {column["Name"]: column["Type"] for column in table["StorageDescriptor"]["Columns"]}
    assert list(columns) == [name.lower() for name in DeadLetterRecord.model_fields]
    assert set(columns.values()) <= set(TYPES)


def test_the_date_of_a_folder_is_the_partition(table: dict[str, Any]) -> None:
    assert [key["Name"] for key in table["PartitionKeys"]] == ["eventdate"]
    parameters = table["Parameters"]
    assert parameters["projection.enabled"] == "true"
    assert (parameters["projection.eventdate.type"], parameters["projection.eventdate.format"]) == (
        "date",
        "yyyy-MM-dd",
    )
    location, _ = parameters["storage.location.template"]
    assert location == f"s3://${{Bucket}}/{DEAD_LETTERS_PREFIX}${{!eventdate}}/"


def test_the_saved_query_finds_the_dead_letters_of_a_chunk_within_some_days(
    resources: dict[str, Any], table: dict[str, Any], archive: Path
) -> None:
    query, names = resources["DeadLettersQuery"]["Properties"]["QueryString"]
    assert names == {"Table": table["Name"]}
    columns = {
        name: TYPES[column["Type"]]
        for name, column in zip(DeadLetterRecord.model_fields, table["StorageDescriptor"]["Columns"], strict=True)
    }
    with duckdb.connect() as database:
        database.execute(
            'CREATE VIEW dead_letters AS SELECT * EXCLUDE (filename), filename AS "$path",'
            " split_part(filename, '/', -2) AS eventdate"
            f" FROM read_json('{archive}/{DEAD_LETTERS_PREFIX}*/*.json', filename = true, columns = {columns})"
        )
        answer = database.execute(query.replace("${Table}", "dead_letters"))
        header = [column[0] for column in answer.description or ()]
        rows = [dict(zip(header, row, strict=True)) for row in answer.fetchall()]
    assert [row["eventdate"] for row in rows] == [f"2026-03-{day}" for day in range(10, 16)]
    assert {row["error"] for row in rows} == {"error of 5"}
    assert all(row["$path"].endswith(f"/{row['eventdate']}/m-{row['eventdate'][-2:]}-5.json") for row in rows)
