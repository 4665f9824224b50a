"""Check the model with Spin: exhaust its states, and see that deliberate faults in it are found.

python tests/model/check.py            the spaces that take about a minute at most, every fault
python tests/model/check.py --whole    the large spaces too
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

MODEL = Path(__file__).with_name("ending.pml")
#: What the checker needs; Spin writes C.
COMMANDS = ("spin", "gcc")
INSTALL = "apt-get install spin gcc"


@dataclass(frozen=True)
class Space:
    """The states of the model within some bounds."""

    #: How often something goes wrong, whether people cancel the run, how many chunks recoveries reopen.
    faults: int
    cancels: int
    reopens: int
    #: Whether it is also checked that the end is heard at last, if everybody who can act acts some time.
    live: bool = False
    #: Processor seconds that it takes, roughly.
    seconds: int = 1

    def __str__(self) -> str:
        bounds = f"{self.faults} faults, {'' if self.cancels else 'not '}cancelled, {self.reopens} chunks recovered"
        return f"{bounds}, {'liveness' if self.live else 'safety'}"


SPACES = (
    Space(2, 0, 2, seconds=9),
    Space(1, 1, 0, seconds=14),
    Space(0, 1, 1, seconds=16),
    Space(1, 0, 0, live=True, seconds=10),
    Space(2, 1, 0, seconds=50),
    Space(1, 0, 1, live=True, seconds=80),
    Space(0, 1, 0, live=True, seconds=120),
    Space(1, 1, 1, seconds=120),
)
QUIET, CHANGEABLE, LIVE = Space(1, 0, 0), Space(0, 1, 1), Space(1, 0, 0, live=True)
#: Deliberate faults, by their number in the model: what is wrong, and where it shows.
FAULTS = {
    1: ("the end is recorded whatever has failed since", CHANGEABLE),
    2: ("a late success leaves a closed run closed", CHANGEABLE),
    3: ("a recovery leaves the run drained", CHANGEABLE),
    4: ("a cancellation that comes late stops a run that went on", CHANGEABLE),
    5: ("a cancelled run goes on before its cancellation was said", CHANGEABLE),
    6: ("a run that is cancelled again ends all the same", CHANGEABLE),
    7: ("a drain looks at no counter", CHANGEABLE),
    8: ("what has drained is said once only", QUIET),
    9: ("the sweeper leaves a run alone whose end was not heard", CHANGEABLE),
    10: ("an older token that comes late replaces the newest", LIVE),
    11: ("the state machine ends a run that has ended otherwise", CHANGEABLE),
    12: ("a run whose execution is lost is left to it", LIVE),
    13: ("a cancelled run is ended although it was cancelled again", CHANGEABLE),
    14: ("a failed run that has recovered stays failed", CHANGEABLE),
    15: ("the end is recorded although nobody was told of the drain", QUIET),
    16: ("a cancellation stops a run that has drained, ended and was reopened since", CHANGEABLE),
}
#: States that the checker has to reach, by their number; otherwise what holds says nothing about them.
REACHED = {
    1: "a failed run that has recovered is completed",
    2: "a run completes whose state machine has asked twice",
    3: "a run completes that was cancelled and went on",
    4: "a run that went on is cancelled again, and that is heard",
}


@dataclass(frozen=True)
class Outcome:
    """What the checker found."""

    states: int
    depth: int
    #: Whether there is no state that the checker has not seen.
    exhausted: bool
    #: What does not hold, with the steps that lead there. Empty if nothing was found.
    finding: str
    seconds: float


def missing() -> str | None:
    """The command that is missing here. None if the model can be checked."""
    return next((command for command in COMMANDS if shutil.which(command) is None), None)


def explore(space: Space, *, fault: int = 0, reached: int = 0) -> Outcome:
    """Check the model, with a deliberate fault or with the claim that a state is not reached, in `space`."""
    bounds = {"FAULTS": space.faults, "CANCELS": space.cancels, "REOPENS": space.reopens}
    names = [f"-D{name}={value}" for name, value in {**bounds, "FAULT": fault, "REACHED": reached}.items()]
    names += ["-DLIVE"] if space.live else []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(MODEL, folder)
        _run(folder, "spin", *names, "-a", MODEL.name)
        # COLLAPSE stores states in a third of the memory, without loss. Nearly every step concerns everybody, so there
        # is no order to leave out (NOREDUCE). NFAIR has room for one bit for each of the nine processes.
        # What is found within a second is not worth a compiler that optimises for three.
        optimise = "-O0" if fault or reached else "-O2"
        kind = ["-DNFAIR=3"] if space.live else ["-DSAFETY", "-DNOCLAIM"]
        _run(folder, "gcc", optimise, "-w", "-DCOLLAPSE", "-DNOREDUCE", "-DMEMLIM=12000", *kind, "-o", "pan", "pan.c")
        told = _run(folder, "./pan", "-m1000000", "-w22", *(["-a", "-f"] if space.live else []))
        violated = re.search(r"pan:1: (.*)", told)
        return Outcome(
            states=int(_number(r"(\d+) states, stored", told)),
            depth=int(_number(r"depth reached (\d+)", told)),
            exhausted="errors: 0" in told and "not completed" not in told and "too small" not in told,
            finding=f"{violated[1]}\n{_steps(folder, names)}" if violated else "",
            seconds=time.monotonic() - began,
        )


def _run(folder: str, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0 and command[0] != "./pan":
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"The checker did not finish:\n{text}")
    return float(found[1])


def _steps(folder: str, names: list[str]) -> str:
    """The steps of what was found: who took it, on which line, and the variables that it changed."""
    told = _run(folder, "spin", *names, "-k", f"{MODEL.name}.trail", "-t", "-p", "-g", "-l", MODEL.name)
    lines, known, last = list[str](), dict[str, str](), ""
    for line in told.partition("#processes")[0].splitlines():
        if "START OF CYCLE" in line:
            lines.append("from here on, for ever:")
        elif step := re.match(r"\s*(\d+):\s+proc\s+(\d+) \((\w+):1\) \S+:(\d+) \(state", line):
            if step[1] != last:
                lines.append(f"line {step[4]:>3}, {step[3]} {step[2]}:")
                last = step[1]
        elif (change := re.match(r"\s+(\S+) = (\S+)$", line)) and known.get(change[1]) != change[2] and lines:
            known[change[1]] = change[2]
            lines[-1] += f" {change[1].rpartition(':')[2]}={change[2]}"
    return "\n".join(lines)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="Check the model of how a run ends.")
    parser.add_argument("--whole", action="store_true", help="exhaust the large spaces too; takes minutes")
    parser.add_argument("--cores", type=int, default=2, help="spaces and faults to explore at the same time")
    arguments = parser.parse_args()
    if missing() is not None:
        sys.exit(f"The model needs {missing()}: {INSTALL}")
    spaces = [space for space in SPACES if arguments.whole or space.seconds < 60]
    with ThreadPoolExecutor(arguments.cores) as pool:
        # The longest first, so that no core is idle at the end.
        spaces.sort(key=lambda space: -space.seconds)
        for space, outcome in zip(spaces, pool.map(explore, spaces), strict=True):
            if outcome.finding:
                sys.exit(f"{outcome.finding}\nThe model breaks a promise ({space}).")
            if not outcome.exhausted:
                sys.exit(f"{space}: NOT exhausted, {outcome.states:,} states")
            print(
                f"{space}: exhausted, {outcome.states:,} states, depth {outcome.depth}, {outcome.seconds:.0f} s",
                flush=True,
            )
        for number, outcome in zip(REACHED, pool.map(lambda n: explore(CHANGEABLE, reached=n), REACHED), strict=True):
            print(f"{'reached' if outcome.finding else 'NOT REACHED'}: {REACHED[number]}", flush=True)
            if not outcome.finding:
                sys.exit(1)
        for number, outcome in zip(FAULTS, pool.map(lambda n: explore(FAULTS[n][1], fault=n), FAULTS), strict=True):
            print(f"{'found' if outcome.finding else 'NOT FOUND'}: {FAULTS[number][0]}", flush=True)
            if not outcome.finding:
                sys.exit(1)


if __name__ == "__main__":
    main()
