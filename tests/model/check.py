"""Check the model: its types, its invariants on random walks, and that deliberate faults violate them."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

MODEL = Path(__file__).with_name("ending.qnt")
INVARIANTS = (
    "countersAreItems",
    "drainedMeansEnded",
    "heardIsTrue",
    "anEndHasAnOwner",
    "completedIsFinal",
    "cancelledIsLeftByWish",
    "whoWishesIsObeyed",
)
#: States that the walks have to reach; otherwise they say nothing about them.
REACHED = ("failedThenRecovered", "lateToken", "wentOnAndCompleted", "cancelledTwice")
#: Faults: what to find in the model (once), and what to put there.
FAULTS = {
    "the end is recorded whatever has failed since": ("\n      and failed == me.read.failed)", ")"),
    "a late success leaves a closed run closed": (
        'open\' = if (chunks.get(c) == "FAILED") true else open',
        "open' = open",
    ),
    "a recovery leaves the run drained": (
        "drained' = false, drains' = drains, endedAs' = \"\"",
        "drained' = drained, drains' = drains, endedAs' = \"\"",
    ),
    "a cancellation that comes late stops a run that went on": (
        "all { not(stopped), not(drained), seen == wentOn },",
        "all { not(stopped), not(drained) },",
    ),
    "a cancelled run goes on before its cancellation was said": (
        'stopped, endedAs == "cancelled", wentOn < 2,',
        "stopped, wentOn < 2,",
    ),
    "a run that is cancelled again completes": (
        " and me.read.drained and not(me.read.stopped)",
        " and me.read.drained",
    ),
    "a drain looks at no counter": ("not(drained), completed + failed == size(CHUNKS),", "not(drained),"),
}


def walk(quint: str, model: Path, samples: int) -> subprocess.CompletedProcess[str]:
    """Random walks through `model`; the exit code says whether an invariant was violated."""
    bounds = ["--max-samples", str(samples), "--max-steps", "80"]
    command = [quint, "run", str(model), "--backend=typescript", *bounds, "--invariants", *INVARIANTS]
    command += ["--witnesses", *REACHED]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def faulty_models(folder: Path) -> Iterator[tuple[str, Path]]:
    """A model with each fault."""
    whole = MODEL.read_text()
    for number, (name, (old, new)) in enumerate(FAULTS.items()):
        assert whole.count(old) == 1, f"{old!r} stands {whole.count(old)} times in {MODEL.name}"
        path = folder / f"fault{number}.qnt"
        path.write_text(whole.replace(old, new))
        yield name, path


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("quint", help="the quint command")
    parser.add_argument("--samples", type=int, default=5_000, help="random walks through the model")
    arguments = parser.parse_args()
    subprocess.run([arguments.quint, "typecheck", str(MODEL)], check=True)
    done = walk(arguments.quint, MODEL, arguments.samples)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nAn invariant of the model is violated.")
    print(f"{MODEL.name}: {arguments.samples} walks, no invariant violated")
    for state, walks in re.findall(r"(\w+) was witnessed in (\d+) trace", done.stdout):
        print(f"{state}: in {walks} walks")
        if walks == "0":
            sys.exit(f"The walks do not reach {state}.")
    with tempfile.TemporaryDirectory() as folder:
        for name, path in faulty_models(Path(folder)):
            if walk(arguments.quint, path, arguments.samples).returncode == 0:
                sys.exit(f"The walks do not notice this fault: {name}.")
            print(f"noticed: {name}")


if __name__ == "__main__":
    main()
