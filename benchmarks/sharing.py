"""Sensitivity of time-sharing to its parameters: each halved and doubled, on a trace.

    python -m benchmarks.sharing TRACES/philly/philly_oct.csv.gz 60x8
    python -m benchmarks.sharing TRACES/muri/trace3.csv.gz 8x8 --out docs/operations/benchmarks/time-sharing.md

The runs are sequential, with restart costs of 7, 30 and 60 s. The result is a table in
Markdown. With ``--out`` it is put into a page, between two marks that name the trace's
file.
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

from benchmarks.packing_tables import put_rows
from windlass.plugins.timeshare.gittins import LearnedSharing, Tuning
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.replay import metrics
from windlass.sim.replay.job_progress import Effort, RestartCost
from windlass.sim.replay.policies import ReplayPolicy, shared
from windlass.sim.replay.replay import ReplayOptions, replay
from windlass.sim.traces import formats

COST = RestartCost(7, 30, 60)
WORDS = {
    "first_seconds": "first division: {:g} s",
    "factor": "factor between divisions: {:g}",
    "prior": "weight of the assumption: {:g} runs",
    "node": "GPUs that weigh as one more: {:g}",
    "patience_seconds": "patience: {:,.0f} s",
    "quantum_seconds": "a start and a suspension are left alone: {:,.0f} s",
}


def table(trace: str, shape: str) -> Iterator[str]:
    """Its lines, as they are done."""
    with gzip.open(trace, "rt") as lines:
        jobs = formats.read(lines.read().splitlines(), trace)
    nodes = make_nodes(parse(shape))
    tunings = {"as it is": Tuning()}
    for field in fields(Tuning):
        for times in (0.5, 2.0):
            value = getattr(Tuning(), field.name) * times
            tunings[WORDS[field.name].format(value)] = replace(Tuning(), **{field.name: value})
    yield "| parameter | mean wait | p90 | mean wait of jobs ≥ 8 GPUs | mean completion | suspensions per job |"
    yield "|---|---|---|---|---|---|"
    for name, tuning in tunings.items():
        policy = ReplayPolicy(name, "", shared(lambda _, tuning=tuning: LearnedSharing(tuning=tuning)))
        outcome = replay(jobs, nodes, policy, ReplayOptions(effort=Effort(restart=COST), timeline=False))
        found = metrics.measure(name, outcome).figures
        waits, large = found["queue_seconds"], found["queue_seconds_ge8_gpus"]
        yield (
            f"| {name} | {waits['mean']:,.0f} | {waits['p90']:,.0f} | {large['mean']:,.0f} "
            f"| {found['completion_seconds']['mean']:,.0f} | {found['preemptions_per_job']:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("shape")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    name = Path(given.trace).name
    first, last = f"<!-- {name}: made by make sim-sensitivity -->", f"<!-- end of {name} -->"
    put_rows(table(given.trace, given.shape), given.out, first, last)


if __name__ == "__main__":
    main()
