"""The choice of the endpoint, and the variables of the user that an emulator never sees."""

from __future__ import annotations

import os

import pytest

from prismline_localstack.settings import HarnessSettings, client_environment, inherited_environment


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "LOCALSTACK_HOST", "USE_SSL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environment", "endpoint"),
    [
        ({}, None),
        ({"AWS_ENDPOINT_URL": "http://aws:1"}, "http://aws:1"),
        ({"LOCALSTACK_HOST": "box"}, "http://box:4566"),
        ({"LOCALSTACK_HOST": "box:9"}, "http://box:9"),
        ({"LOCALSTACK_HOST": "box:9", "USE_SSL": "1"}, "https://box:9"),
        ({"LOCALSTACK_HOST": "box:9", "AWS_ENDPOINT_URL": "http://aws:1"}, "http://aws:1"),
    ],
)
def test_the_endpoint_is_that_of_the_variables_of_aws_clients_or_of_localstack(
    environment: dict[str, str], endpoint: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert HarnessSettings().endpoint == endpoint


def test_an_emulator_never_sees_the_users_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "mine")
    monkeypatch.setenv("AWS_PROFILE", "mine")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", "http://elsewhere")
    environment = inherited_environment("http://127.0.0.1:1") | client_environment("http://127.0.0.1:1")
    assert "mine" not in environment.values()
    assert "AWS_ENDPOINT_URL_SQS" not in environment
    assert environment["AWS_ACCESS_KEY_ID"] == "test"
    assert environment["AWS_SHARED_CREDENTIALS_FILE"] == os.devnull
    assert environment["PATH"] == os.environ["PATH"]


def test_aws_is_called_with_the_users_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    endpoint = "https://sqs.eu-west-1.amazonaws.com"
    environment = inherited_environment(endpoint) | client_environment(endpoint)
    assert environment["AWS_ACCESS_KEY_ID"] == "mine"
    assert "AWS_SHARED_CREDENTIALS_FILE" not in environment or environment["AWS_SHARED_CREDENTIALS_FILE"] != os.devnull


def test_requests_to_the_emulator_bypass_any_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "intranet")
    assert client_environment("http://127.0.0.1:1")["NO_PROXY"] == "127.0.0.1,intranet"


def test_requests_to_local_processes_bypass_any_proxy_with_any_endpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert client_environment("http://aws:1")["NO_PROXY"] == "aws,127.0.0.1"
