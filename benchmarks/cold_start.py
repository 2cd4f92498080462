"""Waiting times of a user: the version, a list, and the first line of a job's output,
cold and warm.

``python -m benchmarks.cold_start [-o json]``. Cold means an empty home directory and no
control plane: the command makes certificates and a database, starts three processes,
registers the node, schedules, runs. Each value is a median. Goals are those of the
project (``docs/operations``); a ratio above 1 means missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

WINDLASS = str(Path(sys.executable).parent / "windlass")
GOALS_SECONDS = {"version": 0.080, "ps": 0.150, "run_cold": 2.0, "run_warm": 0.4}


class Home:
    """An empty home folder; everything that was started in it is stopped at the end."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="windlass-bench-"))
        self.environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.path),
            "LANG": os.environ.get("LANG", "C.UTF-8"),
        }

    def __enter__(self) -> Home:
        return self

    def __exit__(self, *_: object) -> None:
        self.run("down", "--now")
        shutil.rmtree(self.path, ignore_errors=True)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [WINDLASS, *arguments],
            env=self.environment,
            cwd=self.path,
            capture_output=True,
            check=False,
            timeout=120,
        )


def timed(home: Home, *arguments: str) -> float:
    """Seconds until the command has ended. Raises ``RuntimeError`` if it failed."""
    begin = time.perf_counter()
    done = home.run(*arguments)
    seconds = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(f"windlass {' '.join(arguments)}: {done.stderr.decode()}")
    return seconds


def first_line(home: Home) -> float:
    """Seconds until ``windlass run -- echo hi`` has printed its first line of output."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [WINDLASS, "run", "--", "echo", "hi"],
        env=home.environment,
        cwd=home.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    seconds = time.perf_counter() - begin
    _, errors = process.communicate(timeout=60)
    if line != b"hi\n" or process.returncode:
        raise RuntimeError(f"windlass run printed {line!r} and ended with {process.returncode}: {errors!r}")
    return seconds


def median(measure: Callable[[], float], rounds: int) -> float:
    return statistics.median(measure() for _ in range(rounds))


def cold() -> float:
    with Home() as home:
        return first_line(home)


def measure(rounds: int) -> dict[str, float]:
    """Seconds per goal."""
    figures = {"run_cold": median(cold, max(1, rounds // 3))}
    with Home() as home:
        first_line(home)
        figures["run_warm"] = median(lambda: first_line(home), rounds)
        figures["ps"] = median(lambda: timed(home, "ps"), rounds)
        figures["version"] = median(lambda: timed(home, "--version"), rounds)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description="Start-up times of the command line.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    given = parser.parse_args()
    measure_once = timed  # the first start after an installation compiles; that is not what is measured
    with Home() as home:
        measure_once(home, "--version")
    figures = measure(given.rounds)
    rows = {
        name: {"seconds": figures[name], "goal_seconds": goal, "ratio": figures[name] / goal}
        for name, goal in GOALS_SECONDS.items()
    }
    if given.output == "json":
        print(json.dumps(rows, indent=1))
    else:
        for name, row in rows.items():
            print(
                f"{name:<9} {row['seconds'] * 1000:7.0f} ms   goal {row['goal_seconds'] * 1000:5.0f} ms   "
                f"ratio {row['ratio']:.2f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
