"""Groups, pods and needs for the engine from the jobs of a trace."""

from __future__ import annotations

from dataclasses import replace

from windlass.model.groups.foreign_groups import NOT_PREEMPTIBLE_FROM, STALE_GRACE_SECONDS
from windlass.sim.cluster import GPU
from windlass.sim.jobs import WHOLE, TraceJob, elastic_pods, pod_sizes
from windlass.sim.replay.job_progress import JobPod, JobRun
from windlass.sim.replay.policies import ReplayEngine
from windlass.spi.devices import DeviceNeed
from windlass.spi.objects import Dialect, Group, Needs, Queue, Task, TaskState

RUNNING = TaskState.RUNNING
POOL = "default"
"""The queue of all jobs where a policy knows but one."""
NAMESPACE = "sim"
_APART_SECONDS = 1e-6
"""Time between two pods of a job, where pods of several jobs are created in turn."""


class TaskFactory:
    """Names, pods and groups of jobs. ``largest``: the devices of the largest node; ``pod_gpus``: the most GPUs of
    one pod, 0 for as many as that; ``pooled``: all jobs stand in one queue, whatever the trace says."""

    def __init__(self, made: ReplayEngine, largest: int, pod_gpus: int = 0, *, pooled: bool = True) -> None:
        self._made = made
        self._pooled = pooled
        singly = made.singly
        self._pod_gpus = (singly.pod_gpus if singly is not None else 0) or pod_gpus or largest
        self._needs: dict[tuple[object, ...], Needs] = {}

    def queue(self, job: TraceJob) -> str:
        """The engine's queue of a job."""
        return POOL if self._pooled else job.queue

    def terms(self, name: str, told: Queue | None, *, alone: bool) -> Queue:
        """The engine's queue of that name: as ``told``, else one of weight 1. One that stands ``alone`` deserves all
        that there is: in KAI's queues what is not preemptible runs within the quota only."""
        dialect = self._made.dialect
        whole = (GPU, "cpu", "memory") if alone and dialect is Dialect.KAI else ()
        return replace(told or Queue(name, unlimited=whole), name=name, dialect=dialect)

    def enrol(self, run: JobRun, now: float) -> None:
        """Give the job its pods and, for a gang, its group. Of an elastic job every pod has one GPU, unless the trace
        says otherwise."""
        job, made = run.job, self._made
        if job.elastic and made.singly is None:
            sizes, run.least = elastic_pods(job)
        else:
            sizes = pod_sizes(job, self._pod_gpus)
            run.least = len(sizes)
        if made.singly is None:
            run.group = made.dress(self._group(run.key, run, run.least, now), job)
        for number, gpus in enumerate(sizes):
            key = f"{run.key}-{number}"
            group = run.key if made.singly is None else key
            task = Task(key, key, group, self.needs(job, gpus), index=number, created=now)
            run.pods[key] = JobPod(task, run, gpus)

    def single(self, pod: JobPod, now: float) -> Group:
        """The group of a pod that is bound for itself."""
        singly = self._made.singly
        if singly is not None and singly.in_turn:
            now += pod.task.index * _APART_SECONDS
        return self._made.dress(self._group(pod.task.group, pod.run, 1, now), pod.run.job)

    def _group(self, key: str, run: JobRun, least: int, now: float) -> Group:
        job = run.job
        return Group(
            key,
            self.queue(job),
            job.priority,
            least,
            preemptible=self._made.dialect is not Dialect.KAI or job.priority < NOT_PREEMPTIBLE_FROM,
            created=now,
            uid=run.key,
            admitted=True,
            dialect=self._made.dialect,
            stale_grace=STALE_GRACE_SECONDS if self._made.dialect is Dialect.KAI else None,
        )

    def needs(self, job: TraceJob, gpus: int) -> Needs:
        """Return the needs of a pod with ``gpus`` GPUs of the job, and its share of CPU and memory, rounded up.

        Equal pods share one record, so that the engine has few task classes.
        """
        over, part = (job.gpus, gpus) if job.gpus else (1, 1)
        cpu, memory = -(-job.cpu_milli * part // over), -(-job.memory_bytes * part // over)
        key = (gpus, job.gpu_milli, cpu, memory, job.gpu_models)
        found = self._needs.get(key)
        if found is None:
            found = self._needs[key] = _needs(job, gpus, cpu, memory, self._made.dialect)
        return found


def _needs(job: TraceJob, gpus: int, cpu: int, memory: int, dialect: Dialect) -> Needs:
    request = {"cpu": cpu, "memory": memory, GPU: gpus * job.gpu_milli}
    devices: tuple[DeviceNeed, ...] = ()
    if gpus and (job.gpu_milli < WHOLE or job.gpu_models):
        devices = (DeviceNeed(GPU, gpus, job.gpu_milli, models=job.gpu_models),)
    asked = tuple(sorted((name, units) for name, units in request.items() if units))
    return Needs(asked, devices=devices, dialect=dialect)


def next_incarnation(task: Task, tries: int) -> Task:
    """Return the pod that the owner creates in place of a removed one."""
    return Task(
        task.key, f"{task.key}#{tries}", task.group, task.needs, index=task.index, created=task.created
    )


def running(pod: JobPod, now: float) -> Task:
    """The pod as the world reports it once it runs."""
    task = pod.task
    return Task(
        task.key,
        task.uid,
        task.group,
        task.needs,
        index=task.index,
        state=RUNNING,
        node=pod.node,
        created=task.created,
        started=now,
    )
