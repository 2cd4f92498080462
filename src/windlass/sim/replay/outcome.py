"""Outcome of a replay: one record per job, placements over time, and the cluster over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from windlass.sim.jobs import TraceJob


class JobSpan(NamedTuple):
    """A job on its nodes, one for each pod, from ``start`` to ``end`` (seconds). ``held``: it holds ``gpus`` without
    running, as a gang in part does. ``sizes``: the devices of each pod; none where all have as many."""

    job: int
    start: float
    end: float
    gpus: float
    nodes: tuple[str, ...]
    held: bool = False
    sizes: tuple[int, ...] = ()

    def by_node(self) -> dict[str, float]:
        """The GPUs that it has on each node, parts of devices as such."""
        sizes = self.sizes or (1,) * len(self.nodes)
        scale = self.gpus / max(sum(sizes), 1)
        found: dict[str, float] = {}
        for name, size in zip(self.nodes, sizes, strict=True):
            found[name] = found.get(name, 0.0) + size * scale
        return found


class ClusterMoment(NamedTuple):
    """The cluster from ``time`` on: GPUs in use (parts of devices count as such), jobs that wait, GPUs that they wait
    for, and GPUs of nodes that are away."""

    time: float
    used_gpus: float
    waiting_jobs: int
    waiting_gpus: float
    away_gpus: float = 0.0


@dataclass(slots=True)
class EndedJob:
    """One job. Times in seconds of the trace; ``None``: that never happened.

    ``preemptions``: how often it was stopped for others; ``failures``: how often its nodes failed;
    ``failed_starts``: how often a part of it held GPUs without starting. ``lost_gpu_seconds``: work done twice, and the
    time that restarts took.
    """

    job: TraceJob
    started: float | None = None
    ended: float | None = None
    preemptions: int = 0
    failures: int = 0
    failed_starts: int = 0
    lost_gpu_seconds: float = 0.0
    spot_interruptions: int = 0
    """Number of times that a spot machine of it was to end."""
    degraded_moves: int = 0
    """Number of times that it left a node that had become slow."""


@dataclass(frozen=True, slots=True)
class UnfinishedJobs:
    """``job``: the first of ``jobs`` of one queue that never ended for one reason, with so many ``gpus``."""

    job: str
    queue: str
    gpus: int
    jobs: int
    why: str


@dataclass(slots=True)
class ReplayOutcome:
    """``jobs`` in the order of the trace handed in. ``seconds``: what the replay took; ``cycles``: of the
    engine; ``memory_bytes``: the most that the process has had resident, 0 if that is not known."""

    jobs: Sequence[EndedJob]
    spans: list[JobSpan] = field(default_factory=list)
    moments: list[ClusterMoment] = field(default_factory=list)
    capacity_gpus: int = 0
    partial_gang_gpu_seconds: float = 0.0
    cycles: int = 0
    decisions: int = 0
    model_loads: int = 0
    seconds: float = 0.0
    memory_bytes: int = 0
