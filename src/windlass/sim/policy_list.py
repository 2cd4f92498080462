"""What policies there are, in words: to list them needs no engine. How each is made is said beside it, in
:mod:`~windlass.sim.replay.policies` (jobs over time) and :mod:`~windlass.sim.packing.packing_policies` (where pods
go)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listed:
    """``oracle``: it knows run times that nobody knows in life."""

    name: str
    summary: str
    oracle: bool = False


def _by_name(*listed: Listed) -> Mapping[str, Listed]:
    return {one.name: one for one in listed}


OF_RUN = _by_name(
    Listed("fifo", "gangs by age; nobody passes the first"),
    Listed("fifo-backfill", "gangs by age; who does not fit is passed by whoever does"),
    Listed("easy", "gangs by age; nobody delays the first that waits (exact run times)", oracle=True),
    Listed("conservative", "the same for the first sixteen (exact run times)", oracle=True),
    Listed("sjf", "gangs, the shortest first; who does not fit is passed (exact run times)", oracle=True),
    Listed("model-grouping", "fifo-backfill, but jobs of one hour go by their AI model: fewer loads"),
    Listed("windlass", "gangs that opted in share time; run times are learned"),
    Listed(
        "default", "Windlass' configuration as installed: priorities, queues, reservations and time-sharing"
    ),
    Listed("las", "gangs that opted in share time: who has had least goes first, in two queues"),
    Listed("predicted", "as windlass, but by the earlier runs of the same work where these are known"),
    Listed(
        "srtf",
        "gangs that opted in share time, the shortest remaining time first (exact run times)",
        oracle=True,
    ),
    Listed("srsf", "the same by remaining GPU time (exact run times)", oracle=True),
    Listed("kube", "pods one by one on the emptiest node; a job in part is given up after 30 min"),
    Listed("kube-pack", "the same on the fullest node"),
    Listed("kube1", "as kube, one pod per GPU"),
    Listed("volcano-like", "Volcano's configuration as installed"),
    Listed("kai-like", "KAI's actions and orders"),
)
OF_PACK = _by_name(
    Listed("windlass", "the scheduler's default; learns the mix"),
    Listed("fgd", "fragmentation-gradient descent, knows the mix"),
    Listed("bestfit", "least CPU and GPUs left"),
    Listed("packing", "cards in use, then nodes in use"),
    Listed("clustering", "pods of one kind together"),
    Listed("dotprod", "smallest product of asked and free"),
    Listed("random", "any node, any card"),
    Listed("kube", "kube-scheduler: LeastAllocated and BalancedAllocation of CPU and memory"),
    Listed("kube-most", "kube-scheduler: MostAllocated, CPU 1, memory 1, GPU 5"),
    Listed("spread", "the scheduler's default, placement: spread"),
)
