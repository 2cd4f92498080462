"""Names and summaries of the policies, so that listing them needs no engine.

They are built in :mod:`~windlass.sim.replay.policies` (jobs over time) and, for windlass-lab, in
``windlass_lab.packing.packing_policies`` (placement of pods).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ListedPolicy:
    """Listed policy. ``oracle``: it knows the exact run times, which no real scheduler does."""

    name: str
    summary: str
    oracle: bool = False


def _by_name(*listed: ListedPolicy) -> Mapping[str, ListedPolicy]:
    return {one.name: one for one in listed}


OF_RUN = _by_name(
    ListedPolicy("fifo", "gangs by age; none overtakes the first"),
    ListedPolicy("fifo-backfill", "gangs by age; those that fit overtake those that do not"),
    ListedPolicy("easy", "gangs by age; none delays the first pending one (exact run times)", oracle=True),
    ListedPolicy("conservative", "the same for the first sixteen (exact run times)", oracle=True),
    ListedPolicy("sjf", "gangs, the shortest first; those that fit overtake (exact run times)", oracle=True),
    ListedPolicy("model-grouping", "fifo-backfill, but jobs of one hour go by their AI model: fewer loads"),
    ListedPolicy("windlass", "gangs that opted in share time; run times are learned"),
    ListedPolicy(
        "default", "Windlass' configuration as installed: priorities, queues, reservations and time-sharing"
    ),
    ListedPolicy("las", "gangs that opted in share time: least attained service first, in two queues"),
    ListedPolicy("predicted", "as windlass, but by the earlier runs of the same work where these are known"),
    ListedPolicy(
        "srtf",
        "gangs that opted in share time, the shortest remaining time first (exact run times)",
        oracle=True,
    ),
    ListedPolicy("srsf", "the same by remaining GPU time (exact run times)", oracle=True),
    ListedPolicy("kube", "pods one by one on the emptiest node; a job in part is given up after 30 min"),
    ListedPolicy("kube-pack", "the same on the fullest node"),
    ListedPolicy("kube1", "as kube, one pod per GPU"),
    ListedPolicy(
        "kube-wait", "as kube1, pods of jobs of one moment in turn; a job in part holds its GPUs for ever"
    ),
    ListedPolicy("volcano-like", "Volcano's configuration as installed"),
    ListedPolicy("kai-like", "KAI's actions and orders"),
)
OF_PACK = _by_name(
    ListedPolicy("windlass", "the scheduler's default; learns the mix"),
    ListedPolicy("fgd", "fragmentation-gradient descent, knows the mix"),
    ListedPolicy("bestfit", "least CPU and GPUs left"),
    ListedPolicy("packing", "GPUs in use, then nodes in use"),
    ListedPolicy("clustering", "pods of one kind together"),
    ListedPolicy("dotprod", "smallest product of asked and free"),
    ListedPolicy("random", "any node, any GPU"),
    ListedPolicy("kube", "kube-scheduler: LeastAllocated and BalancedAllocation of CPU and memory"),
    ListedPolicy("kube-most", "kube-scheduler: MostAllocated, CPU 1, memory 1, GPU 5"),
    ListedPolicy("spread", "the scheduler's default, placement: spread"),
)
