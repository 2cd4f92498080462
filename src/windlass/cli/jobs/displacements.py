"""Evictions of a job for others and of others for it, and the rule that protects it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from windlass.api.preemptibility import EvictionRule, Source, rule_of
from windlass.api.resources import PRIORITY_CLASSES, QUEUES
from windlass.cli.errors import if_served
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.jobs import Job, Object
from windlass.cli.jobs.reasons import group_title
from windlass.cli.text import plural, timestamp
from windlass.kits.timestamps import age
from windlass.model.records import displacement
from windlass.model.records.displacement import EvictedFor, EvictedGroup, Evictions

Row = tuple[str, str]
CRITICAL_CLASSES = ("system-cluster-critical", "system-node-critical")


def rows(job: Job, now: float) -> list[Row]:
    """Return the lines about evictions; empty texts if there were none."""
    evicted, others = _evicted_for(job), _evictions(job)
    return [
        ("evicted", _evicted_text(evicted, now) if evicted is not None else ""),
        ("evicted for it", _others_text(others, now) if others is not None else ""),
        ("spared", "\n".join(f"{group_title(one.group)}: {one.reason}" for one in others.spared))
        if others is not None
        else ("spared", ""),
    ]


def as_record(job: Job) -> dict[str, Any]:
    """Return the same for ``-o json``: ``evictedFor``, ``evictions``; only what there is."""
    found = {"evictedFor": _evicted_for(job), "evictions": _evictions(job)}
    return {name: msgspec.to_builtins(record) for name, record in found.items() if record is not None}


def _evicted_text(record: EvictedFor, now: float) -> str:
    when = f"{age(now - timestamp(record.at))} ago"
    for_group = f" for {group_title(record.group)}" if record.group else ""
    times = f" (the last of {record.times} times)" if record.times > 1 else ""
    return f"{plural(record.count, 'pod')}{for_group} by {record.action}, {when}: {record.reason}{times}"


def _others_text(record: Evictions, now: float) -> str:
    lines = [_other_line(one, now) for one in record.evicted]
    return "\n".join([*lines, *([f"and {plural(record.more, 'more group')}"] if record.more else [])])


def _other_line(one: EvictedGroup, now: float) -> str:
    when = f"{age(now - timestamp(one.at))} ago"
    return f"{group_title(one.group)} ({plural(one.pods, 'pod')} by {one.action}, {when}): {one.reason}"


def _evicted_for(job: Job) -> EvictedFor | None:
    return next(filter(None, map(displacement.evicted_for, _annotations(job))), None)


def _evictions(job: Job) -> Evictions | None:
    return next(filter(None, map(displacement.evictions_of, _annotations(job))), None)


def _annotations(job: Job) -> Iterator[Mapping[str, str]]:
    """Yield the annotations of the objects that may have a record."""
    for obj in (job.group, job.obj, *job.pods):
        if obj is not None:
            yield obj["metadata"].get("annotations") or {}


# ---------------------------------------------------------------------- protection


def protection_record(invocation: Invocation, job: Job) -> dict[str, Any]:
    """Return whether the job's pods may be evicted for others, and the rule, for ``-o json``."""
    rule = protection(invocation, job)
    return {"preemptible": rule.preemptible, "rule": rule.text}


def protection_text(invocation: Invocation, job: Job) -> str:
    """Return by which jobs, and by which rule, the job's pods may be evicted.

    Empty for a job that waits, if no object states anything about it.
    """
    rule = protection(invocation, job)
    if rule.preemptible and not job.bound:
        return ""
    return rule.text if rule.preemptible else f"protected: {rule.text}"


def protection(invocation: Invocation, job: Job) -> EvictionRule:
    """Return whether the job's pods may be evicted for others, with the rule in words."""
    named, priority = _class_of(job)
    if named in CRITICAL_CLASSES or job.namespace == "kube-system":
        return EvictionRule(False, "the cluster depends on it")
    pods: list[Source] = [_source("its pods", pod) for pod in job.pods[:1]] if job.kind != "Pod" else []
    above = _source(f"the {job.kind}", job.obj)
    stated = rule_of([above, *pods], _source("its PodGroup", job.group) if job.group else None, None)
    if stated is None:
        found = if_served(lambda: _priority_class(invocation, named), None)
        stated = rule_of([], None, _source(f"PriorityClass {named}", found) if found is not None else None)
    if stated is not None and not stated.preemptible:
        return stated
    why = f" ({stated.text})" if stated is not None else ""
    return EvictionRule(True, f"{_by_whom(invocation, job, priority)}{why}")


def _by_whom(invocation: Invocation, job: Job, priority: int) -> str:
    own = f"preemptible by jobs of queue {job.queue} with a priority above {priority}"
    queue = if_served(lambda: invocation.client.find(QUEUES, job.queue), None)
    if queue is not None and (queue.get("spec") or {}).get("reclaimable") is False:
        return f"{own}; queue {job.queue} is not reclaimable"
    return f"{own}, and by other queues if {job.queue} holds more than its share"


def _source(name: str, obj: Object) -> Source:
    metadata = obj["metadata"]
    return name, metadata.get("labels") or {}, metadata.get("annotations") or {}


def _class_of(job: Job) -> tuple[str, int]:
    """Return the job's PriorityClass and priority, by its pods or its object."""
    specs = [pod.get("spec") or {} for pod in job.pods]
    named = ((job.group or {}).get("spec") or {}).get("priorityClassName") or (job.obj.get("spec") or {}).get(
        "priorityClassName"
    )
    named = named or next((spec["priorityClassName"] for spec in specs if spec.get("priorityClassName")), "")
    priority = max((int(spec.get("priority") or 0) for spec in specs), default=0)
    return str(named), priority


def _priority_class(invocation: Invocation, name: str) -> Object | None:
    if name:
        return invocation.client.find(PRIORITY_CLASSES, name)
    classes: list[Object] = [
        one for one in invocation.client.list(PRIORITY_CLASSES).items if one.get("globalDefault")
    ]
    return min(classes, key=lambda one: one.get("value", 0), default=None)
