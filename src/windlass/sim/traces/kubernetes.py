"""A dump of a cluster's pods, as ``kubectl get pods,podgroups,queues -A -o yaml`` (or ``-o json``) prints it.

Pods of one group (Volcano's, KAI's, Kubernetes' own; a pod without one is its own) are one job: submitted when
the first was created, started when the last started, ended when the last container ended. A group with fewer pods than
its maximum ran for the mean time of its pods. Groups with an unfinished pod, or one that never ran, are left out,
because their run time is unknown. :func:`record` accepts expected run times and returns the number of such groups.

Pods of a suspended group were recreated; the run time of the earlier pods is on the group's object
(:class:`~windlass.spi.objects.AttainedService`). So a time-sharing group was submitted at its own creation. If its pods
are younger and the object holds no run time, the group is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

from windlass.api.wire import yaml_text
from windlass.engine.deltas import GroupUpserted, QueueUpserted, TaskUpserted
from windlass.kits.timestamps import parse_rfc3339
from windlass.model.cluster.snapshot import SnapshotError, from_objects
from windlass.model.groups.podgroups import job_title
from windlass.plugins.queues.model_grouping import MODEL
from windlass.plugins.timeshare.opt_in import consent
from windlass.plugins.timeshare.suspension_cost import (
    CHECKPOINT_EVERY,
    RESTART_COST,
    seconds_declared,
    work_seconds,
)
from windlass.sim.jobs import WHOLE, TraceJob
from windlass.sim.traces.recording import Recording
from windlass.sim.traces.rows import TraceError
from windlass.spi.objects import Group, Queue, Task
from windlass.spi.quantities import is_device

APART_SECONDS = 60.0
"""Minimum age difference (seconds) between a group and pods that are not its first ones."""
Expected = Callable[[Group], float | None]
"""Expected run time of a group in seconds; ``None`` if unknown."""


def read(lines: Iterable[str], file: str) -> list[TraceJob]:
    """The jobs that ran and have ended, from the first on. Raises
    :class:`~windlass.sim.traces.rows.TraceError`."""
    return list(dumped(lines, file).jobs)


def dumped(lines: Iterable[str], file: str) -> Recording:
    """The same, and what was left out. Raises :class:`~windlass.sim.traces.rows.TraceError`."""
    return record(_objects("".join(lines), file), file)


def record(
    objects: Sequence[Mapping[str, Any]],
    file: str,
    *,
    since: float = -inf,
    now: float = 0.0,
    expected: Expected = lambda _: None,
) -> Recording:
    """The jobs that came since a moment (Unix seconds). What has not ended at ``now`` is among them where it is
    ``expected`` how long it runs: of what runs at least until now. Raises
    :class:`~windlass.sim.traces.rows.TraceError`."""
    groups, tasks, queues = _grouped(objects, file)
    ends = dict(_ends(objects, file))
    found: list[tuple[float, TraceJob]] = []
    over = {key for key, _ in _over(objects)}
    counts = {"unfinished": 0, "running": 0, "waiting": 0, "earlier": 0, "never_ran": 0, "made_anew": 0}
    for key, group in groups.items():
        pods = list(tasks.get(key, {}).values())
        if not pods:
            continue
        made = min(task.created for task in pods)
        shares = consent(group, _path(queues, group.queue))
        anew = bool(shares) and 0 < group.created < made - APART_SECONDS
        submitted = group.created if anew or group.past is not None else made
        begun = _begun(pods)
        seconds = _seconds(group, pods, ends)
        if submitted < since:
            counts["earlier"] += 1
            continue
        if seconds is None and over.issuperset(task.key for task in pods):
            counts["never_ran"] += 1
            continue
        if seconds is None:
            seconds = expected(group)
            if seconds is None:
                counts["waiting" if begun is None else "running"] += 1
                continue
            counts["unfinished"] += 1
            seconds = max(seconds, work_seconds(group, begun, now)) if begun is not None else seconds
        counts["made_anew"] += anew and group.past is None
        found.append((submitted, _job(group, pods, max(0.0, seconds), shares)))
    found.sort(key=lambda pair: (pair[0], pair[1].id))
    first = found[0][0] if found else 0.0
    jobs = [replace(job, submit_seconds=submit - first) for submit, job in found]
    return Recording(jobs, first, **counts)


def _grouped(
    objects: Sequence[Mapping[str, Any]], file: str
) -> tuple[dict[str, Group], dict[str, dict[str, Task]], dict[str, Queue]]:
    try:
        deltas = from_objects(objects).deltas
    except SnapshotError as error:
        raise TraceError(file, 0, error.field, f"{error.place}: {error.problem}") from error
    groups: dict[str, Group] = {}
    queues: dict[str, Queue] = {}
    tasks: dict[str, dict[str, Task]] = {}
    for delta in deltas:
        if isinstance(delta, GroupUpserted):
            groups[delta.group.key] = delta.group
        elif isinstance(delta, TaskUpserted):
            tasks.setdefault(delta.task.group, {})[delta.task.key] = delta.task
        elif isinstance(delta, QueueUpserted):
            queues[delta.queue.name] = delta.queue
    return groups, tasks, queues


def _begun(tasks: Sequence[Task]) -> float | None:
    """Return the start time of the last task; ``None`` unless all have started."""
    started = [task.started for task in tasks if task.started is not None]
    return max(started) if started and len(started) == len(tasks) else None


def _seconds(group: Group, tasks: Sequence[Task], ends: Mapping[str, float]) -> float | None:
    """Return the run time in seconds; ``None`` unless all tasks have ended.

    A gang runs from the start of its last task. For an elastic group it is the mean over its devices, the time that
    all of them would have taken for its work.
    """
    begun = _begun(tasks)
    if begun is None or not all(task.key in ends for task in tasks):
        return None
    end = max(ends[task.key] for task in tasks)
    if _least(group, tasks):
        cards = sum(map(_cards, tasks))
        worked = sum(_cards(task) * (ends[task.key] - (task.started or 0.0)) for task in tasks)
        begun = end - worked / cards
    return work_seconds(group, begun, end)


def _least(group: Group, tasks: Sequence[Task]) -> int:
    """Return the minimum number of GPUs; 0 if it needs all, or the minimum is unknown."""
    shape = _shape(tasks)
    least = shape.gpus(sorted(tasks, key=_cards)[: group.min_member])
    return least if not group.subgroups and least < shape.gpus(tasks) else 0


class _Shape(NamedTuple):
    """``milli``: so many thousandths of each of its devices a pod has; ``models``: those that all pods take, none for
    any; ``each``: how many devices every pod has that has any, 0 where some have more than others."""

    milli: int
    models: tuple[str, ...]
    each: int

    def gpus(self, tasks: Iterable[Task]) -> int:
        """Return the number of devices of the tasks."""
        return -(-sum(map(_cards, tasks)) // self.milli)


def _shape(tasks: Sequence[Task]) -> _Shape:
    """Return the common shape of the tasks.

    If their device shares differ, whole devices are reported, or the share if it is below one device.
    """
    asking = [task for task in tasks if _cards(task)]
    held = [task.needs.devices[0] for task in asking if len(task.needs.devices) == 1]
    kinds = {(need.milli, need.models) for need in held}
    alike = len(held) == len(asking) and len(kinds) == 1
    milli, models = kinds.pop() if alike else (WHOLE, ())
    if not milli or any(_cards(task) % milli for task in asking):
        cards = sum(map(_cards, asking))
        milli = cards if cards < WHOLE else WHOLE
    sizes = {_cards(task) / milli for task in asking}
    each = sizes.pop() if len(sizes) == 1 else 0.0
    return _Shape(milli, models, int(each) if each.is_integer() else 0)


def _cards(task: Task) -> int:
    return sum(units for name, units in task.needs.request if is_device(name))


def _objects(text: str, file: str) -> list[Mapping[str, Any]]:
    try:
        found = [document for document, _ in yaml_text.load_all(text, letters_are_text=True) if document]
    except yaml_text.YamlError as error:
        raise TraceError(file, 0, "", str(error)) from error
    objects: list[Mapping[str, Any]] = []
    for document in found:
        items = document.get("items") if isinstance(document, dict) else None
        if not isinstance(document, dict) or not document.get("kind"):
            raise TraceError(file, 0, "kind", "there is a document that is no Kubernetes object")
        objects += items if isinstance(items, list) else [document]
    return objects


def _over(objects: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Key and object of every pod that has ended."""
    for obj in objects:
        if obj.get("kind") == "Pod" and (obj.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            metadata = obj["metadata"]
            yield f"{metadata.get('namespace') or 'default'}/{metadata['name']}", obj


def _ends(objects: Iterable[Mapping[str, Any]], file: str) -> Iterable[tuple[str, float]]:
    """Key of a pod → when the last of its containers ended, for those of which all have. A pod that its node refused
    never had one."""
    for key, obj in _over(objects):
        moments = [
            _moment(ended, key, file)
            for container in obj["status"].get("containerStatuses") or ()
            if (ended := ((container.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        ]
        if moments:
            yield key, max(moments)


def _moment(text: Any, pod: str, file: str) -> float:
    try:
        return parse_rfc3339(text)
    except (TypeError, ValueError):
        field = "status.containerStatuses.state.terminated.finishedAt"
        raise TraceError(file, 0, field, f"pod {pod}: {text!r} is no time") from None


def _requested(group: Group, tasks: Sequence[Task]) -> float | None:
    """Return the run time that the owner states, else the longest ``activeDeadlineSeconds`` if all tasks have one.

    Returns ``None`` if neither is known.
    """
    if group.run_estimate is not None and not group.learned:
        return group.run_estimate
    limits = [task.run_limit for task in tasks if task.run_limit is not None]
    return float(max(limits)) if len(limits) == len(tasks) else None


def _job(group: Group, tasks: Sequence[Task], seconds: float, shares: bool | None) -> TraceJob:
    sums: dict[str, int] = {}
    for task in tasks:
        for name, units in task.needs.request:
            sums[name] = sums.get(name, 0) + units
    shape = _shape(tasks)
    notes = group.annotations
    return TraceJob(
        id=job_title(group.key),
        submit_seconds=0.0,
        duration_seconds=seconds,
        gpus=shape.gpus(tasks),
        gpu_milli=shape.milli,
        cpu_milli=sums.get("cpu", 0),
        memory_bytes=sums.get("memory", 0),
        queue=group.queue,
        user=group.key.partition("/")[0],
        name=job_title(group.key).partition("/")[2],
        priority=group.priority,
        model=notes.get(MODEL, ""),
        min_gpus=_least(group, tasks),
        requested_seconds=_requested(group, tasks),
        checkpoint_seconds=seconds_declared(notes.get(CHECKPOINT_EVERY, "")),
        restart_seconds=seconds_declared(notes.get(RESTART_COST, "")),
        gpu_models=shape.models,
        time_share=shares,
        pod_gpus=shape.each if len(tasks) > 1 else 0,
    )


def _path(queues: Mapping[str, Queue], name: str) -> Iterator[Queue]:
    """A queue up to the root, as far as they are there."""
    seen: set[str] = set()
    while (queue := queues.get(name)) is not None and name not in seen:
        yield queue
        seen.add(name)
        name = queue.parent
