"""The mutants of lists: tasks, shards, ingestion, queues of runs, the api, exports, webhooks, leases, deletions.

And those of the runtime's consumer, which the simulation replaces: only tests find them.
"""

from __future__ import annotations

from tests.simulation.mutants.changes import Rewrite
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.mutants.schedules import LISTS

_LEDGER_TESTS = "libs/ledger/tests/test_tasks.py::"
_DLQ_TESTS = "services/dlq-consumer/tests/test_tasks.py::"
_WORKER_TESTS = "services/worker/tests/test_task_processing.py::"
_EXPORTER_TESTS = "services/exporter/tests/test_exporting.py::"
_ACTION_TESTS = "services/api/tests/test_actions.py::"
_OPEN_JOB_TESTS = "services/api/tests/test_open_jobs.py::"
_DELETION_TESTS = "services/splitter/tests/test_deletion.py::"
_INGESTION_TESTS = "services/splitter/tests/test_ingestion.py::"
_WEBHOOK_TESTS = "services/webhooks/tests/test_webhooks.py::"
_CONSUMER_TESTS = "libs/runtime/tests/test_consumer.py::"
_CHOICE_TESTS = "libs/runtime/tests/test_queue_choice.py::"
_LEASE_TESTS = "libs/coordination/tests/test_leases.py::"
_SLOT_TESTS = "services/worker/tests/test_slots.py::"

LIST_MUTANTS: tuple[Mutant, ...] = (
    # ---- the ledger: tasks and shards
    Mutant(
        "a task's end and its counter in two writes",
        Rewrite(
            "prismline_ledger.tasks:_end_group",
            "self._table.transact(*writes, *X)",
            "self._table.transact(*writes)\nself._table.transact(*X)",
        ),
        "If a worker dies between the two, the run never drains.",
        ("workers of a list die",),
    ),
    Mutant(
        "a task ends whatever it is",
        Rewrite(
            "prismline_ledger.tasks:_end_group",
            "as_read(task, *ENDED_ON, *ending.guard)",
            'Attr("PK").exists()',
        ),
        "If two workers finish one task, it counts twice, and the run ends too early.",
        ("workers of a list freeze",),
    ),
    Mutant(
        "a reopening takes one failure back",
        Rewrite("prismline_ledger:_reopen_group", "change * len(group)", "change"),
        "If several failed tasks are tried again, the run counts too many, and ends too early.",
        ("failed tasks are tried again",),
    ),
    Mutant(
        "a reopening is not a move",
        Rewrite("prismline_ledger:_uncounting", 'sets, adds = X, {"moves": 1}', "sets, adds = X, {}"),
        "A run drains with sums from before a recovery.",
        tests=(_LEDGER_TESTS + "test_a_drain_that_read_the_shards_before_a_reopening_is_refused",),
    ),
    Mutant(
        "a late success does not depend on the drain",
        Rewrite("prismline_ledger:_moving", 'Attr("PK").exists() & as_read(run, "drained_at")', 'Attr("PK").exists()'),
        "A run stays failed although all of its tasks have completed.",
        tests=(_LEDGER_TESTS + "test_a_late_success_that_read_the_run_before_its_drain_changes_the_sums_of_the_drain",),
    ),
    Mutant(
        "the total of a shard is overwritten",
        Rewrite("prismline_ledger:_set_shard_totals", "X | Y", 'Attr("PK").exists() | X'),
        "A shard that is divided differently by a second delivery is complete too early, or never.",
        tests=(_LEDGER_TESTS + "test_the_total_of_a_shard_is_set_once",),
    ),
    Mutant(
        "a task keeps its wait when it is reopened",
        Rewrite(
            "prismline_ledger:_reopen_group",
            '(*FAILURE, "completed_at", "first_started_at", "not_before")',
            '(*FAILURE, "completed_at", "first_started_at")',
        ),
        "A recovered task waits for its site once more.",
        equivalent="the end of a task removes its wait, so that no FAILED task has one",
    ),
    Mutant(
        "an attempt at a task is not counted",
        Rewrite("prismline_ledger:start_tasks", "task.attempts + 1", "task.attempts"),
        "A task that kills its workers is tried for ever.",
        (LISTS,),
    ),
    Mutant(
        "the first attempt at a task moves",
        Rewrite(
            "prismline_ledger:start_tasks",
            "{} if task.first_started_at else X",
            "X",
        ),
        "A task whose workers die every time is never given up.",
        ("workers of a list die",),
    ),
    Mutant(
        "an attempt at a task begins on an old reading",
        Rewrite(
            "prismline_ledger:start_tasks",
            'self._replace(left, changes, "status", "attempts")',
            'self._replace(left, changes, "PK")',
        ),
        "A message that is delivered twice makes a completed task IN_PROGRESS again, although it is counted.",
        ("workers of a list freeze",),
    ),
    Mutant(
        "an attempt at a task ends though another one has begun",
        Rewrite(
            "prismline_ledger:give_back_tasks",
            'self._replace(X, changes, "status", "attempts")',
            'self._replace(X, changes, "PK")',
        ),
        "A worker that was presumed dead makes a completed task PENDING again, although it is counted.",
        ("workers of a list freeze",),
    ),
    Mutant(
        "a shard without a total is complete",
        Rewrite(
            "prismline_contracts:ShardItem.complete",
            "self.total is not None and self.completed + self.failed >= self.total",
            "self.completed + self.failed >= (self.total or 0)",
        ),
        "A run may end before its list has been read.",
        equivalent="a run is latched, which a drain requires, only after all shards have their totals",
    ),
    Mutant(
        "a run drains with one complete shard",
        Rewrite(
            "prismline_ledger:drain",
            "all((shard.complete for shard in shards))",
            "any((shard.complete for shard in shards))",
        ),
        "A run is announced as ended while most of its tasks are left.",
        (LISTS,),
    ),
    Mutant(
        "a run of shards drains before the latch",
        Rewrite(
            "prismline_ledger:drain",
            "run.latched_at is not None and all((shard.complete for shard in shards))",
            "all((shard.complete for shard in shards))",
        ),
        "A run may end before its last messages are sent.",
        ("splitters of a list freeze",),
    ),
    Mutant(
        "a drain forgets what failed",
        Rewrite("prismline_ledger:drain", "sets[_FAILED] = X", "sets[_FAILED] = 0"),
        "A run with failed tasks is completed.",
        ("failed tasks are tried again",),
    ),
    Mutant(
        "missing tasks of a block are not written",
        Rewrite(
            "prismline_ledger:add_tasks",
            "missing = [name for name in items if name not in known]",
            "missing = [] if known else list(items)",
        ),
        "If an ingestion dies in a block, tasks of the list are never processed.",
        tests=(_LEDGER_TESTS + "test_the_missing_tasks_of_a_block_are_added",),
    ),
    Mutant(
        "a checkpoint replaces any other",
        Rewrite("prismline_ledger.tasks:checkpoint", 'open_still & as_read(run, "checkpoint")', "open_still"),
        "Two ingestions of one list write and send every block twice.",
        tests=(_LEDGER_TESTS + "test_only_one_of_two_ingestions_continues",),
    ),
    Mutant(
        "a run that has ended gets a queue",
        Rewrite("prismline_ledger:note_task_queue", 'Attr("PK").exists() & X', 'Attr("PK").exists()'),
        "A late ingestion leaves a queue behind that nobody deletes.",
        ("ingestions meet",),
    ),
    # ---- ingestion
    Mutant(
        "a block's messages are not sent",
        Rewrite("prismline_splitter:ingest", "deps.transport.send(...)", "None"),
        "A list waits for the sweeper before anything happens.",
        (LISTS,),
    ),
    Mutant(
        "a checkpoint forgets the tasks of its block",
        Rewrite("prismline_splitter:Checkpoint.after", "total + len(X)", "total"),
        "The run is drained before its tasks have ended.",
        (LISTS,),
    ),
    Mutant(
        "an ingestion goes on in a stopped run",
        Rewrite(
            "prismline_splitter.ingestion:_over",
            "run.latched_at is not None or run.cancelled_at is not None",
            "run.latched_at is not None",
        ),
        "A cancelled list of a million URLs is still written to its end.",
        equivalent="the tasks are skipped; the list is written for nothing, which costs time and money only",
    ),
    Mutant(
        "an ingestion is not handed on",
        Rewrite("prismline_splitter:on_run_split", "deps.transport.send(Queue.SPLIT, X)", "None"),
        "A long list waits an hour for the state machine's next command after each slice.",
        tests=("services/splitter/tests/test_ingestion.py",),
    ),
    # ---- queues of runs
    Mutant(
        "a run's queue is deleted when it is latched",
        Rewrite(
            "prismline_dlq_consumer:_mend_task_run",
            "if run.ended_at is None or X:\n    ...",
            "if run.latched_at is None:\n    return",
        ),
        "The messages of a large run are deleted with its queue while it is running.",
        ("workers of a list freeze", LISTS),
    ),
    Mutant(
        "a queue that is gone is not created again",
        Rewrite("prismline_dlq_consumer:_resend_tasks", "self._deps.run_queues.ensure(X)", "None"),
        "A large run whose queue was lost is stuck for ever.",
        ("the queue of a run that waits is gone",),
    ),
    Mutant(
        "a queue that is gone is an error",
        Rewrite("prismline_dlq_consumer:_messages", "if may_be_gone and X:\n    ...", "pass"),
        "A large run whose queue was lost is stuck for ever.",
        ("the queue of a run that waits is gone",),
    ),
    Mutant(
        "a run remembers its deleted queue",
        Rewrite("prismline_dlq_consumer:_mend_task_run", "if not ledger.forget_task_queue(run):\n    ...", "pass"),
        "A recovery sends tasks to a queue that does not exist.",
        (LISTS,),
    ),
    Mutant(
        "a recovery reopens a task twice",
        Rewrite(
            "prismline_ledger:reopen_tasks",
            "task.state is TaskStatus.FAILED and task.recovery != recovery",
            "task.state is TaskStatus.FAILED",
        ),
        "A task whose failure is final is tried again, because a process of its recovery stood still.",
        tests=(_LEDGER_TESTS + "test_a_recovery_reopens_a_task_once",),
    ),
    Mutant(
        "a run loses its queue when it is continued",
        Rewrite(
            "prismline_ledger:forget_task_queue", 'as_read(run, "task_queue", "ended_at")', 'as_read(run, "task_queue")'
        ),
        "The messages of a retry are deleted with the queue, and the tasks wait until the sweeper sends them again.",
        tests=(_LEDGER_TESTS + "test_a_run_that_continues_meanwhile_keeps_its_queue",),
    ),
    Mutant(
        "queues are left over",
        Rewrite("prismline_dlq_consumer:delete_leftover_queues", "self._delete_queue(name)", "None"),
        "Queues of runs that nobody uses stay, until the account has too many.",
        ("ingestions meet", "queues of runs are gone"),
    ),
    # ---- the sweeper
    Mutant(
        "lost tasks are not sent again",
        Rewrite("prismline_dlq_consumer:_mend_tasks", "self._resend_tasks(...)", "None"),
        "A run whose messages were purged is stuck for ever.",
        ("queues of runs are gone",),
    ),
    Mutant(
        "a submission that died is not announced",
        Rewrite("prismline_dlq_consumer:sweep_submission", "run.split_token is not None", "True"),
        "A short list whose request was cut off is accepted and never ends.",
        ("requests are cut off",),
        tests=(_DLQ_TESTS + "test_a_run_whose_submission_died_is_announced_until_its_end_is_recorded",),
    ),
    # ---- the worker
    Mutant(
        "tasks that are given back are acknowledged",
        Rewrite(
            "prismline_worker:_Work.record",
            "results.again |= {each.task.task_id: each.wait for each in given_back}",
            "pass",
        ),
        "A task whose site did not answer waits for the sweeper.",
        ("workers of a list die",),
    ),
    Mutant(
        "tasks that a recovery reopens during their attempt are acknowledged",
        Rewrite(
            "prismline_worker:_Work.record",
            "results.again |= {task.task_id: 0.0 for task in ended.unchanged if X}",
            "pass",
        ),
        "A task that a person has tried again waits for the sweeper.",
        tests=(_WORKER_TESTS + "test_tasks_that_a_recovery_reopens_during_their_attempt_are_sent_again",),
    ),
    Mutant(
        "tasks that wait are acknowledged",
        Rewrite("prismline_worker:on_tasks_process", "later | results.again | deferred", "results.again | deferred"),
        "A task that is delivered before its time waits for the sweeper.",
        tests=(_WORKER_TESTS + "test_a_task_that_has_to_wait_is_sent_again_without_an_attempt",),
    ),
    Mutant(
        "tasks of a stopped run are processed",
        Rewrite("prismline_worker:on_tasks_process", "if run.cancelled_at is not None:\n    ...", "pass"),
        "Sites are asked for the pages of a run that somebody has cancelled.",
        tests=(_WORKER_TESTS + "test_tasks_of_a_stopped_run_stay_unchanged",),
    ),
    # ---- the dead-letter consumer and recoveries
    Mutant(
        "a letter whose tasks have changed is not judged again",
        Rewrite("prismline_dlq_consumer.tasks:_end", "if any(X):\n    ...", "pass"),
        "A task that a worker has just begun waits for the sweeper if that worker dies.",
        tests=(
            _DLQ_TESTS + "test_a_message_is_judged_again_if_a_worker_begins_one_of_its_tasks_while_they_are_given_up",
        ),
    ),
    Mutant(
        "a letter is divided and not sent",
        Rewrite("prismline_dlq_consumer:send_tasks_singly", "deps.transport.send(...)", "None"),
        "Tasks whose message failed wait for the sweeper.",
        ("workers of a list die", LISTS),
    ),
    Mutant(
        "a task is given up while its worker may live",
        Rewrite(
            "prismline_dlq_consumer.decisions:_judge_tasks",
            "if any((leased(task, now, of_tasks) for task in unfinished)):\n    ...",
            "pass",
        ),
        "A task fails while a worker fetches it.",
        tests=(_DLQ_TESTS + "test_a_task_is_not_given_up_while_its_last_attempt_may_be_under_way",),
    ),
    Mutant(
        "an old error fails a recovered task",
        Rewrite(
            "prismline_dlq_consumer.decisions:_judge_tasks",
            "current = all(X)",
            "current = True",
        ),
        "A task that a person has tried again fails for an error from before.",
        tests=(_DLQ_TESTS + "test_an_error_from_before_a_recovery_does_not_fail_its_tasks",),
    ),
    Mutant(
        "a retry of tasks sends nothing",
        Rewrite("prismline_dlq_consumer.recovery.failed_tasks:take_window", "self._send(...)", "None"),
        "Tasks that are tried again wait for the sweeper.",
        tests=(_DLQ_TESTS + "test_a_retry_of_a_run_sends_its_failed_tasks_and_no_others",),
    ),
    # ---- the exporter and the webhooks service
    Mutant(
        "two processes write one export",
        Rewrite("prismline_exporter:_owned_by", 'Attr("owner").eq(item.owner) & X', "X"),
        "An export has the parts of two writers, and cannot be opened.",
        tests=(_EXPORTER_TESTS + "test_of_two_processes_one_writes",),
    ),
    Mutant(
        "a run that goes on is exported",
        Rewrite(
            "prismline_exporter:_Export._ended_run", "run.drained_at is None and run.cancelled_at is None", "False"
        ),
        "An export is complete without the results that came later.",
        tests=(_EXPORTER_TESTS + "test_a_run_that_has_not_ended_is_not_exported",),
    ),
    Mutant(
        "a long export does not continue",
        Rewrite("prismline_exporter:on_export_requested", "deps.transport.send(Queue.EXPORTS, X)", "None"),
        "An export that takes longer than an invocation never ends.",
        tests=(_EXPORTER_TESTS + "test_an_export_that_takes_longer_than_an_invocation_sends_itself_a_message",),
    ),
    Mutant(
        "a delivered webhook is posted again",
        Rewrite(
            "prismline_webhooks:Deliveries.begin",
            'Attr("PK").not_exists() | Attr("status").eq("PENDING")',
            'Attr("PK").not_exists() | Attr("PK").exists()',
        ),
        "A target gets each event several times.",
        tests=(_WEBHOOK_TESTS + "test_an_event_that_comes_again_is_not_posted_again",),
    ),
    Mutant(
        "a target that is gone is tried on",
        Rewrite("prismline_webhooks:decide", "answer.final or answer.status == httpx.codes.GONE", "answer.final"),
        "A target that wants no posts gets them for a day.",
        tests=(_WEBHOOK_TESTS + "test_a_target_that_is_gone_or_refused_is_given_up",),
    ),
    Mutant(
        "a process polls the queues of runs that have ended",
        Rewrite(
            "prismline_worker:queues_of",
            "run.task_queue is not None and run.cancelled_at is None and X",
            "run.task_queue is not None",
        ),
        "Consumers ask the queues of all runs that wait for their end.",
        tests=(_SLOT_TESTS + "test_a_worker_polls_the_queues_of_runs_that_are_neither_stopped_nor_drained",),
    ),
    Mutant(
        "a long export is given up for its age",
        Rewrite("prismline_exporter:on_export_requested", "message.envelope.model_copy(update=X)", "message.envelope"),
        "An export that takes longer than three days fails.",
        tests=(_EXPORTER_TESTS + "test_an_export_that_continues_is_not_given_up_for_its_age",),
    ),
    Mutant(
        "the export of a deleted job is made again",
        Rewrite(
            "prismline_exporter:on_export_requested",
            "deps.exports.claim(X, Y, create=there)",
            "deps.exports.claim(X, Y, create=True)",
        ),
        "Items of a deleted job stay for ever.",
        ("a list is deleted while it is written",),
        tests=(_EXPORTER_TESTS + "test_the_deletion_of_a_job_during_its_export_leaves_no_export_behind",),
    ),
    Mutant(
        "an export is complete before its object",
        Rewrite("prismline_exporter:_Export._write", "upload.complete(...)", "None"),
        "A client is told of an export that does not exist.",
        (LISTS,),
    ),
    Mutant(
        "a late failure overwrites a delivered webhook",
        Rewrite("prismline_webhooks:Deliveries.note", 'Attr("status").eq("PENDING")', 'Attr("PK").exists()'),
        "A webhook that was delivered is shown as failed.",
        tests=("services/webhooks/tests/test_webhooks.py::test_a_late_failure_does_not_undo_a_delivery",),
    ),
    Mutant(
        "a webhook is not posted",
        Rewrite("prismline_webhooks:on_run_ended", "if item is None:\n    ...", "return"),
        "A target never hears of the end of its run.",
        (LISTS,),
    ),
    # ---- the api
    Mutant(
        "a short list is latched before its messages are sent",
        Rewrite(
            "prismline_api:_start",
            "deps.transport.send(Queue.TASKS, messages)\nfault_point(...)\ndeps.ledger.latch(X)",
            "deps.ledger.latch(X)\ndeps.transport.send(Queue.TASKS, messages)",
        ),
        "If the request is cut off between the two, the list waits for the sweeper.",
        (LISTS,),
    ),
    Mutant(
        "a repeated submission completes nothing",
        Rewrite("prismline_api:_repeated", "path is not Path.OPEN and not is_started(run, deps)", "False"),
        "A client that repeats a request that was cut off is told of a job that never starts.",
        ("requests are cut off",),
    ),
    Mutant(
        "a submission without a key is not seen to",
        Rewrite("prismline_api:submit", "_see_to_its_start(...)", "None"),
        "A request without a key that is cut off leaves a job that never starts.",
        ("requests are cut off",),
    ),
    Mutant(
        "a batch is lost during the close",
        Rewrite("prismline_api:close_job", 'deps.store.change_job(X, Y, "n_tasks")', "deps.store.change_job(X, Y)"),
        "The tasks of a batch that was accepted during the close are never processed.",
        tests=(_OPEN_JOB_TESTS + "test_a_batch_that_arrives_during_the_close_belongs_to_the_job",),
    ),
    Mutant(
        "a job is closed without all of its batches",
        Rewrite("prismline_api:close_job", "_check_stored(job, deps)", "None"),
        "The tasks of a batch whose request was cut off are missing, and their indices are skipped.",
        ("requests are cut off",),
    ),
    Mutant(
        "a batch is not stored",
        Rewrite("prismline_api:add_batch", "deps.bucket.create(...)", "None"),
        "An open job can never be closed.",
        (LISTS,),
    ),
    Mutant(
        "a closed job is not ingested",
        Rewrite("prismline_api:close_job", "ingest(closed, run, deps.transport)", "None"),
        "The run of a job that was open never ends.",
        (LISTS,),
    ),
    Mutant(
        "a rerun begins before the tasks are known",
        Rewrite("prismline_api:_check_rerun", "run is None or run.latched_at is None", "False"),
        "A rerun has only the tasks that were written when it began.",
        (LISTS,),
        tests=(_ACTION_TESTS + "TestRerun::test_all_tasks_are_run_again_only_once_all_of_them_are_known",),
    ),
    # ---- deletions
    Mutant(
        "the run of an open job waits for its cancellation",
        Rewrite("prismline_splitter:_is_unannounced", "return X", "return False"),
        "The deletion of an open job takes an hour, and its cancellations circulate for three days.",
        tests=(_DELETION_TESTS + "test_the_run_of_an_open_job_is_deleted_at_once",),
    ),
    Mutant(
        "what is written during a deletion stays",
        Rewrite("prismline_splitter:on_job_delete", "deps.transport.send_back(...)", "None"),
        "Pages and tasks of a deleted job stay for ever.",
        ("a list is deleted while it is written",),
        tests=(_DELETION_TESTS + "test_a_deletion_is_repeated_for_what_workers_wrote_in_the_meantime",),
    ),
    Mutant(
        "a deletion counts the deliveries of the dead-letter queue",
        Rewrite(
            "prismline_splitter:on_job_delete",
            "message.delivery.attributes.get(_PASSES, X)",
            'message.delivery.attributes.get("attempt", X)',
        ),
        "A deletion that an outage delayed is repeated less often, and what was written meanwhile stays.",
        tests=(_DELETION_TESTS + "test_a_deletion_that_waited_in_the_dead_letter_queue_is_repeated_too",),
    ),
    Mutant(
        "a run that a slow request opened has no manifest",
        Rewrite("prismline_splitter:_open_run", "run.manifest_key is None", "False"),
        "The sweeper never looks after the run, and a deletion does not wait for its end.",
        (LISTS,),
        tests=(_INGESTION_TESTS + "test_a_run_that_a_slow_request_opens_after_its_job_is_closed_gets_its_manifest",),
    ),
    Mutant(
        "pages of deleted jobs stay",
        Rewrite("prismline_splitter:run_prefixes", 'yield f"{RESULTS_PREFIX}{run_id}/"', "pass"),
        "The pages of a deleted job stay for ever.",
        ("a list is deleted after its end",),
    ),
    Mutant(
        "a deletion leaves the items of the run",
        Rewrite("prismline_splitter:_deletions", "yield from deps.ledger.delete_run(X)", "yield 0"),
        "The URLs of a deleted job stay for ever.",
        (LISTS,),
    ),
    # ---- coordination
    Mutant(
        "a lease counts until the server frees it",
        Rewrite(
            "prismline_coordination:Leases._until",
            "max(self.seconds - SAFETY_SECONDS, self.seconds / 2)",
            "self.seconds",
        ),
        "Two holders work in one slot while the first one stops.",
        tests=(_LEASE_TESTS + "test_a_holder_counts_its_lease_as_lost_before_the_server_frees_it",),
    ),
    Mutant(
        "a slot that another holder took is kept",
        Rewrite(
            "prismline_coordination:Leases.renew",
            "[replace(lease, until=until) for lease, ok in X if ok]",
            "[replace(lease, until=until) for lease, ok in X]",
        ),
        "After a restart of Valkey, a site gets more requests at a time than it may.",
        tests=(_LEASE_TESTS + "test_a_slot_that_another_took_after_a_flush_is_lost",),
    ),
    Mutant(
        "a rate limit ends with Valkey",
        Rewrite(
            "prismline_coordination:RateLimit.take", "return self._take_locally(...)", "return Admission(True, 0.0)"
        ),
        "While Valkey is down, a site gets requests without any limit.",
        tests=("libs/coordination/tests/test_rate_limit.py::test_while_the_server_is_down_a_process_limits_itself",),
    ),
    Mutant(
        "a lease is kept while Valkey is down",
        Rewrite("prismline_worker.concurrency:renewed", "[lease for lease in held if leases.valid(lease)]", "held"),
        "After an outage of Valkey, a site gets more requests at a time than it may.",
        tests=(_SLOT_TESTS + "test_slots_are_lost_once_valkey_has_been_down_for_as_long_as_a_lease",),
    ),
    Mutant(
        "a release frees the slot of another holder",
        Rewrite("prismline_coordination:Leases.release", "valkey.eval(_RELEASE, X, *keys, *Y)", "valkey.delete(*keys)"),
        "A site gets more requests at a time than it may.",
        tests=("libs/coordination/tests/test_leases.py::test_the_slot_of_a_dead_holder_is_free_after_its_time",),
    ),
    # ---- the runtime
    Mutant(
        "messages that failed are deleted",
        Rewrite(
            "prismline_runtime:Consumer._invoke",
            "[handle for key, handle in X if key not in failed]",
            "[handle for key, handle in X]",
        ),
        "A chunk whose attempt failed waits for the sweeper.",
        tests=(_CONSUMER_TESTS + "test_only_the_failed_part_of_a_batch_comes_back",),
    ),
    Mutant(
        "the messages of a handler that raises are deleted",
        Rewrite("prismline_runtime:Consumer._call_handler", "return received", "return set()"),
        "Work that meets a bug waits for the sweeper, and its dead letter is missing.",
        tests=(_CONSUMER_TESTS + "test_a_handler_that_raises_fails_its_whole_batch_and_the_consumer_continues",),
    ),
    Mutant(
        "an answer that names other messages is a success",
        Rewrite(
            "prismline_runtime.consumer:unfinished", "failed if failed <= received else received", "failed & received"
        ),
        "Messages that a handler has not finished are deleted.",
        tests=(_CONSUMER_TESTS + "test_an_invalid_answer_fails_the_whole_batch",),
    ),
    Mutant(
        "a message is not kept hidden",
        Rewrite("prismline_runtime:Consumer._keep_hidden", "self._set_visibility(X)", "None"),
        "Work that takes longer than a minute is done twice, and is given up.",
        tests=(_CONSUMER_TESTS + "test_a_message_stays_hidden_while_it_is_processed_for_long",),
    ),
    Mutant(
        "a released message is deleted by its handler",
        Rewrite("prismline_runtime:Consumer.release", "self._in_flight = {}", "pass"),
        "A message that another process has by now is deleted.",
        tests=(_CONSUMER_TESTS + "test_a_handler_that_finishes_after_the_release_does_not_delete_the_message",),
    ),
    Mutant(
        "every message counts as one unit of work",
        Rewrite("prismline_runtime:Consumer.run", "sum(X)", "1"),
        "A small run waits behind as many messages of a hundred tasks as it has tasks.",
        tests=(_CONSUMER_TESTS + "test_a_small_message_does_not_wait_for_as_many_large_ones",),
    ),
    Mutant(
        "a queue makes up for the time in which it was empty",
        Rewrite(
            "prismline_runtime:QueueChoice.had_messages", "max(self._spent[name], self._present)", "self._spent[name]"
        ),
        "A run that comes back takes all turns, and others wait.",
        tests=(_CHOICE_TESTS + "test_a_queue_that_was_empty_makes_up_for_nothing",),
    ),
    Mutant(
        "empty queues do not rest",
        Rewrite("prismline_runtime:QueueChoice.was_empty", "self._empty_at[name] = now", "pass"),
        "Consumers ask empty queues all the time, which costs money.",
        tests=(_CHOICE_TESTS + "test_an_empty_queue_rests_while_others_have_messages",),
    ),
    Mutant(
        "keys that DynamoDB leaves are forgotten",
        Rewrite("prismline_runtime:batch_get", "list(X) if Y else []", "[]"),
        "Tasks whose read DynamoDB left out are acknowledged and not processed.",
        ("reads are stale and batches partial",),
    ),
    Mutant(
        "deletions that DynamoDB leaves are forgotten",
        Rewrite("prismline_runtime:_delete_batch", "if left:\n    ...", "pass"),
        "URLs of a deleted job stay until a later pass.",
        tests=("libs/runtime/tests/test_dynamodb.py::test_items_that_a_batch_leaves_undeleted_are_deleted_again",),
    ),
    Mutant(
        "an item is read as it was",
        Rewrite(
            "prismline_runtime:Table.get",
            "self._client.get_item(..., ConsistentRead=True)",
            "self._client.get_item(...)",
        ),
        "A run does not drain, because its last worker has read an old counter.",
        ("reads are stale and batches partial",),
    ),
    Mutant(
        "a throttled transaction is a collision",
        Rewrite(
            "prismline_runtime:_write", "raise _ThrottledError(...) from error", "raise _CollisionError(...) from error"
        ),
        "Throttling counts against the chunks and tasks that it meets.",
        tests=("libs/runtime/tests/test_dynamodb.py",),
    ),
    Mutant(
        "the age of a message is lost when it moves",
        Rewrite(
            "prismline_runtime:CARRIED_ATTRIBUTES",
            '{"archived", "attempt", "deferrals", "first_sent", "recovery"}',
            '{"archived", "attempt", "deferrals", "recovery"}',
        ),
        "A message that can never work circulates for ever.",
        tests=("libs/runtime/tests/test_transport.py::test_a_message_keeps_its_history_when_it_becomes_a_dead_letter",),
    ),
)
