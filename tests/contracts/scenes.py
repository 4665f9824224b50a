"""The messages between services in a few scenes, and the fields of them that handlers read.

A scene is a schedule of the simulation, or begins at the HTTP interface (`jobs`). It runs the real services with an
account in memory. For every message that a service takes, its producer, its consumer and the fields that the
consumer's function reads are recorded.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar
from unittest.mock import patch

from pydantic import BaseModel

from prismline_contracts.envelope import Envelope
from prismline_runtime import Delivery, TransientError, undelivered_envelope
from prismline_runtime.routing import Message, MessageFunction, Router
from tests.contracts import jobs
from tests.contracts.estate import Estate
from tests.simulation.plan import HOUR, Plan, RunPlan
from tests.simulation.simulation import simulate

#: The scenes of the simulation by their description.
SCHEDULES: Mapping[str, Plan] = {
    "a cube with a spectrum for the slow lane": Plan(runs=(RunPlan(chunks=2, slow=(1,)),)),
    "a cube whose chunks refer to it": Plan(runs=(RunPlan(chunks=2, refers=True),)),
    "a recording": Plan(runs=(RunPlan("captions", chunks=2),)),
    "a bad chunk that is mended and recovered": Plan(
        runs=(RunPlan(chunks=2, bad=(0,), mended_at=600.0),), recoveries=(700.0,)
    ),
    "a run that is cancelled, and goes on": Plan(runs=(RunPlan(chunks=2, cancel_at=0.05, go_on_at=900.0),)),
    "messages that are lost": Plan(
        runs=(RunPlan(chunks=3, slow=(1,)),),
        pauses=(("worker", 0.05, 200.0), ("slow-lane", 0.05, 4000.0)),
        purges=(("chunks", 100.0), ("refits", 3900.0)),
    ),
    "a manifest that makes no sense": Plan(runs=(RunPlan(invalid=True),)),
}

#: All scenes.
SCENES = (*SCHEDULES, *jobs.SCENES)

#: Virtual seconds within which a schedule has to end after its last event.
PATIENCE = 2 * HOUR

#: The service that owns the code of a sender or receiver, if it differs from the name in `source`.
OWNERS = {"state-machine": "status"}

#: Attributes that every reader of an envelope needs.
ENVELOPE = frozenset(
    name for name, each in Envelope.model_fields.items() if each.is_required() or name in {"specversion", "data"}
)

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, order=True)
class Link:
    """Messages of one type from one service to another."""

    consumer: str
    producer: str
    type: str


@dataclass
class Sighting:
    """The first message of a link in a scene."""

    link: Link
    body: dict[str, Any]
    #: What the consumer's function read: attributes of the envelope, and fields of its data by their names in JSON.
    envelope: set[str] = field(default_factory=set)
    data: set[str] = field(default_factory=set)
    #: Why the consumer refused the message. None: it accepted the message.
    refused: str | None = None
    #: Whether it postponed the message, so that the message comes again.
    postponed: bool = False

    @property
    def workload(self) -> str:
        """The workload in the message, if there is one: a consumer has different code for each workload."""
        return str(self.body["data"].get("workload", ""))

    def needs(self) -> dict[str, Any]:
        """The message with only the fields that the consumer requires or reads."""
        kept = {name: value for name, value in self.body.items() if name in ENVELOPE | self.envelope}
        return kept | {"data": {name: value for name, value in self.body["data"].items() if name in self.data}}


#: Called with the link and the body of each delivery. Returns the body that the consumer gets instead.
Replace = Callable[[Link, str], str]


@dataclass(frozen=True)
class Outcome:
    """The result of a scene."""

    #: What went wrong. None: nothing.
    finding: str | None
    #: The end of the scene, as values that are equal if two plays ended in the same way.
    ended: Any


def play(scene: str, replace: Replace | None = None) -> tuple[Outcome, dict[Link, Sighting]]:
    """Play a scene. Return its result and the first message of each link."""
    sightings: dict[Link, Sighting] = {}
    with _watching(sightings, replace or (lambda _, body: body)):
        return (_simulated if scene in SCHEDULES else _played)(scene), sightings


def _simulated(scene: str) -> Outcome:
    result = simulate(plan=dataclasses.replace(SCHEDULES[scene], patience=PATIENCE), record={})
    return Outcome(str(result.finding) if result.finding else None, result.transitions)


def _played(scene: str) -> Outcome:
    with Estate.alive() as estate:
        try:
            ended = jobs.SCENES[scene](estate, estate.caller())
        except RuntimeError as error:
            return Outcome(str(error), None)
        posted = sorted((url, post.get("type", "")) for url, post in estate.posts)
        return Outcome("; ".join(estate.unexpected) or None, [ended, posted])


@cache
def as_sent(scene: str) -> tuple[Outcome, dict[Link, Sighting]]:
    """The result of `play` with the messages as they were sent. A scene always ends in the same way, so it is kept."""
    return play(scene)


def sightings_of(scene: str) -> dict[Link, Sighting]:
    """The first message of each link in a scene, whether the scene ends well or not."""
    return as_sent(scene)[1]


def richest() -> list[tuple[str, Sighting]]:
    """For each link and workload, the scene and the message in which the consumer reads the most fields."""
    found: dict[tuple[Link, str], tuple[str, Sighting]] = {}
    for scene in SCENES:
        for link, sighting in sightings_of(scene).items():
            place = link, sighting.workload
            if place not in found or _size(sighting) > _size(found[place][1]):
                found[place] = scene, sighting
    return [found[place] for place in sorted(found)]


def _size(sighting: Sighting) -> int:
    return len(sighting.envelope & sighting.body.keys()) + len(sighting.data & sighting.body["data"].keys())


def _service(source: object) -> str:
    name = str(source).rpartition("/")[2]
    return OWNERS.get(name, name)


@contextmanager
def _watching(sightings: dict[Link, Sighting], replace: Replace) -> Iterator[None]:
    dispatch = Router.dispatch

    def watched_dispatch(router: Router, delivery: Delivery, keys: ExitStack) -> None:
        document = json.loads(delivery.body)
        document = undelivered_envelope(document) or document
        if document.get("type") not in router.messages or "specversion" not in document:
            dispatch(router, delivery, keys)
            return
        link = Link(_service(router.transport.source), _service(document["source"]), document["type"])
        if link in sightings and not sightings[link].postponed:
            dispatch(router, delivery, keys)
            return
        body = replace(link, json.dumps(document))
        sighting = sightings[link] = Sighting(link, json.loads(body))
        messages = router.messages
        model, function = messages[link.type]
        sighting.data |= {name for name in _wire_names(model) if _field(model, name).is_required()}
        router.messages = {**messages, link.type: (model, _reading(function, sighting))}
        try:
            dispatch(router, dataclasses.replace(delivery, body=body), keys)
        except Exception as error:
            sighting.refused, sighting.postponed = str(error), isinstance(error, TransientError)
            raise
        finally:
            router.messages = messages

    with patch.object(Router, "dispatch", watched_dispatch):
        yield


def _reading(function: MessageFunction, sighting: Sighting) -> MessageFunction:
    """Wrap `function` so that `sighting` records which fields of its message it reads."""

    def call(data: BaseModel, message: Message) -> str | None:
        return function(
            _watched(data, sighting.data),
            dataclasses.replace(message, envelope=_watched(message.envelope, sighting.envelope)),
        )

    return call


def _watched(model: M, read: set[str]) -> M:
    """A copy of `model` that adds the JSON name of each field that is read to `read`."""
    base = type(model)
    names = {python: each.alias or python for python, each in base.model_fields.items()}

    def get(self: BaseModel, name: str) -> Any:
        if name in names:
            read.add(names[name])
        return base.__getattribute__(self, name)

    copied = model.model_copy()
    object.__setattr__(copied, "__class__", type(base.__name__, (base,), {"__getattribute__": get}))
    return copied


def _wire_names(model: type[BaseModel]) -> list[str]:
    return [each.alias or name for name, each in model.model_fields.items()]


def _field(model: type[BaseModel], wire_name: str) -> Any:
    return next(each for name, each in model.model_fields.items() if (each.alias or name) == wire_name)
