"""`make contracts`: all checks of whether a change breaks a reader, step by step, with the time of each.

    python -m tests.contracts

After a failed step the other steps still run, so that one run names every reader that a change would break.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.contracts.versions import ROOT, version_of

CHECK = [str(Path(sys.executable).with_name("prismline-contracts"))]
#: Two processes, as for all tests of the repository.
PYTEST = [sys.executable, "-m", "pytest", "-q", "--no-header", "-n", "2", "--dist", "worksteal"]


@dataclass(frozen=True)
class Step:
    """One step: its question, and the commands that answer it."""

    question: str
    commands: Sequence[Sequence[str]]


def steps() -> list[Step]:
    """All steps, in order."""
    return [
        Step("Does a contract break readers of the last release, or current readers?", [[*CHECK, "check"]]),
        Step(
            "Are the rules of that comparison correct, do schemas and registry match the models, and are the AsyncAPI"
            " document and the catalogue valid?",
            [[*PYTEST, "contracts/tests", "tools/contracts/tests"]],
        ),
        Step(
            "Does each service send what the others read?",
            [[*PYTEST, *(f"tests/contracts/test_{name}.py" for name in ("pacts", "two_majors", "released"))]],
        ),
        Step(
            "Do the steps of docs/how-to/change-a-contract.md still work?",
            [[*PYTEST, "tests/contracts/test_evolving.py"]],
        ),
        Step(
            "Does a service of the last release work with the others of this checkout, and the reverse?",
            [[*PYTEST, "tests/releases/test_mixed_versions.py"]],
        ),
        Step("Can each service be deployed?", list(questions_about_deployments())),
    ]


def versions() -> dict[str, str]:
    """The version of each service in this checkout."""
    return {path.parent.name: version_of(path.parent.name) for path in ROOT.glob("services/*/pyproject.toml")}


def questions_about_deployments() -> Iterator[list[str]]:
    """`can-i-deploy` for each service: with the others of this checkout, and in each recorded environment."""
    now = versions()
    beside = ROOT / ".prismline/deployed-checkout.json"
    beside.parent.mkdir(exist_ok=True)
    beside.write_text(json.dumps({service: {"version": version} for service, version in now.items()}))
    recorded = [(path.stem, path) for path in sorted(ROOT.glob("contracts/deployed/*.json"))]
    for environment, record in [("this checkout", beside), *recorded]:
        for service, version in sorted(now.items()):
            yield [*CHECK, "can-i-deploy", service, version, "--to", environment, "--record", str(record)]


def main() -> int:
    """Entry point. Returns 1 if a step fails."""
    failed, all_steps = [], steps()
    for number, step in enumerate(all_steps, 1):
        print(f"\n{number}/{len(all_steps)} {step.question}", flush=True)
        began, worked = time.monotonic(), processor_seconds()
        codes = [subprocess.run(command, cwd=ROOT, check=False).returncode for command in step.commands]
        took = f"{time.monotonic() - began:.0f} s, {processor_seconds() - worked:.0f} s of processor time"
        print(f"{'FAILED' if any(codes) else 'ok'} after {took}", flush=True)
        if any(codes):
            failed.append(step.question)
    print(
        f"\n{len(all_steps) - len(failed)} of {len(all_steps)} steps are ok.", *failed, sep="\n  failed: ", flush=True
    )
    return 1 if failed else 0


def processor_seconds() -> float:
    """Processor time of all commands so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
