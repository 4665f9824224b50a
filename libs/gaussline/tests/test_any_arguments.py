"""Every public function with arguments of any kind; ``fuzz_api`` runs as a program for many more rounds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROUNDS = 300


def test_arguments_of_any_kind_are_taken_or_refused_with_a_message_of_the_package() -> None:
    fuzzer = Path(__file__).with_name("fuzz_api.py")
    ran = subprocess.run([sys.executable, fuzzer, str(ROUNDS)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
