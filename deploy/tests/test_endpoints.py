"""AWS and emulators are distinguished by their endpoints."""

from __future__ import annotations

import pytest

from prismline_deploy.endpoints import emulator_parameters, is_aws


@pytest.mark.parametrize(
    ("endpoint", "aws"),
    [
        ("https://sqs.eu-west-1.amazonaws.com", True),
        ("https://sqs.eu-west-1.api.aws", True),
        ("http://localhost:4566", False),
        ("http://amazonaws.com.example.org", False),
        ("http://127.0.0.1:4566/amazonaws.com", False),
    ],
)
def test_aws_itself_is_distinguished_from_an_emulator(endpoint: str, aws: bool) -> None:
    assert is_aws(endpoint) is aws
    assert bool(emulator_parameters(endpoint)) is not aws, "AWS gets the defaults of the templates"
