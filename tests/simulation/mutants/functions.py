"""The mutants of functions: runners, codes, pools, and runs that are stopped early."""

from __future__ import annotations

from tests.simulation.mutants.changes import Rewrite
from tests.simulation.mutants.mutant import Mutant

_WORKER_TESTS = "services/worker/tests/test_function_tasks.py::"
_DLQ_TESTS = "services/dlq-consumer/tests/test_tasks.py::"

FUNCTION_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a runner of other code is used",
        Rewrite("prismline.supervisor:Supervisor._started", "self._code not in (None, X)", "False"),
        "Half of the rows of a run come from code that the run does not name.",
        ("a function has new code",),
    ),
    Mutant(
        "items that wait for their function are forgotten",
        Rewrite(
            "prismline_worker.function_tasks:FunctionTasks._waits",
            "return dict.fromkeys(X)",
            "return {}",
        ),
        "A run never ends after an upgrade of its function.",
        ("a function has new code",),
    ),
    Mutant(
        "items that were not begun are forgotten",
        Rewrite(
            "prismline_worker.function_tasks:_Message.work",
            "return {task.task_id: wait for task in left}",
            "return {}",
        ),
        "Items that a worker had no time for are never processed.",
        tests=(_WORKER_TESTS + "test_items_that_an_invocation_has_no_time_for_are_sent_again",),
    ),
    Mutant(
        "an item is tried for ever",
        Rewrite("prismline_worker:_judge_item", "failed >= error.attempts", "False"),
        "A run with an item that can never succeed does not end.",
        ("a pool",),
    ),
    Mutant(
        "a moved run is not recorded",
        Rewrite("prismline_ledger:move_to_code", 'Change({"code": code}, ...)', "Change({}, condition=None)"),
        "A run whose code is gone waits for ever, whatever its user says.",
        ("a function has new code",),
    ),
    Mutant(
        "a worker remembers the code of a moved run",
        Rewrite("prismline_worker:on_tasks_process", "command.recovery is not None", "False"),
        "Rows that are repeated after an upgrade begin a few seconds later.",
        equivalent="the items wait once more, and the worker has forgotten the run by then",
    ),
    Mutant(
        "a run is closed before it is finalized",
        Rewrite("prismline_dlq_consumer:_mend_task_run", "run.ended_at is None or X", "run.ended_at is None"),
        "A finalization whose worker died is never carried out.",
        ("a function has new code",),
        tests=(_DLQ_TESTS + "test_a_run_whose_finalization_is_lost_is_finalized_before_it_is_closed",),
    ),
    Mutant(
        "a lost finalization is not sent again",
        Rewrite("prismline_dlq_consumer:sweep_finalization", "due is None", "True"),
        "A run never ends whose last items were ended by the sweeper, or whose last message is lost.",
        ("a function has new code",),
        tests=(_DLQ_TESTS + "test_a_run_whose_finalization_is_lost_is_finalized_before_it_is_closed",),
    ),
    Mutant(
        "the finalization of an earlier end counts",
        Rewrite(
            "prismline_contracts:finalization_of",
            "X == Y and run.drained_at is not None",
            "run.drained_at is not None",
        ),
        "After a retry, the sum of a run lacks the items that have succeeded since.",
        ("a function has new code",),
        tests=(_DLQ_TESTS + "test_a_retry_of_failed_items_leaves_the_finalization_to_the_next_end",),
    ),
    Mutant(
        "a finalization that waits for its function is looked at seldom",
        Rewrite("prismline_worker:_finalize", "slot_wait(...)", "900.0"),
        "A run is finalized a quarter of an hour after its code was moved.",
        tests=(_WORKER_TESTS + "test_a_finalization_waits_while_the_function_cannot_be_loaded",),
    ),
    Mutant(
        "the runs of a pool are in the shared queue",
        Rewrite("prismline_contracts:task_queue_of", "pool is not None", "False"),
        "The common workers call the functions of a pool, without its package.",
        ("a pool",),
    ),
    Mutant(
        "a rerun leaves its pool",
        Rewrite("prismline_api:rerun_job", "in_pool(X, pool)", "X"),
        "A run of a pool cannot be repeated.",
        ("a pool",),
    ),
    Mutant(
        "the pool of a run is not compared",
        Rewrite("prismline_splitter:check_pool", "pool != pool_of(run_id)", "False"),
        "A manifest with a crafted id gets into the pool of another team.",
        tests=("services/splitter/tests/test_functions.py",),
    ),
    Mutant(
        "a limit of failures stops no run",
        Rewrite("prismline_ledger:early_stop", "over or X or Y", "True"),
        "A run whose every item fails is paid for to its end.",
        ("too many failures, and then new code",),
    ),
    Mutant(
        "a number of failures is tolerated once more",
        Rewrite("prismline_ledger:Tolerance.exceeded", "failed > self.failures", "failed > self.failures + 1"),
        "A run completes with more failures than its user tolerates.",
        ("too many failures, and then new code", "one failure too many"),
    ),
    Mutant(
        "a run that a person continued is stopped early",
        Rewrite("prismline_ledger:early_stop", "run.resumed_at is not None", "False"),
        "A run that was stopped early cannot be continued.",
        tests=(_DLQ_TESTS + "test_a_run_that_was_stopped_early_goes_on_to_its_end_after_a_recovery",),
    ),
)
