"""The stack of `docker-compose.yml` on a real engine, as the tests use it."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import updates
from prismline_emulator.endpoints import LOOPBACK, free_port

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
#: Longest time, in seconds, from `up` until everything is healthy, with built images.
UP_SECONDS = 180
#: Longest time, in seconds, that any command may take: a build from nothing.
COMMAND_SECONDS = 1500
#: The image that the compose file pulls. If it cannot be pulled, a stand-in is built.
VALKEY_IMAGE = "valkey/valkey:8.1.4"
VALKEY_STAND_IN = "prismline/valkey-stand-in"
#: The emulator that is pulled.
LOCALSTACK_IMAGE = "localstack/localstack:4.14.0"


def run(*command: str, expect: int | None = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command. It has to end with the exit code `expect`, unless that is None."""
    done = subprocess.run(
        command,
        env=os.environ | environment,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    output = f"{' '.join(command)} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    assert expect is None or done.returncode == expect, output
    return done


def docker(*arguments: str) -> str:
    """Run a docker command. Return what it prints."""
    return run("docker", *arguments).stdout


def missing_engine() -> str | None:
    """Why no container can run on this machine; None if containers can run."""
    for command in (("docker", "info"), ("docker", "compose", "version")):
        try:
            done = run(*command, expect=None)
        except FileNotFoundError:
            return "no docker command is installed"
        if done.returncode != 0:
            return f"`{' '.join(command)}` failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}"
    return None


def available(image: str) -> bool:
    """Whether an image is present or can be pulled."""
    return any(
        run("docker", *command, image, expect=None).returncode == 0 for command in (("image", "inspect"), ("pull",))
    )


def base_image() -> str:
    """The base of our images: the one that `PYTHON_IMAGE` names, or else that of the Dockerfiles."""
    (pinned,) = updates.BASE.finditer((REPOSITORY / "localstack" / "Dockerfile").read_text())
    return os.environ.get("PYTHON_IMAGE") or f"{pinned['image']}@{pinned['digest']}"


def valkey_image() -> str:
    """The image to use for Valkey: the pinned one, or a stand-in from Debian's package."""
    if available(VALKEY_IMAGE):
        return VALKEY_IMAGE
    base = ("--build-arg", f"PYTHON_IMAGE={base_image()}")
    docker("build", "-q", "-t", VALKEY_STAND_IN, *base, "-f", str(HERE / "valkey.Dockerfile"), str(HERE))
    return VALKEY_STAND_IN


@dataclass
class Stack:
    """A compose project with its own name and ports."""

    project: str
    environment: dict[str, str]
    faults_file: Path
    endpoint: str
    #: A credential that must not appear in any log.
    secret: str
    #: Further compose files.
    files: tuple[str, ...] = ()

    @classmethod
    def prepare(cls, folder: Path, profile: str) -> Stack:
        """A stack that is not started yet. Its fault rules and cubes are in `folder`, which containers can write to."""
        secret, port = secrets.token_hex(16), free_port()
        folder.chmod(0o777)
        environment = {
            "COMPOSE_PROFILES": profile,
            "PRISMLINE_AWS_PORT": str(port),
            "PRISMLINE_INTERACTIONS_PORT": str(free_port()),
            "PRISMLINE_API_PORT": str(free_port()),
            "PRISMLINE_DATA": str(folder),
            "PRISMLINE_TEST_FAULTS": str(folder),
            "PRISMLINE_EMULATOR_SECRET": secret,
        }
        project = f"prismline-test-{secrets.token_hex(3)}"
        return cls(project, environment, folder / "faults.json", f"http://{LOOPBACK}:{port}", secret)

    @classmethod
    @contextmanager
    def running(cls, folder: Path, profile: str, *files: str, **environment: str) -> Iterator[Stack]:
        """A running, healthy stack, with further compose files and variables. It is removed, with its volumes."""
        prepared = cls.prepare(folder, profile)
        stack = replace(prepared, files=files, environment=prepared.environment | environment)
        try:
            stack.up()
            yield stack
        finally:
            stack.compose("down", "--volumes", "--timeout", "5", expect=None)

    def compose(self, *arguments: str, expect: int | None = 0) -> subprocess.CompletedProcess[str]:
        """`docker compose` on this project."""
        names = ("docker-compose.yml", *self.files, str(HERE / "docker-compose.test.yml"))
        files = (part for name in names for part in ("-f", name))
        return run("docker", "compose", "-p", self.project, *files, *arguments, expect=expect, **self.environment)

    def up(self, *arguments: str) -> None:
        """Bring everything up and wait until it is healthy; fails after `UP_SECONDS`."""
        done = self.compose("up", "-d", "--wait", "--wait-timeout", str(UP_SECONDS), *arguments, expect=None)
        assert done.returncode == 0, (
            f"{done.stderr[-3000:]}\n{self.compose('logs', '--tail', '20', expect=None).stdout}"
        )

    def scale_workers(self, number: int) -> None:
        """Run so many workers, and leave the other containers unchanged."""
        self.up("--no-deps", "--scale", f"worker={number}", "worker")

    def api_key(self) -> str:
        """The key that the stack's commands use. It is made when it is first needed."""
        if "PRISMLINE_API_KEY" not in self.environment:
            scopes = ("--scope", "read", "--scope", "submit", "--scope", "operate", "--scope", "all")
            made = self.compose("run", "--rm", "-T", "cli", "jobs", "keys", "create", "compose", *scopes)
            self.environment["PRISMLINE_API_KEY"] = made.stdout.strip()
        return self.environment["PRISMLINE_API_KEY"]

    def cli(self, *arguments: str, expect: int = 0) -> str:
        """Run `docker compose run --rm cli`. Return what it prints."""
        self.api_key()
        return self.compose("run", "--rm", "-T", "cli", *arguments, expect=expect).stdout

    def containers(self, service: str | None = None) -> list[str]:
        """The ids of all containers of the project, or of one service, running or not, by container number."""
        label = f"label=com.docker.compose.project={self.project}"
        found = [self.inspect(name) for name in docker("ps", "-aq", "--no-trunc", "--filter", label).split()]
        chosen = [one for one in found if service in {None, one["Config"]["Labels"]["com.docker.compose.service"]}]
        return [one["Id"] for one in sorted(chosen, key=lambda one: str(one["Name"]))]

    def inspect(self, container: str) -> dict[str, Any]:
        """The engine's description of a container."""
        document: dict[str, Any] = json.loads(docker("inspect", container))[0]
        return document

    def logs(self, container: str) -> str:
        """The log of a container."""
        done = run("docker", "logs", container)
        return done.stdout + done.stderr

    def leftovers(self) -> list[str]:
        """The existing containers, volumes and networks of the project."""
        label = ("--filter", f"label=com.docker.compose.project={self.project}")
        kinds = (("ps", "-aq"), ("volume", "ls", "-q"), ("network", "ls", "-q"))
        return [name for kind in kinds for name in docker(*kind, *label).split()]
