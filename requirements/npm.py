"""The lock of the tools that npm installs: npm.txt has the version and the hash of each package in package.json and of
what these need, on every platform.

    python requirements/npm.py update          # raise the versions in package.json to the latest ones
    python requirements/npm.py lock            # write npm.txt from what the registry offers
    python requirements/npm.py check FOLDER    # compare what npm installed into FOLDER with npm.txt
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

FOLDER = Path(__file__).resolve().parent
LOCK = FOLDER / "npm.txt"


def locked(lock_file: Path) -> set[str]:
    """The packages in a lock file of npm, each as a line of npm.txt."""
    packages = json.loads(lock_file.read_text())["packages"]
    return {
        f"{path.rpartition('node_modules/')[2]}=={package['version']} --hash={package['integrity']}"
        for path, package in packages.items()
        if path
    }


def resolve() -> set[str]:
    """The lines of npm.txt for package.json. Nothing is installed."""
    with TemporaryDirectory() as folder:
        shutil.copy(FOLDER / "package.json", folder)
        command = ["npm", "install", "--package-lock-only", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(command, cwd=folder, check=True)
        return locked(Path(folder, "package-lock.json"))


def update() -> None:
    """Raise each version in package.json to the latest one."""
    path = FOLDER / "package.json"
    stated = json.loads(path.read_text())
    for name in stated["devDependencies"]:
        latest = subprocess.run(["npm", "view", name, "version"], capture_output=True, text=True, check=True).stdout
        stated["devDependencies"][name] = latest.strip()
    path.write_text(f"{json.dumps(stated, indent=2, ensure_ascii=False)}\n")


def main(arguments: list[str]) -> int:
    """Entry point. Returns 1 if an installed package is not in the lock."""
    match arguments:
        case ["update"]:
            update()
            return 0
        case ["lock"]:
            LOCK.write_text("".join(f"{line}\n" for line in sorted(resolve())))
            return 0
        case ["check", folder]:
            foreign = locked(Path(folder, "node_modules/.package-lock.json")) - set(LOCK.read_text().splitlines())
            for line in sorted(foreign):
                sys.stderr.write(f"{LOCK.name} does not have {line}. If package.json changed, run `make lock`.\n")
            return 1 if foreign else 0
        case _:
            sys.stderr.write(str(__doc__))
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
