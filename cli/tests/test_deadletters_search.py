"""Searches of the archive of dead letters, and the objects that they fetch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from cli_world import CliWorld
from typer.testing import CliRunner, Result

from prismline_api import archive as api_archive
from prismline_cli import deadletters_search
from prismline_cli.connection import Connection
from prismline_cli.deadletters_search import ALL, by_cause, dead_letters, latest
from prismline_cli.whole import app
from prismline_client import Client, WantedDeadLetters
from prismline_contracts.deadletters import DeadLetterRecord

pytestmark = pytest.mark.emulator

#: Days of the archive that the tests fill.
DAYS = ("2026-03-09", "2026-03-10", "2026-03-11")
RUNS = ("run-a", "run-b")


def record(day: str, n: int, **fields: Any) -> DeadLetterRecord:
    """The n-th dead letter of a day. Runs and chunks alternate with n."""
    chunk_id = f"chunk-{n % 5:07d}"
    base = {
        "body": json.dumps({"n": n}),
        "error": f"The chunk's input {n % 3} does not exist.",
        "collection": f"survey-{n % 2}",
        "granules": [chunk_id],
        "messageId": f"{day}-message-{n:04d}",
        "attributes": {"ApproximateReceiveCount": "6"},
        "messageAttributes": {"error": {"stringValue": "e", "binaryValue": None, "dataType": "String"}},
        "run_id": RUNS[n % 2],
        "chunk_id": chunk_id,
        "source_queue": "chunks",
        "receive_count": 6,
        "archived_at": f"{day}T12:00:{n % 60:02d}.000Z",
    }
    return DeadLetterRecord.model_validate(base | fields)


@dataclass
class Archive:
    """An archive that records every object that is fetched from it."""

    connection: Connection
    fetched: list[str]
    listed: list[str]

    def put(self, day: str, name: str, body: bytes, place: str = "sqs") -> None:
        key = f"dead-letter-archive/{place}/{day}/{name}.json"
        self.connection.s3.put_object(Bucket=self.connection.bucket, Key=key, Body=body)

    def add(self, day: str, letter: DeadLetterRecord, place: str = "sqs") -> None:
        self.put(day, letter.messageId or "", letter.model_dump_json().encode(), place)

    def rows(self, wanted: WantedDeadLetters, limit: int = 1000) -> list[dict[str, Any]]:
        rows, _ = latest(dead_letters(Client.open(), wanted), limit)
        return rows

    @property
    def days_fetched(self) -> set[str]:
        return {key.split("/")[2] for key in self.fetched}


@pytest.fixture
def archive(world: CliWorld, monkeypatch: pytest.MonkeyPatch) -> Archive:
    made = Archive(world.connection, [], [])
    for run_id in RUNS:
        world.add_run(run_id)
    read, entries = api_archive.Archive.read, api_archive.Archive.entries

    def recorded_read(self: api_archive.Archive, key: str) -> DeadLetterRecord | None:
        made.fetched.append(key)
        return read(self, key)

    def recorded_entries(self: api_archive.Archive, prefix: str) -> Any:
        made.listed.append(prefix)
        return entries(self, prefix)

    monkeypatch.setattr(api_archive.Archive, "read", recorded_read)
    monkeypatch.setattr(api_archive.Archive, "entries", recorded_entries)
    for day in DAYS:
        for n in range(20):
            made.add(day, record(day, n))
    return made


def day(first: str, last: str | None = None, **fields: Any) -> WantedDeadLetters:
    wanted: Any = {"first": first, "last": last or first, **fields, **ALL}
    return wanted  # type: ignore[no-any-return]


def test_a_search_of_one_day_reads_no_other_days_objects(archive: Archive) -> None:
    rows = archive.rows(day("2026-03-10"))
    assert len(rows) == len(archive.fetched) == 20
    assert archive.days_fetched == {"2026-03-10"}
    assert archive.listed[0] == "dead-letter-archive/sqs/2026-03-10/"
    assert set(archive.listed[1:]) == {"dead-letter-archive/recovering/"}, "and lists no other day's"


def test_both_ends_of_a_range_are_searched(archive: Archive) -> None:
    rows = archive.rows(day("2026-03-10", "2026-03-12"))
    assert {row["eventdate"] for row in rows} == {"2026-03-10", "2026-03-11"} == archive.days_fetched


def test_records_that_a_recovery_could_not_send_are_found_and_marked(archive: Archive) -> None:
    archive.add("2026-03-10", record("2026-03-10", 77), place="failed-sqs")
    rows = archive.rows(day("2026-03-10"))
    assert [row["messageId"] for row in rows if row["recovery_failed"]] == ["2026-03-10-message-0077"]
    assert len(rows) == 21


def test_records_that_a_recovery_has_taken_are_found_by_their_day_and_marked(archive: Archive) -> None:
    archive.add("op-1/run-b", record("2026-03-10", 77), place="recovering")
    rows = archive.rows(day("2026-03-10"))
    assert [row["messageId"] for row in rows if row["recovering"]] == ["2026-03-10-message-0077"]
    assert len(rows) == 21
    assert len(archive.rows(day("2026-03-11"))) == 20
    (shown,) = json.loads(run("show", "2026-03-10-message-0077", "--json").stdout)
    assert shown["key"].startswith("dead-letter-archive/recovering/op-1/run-b/")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"name": "survey-1"}, range(1, 20, 2)),
        ({"run_id": "run-a"}, range(0, 20, 2)),
        ({"error": "INPUT 2 does"}, range(2, 20, 3)),
        ({"run_id": "run-b", "error": "input 0"}, range(3, 20, 6)),
        ({"name": "survey-1", "run_id": "run-a"}, []),
        ({"error": "100 % of '; DROP TABLE dead_letters"}, []),
    ],
)
def test_a_search_finds_records_that_match_all_its_conditions(
    archive: Archive, fields: dict[str, Any], expected: list[int]
) -> None:
    found = {row["messageId"] for row in archive.rows(day("2026-03-09", **fields))}
    assert found == {f"2026-03-09-message-{n:04d}" for n in expected}


def test_a_row_has_all_fields_of_the_record(archive: Archive) -> None:
    (row,) = archive.rows(day("2026-03-09"), limit=1)
    letter = record("2026-03-09", 19)
    left_out = {"body", "attributes", "messageAttributes", "receiptHandle"}
    assert {name: row[name] for name in DeadLetterRecord.model_fields if name not in left_out} == letter.model_dump(
        exclude=left_out
    )
    assert row["body_bytes"] == len(letter.body)


def test_odd_records_are_found_like_any_other(archive: Archive) -> None:
    odd = '\x00\x1f"\\\n\u2028 \U0001f4a5 %s'
    archive.add("2026-04-01", record("2026-04-01", 1, body=odd, error=odd, run_id=None, granules=None))
    archive.add("2026-04-01", DeadLetterRecord(body="", messageId="empty", receive_count=1))
    archive.add("2026-04-01", record("2026-04-01", 2, body="\x01" * 2**20))
    archive.put("2026-04-01", "not-json", b"\xff\xfenot json")
    archive.put("not-a-date", "x", b"{}")
    rows = {row["key"].split("/")[-1]: row for row in archive.rows(day("2026-04-01"))}
    assert len(rows) == 4
    assert rows["2026-04-01-message-0001.json"]["error"] == odd
    assert rows["2026-04-01-message-0002.json"]["body_bytes"] == 2**20
    assert rows["empty.json"]["error"] is None
    assert "is not a record" in rows["not-json.json"]["error"]
    (found,) = archive.rows(day("2026-04-01", error="\U0001f4a5"))
    assert found["error"] == odd


def test_a_record_that_a_recovery_takes_away_meanwhile_is_left_out(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = api_archive.Archive.entries

    def with_another(self: api_archive.Archive, prefix: str) -> Any:
        yield from entries(self, prefix)
        yield "dead-letter-archive/sqs/2026-03-09/gone.json", datetime.now(UTC)

    monkeypatch.setattr(api_archive.Archive, "entries", with_another)
    assert len(archive.rows(day("2026-03-09"))) == 20


def test_the_newest_of_a_large_archive_are_found_in_portions(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadletters_search, "SORTED_ROWS", 7)
    rows, total = latest(dead_letters(Client.open(), day("2026-03-01", "2026-03-31")), 25)
    newest = [f"2026-03-11-message-{n:04d}" for n in reversed(range(20))]
    before = [f"2026-03-10-message-{n:04d}" for n in (19, 18, 17, 16, 15)]
    assert [row["messageId"] for row in rows] == [*newest, *before]
    assert total == 60


def test_statistics_count_records_messages_runs_and_chunks(archive: Archive) -> None:
    archive.add("2026-03-09", record("2026-03-09", 0), place="failed-sqs")
    rows = by_cause(dead_letters(Client.open(), day("2026-03-09")))
    assert [(row["error"][12:19], row["records"], row["messages"], row["runs"], row["chunks"]) for row in rows] == [
        ("input 0", 8, 7, 2, 7),
        ("input 1", 7, 7, 2, 7),
        ("input 2", 6, 6, 2, 6),
    ]


class TestCommands:
    def test_ls_shows_the_latest_and_says_how_many_more_there_are(self, archive: Archive) -> None:
        shown = run("ls", "--from", "2026-03-09", "--to", "2026-03-11", "--limit", "3").stdout
        assert "2026-03-11-message-0019" in shown
        assert "2026-03-11-message-0016" not in shown
        assert "57 more" in shown
        rows = json.loads(run("ls", "--from", "2026-03-10", "--to", "2026-03-10", "--run", "run-a", "--json").stdout)
        assert len(rows) == 10
        assert {row["run_id"] for row in rows} == {"run-a"}

    def test_without_days_the_last_week_is_searched(self, archive: Archive) -> None:
        today = datetime.now(UTC).strftime("%Y-%m-%d")
        archive.add(today, record(today, 1))
        assert len(json.loads(run("ls", "--json").stdout)) == 1
        assert archive.days_fetched == {today}

    def test_a_search_without_results_prints_a_sentence(self, archive: Archive) -> None:
        for command in ("ls", "stats"):
            shown = run(command, "--from", "2026-01-01", "--to", "2026-01-02").stdout
            assert "No dead letters from 2026-01-01 to 2026-01-02." in shown
        assert archive.fetched == []

    def test_show_tells_all_of_one_message_and_fetches_nothing_else(self, archive: Archive) -> None:
        again = record("2026-03-10", 3, receive_count=7, body="the [bold] body\n\u2603")
        archive.add("2026-03-10", again, place="failed-sqs")
        shown = run("show", "2026-03-10-message-0003").stdout
        assert "the [bold] body\n\u2603" in shown
        assert "run-b" in shown
        assert len(set(archive.fetched)) == 2
        both = json.loads(run("show", "2026-03-10-message-0003", "--json").stdout)
        assert [entry["receive_count"] for entry in both] == [6, 7]
        assert both[1]["body"] == "the [bold] body\n\u2603"
        ambiguous = run("show", "2026-03-10-message", "--json", expect=2)
        assert len(json.loads(ambiguous.stdout)["candidates"]) == 20
        assert "There is no dead letter nonesuch" in run("show", "nonesuch", expect=2).stderr

    def test_a_dead_letter_without_an_error_has_that_of_its_chunk(self, archive: Archive, world: CliWorld) -> None:
        crashed = world.add_chunk("run-a", 7, status="PENDING", last_error="Its worker ran out of memory.", attempts=5)
        archive.add("2026-03-10", record("2026-03-10", 30, run_id="run-a", chunk_id=crashed, error=None))
        days = ("--from", "2026-03-10", "--to", "2026-03-10", "--error", "out of MEMORY", "--json")
        (row,) = json.loads(run("ls", *days).stdout)
        assert (row["chunk_id"], row["error"]) == (crashed, "Its worker ran out of memory.")
        (cause,) = json.loads(run("stats", *days).stdout)
        assert (cause["records"], cause["error"]) == (1, "Its worker ran out of memory.")
        failed = json.loads(CliRunner().invoke(app, ["chunks", "run-a", "--json"]).stdout)
        assert [chunk["last_error"] for chunk in failed] == [row["error"]], "the error is the ledger's"

    def test_stats_counts_by_cause(self, archive: Archive) -> None:
        rows = json.loads(run("stats", "--from", "2026-03-09", "--to", "2026-03-11", "--json").stdout)
        assert sum(row["records"] for row in rows) == 60
        assert "input 0" in run("stats", "--from", "2026-03-09", "--to", "2026-03-09").stdout

    def test_days_in_the_wrong_order_are_refused(self, archive: Archive) -> None:
        refused = run("ls", "--from", "2026-03-11", "--to", "2026-03-09", expect=2)
        assert "the first day is after the last" in refused.stderr

    def test_a_survey_that_cannot_be_one_is_refused(self, archive: Archive) -> None:
        assert "cannot be the name of a survey" in run("stats", "--survey", "a/b", expect=2).stderr


def run(*arguments: str, expect: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["deadletters", *arguments])
    assert result.exit_code == expect, result.output
    return result
