"""AI models in the memory of devices, and the time to load another one.

A device keeps the model of its last job until one of another model comes. A job takes, on each of its nodes, devices
that have its model before others, and of those the ones that have been idle longest. A job that names no model, or
has parts of devices, loads nothing and leaves devices as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

from windlass.sim.jobs import WHOLE
from windlass.sim.replay.job_progress import JobPod, JobRun


class ModelLoads:
    """Loaded models. `cards`: node → number of devices. ``seconds``: time to load a model; devices load in parallel."""

    def __init__(self, cards: Mapping[str, int], seconds: float) -> None:
        self._seconds = seconds
        self._idle: dict[str, list[str]] = {name: [""] * count for name, count in cards.items()}
        """Node → the models on its idle devices, the longest idle first."""
        self._taken: dict[int, dict[str, int]] = {}
        """Job → what it took on each node."""
        self.count = 0
        """Loads so far, one per device."""

    def begin(self, run: JobRun) -> float:
        """A job starts where it is; the seconds until its model is on all of its devices."""
        return max([self.join(pod) for pod in run.pods.values() if pod.node], default=0.0)

    def join(self, pod: JobPod) -> float:
        """A pod begins to run where it is; the seconds until its job's model is on its devices."""
        job, node = pod.run.job, pod.node
        if not self._seconds or not job.model or job.gpu_milli < WHOLE:
            return 0.0
        idle, count = self._idle[node], pod.gpus
        loads = count - min(count, idle.count(job.model))
        for _ in range(min(count, len(idle))):
            idle.pop(idle.index(job.model) if job.model in idle else 0)
        taken = self._taken.setdefault(pod.run.index, {})
        taken[node] = taken.get(node, 0) + count
        self.count += loads
        return self._seconds if loads else 0.0

    def leave(self, pod: JobPod) -> None:
        """A pod gives back what it has, before its place is taken from it; its job may go on without it."""
        taken = self._taken.get(pod.run.index, {})
        if pod.gpus <= taken.get(pod.node, 0):
            taken[pod.node] -= pod.gpus
            self._idle[pod.node] += [pod.run.job.model] * pod.gpus

    def end(self, run: JobRun) -> None:
        """A job gives back the devices that it has."""
        for node, count in self._taken.pop(run.index, {}).items():
            self._idle[node] += [run.job.model] * count
