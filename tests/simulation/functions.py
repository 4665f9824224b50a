"""An author's function: its registration, its code in the workers, and its runner processes.

Everything but the process is real: the supervisor, which compares the code of a runner with that of the run, and the
worker's choice among runners. An upgrade replaces the code in all workers and registers it. Then the runs that began
with the old code wait, until a person moves them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismline.process import RunnerLostError
from prismline.protocol import Description, Done, Failed, Ready, Usage
from prismline.workload import Limits
from prismline_contracts.base import timestamp
from prismline_contracts.workloads import RegisteredWorkload, registration_of

if TYPE_CHECKING:
    from tests.simulation.world import World

#: The function's name, and the pool that some of its runs are in.
FUNCTION, POOL = "measure", "lab"
#: The digests of the code before and after the upgrade.
CODES = ("a" * 64, "b" * 64)
#: Attempts of an item, and seconds of one.
ITEM_ATTEMPTS, ITEM_SECONDS = 4, 0.3
#: Calls that an item of the kind `flaky` spoils: one with an error, one with the end of its process.
SPOILT_CALLS = 2
_LIMITS = Limits(timeout=60.0, attempts=ITEM_ATTEMPTS, batch=2)
_USAGE = Usage(memory=0, files=0, children=0)


def item_of(url: str) -> dict[str, str]:
    """The item that stands for a URL."""
    return {"url": url}


def url_in(source: str) -> str:
    """The URL of a task: that of a list, or that in an item of the function."""
    return str(json.loads(source)["url"]) if source.startswith("{") else source


def value_of(url: str, code: str) -> dict[str, str]:
    """What the function returns."""
    return {"seen": url, "code": code}


def final_value_of(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What the function of `finalize` returns."""
    failed = sum(each["status"].lower() == "failed" for each in results)
    return {"items": len(results), "failed": failed}


def register(world: World, code: str) -> None:
    """Register the function with this code, as `prismline map` and a deployment do."""
    description = _description(code).model_dump()
    registered = RegisteredWorkload(**description, registered_at=timestamp())
    with world.looking():
        for key, body in registration_of(registered).items():
            world.aws.s3.put_object(Bucket=world.bucket, Key=key, Body=body)


def _description(code: str) -> Description:
    schema: dict[str, Any] = {"type": "object"}
    return Description(name=FUNCTION, item=schema, parameters=schema, limits=_LIMITS, code=code, finalize=True)


class StandInRunner:
    """Replaces a runner process: it has the code that its worker had when it began."""

    #: The world that it runs in.
    world: World
    #: Calls for each item, in all runners.
    calls: Counter[str]

    def __init__(self, *_: Any, **__: Any) -> None:
        self._code = self.world.code
        self.pid, self.output = 0, ""

    @classmethod
    def of(cls, world: World) -> type[StandInRunner]:
        """The runners of a world."""
        return type(cls.__name__, (cls,), {"world": world, "calls": Counter()})

    def exchange(self, request: bytes, **_: Any) -> bytes:
        """The runner's next line. Raises RunnerLostError."""
        reply = (
            self._answer(json.loads(request)) if request else Ready(description=_description(self._code), usage=_USAGE)
        )
        return reply.model_dump_json().encode()

    def _finalize(self, asked: dict[str, Any]) -> Done:
        """The function of `finalize`: the process ends in its first call if there were items of the kind `flaky`."""
        self.world.scheduler.wait(ITEM_SECONDS)
        results = [json.loads(line) for line in Path(asked["results"]).read_text().splitlines()]
        self.calls[asked["item_id"]] += 1
        if self.calls[asked["item_id"]] == 1 and any("/flaky/" in each["item"]["url"] for each in results):
            raise RunnerLostError("Crashed", "The runner ended.")
        took = round(ITEM_SECONDS * 1000)
        return Done(item_id=asked["item_id"], value=final_value_of(results), duration_ms=took, usage=_USAGE)

    def _answer(self, asked: dict[str, Any]) -> Done | Failed:
        if "results" in asked:
            return self._finalize(asked)
        url, item_id = asked["item"]["url"], asked["item_id"]
        self.world.scheduler.wait(ITEM_SECONDS)
        self.calls[item_id] += 1
        spoilt = "/flaky/" in url and self.calls[item_id] <= SPOILT_CALLS
        if spoilt and self.calls[item_id] == SPOILT_CALLS:
            raise RunnerLostError("Crashed", "The runner ended.")
        took = round(ITEM_SECONDS * 1000)
        if spoilt or "/gone/" in url:
            return Failed(
                item_id=item_id,
                error="There is no such thing.",
                error_type="LookupError",
                permanent=not spoilt,
                attempts=ITEM_ATTEMPTS,
                delay=1.0,
                duration_ms=took,
                usage=_USAGE,
            )
        return Done(item_id=item_id, value=value_of(url, self._code), duration_ms=took, usage=_USAGE)

    def close(self) -> None:
        """End the process."""
