"""A whole month of a trace through every policy: how long a core takes for it, and whether all jobs end.

``python -m benchmarks.months TRACE [--nodes 60x8] [--policies easy,kai-like]``

``TRACE``: a file that ``windlass sim run`` reads, such as Philly's October. Seconds are those of the processor, for
the replay alone. Exits with 1 if a job does not end, or a gang ran in part where gangs are bound as a whole.
"""

from __future__ import annotations

import argparse
import sys
from time import process_time

from windlass.cli.simulating import read_trace
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.metrics import measure
from windlass.sim.policies import POLICIES
from windlass.sim.replay import replay

IN_PART = {"kube", "kube1", "kube-pack"}
"""Policies that bind pods one by one."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("--nodes", default="60x8")
    parser.add_argument("--policies", default=",".join(POLICIES))
    given = parser.parse_args()
    jobs = read_trace(given.trace)
    wrong = 0
    print("policy            seconds  queue mean  of >= 8 GPUs  preemptions  unfinished  partial GPU-s")
    for name in given.policies.split(","):
        nodes = make_nodes(parse(given.nodes))
        begun = process_time()
        outcome = replay(jobs, nodes, POLICIES[name])
        seconds = process_time() - begun
        figures = measure(name, outcome).figures
        mean, large = (figures[key]["mean"] for key in ("queue_seconds", "queue_seconds_ge8_gpus"))
        stops = sum(one.preemptions for one in outcome.jobs)
        unfinished, partial = figures["unfinished_jobs"], figures["partial_gang_gpu_seconds"]
        print(
            f"{name:<16}  {seconds:7.1f}  {mean:10.1f}  {large:12.1f}  {stops:11}  {unfinished:10}  {partial:13.0f}",
            flush=True,
        )
        wrong += bool(unfinished) or (partial > 0 and name not in IN_PART)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
