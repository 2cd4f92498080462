"""Jobs of a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WHOLE = 1000
"""A whole device in thousandths."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace.

    ``submit_seconds`` counts from the beginning of the trace. ``duration_seconds``: how long it runs on all of
    its GPUs, undisturbed, on a device of speed 1. ``gpus`` devices of ``gpu_milli`` thousandths each.
    ``cpu_milli`` and ``memory_bytes`` of the whole job; 0: the trace does not say, nothing is asked for.
    ``min_gpus``: with how many it makes do (0: all of them), at a speed in proportion. ``pod_gpus``: how many each of
    its pods has at most (0: as many as a node has, of an elastic job one).
    ``requested_seconds``: how long its owner says it runs; ``None``: nothing is said. ``checkpoint_seconds``:
    how often it saves what it has done; ``restart_seconds``: what a start after a stop takes before work goes on;
    ``None``: as the run says. ``gpu_models``: devices that it takes, none for any. ``time_share``: whether it opted
    in to being suspended for its equals; ``None``: as the run says.
    """

    id: str
    submit_seconds: float
    duration_seconds: float
    gpus: int
    gpu_milli: int = WHOLE
    cpu_milli: int = 0
    memory_bytes: int = 0
    queue: str = "default"
    user: str = ""
    name: str = ""
    priority: int = 0
    model: str = ""
    min_gpus: int = 0
    requested_seconds: float | None = None
    checkpoint_seconds: float | None = None
    restart_seconds: float | None = None
    gpu_models: tuple[str, ...] = ()
    time_share: bool | None = None
    pod_gpus: int = 0

    @property
    def elastic(self) -> bool:
        """True if it makes do with fewer GPUs than it has."""
        return 0 < self.min_gpus < self.gpus

    @property
    def milli(self) -> int:
        """Request in thousandths of devices."""
        return self.gpus * self.gpu_milli

    @property
    def gpu_seconds(self) -> float:
        """The work in it, in seconds of whole devices."""
        return self.duration_seconds * self.gpus * self.gpu_milli / WHOLE


def pod_sizes(job: TraceJob, largest: int) -> list[int]:
    """The GPUs of each of its pods: as few pods as there can be on nodes of ``largest`` devices, the last of them
    with what is left. A job without GPUs is one pod of none."""
    if job.pod_gpus:
        largest = min(largest, job.pod_gpus) if largest > 0 else job.pod_gpus
    whole, rest = divmod(job.gpus, largest) if largest > 0 else (0, job.gpus)
    sizes = [largest] * whole + ([rest] if rest else [])
    return sizes or [0]


def elastic_pods(job: TraceJob) -> tuple[list[int], int]:
    """The GPUs of each of the pods of an elastic job, and with how many of those it makes do."""
    each = job.pod_gpus or 1
    return pod_sizes(job, each), -(-job.min_gpus // each)


def in_order(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """The jobs as they come; of one moment in the order of the trace."""
    return sorted(jobs, key=lambda job: job.submit_seconds)
