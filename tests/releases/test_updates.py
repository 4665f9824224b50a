"""`updates.py` takes the present digests from a registry, and the latest versions that resolve together."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import pytest

import updates
from prismline_localstack.settings import REPOSITORY

IMAGE = "prismline-test/python:3.11-slim"
INDEX = "application/vnd.oci.image.index.v1+json"


class Registry(BaseHTTPRequestHandler):
    """A registry that answers only with a token, as public registries do."""

    manifest: ClassVar[bytes] = b""
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        place = f"http://{self.headers['Host']}"
        self.asked.append(self.path)
        if where.path == "/token":
            granted = parse_qs(where.query)["scope"][0]
            self._answer(200, json.dumps({"token": f"for {granted}"}).encode())
        elif where.path != "/v2/prismline-test/python/manifests/3.11-slim":
            self._answer(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}')
        elif self.headers["Authorization"] != "Bearer for repository:prismline-test/python:pull":
            challenge = f'Bearer realm="{place}/token",service="here",scope="repository:prismline-test/python:pull"'
            self._answer(401, b"{}", {"WWW-Authenticate": challenge})
        else:
            # Without the type of an index, a registry answers with the manifest of one platform.
            one = self.manifest if INDEX in self.headers["Accept"] else b'{"one": "platform"}'
            self._answer(200, one, {"Content-Type": INDEX})

    def _answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on loopback. Yields host and port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def registry() -> Iterator[str]:
    with served(Registry) as place:
        yield place


@pytest.fixture
def checkout(tmp_path: Path, registry: str) -> Path:
    """The real Dockerfiles, with a base image in the registry on loopback."""
    for path in [*REPOSITORY.glob("services/*/Dockerfile"), REPOSITORY / "cli/Dockerfile"]:
        copy = tmp_path / path.relative_to(REPOSITORY)
        copy.parent.mkdir(parents=True)
        copy.write_text(re.sub(r"(?<=PYTHON_IMAGE=)[^@]+", f"{registry}/{IMAGE}", path.read_text()))
    return tmp_path


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_every_dockerfile_names_one_base_image_by_its_digest() -> None:
    found = set()
    for path in (path for pattern in updates.DOCKERFILES for path in REPOSITORY.glob(pattern)):
        text = path.read_text()
        (base,) = updates.BASE.finditer(text)
        found.add(base[0])
        stages = set(re.findall(r"^FROM .* AS (\S+)$", text, re.MULTILINE))
        images = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) | set(re.findall(r"--from=(\S+)", text))
        assert images - stages == {"${PYTHON_IMAGE}"}, path
    assert len(found) == 1, "all images have the same base"
    assert "trixie" in found.pop(), "Debian stable"


def test_the_digests_of_all_dockerfiles_are_updated(checkout: Path, registry: str) -> None:
    paths = sorted(checkout.rglob("Dockerfile"))
    before = [path.read_text() for path in paths]
    old = updates.BASE.search(before[0])
    assert old is not None
    for content in (b'{"manifests": [1]}', b'{"manifests": [2]}'):
        Registry.manifest = content
        (line,) = updates.update_images(checkout, scheme="http")
        assert line.endswith(f"-> {digest(content)}")
        expected = [text.replace(old["digest"], digest(content)) for text in before]
        assert [path.read_text() for path in paths] == expected
        assert updates.update_images(checkout, scheme="http") == [], "nothing changed since"


def test_an_image_that_the_registry_does_not_have_changes_nothing(checkout: Path, registry: str) -> None:
    dockerfile = checkout / "services/api/Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace(":3.11-slim", ":9.99-slim"))
    before = {path: path.read_text() for path in checkout.rglob("Dockerfile")}
    with pytest.raises(updates.UpdateError, match=rf"{registry} gave no digest for .*:9\.99-slim: HTTP Error 404"):
        updates.update_images(checkout, scheme="http")
    assert {path: path.read_text() for path in checkout.rglob("Dockerfile")} == before


@pytest.mark.parametrize(
    ("image", "url"),
    [
        ("python:3.11-slim-trixie", "https://index.example.org/v2/library/python/manifests/3.11-slim-trixie"),
        ("valkey/valkey:8.1.4", "https://index.example.org/v2/valkey/valkey/manifests/8.1.4"),
        ("registry.example.org:5000/a/b:1", "https://registry.example.org:5000/v2/a/b/manifests/1"),
    ],
)
def test_an_image_without_a_host_is_of_the_registry_that_the_engine_names(
    image: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(updates, "ASK_ENGINE", ("echo", "https://index.example.org/v1/"))
    monkeypatch.setattr(updates, "_get", lambda url, headers: asked.append(url) or b"{}")
    assert updates.digest_of(image) == digest(b"{}")
    assert asked == [url]


def test_without_an_engine_the_error_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updates, "ASK_ENGINE", ("no-such-engine",))
    with pytest.raises(updates.UpdateError, match="No container engine says which registry has images without a host"):
        updates.digest_of("python:3.11-slim-trixie")


class Index(BaseHTTPRequestHandler):
    """A package index on which every `two` needs an earlier `one` than the latest."""

    wheels: ClassVar[dict[str, list[tuple[str, str]]]] = {
        "one": [("1.0", ""), ("1.9", ""), ("1.10", ""), ("2.0", "")],
        "two": [("1.0", "Requires-Dist: one<2\n"), ("3.0", "Requires-Dist: one<2\n")],
        "three": [("1.0", ""), ("1.1", "")],
    }

    def do_GET(self) -> None:
        name, _, file = urlsplit(self.path).path.strip("/").partition("/")
        if file.endswith(".metadata"):
            version = file.split("-")[1]
            needed = dict(self.wheels[name])[version]
            content, kind = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}".encode(), "text/plain"
        else:
            files = [f"{name}-{version}-py3-none-any.whl" for version, _ in self.wheels.get(name, [])]
            links = "".join(f'<a href="/{name}/{each}" data-core-metadata="true">{each}</a>' for each in files)
            content, kind = f"<!DOCTYPE html><html><body>{links}</body></html>".encode(), "text/html"
        self.send_response(200 if name in self.wheels else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


def test_pins_are_raised_to_what_resolves_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uv = shutil.which("uv", path=str(Path(updates.sys.executable).parent))
    assert uv is not None
    lists = {
        "requirements/runtime.in": "# Run time.\none==1.0\n",
        "requirements/dev.in": "# Tests.\n-r runtime.in\ntwo==1.0\nthree\n",
        "services/api/requirements.in": "-c ../../requirements/runtime.txt\none\n",
    }
    for name, text in lists.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with served(Index) as place:
        for name in ("UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"http://{place}")
        monkeypatch.setenv("UV_NO_CACHE", "1")
        changes = updates.update_packages(tmp_path, [uv])
    assert changes == ["requirements/dev.in: two 1.0 -> 3.0", "requirements/runtime.in: one 1.0 -> 1.10"]
    assert (tmp_path / "requirements/runtime.in").read_text() == "# Run time.\none==1.10\n"
    assert (tmp_path / "requirements/dev.in").read_text() == "# Tests.\n-r runtime.in\ntwo==3.0\nthree\n"
    assert (tmp_path / "services/api/requirements.in").read_text() == lists["services/api/requirements.in"]
