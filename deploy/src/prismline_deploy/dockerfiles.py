"""What the image of a service is built from: its Dockerfile, and the files of the checkout that it copies.

This module needs only Python. It reads the instructions that our Dockerfiles use, and refuses those whose files it
would miss.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from prismline_deploy.errors import DeployError

#: The folder of an image with the code of a service and its libraries.
APP = "/app/"
#: Forms of instructions that bring files into an image without naming them in a plain COPY.
UNREADABLE = re.compile(
    r"^(ADD\s|COPY\s+(--\S+\s+)*\[|COPY\s[^\n]*(<<|[*?\[])|COPY\s+--(exclude|parents)|RUN\s+--mount=\S*type=bind)"
)


@dataclass(frozen=True)
class Copy:
    """Files of the checkout that a Dockerfile copies into an image, or into a stage of its build."""

    sources: tuple[str, ...]
    target: str


def dockerfile_of(root: Path, service: str) -> Path:
    """The Dockerfile of a service. Raises DeployError if there is none."""
    dockerfile = root / "services" / service / "Dockerfile"
    if not dockerfile.exists():
        raise DeployError(f"There is no {dockerfile}.")
    return dockerfile


def instructions(dockerfile: Path) -> Iterator[str]:
    """The instructions of a Dockerfile, each on one line, without comments."""
    lines = (line for line in dockerfile.read_text().splitlines() if not line.lstrip().startswith("#"))
    text = re.sub(r"\\[ \t]*\n", " ", "\n".join(lines))
    return (line.strip() for line in text.splitlines() if line.strip())


def copies(dockerfile: Path) -> Iterator[Copy]:
    """What a Dockerfile copies from the checkout. Raises DeployError for an instruction that this cannot read."""
    for instruction in instructions(dockerfile):
        if UNREADABLE.match(instruction):
            raise DeployError(
                f"{dockerfile} has `{instruction}`. The files of this instruction would not count for the digest of the"
                " image. Write COPY with the names of folders or files."
            )
        keyword, *words = instruction.split()
        if keyword == "COPY" and not any(word.startswith("--from=") for word in words):
            *sources, target = (word for word in words if not word.startswith("--"))
            yield Copy(tuple(sources), target)


def copied(dockerfile: Path) -> list[str]:
    """The folders of a checkout that a Dockerfile copies to `/app/`. Raises DeployError if there is none."""
    found = [source for copy in copies(dockerfile) if copy.target == APP for source in copy.sources]
    if not found:
        raise DeployError(f"{dockerfile} has no COPY to {APP}, so the function would have no code.")
    return found


def files_below(root: Path, source: str, ignored: Callable[[str], bool]) -> list[Path]:
    """The files that a COPY of `source` brings. Raises DeployError if the checkout does not have it."""
    path = root / source
    if not path.exists():
        raise DeployError(f"A Dockerfile copies {source}, which {root} does not have.")
    found = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_symlink() or each.is_file()]
    return sorted(each for each in found if not ignored(each.relative_to(root).as_posix()))


def ignored_by(root: Path, dockerfile: Path) -> Callable[[str], bool]:
    """Whether the engine ignores a file of the checkout: by the ignore file of the Dockerfile, or of the checkout.

    As in the engine, the last pattern that matches a file or one of its folders decides.
    """
    own = dockerfile.with_name(f"{dockerfile.name}.dockerignore")
    ignore_file = own if own.exists() else root / ".dockerignore"
    lines = ignore_file.read_text().splitlines() if ignore_file.exists() else []
    patterns = [
        (not line.startswith("!"), _expression(line.removeprefix("!").strip().strip("/")))
        for line in map(str.strip, lines)
        if line and not line.startswith("#")
    ]

    def ignored(name: str) -> bool:
        decision = False
        for ignores, expression in patterns:
            if ignores != decision and expression.fullmatch(name):
                decision = ignores
        return decision

    return ignored


def _expression(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern of an ignore file. It also matches what is below a folder."""
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(meaning.get(part, re.escape(part)) for part in parts) + "(?:/.*)?")


def context(root: Path, service: str) -> list[Path]:
    """The files of the checkout that the image of a service is built from, without its Dockerfile."""
    dockerfile = dockerfile_of(root, service)
    ignored = ignored_by(root, dockerfile)
    sources = {source for copy in copies(dockerfile) for source in copy.sources}
    return sorted({path for source in sources for path in files_below(root, source, ignored)})


def image_digest(root: Path, service: str) -> str:
    """A digest of all that decides about the image of a service: its Dockerfile, and each file that it copies.

    The Dockerfile names the digest of the base image, and copies the locked requirements. Tests, documentation, other
    services and the times of files make no difference.
    """
    whole = hashlib.sha256()
    for path in [dockerfile_of(root, service), *context(root, service)]:
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            kind, content = "link", str(path.readlink()).encode()
        else:
            kind, content = "program" if path.stat().st_mode & 0o100 else "file", path.read_bytes()
        whole.update(f"{kind} {name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return whole.hexdigest()
