"""The C kernel of prismline-gaussline; everything else is in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).parent

#: Optional: where no C compiler is found the package installs without its kernel and works through phspectra.
KERNEL = Extension(
    "prismline_gaussline._kernel",
    sources=[f"src/kernel/{name}.c" for name in ("module", "batch", "kernel_baseline", "kernel_avx2", "kernel_avx512")],
    depends=[str(header.relative_to(HERE)) for header in sorted(HERE.glob("src/kernel/*.h"))],
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


class BuildKernel(build_ext):
    """Builds the kernel, and leaves no older one behind."""

    def run(self) -> None:
        """Removes the kernel of earlier sources first, so that none remains if the build fails."""
        folder = HERE / "src" if self.inplace or self.editable_mode else Path(self.build_lib)
        for earlier in folder.glob("prismline_gaussline/_kernel.*"):
            if earlier.suffix != ".pyi":
                earlier.unlink()
        super().run()


setup(ext_modules=[KERNEL], cmdclass={"build_ext": BuildKernel}, options={"bdist_wheel": {"py_limited_api": "cp311"}})
