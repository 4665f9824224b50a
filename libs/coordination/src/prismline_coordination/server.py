"""The connection to Valkey. Only this module maps errors of the client to `UnavailableError`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit, urlunsplit

from pydantic import Field
from pydantic_settings import BaseSettings
from valkey import Valkey, ValkeyCluster
from valkey.backoff import NoBackoff
from valkey.exceptions import ConnectionError as ValkeyConnectionError
from valkey.exceptions import ValkeyError
from valkey.retry import Retry

from prismline_runtime import UnavailableError

#: Longest wait, in seconds, for a connection or an answer. A server on the same network answers in a millisecond.
#: While a caller waits for a dead server, it delays work that needs no lease.
ANSWER_SECONDS = 1.0
#: Prefix of all keys, so that several deployments may share a server with other users.
PREFIX = "prismline"


class CoordinationSettings(BaseSettings, env_prefix="PRISMLINE_"):
    """Settings of coordination."""

    valkey_url: str | None = Field(
        default=None,
        description="URL of the Valkey server: valkey://host:port, or valkeys:// with TLS; `?cluster=true` if it is a "
        "cluster, as ElastiCache Serverless is. Unset: there is no server, and work that needs a lease waits.",
    )


class CoordinationServer:
    """A Valkey server, or the absence of one.

    connect: makes the client. It is called at the first command, so that a service starts while the server is down.
    None: there is no server, and every command raises UnavailableError.
    """

    def __init__(self, connect: Callable[[], Any] | None) -> None:
        self._connect = connect
        self._client: Any = None

    @classmethod
    def at(cls, url: str | None) -> Self:
        """The server at `url`, as `CoordinationSettings.valkey_url` describes it."""
        # An empty setting counts as unset, so that the process starts.
        return cls(None) if not url or url == "none" else cls(lambda: _client(url))

    @classmethod
    def from_environment(cls) -> Self:
        """The server that the environment names."""
        return cls.at(CoordinationSettings().valkey_url)

    @property
    def exists(self) -> bool:
        """Whether a server is configured. It may be down."""
        return self._connect is not None

    @contextmanager
    def asked_to(self, doing: str) -> Iterator[Any]:
        """The client, a `valkey.Valkey`, for commands. `doing` names the action in the message: "take a lease".

        Raises UnavailableError if the server does not answer or refuses the command.
        """
        if self._connect is None:
            raise UnavailableError(f"Could not {doing}: PRISMLINE_VALKEY_URL is not set.")
        try:
            if self._client is None:
                self._client = self._connect()
            yield self._client
        except (ValkeyError, OSError) as error:
            raise UnavailableError(f"Could not {doing}: Valkey does not answer: {error}") from error

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None


def _client(url: str) -> Any:
    parts = urlsplit(url)
    bare = urlunsplit(parts._replace(query=""))
    # A restarted server has closed the pooled connections, so a failed command is sent once more.
    options: dict[str, Any] = {
        "socket_timeout": ANSWER_SECONDS,
        "socket_connect_timeout": ANSWER_SECONDS,
        "decode_responses": True,
    }
    if parse_qs(parts.query).get("cluster") == ["true"]:
        return ValkeyCluster.from_url(bare, **options)  # type: ignore[no-untyped-call]
    retry = Retry(NoBackoff(), 1)
    return Valkey.from_url(bare, retry=retry, retry_on_error=[ValkeyConnectionError], **options)


def key(kind: str, name: str, part: str = "") -> str:
    """A key in Valkey. All parts of one name share a hash slot, so that one script may use them on a cluster."""
    return f"{PREFIX}:{kind}:{{{name}}}" + (f":{part}" if part else "")
