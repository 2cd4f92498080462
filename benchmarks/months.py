"""A month of a trace through every policy: CPU time, and completion of all jobs.

``python -m benchmarks.months [TRACE] [--nodes 60x8] [--policies easy,kai-like] [--first
5000] [-o json]``

``TRACE``: a file that ``windlass sim run`` reads, such as Philly's October; without
one, 4,000 jobs of the project's own generator, which needs no download. ``--first``:
number of jobs to use. Seconds are CPU time of the replay alone. Each policy has a
process of its own, and its maximum memory is reported. The goal is ten seconds for a
month of 46,673 jobs, that is 0.21 ms a job. Exits with 1 if a job does not end, or a
gang ran in part under a policy that binds gangs as a whole. A missed time goal does not
change the exit status, since it depends on the machine, too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from time import process_time
from typing import NamedTuple

from windlass.cli.simulate.trace_files import read_trace
from windlass.kits import gc_tuning, processes
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob
from windlass.sim.replay.metrics import measure
from windlass.sim.replay.policies import POLICIES
from windlass.sim.replay.replay import replay
from windlass.sim.synthetic import Profile, generate

IN_PART = {"kube", "kube1", "kube-pack"}
"""Policies that bind pods one by one."""
GENERATED = Profile(jobs=4000, days=1.0)
"""Jobs without a trace: twice as many as sixty nodes of eight GPUs complete in a day."""


class Played(NamedTuple):
    """Result of one policy.

    ``seconds``: CPU time. ``mib``: maximum memory. ``mean``, ``large``: seconds in the
    queue, of all jobs and of those with eight GPUs or more. ``stops``: preemptions.
    """

    policy: str
    jobs: int
    seconds: float
    milliseconds_a_job: float
    decisions_per_s: float
    mib: float
    mean: float
    large: float
    stops: int
    unfinished: int
    partial: float


def play(policy: str, trace: str, first: int, nodes: str) -> Played:
    """One policy, in this process."""
    jobs = read_jobs(trace)[: first or None]
    where = make_nodes(parse(nodes))
    gc_tuning.tune_for_long_lived_objects()  # as the command does
    begun = process_time()
    outcome = replay(jobs, where, POLICIES[policy])
    seconds = process_time() - begun
    figures = measure(policy, outcome).figures
    return Played(
        policy,
        len(jobs),
        round(seconds, 2),
        round(1000 * seconds / max(len(jobs), 1), 4),
        round(outcome.decisions / seconds, 1),
        round(processes.peak_memory_bytes() / 2**20, 1),
        figures["queue_seconds"]["mean"],
        figures["queue_seconds_ge8_gpus"]["mean"],
        sum(one.preemptions for one in outcome.jobs),
        figures["unfinished_jobs"],
        figures["partial_gang_gpu_seconds"],
    )


def alone(policy: str, trace: str, first: int, nodes: str) -> Played:
    """:func:`play` in a process of its own. What that raises is raised here, and that it ended before its time."""
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh) as own:
        return own.submit(play, policy, trace, first, nodes).result()


def read_jobs(trace: str) -> list[TraceJob]:
    """The jobs of a trace, or those that the generator makes."""
    return list(read_trace(trace)) if trace else generate(GENERATED, seed=7)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("trace", nargs="?", default="")
    parser.add_argument("--nodes", default="60x8")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    given = parser.parse_args()
    table = given.output == "table"
    if table:
        print(
            "policy            seconds  ms a job  decisions/s   MiB  queue mean  of >= 8 GPUs  preemptions"
            "  unfinished  partial GPU-s"
        )
    results: list[Played] = []
    for name in given.policies.split(","):
        one = alone(name, given.trace, given.first, given.nodes)
        results.append(one)
        if table:
            print(
                f"{name:<16}  {one.seconds:7.1f}  {one.milliseconds_a_job:8.3f}  {one.decisions_per_s:11,.0f}"
                f"  {one.mib:4.0f}  {one.mean:10.1f}  {one.large:12.1f}  {one.stops:11}  {one.unfinished:10}"
                f"  {one.partial:13.0f}",
                flush=True,
            )
    if not table:
        print(json.dumps({"nodes": given.nodes, "policies": {one.policy: one._asdict() for one in results}}))
    wrong = [one for one in results if one.unfinished or (one.partial > 0 and one.policy not in IN_PART)]
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
