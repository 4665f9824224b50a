"""Raises what this repository takes from others: the digests of base images, and the pinned versions of packages.

    python updates.py images        # the digest of each base image that a Dockerfile names
    python updates.py packages      # the versions in the lists of requirements (*.in); then run `make lock`

A scheduled workflow runs both and proposes the changes. `images` asks the container engine for the name of its
registry, `packages` needs uv. The digest is what the registry has now for the tag, so the tag says which releases are
taken.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
#: Where Dockerfiles are. Those of tests name images that tests make.
DOCKERFILES = ("services/*/Dockerfile", "cli/Dockerfile", "localstack/Dockerfile")
#: A base image with its digest, as the argument that a Dockerfile begins with.
BASE = re.compile(r"^(?P<start>ARG PYTHON_IMAGE=)(?P<image>[^@\s]+)@(?P<digest>sha256:[0-9a-f]{64})$", re.MULTILINE)
#: Asks the engine for the registry of images without a host. They are below `DEFAULT_OWNER` if they have no owner.
ASK_ENGINE = ("docker", "info", "--format", "{{.IndexServerAddress}}")
DEFAULT_OWNER = "library"
#: An index describes the image for all platforms. A registry with an image for one platform only has a manifest.
ACCEPTED = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
#: Seconds that a registry may take to answer.
PATIENCE = 30
#: Where lists of requirements are, and a pinned package in one.
LISTS = ("requirements/*.in", "services/*/*.in", "*/requirements.in", "libs/*/build.in")
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?P<extras>\[[^\]]*\])?==(?P<version>[^\s;#]+)", re.MULTILINE)
LOCKED = re.compile(r"^(?P<name>[a-z0-9._-]+)==(?P<version>[^\s;]+)", re.MULTILINE)
INCLUDED = re.compile(r"^-r\s+(\S+)", re.MULTILINE)


class UpdateError(Exception):
    """A registry or the resolver gave no answer. The message says which, and why."""


def digest_of(image: str, *, scheme: str = "https") -> str:
    """The digest that a registry has now for an image with a tag, such as `python:3.11-slim-trixie`.

    Asks without credentials, and fetches a token where the registry wants one. Raises UpdateError.
    """
    name, _, tag = image.rpartition(":")
    host, slash, path = name.partition("/")
    if not slash or not re.search(r"[.:]|^localhost$", host):
        host, path = default_host(), name if slash else f"{DEFAULT_OWNER}/{name}"
    url = f"{scheme}://{host}/v2/{path}/manifests/{tag}"
    headers = {"Accept": ", ".join(ACCEPTED)}
    try:
        try:
            found = _get(url, headers)
        except urllib.error.HTTPError as error:
            challenge = error.headers.get("WWW-Authenticate", "")
            if error.code != 401 or not challenge.lower().startswith("bearer "):
                raise
            found = _get(url, headers | {"Authorization": f"Bearer {_token(challenge)}"})
    except (OSError, ValueError, KeyError) as error:
        raise UpdateError(f"{host} gave no digest for {image}: {error}") from error
    return f"sha256:{hashlib.sha256(found).hexdigest()}"


def default_host() -> str:
    """The registry that the container engine asks for images without a host. Raises UpdateError."""
    try:
        done = subprocess.run(ASK_ENGINE, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UpdateError(f"No container engine says which registry has images without a host: {error}") from error
    return urllib.parse.urlsplit(done.stdout.strip()).netloc


def _token(challenge: str) -> str:
    """A token for reading, by the challenge of a registry."""
    stated = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    asked = {key: stated[key] for key in ("service", "scope") if key in stated}
    answer = json.loads(_get(f"{stated['realm']}?{urllib.parse.urlencode(asked)}", {}))
    return str(answer.get("token") or answer["access_token"])


def _get(url: str, headers: dict[str, str]) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=PATIENCE) as answer:
        content: bytes = answer.read()
    return content


def update_images(root: Path, *, scheme: str = "https") -> list[str]:
    """Write the present digest of each base image into the Dockerfiles. Return a line for each change.

    Raises UpdateError, and then changes nothing.
    """
    texts = {path: path.read_text() for pattern in DOCKERFILES for path in sorted(root.glob(pattern))}
    present = {found["image"]: found["digest"] for text in texts.values() for found in BASE.finditer(text)}
    latest = {image: digest_of(image, scheme=scheme) for image in present}
    for path, text in texts.items():
        path.write_text(BASE.sub(lambda found: f"{found['start']}{found['image']}@{latest[found['image']]}", text))
    return [f"{image}: {present[image]} -> {latest[image]}" for image in present if present[image] != latest[image]]


def update_packages(root: Path, uv: Sequence[str]) -> list[str]:
    """Write the latest versions that resolve together into the lists. Return a line for each change.

    Each list that no other includes is resolved with those that it includes. Of two results the lower version is
    taken, so all lists still resolve. Raises UpdateError, and then changes nothing.
    """
    texts = {path: path.read_text() for pattern in LISTS for path in sorted(root.glob(pattern))}
    inside = {(path.parent / name).resolve() for path, text in texts.items() for name in INCLUDED.findall(text)}
    found: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path, text in texts.items():
            draft = Path(folder) / path.relative_to(root)
            draft.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(PIN.sub(lambda pin: f"{pin['name']}{pin['extras'] or ''}>={pin['version']}", text))
        for path, text in texts.items():
            # A list that takes all its versions from another one by `-c` has no pins.
            if path.resolve() not in inside and (PIN.search(text) or INCLUDED.search(text)):
                for name, version in LOCKED.findall(_resolved(uv, Path(folder) / path.relative_to(root))):
                    found[name] = min(found.get(name, version), version, key=_ordered)
    changes = []
    for path, text in texts.items():
        for pin in PIN.finditer(text):
            version = found.get(re.sub(r"[-_.]+", "-", pin["name"]).lower(), pin["version"])
            if version != pin["version"]:
                changes.append(f"{path.relative_to(root)}: {pin['name']} {pin['version']} -> {version}")
                text = text.replace(pin[0], f"{pin['name']}{pin['extras'] or ''}=={version}")  # noqa: PLW2901
        path.write_text(text)
    return changes


def _resolved(uv: Sequence[str], requirements: Path) -> str:
    command = [*uv, "pip", "compile", "-q", "--python-version", "3.11", "--universal", "--no-annotate", "--no-header"]
    done = subprocess.run([*command, requirements.name], cwd=requirements.parent, capture_output=True, text=True)  # noqa: PLW1510
    if done.returncode != 0:
        raise UpdateError(f"{requirements.name} cannot be resolved: {done.stderr.strip()}")
    return done.stdout


def _ordered(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. Prints the changes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", choices=("images", "packages"))
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout")
    options = parser.parse_args(arguments)
    uv = [found] if (found := shutil.which("uv")) else [sys.executable, "-m", "uv"]
    try:
        for what in options.what:
            changes = update_images(options.root) if what == "images" else update_packages(options.root, uv)
            sys.stdout.write("\n".join([*changes, f"{what}: {len(changes) or 'no'} changed"]) + "\n")
    except UpdateError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
