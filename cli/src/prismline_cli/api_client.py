"""The client of the HTTP API that `prismline jobs` uses.

`PRISMLINE_API_URL` and `PRISMLINE_API_KEY` give the API's address and the key. A system on this machine sets both.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote
from uuid import uuid4

from pydantic import SecretStr
from pydantic_settings import BaseSettings

from prismline_cli.connection import connect_here
from prismline_cli.output import ExitCode, fail

if TYPE_CHECKING:
    import httpx

#: Timeout of a request in seconds.
ANSWER_SECONDS = 60.0
#: Maximum number of tries of a request, and the longest wait between two tries in seconds.
TRIES, LONGEST_WAIT_SECONDS = 5, 30.0
#: HTTP statuses after which the same request may succeed.
RETRIED = frozenset({429, 502, 503, 504})
#: Bytes that are read at a time from a file that is uploaded or downloaded.
PIECE_BYTES = 2**20


class ApiSettings(BaseSettings, env_prefix="PRISMLINE_"):
    """The address of the API, and the key."""

    api_url: str | None = None
    api_key: SecretStr | None = None


class Api:
    """The API. If it refuses a request, the `detail` of its problem document ends the command."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    @classmethod
    def open(cls) -> Self:
        """The API of the system that runs on this machine, or else the one that the environment variables name."""
        import httpx  # noqa: PLC0415  a slow import that other commands do not need

        connect_here()
        settings = ApiSettings()
        if not settings.api_url or settings.api_key is None:
            fail(
                "The API is not known. Start a system with `prismline up`, or set PRISMLINE_API_URL and"
                " PRISMLINE_API_KEY.",
                ExitCode.UNREACHABLE,
            )
        headers = {"Authorization": f"Bearer {settings.api_key.get_secret_value()}"}
        try:
            return cls(httpx.Client(base_url=f"{settings.api_url}/v1", headers=headers, timeout=ANSWER_SECONDS))
        except (httpx.InvalidURL, UnicodeEncodeError):
            fail("PRISMLINE_API_URL is not a URL, or PRISMLINE_API_KEY is not a key.", ExitCode.UNREACHABLE)

    def get(self, path: str, **parameters: Any) -> Any:
        """The document at `path`."""
        return self._ask("GET", path, params={name: value for name, value in parameters.items() if value is not None})

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = None) -> Any:
        """The document that answers a POST. Retries send the same `Idempotency-Key`."""
        return self._ask("POST", path, json=body, headers={"Idempotency-Key": key or str(uuid4())})

    def delete(self, path: str) -> Any:
        """The document that answers a DELETE."""
        return self._ask("DELETE", path)

    def items(self, path: str, limit: int, **parameters: Any) -> list[Any]:
        """The first `limit` items of a list."""
        found: list[Any] = []
        cursor = None
        while len(found) < limit:
            page = self.get(path, limit=min(1000, limit - len(found)), cursor=cursor, **parameters)
            found += page["items"]
            cursor = page.get("next_cursor")
            if cursor is None:
                break
        return found

    def upload(self, file: Path, format_: str) -> str:
        """Upload a file, and return the upload's id."""
        gzip = file.suffix == ".gz"
        upload = self.post("/uploads", {"format": format_, "gzip": gzip, "size_bytes": file.stat().st_size})
        self._finish(lambda: self._plain().put(upload["url"], content=_pieces(file), headers=upload["headers"]))
        return str(upload["upload_id"])

    def download(self, url: str, to: Path) -> None:
        """Download the content of a link into a file."""
        import httpx  # noqa: PLC0415

        try:
            with self._plain().stream("GET", url) as answer, to.open("wb") as file:
                if not answer.is_success:
                    fail(f"The download was refused: {answer.status_code}.", ExitCode.UNREACHABLE)
                for piece in answer.iter_bytes(PIECE_BYTES):
                    file.write(piece)
        except httpx.HTTPError as error:
            fail(f"The download broke off: {error or type(error).__name__}.", ExitCode.UNREACHABLE)

    def _plain(self) -> httpx.Client:
        """A client without the API's key, for S3."""
        import httpx  # noqa: PLC0415

        return httpx.Client(timeout=ANSWER_SECONDS)

    def _ask(self, method: str, path: str, **options: Any) -> Any:
        answer = self._finish(lambda: self._http.request(method, path, **options))
        return answer.json()

    def _finish(self, send: Any) -> httpx.Response:
        import httpx  # noqa: PLC0415

        for last in (*[False] * (TRIES - 1), True):
            try:
                answer: httpx.Response = send()
            except httpx.HTTPError as error:
                fail(f"Cannot reach the API: {error or type(error).__name__}.", ExitCode.UNREACHABLE)
            if answer.status_code not in RETRIED or last:
                break
            time.sleep(min(_retry_after(answer), LONGEST_WAIT_SECONDS))
        if not answer.is_success:
            down = answer.is_server_error or answer.status_code in RETRIED
            fail(_sentence(answer), ExitCode.UNREACHABLE if down else ExitCode.USAGE)
        return answer


def part(value: str) -> str:
    """An id as a part of a path. Ends the command if it is empty."""
    if not value.strip() or value in {".", ".."}:
        fail("The id is empty.")
    return quote(value, safe="")


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as reader:
        while piece := reader.read(PIECE_BYTES):
            yield piece


def _retry_after(answer: httpx.Response) -> float:
    try:
        return float(answer.headers.get("Retry-After", "1"))
    except ValueError:
        return 1.0


def _sentence(answer: httpx.Response) -> str:
    try:
        document = answer.json()
    except json.JSONDecodeError:
        document = None
    detail = document.get("detail") if isinstance(document, dict) else None
    return str(detail) if detail else f"The API answered {answer.status_code}."
