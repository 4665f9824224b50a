"""The job that deploys to an external emulator."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from prismline_emulator.endpoints import LOOPBACK, free_port
from prismline_localstack import provision
from prismline_localstack.errors import HarnessError
from prismline_localstack.state import make_client


def run_job(**environment: str) -> subprocess.CompletedProcess[str]:
    """Run the job, and wait for its end."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "LOCALSTACK_"))}
    return subprocess.run(
        [sys.executable, "-m", "prismline_localstack.provision"],
        env=others | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.emulator
def test_the_job_deploys_every_stack_and_changes_nothing_when_it_runs_again(aws_env: dict[str, str]) -> None:
    environment = aws_env["ENVIRONMENT"]
    cloudformation = make_client("cloudformation", aws_env)
    for _ in range(2):
        done = run_job(
            AWS_ENDPOINT_URL=aws_env["AWS_ENDPOINT_URL"],
            PRISMLINE_EMULATOR_SECRET=aws_env["AWS_SECRET_ACCESS_KEY"],
            ENVIRONMENT=environment,
        )
        assert done.returncode == 0, done.stderr
        assert '"message":"deployed"' in done.stdout
        (platform,) = cloudformation.describe_stacks(StackName=f"prismline-{environment}-platform")["Stacks"]
        assert platform["StackStatus"] == "CREATE_COMPLETE"


def test_the_job_names_a_missing_variable() -> None:
    done = run_job(ENVIRONMENT="local")
    assert (done.returncode, done.stderr.strip()) == (
        1,
        "AWS_ENDPOINT_URL is not set. Set it to the endpoint of the emulator to deploy to.",
    )


def test_the_job_reports_an_endpoint_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provision, "ANSWER_SECONDS", 0.0)
    endpoint = f"http://{LOOPBACK}:{free_port()}"
    with pytest.raises(HarnessError, match=f"Nothing answers at {endpoint}"):
        provision.provision(endpoint, "local")
