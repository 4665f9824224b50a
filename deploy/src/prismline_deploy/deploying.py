"""Deploy platform and services, or one service; roll one service back.

Each stack is changed by a change set, which is shown before it is executed. A `Target` contains all that differs
between AWS and an emulator: the clients, and the builder of images.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from prismline_contracts.base import timestamp
from prismline_deploy.change_sets import NOT_CREATED, ChangeSet, Stacks
from prismline_deploy.errors import DeployError
from prismline_deploy.labels import version_of
from prismline_deploy.order import deployment_order, function_names, parse, stacks_of
from prismline_deploy.record import Record, Release, ReleaseHistory, first
from prismline_deploy.state_machines import upload_state_machines

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

#: Short name of the stack that all services need.
PLATFORM = "platform"
#: Types of resources that a rollback may change. They hold no data.
CODE_TYPES = ("AWS::Lambda::", "AWS::StepFunctions::StateMachine", "AWS::ECS::TaskDefinition", "AWS::ECS::Service")
#: Parameter of the stacks with tables: whether DynamoDB refuses to delete them.
PROTECTION = "DeletionProtection"
#: Parameters of a stack that carry code.
IMAGE, STATE_MACHINE = "ImageUri", "StateMachineKey"


class Images(Protocol):
    """Builds the image of a service, and keeps it where functions find it."""

    def build(self, root: Path, service: str) -> str:
        """Build the image of a service of the checkout `root`. Return its URI, with its digest."""


@dataclass(frozen=True)
class Target:
    """The environment to deploy to, in an AWS account or on an emulator."""

    environment: str
    stacks: Stacks
    s3: S3Client
    record: Record
    images: Images
    #: Parameters for the templates that declare them.
    parameters: Mapping[str, str] = field(default_factory=dict)

    def stack(self, name: str) -> str:
        """The name of a stack, by its short name."""
        return f"prismline-{self.environment}-{name}"


#: A function that is called with each change set. It returns whether to execute it.
Show = Callable[[ChangeSet], bool]


def deploy(
    target: Target,
    root: Path,
    show: Show,
    services: Collection[str] | None = None,
    images: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, dict[str, str]]:
    """Deploy platform and services of the checkout `root` in their order; with `services`, only these.

    A sparse checkout, without the platform, is enough for `services`. `images` has the URI of an image that is in its
    repository already, by the name of the service; other images are built.

    If `show` refuses the change set of a new platform, the function returns at once: the services' change sets would
    import exports that do not exist.

    Returns the outputs of the stacks that were deployed, by their short names. Raises DeployError for a service that
    does not exist, for stacks that need each other, and with the reason of the first resource that failed.
    """
    paths = stacks_of(root)
    if sparse := not paths[PLATFORM].exists():
        del paths[PLATFORM]
    if sparse and (services is None or PLATFORM in services or not paths):
        raise DeployError(
            f"{root} is not a full checkout of Prismline: it has no platform/template.yaml. From a sparse one, name"
            " the services to deploy."
        )
    if unknown := sorted(set(services or ()) - paths.keys()):
        raise DeployError(f"There is no service {', '.join(unknown)}. The names are {', '.join(paths)}.")
    templates = {name: parse(path.read_text()) for name, path in paths.items()}
    order = deployment_order(templates, sparse=sparse)
    _refuse_similar_names(target)
    _refuse_two_values(target, services)
    outputs: dict[str, dict[str, str]] = {}
    for name in order:
        if services is not None and name not in services:
            continue
        given = {**target.parameters, "Environment": target.environment}
        code = {} if name == PLATFORM else _code(target, root, name, images.get(name))
        chosen = target.record.chosen(name)
        if chosen is None:  # the stack is new, or an earlier release of this tool deployed it
            chosen = target.stacks.chosen(target.stack(name))
        declared = templates[name].get("Parameters", {}).keys()
        creating = _at_creation(target, name, declared)
        planned = target.stacks.plan(target.stack(name), given | code | creating, paths[name].read_text(), chosen)
        if not show(planned):
            target.stacks.discard(planned)
            if name == PLATFORM and planned.new:
                break  # the change sets of the services would import exports that do not exist
            continue
        target.stacks.execute(planned)
        if creating:
            target.stacks.execute(target.stacks.plan(target.stack(name), given | code, paths[name].read_text(), chosen))
        target.record.choose(name, (chosen | target.parameters.keys()) & declared)
        if name != PLATFORM:
            release = Release(version=version_of(root, name), code=code, deployed_at=timestamp())
            _remember(target, name, release, function_names(templates[name]))
        outputs[name] = target.stacks.outputs(target.stack(name))
    return outputs


def _refuse_similar_names(target: Target) -> None:
    """Raise DeployError if a policy for `prismline-<name>-*` of an environment would also match another environment."""
    if target.stacks.state(target.stack(PLATFORM)) not in NOT_CREATED:
        return
    others = [name.removeprefix("prismline-").removesuffix(f"-{PLATFORM}") for name in target.stacks.names(PLATFORM)]
    for other in others:
        shorter, longer = sorted((target.environment, other), key=len)
        if longer.startswith(f"{shorter}-"):
            raise DeployError(
                f"{target.environment} cannot be deployed beside {other}: the rights of {shorter} also reach what"
                f" begins with prismline-{shorter}-. Choose a name that does not begin with {shorter}-."
            )


def _at_creation(target: Target, name: str, declared: Collection[str]) -> dict[str, str]:
    """Parameters of a stack until it stands: CloudFormation cannot delete a protected table after a failure."""
    new = target.stacks.state(target.stack(name)) in NOT_CREATED
    return {PROTECTION: "false"} if new and PROTECTION in declared else {}


def _refuse_two_values(target: Target, services: Collection[str] | None) -> None:
    """Raise DeployError if a given parameter would differ from that of a stack which is not deployed now."""
    if services is None:
        return
    for name in sorted({PLATFORM, *target.record.versions()} - set(services)):
        stack = target.stack(name)
        held = target.stacks.parameters(stack) if target.stacks.state(stack) is not None else {}
        for parameter, value in target.parameters.items():
            if held.get(parameter, value) != value:
                raise DeployError(
                    f"{parameter} is {held[parameter]!r} in the stack {stack}, which would not be deployed. It has"
                    f" one value in an environment: add --service {name}."
                )


def versions_in(root: Path, services: Collection[str] | None = None) -> dict[str, str]:
    """The version of each service of the checkout `root`; with `services`, of these."""
    return {
        name: version_of(root, name)
        for name in stacks_of(root)
        if name != PLATFORM and (services is None or name in services)
    }


def _code(target: Target, root: Path, service: str, image: str | None) -> dict[str, str]:
    """Upload a service's code, with `image` or an image that is built. Return the parameters of its stack for it."""
    code = {IMAGE: image or target.images.build(root, service)}
    if (root / "services" / service / "statemachine").is_dir():
        bucket = target.stacks.outputs(target.stack(PLATFORM))["DeploymentBucket"]
        code[STATE_MACHINE] = upload_state_machines(target.s3, root, bucket)[service]
    return code


def _remember(target: Target, service: str, release: Release, functions: list[str]) -> None:
    before = target.record.get(service)
    target.record.put(service, first(release, functions) if before is None else before.replaced_by(release, functions))


def version_before(target: Target, service: str) -> str:
    """The version that a rollback restores. Raises DeployError if no previous release is recorded."""
    return _previous(target.record.get(service), service, target.environment).version


def _previous(present: ReleaseHistory | None, what: str, environment: str) -> Release:
    if present is None or not present.previous:
        raise DeployError(f"No previous release of {what} is recorded in {environment}.")
    return present.previous[0]


def rollback(target: Target, service: str, show: Show) -> ReleaseHistory | None:
    """Restore the previous release of a service, as `restore` does."""
    restored = restore(target, service, target.record.get(service), show)
    if restored is not None:
        target.record.put(service, restored)
    return restored


def restore(target: Target, name: str, present: ReleaseHistory | None, show: Show) -> ReleaseHistory | None:
    """Give a stack the code of the release before. Return its new record, or None if `show` refuses the change set.

    name: the stack's short name. present: its record. The stack keeps its template and its other parameters: only code
    changes. Raises DeployError, without any change, if no previous release is recorded, or if the change set changes
    more than code.
    """
    before = _previous(present, name, target.environment)
    assert present is not None, "it has a previous release"
    planned = target.stacks.plan(target.stack(name), before.code)
    touched = [change.resource for change in planned.changes if not change.type.startswith(CODE_TYPES)]
    if touched:
        target.stacks.discard(planned)
        raise DeployError(f"The rollback of {name} would change more than code: {', '.join(touched)}.")
    if not show(planned):
        target.stacks.discard(planned)
        return None
    target.stacks.execute(planned)
    return present.rolled_back(timestamp())
