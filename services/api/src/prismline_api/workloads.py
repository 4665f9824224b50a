"""Functions that are registered in this environment, and whether a job fits what one of them takes.

The api reads only the registration of a function, never its code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator, SchemaError
from pydantic import ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from prismline_api.dependencies import Dependencies
from prismline_api.manifests import check_keys
from prismline_api.models import (
    CaptionsJob,
    EarlierCodeView,
    FunctionJob,
    RegistrationRequest,
    SpectraJob,
    UrlsJob,
    WorkloadView,
)
from prismline_contracts.base import timestamp
from prismline_contracts.item_sources import (
    InlineItems,
    InventoryItems,
    ItemSource,
    ObjectItems,
    PrefixItems,
    UploadedItems,
)
from prismline_contracts.jobs import upload_key
from prismline_contracts.pools import no_pool, pool_queue
from prismline_contracts.prefixes import WORKLOADS_PREFIX
from prismline_contracts.workloads import (
    LATEST,
    SERVICE_WORKLOADS,
    RegisteredWorkload,
    is_entry_point,
    latest_workload_key,
    registration_of,
    workload_key,
)
from prismline_http.auth import Caller
from prismline_http.problems import ProblemError, conflict, invalid
from prismline_ledger import needs_code
from prismline_runtime import PermanentError

#: The model of a request for each workload that is a part of the services.
_REQUESTS: dict[str, type[UrlsJob | SpectraJob | CaptionsJob]] = {
    "captions": CaptionsJob,
    "spectra": SpectraJob,
    "urls": UrlsJob,
}
#: Longest value that an error quotes, in characters.
LONGEST_QUOTE = 200


def list_workloads(caller: Caller, deps: Dependencies) -> list[WorkloadView]:
    """The workloads of this environment, with the schemas of what they take: those of the services, then functions."""
    services = [
        WorkloadView(name=name, kind="service", parameters=_parameters_of(model)) for name, model in _REQUESTS.items()
    ]
    in_use = _code_in_use(caller, deps)
    return services + [_view(each, in_use.get(each.name, {})) for each in _registered(deps)]


def _code_in_use(caller: Caller, deps: Dependencies) -> dict[str, dict[str, list[str]]]:
    """The open runs that need the code of a function, by its name and its code: those that the caller may see."""
    found: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)
    for run in deps.ledger.open_runs():
        if run.code is not None and needs_code(run) and deps.may_see(caller, run.run_id):
            found[run.workload].setdefault(run.code, []).append(run.run_id)
    return found


def _view(function: RegisteredWorkload, in_use: Mapping[str, list[str]]) -> WorkloadView:
    return WorkloadView(
        name=function.name,
        kind="function",
        code=function.code,
        item=function.item,
        parameters=function.parameters,
        limits=function.limits.model_dump(),
        registered_at=function.registered_at,
        local=function.local,
        earlier=[EarlierCodeView(code=code, run_ids=runs) for code, runs in in_use.items() if code != function.code],
    )


def register_function(request: RegistrationRequest, caller: Caller, deps: Dependencies) -> WorkloadView:
    """Register a function by its code and as the latest one. Raises ProblemError (403, 422)."""
    if not deps.settings.functions_local:
        if request.local is not None:
            raise ProblemError(
                403,
                "registration-closed",
                "Functions of other machines are not registered here. Install the function in the image of the workers,"
                " and register it without `local`.",
            )
        caller.require("all")
    if request.local is None and not is_entry_point(request.name):
        raise invalid(
            f"name: no worker finds {request.name} by its name. Give the function's package an entry point of the group"
            " prismline.workloads, and register that name."
        )
    for field in ("item", "parameters"):
        try:
            Draft202012Validator.check_schema(getattr(request, field))
        except SchemaError as error:
            raise invalid(f"{field}: {error.message[:LONGEST_QUOTE]}. It has to be a JSON Schema.") from error
    registered = RegisteredWorkload(**dict(request), registered_at=timestamp())
    for key, body in registration_of(registered).items():
        deps.bucket.write(key, body)
    return _view(registered, {})


def _parameters_of(model: type[UrlsJob | SpectraJob | CaptionsJob]) -> dict[str, Any]:
    params: Any = model.model_fields["params"].annotation
    schema: dict[str, Any] = params.model_json_schema()
    return schema


def _registered(deps: Dependencies) -> Iterator[RegisteredWorkload]:
    for key in deps.bucket.list(WORKLOADS_PREFIX):
        if key.endswith(f"/{LATEST}"):
            try:
                yield RegisteredWorkload.model_validate_json(deps.bucket.read(key))
            except ValidationError:
                deps.logger.warning("registration_invalid", extra={"key": key})


def latest_registration(name: str, deps: Dependencies) -> RegisteredWorkload:
    """The registration of a function that was made last. Raises ProblemError (409)."""
    try:
        return RegisteredWorkload.model_validate_json(deps.bucket.read(latest_workload_key(name)))
    except (ValidationError, PermanentError) as error:
        raise conflict("no-registration", f"The registration of {name} cannot be read. Register it again.") from error


def check_function(job: FunctionJob, tenant: str, deps: Dependencies) -> RegisteredWorkload:
    """Check a job against the registration of its function, and its sources. Return the registration.

    Raises ProblemError (422), which names the field that does not fit.
    """
    key = latest_workload_key(job.workload) if job.code is None else workload_key(job.workload, job.code)
    if deps.head(key) is None:
        known = sorted({*SERVICE_WORKLOADS, *(each.name for each in _registered(deps))})
        which = "" if job.code is None else f" with the code {job.code[:12]}"
        raise invalid(f"workload: there is no workload {job.workload!r}{which}. Choose one of {', '.join(known)}.")
    try:
        registered = RegisteredWorkload.model_validate_json(deps.bucket.read(key))
    except (ValidationError, PermanentError) as error:
        raise invalid(
            f"workload: the registration of {job.workload} cannot be read. Register the function again."
        ) from error
    _check(job.params, registered.parameters, "params")
    if isinstance(job.source, InlineItems) and job.source.select is None:
        for index, item in enumerate(job.source.items):
            _check(item, registered.item, f"source.items.{index}")
    _check_source(job, tenant, deps)
    if job.pool is not None and deps.system.queue(pool_queue(job.pool)) is None:
        raise invalid(f"pool: {no_pool(job.pool)}")
    return registered


def _check(value: Any, schema: dict[str, Any], field: str) -> None:
    """Check a value against a schema of a function. Nothing that a schema refers to is fetched."""
    try:
        error = next(Draft202012Validator(schema, registry=Registry()).iter_errors(value), None)
    except (Unresolvable, RecursionError) as problem:
        raise invalid(
            f"{field}: the function's schema refers to what it does not have, or to itself. Register the function again"
            " with a schema that is complete."
        ) from problem
    if error is not None:
        where = ".".join([field, *map(str, error.absolute_path)])
        raise invalid(f"{where}: {error.message[:LONGEST_QUOTE]}.")


def _check_source(job: FunctionJob, tenant: str, deps: Dependencies) -> None:
    source = job.source
    if isinstance(source, InventoryItems):
        raise invalid("source.kind: an inventory can be named only in a manifest, because its files may be anywhere.")
    if isinstance(source, ObjectItems | PrefixItems) and source.bucket not in (None, deps.bucket.name):
        raise invalid(f"source.bucket: a job can name only objects in {deps.bucket.name}, or leave the bucket out.")
    if isinstance(source, ObjectItems):
        check_keys([source.key], deps.sources(tenant))
        if deps.head(source.key) is None:
            raise invalid(f"source.key: there is no object {source.key!r} in the bucket. Put it there first.")
    if isinstance(source, PrefixItems):
        sources = deps.sources(tenant)
        # One that ends within a folder's name, or at the folder of all tenants, would cover folders of others.
        if not source.prefix.endswith("/") or (source.prefix in sources.prefixes and sources.others):
            raise invalid("source.prefix: name a folder, which ends with a slash, and not that of all tenants.")
        check_keys([f"{source.prefix}object"], sources)


def item_source(job: FunctionJob, tenant: str, deps: Dependencies) -> ItemSource:
    """The source as the manifest names it."""
    if isinstance(job.source, UploadedItems):
        head = deps.head(upload_key(tenant, job.source.upload))
        return job.source.object(tenant, etag=None if head is None else head["ETag"])
    return job.source
