"""The kernel with AddressSanitizer and UndefinedBehaviorSanitizer, driven by programs in C."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

# The tests compile the kernel with sanitizers, which takes minutes on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

TESTS = Path(__file__).resolve().parent
KERNEL = TESTS.parent / "src" / "kernel"
UNITS = ("batch", "kernel_baseline", "kernel_avx2", "kernel_avx512")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")

#: Seeds of one build, with this many batches of each on every instruction set of the machine.
SEEDS, ROUNDS = 20, 3


#: Makes a program: the name of its C file, the optimisation, and options for the linker.
Build = Callable[..., Path]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compiles as in setup.py but for optimisation, sanitizers and checks. The kernel once for each optimisation."""
    compiler = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the kernel cannot be built with its sanitizers")
    probe = tmp_path_factory.mktemp("probe") / "probe.c"
    probe.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    probed = [compiler, *SANITIZE, str(probe), "-o", str(probe.with_suffix(""))]
    if subprocess.run(probed, capture_output=True, check=False).returncode != 0:
        pytest.skip("the C compiler has no AddressSanitizer")

    def compiled(sources: Sequence[Path], optimisation: str) -> list[str]:
        folder = tmp_path_factory.mktemp("objects")
        flags = [compiler, "-std=gnu11", optimisation, "-g", "-fno-math-errno", "-fno-trapping-math", *SANITIZE]
        flags += ["-DGAUSSLINE_CHECKS", "-Wno-psabi", f"-I{KERNEL}"]
        objects = [str(folder / f"{source.stem}.o") for source in sources]
        compilations = [
            subprocess.Popen([*flags, "-c", str(source), "-o", target], stderr=subprocess.PIPE, text=True)
            for source, target in zip(sources, objects, strict=True)
        ]
        errors = [compilation.communicate()[1] for compilation in compilations]
        assert not any(compilation.returncode for compilation in compilations), errors
        return objects

    @cache
    def kernel(optimisation: str) -> list[str]:
        return compiled([KERNEL / f"{unit}.c" for unit in UNITS], optimisation)

    def linked(program: str, optimisation: str, *link: str) -> Path:
        objects = [*compiled([TESTS / f"{program}.c"], optimisation), *kernel(optimisation)]
        target = Path(objects[0]).with_suffix("")
        subprocess.run([compiler, *SANITIZE, *objects, "-o", str(target), *link, "-lm", "-lpthread"], check=True)
        return target

    return linked


@pytest.mark.parametrize(("optimisation", "seed"), [("-O3", 21), ("-O1", 1)])
def test_a_hostile_batch_causes_no_invalid_access_and_no_nan_without_a_flag(
    build: Build, optimisation: str, seed: int
) -> None:
    driver = build("fuzz_driver", optimisation)
    ran = subprocess.run([driver, str(ROUNDS), str(seed), str(SEEDS)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]


def test_a_failed_allocation_is_an_error_or_changes_nothing(build: Build) -> None:
    program = build("memory_driver", "-O1", *(f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc")))
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert int(ran.stdout) > 0  # some allocations cannot fail without an error
