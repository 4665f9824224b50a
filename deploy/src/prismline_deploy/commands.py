"""`prismline deploy | publish | rollback`: releases of the services, on AWS or on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.table import Table

from prismline_cli.commands.options import AsJson, pairs
from prismline_cli.output import console, print_json, stderr
from prismline_contracts.pools import pool_queue
from prismline_deploy import deploying, targets
from prismline_deploy.change_sets import ChangeSet
from prismline_deploy.deploying import Target
from prismline_deploy.errors import DeployError
from prismline_deploy.failing import deploy_errors
from prismline_deploy.gate import objections
from prismline_deploy.labels import version_of
from prismline_deploy.pools import deploy_pool, described_functions, rollback_pool
from prismline_deploy.record import Release

Environment = Annotated[str, typer.Option("--env", help="The environment: part of every resource's name.")]
Force = Annotated[bool, typer.Option("--force", help="Do it although the versions are not known to work together.")]
Root = Annotated[Path, typer.Option(help="The checkout.", show_default="the current folder")]
PlanOnly = Annotated[bool, typer.Option("--plan", help="Only show what would change.")]


class _Shown:
    """Shows change sets and records them. With `execute`, they are also executed."""

    def __init__(self, *, execute: bool, quiet: bool) -> None:
        self._execute = execute
        self._quiet = quiet
        self.planned: list[ChangeSet] = []

    def __call__(self, planned: ChangeSet) -> bool:
        self.planned.append(planned)
        if not self._quiet:
            _print(planned)
        return self._execute

    def document(self, environment: str, deployed: list[dict[str, Any]]) -> dict[str, Any]:
        stacks = [
            {
                "stack": planned.stack,
                "new": planned.new,
                "changes": [
                    {
                        "action": change.action,
                        "resource": change.resource,
                        "type": change.type,
                        "replacement": change.replacement,
                    }
                    for change in planned.changes
                ],
            }
            for planned in self.planned
        ]
        return {"environment": environment, "stacks": stacks, "deployed": deployed}


def _print(planned: ChangeSet) -> None:
    if not planned.changes:
        console.print(f"{planned.stack}: no changes.")
        return
    console.print(f"{planned.stack}{' (new)' if planned.new else ''}:")
    table = Table("action", "resource", "type", "replaced")
    for change in planned.changes:
        replaced = {"True": "yes", "Conditional": "perhaps"}.get(change.replacement, "")
        table.add_row(change.action, change.resource, change.type, replaced)
    console.print(table)


def _release(service: str, release: Release) -> dict[str, Any]:
    return {
        "service": service,
        "version": release.version,
        "image": release.image,
        "deployed_at": release.deployed_at,
    }


@contextmanager
def _aws_errors() -> Iterator[None]:
    with deploy_errors():
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            raise DeployError(f"AWS refused: {error}") from error


def _done(target: Target, shown: _Shown, services: list[str], *, pool: str | None = None, as_json: bool) -> None:
    """Print which releases are deployed now."""
    found = {service: target.record.get(service) for service in services}
    if pool is not None:
        found[pool_queue(pool)] = target.record.get_pool(pool)
    releases = [_release(service, release) for service, release in found.items() if release is not None]
    if as_json:
        print_json(shown.document(target.environment, releases))
        return
    for release in releases:
        console.print(f"{release['service']} {release['version']} is deployed: {release['image']}")


def _ask(target: Target, root: Path, changes: dict[str, str], *, force: bool) -> None:
    """Raise DeployError if the services would not work together. With `force`, print the reasons instead.

    Both the checkout `root` and the current folder may know the versions.
    """
    reasons = objections([Path(), root], target.environment, target.record.versions(), changes)
    if reasons and not force:
        raise DeployError("\n".join([*reasons, "Nothing was changed. To change it all the same, add --force."]))
    for reason in reasons:
        stderr.print(reason, soft_wrap=True)


def _deploy(
    environment: Environment,
    service: Annotated[
        list[str] | None, typer.Option(help="Only this service, or platform; may be repeated.", show_default="all")
    ] = None,
    plan: PlanOnly = False,
    parameter: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Parameter of the templates that declare it.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            metavar="URI@DIGEST",
            help="The published image of the one service that is named, or of the pool.",
            show_default="built",
        ),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this pool, with --image: the worker's image with an author's package."),
    ] = None,
    functions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Register the functions of the pool's image: what `python -m prismline.describe` prints in it.",
        ),
    ] = None,
    root: Root = Path(),
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Deploy platform and services: build images, show and execute a change set for each stack."""
    shown = _Shown(execute=not plan, quiet=as_json)
    with _aws_errors():
        if pool is not None:
            if service or image is None:
                raise DeployError("Deploy a pool by itself, and name its image: --pool NAME --image URI@sha256:...")
            described = [] if functions is None else described_functions(functions)
            target = targets.find_target(environment, pairs(parameter or []))
            with stderr.status("Deploying ..."):
                deploy_pool(target, root.absolute(), pool, _with_digest(image), shown, described)
            _done(target, shown, [], pool=None if plan else pool, as_json=as_json)
            return
        if functions is not None:
            raise DeployError("--functions registers the functions of a pool: add --pool NAME.")
        images = {} if image is None else {_only(service): _with_digest(image)}
        target = targets.find_target(environment, pairs(parameter or []))
        _ask(target, root, deploying.versions_in(root, service), force=force or plan)
        with stderr.status("Deploying ..."):
            deployed = deploying.deploy(target, root.absolute(), shown, service, images)
        _done(target, shown, list(deployed), as_json=as_json)


def _only(services: list[str] | None) -> str:
    if services is None or len(services) != 1:
        raise DeployError("--image is the image of one service. Name it, for example --service worker.")
    return services[0]


def _with_digest(image: str) -> str:
    if not re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", image):
        raise DeployError(f"{image} has no digest. Name the image as `prismline publish` prints it: URI@sha256:...")
    return image


def _publish(
    environment: Environment,
    service: Annotated[str, typer.Option(help="The service.")],
    root: Root = Path(),
    as_json: AsJson = False,
) -> None:
    """Build the image of a service, push it and print it with its digest. Nothing is deployed."""
    with _aws_errors():
        target = targets.find_target(environment, {})
        with stderr.status("Building ..."):
            image = target.images.build(root.absolute(), service)
    if as_json:
        print_json({"service": service, "version": version_of(root, service), "image": image})
        return
    console.print(image, soft_wrap=True)


def _rollback(
    environment: Environment,
    service: Annotated[str | None, typer.Option(help="The service to roll back.")] = None,
    pool: Annotated[str | None, typer.Option(metavar="NAME", help="The pool to roll back.")] = None,
    plan: PlanOnly = False,
    root: Root = Path(),
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Restore the previous release of a service, or the previous image of a pool. Queues and tables are not changed."""
    shown = _Shown(execute=not plan, quiet=as_json)
    with _aws_errors():
        if (service is None) == (pool is None):
            raise DeployError("Name what to roll back: --service NAME, or --pool NAME.")
        target = targets.find_target(environment, {})
        if service is None:
            assert pool is not None, "one of the two is given"
            with stderr.status("Rolling back ..."):
                rolled = rollback_pool(target, pool, shown)
            _done(target, shown, [], pool=None if rolled is None else pool, as_json=as_json)
            return
        _ask(target, root, {service: deploying.version_before(target, service)}, force=force or plan)
        with stderr.status("Rolling back ..."):
            restored = deploying.rollback(target, service, shown)
        _done(target, shown, [] if restored is None else [service], as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`: the entry point of this distribution in the group `prismline.commands`."""
    app.command("deploy")(_deploy)
    app.command("publish")(_publish)
    app.command("rollback")(_rollback)
