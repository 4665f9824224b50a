"""The C kernel of prismline-gaussline; everything else is in pyproject.toml."""

from __future__ import annotations

from setuptools import Extension, setup

#: Optional: where no C compiler is found the package installs without its kernel and works through phspectra.
KERNEL = Extension(
    "prismline_gaussline._kernel",
    sources=[f"src/kernel/{name}.c" for name in ("module", "batch", "kernel_baseline", "kernel_avx2", "kernel_avx512")],
    depends=[
        f"src/kernel/{name}.h"
        for name in (
            "gaussline",
            "kernel.inc",
            "simd",
            "noise",
            "persistence",
            "fit",
            "search",
            "model",
            "best",
            "compatible",
            "spectrum",
        )
    ],
    define_macros=[("Py_LIMITED_API", "0x030b0000")],
    py_limited_api=True,
    extra_compile_args=[
        "-std=gnu11",
        "-O3",
        "-g0",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fvisibility=hidden",
        "-Wno-psabi",
    ],
    libraries=["m", "pthread"],
    optional=True,
)

setup(ext_modules=[KERNEL], options={"bdist_wheel": {"py_limited_api": "cp311"}})
