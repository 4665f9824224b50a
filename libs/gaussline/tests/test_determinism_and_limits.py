"""The same bits for every division of the batch, and bounded work for any spectrum."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from prismline_gaussline import (
    COMPONENT_COLUMNS,
    SPECTRUM_COLUMNS,
    ComponentFlag,
    Decomposition,
    Flag,
    Params,
    Preset,
    decompose,
)
from prismline_gaussline.synthetic import make_spectra, model

#: The kernel's bound of channel-by-component evaluations for one spectrum, times the factor within which it holds.
WORK_BOUND = 1.5 * 2e8


def content(table: Decomposition) -> dict[str, bytes]:
    """Every column but the wall-clock time."""
    return {
        name: getattr(table, name).tobytes() for name in (*SPECTRUM_COLUMNS, *COMPONENT_COLUMNS) if name != "seconds"
    }


@pytest.fixture(scope="module")
def mixed() -> NDArray[np.float32]:
    """140 spectra, one of them crowded with 33 lines."""
    spectra = np.array([s.signal for s in make_spectra(20, 9301)], dtype=np.float32)
    rng = np.random.default_rng(9302)
    crowd = np.stack((rng.uniform(1.0, 5.0, 33), np.linspace(8.0, 416.0, 33), rng.uniform(0.8, 1.6, 33)), axis=1)
    spectra[57] = model(crowd, 424) + rng.normal(0.0, 0.1, 424)
    return spectra


@pytest.mark.parametrize("preset", list(Preset))
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_the_number_of_threads_changes_no_bit(mixed: NDArray[np.float32], threads: int, preset: Preset) -> None:
    params = Params(preset=preset)
    assert content(decompose(mixed, params, threads=threads)) == content(decompose(mixed, params))


def test_the_division_of_the_batch_changes_no_bit(mixed: NDArray[np.float32]) -> None:
    whole = content(decompose(mixed))
    parts = [content(decompose(mixed[i:j], threads=2)) for i, j in ((0, 1), (1, 58), (58, 140))]
    assert {name: b"".join(part[name] for part in parts) for name in whole} == whole


def test_every_instruction_set_of_the_machine_finds_the_same_components(mixed: NDArray[np.float32]) -> None:
    reference = decompose(mixed, instruction_set="baseline")
    for name in ("avx2", "avx512"):
        try:
            table = decompose(mixed, instruction_set=name)
        except ValueError:
            continue
        same = table.n_components == reference.n_components
        assert same.mean() > 0.97
        rows = np.repeat(same, reference.n_components), np.repeat(same, table.n_components)
        np.testing.assert_allclose(table.mean[rows[1]], reference.mean[rows[0]], atol=0.3)


def test_other_threads_run_while_a_batch_is_decomposed(mixed: NDArray[np.float32]) -> None:
    spectra = np.tile(mixed, (40, 1))
    done = threading.Event()
    turns = 0

    def work() -> None:
        decompose(spectra)
        done.set()

    worker = threading.Thread(target=work)
    worker.start()
    while not done.is_set():
        turns += 1
    worker.join()
    assert turns > 100


@pytest.mark.parametrize("preset", list(Preset))
def test_the_time_budget_ends_the_search_and_sets_its_flag(mixed: NDArray[np.float32], preset: Preset) -> None:
    table = decompose(mixed, Params(preset=preset, time_budget_s=0.0))
    searched = table.flags & Flag.NO_NOISE == 0
    assert (table.flags[searched] & Flag.TIME_LIMIT).any()
    late = table.flags & Flag.TIME_LIMIT != 0
    assert (table.flags[late] & Flag.CONVERGED == 0).all()
    assert not (decompose(mixed, Params(preset=preset, time_budget_s=60.0)).flags & Flag.TIME_LIMIT).any()


@pytest.mark.parametrize("preset", list(Preset))
def test_the_component_limit_holds_and_sets_its_flag(mixed: NDArray[np.float32], preset: Preset) -> None:
    table = decompose(mixed[57:58], Params(preset=preset, max_components=4))
    assert 1 <= table.n_components[0] <= 4
    assert table.flags[0] & Flag.LIMIT_HIT
    assert decompose(mixed[57:58], Params(preset=preset)).n_components[0] >= 30


@pytest.mark.parametrize("preset", list(Preset))
def test_the_worst_known_spectrum_stays_inside_the_work_bound(preset: Preset) -> None:
    channels = 65_536
    rng = np.random.default_rng(9303)
    wide = np.stack(
        (rng.uniform(50.0, 500.0, 80), rng.uniform(0, channels, 80), rng.uniform(2_000, 20_000, 80)), axis=1
    )
    spectra = (model(wide, channels) + rng.normal(0.0, 1.0, channels))[None]
    table = decompose(spectra, Params(preset=preset, time_budget_s=60.0))
    assert table.work[0] < WORK_BOUND


def many_wide_lines(channels: int, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A spectrum of lines that all overlap, and components to start from."""
    rng = np.random.default_rng(9304)
    lines = np.stack(
        (rng.uniform(50.0, 500.0, count), np.linspace(0.0, channels - 1.0, count), rng.uniform(0.1, 0.25, count)),
        axis=1,
    ) * [1.0, 1.0, channels]
    return (model(lines, channels) + rng.normal(0.0, 1.0, channels))[None], lines * [1.1, 1.0, 1.02]


def test_one_step_of_a_fit_of_many_components_stays_inside_the_work_bound() -> None:
    spectra, starts = many_wide_lines(20_000, 300)
    params = Params(max_components=512, time_budget_s=600.0)
    table = decompose(spectra, params, noise=1.0, starts=[starts])
    assert table.work[0] < WORK_BOUND
    assert table.flags[0] & Flag.LIMIT_HIT
    assert not table.flags[0] & Flag.TIME_LIMIT


def test_a_spectrum_without_time_ends_within_one_step_of_a_fit() -> None:
    spectra, starts = many_wide_lines(20_000, 300)
    table = decompose(spectra, Params(max_components=512, time_budget_s=0.0), noise=1.0, starts=[starts])
    assert table.flags[0] & Flag.TIME_LIMIT
    assert table.work[0] < 3.0 * spectra.size * len(starts)
    assert (table.component_flags & ComponentFlag.NO_ERROR != 0).all()


def test_threads_that_wait_for_a_processor_do_not_bring_a_spectrum_to_its_time_limit() -> None:
    spectra, starts = many_wide_lines(2_000, 40)
    batch = {"spectra": np.repeat(spectra, 32, axis=0), "noise": 1.0, "starts": [starts] * 32}
    alone = decompose(spectra, noise=1.0, starts=[starts])
    budget = 4.0 * alone.thread_seconds[0]
    together = decompose(**batch, params=Params(time_budget_s=budget), threads=8)
    assert not (together.flags & Flag.TIME_LIMIT).any()
    assert content(together)["amplitude"] == content(alone)["amplitude"] * 32


@pytest.fixture
def alarm() -> Iterator[Callable[[float], None]]:
    """Sends this process, after some seconds, a signal that raises KeyboardInterrupt, like Ctrl-C."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("threads", [1, 3])
def test_an_interrupt_ends_a_call_before_its_batch(
    mixed: NDArray[np.float32], alarm: Callable[[float], None], threads: int
) -> None:
    spectra = np.tile(mixed, (1000, 1))

    def interrupted() -> None:
        alarm(0.05)
        decompose(spectra, threads=threads)

    started = time.process_time()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.process_time() - started < 1.5  # the whole batch takes three seconds
    assert content(decompose(mixed, threads=threads)) == content(decompose(mixed))
