"""A dump of a cluster's pods, as ``kubectl get pods,podgroups,queues -A -o yaml`` (or ``-o json``) prints it.

Pods of one group (Volcano's, KAI's, Kubernetes' own; a pod without one is its own) are one job: submitted when
the first was created, begun when the last started, ended when the last container ended. Groups of which a pod
has not ended, or never started, are left out: nobody knows how long they run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from windlass.api import yaml_text
from windlass.engine.deltas import GroupUpserted, TaskUpserted
from windlass.kits.timestamps import parse_rfc3339
from windlass.model.snapshot import SnapshotError, from_objects
from windlass.sim.jobs import WHOLE, TraceJob
from windlass.sim.traces.rows import TraceError
from windlass.spi.objects import Group, Task
from windlass.spi.quantities import is_device


def read(lines: Iterable[str], file: str) -> list[TraceJob]:
    """The jobs that ran and have ended, from the first on. Raises
    :class:`~windlass.sim.traces.rows.TraceError`."""
    objects = _objects("".join(lines), file)
    try:
        deltas = from_objects(objects).deltas
    except SnapshotError as error:
        raise TraceError(file, 0, error.field, f"{error.place}: {error.problem}") from error
    groups: dict[str, Group] = {}
    tasks: dict[str, dict[str, Task]] = {}
    for delta in deltas:
        if isinstance(delta, GroupUpserted):
            groups[delta.group.key] = delta.group
        elif isinstance(delta, TaskUpserted):
            tasks.setdefault(delta.task.group, {})[delta.task.key] = delta.task
    ends = dict(_ends(objects))
    jobs = [
        job
        for key, group in groups.items()
        if (job := _job(group, list(tasks.get(key, {}).values()), ends)) is not None
    ]
    first = min((submit for submit, _ in jobs), default=0.0)
    jobs.sort(key=lambda pair: (pair[0], pair[1].id))
    return [replace(job, submit_seconds=submit - first) for submit, job in jobs]


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


def _ends(objects: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, float]]:
    """Key of a pod → when the last of its containers ended, for those of which all have."""
    for obj in objects:
        if obj.get("kind") != "Pod":
            continue
        status = obj.get("status") or {}
        if status.get("phase") not in ("Succeeded", "Failed"):
            continue
        moments = [
            parse_rfc3339(ended)
            for container in status.get("containerStatuses") or ()
            if (ended := ((container.get("state") or {}).get("terminated") or {}).get("finishedAt"))
        ]
        if moments:
            metadata = obj["metadata"]
            yield f"{metadata.get('namespace') or 'default'}/{metadata['name']}", max(moments)


def _job(group: Group, tasks: list[Task], ends: Mapping[str, float]) -> tuple[float, TraceJob] | None:
    """With the moment of its submission."""
    started = [task.started for task in tasks if task.started is not None]
    if not tasks or len(started) != len(tasks) or any(task.key not in ends for task in tasks):
        return None
    sums: dict[str, int] = {}
    for task in tasks:
        for name, units in task.needs.request:
            sums[name] = sums.get(name, 0) + units
    cards = sum(units for name, units in sums.items() if is_device(name))
    part = cards if 0 < cards < WHOLE else WHOLE
    name = group.key.partition("/")[2].removeprefix("pod:")
    return min(task.created for task in tasks), TraceJob(
        id=group.key,
        submit_seconds=0.0,
        duration_seconds=max(0.0, max(ends[task.key] for task in tasks) - max(started)),
        gpus=-(-cards // WHOLE),
        gpu_milli=part,
        cpu_milli=sums.get("cpu", 0),
        memory_bytes=sums.get("memory", 0),
        queue=group.queue,
        user=group.key.partition("/")[0],
        name=name,
        priority=group.priority,
        requested_seconds=group.run_estimate if not group.learned else None,
    )
