"""The environment variables of a runner: a list of what passes, so that it sees no credentials."""

from __future__ import annotations

import os
import site
from collections.abc import Collection, Mapping
from pathlib import Path

#: Variables that a program needs to run, and that hold no secret.
PASSES = frozenset(
    {
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "PATH",
        "PYTHONHASHSEED",
        "PYTHONPATH",
        "TZ",
        "VIRTUAL_ENV",
    }
)


def environment_of(home: Path, variables: Mapping[str, str], also: Collection[str] = ()) -> dict[str, str]:
    """What a runner gets of these variables: those in `PASSES`, the locale, and those that are named in `also`.

    home: an empty folder of the runner. Programs look for credentials below HOME.
    """
    kept = {name: value for name, value in variables.items() if name in PASSES or name.startswith("LC_")}
    own = {
        "HOME": str(home),
        "TMPDIR": str(home),
        # The packages below the user's home stay importable.
        "PYTHONUSERBASE": variables.get("PYTHONUSERBASE") or site.getuserbase(),
        # Without this the SDKs of AWS ask the machine for the credentials of its role.
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONUNBUFFERED": "1",
    }
    return kept | own | {name: variables[name] for name in also if name in variables}


def environment(home: Path, also: Collection[str] = ()) -> dict[str, str]:
    """The variables for a runner of this process."""
    return environment_of(home, os.environ, also)
