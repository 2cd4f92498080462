"""`make fuzz`: the property tests on new random examples.

`make test` draws the same examples on each machine, so that it fails for what was changed and for nothing else.
Here each round begins from a fresh seed, which is printed; what falsifies a property is shrunk, told with its
blob (``@reproduce_failure``), kept in ``.hypothesis`` and tried first by the next round.

    make fuzz                          rounds until one fails, or ctrl-C
    make fuzz ROUNDS=3                 three rounds
    make fuzz SEED=7 ROUNDS=1          the round of that seed again
    make fuzz ONLY="tests/properties"  some of the tests
"""

from __future__ import annotations

import argparse
import os
import secrets
import subprocess
import sys
from itertools import count
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SELECTION = "(hypothesis or seeds) and not real"
NO_TESTS = 5
"""pytest's exit status where nothing was selected."""


def command(seed: int, workers: int, only: list[str]) -> list[str]:
    """The round of a seed: all property tests that need nothing but this machine."""
    return [
        *(sys.executable, "-m", "pytest", "-q", "-m", SELECTION, f"--hypothesis-seed={seed}"),
        *("-o", "timeout=1200"),  # shrinking takes its time
        *(["-n", str(workers), "--dist", "worksteal"] if workers > 1 else []),
        *only,
    ]


def round_of(seed: int, workers: int, only: list[str]) -> int:
    print(f"fuzz: seed {seed}", flush=True)
    environment = {**os.environ, "WINDLASS_FUZZ": "1"}
    return subprocess.run(command(seed, workers, only), cwd=ROOT, env=environment, check=False).returncode


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=0, help="0: until one fails")
    parser.add_argument("--seed", type=int, help="of the first round; the others' follow it")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("only", nargs="*", default=["tests"])
    options = parser.parse_args(arguments)
    first = options.seed if options.seed is not None else secrets.randbelow(2**32)
    for number in count(1):
        seed = first + number - 1
        status = round_of(seed, options.workers, options.only)
        if status == NO_TESTS:
            print("fuzz: no property tests there", file=sys.stderr)
            return status
        if status:
            told = f"make fuzz SEED={seed} ROUNDS=1"
            if options.only != ["tests"]:
                told += f' ONLY="{" ".join(options.only)}"'
            print(f"fuzz: the round of seed {seed} failed; again: {told}", file=sys.stderr)
            return status
        if number == options.rounds:
            return 0
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
