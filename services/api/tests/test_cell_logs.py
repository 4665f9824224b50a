"""The log lines of a chunk or task: only its own, without data of users, from the ends of files; the link on AWS."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from api_world import Api, ApiWorld, urls_job

from prismline_api.cells import insights, log_files
from prismline_api.cells.log_files import MOST_LINES, Subject, find_lines, lines_from_end
from prismline_contracts.base import timestamp
from prismline_contracts.tasks import task_id

SINCE = datetime(2026, 3, 1, 12, tzinfo=UTC)
CHUNK = Subject("r1", SINCE, chunk_id="chunk-0000010")
TASK = Subject("r1", SINCE, task_id="a" * 64, index=3)


def line(seconds: float = 1.0, **fields: Any) -> str:
    """A line as a service writes it."""
    at = (SINCE + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3] + "+0000"
    about = {"run_id": "r1", "chunk_id": "chunk-0000010", "service": "prismline-worker"}
    return json.dumps({"level": "INFO", "message": "chunk_failed", "timestamp": at, **about, **fields})


def write(folder: Path, process: str, *lines: str) -> Path:
    path = folder / f"{process}.log"
    path.write_text("".join(f"{each}\n" for each in lines))
    return path


def test_only_the_lines_of_the_chunk_are_found_ordered_by_time_over_all_processes(tmp_path: Path) -> None:
    others = [
        line(run_id="r10"),
        line(chunk_id="chunk-0000011"),
        line(service="somebody"),
        line(seconds=-1),
        "r1 chunk-0000010 is no JSON",
        '{"run_id": "r1"',
        json.dumps({"_aws": {}, "run_id": "r1"}),
    ]
    write(tmp_path, "worker-1", others[3], line(3, reason="third"), *others[:3], *others[4:])
    write(tmp_path, "dlq-consumer", line(2, reason="second"), line(4, reason="fourth"))
    found, complete = find_lines(tmp_path, CHUNK)
    assert complete
    assert [(each.process, each.fields["reason"]) for each in found] == [
        ("dlq-consumer", "second"),
        ("worker-1", "third"),
        ("dlq-consumer", "fourth"),
    ]
    assert found[0].at == "2026-03-01T12:00:02.000Z"


def test_a_task_has_the_lines_of_its_messages_but_not_those_about_other_tasks_in_them(tmp_path: Path) -> None:
    both = {"chunk_id": None, "task_ids": ["b" * 64, "a" * 64]}
    write(
        tmp_path,
        "fetcher",
        line(1, **both),
        line(2, **both, index=3),
        line(3, **both, index=4),
        line(4, task_ids=["b" * 64]),
    )
    found, _ = find_lines(tmp_path, TASK)
    assert [each.at[-6:] for each in found] == ["1.000Z", "2.000Z"]


def test_what_may_quote_the_data_of_users_and_secrets_are_not_shown(tmp_path: Path) -> None:
    secrets = {
        "body": "s3cret",
        "output": "s3cret",
        "parameters": {"key": "s3cret"},
        "reason": "no answer from https://me:s3cret@host.example/a?X-Amz-Signature=s3cret to Bearer s3cret",
        "exception": "ValueError: prismline_s3cret and whsec_s3cret",
        "spectra": 7,
    }
    write(tmp_path, "worker", line(**secrets))
    ((shown,), _) = find_lines(tmp_path, CHUNK)
    assert "s3cret" not in shown.model_dump_json()
    assert shown.fields["spectra"] == 7
    assert str(shown.fields["reason"]).startswith("no answer from https://host.example/a?")
    assert (shown.traceback or "").startswith("ValueError")


def test_a_file_is_read_from_its_end_and_only_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noise = [line(number, run_id="other") for number in range(3000)]
    path = write(tmp_path, "worker", line(1, reason="lost"), *noise, line(5000, reason="kept"))
    monkeypatch.setattr(log_files, "MOST_BYTES", 100_000)
    found, complete = find_lines(tmp_path, CHUNK)
    assert ([each.fields["reason"] for each in found], complete) == (["kept"], False)
    assert sum(map(len, lines_from_end(path, 100_000))) <= 100_000


def test_the_lines_of_a_file_are_the_same_from_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "BLOCK_BYTES", 7)
    path = write(tmp_path, "worker", "one", "", "a line that is longer than several blocks", "3")
    assert [each for each in lines_from_end(path, 10**6) if each][::-1] == [
        each.encode() for each in path.read_text().split("\n") if each
    ]
    assert list(lines_from_end(path, 3)) == [b"", b"3"]


def test_the_latest_lines_are_shown_if_there_are_many(tmp_path: Path) -> None:
    write(tmp_path, "worker", *(line(number, attempt=number) for number in range(1, MOST_LINES + 6)))
    found, complete = find_lines(tmp_path, CHUNK)
    assert not complete
    assert [each.fields["attempt"] for each in found] == list(range(6, MOST_LINES + 6))


def test_the_link_opens_a_query_over_the_groups_of_the_services() -> None:
    groups = insights.log_groups("prod", CHUNK, ["2026/03/01/[$LATEST]0af"])
    assert groups == [
        f"/aws/lambda/prismline-prod-{name}" for name in ("splitter", "dead-letters", "repairs", "worker", "slow-lane")
    ]
    link = insights.link("eu-west-1", groups, insights.query(CHUNK), SINCE, SINCE + timedelta(hours=1))
    start, _, detail = link.partition("#")
    assert start == "https://eu-west-1.console.aws.amazon.com/cloudwatch/home?region=eu-west-1"
    assert not set("~()'\" |%") & set(detail), "the console reads it as one part"
    read = unquote(unquote(detail.replace("$", "%")))
    assert read.startswith(
        "logsV2:logs-insights?queryDetail=~(end~'2026-03-01T13*3a00*3a00.000Z~start~'2026-03-01T12*3a"
    )
    assert "~source~(~'*2faws*2flambda*2fprismline-prod-splitter~'" in read
    query = unquote(read.partition("~editorString~'")[2].partition("~")[0].replace("*", "%"))
    assert query == insights.query(CHUNK)
    assert 'filter run_id = "r1" and chunk_id = "chunk-0000010"' in query


def test_the_groups_are_those_of_the_workers_that_attempted_it() -> None:
    assert insights.log_groups("e", CHUNK, ["host-17"])[3:] == ["/aws/ecs/prismline-e-worker"]
    assert insights.log_groups("e", TASK, [])[3:] == ["/aws/lambda/prismline-e-fetcher"]
    pool = Subject("fast_r1", SINCE, task_id="a" * 64, index=0)
    assert insights.log_groups("e", pool, ["host-17"])[3:] == ["/aws/ecs/prismline-e-pool-fast"]
    assert f'@message like "{"a" * 64}"' in insights.query(TASK)


@pytest.mark.parametrize(
    ("endpoint", "is_aws"),
    [
        ("https://s3.eu-west-1.amazonaws.com", True),
        ("https://s3.cn-north-1.amazonaws.com.cn", True),
        ("http://127.0.0.1:4566", False),
        ("https://amazonaws.com.example.org", False),
    ],
)
def test_the_link_is_only_for_aws(endpoint: str, is_aws: bool) -> None:
    assert insights.is_aws(endpoint) is is_aws


@pytest.mark.emulator
class TestPath:
    def test_a_tenant_sees_the_lines_of_its_own_runs_only(self, world: ApiWorld, acme: Api, tmp_path: Path) -> None:
        world.deps.settings.logs_folder = tmp_path
        run_id = acme.post("/jobs", urls_job(2))["run"]["run_id"]
        now = {"run_id": run_id, "timestamp": timestamp(), "task_ids": [task_id(run_id, 1)]}
        write(tmp_path, "fetcher", line(**now, reason="503"))
        logs = acme.get(f"/runs/{run_id}/cells/1/logs")
        assert (logs["complete"], [each["fields"]["reason"] for each in logs["lines"]]) == (True, ["503"])
        assert acme.get(f"/runs/{run_id}/cells/0/logs") == {"lines": [], "complete": True}
        acme.get(f"/runs/{run_id}/cells/2/logs", expect=404)
        world.caller("other").get(f"/runs/{run_id}/cells/1/logs", expect=404)

    def test_elsewhere_the_answer_says_where_the_lines_are(
        self, world: ApiWorld, acme: Api, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_id = acme.post("/jobs", urls_job(2))["run"]["run_id"]
        logs = acme.get(f"/runs/{run_id}/cells/1/logs")
        assert "where its services run" in logs["sentence"]
        assert "url" not in logs
        monkeypatch.setattr(insights, "is_aws", lambda _: True)
        logs = acme.get(f"/runs/{run_id}/cells/1/logs")
        assert "#logsV2:logs-insights" in logs["url"]
        assert task_id(run_id, 1) in logs["url"]
        assert (logs["lines"], logs["complete"]) == ([], False)
