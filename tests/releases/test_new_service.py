"""A service is its folder: a new one is added to a checkout by the steps of docs/how-to/add-a-service.md."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prismline_localstack.registry import service_processes
from prismline_localstack.settings import REPOSITORY

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="the files of the checkout are listed by git"),
]

MODULES = {
    "__init__.py": '"""Tally: counts the chunks that complete."""\n',
    "py.typed": "",
    "settings.py": '''\
"""Settings of tally, from the environment."""

from __future__ import annotations

from prismline_runtime import ServiceSettings


class TallySettings(ServiceSettings):
    """Settings of tally."""
''',
    "dependencies.py": '''\
"""The dependencies of tally: clients and settings, made once per process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from aws_lambda_powertools import Logger

from prismline_runtime import Transport, service_logger
from prismline_tally.settings import TallySettings

#: Name of the service in logs and as the source of messages.
SERVICE = "tally"


@dataclass(frozen=True)
class Dependencies:
    """What tally's functions use."""

    transport: Transport
    logger: Logger

    @classmethod
    def from_environment(cls) -> Self:
        """Make the dependencies with real clients and the settings in the environment."""
        settings = TallySettings()
        return cls(Transport.connect(settings.environment, SERVICE), service_logger(SERVICE))
''',
    "handler.py": '''\
"""The Lambda handler of tally."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from prismline_contracts.events import ChunkCompleted
from prismline_runtime import Delivery, queue_handler
from prismline_runtime.routing import LambdaHandler
from prismline_tally.dependencies import Dependencies


def count(message: ChunkCompleted, _delivery: Delivery, *, deps: Dependencies) -> None:
    """Count a chunk."""
    deps.logger.info("chunk_counted", extra={"chunk_id": message.chunk_id})


def build_handler(deps: Dependencies) -> LambdaHandler:
    """The handler of tally with its dependencies."""
    return queue_handler(deps.transport, deps.logger, {ChunkCompleted: partial(count, deps=deps)})


@cache
def process_handler() -> LambdaHandler:
    """The handler of this process."""
    return build_handler(Dependencies.from_environment())


def handler(event: dict[str, Any], context: Any) -> Any:
    """Entry point. Takes Lambda's SQS event and answers with `batchItemFailures`."""
    return process_handler()(event, context)
''',
}
COMPOSE = """
  tally:
    <<: *service
    image: prismline/tally:${PRISMLINE_TAG:-local}
    build: { <<: *build, dockerfile: services/tally/Dockerfile }

  # Clients submit jobs here."""
#: The existing files that the steps change, with the text after which something is added, and what.
TOUCHED = {
    "contracts/src/prismline_contracts/commands.py": ('    EXPORTS = "exports"\n', '    TALLIES = "tallies"\n'),
    "docker-compose.yml": ("\n  # Clients submit jobs here.", COMPOSE),
    "contracts/registry/chunk.completed.v1/contract.toml": ("consumers = [", '"tally", '),
}
#: The tests that a new service has to pass.
TESTS = (
    "contracts/tests/test_delivery.py",
    "tools/contracts/tests/test_compatibility.py::test_a_participant_whose_code_names_a_contract_is_in_the_registry",
    "tools/contracts/tests/test_compatibility.py::test_every_participant_of_the_registry_exists",
    "tests/compose/test_compose_file.py",
    "tests/releases/test_workflows.py",
    "tests/templates/test_templates.py",
    "tests/test_imports.py",
    "services/dlq-consumer/tests/test_handler.py",
)


def listed() -> list[str]:
    """The files of this checkout, without those that git ignores."""
    command = ["git", "-C", str(REPOSITORY), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    return [name for name in names if name and (REPOSITORY / name).is_file()]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with the new service."""
    root = tmp_path_factory.mktemp("checkout")
    for name in listed():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, root / name)
    make_folder(root / "services" / "exporter", root / "services" / "tally")
    for name, (after, added) in TOUCHED.items():
        text = (root / name).read_text()
        assert text.count(after) == 1, name
        (root / name).write_text(text.replace(after, added if added.endswith(after.strip()) else after + added))
    return root


def make_folder(exporter: Path, tally: Path) -> None:
    """Write the folder of `tally`, with the structure of the exporter."""
    (tally / "src" / "prismline_tally").mkdir(parents=True)
    (tally / "tests").mkdir()
    for name in ("Makefile", "Dockerfile", "requirements.in", "requirements.txt", "pyproject.toml", "template.yaml"):
        text = (exporter / name).read_text()
        for theirs, ours in (
            ("exporter", "tally"),
            ("Exporter", "Tally"),
            ("exports", "tallies"),
            ("Exports", "Tallies"),
        ):
            text = text.replace(theirs, ours)
        (tally / name).write_text(text)
    for name, text in MODULES.items():
        (tally / "src" / "prismline_tally" / name).write_text(text)
    (tally / "README.md").write_text("# tally\n\nCounts the chunks that complete.\n")
    (tally / "CHANGELOG.md").write_text("# Changelog of tally\n\n## 1.0.0\n\nThe first version.\n")
    template = (tally / "template.yaml").read_text()
    template = template.replace("export.requested", "chunk.completed").replace("export-requested", "chunk-counted")
    # The rights on the queues and on the logs stay. The code does nothing else.
    role = re.compile(
        r"( +- Effect: Allow\n +Action: events:PutEvents\n.*?)(?= +- Effect: Allow\n +Action: \[logs:)", re.S
    )
    template, cut = role.subn("", template)
    template, again = re.subn(r" +RUNS_TABLE: .*\n +BUCKET: .*\n", "", template)
    template, sends = re.subn(r"( +- sqs:GetQueueUrl\n) +- sqs:SendMessage\n", r"\1", template)
    assert (cut, again, sends) == (1, 1, 1)
    (tally / "template.yaml").write_text(template)


def run(checkout: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the copy, with the packages of the copy."""
    sources = [
        str(path) for path in (*checkout.glob("*/src"), *checkout.glob("*/*/src")) if "gaussline" not in str(path)
    ]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sources)}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)


def test_at_most_three_existing_files_name_the_service(checkout: Path) -> None:
    changed = {name for name in listed() if not filecmp.cmp(REPOSITORY / name, checkout / name, shallow=False)}
    assert changed == set(TOUCHED)
    assert len(changed) <= 3
    page = (REPOSITORY / "docs/how-to/add-a-service.md").read_text().replace("<contract>", "chunk.completed.v1")
    table = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert set(table) == set(TOUCHED), "the page names the same files"


def test_the_checks_of_a_service_pass(checkout: Path) -> None:
    done = run(checkout, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not emulator", *TESTS)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "tall" in run(checkout, sys.executable, "-m", "pytest", "--co", "-q", *TESTS).stdout


@pytest.mark.parametrize(
    "command",
    [
        ("python", "-m", "tests.imports"),
        ("python", "releases.py", "check", "services/tally"),
        ("ruff", "check", "services/tally"),
        ("ruff", "format", "--check", "services/tally"),
        ("cfn-lint", "services/tally/template.yaml"),
    ],
    ids=" ".join,
)
def test_a_check_passes(checkout: Path, command: tuple[str, ...]) -> None:
    done = run(checkout, str(Path(sys.executable).with_name(command[0])), *command[1:])
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_harness_starts_it_and_its_wheel_needs_it(checkout: Path) -> None:
    (process,) = service_processes(checkout, services=["tally"])
    assert process.command[-7:] == [
        *("--queue", "tallies", "--batch-size", "1", "--parallel", "4"),
        "prismline_tally.handler:handler",
    ]
    done = run(checkout / "localstack", sys.executable, "setup.py", "-q", "egg_info", "--egg-base", "..")
    assert done.returncode == 0, done.stderr
    needed = (checkout / "prismline_localstack.egg-info" / "requires.txt").read_text()
    assert "prismline-tally<2,>=1.0.0" in needed


def test_a_forbidden_import_of_the_service_is_found(checkout: Path) -> None:
    module = checkout / "services/tally/src/prismline_tally/wrong.py"
    module.write_text('"""Wrong."""\n\nimport prismline_worker\n')
    try:
        done = run(checkout, sys.executable, "-m", "tests.imports")
    finally:
        module.unlink()
    assert done.returncode == 1
    assert "prismline_tally is not allowed to import prismline_worker" in done.stdout
