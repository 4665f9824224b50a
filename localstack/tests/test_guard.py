"""The guard of the emulator: whose requests it refuses, and what browsers may do with its answers."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from prismline_emulator.clients import Clients, guarded_headers
from prismline_emulator.endpoints import HEALTH_PATH
from prismline_localstack.emulator import Emulator

CONSOLE = "http://127.0.0.1:8123"
CLIENTS = Clients.of("aws", f"{CONSOLE},http://localhost:8123")
#: The headers of a browser that requests something for a page, and of one in which a person followed a link.
EMBEDDED = {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}
FOLLOWED = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.mark.parametrize("host", ["127.0.0.1:4566", "localhost:4566", "LOCALHOST", "aws:4566", "127.0.0.1:9"])
def test_the_emulator_answers_to_its_own_names_at_any_port(host: str) -> None:
    assert CLIENTS.refusal("POST", {"host": host}) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example:4566", "127.0.0.1.evil.example", "localhost.evil.example", "evil.example:127.0.0.1", "", "[::1]"],
)
def test_a_request_to_another_host_name_is_refused(host: str) -> None:
    refusal = CLIENTS.refusal("POST", {"host": host})
    assert refusal is not None
    assert (
        refusal.sentence
        == "The Host of the request is not a name of this emulator, which is 127.0.0.1 or aws or localhost."
    )


@pytest.mark.parametrize(
    "origin", ["http://127.0.0.1:8124", "http://evil.example", "null", f"{CONSOLE}.evil.example", ""]
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_a_page_of_another_origin_is_refused(method: str, origin: str) -> None:
    headers = {"host": "127.0.0.1", "origin": origin, "sec-fetch-site": "same-site"}
    refusal = CLIENTS.refusal(method, headers)
    assert refusal is not None
    assert refusal.sentence == "The emulator answers no web page but the console."


def test_the_console_is_answered_under_both_names_of_this_machine() -> None:
    for origin in (CONSOLE, "http://localhost:8123"):
        assert CLIENTS.refusal("PUT", {"host": "127.0.0.1", "origin": origin, "sec-fetch-site": "same-site"}) is None


@pytest.mark.parametrize("site", ["same-origin", "same-site", "cross-site"])
def test_a_page_may_link_to_an_object_and_may_not_embed_it(site: str) -> None:
    headers = {"host": "127.0.0.1", "sec-fetch-site": site}
    assert CLIENTS.refusal("GET", headers | FOLLOWED) is None
    assert CLIENTS.refusal("GET", headers | FOLLOWED | {"sec-fetch-dest": "iframe"}) is not None
    assert CLIENTS.refusal("POST", headers | FOLLOWED) is not None
    assert CLIENTS.refusal("GET", headers | EMBEDDED) is not None


def test_an_address_that_a_person_typed_is_answered() -> None:
    assert CLIENTS.refusal("GET", {"host": "127.0.0.1", "sec-fetch-site": "none"} | FOLLOWED) is None


@pytest.mark.parametrize(
    ("headers", "disposition"),
    [
        ([(b"Content-Type", b"text/html")], b"attachment"),
        ([(b"Content-Disposition", b"inline")], b"inline"),
        ([(b"content-disposition", b"attachment; filename=a")], b"attachment; filename=a"),
    ],
)
def test_a_browser_saves_an_object_unless_the_link_names_another_disposition(
    headers: list[tuple[bytes, bytes]], disposition: bytes
) -> None:
    sent = guarded_headers(headers, None, linked=True)
    assert [value for name, value in sent if name.lower() == b"content-disposition"] == [disposition]
    assert guarded_headers(headers, None, linked=False)[: len(headers)] == headers


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    folder = tmp_path_factory.mktemp("guarded")
    started = Emulator.start(folder, folder / "log", console=CONSOLE)
    yield started
    started.stop()


def ask(emulator: Emulator, method: str, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    """Status, body and headers of an answer of the emulator. The headers' names are in lower case."""
    connection = http.client.HTTPConnection(urlsplit(emulator.endpoint).netloc, timeout=20)
    connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, body, {name.lower(): value for name, value in answer.getheaders()}


@pytest.mark.emulator
def test_a_refusal_is_one_sentence_that_no_page_can_read(emulator: Emulator) -> None:
    for headers in ({"Host": "evil.example"}, {"Origin": "http://127.0.0.1:1"}):
        for path in ("/", HEALTH_PATH, "/_prismline/save", "/_ministack/reset"):
            status, body, sent = ask(emulator, "POST", path, **headers)
            assert status == 403
            assert body.endswith(".\n")
            assert not [name for name in sent if name.startswith("access-control-")]


@pytest.mark.emulator
def test_only_the_console_learns_before_an_upload_that_it_may_send_it(emulator: Emulator) -> None:
    wanted = {
        "Access_Control_Request_Method": "PUT",
        "Access_Control_Request_Headers": "content-type,x-amz-meta-format",
    }
    status, _, sent = ask(emulator, "OPTIONS", "/bucket/key", Origin=CONSOLE, **wanted)
    assert (status, sent["access-control-allow-origin"]) == (200, CONSOLE)
    assert sent["access-control-allow-headers"] == "content-type,x-amz-meta-format"
    assert "PUT" in sent["access-control-allow-methods"]
    assert ask(emulator, "OPTIONS", "/bucket/key", Origin="http://127.0.0.1:1", **wanted)[0] == 403


@pytest.mark.emulator
def test_every_answer_keeps_browsers_from_running_it(emulator: Emulator) -> None:
    for path in (HEALTH_PATH, "/bucket/key"):
        sent = ask(emulator, "GET", path)[2]
        assert sent["x-content-type-options"] == "nosniff"
        assert sent["content-security-policy"].startswith("sandbox;")
        assert "access-control-allow-origin" not in sent
