"""`make bench`: every benchmark in one run on one machine, then one table against the goals.

The load of the machine before each benchmark is printed: figures of a busy machine are lower bounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.goals import table

ROOT = Path(__file__).resolve().parent.parent


def run(module: str, *arguments: str) -> dict | None:
    """Run one benchmark as its own process and return what it printed as JSON; ``None`` when it failed."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments, "-o", "json"]
    print(f"\n$ {' '.join(command[1:])}   (load {os.getloadavg()[0]:.1f})", flush=True)
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run(command, stdout=output, cwd=ROOT, check=False)
        output.seek(0)
        text = output.read()
    if done.returncode != 0:
        print(f"failed with {done.returncode}\n{text}", flush=True)
        return None
    print(text, flush=True)
    return json.loads(text)


PLAN: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("install", ()),
    ("cold_start", ()),
    ("exec_round_trip", ()),
    ("store_wire", ()),
    ("informer_sync", ()),
    ("end_to_end", ()),
    ("end_to_end", ()),
    ("end_to_end", ()),
    ("engine", ("--nodes", "5000", "--gpus", "8", "--pods", "50000", "--gang", "1", "--classes", "4")),
    ("engine", ("--nodes", "5000", "--gpus", "8", "--pods", "40000", "--gang", "20")),
    ("engine", ("--nodes", "5000", "--gpus", "8", "--pods", "40000", "--gang", "1000")),
    ("months", ("--policies", "fifo-backfill,easy,windlass")),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="run only the benchmarks of this name")
    options = parser.parse_args()
    chosen = [(module, args) for module, args in PLAN if options.only in (None, module)]
    if not chosen:
        parser.error(f"no benchmark is named {options.only!r}: {', '.join(sorted({m for m, _ in PLAN}))}")
    print(f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}", flush=True)
    results = [(module, run(module, *args)) for module, args in chosen]
    good = [(module, result) for module, result in results if result is not None]
    failed = len(results) - len(good)
    print("", *table(good), sep="\n")
    print(f"\n{len(good)} benchmarks ran, {failed} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
