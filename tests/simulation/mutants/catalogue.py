"""The mutants: deliberate bugs in one place, such that a review could miss them, with their effect on a user."""

from __future__ import annotations

from tests.simulation.mutants.changes import Rewrite, Setting
from tests.simulation.mutants.functions import FUNCTION_MUTANTS
from tests.simulation.mutants.lists import LIST_MUTANTS
from tests.simulation.mutants.mutant import Mutant

MACHINE = "services/status/statemachine/run.asl.json"


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a chunk's end and its counter in two writes",
        Rewrite(
            "prismline_ledger:_end_chunk",
            "self._table.transact(X, ...)",
            "self._table.transact(X)\nself._table.transact(...)",
        ),
        "If a worker dies between the two, the run never drains and stays running for ever.",
    ),
    Mutant(
        "a chunk ends whatever it is",
        Rewrite(
            "prismline_ledger:_end_chunk",
            "Change(sets, ..., condition=as_read(chunk, ...))",
            'Change(fields, ..., condition=Attr("PK").exists())',
        ),
        "If two workers finish one chunk, it counts twice, and the run ends while chunks are still being processed.",
        ("two workers complete a chunk",),
    ),
    Mutant(
        "a chunk is given up though something happened to it",
        Rewrite(
            "prismline_ledger:_end_chunk",
            "all(getattr(chunk, name) == getattr(read, name) for name in guard)",
            "not (guard := ())",
        ),
        "A chunk fails although a worker has just begun an attempt.",
        ("a chunk that is given up is begun",),
    ),
    Mutant(
        "a failure is not taken back from the counter",
        Rewrite("prismline_ledger:counter_changes", "changes[_COUNTER[before]] = -1", "changes[_COUNTER[before]] = 0"),
        "A recovered chunk counts as failed and as completed, so the run stays failed.",
        ("recovered again and again",),
    ),
    Mutant(
        "drained before the total is final",
        Rewrite(
            "prismline_contracts:all_terminal",
            "return self.latched_at is not None and self.terminal_chunks >= (self.chunks_total or 0)",
            "return self.chunks_total is not None and self.terminal_chunks >= self.chunks_total",
        ),
        "A run may be announced as ended before the splitter has finished.",
        ("a chunk ends before the latch",),
    ),
    Mutant(
        "a run drains on an old reading",
        Rewrite(
            "prismline_ledger:drain",
            'condition = as_read(run, "drained_at", "latched_at", *read)',
            'condition = as_read(run, "drained_at")',
        ),
        "A run that a recovery has just reopened is announced as ended.",
        ("a run that drains is reopened",),
    ),
    Mutant(
        "drains are not counted",
        Rewrite("prismline_ledger:drain", '{"drains": 1}', "{}"),
        "The second drain of a recovered run has the event id of the first, so subscribers ignore it.",
        ("recovered again and again",),
    ),
    Mutant(
        "a drain leaves the end of a stop",
        Rewrite("prismline_ledger:drain", "Change(sets, ..., removes=END)", "Change(sets, ...)"),
        "A stopped run whose last chunks end later keeps the recorded end of the stop, and its drain is not announced.",
        ("a cancelled run drains",),
    ),
    Mutant(
        "a late success does not have the run looked at",
        Rewrite(
            "prismline_ledger:_counting",
            "Change(self._opened() if late else {}, ..., removes=END if late else ())",
            "Change(self._opened() if late else {}, ...)",
        ),
        "A chunk that completes after it was given up leaves its run failed.",
        ("a chunk that was given up completes",),
    ),
    Mutant(
        "a late success is announced once",
        Rewrite("prismline_ledger:_end_chunk", 'X | ({"unsaid": True} if late else {})', "X"),
        "If a worker dies between the write of a late success and its announcement, the success is never announced.",
        ("a chunk that was given up completes in silence",),
    ),
    # ---- the ledger: attempts
    Mutant(
        "an attempt begins after the end",
        Rewrite("prismline_ledger:_MAY_START", 'Attr("status").is_in(X)', 'Attr("PK").exists()'),
        "A message that is delivered twice puts a completed chunk back to IN_PROGRESS.",
    ),
    Mutant(
        "the first attempt moves",
        Rewrite(
            "prismline_ledger:start_chunk",
            'Change(Y, ..., defaults={"first_started_at": X})',
            'Change(Y | {"first_started_at": X}, ...)',
        ),
        "A chunk whose workers die every time is never given up, so its run never ends.",
    ),
    Mutant(
        "an attempt is not counted",
        Rewrite("prismline_ledger:start_chunk", '{"attempts": 1}', "{}"),
        "A chunk that kills its workers is retried for ever, so its run never ends.",
        ("workers die",),
    ),
    Mutant(
        "an attempt ends though another one has begun",
        Rewrite("prismline_ledger:end_attempt", 'as_read(chunk, "status", "attempts")', 'Attr("PK").exists()'),
        "A worker that was presumed dead puts a completed chunk back to PENDING.",
        ("an attempt ends after another one",),
    ),
    Mutant(
        "an outage counts as an attempt",
        Rewrite("prismline_worker:_give_back", "isinstance(error, UnavailableError)", "False"),
        "An outage of S3 for two hours fails every chunk that was tried meanwhile.",
        ("S3 comes and goes",),
    ),
    Mutant(
        "interruptions are not taken off",
        Rewrite(
            "prismline_ledger:attempts_used", "return chunk.attempts - chunk.interruptions", "return chunk.attempts"
        ),
        "An outage of S3 for two hours fails every chunk that was tried meanwhile.",
        ("S3 comes and goes",),
    ),
    Mutant(
        "patience is ignored",
        Rewrite(
            "prismline_ledger:exhausted",
            "X or began is None or seconds_since(began, now) < patience.seconds",
            "X or began is None",
        ),
        "A bad deployment of five minutes fails every chunk for good.",
        ("workers die",),
    ),
    Mutant(
        "a lease is ignored",
        Rewrite("prismline_dlq_consumer:_judge_chunk", "leased(...)", "False"),
        "A chunk fails while a worker processes it.",
        ("a letter comes before its lease is over",),
    ),
    Mutant(
        "a sweep ignores leases",
        Rewrite("prismline_dlq_consumer:_sweep_attempt", "leased(...)", "False"),
        "A chunk fails or is begun a second time while a worker processes it.",
        ("a sweep comes when an attempt begins",),
    ),
    # ---- the ledger: the slow lane
    Mutant(
        "rows that wait are not counted in the run",
        Rewrite(
            "prismline_ledger:complete_chunk",
            '{"n_timed_out": outcome.n_timed_out} if outcome.n_timed_out else {}',
            "{}",
        ),
        "`wait` ends before the slow lane has fitted its rows.",
        ("two slow lanes",),
    ),
    Mutant(
        "the number of rows may rise",
        Rewrite("prismline_ledger:record_refit", "remaining >= X", "remaining == X"),
        "If two refits overlap, the slower one adds rows again that no refit will fit, so `wait` never ends.",
        ("a patch is recorded late",),
    ),
    Mutant(
        "rows are counted on an old reading",
        Rewrite("prismline_ledger:_set_rows", "as_read(chunk, *rows)", 'Attr("PK").exists()'),
        "Two refits that overlap take the same rows off the run's number twice.",
        ("a patch is recorded on an old reading",),
    ),
    Mutant(
        "rows of chunk and run in two writes",
        Rewrite(
            "prismline_ledger:_set_rows",
            "self._table.transact(X, ...)",
            "self._table.transact(X)\nself._table.transact(...)",
        ),
        "If a slow lane dies between the two, the run counts waiting rows that no chunk has.",
        ("two slow lanes",),
    ),
    Mutant(
        "a patch replaces what it has not read",
        Rewrite("prismline_worker:_patch_output", "bucket.replace(X, Y, etag)", "bucket.write(X, Y) is None"),
        "If two patches overlap, one is lost and its rows are never fitted.",
        ("two patches meet",),
    ),
    # ---- the splitter
    Mutant(
        "the total is not checked",
        Rewrite("prismline_ledger:set_total", "written != n_chunks or not divided", "False"),
        "Two different splits of one source would make a run that ends at 8 of 4 chunks.",
        equivalent="the source and the chunk size are pinned, so that no two deliveries count differently;"
        " the check is there for a pin that fails",
    ),
    Mutant(
        "the pinned source is ignored",
        Rewrite(
            "prismline_splitter:Plan.pinned",
            "while name not in (plan := X):\n    ...",
            "plan = {name: find()}\nwhile name not in (plan or X):\n    ...",
        ),
        "If a cube is replaced during the split, the run has chunks of two cubes.",
        ("a cube is replaced while it is split",),
    ),
    Mutant(
        "latched before the messages are sent",
        Rewrite(
            "prismline_splitter:split_run",
            "transport.send(Queue.CHUNKS, ...)",
            "run = ledger.latch(run_id)\ntransport.send(Queue.CHUNKS, ...)",
        ),
        "If a splitter dies in between, no worker gets the chunks until the sweeper sends them.",
        ("everybody dies",),
    ),
    Mutant(
        "nothing is sent to chunks that were tried",
        Rewrite("prismline_splitter:split_run", "not chunk.state.terminal", "chunk.attempts > 0"),
        "No chunk is processed until the sweeper sends it.",
    ),
    Mutant(
        "a new item replaces an old one",
        Rewrite(
            "prismline_runtime:_creation",
            '"attribute_not_exists(#key)"',
            '"attribute_not_exists(#key) OR attribute_exists(#key)"',
        ),
        "A repeated split puts completed chunks back to PENDING.",
        ("two of everything, slowly", "everybody dies"),
    ),
    Mutant(
        "S3's 409 means that the object is there",
        Rewrite(
            "prismline_runtime:_CONDITION_CODES",
            'frozenset({"PreconditionFailed", "412"})',
            'frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict"})',
        ),
        "A chunk is COMPLETED without an output.",
        ("answers are lost",),
    ),
    # ---- the worker
    Mutant(
        "an attempt that failed is acknowledged",
        Rewrite("prismline_worker:_process", "_give_back(...)\nraise", "_give_back(...)\nreturn None"),
        "A chunk whose attempt failed waits until the sweeper finds that its message is lost.",
        ("an output cannot be written",),
    ),
    Mutant(
        "an existing output is taken for a complete one",
        Rewrite("prismline_worker:SpectraWorkload.process", "timed_out_rows(...)", "[]"),
        "Rows for which an earlier worker had no time are never fitted.",
        ("workers freeze over slow rows", "two slow lanes"),
    ),
    Mutant(
        "an output is written over",
        Rewrite("prismline_worker:SpectraWorkload.process", "not bucket.create(key, body)", "bucket.write(key, body)"),
        "A message that is delivered twice overwrites the rows that the slow lane has fitted.",
        ("an output comes late",),
    ),
    Mutant(
        "a permanent error leaves no dead letter",
        Rewrite("prismline_worker.processing:_attempt", "deps.transport.dead_letter(...)", "None"),
        "A chunk with a permanent error cannot be recovered after the cause is removed.",
        ("recovered again and again",),
    ),
    Mutant(
        "a repeat does not announce the end",
        Rewrite("prismline_worker:_skip", "chunk.state.terminal", "False"),
        "If a worker dies between the write of a chunk's end and its announcement, the end is never announced.",
        ("workers die",),
    ),
    Mutant(
        "a stopped run is worked on",
        Rewrite("prismline_worker:on_chunk_process", "run_states.stopped(command.run_id)", "False"),
        "A cancelled run continues to use processors and the GPU.",
        ("cancelled while no worker runs", "cancelled with dead letters", "cancelled at once"),
    ),
    # ---- the status service
    Mutant(
        "a run that recovered stays failed",
        Rewrite("prismline_status:_announce_end", "recovered(state, run)", "False"),
        "A run is failed though none of its chunks is.",
        ("recovered once the cause is mended",),
    ),
    Mutant(
        "an end is recorded before it is announced",
        Rewrite(
            "prismline_status:_announce_end",
            "announce(state, deps)",
            "if run is not None and over(run):\n    deps.ledger.record_end(run, state.status)\nannounce(state, deps)",
        ),
        "If a status service dies in between, the end is never announced.",
    ),
    Mutant(
        "an end is recorded and its drain is not announced",
        Rewrite("prismline_status:_announce_end", "_announce_drained(run, deps)", "None"),
        "If the last worker dies before it announces the drain, the drain is never announced.",
        ("an end is checked before the drain is announced",),
    ),
    Mutant(
        "an end is recorded of another reading",
        Rewrite("prismline_ledger:record_end", "as_read(run, *read) & over", "over"),
        "A run that continued meanwhile keeps a wrong status: failed, although no chunk failed.",
        ("an end is recorded late",),
    ),
    Mutant(
        "a newer token overwrites an older one",
        Rewrite(
            "prismline_status:add_waiting",
            "Change(includes=X, condition=Y)",
            "Change(X, condition=Y)",
        ),
        "The state machine waits a day with a token that is never answered.",
        ("two tokens meet",),
    ),
    Mutant(
        "the reason of a failure is overwritten",
        Rewrite("prismline_status:build_change", "_FIRST_STAYS if status in TERMINAL else frozenset()", "frozenset()"),
        "The run shows another reason than the one for which it failed.",
        ("a run fails for two reasons",),
    ),
    Mutant(
        "a status does not depend on the one before",
        Rewrite("prismline_status:build_transition_condition", 'X & Attr("status").is_in(Y)', "X"),
        "A late update sets an ended run back to running.",
        ("the bus loses events", "the status service dies"),
    ),
    Mutant(
        "an announcement is noted and not made",
        Rewrite(
            "prismline_status:announce",
            "deps.transport.publish_event(...)\ndeps.table.mark_announced(run)",
            "deps.table.mark_announced(run)\ndeps.transport.publish_event(...)",
        ),
        "If a status service dies in between, the end of the run is never announced.",
        ("the status service dies",),
    ),
    Mutant(
        "a late cleanup stops a recovery",
        Rewrite("prismline_ledger:_stop", "X & _drained(0) & Y", "X & Y"),
        "The chunks of a recovery are skipped.",
        ("a cleanup is carried out late",),
    ),
    Mutant(
        "a late stop stops a recovery",
        Rewrite("prismline_ledger:_stop", "X & _drained(0) & Y", "X & _drained(0)"),
        "The chunks of a recovery are skipped.",
        ("a stop comes late",),
    ),
    Mutant(
        "as many failures as tolerated are too many",
        Setting(
            MACHINE,
            ("States", "CheckFailures", "Choices", "0"),
            {
                "Variable": "$.chunks.failed_percent",
                "NumericLessThanPath": "$.tolerated_failure_percent",
                "Next": "UpdateStatusCompleted",
            },
        ),
        "Every healthy run fails.",
    ),
    Mutant(
        "failures are not looked at",
        Setting(MACHINE, ("States", "CheckFailures", "Default"), "UpdateStatusCompleted"),
        "A run with failed chunks is announced as completed.",
        ("recovered once the cause is mended",),
    ),
    Mutant(
        "nobody waits for the chunks",
        Setting(MACHINE, ("States", "AwaitChunks", "Parameters", "MessageBody", "data", "wait_for"), None),
        "The state machine continues as soon as the run is split, and fails it.",
    ),
    Mutant(
        "an answer is put where nobody looks for it",
        Setting(MACHINE, ("States", "UpdateStatusRunning", "ResultPath"), "$.split"),
        "The state machine does not find its answer, and the run fails.",
    ),
    # ---- the sweeper
    Mutant(
        "a run is closed too early",
        Rewrite("prismline_ledger:close_run", "if X:\n    return False\ndone = Y", 'done = Attr("PK").exists()'),
        "The sweeper no longer checks a run that has not ended, so a lost message stays lost.",
    ),
    Mutant(
        "a run is closed while rows wait",
        Rewrite("prismline_ledger:close_run", "run.ended_at is None or X", "run.ended_at is None"),
        "A lost message to the slow lane is never sent again.",
        ("two slow lanes",),
    ),
    Mutant(
        "a run is closed on an old reading",
        Rewrite("prismline_ledger:close_run", "X & as_read(run, ...)", 'Attr("PK").exists()'),
        "The sweeper no longer checks a run that a recovery reopened at that moment.",
        ("a run is closed when it is reopened",),
    ),
    Mutant(
        "a run is never closed",
        Rewrite("prismline_dlq_consumer:_mend", "right and seen_to_all", "False"),
        "Every sweep reads all runs that ever existed.",
    ),
    Mutant(
        "a drain is announced once",
        Rewrite("prismline_dlq_consumer:due_announcement", "return RunAnnouncement.DRAINED", "return None"),
        "If the announcement of a drain is lost, the run stays running for 14 days.",
        ("a drain is announced by nobody else",),
    ),
    Mutant(
        "a lost message is not missed",
        Rewrite("prismline_dlq_consumer:_is_lost", "silent > X", "silent > X and False"),
        "A lost message is never sent again, so its run never ends.",
        ("messages are lost", "everybody dies", "recovered again and again"),
    ),
    Mutant(
        "a sweep does not note what it has not announced",
        Rewrite(
            "prismline_dlq_consumer:_Sweep._give_up",
            "self._deps.ledger.give_up_chunk(..., announcement_pending=True)",
            "self._deps.ledger.give_up_chunk(...)",
        ),
        "If a sweeper gives a chunk up and dies, the end of the chunk is never announced.",
        ("a sweeper gives up and dies",),
    ),
    Mutant(
        "counters are not corrected",
        Rewrite("prismline_dlq_consumer:_mend_counters", "wrong and not X", "wrong"),
        "If an older release left wrong counters, the run never drains, or its numbers differ from its chunks.",
        ("a wrong counter moves",),
    ),
    Mutant(
        "counters are corrected at once",
        Rewrite("prismline_dlq_consumer:_mend_counters", "not again.confirms(counted)", "False"),
        "A sweep that counts while chunks end writes wrong numbers.",
        ("a sweep counts while a chunk is tried again",),
    ),
    Mutant(
        "counters are corrected to an old count",
        Rewrite(
            "prismline_ledger:correct_counters",
            "Change(sets, condition=as_read(run, *COUNTERS))",
            'Change(counted, condition=Attr("PK").exists())',
        ),
        "A slow sweep overwrites what has been counted since.",
        ("a wrong counter moves",),
    ),
    # ---- the dead-letter consumer
    Mutant(
        "a dead letter that cannot be archived is acknowledged",
        Rewrite(
            "prismline_dlq_consumer:_heal",
            "key = deps.archive.write(record)",
            'key = "unknown"\nwith suppress(TransientError):\n    key = deps.archive.write(record)',
        ),
        "A dead letter that arrives while S3 is down is lost.",
        ("S3 is down for dead letters",),
    ),
    Mutant(
        "a deferred message is acknowledged",
        Rewrite("prismline_dlq_consumer:_defer", "raise _DeferredError", ""),
        "The message of a window that waits for the GPU is lost until the sweeper sends it again.",
        ("the GPU comes and goes",),
    ),
    Mutant(
        "what cannot be read is not there",
        Rewrite("prismline_dlq_consumer:_ledger_items", "self._read = error", "self._read = ({}, {})"),
        "While the ledger is down, dead letters are archived and not sent again, as if their chunks did not exist.",
        ("the ledger is down for dead letters",),
    ),
    Mutant(
        "receipts are counted",
        Rewrite(
            "prismline_dlq_consumer:_judge_chunk",
            "exhausted(...)",
            '"Given up." if letter.attempt + letter.receive_count > 4 else None',
        ),
        "An outage of some minutes fails every chunk whose message was received meanwhile.",
        ("S3 is down", "the GPU comes and goes"),
    ),
    Mutant(
        "a message has ten minutes",
        Rewrite("prismline_dlq_consumer:judge", "X >= patience.message_seconds", "X >= 600"),
        "An outage of an hour fails every run that waits for its split.",
        ("S3 is down before the split",),
    ),
    Mutant(
        "an old error fails what a recovery reopened",
        Rewrite(
            "prismline_dlq_consumer:_judge_chunk", "X and Y and chunk.recovery in (None, letter.recovery)", "X and Y"
        ),
        "A recovered chunk fails again because of its old dead letter, without a new attempt.",
        ("an old letter comes after a recovery",),
    ),
    Mutant(
        "an old attempt fails what a recovery reopened",
        Rewrite("prismline_ledger:fail_chunk", 'self._end_chunk(..., guard=("recovery",))', "self._end_chunk(...)"),
        "A recovered chunk fails again because of an error of an earlier attempt.",
        ("an old attempt fails after a recovery",),
    ),
    Mutant(
        "a chunk is given up on an old reading",
        Rewrite("prismline_dlq_consumer:_fail_chunk", "deps.ledger.give_up_chunk(...)", "deps.ledger.fail_chunk(...)"),
        "A chunk fails although a worker has begun an attempt meanwhile.",
        ("a chunk that is given up is begun",),
    ),
    # ---- recoveries
    Mutant(
        "reopened in two writes",
        Rewrite(
            "prismline_ledger:reopen_chunk",
            "self._table.transact(X, ...)",
            "self._table.transact(X)\nself._table.transact(...)",
        ),
        "If a recovery dies in between, the run has ended while a chunk is retried.",
        ("recovered again and again",),
    ),
    Mutant(
        "reopened and still drained",
        Rewrite("prismline_ledger:_uncounting", '("drained_at", *END)', "END"),
        "A recovered run is announced as ended before its chunks have ended, and its status never changes.",
        ("recovered again and again",),
    ),
    Mutant(
        "reopened and still counted",
        Rewrite("prismline_ledger:_uncounting", "dict(changes)", "{}"),
        "A recovered run ends before its chunks.",
        ("recovered again and again",),
    ),
    Mutant(
        "reopened with its old attempts",
        Rewrite(
            "prismline_ledger:reopen_chunk",
            '{"interruptions": chunk.attempts, **...}',
            '{"interruptions": chunk.interruptions, **...}',
        ),
        "A recovered chunk is given up at its first error.",
        ("recovered again and again",),
    ),
    Mutant(
        "reopened and not looked at",
        Rewrite("prismline_ledger:_uncounting", "self._opened()", "{}"),
        "If the message of a recovered chunk is lost, it is never sent again.",
        ("recovered while consumers die", "recovered again and again"),
    ),
    Mutant(
        "a cancelled run is resumed",
        Rewrite("prismline_ledger:resume_run", "run.cancelled_at is None or X", "run.cancelled_at is None"),
        "A run that a person cancelled continues.",
        ("cancelled with dead letters", "cancelled at once"),
    ),
    Mutant(
        "an old cancellation stops a run that went on",
        Rewrite("prismline_ledger:_stop", 'unless & unchanged({"uncancelled_at": X})', "unless"),
        "A person makes a cancelled run continue, and the next message about it stops it.",
        ("cancelled, and goes on after all",),
    ),
    Mutant(
        "a cancellation that pauses stops a run that has drained since",
        Rewrite("prismline_status:_cancel_again", "deps.ledger.stop_run(..., drains=X)", "deps.ledger.stop_run(...)"),
        "A failed run that a recovery continues is stopped for good, because nothing undoes that stop.",
        ("a run that is cancelled again fails and is recovered",),
    ),
    Mutant(
        "a run that went on stays cancelled",
        Rewrite("prismline_status:ending_after_cancel", "state.status != CANCELLED or X or Y or Z", "True"),
        "All its chunks complete, but that is never announced.",
        ("cancelled, and goes on after all",),
    ),
    Mutant(
        "a recovery is done when its messages are sent",
        Rewrite("prismline_dlq_consumer:next_step", "Step.WAIT if sent else X", "Step.DONE if sent else X"),
        "Records are deleted when they are sent, so a message that fails again has no record.",
        ("recovered again and again", "recovered while consumers die"),
    ),
    Mutant(
        "a recovery that is done is not announced again",
        Rewrite("prismline_dlq_consumer:on_recover", "_announce_recovered(...)\nreturn", "return"),
        "If the consumer dies before it announces that a recovery is done, that is never announced.",
        ("a recovery is done and not announced",),
    ),
    Mutant(
        "a recovery is not handed on",
        Rewrite("prismline_dlq_consumer:on_recover", "deps.transport.send(Queue.RECOVERIES, ...)", "None"),
        "A recovery never ends, and its records stay below its prefix.",
        ("recovered again and again",),
    ),
    # ---- the runtime
    Mutant(
        "what raised is acknowledged",
        Rewrite("prismline_runtime:_handle", "if not self._postpone(X, Y):\n    raise", "self._postpone(X, Y)"),
        "Every message whose handler fails is lost.",
    ),
    Mutant(
        "refused events are forgotten",
        Rewrite("prismline_runtime:publish.attempt", 'answer.get("ErrorCode")', 'answer.get("ErrorCode") == ""'),
        "An event that EventBridge refused counts as published.",
        ("answers are lost",),
    ),
    Mutant(
        "a collision counts as written",
        Rewrite("prismline_runtime:_write", "raise _CollisionError(...) from error", "return {}"),
        "A write that collides with another one is lost.",
        ("answers are lost",),
    ),
    Mutant(
        "an outage is permanent",
        Rewrite(
            "prismline_runtime:classify",
            'UnavailableError(f"Could not {doing}: {error}")',
            'PermanentError(f"Could not {doing}: {error}")',
        ),
        "A broken connection fails a chunk for good.",
        ("S3 is down",),
    ),
    Mutant(
        "a token that is gone is an outage",
        Rewrite("prismline_runtime:_answer", "error_code(error) not in TOKEN_GONE_CODES", "error_code(error)"),
        "The waiting token is never answered, because an answer to an older token is retried for ever.",
        ("two tokens meet", "tokens meet"),
    ),
    Mutant(
        "an execution that is gone is waited for",
        Rewrite("prismline_status:_end", "if deps.executions.is_running(...):\n    return False", "return False"),
        "A run whose execution is gone never ends.",
        ("a drained run loses its execution",),
    ),
    # ---- lists
    *LIST_MUTANTS,
    # ---- functions
    *FUNCTION_MUTANTS,
)
