"""Translation of groups of other APIs than Volcano's to the engine's group.

These are KAI's PodGroup, Kubernetes' own, that of the coscheduling plugin, bare pods of
KAI, and plain pod groups of Kueue.

KAI's rules: a group without a priority class has the class of its kind, ``train`` (50).
A group without a stated preemptibility is preemptible below priority 100. A gang that
holds less than its minimum is evicted after 60 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace as altered

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.errors import FieldError
from windlass.api.nodes.resources import node_resources
from windlass.api.preemptibility import PREEMPTIBILITY_KAI
from windlass.kits.timestamps import parse_rfc3339
from windlass.model.groups.coscheduling_status import PHASES_OVER
from windlass.model.groups.member_counts import oldest_of
from windlass.model.groups.podgroups import (
    Classes,
    Urgency,
    duration_of,
    group_key,
    implicit_group,
    negative_resources,
    pod_policy_annotations,
    policy_annotations,
    preemptible,
    waiting_limit,
)
from windlass.model.records.attained_service import attained_service_of
from windlass.spi.objects import Dialect, Group, SubGroup

TRAIN_PRIORITY = 50
NOT_PREEMPTIBLE_FROM = 100
STALE_GRACE_SECONDS = 60.0
_CLASS_LABEL = "priorityClassName"
_PREEMPTIBILITIES = ("", "preemptible", "non-preemptible")


def kai_problems(view: views.KaiPodGroup) -> tuple[FieldError, ...]:
    """Return the problems of a KAI PodGroup's own fields."""
    problems = list(view.problems)
    for field, number in (("minMember", view.min_member), ("minSubGroup", view.min_sub_group)):
        if number is not None and number < 0:
            problems.append(FieldError.invalid(f"spec.{field}", number, "must be at least 0"))
    if view.preemptibility not in _PREEMPTIBILITIES:
        problems.append(
            FieldError.not_supported("spec.preemptibility", view.preemptibility, _PREEMPTIBILITIES[1:])
        )
    known = {part.name for part in view.subgroups}
    for position, part in enumerate(view.subgroups):
        place = f"spec.subGroups[{position}]"
        if part.parent and part.parent not in known:
            problems.append(
                FieldError.invalid(f"{place}.parent", part.parent, "is not a sub-group of the group")
            )
        if _loops(part, view.subgroups):
            problems.append(FieldError.invalid(f"{place}.parent", part.parent, "is below itself"))
    if len(known) != len(view.subgroups):
        problems.append(FieldError.invalid("spec.subGroups", len(view.subgroups), "must have unique names"))
    return tuple(problems)


def _loops(part: views.KaiSubGroup, parts: tuple[views.KaiSubGroup, ...]) -> bool:
    above = {subgroup.name: subgroup.parent for subgroup in parts}
    name = part.parent
    for _ in parts:
        if not name:
            return False
        if name == part.name:
            return True
        name = above.get(name, "")
    return bool(name)


def kai_group(
    view: views.KaiPodGroup, key: str, queue: str, classes: Classes, pods: Iterable[views.Pod]
) -> Group:
    """Return the group of a KAI PodGroup. It is held if its fields contradict one another.

    ``queue``: the engine's key of its queue.
    """
    priority, never_preempts, _ = kai_urgency(view.priority_class, classes, pods)
    delay = view.preemption_delay
    if delay is None:
        delay = duration_of(view.annotations.get(names.PREEMPTION_DELAY_KAI)) or 0.0
    grace = view.staleness_grace
    if grace is None:
        grace = duration_of(view.annotations.get(names.STALENESS_GRACE_KAI))
    return Group(
        key=key,
        queue=queue,
        priority=priority,
        min_member=max(0, _minimum(view)),
        preemptible=_preemptible(view.preemptibility, priority),
        never_preempts=never_preempts,
        created=view.created,
        uid=view.uid,
        admitted=True,
        held=bool(kai_problems(view)),
        dialect=Dialect.KAI,
        subgroups=tuple(
            SubGroup(part.name, part.parent, max(0, part.min_member or 0), part.min_sub_group)
            for part in view.subgroups
        ),
        min_subgroups=view.min_sub_group,
        preemption_delay=max(0.0, delay),
        stale_grace=STALE_GRACE_SECONDS if grace is None else grace,
        stale_since=_time_of(view.annotations.get(names.STALE_SINCE_KAI)),
        started=_time_of(view.annotations.get(names.LAST_START_KAI)),
        last_eviction=_time_of(view.annotations.get(names.LAST_EVICTION_KAI)),
        run_estimate=duration_of(view.annotations.get(names.RUN_ESTIMATE)),
        annotations=policy_annotations(view.annotations),
        past=attained_service_of(view.annotations, view.created),
        minimum_name="minMember",
    )


def _minimum(view: views.KaiPodGroup) -> int:
    """Return the minimum. A group with sub-groups and no number of its own requires only these."""
    if view.min_member is not None:
        return view.min_member
    return 0 if view.subgroups or view.min_sub_group is not None else 1


def kai_urgency(name: str, classes: Classes, pods: Iterable[views.Pod]) -> Urgency:
    """Return the urgency of the class; without a class the global default, else class ``train``."""
    if name or classes.defined(""):
        return classes.urgency(name, lambda: pods)
    return Urgency(TRAIN_PRIORITY, never_preempts=False)


def _preemptible(stated: str, priority: int) -> bool:
    if stated in ("preemptible", "non-preemptible"):
        return stated == "preemptible"
    return priority < NOT_PREEMPTIBLE_FROM


def kai_pod_group(pod: views.Pod, queue: str, classes: Classes) -> Group:
    """Return the group of a single pod that names a queue of KAI and no PodGroup."""
    priority = kai_urgency(pod.labels.get(_CLASS_LABEL) or pod.priority_class, classes, (pod,)).value
    delay = duration_of(pod.annotations.get(names.PREEMPTION_DELAY_KAI)) or 0.0
    return Group(
        key=group_key(pod),
        queue=queue,
        priority=priority,
        min_member=1,
        preemptible=_preemptible(pod.labels.get(PREEMPTIBILITY_KAI, ""), priority),
        never_preempts=pod.preemption_policy == "Never",
        created=pod.created,
        uid=pod.uid,
        admitted=True,
        dialect=Dialect.KAI,
        preemption_delay=max(0.0, delay),
        started=pod.started or None,
        run_estimate=duration_of(pod.annotations.get(names.RUN_ESTIMATE)),
        annotations=policy_annotations(pod.annotations),
    )


def kai_batch_group(first: views.Pod, key: str, queue: str, classes: Classes) -> Group:
    """Return the group of a batch Job's pods, as KAI's pod grouper forms it.

    The ``first`` pod determines its fields.
    """
    stated = first.annotations.get(names.BATCH_MIN_MEMBER_KAI, "")
    least = int(stated) if stated.isascii() and stated.isdigit() and len(stated) < 8 else 1
    owner = first.controller
    return altered(
        kai_pod_group(first, queue, classes),
        key=key,
        min_member=least,
        uid=owner.uid if owner is not None else first.uid,
        stale_grace=STALE_GRACE_SECONDS,
        started=None,
        minimum_name=f"annotation {names.BATCH_MIN_MEMBER_KAI}",
    )


def native_group(
    view: views.NativeGroup,
    key: str,
    queue: str,
    dialect: Dialect,
    classes: Classes,
    pods: Sequence[views.Pod],
) -> Group:
    """Return the group of a PodGroup of Kubernetes' own API.

    If its object names no class, the group has the urgency of the most urgent of its
    ``pods``.
    """
    named = view.priority_class
    urgency = classes.urgency(named, lambda: pods) if named else _urgency_of(pods, classes)
    return Group(
        key=key,
        queue=queue,
        priority=urgency.value,
        min_member=view.min_count,
        preemptible=preemptible(view.labels, view.annotations, protected_class=urgency.protected),
        never_preempts=urgency.never_preempts,
        created=view.created,
        uid=view.uid,
        admitted=True,
        held=bool(view.problems),
        dialect=dialect,
        run_estimate=duration_of(view.annotations.get(names.RUN_ESTIMATE)),
        annotations=policy_annotations(view.annotations),
        minimum_name="minCount",
    )


def coscheduling_problems(view: views.CoschedulingGroup) -> tuple[FieldError, ...]:
    """Return the problems of a coscheduling PodGroup's fields."""
    problems = [*view.problems, *negative_resources(view.min_resources)]
    if view.min_member < 1:
        problems.append(FieldError.invalid("spec.minMember", view.min_member, "must be at least 1"))
    return tuple(problems)


def coscheduling_group(
    view: views.CoschedulingGroup,
    key: str,
    queue: str,
    dialect: Dialect,
    classes: Classes,
    pods: Sequence[views.Pod],
) -> Group:
    """Return the group of a PodGroup of the coscheduling plugin.

    Its object names no class, so the group has the urgency of the most urgent of its
    ``pods``. Annotations and labels of the oldest pod apply where the object, which an
    operator creates, has none. With ``minResources`` it has to be admitted first, if an
    action does that (Volcano's ``enqueue``), unless it is over.
    """
    needs = node_resources(view.min_resources)
    over = view.phase in PHASES_OVER and all(pod.finished for pod in pods)
    urgency = _urgency_of(pods, classes)
    oldest = oldest_of(pods)
    labels, annotations, read = view.labels, view.annotations, policy_annotations(view.annotations)
    if oldest is not None:
        labels, annotations = {**oldest.labels, **labels}, {**oldest.annotations, **annotations}
        read = {**pod_policy_annotations(oldest), **read}
    return Group(
        key=key,
        queue=queue,
        priority=urgency.value,
        min_member=max(1, view.min_member),
        min_resources=needs,
        preemptible=preemptible(labels, annotations, protected_class=urgency.protected),
        never_preempts=urgency.never_preempts,
        created=view.created,
        uid=view.uid,
        admitted=over or not needs,
        has_run=over,
        held=bool(coscheduling_problems(view)),
        dialect=dialect,
        run_estimate=duration_of(annotations.get(names.RUN_ESTIMATE)),
        waiting_limit=waiting_limit(annotations),
        stale_grace=duration_of(annotations.get(names.STALENESS_GRACE)),
        annotations=read,
        past=attained_service_of(view.annotations, view.created),
        minimum_name="minMember",
    )


def _urgency_of(pods: Sequence[views.Pod], classes: Classes) -> Urgency:
    """Return the urgency of the most urgent pod, for a group without a class of its own."""
    values = [classes.value(pod.priority_class) if pod.priority is None else pod.priority for pod in pods]
    never = bool(pods) and all(pod.preemption_policy == "Never" for pod in pods)
    protected = bool(pods) and all(classes.protects(pod.priority_class) for pod in pods)
    return Urgency(max(values, default=classes.value("")), never, protected)


def kueue_problems(pods: Iterable[views.Pod]) -> tuple[FieldError, ...]:
    """Return the problems of the group sizes that pods of a plain Kueue pod group state."""
    field = f"metadata.annotations[{names.GROUP_COUNT_KUEUE}]"
    counts = {pod.annotations.get(names.GROUP_COUNT_KUEUE, "") for pod in pods}
    wrong = sorted(text for text in counts if not _count(text))
    if wrong:
        return (FieldError.invalid(field, wrong[0], "must be an integer of at least 1"),)
    if len(counts) > 1:
        return (FieldError.invalid(field, ", ".join(sorted(counts)), "must be the same on all its pods"),)
    return ()


def kueue_group(
    oldest: views.Pod, pods: Sequence[views.Pod], key: str, queue: str, dialect: Dialect, classes: Classes
) -> Group:
    """Return the group of a plain pod group of Kueue, which has no object.

    All its pods start together. Annotations of the oldest pod apply to all.
    """
    urgency = _urgency_of(pods, classes)
    return altered(
        implicit_group(oldest, classes),
        key=key,
        uid=key,
        queue=queue,
        dialect=dialect,
        priority=urgency.value,
        never_preempts=urgency.never_preempts,
        min_member=_count(oldest.annotations.get(names.GROUP_COUNT_KUEUE, "")) or 1,
        stale_grace=duration_of(oldest.annotations.get(names.STALENESS_GRACE)),
        held=bool(kueue_problems(pods)),
        minimum_name=f"annotation {names.GROUP_COUNT_KUEUE}",
    )


def _count(text: str) -> int:
    """Return an integer of at least 1; 0 for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0


def named_queue(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the queue that KAI's label or Volcano's annotation names; ``""`` for none.

    This is for objects of an API without a queue field.
    """
    return (
        annotations.get(names.QUEUE_NAME_VOLCANO)
        or labels.get(names.QUEUE_NAME_KAI)
        or labels.get(names.QUEUE_NAME_LABEL)
        or ""
    )


def _time_of(text: str | None) -> float | None:
    if not text:
        return None
    try:
        return parse_rfc3339(text)
    except (ValueError, OverflowError):
        return None
