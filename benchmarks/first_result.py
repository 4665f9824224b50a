"""Seconds from `pip install` to the first result of a function over a list, with the README's own commands.

    make wheels && python benchmarks/first_result.py [--rounds 3]

Each round makes a new environment, with empty caches, in a folder outside of the checkout. Packages come from the
configured index. The peer installs the same packages and calls the function in a loop. The last
line is a ratio.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
BLOCKS = dict(re.findall(r"^<!-- (\w+) -->\n```sh\n(.*?)^```$", (REPOSITORY / "README.md").read_text(), re.M | re.S))
PEER = "import pydantic, boto3, pyarrow; from mine import work; print([work(item) for item in (1, 2, 3)])"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = [measured() for _ in range(parser.parse_args().rounds)]
    for name in rounds[0]:
        each = [found[name] for found in rounds]
        print(f"{name}: {statistics.median(each):.1f} ({min(each):.1f} to {max(each):.1f})")


def measured() -> dict[str, float]:
    """Seconds of the steps of one round."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        (folder / "dist").symlink_to(REPOSITORY / "dist")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PRISMLINE_"))}
        path = f"{folder / 'venv' / 'bin'}{os.pathsep}{kept['PATH']}"
        environment = {
            **kept,
            "PATH": path,
            "PRISMLINE_HOME": str(folder / "home"),
            "VIRTUAL_ENV": str(folder / "venv"),
        }
        environment |= {"PIP_CACHE_DIR": f"{folder}/pip", "UV_CACHE_DIR": f"{folder}/uv"}

        def seconds(commands: str) -> float:
            began = time.monotonic()
            shell = ["bash", "-e", "-c", commands]
            subprocess.run(shell, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
            return time.monotonic() - began

        *before, down = BLOCKS["run"].splitlines()
        installation, run = seconds(BLOCKS["install"]), seconds("\n".join(before))
        seconds(down)
        peer = seconds(f'python -c "{PEER}"')
    return {
        "installation": installation,
        "up, map, results": run,
        "from pip install to the first result": installation + run,
        "its ratio to the peer": (installation + run) / (installation + peer),
    }


if __name__ == "__main__":
    main()
