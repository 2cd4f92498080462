"""Mixed list of jobs with time limits on one node: waiting times, live and in the simulator.

Slurm's limits are whole minutes. So a short list needs jobs that end long before their
limit: each lasts ``pace`` seconds for every minute of it. A backfilling scheduler sees
the limits only, which have the same proportions as the run times.
"""

from __future__ import annotations

import csv
import io
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cold_start import WINDLASS
from benchmarks.slurm_sides import Side, Work

POLICIES = ("fifo", "easy", "conservative", "default")
"""Policies of the simulator; the last is Windlass as installed."""
LONGEST_MINUTES = 3
_PLAY = ("--run-times", "user", "--no-time-share")


@dataclass(frozen=True, slots=True)
class Arrival:
    at: float
    work: Work


def mixed(count: int, gpus: int, pace: float, seed: int = 7) -> list[Arrival]:
    """Jobs of 1 GPU to all of a node with limits of 1 to 3 minutes, that come so fast that a queue builds up."""
    rng = random.Random(seed)
    arrivals = []
    for number in range(count):
        wide = rng.choices((1, 2, gpus // 2, gpus), weights=(8, 4, 3, 2))[0]
        minutes = rng.randint(1, LONGEST_MINUTES)
        work = Work(f"m{number}", gpus=wide, seconds=pace * minutes, limit_minutes=minutes)
        arrivals.append(Arrival(number * pace / 10, work))
    return arrivals


def play(side: Side, arrivals: Sequence[Arrival]) -> dict[str, Any]:
    """Seconds, from when a command to queue a job had returned; the same list, as it came and lasted here, in the
    simulator."""
    queued: dict[str, float] = {}
    begin = time.time()
    for arrival in arrivals:
        time.sleep(max(0.0, begin + arrival.at - time.time()))
        side.command(side.submitting(arrival.work))
        queued[arrival.work.name] = time.time()
    side.until(len(arrivals), mark="e")
    started = {name: side.read_notes(name, "s")[0] for name in queued}
    ended = {name: side.read_notes(name, "e")[0] for name in queued}
    waits = [started[name] - queued[name] for name in queued]
    found: dict[str, Any] = {
        "jobs": len(arrivals),
        "mean wait": round(statistics.mean(waits), 2),
        "longest wait": round(max(waits), 1),
        "all ended after": round(max(ended.values()) - begin, 1),
        "passed by a later one": _passed(queued, started),
    }
    trace = _trace(arrivals, {name: at - begin for name, at in queued.items()})
    for policy, starts in _simulated(trace).items():
        differences = [abs(started[name] - begin - starts[name]) for name in queued]
        wait = statistics.mean(starts[name] - (queued[name] - begin) for name in queued)
        found[f"{policy}, simulated: mean wait"] = round(wait, 2)
        found[f"{policy}: starts within 3 s"] = sum(each <= 3 for each in differences)
    return found


def _passed(queued: dict[str, float], started: dict[str, float]) -> int:
    """Return the number of jobs that started after a later one."""
    return sum(
        any(queued[later] > queued[name] and started[later] < started[name] - 0.1 for later in queued)
        for name in queued
    )


def _trace(arrivals: Sequence[Arrival], queued: dict[str, float]) -> str:
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["id", "submit_seconds", "duration_seconds", "gpus", "requested_seconds"])
    for arrival in arrivals:
        work = arrival.work
        writer.writerow([work.name, queued[work.name], work.seconds, work.gpus, 60 * work.limit_minutes])
    return file.getvalue()


def _simulated(trace: str) -> dict[str, dict[str, float]]:
    """Return the start of each job by policy; policies use the limits."""
    starts: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "jobs.csv"
        words = ["--trace", "-", "--nodes", "1x8", "--policy", ",".join(POLICIES)]
        subprocess.run(
            [WINDLASS, "sim", "run", *words, *_PLAY, "--per-job", str(kept)],
            input=trace,
            capture_output=True,
            text=True,
            check=True,
        )
        for row in csv.DictReader(io.StringIO(kept.read_text())):
            starts.setdefault(row["policy"], {})[row["id"]] = float(row["start_seconds"])
    return starts
