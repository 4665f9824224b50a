"""The contracts that this release was built with: the producers and consumers of each message, item and object."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Annotated

from pydantic import Field

from prismline_api.models import Response
from prismline_contracts.summaries import NEXT, Summary, read_summaries


class ChangeView(Response):
    """The change of a contract in one release."""

    release: Annotated[str, Field(description="`next`: the release is not published yet.")]
    what: str


class ContractView(Response):
    """A contract. Its name ends with its major version."""

    name: Annotated[str, Field(examples=["chunk.completed.v1"])]
    kind: Annotated[str, Field(description="`message`, `item` of a table, `object` in the bucket, or `manifest`.")]
    says: str
    owner: str
    producers: Annotated[list[str], Field(description="Services that send or write it.")]
    consumers: Annotated[list[str], Field(description="Services that read it.")]
    channel: Annotated[
        str | None, Field(description="The queue of a command, or `bus` for an event. Absent: it is not a message.")
    ] = None
    history: Annotated[list[ChangeView], Field(description="The changes of each release, the latest release first.")]


class ContractsView(Response):
    """All contracts, by name."""

    version: Annotated[str, Field(description="Version of the contracts that the api was built with.")]
    contracts: list[ContractView]


@cache
def contracts_view() -> ContractsView:
    """The contracts of the installed package."""
    return ContractsView(
        version=version("prismline-contracts"), contracts=[_view(summary) for summary in read_summaries()]
    )


def _view(summary: Summary) -> ContractView:
    changes = sorted(summary.history.items(), key=lambda change: change[0] == NEXT)  # stable: the releases in order
    return ContractView(
        **summary.model_dump(exclude={"kind", "history"}),
        kind=summary.kind.value,
        history=[ChangeView(release=release, what=what) for release, what in reversed(changes)],
    )
