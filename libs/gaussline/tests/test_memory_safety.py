"""The kernel with AddressSanitizer and UndefinedBehaviorSanitizer: a driver in C gives it hostile batches."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LIBRARY = Path(__file__).resolve().parent.parent
KERNEL = LIBRARY / "src" / "kernel"
UNITS = ("batch", "kernel_baseline", "kernel_avx2", "kernel_avx512")
#: Seeds are run ten at a time, with this many batches of each on every instruction set of the machine.
SEEDS, ROUNDS = 10, 15


@pytest.fixture(scope="module", params=["-O1", "-O3"])
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver, compiled like the kernel but for its optimisation, which is the parameter."""
    compiler = shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the kernel cannot be built with its sanitizers")
    folder = tmp_path_factory.mktemp("fuzz")
    sanitize = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    probe = folder / "probe.c"
    probe.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    probed = [compiler, *sanitize, str(probe), "-o", str(folder / "probe")]
    if subprocess.run(probed, capture_output=True, check=False).returncode != 0:
        pytest.skip("the C compiler has no AddressSanitizer")
    flags = [compiler, "-std=gnu11", request.param, "-g", "-fno-math-errno", "-fno-trapping-math"]
    flags += [*sanitize, "-DGAUSSLINE_CHECKS", "-Wno-psabi", f"-I{KERNEL}"]
    sources = [LIBRARY / "tests" / "fuzz_driver.c", *(KERNEL / f"{unit}.c" for unit in UNITS)]
    objects = [str(folder / f"{source.stem}.o") for source in sources]
    compilations = [
        subprocess.Popen([*flags, "-c", str(source), "-o", target], stderr=subprocess.PIPE, text=True)
        for source, target in zip(sources, objects, strict=True)
    ]
    errors = [compilation.communicate()[1] for compilation in compilations]
    assert not any(compilation.returncode for compilation in compilations), errors
    target = folder / "fuzz_driver"
    subprocess.run([compiler, *sanitize, *objects, "-o", str(target), "-lm", "-lpthread"], check=True)
    return target


@pytest.mark.parametrize("seed", [1, 11, 21, 31])
def test_a_hostile_batch_causes_no_invalid_access_and_no_nan_without_a_flag(driver: Path, seed: int) -> None:
    ran = subprocess.run([driver, str(ROUNDS), str(seed), str(SEEDS)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
