"""The kernel with AddressSanitizer and UndefinedBehaviorSanitizer, driven by programs in C."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

# Each test compiles the kernel with sanitizers, which takes minutes on a busy machine.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

TESTS = Path(__file__).resolve().parent
KERNEL = TESTS.parent / "src" / "kernel"
UNITS = ("batch", "kernel_baseline", "kernel_avx2", "kernel_avx512")
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")

#: Seeds of one build, with this many batches of each on every instruction set of the machine.
SEEDS, ROUNDS = 20, 3


def build(folder: Path, program: str, optimisation: str, *link: str) -> Path:
    """``program``.c with the kernel, compiled as in setup.py but for optimisation, sanitizers and checks."""
    compiler = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the kernel cannot be built with its sanitizers")
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    probed = [compiler, *SANITIZE, str(probe), "-o", str(folder / "probe")]
    if subprocess.run(probed, capture_output=True, check=False).returncode != 0:
        pytest.skip("the C compiler has no AddressSanitizer")
    flags = [compiler, "-std=gnu11", optimisation, "-g", "-fno-math-errno", "-fno-trapping-math", *SANITIZE]
    flags += ["-DGAUSSLINE_CHECKS", "-Wno-psabi", f"-I{KERNEL}"]
    sources = [TESTS / f"{program}.c", *(KERNEL / f"{unit}.c" for unit in UNITS)]
    objects = [str(folder / f"{source.stem}.o") for source in sources]
    compilations = [
        subprocess.Popen([*flags, "-c", str(source), "-o", target], stderr=subprocess.PIPE, text=True)
        for source, target in zip(sources, objects, strict=True)
    ]
    errors = [compilation.communicate()[1] for compilation in compilations]
    assert not any(compilation.returncode for compilation in compilations), errors
    subprocess.run([compiler, *SANITIZE, *objects, "-o", str(folder / program), *link, "-lm", "-lpthread"], check=True)
    return folder / program


@pytest.mark.parametrize(("optimisation", "seed"), [("-O1", 1), ("-O3", 21)])
def test_a_hostile_batch_causes_no_invalid_access_and_no_nan_without_a_flag(
    tmp_path: Path, optimisation: str, seed: int
) -> None:
    driver = build(tmp_path, "fuzz_driver", optimisation)
    ran = subprocess.run([driver, str(ROUNDS), str(seed), str(SEEDS)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]


def test_a_failed_allocation_is_an_error_or_changes_nothing(tmp_path: Path) -> None:
    program = build(
        tmp_path, "memory_driver", "-O1", *(f"-Wl,--wrap={name}" for name in ("malloc", "calloc", "realloc"))
    )
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert int(ran.stdout) > 0  # some allocations cannot fail without an error
