"""A new manifest: the run that it starts, and the event that announces the run."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prismline_contracts.captions import CaptionsManifest
from prismline_contracts.envelope import Envelope, traceparent_of
from prismline_contracts.events import RunSubmitted
from prismline_contracts.manifest import SpectraManifest, run_id_of
from prismline_runtime import Bucket, Delivery, PermanentError, TooLargeError, service_logger
from prismline_splitter import pinning
from prismline_splitter.dependencies import Dependencies
from prismline_splitter.submission import (
    describe_submission,
    on_object_created,
    parse_manifest,
    run_of_submission,
)

KEY = "manifests/job-7.json"
CUBE = {"survey": "grs", "cube_key": "cubes/c.fits"}
DELIVERY = Delivery("prismline-test-split", "message", "receipt", "{}", 1)


def manifest(**fields: Any) -> bytes:
    return json.dumps(CUBE | fields).encode()


class Objects:
    """A bucket in memory."""

    def __init__(self, **objects: bytes) -> None:
        self.objects = dict(objects)

    def read(self, key: str, *, most: int | None = None) -> bytes:
        if key not in self.objects:
            raise PermanentError(f"Could not read {key}: it does not exist.")
        body = self.objects[key]
        if most is not None and len(body) > most:
            raise TooLargeError(f"{key} has {len(body):,} bytes; at most {most:,} are read.")
        return body

    def create(self, key: str, body: bytes) -> bool:
        return self.objects.setdefault(key, body) is body


class Splitter:
    """The splitter's dependencies, with a bucket in memory and a transport that records what is published."""

    def __init__(self, key: str, body: bytes) -> None:
        self.bucket = Objects(**{key: body})
        self.published: list[Envelope] = []
        transport: Any = SimpleNamespace(publish_event=self._publish)
        bucket: Any = self.bucket
        ledger: Any = None
        unused: Any = None
        self.deps = Dependencies(
            ledger, transport, unused, self._open(bucket), bucket, unused, Path(), 0.002, 0.0, 0, service_logger("test")
        )

    @staticmethod
    def _open(bucket: Bucket) -> Any:
        return lambda _: bucket

    def _publish(self, data: RunSubmitted, *, traceparent: str | None) -> None:
        self.published.append(Envelope.wrap(data, source="test", traceparent=traceparent))

    def notify(self, key: str, **item: str) -> None:
        detail = {"bucket": {"name": "the-bucket"}, "object": {"key": key, "etag": "e-1"} | item}
        on_object_created({"detail": detail}, DELIVERY, self.deps)


def test_a_manifest_is_announced_as_a_run_with_the_trace_of_its_submitter() -> None:
    traceparent = traceparent_of("somebody")
    splitter = Splitter(KEY, manifest(traceparent=traceparent, tolerated_failure_percent=5.0))
    splitter.notify(KEY)
    (event,) = splitter.published
    assert (event.traceparent, event.data["survey"], event.data["job_id"]) == (traceparent, "grs", "job-7")
    assert (event.data["bucket"], event.data["manifest_key"]) == ("the-bucket", KEY)
    assert event.data["tolerated_failure_percent"] == 5.0


@pytest.mark.parametrize("key", ["cubes/c.json", "manifests/readme.txt", "manifests-of-old/job.json"])
def test_another_object_starts_no_run(key: str) -> None:
    splitter = Splitter(key, manifest())
    splitter.notify(key)
    assert splitter.published == []


def test_a_repeated_notification_announces_the_run_of_the_first_manifest() -> None:
    """The manifest is replaced before the notification is repeated. The run is announced as the first time."""
    splitter = Splitter(KEY, manifest(idempotency_key="once"))
    splitter.notify(KEY)
    splitter.bucket.objects[KEY] = manifest(idempotency_key="once", survey="other")
    splitter.notify(KEY)
    assert [event.data["survey"] for event in splitter.published] == ["grs", "grs"]
    assert len({event.id for event in splitter.published}) == 1


def test_each_upload_is_a_new_run_unless_it_repeats_an_idempotency_key() -> None:
    first = run_of_submission("b", KEY, "v-1", manifest())
    assert run_of_submission("b", KEY, "v-1", manifest()) == first
    assert run_of_submission("b", KEY, "v-2", manifest()) != first
    assert run_of_submission("b", KEY, "v-1", manifest(idempotency_key="k")) == run_id_of("b", "k")
    assert run_of_submission("b", "manifests/x.json", "v-9", manifest(idempotency_key="k")) == run_id_of("b", "k")
    assert run_of_submission("b", KEY, "v-1", manifest(idempotency_key="k", pool="red")) == run_id_of("b", "k", "red")


@pytest.mark.parametrize("pool", ["red\n", "Red", "", 7, None])
def test_what_is_no_name_of_a_pool_is_no_part_of_the_id(pool: Any) -> None:
    """The manifest is refused later, and the refusal needs an id that events may have."""
    assert run_of_submission("b", KEY, "v-1", manifest(idempotency_key="k", pool=pool)) == run_id_of("b", "k")


@pytest.mark.parametrize("field", ["bucket", "object"])
def test_an_event_that_lacks_a_field_is_refused_by_name(field: str) -> None:
    detail = {"bucket": {"name": "b"}, "object": {"key": KEY, "etag": "e"}}
    del detail[field]
    with pytest.raises(
        PermanentError, match=rf"The Object Created event is invalid: detail\.{field}: Field required\."
    ):
        on_object_created({"detail": detail}, DELIVERY, Splitter(KEY, manifest()).deps)


@pytest.mark.parametrize("key", [None, 7, [], {}])
def test_an_event_whose_key_is_no_text_is_refused(key: Any) -> None:
    detail = {"bucket": {"name": "b"}, "object": {"key": key, "etag": "e"}}
    with pytest.raises(PermanentError, match=r"invalid: detail\.object\.key: Input should be a valid string\."):
        on_object_created({"detail": detail}, DELIVERY, Splitter(KEY, manifest()).deps)


@pytest.mark.parametrize(
    ("body", "survey"),
    [(b"not JSON", None), (manifest(cube_key=""), "grs"), (manifest(survey="a/b"), None), (b"[]", None)],
)
def test_an_invalid_manifest_is_announced_too_so_that_its_run_can_fail(body: bytes, survey: str | None) -> None:
    submitted, traceparent = describe_submission("run", "b", KEY, body)
    assert (submitted.run_id, submitted.job_id, submitted.survey) == ("run", "job-7", survey)
    assert traceparent == traceparent_of("run")


def test_a_manifest_is_read_with_the_model_of_its_workload() -> None:
    window = {"window_index": 0, "frame_count": 1, "frames": ["f.png"]}
    captions = {"workload": "captions", "session_id": "s", "user_id": "u", "windows": [window]}
    assert isinstance(parse_manifest(manifest(), KEY), SpectraManifest)
    assert isinstance(parse_manifest(json.dumps(captions).encode(), KEY), CaptionsManifest)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (manifest(workload="x"), "there is no workload 'x'; choose one of captions, spectra"),
        (manifest(params={"beta": 0}), "params.beta: Input should be greater than 0"),
        (b"{", "Invalid JSON"),
    ],
)
def test_an_invalid_manifest_is_refused_with_the_reason(body: bytes, reason: str) -> None:
    with pytest.raises(PermanentError, match=reason):
        parse_manifest(body, KEY)


#: Bodies that break a reader which does not expect hostile JSON, and a part of the error for each.
HOSTILE = {
    "deep": (b"[" * 200_000, "recursion limit exceeded"),
    "a deep field": (b'{"cube_key": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "recursion limit exceeded"),
    "an unpaired surrogate": (rb'{"survey": "grs", "cube_key": "c", "idempotency_key": "\ud800"}', "hex escape"),
    "an unpaired surrogate as workload": (rb'{"workload": "\ud800"}', "there is no workload"),
    "a long workload": (json.dumps({"workload": "w" * 10**6}).encode(), "there is no workload"),
    "a long name": (manifest(params={"n" * 10**6: 1}), "nnn..."),
    "a long key": (manifest(cube_key="c" * 10**6), "cube_key: String should have at most"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_manifest_starts_a_run_that_fails_with_a_short_reason(name: str) -> None:
    body, message = HOSTILE[name]
    splitter = Splitter(KEY, body)
    splitter.notify(KEY)
    assert [envelope.data["manifest_key"] for envelope in splitter.published] == [KEY]
    with pytest.raises(PermanentError) as refused:
        parse_manifest(body, KEY)
    assert message in str(refused.value)
    assert len(str(refused.value).encode()) < 1000


def test_a_manifest_that_is_too_large_starts_a_run_that_fails_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinning, "MAX_MANIFEST_BYTES", 100)
    splitter = Splitter(KEY, manifest(name="x" * 100))
    splitter.notify(KEY)
    assert len(splitter.published) == 1
    assert list(splitter.bucket.objects) == [KEY], "nothing was copied"
    bucket: Any = splitter.bucket
    with pytest.raises(PermanentError, match="bytes; at most 100 are read"):
        pinning.pinned_manifest(bucket, "run", KEY)
