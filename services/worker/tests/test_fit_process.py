from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import worker_kernels as kernels

from prismline_worker.fit_process import FitProcess, FitterUnavailableError, FitTimeoutError

#: Longest wait, in seconds, for a process that should end: far longer than it takes.
PATIENCE_S = 20.0


def order(value):
    return np.array([value, 0.0, 0.0])


def wait_until_gone(pid):
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended, _, _ = select.select([descriptor], [], [], PATIENCE_S)
    finally:
        os.close(descriptor)
    assert ended, f"process {pid} is still there"


@contextmanager
def python(*arguments, also=()):
    """A new interpreter that can import the test kernels, and modules in the folders `also`.

    It leads a process group, which is killed at the end, so that a failed test leaves no process behind.
    """
    folders = [*map(str, also), str(Path(__file__).parent), *filter(None, sys.path)]
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(folders)},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def program(text):
    return ("-c", textwrap.dedent(text))


def test_one_child_serves_many_spectra(obedient):
    pids = set()
    for value in (1.0, 2.0, 3.0):
        assert obedient.fit(order(value), {}).components[0][0] == value
        pids.add(obedient.pid)
    assert len(pids) == 1


def test_a_child_over_its_budget_is_gone_and_the_next_spectrum_gets_another(obedient):
    obedient.fit(order(1.0), {})
    late = obedient.pid
    with pytest.raises(FitTimeoutError):
        obedient.fit(order(kernels.SLOW), {}, budget_s=0.1)
    wait_until_gone(late)
    assert obedient.fit(order(2.0), {}).components[0][0] == 2.0
    assert obedient.pid != late


def test_a_child_that_dies_between_two_spectra_is_replaced(obedient):
    obedient.fit(order(1.0), {})
    os.kill(obedient.pid, signal.SIGKILL)
    wait_until_gone(obedient.pid)
    assert obedient.fit(order(2.0), {}).components[0][0] == 2.0


def test_a_child_that_is_killed_in_the_middle_of_a_fit_is_noticed_at_once(obedient):
    obedient.fit(order(1.0), {})
    killer = threading.Timer(0.2, os.kill, (obedient.pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(FitTimeoutError):  # of the second child, which has its own budget
        obedient.fit(order(kernels.SLOW), {}, budget_s=1.0)
    killer.join()


def test_stop_signals_do_not_reach_the_child(obedient):
    obedient.fit(order(1.0), {})
    child = obedient.pid
    os.kill(child, signal.SIGINT)
    os.kill(child, signal.SIGTERM)
    assert obedient.fit(order(2.0), {}).components[0][0] == 2.0
    assert obedient.pid == child


def test_stop_signals_do_not_reach_a_child_that_is_still_starting(obedient):
    child = None
    with FitProcess("worker_kernels:obey") as starting:
        child = starting.pid
        os.kill(child, signal.SIGINT)
        os.kill(child, signal.SIGTERM)
        assert starting.fit(order(1.0), {}).components[0][0] == 1.0
        assert starting.pid == child


def test_starting_a_child_leaves_the_parents_signals_as_they_were(obedient):
    obedient.fit(order(1.0), {})
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


def test_an_interrupted_fit_does_not_answer_for_the_next_spectrum(obedient, monkeypatch):
    obedient.fit(order(1.0), {})
    child = obedient.pid

    def interrupted(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Connection, "poll", interrupted)
        with pytest.raises(KeyboardInterrupt):
            obedient.fit(order(2.0), {})
    assert obedient.fit(order(3.0), {}).components[0][0] == 3.0
    wait_until_gone(child)


def test_closing_ends_the_child(obedient):
    obedient.fit(order(1.0), {})
    child = obedient.pid
    obedient.close()
    wait_until_gone(child)
    assert obedient.pid is None


def test_a_kernel_that_cannot_be_imported_is_not_the_spectrums_fault(capfd):
    with FitProcess("no_such_module:fit") as fitter, pytest.raises(FitterUnavailableError, match="exit code 1"):
        fitter.fit(order(1.0), {})
    assert "No module named 'no_such_module'" in capfd.readouterr().err


FITTING_FOR_EVER = """
    import numpy, sys, worker_kernels as kernels
    from prismline_worker.fit_process import FitProcess

    fitter = FitProcess("worker_kernels:obey")
    fitter.fit(numpy.array([1.0]), {})
    print(fitter.pid, flush=True)
    fitter.fit(numpy.array([kernels.SLOW]), {})
"""


def test_the_child_ends_when_its_parent_is_killed_in_the_middle_of_a_fit():
    with python(*program(FITTING_FOR_EVER)) as parent:
        child = int(parent.stdout.readline())
        assert parent.stdout.readline() == "busy\n"
        parent.kill()
        wait_until_gone(child)


def test_only_the_parent_handles_ctrl_c_to_the_whole_group():
    text = """
        import numpy, os, signal
        from prismline_worker.fit_process import FitProcess

        stopped = []
        signal.signal(signal.SIGINT, lambda *_: stopped.append(True))
        with FitProcess("worker_kernels:obey") as fitter:
            fitter.fit(numpy.array([1.0]), {})
            before = fitter.pid
            os.killpg(os.getpgrp(), signal.SIGINT)
            fitter.fit(numpy.array([2.0]), {})
            print(stopped, fitter.pid == before)
    """
    with python(*program(text)) as parent:
        out, err = parent.communicate(timeout=PATIENCE_S)
    assert (out, err) == ("[True] True\n", "")


def test_a_parent_that_never_closes_its_fitter_still_exits():
    text = """
        import numpy
        from prismline_worker.fit_process import FitProcess

        fitter = FitProcess("worker_kernels:obey")
        fitter.fit(numpy.array([1.0]), {})
        print(fitter.pid)
    """
    with python(*program(text)) as parent:
        out, err = parent.communicate(timeout=PATIENCE_S)
    assert (parent.returncode, err) == (0, "")
    wait_until_gone(int(out))


def test_a_parent_that_was_started_as_a_module_can_start_children(tmp_path):
    text = """
        import numpy
        from prismline_worker.fit_process import FitProcess

        with FitProcess("worker_kernels:obey") as fitter:
            print(fitter.fit(numpy.array([1.0]), {}).rms)
    """
    package = tmp_path / "started"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(textwrap.dedent(text))
    with python("-m", "started", also=[tmp_path]) as parent:
        out, err = parent.communicate(timeout=PATIENCE_S)
    assert (out, err) == ("1.0\n", "")
