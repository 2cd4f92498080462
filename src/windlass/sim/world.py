"""The world that a replay plays to the engine: jobs that run, stop and end on nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from windlass.sim.cluster import GPU
from windlass.sim.jobs import WHOLE, TraceJob, pod_sizes
from windlass.sim.outcome import Ended
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Group, Needs, Task, TaskState


@dataclass(frozen=True, slots=True)
class RestartCost:
    """What a start after a stop takes before work goes on, in seconds: of one GPU, of up to eight, of more."""

    one: float = 0.0
    few: float = 0.0
    many: float = 0.0

    @staticmethod
    def parse(text: str) -> RestartCost:
        """Of ``7/30/60``, or one number for all. Raises ``ValueError``."""
        parts = text.split("/")
        try:
            numbers = [float(part) for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 3) or not all(0 <= number < inf for number in numbers):
            raise ValueError(f"{text!r} is no cost of a restart, such as 7/30/60")
        return RestartCost(*numbers) if len(numbers) == 3 else RestartCost(*numbers * 3)

    def __str__(self) -> str:
        return f"{self.one:g}/{self.few:g}/{self.many:g}"

    def of(self, gpus: int) -> float:
        """Of a job with so many GPUs."""
        return self.one if gpus <= 1 else self.few if gpus <= 8 else self.many


@dataclass(slots=True)
class Pod:
    """One pod of a job as the engine knows it."""

    task: Task
    run: JobRun
    gpus: int
    node: str = ""


class JobRun:
    """A job in the course of a replay.

    ``left``: seconds of work at full speed that it still has; ``rate``: at which of it, 0 while it does not run;
    ``since``: when ``left`` was true. ``warming``: seconds of restart that come before work. ``saved``: ``left``
    as of its last checkpoint. ``epoch``: counts its plans, older ends are void.
    """

    __slots__ = (
        "bound",
        "ended",
        "epoch",
        "group",
        "held_since",
        "index",
        "job",
        "key",
        "least",
        "left",
        "pods",
        "rate",
        "saved",
        "since",
        "span_since",
        "starts",
        "warming",
    )

    def __init__(self, index: int, key: str, job: TraceJob) -> None:
        self.index = index
        self.key = key
        self.job = job
        self.ended = Ended(job)
        self.group: Group | None = None
        self.pods: dict[str, Pod] = {}
        self.bound = 0
        self.least = 0
        """With how many pods it runs."""
        self.left = self.saved = job.duration_seconds
        self.rate = 0.0
        self.since = 0.0
        self.span_since = 0.0
        self.held_since = 0.0
        self.warming = 0.0
        self.epoch = 0
        self.starts = 0

    def nodes(self) -> tuple[str, ...]:
        return tuple([pod.node for pod in self.pods.values() if pod.node])

    def gpus(self) -> float:
        """The cards that it holds, parts as such."""
        job = self.job
        if self.bound == len(self.pods):
            return job.gpus * job.gpu_milli / WHOLE
        return sum(pod.gpus for pod in self.pods.values() if pod.node) * job.gpu_milli / WHOLE


class Shapes:
    """What pods ask for: equal pods share one record, so that the engine sees few classes."""

    def __init__(self, largest: int) -> None:
        self._largest = largest
        self._known: dict[tuple[object, ...], Needs] = {}

    def sizes(self, job: TraceJob, pod_gpus: int = 0) -> list[int]:
        return pod_sizes(job, pod_gpus or self._largest)

    def needs(self, job: TraceJob, gpus: int) -> Needs:
        """Of the pod with so many of the job's GPUs: of CPU and memory its share, rounded up."""
        over = max(job.gpus, 1)
        part = gpus if job.gpus else 1
        cpu, memory = -(-job.cpu_milli * part // over), -(-job.memory_bytes * part // over)
        key = (gpus, job.gpu_milli, cpu, memory, job.gpu_models)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._make(job, gpus, cpu, memory)
        return found

    def _make(self, job: TraceJob, gpus: int, cpu: int, memory: int) -> Needs:
        request = {"cpu": cpu, "memory": memory, GPU: gpus * job.gpu_milli}
        devices: tuple[DeviceNeed, ...] = ()
        if gpus and (job.gpu_milli < WHOLE or job.gpu_models):
            devices = (DeviceNeed(GPU, gpus, job.gpu_milli, models=job.gpu_models),)
        return Needs(tuple(sorted((n, u) for n, u in request.items() if u)), devices=devices)


def next_incarnation(task: Task, starts: int) -> Task:
    """The pod that its owner makes anew in place of one that is gone."""
    return replace(task, uid=f"{task.key}#{starts}", state=TaskState.PENDING, node="", started=None)
