"""What the code of a service does with prefixes of the bucket, with queues and with tables.

From a call such as `s3.put_object(Key=key)` or `table.update(...)`, the values of the argument are followed backwards:
through variables, parameters, fields and results of functions, until a prefix of `prismline_contracts.prefixes`, a
member of `Queue` or a table's setting is reached. Where the path of a value is not known, the derivation fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from mypy import nodes

from prismline_contracts import prefixes
from prismline_contracts.commands import Queue
from prismline_contracts.pools import POOL_QUEUE_PREFIX
from tests.templates.reading import REPOSITORY
from tests.templates.sources import Sources, infos_of, is_own, result_of

#: Functions of boto3's S3 client, the actions that each needs, and the argument with the key or prefix.
OBJECT_CALLS: dict[str, tuple[set[str], str | int]] = {
    "get_object": ({"s3:GetObject"}, "Key"),
    "head_object": ({"s3:GetObject"}, "Key"),
    "download_file": ({"s3:GetObject"}, 1),
    "put_object": ({"s3:PutObject"}, "Key"),
    "put_object_tagging": ({"s3:PutObjectTagging"}, "Key"),
    "upload_file": ({"s3:PutObject", "s3:AbortMultipartUpload"}, 2),
    "create_multipart_upload": ({"s3:PutObject"}, "Key"),
    "upload_part": ({"s3:PutObject"}, "Key"),
    "complete_multipart_upload": ({"s3:PutObject"}, "Key"),
    "abort_multipart_upload": ({"s3:AbortMultipartUpload"}, "Key"),
    "delete_objects": ({"s3:DeleteObject"}, "Delete"),
    "list_objects_v2": ({"s3:ListBucket"}, "Prefix"),
    "paginate": ({"s3:ListBucket"}, "Prefix"),
}
#: The same for boto3's SQS client.
QUEUE_CALLS: dict[str, tuple[set[str], str | int]] = {
    "get_queue_url": ({"sqs:GetQueueUrl"}, "QueueName"),
    "get_queue_attributes": ({"sqs:GetQueueAttributes"}, "QueueUrl"),
    "list_queue_tags": ({"sqs:ListQueueTags"}, "QueueUrl"),
    "send_message": ({"sqs:SendMessage"}, "QueueUrl"),
    "send_message_batch": ({"sqs:SendMessage"}, "QueueUrl"),
    "change_message_visibility": ({"sqs:ChangeMessageVisibility"}, "QueueUrl"),
    "create_queue": ({"sqs:CreateQueue", "sqs:TagQueue"}, "QueueName"),
    "delete_queue": ({"sqs:DeleteQueue"}, "QueueUrl"),
}
#: Methods of `prismline_runtime.Table`, and the actions that each needs.
TABLE_CALLS = {
    "get": {"dynamodb:GetItem"},
    "batch_get": {"dynamodb:BatchGetItem"},
    "query": {"dynamodb:Query"},
    "page": {"dynamodb:Query"},
    "page_of": {"dynamodb:Query"},
    "count": {"dynamodb:Query"},
    "scan": {"dynamodb:Scan"},
    "create": {"dynamodb:PutItem"},
    "creation": {"dynamodb:PutItem"},
    "update": {"dynamodb:UpdateItem"},
    "changing": {"dynamodb:UpdateItem"},
    "delete_each": {"dynamodb:BatchWriteItem"},
    "create_each": {"dynamodb:PutItem"},
    "change_each": {"dynamodb:UpdateItem"},
}
#: Queues of single runs, the queues whose messages the function receives, and the dead-letter queue of a queue.
RUN_QUEUES, OWN_QUEUES, DEAD_LETTERS = "tasks-*", "own", "-dlq"
#: Queues of pools.
POOL_QUEUES = f"{POOL_QUEUE_PREFIX}*"
SOURCES = tuple(prefixes.SOURCE_PREFIXES)
ARCHIVE = (prefixes.DEAD_LETTERS_PREFIX, prefixes.FAILED_DEAD_LETTERS_PREFIX, prefixes.RECOVERING_PREFIX)
#: What values are that code gets from outside, or that functions of the contracts compute.
KNOWN: dict[str, tuple[str, ...]] = {
    "prismline_contracts.manifest.SpectraManifest.cube_key": SOURCES,
    "prismline_contracts.manifest.FitParams.noise": SOURCES,
    "prismline_contracts.captions.FrameWindow.frames": SOURCES,
    "prismline_contracts.tasks.TaskList.key": SOURCES,
    "prismline_contracts.item_sources.ObjectItems.key": SOURCES,
    "prismline_contracts.item_sources.PrefixItems.prefix": SOURCES,
    "prismline_contracts.item_sources.InventoryItems.key": SOURCES,
    "prismline_contracts.jobs.ExportItem.key": (prefixes.EXPORTS_PREFIX,),
    "prismline_contracts.deadletters.RecoveryOperationItem.prefix": ARCHIVE,
    "prismline_contracts.deadletters.RecoveryOperationItem.record_keys": ARCHIVE,
    "prismline_contracts.commands.JobIngest.manifest_key": (prefixes.JOBS_PREFIX,),
    "prismline_contracts.commands.RunSplit.manifest_key": (prefixes.MANIFEST_PREFIX, prefixes.JOBS_PREFIX),
    "prismline_contracts.commands.run_queue_prefix": (RUN_QUEUES,),
    "prismline_contracts.commands.run_queue_name": (RUN_QUEUES,),
    "prismline_contracts.commands.task_queue_of": (Queue.TASKS.value, RUN_QUEUES, POOL_QUEUES),
    "prismline_contracts.pools.pool_queue": (POOL_QUEUES,),
    "prismline_runtime.delivery.Delivery.queue": (OWN_QUEUES,),
    "prismline_dlq_consumer.dead_letter.DeadLetterMessage.source_queue": (*Queue, POOL_QUEUES),
    "prismline_contracts.jobs.jobs_table_name": ("jobs",),
}
#: Settings with the names of tables.
TABLE_SETTINGS = {"runs_table": "runs", "jobs_table": "jobs", "workflow_state_table": "workflow-state"}
#: Types of values that are no names.
NO_NAMES = {"builtins.int", "builtins.float", "builtins.bool", "builtins.bytes"}
#: A function whose result is no name, whatever it takes.
MOMENT = "prismline_contracts.base.timestamp"
TABLE = "prismline_runtime.dynamodb.Table"
DEAD_LETTERS_OF = "prismline_contracts.commands.dead_letter_queue_name"
#: Functions whose result is one of their arguments, or lies below it: its position.
HANDS_ON = {
    "prismline_contracts.commands.queue_name": 1,
    "prismline_runtime.storage.Bucket.list": 0,
    "prismline_runtime.storage.Bucket.entries": 0,
    "prismline_dlq_consumer.archive.Archive.list": 0,
}
#: Functions that look at any queue of the environment, and one that signs no real key.
ANY_QUEUE = {
    "prismline_api.deployment.system.System._depth",
    "prismline_api.deployment.system.System._look_at",
    "prismline_alerting.facts.FactFinder._depth",
}
NO_OBJECT = {"prismline_api.console.upload_origin"}

#: Functions of the command `prismline` whose argument is not followed, and what they need: the methods of a cache,
#: reads of a cube that the user names, and the look-up of a queue's URL where the code sends no message.
DECLARED: dict[str, dict[str, str]] = {
    "prismline_runtime.storage.Bucket.open": {"s3:GetObject": prefixes.CUBES_PREFIX},
    "prismline_runtime.storage.Bucket._get_range": {"s3:GetObject": prefixes.CUBES_PREFIX},
    "prismline_cli.chunk_inputs.ChunkInputs._read_copy": {"s3:GetObject": prefixes.CHUNKS_PREFIX},
    "prismline_runtime.transport.Transport._look_up_queue_url": {},
}
#: Functions of the command that use a parameter, and which: the end of its name.
PARAMETERS = {
    "prismline_cli.connection.Connection.bucket": "platform/bucket",
}
PARAMETER_CALLS = {"get_parameter": "ssm:GetParameter", "put_parameter": "ssm:PutParameter"}

TABLES = frozenset(TABLE_SETTINGS.values())
ALL_QUEUES = frozenset({*Queue, RUN_QUEUES, POOL_QUEUES} | {f"{each}{DEAD_LETTERS}" for each in (*Queue, POOL_QUEUES)})
QUEUES = ALL_QUEUES | {OWN_QUEUES, f"{OWN_QUEUES}{DEAD_LETTERS}"}
PREFIXES = frozenset(value for name, value in vars(prefixes).items() if name.endswith("_PREFIX"))


@dataclass(frozen=True)
class Need:
    """An action on a prefix of the bucket, a queue or a table, and the function that takes it."""

    action: str
    #: A prefix, the short name of a queue, or the short name of a table, perhaps with `/index/<name>`.
    on: str
    #: Its full name and the line.
    function: str


@cache
def needs_of(entry: str) -> frozenset[Need]:
    """What the code needs whose handler is in the module `entry`. Raises LookupError if that cannot be told."""
    return frozenset(_Flow(_sources(), entry).needs())


@cache
def _sources() -> Sources:
    return Sources(REPOSITORY)


@cache
def needs_of_command(entry: str) -> frozenset[Need]:
    """What the commands of the module `entry` of `prismline_cli` need, with parameters and events."""
    return frozenset(_CommandFlow(_sources(), entry).needs())


class _Flow:
    """The values in the code that is reached from the module `entry`."""

    def __init__(self, sources: Sources, entry: str) -> None:
        self._sources = sources
        self._reached = sources.reached(entry)

    def needs(self) -> Iterator[Need]:
        for function in self._reached - self._sources.methods_of(TABLE):
            name = getattr(function, "fullname", "")
            for call in self._sources.calls[function]:
                where = f"{name}:{call.line}"
                for actions, on in self._uses(call, name, where):
                    yield from (Need(action, each, where) for action in actions for each in on)

    def _uses(self, call: nodes.CallExpr, name: str, where: str) -> Iterator[tuple[set[str], set[str]]]:
        """The actions of a call, and on what they are."""
        callee = call.callee
        if not isinstance(callee, nodes.MemberExpr) or name in NO_OBJECT:
            return
        if callee.name in TABLE_CALLS and self._is_table(callee.expr):
            index = _argument(call, "index")
            suffix = f"/index/{index.value}" if isinstance(index, nodes.StrExpr) else ""
            yield TABLE_CALLS[callee.name], {f"{table}{suffix}" for table in self._known(callee.expr, TABLES, where)}
        elif callee.name == "generate_presigned_url":  # whoever has the link acts with the rights of the signer
            signed, params = call.args[0], _argument(call, "Params")
            assert isinstance(signed, nodes.StrExpr)
            assert params is not None
            yield OBJECT_CALLS[signed.value][0], self._known(params, PREFIXES, where)
        elif callee.name in OBJECT_CALLS | QUEUE_CALLS:
            actions, which = (OBJECT_CALLS | QUEUE_CALLS)[callee.name]
            if name in ANY_QUEUE:
                yield actions, set(ALL_QUEUES)
            elif (value := _argument(call, which)) is not None:  # not a call of boto3, or a paginator without a prefix
                yield actions, self._known(value, PREFIXES if callee.name in OBJECT_CALLS else QUEUES, where)

    def _is_table(self, expression: nodes.Expression) -> bool:
        return any(info.has_base(TABLE) for info in self._sources.infos(expression))

    def _known(self, value: nodes.Expression, kind: frozenset[str], where: str) -> set[str]:
        found = self._origins(value) & kind
        if not found:
            raise LookupError(f"{where}: nothing tells where this key, queue or table comes from.")
        return found

    def _origins(self, expression: nodes.Expression) -> set[str]:
        """The prefixes, queues and tables from which a value comes. Only calls in reached functions count.

        Any service may have written a field of a message or of an item, so behind such a field all calls count.
        """
        seen: set[tuple[nodes.Node, str, bool]] = set()
        todo: list[tuple[nodes.Node, str, bool]] = [(expression, "", False)]
        found: set[str] = set()
        while todo:
            node, suffix, anywhere = step = todo.pop()
            if step in seen:
                continue
            seen.add(step)
            anywhere |= isinstance(node, nodes.Var) and node.fullname.startswith("prismline_contracts.")
            for before in self._before(node, anywhere=anywhere):
                if isinstance(before, str):
                    found.add(before + suffix)
                else:
                    named = isinstance(node, nodes.CallExpr) and self._names_dead_letters(node)
                    todo.append((before, DEAD_LETTERS + suffix if named else suffix, anywhere))
        return found

    def _names_dead_letters(self, call: nodes.CallExpr) -> bool:
        return any(getattr(target, "fullname", "") == DEAD_LETTERS_OF for target in self._sources.referred(call.callee))

    def _before(self, node: nodes.Node, *, anywhere: bool) -> Iterator[nodes.Node | str]:
        """Where a value comes from: known texts, and other nodes. A number or the content of an object has none."""
        type_ = node.type if isinstance(node, nodes.Var) else self._sources.types.get(node)
        if {info.fullname for info in infos_of(type_)} & NO_NAMES:
            return
        match node:
            case nodes.RefExpr():
                constant = _constant(node)
                yield from [constant] if constant is not None else self._sources.referred(node)
            case nodes.Var():
                yield from self._before_variable(node, anywhere=anywhere)
            case nodes.FuncBase() if node.fullname == MOMENT:
                return
            case nodes.FuncBase() if node.name in TABLE_SETTINGS:  # a property of the command's connection
                yield TABLE_SETTINGS[node.name]
            case nodes.FuncBase():
                yield from KNOWN.get(node.fullname) or self._sources.returned[node]
            case nodes.CallExpr():
                yield from self._before_call(node)
            case _:
                yield from _parts(node)

    def _before_variable(self, variable: nodes.Var, *, anywhere: bool) -> Iterator[nodes.Node | str]:
        if variable.fullname in KNOWN:
            yield from KNOWN[variable.fullname]
        elif variable.name in TABLE_SETTINGS:
            yield TABLE_SETTINGS[variable.name]
        else:
            yield from self._sources.values[variable]
            given = self._sources.given[variable]
            yield from (value for function, value in given if anywhere or function in self._reached)

    def _before_call(self, call: nodes.CallExpr) -> Iterator[nodes.Node]:
        targets = [each for each in self._sources.referred(call.callee) if is_own(each)]
        for target in targets:
            name = target.fullname
            if name in HANDS_ON or name == DEAD_LETTERS_OF:
                yield call.args[HANDS_ON.get(name, 0)]
            elif name == TABLE:
                yield call.args[1]  # a table is what its name says
            elif isinstance(target, nodes.FuncBase) and getattr(target.type, "variables", ()):
                yield from call.args  # a generic function gives what it takes
            elif isinstance(target, nodes.FuncBase):  # an object of a class is no name, but its fields may be
                yield target
        if not targets:
            if isinstance(call.callee, nodes.MemberExpr):
                yield call.callee.expr
            yield from _first_part(call) or call.args


class _CommandFlow(_Flow):
    """The same for the command. It also reads parameters and publishes events."""

    def _uses(self, call: nodes.CallExpr, name: str, where: str) -> Iterator[tuple[set[str], set[str]]]:
        called = call.callee.name if isinstance(call.callee, nodes.MemberExpr) else ""
        if called in PARAMETER_CALLS:
            yield {PARAMETER_CALLS[called]}, {PARAMETERS[name]}
        elif called == "put_events":
            yield {"events:PutEvents"}, {"the bus"}
        else:
            try:
                yield from list(super()._uses(call, name, where))
            except LookupError:
                yield from (({action}, {on}) for action, on in DECLARED[name].items())


def _first_part(call: nodes.CallExpr) -> list[nodes.Expression]:
    """The first part of an f-string, which mypy reads as `"".join([...])`: the other parts do not tell the prefix."""
    joins = isinstance(call.callee, nodes.MemberExpr) and call.callee.name == "join"
    return call.args[0].items[:1] if joins and isinstance(call.args[0], nodes.ListExpr) else []


def _constant(reference: nodes.RefExpr) -> str | None:
    """The value of a prefix, of a queue, or None."""
    module, _, name = reference.fullname.rpartition(".")
    if module == prefixes.__name__ and isinstance(value := getattr(prefixes, name, None), str):
        return value
    of = reference.expr if isinstance(reference, nodes.MemberExpr) else None
    if isinstance(of, nodes.RefExpr) and of.fullname == f"{Queue.__module__}.Queue":
        return Queue[reference.name].value if reference.name in Queue.__members__ else None
    return None


def _argument(call: nodes.CallExpr, which: str | int) -> nodes.Expression | None:
    if isinstance(which, int):
        return call.args[which] if which < len(call.args) else None
    return next((value for name, value in zip(call.arg_names, call.args, strict=True) if name == which), None)


def _parts(node: nodes.Node) -> Iterator[nodes.Node]:
    """The expressions in an expression."""
    match node:
        case nodes.OpExpr():
            yield from (node.left, node.right) if node.op in ("or", "and", "|") else (node.left,)
        case nodes.IndexExpr():
            yield node.base
        case nodes.DictExpr():
            yield from (value for _, value in node.items)
        case nodes.LambdaExpr():
            yield result_of(node)
        case nodes.ConditionalExpr():
            yield from (node.if_expr, node.else_expr)
        case nodes.TupleExpr() | nodes.ListExpr() | nodes.SetExpr():
            yield from node.items
        case nodes.ListComprehension() | nodes.SetComprehension():
            yield node.generator.left_expr
        case nodes.GeneratorExpr():
            yield node.left_expr
        case nodes.DictionaryComprehension():
            yield from (node.key, node.value)
        case nodes.StarExpr() | nodes.AwaitExpr():
            yield node.expr
        case nodes.AssignmentExpr():
            yield node.value
