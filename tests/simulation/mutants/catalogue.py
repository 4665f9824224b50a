"""The deliberate faults: one place each, as a review could miss it, and what a user would suffer from it."""

from __future__ import annotations

from dataclasses import dataclass

LEDGER = "libs/ledger/src/prismline_ledger"
RUNTIME = "libs/runtime/src/prismline_runtime"
CONTRACTS = "contracts/src/prismline_contracts"
SPLITTER = "services/splitter/src/prismline_splitter"
WORKER = "services/worker/src/prismline_worker"
STATUS = "services/status/src/prismline_status"
DEAD = "services/dlq-consumer/src/prismline_dlq_consumer"
MACHINE = "services/status/statemachine/run.asl.json"


@dataclass(frozen=True)
class Mutant:
    """A fault: in `file`, `old`, which is there exactly once, becomes `new`."""

    name: str
    file: str
    old: str
    new: str
    #: What it would do to a user.
    harm: str
    #: Plans of `schedules.SCHEDULES` that are tried before random ones.
    schedules: tuple[str, ...] = ()
    #: Why no user and no check can tell the difference; None: the simulation has to find it.
    equivalent: str | None = None

    def applied(self, text: str) -> str:
        """`text` with the fault. Raises ValueError unless it is the text that the fault was written for."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} holds its old text {text.count(self.old)} times, not once")
        return text.replace(self.old, self.new)


MUTANTS: tuple[Mutant, ...] = (
    # ---- the ledger: the end of a chunk, counters, drain
    Mutant(
        "a chunk's end and its counter in two writes",
        f"{LEDGER}/base.py",
        """condition=as_read(chunk, *ENDED_ON, *guard)),
                    ),
                    *self._counting(""",
        """condition=as_read(chunk, *ENDED_ON, *guard)),
                    ),
                )
                self._table.transact(
                    *self._counting(""",
        "A worker that dies between the two leaves a run that never drains: it is running for ever.",
    ),
    Mutant(
        "a chunk ends whatever it is",
        f"{LEDGER}/base.py",
        "Change(sets, removes=removes, condition=as_read(chunk, *ENDED_ON, *guard))",
        'Change(fields, removes=removes, condition=Attr("PK").exists())',
        "Two workers that finish one chunk count it twice: the run is over while chunks are still worked on.",
        ("two workers complete a chunk",),
    ),
    Mutant(
        "a chunk is given up though something happened to it",
        f"{LEDGER}/base.py",
        "while chunk.state in ALLOWED_FROM[to] and all(getattr(chunk, name) == getattr(read, name) for name in guard):",
        "guard = ()\n        while chunk.state in ALLOWED_FROM[to]:",
        "A chunk fails while a worker has just begun to work on it.",
        ("a chunk that is given up is begun",),
    ),
    Mutant(
        "a failure is not taken back from the counter",
        f"{LEDGER}/transitions.py",
        "changes[_COUNTER[before]] = -1",
        "changes[_COUNTER[before]] = 0",
        "A chunk that was recovered counts as failed and as completed: the run stays failed.",
        ("recovered again and again",),
    ),
    Mutant(
        "drained before the total is final",
        f"{CONTRACTS}/items.py",
        "return self.latched_at is not None and self.terminal_chunks >= (self.chunks_total or 0)",
        "return self.chunks_total is not None and self.terminal_chunks >= self.chunks_total",
        "A run may be told to be over before the splitter is done with it.",
        ("a chunk ends before the latch",),
    ),
    Mutant(
        "a run drains on an old reading",
        f"{LEDGER}/base.py",
        'condition = as_read(run, "drained_at", "latched_at", *read)',
        'condition = as_read(run, "drained_at")',
        "A run that a recovery has just reopened is told to be over.",
        ("a run that drains is reopened",),
    ),
    Mutant(
        "drains are not counted",
        f"{LEDGER}/base.py",
        'adds={"drains": 1}',
        "adds={}",
        "The second drain of a recovered run has the event id of the first, so nobody takes it for news.",
        ("recovered again and again",),
    ),
    Mutant(
        "a drain leaves the end of a stop",
        f"{LEDGER}/base.py",
        'change = Change(sets, adds={"drains": 1}, removes=END, condition=condition)',
        'change = Change(sets, adds={"drains": 1}, condition=condition)',
        "A stopped run whose last chunks end afterwards keeps the end of the stop, and nobody hears that it drained.",
        ("a cancelled run drains",),
    ),
    Mutant(
        "a late success does not have the run looked at",
        f"{LEDGER}/base.py",
        "removes=END if late else (),",
        "removes=(),",
        "A chunk that completes after it was given up leaves its run failed.",
        ("a chunk that was given up completes",),
    ),
    Mutant(
        "a late success is said once",
        f"{LEDGER}/base.py",
        ' | ({"unsaid": True} if late else {})',
        "",
        "Nobody hears that a chunk completed whose worker died between writing its late success and saying so.",
        ("a chunk that was given up completes in silence",),
    ),
    # ---- the ledger: attempts
    Mutant(
        "an attempt begins after the end",
        f"{LEDGER}/attempts.py",
        '_MAY_START = Attr("status").is_in(sorted(ALLOWED_FROM[ChunkStatus.IN_PROGRESS]))',
        '_MAY_START = Attr("PK").exists()',
        "A message that comes twice takes a completed chunk back to in progress.",
    ),
    Mutant(
        "the first attempt moves",
        f"{LEDGER}/attempts.py",
        """"started_at": moment},
            defaults={"first_started_at": moment},""",
        """"started_at": moment, "first_started_at": moment},""",
        "A chunk whose workers die again and again is never given up: its run never ends.",
    ),
    Mutant(
        "an attempt is not counted",
        f"{LEDGER}/attempts.py",
        'adds={"attempts": 1},',
        "adds={},",
        "A chunk that kills its workers is tried for ever: its run never ends.",
        ("workers die",),
    ),
    Mutant(
        "an attempt ends though another one has begun",
        f"{LEDGER}/attempts.py",
        'condition=as_read(chunk, "status", "attempts"),\n        )\n        return self._update_chunk(chunk.run_id, '
        "chunk.chunk_id, change) is not None\n\n    def report_progress",
        'condition=Attr("PK").exists(),\n        )\n        return self._update_chunk(chunk.run_id, '
        "chunk.chunk_id, change) is not None\n\n    def report_progress",
        "A worker that had been presumed dead takes a chunk back that has completed.",
        ("an attempt ends after another one",),
    ),
    Mutant(
        "an outage counts as an attempt",
        f"{WORKER}/processing.py",
        "interrupted=isinstance(error, UnavailableError)",
        "interrupted=False",
        "An outage of S3 for two hours fails every chunk that was tried meanwhile.",
        ("S3 comes and goes",),
    ),
    Mutant(
        "interruptions are not taken off",
        f"{LEDGER}/judgement.py",
        "return chunk.attempts - chunk.interruptions",
        "return chunk.attempts",
        "An outage of S3 for two hours fails every chunk that was tried meanwhile.",
        ("S3 comes and goes",),
    ),
    Mutant(
        "patience is ignored",
        f"{LEDGER}/judgement.py",
        " or seconds_since(began, now) < patience.seconds:",
        ":",
        "A bad deployment of five minutes fails every chunk for good.",
        ("workers die",),
    ),
    Mutant(
        "a lease is ignored",
        f"{DEAD}/decisions.py",
        "if not leased(chunk, now, of_chunk):",
        "if True:",
        "A chunk is failed while a worker is at work on it.",
        ("a letter comes before its lease is over",),
    ),
    Mutant(
        "a sweep ignores leases",
        f"{DEAD}/sweep_decisions.py",
        "if leased(chunk, now, patience):",
        "if False:",
        "A chunk is failed, or begun a second time, while a worker is at work on it.",
        ("a sweep comes when an attempt begins",),
    ),
    # ---- the ledger: the slow lane
    Mutant(
        "rows that wait are not counted in the run",
        f"{LEDGER}/attempts.py",
        'adds = {"n_timed_out": n_timed_out} if n_timed_out else {}',
        "adds: dict[str, int] = {}",
        "`wait` ends before the slow lane has fitted its rows.",
        ("two slow lanes",),
    ),
    Mutant(
        "the number of rows may rise",
        f"{LEDGER}/attempts.py",
        "if remaining >= chunk.n_timed_out + chunk.n_refit_failed:",
        "if remaining == chunk.n_timed_out + chunk.n_refit_failed:",
        "Of two refits that overlap the slower one brings rows back that nobody fits: `wait` goes on for ever.",
        ("a patch is recorded late",),
    ),
    Mutant(
        "rows are counted on an old reading",
        f"{LEDGER}/attempts.py",
        "condition=as_read(chunk, *rows),",
        'condition=Attr("PK").exists(),',
        "Two refits that overlap take the same rows off the run's number twice.",
        ("a patch is recorded on an old reading",),
    ),
    Mutant(
        "rows of chunk and run in two writes",
        f"{LEDGER}/attempts.py",
        """condition=as_read(chunk, *rows),
                    ),
                ),
                self._table.changing(run_key""",
        """condition=as_read(chunk, *rows),
                    ),
                ),
            )
            self._table.transact(
                self._table.changing(run_key""",
        "A slow lane that dies between the two leaves rows that wait in the run and in no chunk.",
        ("two slow lanes",),
    ),
    Mutant(
        "a patch replaces what it has not read",
        f"{WORKER}/slow_lane.py",
        "bucket.replace(key, to_parquet(table), etag)",
        "bucket.write(key, to_parquet(table)) is None",
        "Of two patches that meet one is lost, and its rows are never fitted.",
        ("two patches meet",),
    ),
    # ---- the splitter
    Mutant(
        "the total is not checked",
        f"{LEDGER}/splitting.py",
        "if written != n_chunks or not divided:",
        "if False:",
        "Two different cuts of one source would make a run that ends at 8 of 4.",
        equivalent="the source and the chunk size are pinned, so that no two deliveries count differently;"
        " the check is there for a pin that fails",
    ),
    Mutant(
        "the pinned source is ignored",
        f"{SPLITTER}/pinning.py",
        "while name not in (plan := json.loads(self._run.plan or",
        "plan = {name: find()}\n        while name not in (plan or json.loads(self._run.plan or",
        "A cube that is replaced while it is split gives a run of two cubes.",
        ("a cube is replaced while it is split",),
    ),
    Mutant(
        "latched before the messages are sent",
        f"{SPLITTER}/splitting.py",
        "    todo = (chunk for chunk",
        "    run = ledger.latch(run_id)\n    todo = (chunk for chunk",
        "A splitter that dies in between leaves a run whose chunks nobody works on until the sweeper looks.",
        ("everybody dies",),
    ),
    Mutant(
        "nothing is sent to chunks that were tried",
        f"{SPLITTER}/splitting.py",
        "for chunk in ledger.chunks(run_id) if not chunk.state.terminal)",
        "for chunk in ledger.chunks(run_id) if chunk.attempts > 0)",
        "No chunk is worked on until the sweeper finds out.",
    ),
    Mutant(
        "a new item replaces an old one",
        f"{RUNTIME}/dynamodb.py",
        '"ConditionExpression": "attribute_not_exists(#key)",',
        '"ConditionExpression": "attribute_not_exists(#key) OR attribute_exists(#key)",',
        "A split that is repeated takes completed chunks back to PENDING.",
        ("two of everything, slowly", "everybody dies"),
    ),
    Mutant(
        "S3's 409 means that the object is there",
        f"{RUNTIME}/storage.py",
        'frozenset({"PreconditionFailed", "412"})',
        'frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict"})',
        "A chunk is completed and has no output.",
        ("answers are lost",),
    ),
    # ---- the worker
    Mutant(
        "an attempt that failed is acknowledged",
        f"{WORKER}/processing.py",
        "_give_back(start.chunk, error, _milliseconds(began), deps)\n        raise",
        "_give_back(start.chunk, error, _milliseconds(began), deps)\n        return",
        "A chunk that met an error waits until the sweeper finds that its message is lost.",
        ("an output cannot be written",),
    ),
    Mutant(
        "an existing output is taken for a complete one",
        f"{WORKER}/workloads/spectra.py",
        "rows = timed_out_rows(from_parquet(body))",
        "rows = []",
        "Rows that a worker before this one had no time for are never fitted.",
        ("workers freeze over slow rows", "two slow lanes"),
    ),
    Mutant(
        "an output is written over",
        f"{WORKER}/workloads/spectra.py",
        "if not bucket.create(key, body):",
        "if bucket.write(key, body):  # type: ignore[func-returns-value]",
        "A message that comes twice throws away what the slow lane has fitted.",
        ("an output comes late",),
    ),
    Mutant(
        "a permanent error leaves no dead letter",
        f"{WORKER}/processing.py",
        'deps.transport.dead_letter(message.delivery, {"error": str(error)})',
        "pass",
        "A chunk that failed for good cannot be recovered once the cause is mended.",
        ("recovered again and again",),
    ),
    Mutant(
        "a repeat says nothing of the end",
        f"{WORKER}/processing.py",
        "    if chunk.state.terminal:\n        announce(",
        "    if False:\n        announce(",
        "Nobody hears of a chunk whose worker died between writing its end and saying so.",
        ("workers die",),
    ),
    Mutant(
        "a stopped run is worked on",
        f"{WORKER}/processing.py",
        "if going.stopped(command.run_id):",
        "if False:",
        "A cancelled run goes on to use processors and the GPU.",
        ("cancelled while no worker runs", "cancelled with dead letters", "cancelled at once"),
    ),
    # ---- the status service
    Mutant(
        "a run that recovered stays failed",
        f"{STATUS}/settling.py",
        "if recovered(state, run):",
        "if False:",
        "A run is failed though none of its chunks is.",
        ("recovered once the cause is mended",),
    ),
    Mutant(
        "an end is recorded before it is announced",
        f"{STATUS}/settling.py",
        "    announce(state, deps)\n    _release(state, deps)\n",
        "    if run is not None and over(run):\n        deps.ledger.record_end(run, state.status)\n"
        "    announce(state, deps)\n    _release(state, deps)\n",
        "A status service that dies in between leaves an end that nobody hears of.",
    ),
    Mutant(
        "an end is recorded and its drain is not said",
        f"{STATUS}/settling.py",
        "if run is not None and run.drained_at is not None:\n        _say_drained(run, deps)",
        "if False:\n        _say_drained(run, deps)",
        "Nobody hears that a run drained whose last worker died before saying so.",
        ("an end is looked at before the drain is said",),
    ),
    Mutant(
        "an end is recorded of another reading",
        f"{LEDGER}/stopping.py",
        "condition=as_read(run, *read) & over)",
        "condition=over)",
        "A run that went on meanwhile keeps a status that is not its own: failed, though nothing failed.",
        ("an end is recorded late",),
    ),
    Mutant(
        "a newer token overwrites an older one",
        f"{STATUS}/workflow_state.py",
        'Change(includes={"waiting_tokens": {token}}, condition=running)',
        'Change({"waiting_tokens": {token}}, condition=running)',
        "The state machine waits a day with a token that nobody answers.",
        ("two tokens meet",),
    ),
    Mutant(
        "the reason of a failure is overwritten",
        f"{STATUS}/transitions.py",
        "first = _FIRST_STAYS if status in TERMINAL else frozenset()",
        "first: frozenset[str] = frozenset()",
        "A person who looks why a run failed reads something else.",
        ("a run fails for two reasons",),
    ),
    Mutant(
        "a status does not depend on the one before",
        f"{STATUS}/transitions.py",
        'condition = Attr("run_id").exists() & Attr("status").is_in(sources)',
        'condition = Attr("run_id").exists()',
        "A late update takes a run that has ended back to running.",
        ("the bus loses events", "the status service dies"),
    ),
    Mutant(
        "an announcement is noted and not made",
        f"{STATUS}/announcements.py",
        "    deps.transport.publish_event(event, traceparent=run.traceparent)\n"
        '    fault_point("status.published", run_id=run.run_id, status=run.status)\n    deps.table.mark_announced(run)',
        "    deps.table.mark_announced(run)\n"
        "    deps.transport.publish_event(event, traceparent=run.traceparent)\n"
        '    fault_point("status.published", run_id=run.run_id, status=run.status)',
        "A status service that dies in between leaves a run whose end nobody hears of.",
        ("the status service dies",),
    ),
    Mutant(
        "a late cleanup stops a recovery",
        f"{LEDGER}/splitting.py",
        'unless = unless & never_drained & unchanged({"resumed_at": resumed_at})',
        'unless = unless & unchanged({"resumed_at": resumed_at})',
        "The chunks that somebody has recovered are skipped.",
        ("a cleanup is carried out late",),
    ),
    Mutant(
        "a late stop stops a recovery",
        f"{LEDGER}/splitting.py",
        'unless = unless & never_drained & unchanged({"resumed_at": resumed_at})',
        "unless = unless & never_drained",
        "The chunks that somebody has recovered are skipped.",
        ("a stop comes late",),
    ),
    Mutant(
        "as many failures as tolerated are too many",
        MACHINE,
        '"NumericLessThanEqualsPath": "$.tolerated_failure_percent"',
        '"NumericLessThanPath": "$.tolerated_failure_percent"',
        "Every healthy run fails.",
    ),
    Mutant(
        "failures are not looked at",
        MACHINE,
        '"Default": "TooManyFailures"',
        '"Default": "UpdateStatusCompleted"',
        "A run with failed chunks is called completed.",
        ("recovered once the cause is mended",),
    ),
    Mutant(
        "nobody waits for the chunks",
        MACHINE,
        '"execution_arn.$": "$$.Execution.Id",\n            "wait_for": "drained"',
        '"execution_arn.$": "$$.Execution.Id"',
        "The state machine goes on as soon as the run is split, and fails it.",
    ),
    Mutant(
        "an answer is put where nobody looks for it",
        MACHINE,
        '"ResultPath": "$.running",',
        '"ResultPath": "$.split",',
        "The state machine does not find its answer, and the run fails.",
    ),
    # ---- the sweeper
    Mutant(
        "a run is closed too early",
        f"{LEDGER}/sweeping.py",
        """        if run.ended_at is None or (run.n_timed_out and run.cancelled_at is None):
            return False
        done = Attr("ended_at").exists() & as_read(run, "ended_at", "n_timed_out", "cancelled_at")""",
        """        done = Attr("PK").exists()""",
        "Nobody looks any more at a run that is not over: what is lost stays lost.",
    ),
    Mutant(
        "a run is closed while rows wait",
        f"{LEDGER}/sweeping.py",
        "if run.ended_at is None or (run.n_timed_out and run.cancelled_at is None):",
        "if run.ended_at is None:",
        "A lost message to the slow lane is never sent again.",
        ("two slow lanes",),
    ),
    Mutant(
        "a run is closed on an old reading",
        f"{LEDGER}/sweeping.py",
        'done = Attr("ended_at").exists() & as_read(run, "ended_at", "n_timed_out", "cancelled_at")',
        'done = Attr("PK").exists()',
        "A run that a recovery reopened at that moment is looked at no more.",
        ("a run is closed when it is reopened",),
    ),
    Mutant(
        "a run is never closed",
        f"{DEAD}/sweeper.py",
        "if right and seen_to_all:",
        "if False:",
        "Every sweep reads every run there ever was.",
    ),
    Mutant(
        "a drain is said once",
        f"{DEAD}/sweep_decisions.py",
        "if run.drained_at is not None:\n        return RunNews.DRAINED",
        "if run.drained_at is not None:\n        return None",
        "A run whose drain nobody heard stays running for 14 days.",
        ("a drain is said by nobody else",),
    ),
    Mutant(
        "a lost message is not missed",
        f"{DEAD}/sweep_decisions.py",
        "    return silent > limit[held()]",
        "    return silent > limit[held()] and False",
        "A message that is lost is lost: its run never ends.",
        ("messages are lost", "everybody dies", "recovered again and again"),
    ),
    Mutant(
        "a sweep does not note what it has not said",
        f"{DEAD}/sweeper.py",
        "give_up_chunk(chunk, error, unsaid=True)",
        "give_up_chunk(chunk, error, unsaid=False)",
        "Nobody hears of a chunk that a sweeper gave up before it died.",
        ("a sweeper gives up and dies",),
    ),
    Mutant(
        "counters are not corrected",
        f"{DEAD}/sweeper.py",
        "if wrong and not self._deps.ledger.correct_counters(run, wrong):",
        "if wrong:",
        "A run whose counters an older release left wrong never drains, or says other numbers than its chunks.",
        ("a wrong counter moves",),
    ),
    Mutant(
        "counters are corrected at once",
        f"{DEAD}/sweeper.py",
        "if not again.confirms(counted):",
        "if False:",
        "A sweep that counts while chunks end writes numbers that were never true.",
        ("a sweep counts while a chunk is tried again",),
    ),
    Mutant(
        "counters are corrected to an old count",
        f"{LEDGER}/sweeping.py",
        "Change(sets, condition=as_read(run, *COUNTERS))",
        'Change(counted, condition=Attr("PK").exists())',
        "A sweep that is slow takes back what has been counted since.",
        ("a wrong counter moves",),
    ),
    # ---- the dead-letter consumer
    Mutant(
        "a dead letter that cannot be archived is acknowledged",
        f"{DEAD}/healing.py",
        "    key = deps.archive.write(record)\n    fault_point",
        '    with suppress(TransientError):\n        deps.archive.write(record)\n    key = "unknown"\n    fault_point',
        "A dead letter that came while S3 was down is gone.",
        ("S3 is down for dead letters",),
    ),
    Mutant(
        "a deferred message is acknowledged",
        f"{DEAD}/healing.py",
        '"reason": decision.reason})\n    raise _DeferredError',
        '"reason": decision.reason})',
        "A window that waits for the GPU is gone until the sweeper misses it.",
        ("the GPU comes and goes",),
    ),
    Mutant(
        "what cannot be read is not there",
        f"{DEAD}/facts.py",
        "except TransientError as error:\n                self._read = error",
        "except TransientError:\n                self._read = ({}, {})",
        "While the ledger is down dead letters are given up, because their chunks seem to be gone.",
        ("the ledger is down for dead letters",),
    ),
    Mutant(
        "receipts are counted",
        f"{DEAD}/decisions.py",
        "if error := exhausted(chunk, now, of_chunk):",
        'if error := ("Given up." if letter.attempt + letter.receive_count > 4 else None):',
        "An outage of some minutes fails every chunk whose message was received meanwhile.",
        ("S3 is down", "the GPU comes and goes"),
    ),
    Mutant(
        "a message has ten minutes",
        f"{DEAD}/decisions.py",
        ">= patience.message_seconds:",
        ">= 600:",
        "An outage of an hour fails every run that was to be split.",
        ("S3 is down before the split",),
    ),
    Mutant(
        "an old error fails what a recovery reopened",
        f"{DEAD}/decisions.py",
        " and chunk.recovery in (None, letter.recovery):",
        ":",
        "A chunk that was recovered fails again because of its old dead letter, which nobody has tried again.",
        ("an old letter comes after a recovery",),
    ),
    Mutant(
        "an old attempt fails what a recovery reopened",
        f"{LEDGER}/attempts.py",
        'guard=("recovery",), attempt_error=attempt_error)',
        "attempt_error=attempt_error)",
        "A chunk that was recovered fails again because of what a worker met before.",
        ("an old attempt fails after a recovery",),
    ),
    Mutant(
        "a chunk is given up on an old reading",
        f"{DEAD}/healing.py",
        "finished = deps.ledger.give_up_chunk(chunk, error)",
        "finished = deps.ledger.fail_chunk(chunk, error)",
        "A chunk fails though a worker has begun to work on it meanwhile.",
        ("a chunk that is given up is begun",),
    ),
    # ---- recoveries
    Mutant(
        "reopened in two writes",
        f"{LEDGER}/recovering.py",
        "chunk.chunk_id), again),\n                *self",
        "chunk.chunk_id), again),\n            )\n            self._table.transact(\n                *self",
        "A recovery that dies in between leaves a run that is over while a chunk is tried again.",
        ("recovered again and again",),
    ),
    Mutant(
        "reopened and still drained",
        f"{LEDGER}/base.py",
        'removes=("drained_at", *END), condition=exists',
        "removes=END, condition=exists",
        "A recovered run is told to be over before its chunks are, and its status never changes.",
        ("recovered again and again",),
    ),
    Mutant(
        "reopened and still counted",
        f"{LEDGER}/base.py",
        "sets, adds, exists = self._opened(), dict(changes),",
        "sets, adds, exists = self._opened(), dict[str, int](),",
        "A recovered run is over before its chunks are.",
        ("recovered again and again",),
    ),
    Mutant(
        "reopened with its old attempts",
        f"{LEDGER}/recovering.py",
        '"interruptions": chunk.attempts,',
        '"interruptions": chunk.interruptions,',
        "A chunk that was recovered is given up at its first error.",
        ("recovered again and again",),
    ),
    Mutant(
        "reopened and not looked at",
        f"{LEDGER}/base.py",
        "sets, adds, exists = self._opened(), dict(changes),",
        "sets, adds, exists = dict[str, Any](), dict(changes),",
        "If the message of a recovered chunk is lost, nobody misses it.",
        ("recovered while consumers die", "recovered again and again"),
    ),
    Mutant(
        "a cancelled run is resumed",
        f"{LEDGER}/recovering.py",
        "if run.cancelled_at is None or not _may_go_on(run, cancelled_at):",
        "if run.cancelled_at is None:",
        "A run that a person cancelled goes on.",
        ("cancelled with dead letters", "cancelled at once"),
    ),
    Mutant(
        "an old cancellation stops a run that went on",
        f"{LEDGER}/splitting.py",
        'unless = unless & unchanged({"uncancelled_at": uncancelled_at})',
        "del uncancelled_at",
        "Somebody had a cancelled run go on, and the next message about it stops it.",
        ("cancelled, and goes on after all",),
    ),
    Mutant(
        "a run that went on stays cancelled",
        f"{STATUS}/endings.py",
        "if state.status != CANCELLED or run is None or run.uncancelled_at is None or not over(run):",
        "if True:",
        "All of its chunks complete, and nobody hears of it.",
        ("cancelled, and goes on after all",),
    ),
    Mutant(
        "a recovery is done when its messages are sent",
        f"{DEAD}/decisions.py",
        "return Step.WAIT if sent else Step.SEND",
        "return Step.DONE if sent else Step.SEND",
        "Records are deleted when they are sent: what fails again is in no archive.",
        ("recovered again and again", "recovered while consumers die"),
    ),
    Mutant(
        "a recovery that is done is not said again",
        f"{DEAD}/recovery.py",
        'if operation.status == "COMPLETED":\n        _say_recovered(operation, message, deps)\n        return',
        'if operation.status == "COMPLETED":\n        return',
        "Nobody hears that a recovery is done whose consumer died before saying so.",
        ("a recovery is done and not said",),
    ),
    Mutant(
        "a recovery is not handed on",
        f"{DEAD}/recovery.py",
        "deps.transport.send(Queue.RECOVERIES, [again], delay_seconds=delay)",
        "del again, delay",
        "A recovery never ends, and its records stay where it took them.",
        ("recovered again and again",),
    ),
    # ---- the runtime
    Mutant(
        "what raised is acknowledged",
        f"{RUNTIME}/routing.py",
        "self._transport.postpone(delivery, wait)\n                raise",
        "self._transport.postpone(delivery, wait)",
        "Whatever meets an error is lost.",
    ),
    Mutant(
        "refused events are forgotten",
        f"{RUNTIME}/transport.py",
        'strict=True) if answer.get("ErrorCode")]',
        'strict=True) if answer.get("ErrorCode") == ""]',
        "An event that EventBridge refused counts as said.",
        ("answers are lost",),
    ),
    Mutant(
        "a collision counts as written",
        f"{RUNTIME}/dynamodb.py",
        'raise _CollisionError(f"Could not {doing}: it collided with another write.") from error',
        "return {}",
        "A write that met another one is lost.",
        ("answers are lost",),
    ),
    Mutant(
        "an outage is permanent",
        f"{RUNTIME}/errors.py",
        'return UnavailableError(f"Could not {doing}: {error}")',
        'return PermanentError(f"Could not {doing}: {error}")',
        "A broken connection fails a chunk for good.",
        ("S3 is down",),
    ),
    Mutant(
        "a token that is gone is an outage",
        f"{RUNTIME}/transport.py",
        "if error_code(error) not in TOKEN_GONE_CODES:",
        "if error_code(error):",
        "Nobody answers the state machine that still waits: before it one is answered for ever that does not.",
        ("two tokens meet", "tokens meet"),
    ),
    Mutant(
        "an execution that is gone is waited for",
        f"{STATUS}/settling.py",
        "    if deps.executions.is_running(run.run_id):\n        return False\n",
        "    return False\n",
        "A run whose execution is gone never ends.",
        ("a drained run loses its execution",),
    ),
)
