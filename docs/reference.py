"""Writes the generated pages of `docs/reference/`: `make reference`. A test finds pages that are not current.

Each page is a function without arguments that returns Markdown, made from the code: models, settings, templates,
constants. A number that the code decides stands on these pages only; prose links them.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, SecretStr
from pydantic_settings import BaseSettings
from typer.core import TyperGroup
from typer.main import get_command

from prismline_alerting.settings import NotifierSettings
from prismline_api import actions as api_actions
from prismline_api import dependencies as api_dependencies
from prismline_api import models as api_models
from prismline_api import parameters as api_parameters
from prismline_api import pricing
from prismline_api import submission as api_submission
from prismline_api.settings import ApiSettings
from prismline_cli.whole import app
from prismline_contracts import fit_costs, items, tasks
from prismline_contracts.captions import CaptionParams, CaptionsManifest
from prismline_contracts.decomposition import COLUMNS, OUTPUT_VERSION, MetadataKey, SpectrumStatus
from prismline_contracts.delivery import DEAD_LETTER_RETENTION_SECONDS, LIMITS
from prismline_contracts.manifest import FitParams, Manifest, SpectraManifest
from prismline_contracts.summaries import Kind
from prismline_contracts.tasks import UrlParams
from prismline_contracts_tool.catalogue import comments
from prismline_contracts_tool.registry import read_registry
from prismline_contracts_tool.schemas import MODELS
from prismline_cube import fpack, gunzip
from prismline_cube import limits as cube_limits
from prismline_cube.header import MAX_SHIFT
from prismline_cube.zarr_codecs import NAMES as ZARR_CODECS
from prismline_dlq_consumer.decisions import LONGEST_DELAY_SECONDS, LetterPatience
from prismline_dlq_consumer.sweep_decisions import SweepLimits
from prismline_gaussline import Flag
from prismline_http import sessions
from prismline_ledger import ConditionName, Patience
from prismline_ledger.judgement import WAIT_SECONDS
from prismline_runtime import clients, dynamodb, routing, transport
from prismline_runtime import settings as runtime_settings
from prismline_splitter import chunking, deletion, ingestion, noise
from prismline_splitter.settings import SplitterSettings
from prismline_webhooks import retrying as webhook_retrying
from prismline_worker import fetch_decisions, task_decisions
from prismline_worker.progress import REPORT_SECONDS
from prismline_worker.settings import WorkerSettings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.templates.reading import Stacks, branches, of_kind, read_stacks, referred, statements  # noqa: E402  of the checkout
from tests.templates.settings import DEFAULTS, origin  # noqa: E402

FOLDER = ROOT / "docs/reference"
WIDTH = 100
NOTE = "<!-- Written by `make reference`. Do not edit. -->\n"

#: Options that every command takes.
OF_EVERY_COMMAND = {"--json", "--home", "--help"}


def _table(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *([_cell(each) for each in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines) + "\n"


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def _code(value: Any) -> str:
    return f"`{value}`"


def _duration(seconds: float) -> str:
    """A time in the largest unit that gives a whole number."""
    for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= length and seconds % length == 0:
            n = int(seconds // length)
            return f"{n:,} {unit}{'s' * (n != 1)}"
    return f"{seconds:,.10g} second{'s' * (seconds != 1)}"


def _size(n_bytes: int) -> str:
    for unit, length in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if n_bytes >= length and n_bytes % length == 0:
            return f"{n_bytes // length:,} {unit}"
    return f"{n_bytes:,} bytes"


# ---- settings


def _settings_of(service: str) -> Iterator[type[BaseSettings]]:
    module = importlib.import_module(f"prismline_{service.replace('-', '_')}.settings")
    for _, found in inspect.getmembers(module, inspect.isclass):
        if issubclass(found, BaseSettings) and found.__module__ == module.__name__:
            yield found


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return ""
    if isinstance(value, Path):
        return "the folder of temporary files"
    if isinstance(value, SecretStr):
        return "a secret"
    return _code({True: "true", False: "false"}.get(value, value) if isinstance(value, bool) else value)


def _variables(settings: type[BaseSettings], *, inherited: bool = True) -> list[tuple[str, str, str]]:
    prefix = settings.model_config.get("env_prefix") or ""
    own = settings.model_fields if inherited else {n: f for n, f in settings.model_fields.items() if n != "environment"}
    return [
        (_code(f"{prefix}{name}".upper()), _default(field), field.description or "")
        for name, field in own.items()
        if field.description
    ]


def _settings_page() -> str:
    text = (
        "# Settings\n\nFor operators. Each service reads these environment variables when it starts. On AWS they"
        " come from a parameter of\nthe template, from the template itself, or have their default, with the reason; on"
        " a\nlaptop `prismline up --set NAME=VALUE` does. A list or a mapping is JSON.\n\n"
        "## Every service\n\n"
    )
    shared = [found for _, found in inspect.getmembers(runtime_settings, inspect.isclass) if _is_settings(found)]
    rows = sorted(dict.fromkeys(row for found in shared for row in _variables(found)))
    text += _table(
        ("variable", "default", "meaning", "on AWS"),
        ((*row, _default_on_aws(row[0].strip("`"))) for row in rows),
    )
    stacks = read_stacks()
    for folder in sorted(ROOT.glob("services/*/template.yaml")):
        service = folder.parent.name
        rows = dict.fromkeys(row for found in _settings_of(service) for row in _variables(found, inherited=False))
        text += f"## {service}\n\n" + _table(
            ("variable", "default", "meaning", "on AWS"),
            ((*row, origin(stacks, service, row[0].strip("`"))) for row in rows),
        )
    return text


def _default_on_aws(name: str) -> str:
    reason = DEFAULTS["every service"].get(name)
    return f"default: {reason}" if reason else "the template"


def _is_settings(found: type) -> bool:
    return issubclass(found, BaseSettings) and found.__module__ == runtime_settings.__name__


# ---- commands


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands below `command`, each with the words that a user types for it."""
    if not isinstance(command, TyperGroup):
        yield path, command
        return
    for name, below in command.commands.items():
        yield from leaves(below, (*path, name))


def _parameters(command: Any) -> Iterator[tuple[str, str, str]]:
    for parameter in command.params:
        if OF_EVERY_COMMAND & set(parameter.opts) or getattr(parameter, "hidden", False):
            continue
        if parameter.param_type_name == "argument":
            name = _code((parameter.metavar or parameter.name).strip("[]").upper())
        else:
            names = ", ".join(_code(each) for each in [*parameter.opts, *parameter.secondary_opts])
            name = names if _is_switch(parameter) else f"{names} {_code(_metavar(parameter))}"
        default = parameter.default
        shown = default is not None and default not in (False, (), []) and not callable(default)
        yield name, _code(default) if shown else "required" if parameter.required else "", parameter.help or ""


def _annotation(parameter: Any) -> Any:
    """The type of a value: `int` of `int | None` and of `list[int]`."""
    annotation = parameter.type_descriptor.annotation
    return next((each for each in get_args(annotation) if each is not type(None)), annotation)


def _is_switch(parameter: Any) -> bool:
    return _annotation(parameter) is bool


def _metavar(parameter: Any) -> str:
    names = {int: "N", float: "NUMBER", str: "TEXT", Path: "FILE"}
    return parameter.metavar or names.get(_annotation(parameter), "VALUE")


def _commands_page() -> str:
    text = (
        "# Commands\n\nFor users of the command line: every command of `prismline` with all options. Every command"
        " also takes `--json`\n(print one JSON document), `--home FOLDER` (use the system that runs in this folder)"
        " and `--help`. [Its page](../../cli/README.md)\nhas the exit codes, and says how the command finds the"
        " system.\n\n"
    )
    for path, command in sorted(leaves(get_command(app))):
        text += f"## prismline {' '.join(path)}\n\n{' '.join((command.help or '').split())}\n\n"
        if rows := list(_parameters(command)):
            text += _table(("argument or option", "default", "meaning"), rows)
    return text


# ---- run parameters


def _kind(shape: Mapping[str, Any]) -> str:
    """A field's type in a few words."""
    return " or ".join(dict.fromkeys(each for each in _kinds(shape) if each != "null"))


def _kinds(shape: Mapping[str, Any]) -> Iterator[str]:
    if "$ref" in shape:
        yield shape["$ref"].rpartition("/")[2]
    elif "anyOf" in shape or "oneOf" in shape:
        for each in shape.get("anyOf") or shape["oneOf"]:
            yield from _kinds(each)
    elif "const" in shape or "enum" in shape:
        yield ", ".join(_code(each) for each in ([shape["const"]] if "const" in shape else shape["enum"]))
    elif shape.get("type") == "array":
        yield f"list of {_kind(shape.get('items', {})) or 'anything'}"
    else:
        bounds = [
            f"{word} {shape[key]:,}"
            for key, word in (("minimum", "from"), ("exclusiveMinimum", "above"), ("maximum", "to"))
            if key in shape
        ]
        yield " ".join([str(shape.get("type", "anything")), *bounds])


def _fields(model: type[BaseModel], leave_out: Iterable[str] = ()) -> str:
    schema, said = model.model_json_schema(), comments(model)
    required = schema.get("required", ())
    rows = [
        (
            _code(name),
            _kind(shape),
            "required" if name in required else _code(shape["default"]) if shape.get("default") is not None else "",
            shape.get("description") or said.get(name, ""),
        )
        for name, shape in schema["properties"].items()
        if name not in leave_out
    ]
    return _table(("field", "type", "default", "meaning"), rows)


def _run_parameters_page() -> str:
    own = set(Manifest.model_fields)
    return (
        "# Run parameters\n\nFor people who submit runs: the fields of a manifest and of a request to the HTTP"
        " interface, and the parameters\n(`params`) of each workload. `prismline submit` has an option for each"
        " parameter of a cube ([commands](commands.md#prismline-submit)).\nAn unknown parameter is refused.\n\n"
        "## Fields of every manifest\n\n"
        + _fields(Manifest)
        + "## Fields of every job of the HTTP interface\n\n"
        + _fields(api_models.JobOptions)
        + "## spectra\n\nFurther fields of the manifest:\n\n"
        + _fields(SpectraManifest, own - {"params"} | {"params", "workload"})
        + "Parameters:\n\n"
        + _fields(FitParams)
        + "## urls\n\nThe sources of the list are those of [a job over HTTP](http-api.md#submit-urls). Parameters:\n\n"
        + _fields(UrlParams)
        + "## captions\n\nFurther fields of the manifest:\n\n"
        + _fields(CaptionsManifest, own | {"session_id"})
        + "Parameters:\n\n"
        + _fields(CaptionParams)
    )


# ---- limits


def _limits_page() -> str:
    patience, letters, sweeps = Patience(), LetterPatience(), SweepLimits()
    api, _splitter = ApiSettings.model_fields, SplitterSettings.model_fields
    stacks = read_stacks()
    owners = {
        str(queue["QueueName"]["Fn::Sub"]).removeprefix("prismline-${Environment}-"): stack
        for stack, _, queue in of_kind(stacks, "SQS::Queue")
    }
    platform = {name: each.get("Default") for name, each in stacks["platform"]["Parameters"].items()}
    text = (
        "# Limits\n\nFor operators and for authors of services: every time and number after which the system acts"
        " or refuses. A limit with a\nsetting is its default ([settings](settings.md)).\n\n## Queues\n\n"
        "A message that is not deleted within the visibility timeout is received again. After the receives of the"
        " table SQS moves\nit to the dead-letter queue `<queue>-dlq`, which keeps it for"
        f" {_duration(DEAD_LETTER_RETENTION_SECONDS)}. The visibility timeout applies in Lambda; a\nconsumer elsewhere"
        f" hides a message for {_duration(_of(runtime_settings.ConsumerSettings, 'visibility_seconds'))}"
        " (`PRISMLINE_VISIBILITY_SECONDS`) and renews that while it works.\n\n"
    )
    text += _table(
        ("queue", "service", "receives", "time of an invocation", "visibility timeout", "retention"),
        [
            (
                _code(queue.value),
                owners[queue.value],
                each.max_receives,
                _duration(each.function_seconds),
                f"{each.visibility_seconds:,} s",
                _duration(each.retention_seconds),
            )
            for queue, each in LIMITS.items()
        ],
    )
    sections: dict[str, list[tuple[str, str, str]]] = {
        "Chunks and tasks": [
            (
                "attempts before a chunk is given up; interrupted ones do not count",
                str(patience.max_attempts),
                "MAX_ATTEMPTS",
            ),
            (
                "time since the first attempt before a chunk is given up",
                _duration(patience.seconds),
                "PATIENCE_SECONDS",
            ),
            (
                "lease of an attempt: after it the worker is presumed dead",
                _duration(patience.lease_seconds),
                "SWEEP_LEASE_SECONDS",
            ),
            ("attempts at a URL that its site answered with an error", str(UrlParams().max_attempts), "`max_attempts`"),
            (
                "backoff between attempts at a URL",
                (
                    f"{_duration(fetch_decisions.FIRST_BACKOFF_SECONDS)}, doubled up to"
                    f" {_duration(fetch_decisions.LAST_BACKOFF_SECONDS)}"
                ),
                "",
            ),
            (
                "wait for a free slot of a run or host",
                (
                    f"{_duration(task_decisions.FIRST_SLOT_WAIT_SECONDS)}, doubled up to"
                    f" {_duration(task_decisions.LAST_SLOT_WAIT_SECONDS)}; at first less in a run of few messages"
                ),
                "",
            ),
            ("report of a long attempt (`n_done`)", f"every {_duration(REPORT_SECONDS)}", ""),
            ("validity of `waiting_for`", _duration(WAIT_SECONDS), ""),
            ("errors that a chunk or task keeps", str(items.MAX_KEPT_ERRORS), ""),
            ("unexpected errors of one message before the run shows it", str(items.REPEATED_FROM), ""),
            ("tasks in a message", str(tasks.MAX_TASKS_PER_MESSAGE), ""),
            ("shards of a run of tasks", str(tasks.MAX_SHARDS), ""),
            (
                "tasks from which a run has its own queue",
                f"more than {_of(SplitterSettings, 'own_queue_tasks'):,}",
                "OWN_QUEUE_TASKS",
            ),
            (
                "tasks from which a run has several shards",
                f"more than {ingestion.TASKS_OF_ONE_SHARD:,}",
                "",
            ),
            ("chunks from which a run has several shards", f"more than {chunking.CHUNKS_OF_ONE_SHARD:,}", ""),
            ("chunks of a run", f"{chunking.MAX_CHUNKS:,}", ""),
            (
                "work of a chunk of a cube",
                f"{_duration(chunking.LEAST_CHUNK_SECONDS)} to {_duration(fit_costs.CHUNK_SECONDS)} on one core",
                "`--chunk-size`",
            ),
        ],
        "Dead letters": [
            (
                "age at which a message that is not about a chunk is given up",
                _duration(letters.message_seconds),
                "MESSAGE_PATIENCE_SECONDS",
            ),
            (
                "delay before a message is sent back",
                f"{_duration(letters.first_delay_seconds)}, doubled up to {_duration(LONGEST_DELAY_SECONDS)}",
                "RESEND_SECONDS",
            ),
            (
                "interval at which a resource is checked that a message waits for",
                _duration(letters.deferral_seconds),
                "DEFERRAL_SECONDS",
            ),
            (
                "age at which the archive deletes a record",
                f"{platform['DeadLetterArchiveDays']} days",
                "`DeadLetterArchiveDays`",
            ),
        ],
        "The sweeper": [
            ("interval of the sweeps", "1 minute", ""),
            (
                "silence after which a message counts as lost: its queue and dead-letter queue are empty",
                _duration(sweeps.idle_seconds),
                "SWEEP_IDLE_SECONDS",
            ),
            (
                "the same: only its queue is empty",
                _duration(sweeps.deferred_seconds),
                "SWEEP_DEFERRED_SECONDS",
            ),
            (
                "the same: its queue has a backlog",
                f"{_duration(sweeps.backlog_seconds)}, doubled up to {_duration(sweeps.longest_seconds)}",
                "SWEEP_RETENTION_SECONDS",
            ),
            (
                "time to split a run, before `run.split` is sent again",
                _duration(sweeps.split_seconds),
                "SWEEP_SPLIT_SECONDS",
            ),
            ("interval at which an open run is checked", _duration(sweeps.check_seconds), "SWEEP_CHECK_SECONDS"),
        ],
        "Retries inside a delivery": [
            (
                "backoff of a message after an error",
                f"{_duration(routing.FIRST_BACKOFF_SECONDS)}, doubled up to {_duration(routing.MAX_BACKOFF_SECONDS)}",
                "",
            ),
            ("transactions that collide on an item", f"for {_duration(dynamodb.CONFLICT_SECONDS)}", ""),
            (
                "entries of a batch that SQS or EventBridge refused",
                f"waits up to {_duration(transport.LAST_WAIT_SECONDS)}",
                "",
            ),
            (
                "requests of an AWS client: throttling, 5xx, no connection",
                f"{clients.CONFIG.retries['total_max_attempts']}, with a backoff",
                "",
            ),
            (
                "requests of the caption client: 429, 5xx, no connection",
                str(_of(WorkerSettings, "caption_tries")),
                "CAPTION_TRIES",
            ),
            (
                "posts to Discord: 429, 5xx, no connection",
                f"for {_duration(_of(NotifierSettings, 'post_seconds'))}",
                "POST_SECONDS",
            ),
            ("a URL to try again, or a task without a free slot", "once; then in a new message", ""),
            ("events of the bus that a queue does not accept", _event_retries(stacks), ""),
            ("posts of a webhook", f"given up after {_duration(webhook_retrying.PATIENCE.total_seconds())}", ""),
            (
                "backoff of a webhook",
                (
                    f"{_duration(webhook_retrying.FIRST_WAIT_SECONDS)}, tripled up to"
                    f" {_duration(webhook_retrying.LONGEST_WAIT_SECONDS)}"
                ),
                "",
            ),
        ],
        "The HTTP interface": [
            ("URLs in a request or a batch", f"{tasks.MAX_INLINE_URLS:,}", ""),
            ("body of a request", _size(api["max_body_bytes"].default), "MAX_BODY_BYTES"),
            (
                "time for a whole request to arrive",
                _duration(_of(runtime_settings.ServerSettings, "request_seconds")),
                "PRISMLINE_REQUEST_SECONDS",
            ),
            ("upload", _size(api["max_upload_bytes"].default), "MAX_UPLOAD_BYTES"),
            (
                "requests of a tenant",
                f"{api['requests_per_second'].default:g} a second, {api['request_burst'].default} at once",
                "REQUESTS_PER_SECOND, REQUEST_BURST",
            ),
            ("event streams of a tenant at a process", str(api["event_streams"].default), "EVENT_STREAMS"),
            (
                "entries of a page",
                f"{api_parameters.PAGE_ITEMS}, {api_parameters.MOST_PAGE_ITEMS:,} at most",
                "`limit`",
            ),
            (
                "validity of a link to a result or an export",
                (
                    f"{_duration(api_dependencies.LINK_SECONDS)}; on AWS it ends earlier, with the credentials of the"
                    " role that signed it"
                ),
                "",
            ),
            ("validity of a link to upload", _duration(api_dependencies.UPLOAD_SECONDS), ""),
            ("time that an upload waits for a job", f"{platform['UploadDays'] - 1} days", "`UploadDays`"),
            ("time that the object of an export is kept", f"{platform['ExportDays']} days", "`ExportDays`"),
            (
                "time for which the API knows an export",
                _duration(api_actions.EXPORT_SECONDS),
                "",
            ),
            ("memory of an `Idempotency-Key`", _duration(api_submission.KEY_SECONDS), ""),
            ("session of the console", _duration(sessions.SESSION_SECONDS), ""),
            (
                "delay before a job's items are deleted if its run does not end",
                _duration(deletion.PATIENCE_SECONDS),
                "",
            ),
        ],
    }
    for heading, rows in sections.items():
        text += f"## {heading}\n\n" + _table(
            ("limit", "value", "setting"),
            ((what, value, _setting(name)) for what, value, name in rows),
        )
    return text + "## Cubes\n\n" + _table(("limit", "value"), CUBES.items())


def _mib(n_bytes: int) -> str:
    return f"{n_bytes // 2**20} MiB"


#: The limits of cubes from outside.
CUBES = {
    "channels": f"{cube_limits.MAX_CHANNELS:,}",
    "axes, and the length of an axis": f"{cube_limits.MAX_AXES}, and {cube_limits.MAX_AXIS_LENGTH:,}",
    "spectral coordinate at the edge of the image, compared with that of the first pixel": (
        f"at most {MAX_SHIFT:g} channels away"
    ),
    "decoded values of a compressed file (`.gz`, `.fz`, Zarr)": (
        f"{cube_limits.MAX_EXPANSION} times its size, or {_mib(cube_limits.ALWAYS_EXPANDED_BYTES)} if that is more"
    ),
    "HDUs before the image, and bytes of all their headers": (
        f"{cube_limits.MAX_HDUS}, and {cube_limits.MAX_HEADER_BYTES / 10**6:.2f} MB"
    ),
    "characters of a text in the header that is used": f"{cube_limits.MAX_TEXT_LENGTH:,}",
    "compression of tiles": (
        f"{', '.join(f'`{name}`' for name in fpack.COMPRESSIONS)} (a damaged tile of HCOMPRESS_1 corrupts the memory of"
        " its decoder)"
    ),
    "gzip members": (
        f"{gunzip.ALWAYS_MEMBERS:,}; more hold at least {gunzip.LEAST_MEMBER_BYTES // 2**10} KiB on average"
    ),
    "a decoded tile, and the number of tiles": (
        f"{_mib(cube_limits.MAX_TILE_BYTES)}, and {fpack.ALWAYS_TILES:,};"
        f" more hold at least {fpack.LEAST_TILE_BYTES} bytes on average"
    ),
    "codecs of Zarr, at most one of the last three": ", ".join(f"`{name}`" for name in ZARR_CODECS),
    "a decoded chunk of Zarr, and the chunks of an array": (
        f"{_mib(cube_limits.MAX_STORED_CHUNK_BYTES)}, and {cube_limits.ALWAYS_STORED_CHUNKS:,};"
        f" more hold at least {cube_limits.LEAST_STORED_CHUNK_BYTES // 2**10} KiB on average"
    ),
    "chunks of a shard": f"{cube_limits.MAX_SHARD_CHUNKS:,}",
    "the list of members of a ZIP file": _mib(cube_limits.MAX_DIRECTORY_BYTES),
    "descriptions (`zarr.json`) in a Zarr file": (
        f"{cube_limits.MAX_DESCRIPTIONS}, together {_mib(cube_limits.MAX_DESCRIPTION_BYTES)}"
    ),
    "noise as text": f"{noise.CHANNEL_TEXT_BYTES} bytes for each channel, and {_mib(noise.COMMENT_BYTES)}",
}


def _setting(name: str) -> str:
    return name if "`" in name or not name else ", ".join(_code(each) for each in name.split(", "))


def _event_retries(stacks: Stacks) -> str:
    """How often the bus offers an event to the target of a rule, which every rule of ours has alike."""
    targets = [target for _, _, rule in of_kind(stacks, "Events::Rule") for target in rule["Targets"]]
    (policy,) = {tuple(target["RetryPolicy"].values()) for target in targets if "RetryPolicy" in target}
    seconds, times = policy
    return f"{times} times within {_duration(seconds)}, then the target's dead-letter queue"


def _of(settings: type[BaseSettings], name: str) -> Any:
    return settings.model_fields[name].default


# ---- events


def _events_page() -> str:
    registry = read_registry(ROOT / "contracts/registry")
    text = (
        "# Events and other contracts\n\nFor authors of services and of subscribers: who sends, writes and reads what."
        " Each contract has its JSON Schema, an\nexample and its history in"
        " [the registry](../../contracts/registry/README.md).\n\n"
    )
    headings = {
        Kind.MESSAGE: "Messages",
        Kind.ITEM: "Items of tables",
        Kind.OBJECT: "Objects in the bucket",
        Kind.MANIFEST: "Manifests",
    }
    for kind, heading in headings.items():
        rows = [
            (
                _code(name),
                _first_line(name),
                ", ".join(entry.producers),
                ", ".join(entry.consumers),
                "the bus" if entry.channel == "bus" else _code(entry.channel) if entry.channel else "",
            )
            for name, entry in registry.items()
            if entry.kind is kind
        ]
        head = ("contract", "what it says", "from", "read by", "bus or queue")
        last = 5 if kind is Kind.MESSAGE else 4
        text += f"## {heading}\n\n" + _table(head[:last], (row[:last] for row in rows))
    return text


def _first_line(name: str) -> str:
    model = MODELS.get(name)
    return ((model.__doc__ or "").split("\n\n")[0]) if model else "A file; see the registry."


# ---- templates


def _template_parameters_page() -> str:
    found: dict[tuple[str, str, str], dict[str, str]] = defaultdict(dict)
    stacks = read_stacks(pools=True)
    for stack, template in stacks.items():
        for name, each in template["Parameters"].items():
            values = ", ".join(_code(value) for value in each.get("AllowedValues", ())) if name != "LogDays" else ""
            default = "required" if "Default" not in each else _code(each["Default"]) if each["Default"] != "" else ""
            found[name, default, values][stack] = each.get("Description", "")
    text = (
        "# Template parameters\n\nFor the platform team. `prismline deploy --parameter NAME=VALUE` gives a value to"
        " every stack that declares the\nparameter; later deployments keep it. `ImageUri` and the likes of it are set"
        " by the deploy tool.\n\n"
    )
    return text + _table(
        ("parameter", "default", "values", "meaning", "stacks"),
        (
            (
                _code(name),
                default,
                values,
                max(meanings.values(), key=len),
                "all" if len(meanings) == len(stacks) else ", ".join(meanings),
            )
            for (name, default, values), meanings in sorted(found.items())
        ),
    )


def _alarms_page() -> str:
    rows = []
    for stack, _, alarm in of_kind(read_stacks(pools=True), "CloudWatch::Alarm"):
        name = str(alarm["AlarmName"]["Fn::Sub"]).removeprefix("prismline-${Environment}-").replace("${Pool}", "<pool>")
        threshold = alarm.get("Threshold")
        above = f"{_value(threshold)}" if threshold is not None else ""
        operator = str(alarm.get("ComparisonOperator", ""))
        sign = {"GreaterThanThreshold": ">", "GreaterThanOrEqualToThreshold": ">=", "LessThanThreshold": "<"}
        metric = alarm.get("MetricName")
        metric = metric if isinstance(metric, str) else "several metrics"
        rows.append(
            (
                _code(name),
                stack,
                f"{metric} {sign.get(operator, operator)} {above}",
                alarm.get("AlarmDescription", ""),
            )
        )
    text = (
        "# Alarms\n\nFor people on call: every alarm of the stacks. Its full name begins with"
        " `prismline-<environment>-`. [Alerts](../how-to/alerts.md)\nsays what to do about each.\n\n"
    )
    return text + _table(("alarm", "stack", "fires when", "what it means"), sorted(rows))


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return _code(referred(value)) if referred(value) else "a value that depends on parameters"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _log_lines_page() -> str:
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for path in sorted([*ROOT.glob("services/*/src/**/*.py"), *ROOT.glob("libs/*/src/**/*.py")]):
        where = path.relative_to(ROOT).parts
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("debug", "info", "warning", "error", "exception", "critical")
                and "logger" in ast.unparse(node.func.value).rpartition(".")[2]
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                found[str(node.args[0].value), node.func.attr].add(
                    where[1] if where[0] == "services" else "every service"
                )
    text = (
        "# Log lines\n\nFor people on call: the messages (`message` of a line) that the services write.\n"
        "[Read logs](../how-to/read-logs.md) says where, and which fields every line has.\n\n"
    )
    rows = [(_code(name), level, ", ".join(sorted(services))) for (name, level), services in sorted(found.items())]
    return text + _table(("message", "level", "service"), rows)


def _permissions_page() -> str:
    stacks = read_stacks(pools=True)
    text = (
        "# Roles and permissions\n\nFor the platform team: the roles of the stacks and the actions that each may take."
        " The templates also limit the resources.\nEvery role but the deployer has the boundary"
        " `prismline-<environment>-boundary-<region>`.\n\n"
    )
    rows = []
    for stack, logical_id, role in of_kind(stacks, "IAM::Role"):
        name = str(role.get("RoleName", {}).get("Fn::Sub", ""))
        name = name.replace("${Environment}", "<environment>").replace("${AWS::Region}", "<region>")
        policies = [
            role,
            *(
                stacks[stack]["Resources"].get(referred(each) or "", {}).get("Properties", {})
                for each in branches(role.get("ManagedPolicyArns", []))
            ),
        ]
        actions = sorted(
            {
                str(action)
                for policy in policies
                for statement in statements(policy)
                if statement.get("Effect") == "Allow"
                for action in branches(statement.get("Action", []))
            }
        )
        rows.append((_code(name or logical_id), stack, role.get("Description", ""), ", ".join(map(_code, actions))))
    return text + _table(("role", "stack", "for", "actions"), rows)


# ---- cost

#: Further list prices in USD: for a transition, an alarm metric in a month.
TRANSITION, ALARM_METRIC = 25e-6, 0.10
#: List prices of us-east-1 in USD for an hour: a GB of an ElastiCache Serverless cache, a vCPU and a GB of Fargate,
#: a NAT gateway.
CACHE_GB_HOUR, CPU_HOUR, MEMORY_HOUR, NAT_HOUR = 0.084, 0.04048, 0.004445, 0.045
#: Least size of a cache for Valkey that is paid for, in GB, and hours of a month.
SMALLEST_CACHE_GB, HOURS = 0.1, 730
#: Requests in a month of the pollers with which Lambda waits for messages of one queue: five long polls of 20 s.
POLLS = 5 * 30 * 86_400 // 20
#: Counted in benchmarks/end_to_end.md: a cube of 2,000,000 spectra with 424 channels, chunks that refer to it.
CHUNKS, RANGES, RANGES_OF = 31, 13_144, "2026-11-22"


def _cost_page() -> str:
    stacks = read_stacks()
    queues = len(list(of_kind(stacks, "Lambda::EventSourceMapping")))
    metrics = sum(_metrics(alarm) for _, _, alarm in of_kind(stacks, "CloudWatch::Alarm"))
    memory = stacks["worker"]["Resources"]["ChunksFunction"]["Properties"]["MemorySize"] / 1024
    sweeps = 30 * 24 * 60
    month = [
        (f"polls of {queues} queues", f"{queues * POLLS:,} requests", queues * POLLS * pricing.SQS_REQUEST),
        (f"alarms on {metrics} metrics", "", metrics * ALARM_METRIC),
        (
            "sweeps of an idle system, 0.5 GB for a second",
            f"{sweeps:,}",
            sweeps * (pricing.LAMBDA_REQUEST + 0.5 * pricing.GB_SECOND),
        ),
    ]
    chunk, _ = pricing.CHUNK
    seconds = CHUNKS * fit_costs.CHUNK_SECONDS
    run = [
        (f"work of {CHUNKS} chunks, {memory:.2f} GB", f"{seconds:,.0f} s", seconds * memory * pricing.GB_SECOND),
        ("ranges of the cube", f"{RANGES:,} requests", RANGES * pricing.S3_GET),
        (
            "ledger",
            f"{CHUNKS * chunk.write_units} write units, {CHUNKS * chunk.reads} reads",
            CHUNKS * (chunk.write_units * pricing.WRITE_UNIT + chunk.reads * pricing.READ_UNIT),
        ),
        (
            "queues, events, invocations, outputs",
            f"{CHUNKS} each, {CHUNKS * chunk.queue_requests} to queues",
            CHUNKS
            * (
                chunk.queue_requests * pricing.SQS_REQUEST
                + chunk.events * pricing.EVENT
                + chunk.invocations * pricing.LAMBDA_REQUEST
                + chunk.puts * pricing.S3_PUT
            ),
        ),
        ("steps of the state machine", "10", 10 * TRANSITION),
    ]
    head = ("what", "how much", "USD")
    text = (
        "# Cost\n\nFor the platform team. **Computed, not measured**: nothing has run on AWS. Check the prices before"
        " you rely on them.\n\n"
        + _table(
            ("figures", "from", "as of"),
            (
                ("prices", f"list prices of {pricing.PRICES_REGION}, without free tiers", pricing.PRICES_OF),
                ("queues, alarms, memory", "counted in the templates", "this release"),
                (
                    "chunks and ranges of the cube",
                    "counted by [a benchmark](../../benchmarks/end_to_end.md) on the emulator",
                    RANGES_OF,
                ),
                ("units of the ledger, requests to queues, events", "estimated from the code", "this release"),
            ),
        )
        + "## A month without runs\n\n"
    )
    idle = sum(each[2] for each in month)
    text += _table(head, [*_dollars(month), ("**together**", "", f"{idle:.2f}")])
    text += (
        "Storage, logs and backups come on top, by their size. A Valkey server, Fargate tasks and a GPU instance cost"
        " by the hour,\nwhether they have work or not.\n\n## Three forms\n\n"
        + _table(("", "Lambda (default)", "Lambda with Valkey", "Fargate"), _forms(idle))
        + "Tests run both forms of Lambda on the emulator, with rights enforced. Functions in a VPC also need a way out"
        f" of it:\na NAT gateway costs {HOURS * NAT_HOUR:.0f} USD a month.\n\n## A run\n\n"
        "A cube of 2,000,000 spectra with 424 channels, in"
        f" {CHUNKS} chunks that refer to it and that each take the longest planned\ntime of"
        f" {_duration(fit_costs.CHUNK_SECONDS)}, in Lambda:\n\n"
    )
    text += _table(head, [*_dollars(run, 4), ("**together**", "", f"{sum(each[2] for each in run):.4f}")])
    return text + (
        "`prismline run` shows the cost of every real run, and [the console](console.md) also its time, attempts and"
        " bytes. `submit` and `map` with `--estimate`, the console and `GET /v1/estimate` compute it before the"
        " submission, and say what is uncertain.\nA cost is a range: of the fewest and the most requests of an attempt"
        ", and of fetches that share\nthe time of a function or do not.\n"
        "In an outage of a resource each waiting message is received at [intervals](limits.md#dead-letters), which"
        " costs a few requests to\nqueues an hour.\n"
    )


def _forms(idle: float) -> Iterator[tuple[str, str, str, str]]:
    """What each form of the deployment does, and its cost in a month without runs."""
    cache = HOURS * SMALLEST_CACHE_GB * CACHE_GB_HOUR
    services = [each for _, _, each in of_kind(read_stacks(), "ECS::TaskDefinition")]
    tasks = HOURS * sum(int(each["Cpu"]) * CPU_HOUR + int(each["Memory"]) * MEMORY_HOUR for each in services) / 1024
    yield (
        "parameters",
        "none",
        "`DeployValkey=true`, `FunctionSubnetIds`, `FunctionSecurityGroupIds`",
        "`WorkerCompute=fargate`, subnets and security groups; Valkey for limits",
    )
    yield "the worker is", "functions", "functions in a VPC", f"{len(services)} services of `FargateMinimum` tasks"
    yield (
        "USD in a month without runs",
        f"{idle:.0f}",
        f"{idle + cache:.0f}",
        f"{idle + tasks:.0f}; with Valkey {idle + tasks + cache:.0f}",
    )
    many = "has [a queue of its own](../explanation/tasks-and-shards.md#queues-of-runs)"
    yield "a run of many tasks", "is in the shared queue, which SQS serves run by run", "the same", many
    yield "`max_concurrency`", "is refused at submission, with the reason", "is kept", "is kept with Valkey"
    per_process = "at most `TasksConcurrency` times `URLS_CONCURRENCY`"
    over_all = "at most `URLS_HOST_CONCURRENCY`"
    yield "requests to a host at a time", per_process, over_all, f"with Valkey {over_all}"
    yield "captions", "no: the GPU instance is in a VPC", "yes", "yes"


def _metrics(alarm: Mapping[str, Any]) -> int:
    found = alarm.get("Metrics")
    return 2 if isinstance(found, Mapping) else sum("MetricStat" in each for each in found) if found else 1


def _dollars(rows: Iterable[tuple[str, str, float]], digits: int = 2) -> Iterator[tuple[str, str, str]]:
    return ((what, how_much, f"{usd:.{digits}f}") for what, how_much, usd in rows)


# ---- the ledger and its output

_ITEMS = (
    ("run_item.v1", "Run item"),
    ("chunk_item.v1", "Chunk item"),
    ("task_item.v1", "Task item"),
    ("shard_item.v1", "Shard item"),
    ("recovery_operation_item.v1", "Item of a recovery"),
    ("repeated_error_item.v1", "Item of a repeated error"),
)


def _ledger_attributes_page() -> str:
    text = (
        "# Ledger attributes\n\nFor people on call and for authors of services: the attributes of the items in the"
        " table `prismline-<environment>-runs`.\n[Read the ledger](../how-to/read-the-ledger.md) says which attribute"
        " answers which question.\n\n"
    )
    for name, heading in _ITEMS:
        text += f"## {heading}\n\n{_first_line(name)}\n\n" + _fields(MODELS[name])
    return text


def _columns_page() -> str:
    doc = inspect.getsource(Flag)
    flags = re.findall(r"^    (\w+) = (\d+)\n    \"\"\"(.*?)\"\"\"", doc, re.MULTILINE | re.DOTALL)
    lists = {"list<element: double>": "list of double"}
    said = _enum_comments(MetadataKey)
    return (
        "# The columns of a decomposition\n\nFor everybody who reads the results of a run of `spectra`: the columns of"
        f" version {OUTPUT_VERSION} of the Parquet files. One row is one\nspectrum. Its components are lists: entry"
        " `i` of every list belongs to component `i`, and components are sorted by channel.\n[Read"
        " results](../how-to/read-results.md) explains widths, areas, errors and coordinates, and has examples.\n\n"
        "`{signal}` is the cube's BUNIT and `{axis}` the CUNIT of its spectral axis (the SI unit where the header has"
        " none).\n\n"
        + _table(
            ("column", "type", "unit", "meaning", "since"),
            (
                (
                    _code(each.name),
                    lists.get(each.type, each.type.value),
                    _code(each.unit.value) if "{" in each.unit.value else each.unit.value,
                    each.description,
                    each.since,
                )
                for each in COLUMNS
            ),
        )
        + "## Values of `status`\n\n"
        + _table(
            ("status", "meaning"),
            ((_code(each.value), _enum_comments(SpectrumStatus)[each.name]) for each in SpectrumStatus),
        )
        + "## Bits of `flags`\n\nOFFSET, SLOPE, RIPPLE and NEGATIVE mean that the spectrum is not flat at zero beside"
        " its lines: correct its baseline, or\ndo not trust faint and broad components. phspectra does not set"
        " them.\n\n"
        + _table(
            ("bit", "name", "meaning"), ((value, _code(name), text.replace("``", "`")) for name, value, text in flags)
        )
        + "## Metadata of a file\n\n"
        + _table(
            ("key", "value"),
            ((_code(each.value), said.get(each.name, "where the rows are from")) for each in MetadataKey),
        )
        + "gaussline adds `prismline_gaussline.median_correlation` and `prismline_gaussline.median_effective_channels`:"
        " its estimates of\nthe noise.\n"
    )


def _enum_comments(enum: type) -> dict[str, str]:
    found: dict[str, str] = {}
    lines: list[str] = []
    for line in inspect.getsource(enum).splitlines():
        if comment := re.match(r"    #: ?(.*)", line):
            lines.append(re.sub(r":\w+:`(\w+)`", r"`\1`", comment[1]))
        elif (member := re.match(r"    (\w+) = ", line)) and lines:
            found[member[1]] = " ".join(lines)
            lines = []
        else:
            lines = []
    return found


#: States that are no condition of a run: the state, and the field, the command and the element that show it.
_STATES = (
    ("run: pending, running, completed, failed, cancelled", "`status`, `error`", "`run`", "Status"),
    ("rate and time left of a run", "`pace`", "`watch`", "Rate, Time left"),
    ("failures of a run by their error", "`/causes` of the run", "`failures`", "Failures by error"),
    ("who asked for what, and when", "`events` of `/activity` of the run", "`jobs activity`", "What happened"),
    (
        "chunk, task: pending, in progress, completed, failed",
        "`status` of `/chunks`, `/tasks`",
        "`chunks`, `tasks`",
        "Cells, Table",
    ),
    (
        "chunk, task: retried after an error (3 of 5, next try at ...)",
        "`retry`",
        "`chunks`, `tasks`",
        "Cells: deferred; panel of the cell",
    ),
    ("message: waits, in flight, dead", "`queues` of `/system`", "`status`", "System"),
    ("dead letter: archived, recovered, failed again", "`/dead-letters`", "`deadletters ls`", "Dead letters"),
    ("export: pending, running, completed, failed", "`exports` of `/activity`", "`jobs exported`", "What happened"),
    ("webhook: pending, delivered, failed", "`webhooks` of `/activity`", "`jobs activity`", "What happened"),
    ("recovery: pending, running, completed", "`recoveries` of `/activity`", "`jobs recovery`", "What happened"),
)


def _states_page() -> str:
    comments = _enum_comments(ConditionName)
    rows = [
        (comments[condition.name].rstrip("."), f"`conditions`: `{condition}`", "`run`", "notice of the run")
        for condition in ConditionName
    ]
    return (
        "# States, and where they are seen\n\nFor operators: each state of a run, chunk, task, message, export, webhook"
        " and recovery, with the field of [the API](http-api.md), the command and the element of [the"
        " console](console.md) that show it. `prismline jobs run RUN` prints everything that the API says of a run."
        " [Tests](../../tests/console/test_states.py) drive a system into them and read all three.\n\n"
        + _table(("state", "field", "command", "console"), [*rows, *_STATES])
        + "\nA run that a manifest submitted is in lists when the status service knows it, and is found by its id"
        " before. A queue without a consumer is only known where a supervisor reports processes; on AWS, an alarm"
        " reports it. The next try of a chunk may begin earlier than its time says. Who asked for what, and the"
        " recoveries, are only recorded for runs of jobs, not of manifests.\n"
    )


PAGES: dict[str, Callable[[], str]] = {
    "commands": _commands_page,
    "run-parameters": _run_parameters_page,
    "columns": _columns_page,
    "events": _events_page,
    "settings": _settings_page,
    "template-parameters": _template_parameters_page,
    "limits": _limits_page,
    "permissions": _permissions_page,
    "cost": _cost_page,
    "alarms": _alarms_page,
    "log-lines": _log_lines_page,
    "ledger-attributes": _ledger_attributes_page,
    "states": _states_page,
}


def _wrapped(text: str) -> str:
    """A page whose paragraphs have lines of at most 100 columns. Tables, headings and code stay as they are."""
    lines, in_code = [], False
    for line in text.splitlines():
        in_code ^= line.startswith("```")
        if in_code or len(line) <= WIDTH or line.startswith(("|", "#", "<", " ")):
            lines.append(line)
        else:
            indent = "  " if line.startswith("- ") else ""
            lines += textwrap.wrap(
                line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
    return "\n".join(lines)


def pages() -> dict[Path, str]:
    """The generated pages by their paths."""
    return {FOLDER / f"{name}.md": f"{NOTE}{_wrapped(page().rstrip())}\n" for name, page in PAGES.items()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
