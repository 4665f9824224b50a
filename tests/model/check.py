"""Check the model with Spin: explore all its states, and verify that deliberate faults in it are found.

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
#: Commands that the checker needs. Spin generates C.
COMMANDS = ("spin", "gcc")
INSTALL = "apt-get install spin gcc"


@dataclass(frozen=True)
class Space:
    """The states of the model within some bounds."""

    #: The number of faults, whether people cancel the run, and how many chunks recoveries reopen.
    faults: int
    cancels: int
    reopens: int
    #: Whether the checker also proves that the end is recorded eventually, if each process that can act eventually
    #: does.
    live: bool = False
    #: Approximate processor seconds.
    seconds: int = 1

    @property
    def small(self) -> bool:
        """Whether the tests explore it, in seconds and in less than a gigabyte."""
        return self.seconds < 20

    def __str__(self) -> str:
        bounds = f"{self.faults} faults, {'' if self.cancels else 'not '}cancelled, {self.reopens} chunks recovered"
        return f"{bounds}, {'liveness' if self.live else 'safety'}"


SPACES = (
    Space(2, 0, 2, seconds=8),
    Space(1, 1, 0, seconds=13),
    Space(0, 1, 1, seconds=12),
    Space(1, 0, 0, live=True, seconds=6),
    Space(2, 1, 0, seconds=50),
    Space(1, 0, 1, live=True, seconds=80),
    Space(0, 1, 0, live=True, seconds=120),
    Space(1, 1, 1, seconds=120),
)
QUIET, CHANGEABLE, LIVE = Space(1, 0, 0), Space(0, 1, 1), Space(1, 0, 0, live=True)
#: Deliberate faults, by their number in the model: what is wrong, and the space in which the checker finds it.
FAULTS = {
    1: ("the end is recorded even if chunks have failed since", CHANGEABLE),
    2: ("a late success leaves a closed run closed", CHANGEABLE),
    3: ("a recovery leaves the run drained", CHANGEABLE),
    4: ("a cancellation that comes late stops a run that went on", CHANGEABLE),
    5: ("a cancelled run goes on before its cancellation was announced", CHANGEABLE),
    6: ("a run that is cancelled again still completes or fails", CHANGEABLE),
    7: ("a drain ignores the counters", CHANGEABLE),
    8: ("a drain is announced only once", QUIET),
    9: ("the sweeper ignores a run whose end is not recorded", CHANGEABLE),
    10: ("an older token that arrives late replaces the newest", LIVE),
    11: ("the state machine ends a run that has already ended", CHANGEABLE),
    12: ("a run whose execution is lost is never ended", LIVE),
    13: ("a cancelled run is ended although it was cancelled again", CHANGEABLE),
    14: ("a failed run that has recovered stays failed", CHANGEABLE),
    15: ("the end is recorded although the drain was not announced", QUIET),
    16: ("a cancellation stops a run that has drained, ended and was reopened since", CHANGEABLE),
}
#: States that the checker has to reach, by their number. If it did not, the promises would prove nothing about them.
REACHED = {
    1: "a failed run that has recovered is completed",
    2: "a run completes after its state machine has asked twice",
    3: "a run that was cancelled and went on completes",
    4: "a run that went on is cancelled again, and its end is recorded",
}


@dataclass(frozen=True)
class Outcome:
    """The result of one check."""

    states: int
    depth: int
    #: Whether the checker has seen every state.
    exhausted: bool
    #: The broken promise, with the steps that lead there. Empty if there is none.
    finding: str
    seconds: float


def missing() -> str | None:
    """The first command that is not installed. None if the model can be checked."""
    return next((command for command in COMMANDS if shutil.which(command) is None), None)


def explore(space: Space, *, fault: int = 0, reached: int = 0) -> Outcome:
    """Check the model in `space`: as it is, with a deliberate fault, or with a claim that a state is not reached."""
    bounds = {"FAULTS": space.faults, "CANCELS": space.cancels, "REOPENS": space.reopens}
    names = [f"-D{name}={value}" for name, value in {**bounds, "FAULT": fault, "REACHED": reached}.items()]
    names += ["-DLIVE"] if space.live else []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(MODEL, folder)
        _run(folder, "spin", *names, "-a", MODEL.name)
        # COLLAPSE stores a space in two thirds of the memory, without loss, for a third more of time. Nearly every step
        # affects all processes, so partial order reduction gains nothing (NOREDUCE). NFAIR has one bit for each of the
        # nine processes.
        # A fault is found within a second, but a compiler that optimises takes three.
        optimise = "-O0" if fault or reached else "-O2"
        kind = ["-DNFAIR=3"] if space.live else ["-DSAFETY", "-DNOCLAIM"]
        kind += [] if space.small else ["-DCOLLAPSE"]
        _run(folder, "gcc", optimise, "-w", "-DNOREDUCE", "-DMEMLIM=12000", *kind, "-o", "pan", "pan.c")
        output = _run(folder, "./pan", "-m1000000", "-w22", *(["-a", "-f"] if space.live else []))
        violated = re.search(r"pan:1: (.*)", output)
        return Outcome(
            states=int(_number(r"(\d+) states, stored", output)),
            depth=int(_number(r"depth reached (\d+)", output)),
            exhausted="errors: 0" in output and "not completed" not in output and "too small" not in output,
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
    """The steps that lead to a finding: process, line, and the variables that each step changed."""
    output = _run(folder, "spin", *names, "-k", f"{MODEL.name}.trail", "-t", "-p", "-g", "-l", MODEL.name)
    lines, known, last = list[str](), dict[str, str](), ""
    for line in output.partition("#processes")[0].splitlines():
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
