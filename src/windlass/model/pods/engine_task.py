"""Pod view → the engine's task."""

from __future__ import annotations

from functools import lru_cache

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.devices.assignment_annotations import SLICES
from windlass.model.devices.assignment import held_devices, slices_of
from windlass.model.groups.podgroups import Classes, index_of, preemptible, role_of
from windlass.model.nodes.numa import holding_of
from windlass.spi.objects import Dialect, Needs, Task, TaskState

STUCK_SECONDS = 120.0
"""A pod that should have been gone for longer than this is stuck in its termination."""
_CRITICAL_CLASSES = ("system-cluster-critical", "system-node-critical")
_COOLDOWN = "volcano.sh/cooldown-time"
"""The one of which Volcano reads the label first."""
_READ = (
    _COOLDOWN,
    "volcano.sh/revocable-zone",
    "volcano.sh/jdb-min-available",
    "volcano.sh/jdb-max-unavailable",
    names.SAFE_TO_EVICT,
)
"""Annotations (or labels) of a pod that a policy reads."""
_READ_AT_ALL = frozenset(_READ)
FOREIGN = ""
"""The group of pods that another scheduler placed: they only hold room."""


@lru_cache(maxsize=4096)
def devices_of(text: str) -> tuple[int, ...]:
    """``"0,3"`` → (0, 3). Entries that are no index are left out: the node then counts amounts alone."""
    found = []
    for piece in text.split(","):
        digits = piece.strip()
        if digits.isascii() and digits.isdigit() and len(digits) < 5:
            found.append(int(digits))
    return tuple(sorted(set(found)))


def state_of(pod: views.Pod, now: float = 0.0) -> TaskState:
    """A terminating pod that is bound still holds its room. ``now``: Unix seconds; 0.0: nothing is stuck."""
    if pod.phase == "Succeeded":
        return TaskState.SUCCEEDED
    if pod.phase == "Failed":
        return TaskState.FAILED
    if not pod.node_name:
        return TaskState.PENDING
    if pod.deleted:
        return TaskState.STUCK if is_stuck(pod, now) else TaskState.RELEASING
    return TaskState.RUNNING if pod.phase == "Running" else TaskState.BOUND


def started_at(pod: views.Pod, decided: float) -> float | None:
    """Since when a pod runs, Unix seconds; ``None``: it does not yet. Objects tell whole seconds, rounded down: in the
    second in which its bind was ``decided`` it cannot have started before that. (0.0: nobody knows when that was.)"""
    if not pod.started:
        return None
    return decided if pod.started < decided < pod.started + 1.0 else pod.started


def is_critical(pod: views.Pod) -> bool:
    """Return whether the cluster itself rests on it: it is never asked to go."""
    return pod.namespace == "kube-system" or pod.priority_class in _CRITICAL_CLASSES


def is_stuck(pod: views.Pod, now: float) -> bool:
    """Return whether nobody counts any more on the pod's end."""
    moment = stuck_from(pod)
    return moment is not None and now >= moment


def stuck_from(pod: views.Pod) -> float | None:
    """From when on (Unix seconds) a termination counts as stuck; ``None`` if it never does: of pods that run alone."""
    return pod.deleted + STUCK_SECONDS if pod.phase == "Running" and pod.deleted > 0 else None


def task_of(
    pod: views.Pod,
    group: str,
    needs: Needs,
    classes: Classes,
    *,
    now: float = 0.0,
    dialect: Dialect = Dialect.VOLCANO,
    subgroup: str = "",
    node: views.NodeObject | None = None,
    budgets: tuple[str, ...] = (),
    decided: float = 0.0,
) -> Task:
    """``group`` :data:`FOREIGN` for a pod of another scheduler. ``dialect``: that of its queue. ``node``: that
    of a bound pod, where it is known. ``decided``: see :func:`started_at`."""
    held = held_devices(pod.annotations, node) if pod.node_name and pod.annotations else ""
    if dialect is Dialect.KAI:
        priority = _number(pod.labels.get(names.TASK_PRIORITY_KAI, ""))
    else:
        priority = pod.priority if pod.priority is not None else classes.value(pod.priority_class)
    return Task(
        key=pod.key,
        uid=pod.uid,
        group=group,
        needs=needs,
        role=role_of(pod),
        index=index_of(pod),
        priority=priority,
        never_preempts=pod.preemption_policy == "Never",
        state=state_of(pod, now),
        node=pod.node_name,
        devices=devices_of(held) if held else (),
        slices=slices_of(pod.annotations.get(SLICES, "")) if held else (),
        gated=bool(pod.shape.gates),
        preemptible=preemptible(pod.labels, pod.annotations),
        created=pod.created,
        subgroup=subgroup or (pod.labels.get(names.SUBGROUP_KAI, "") if dialect is Dialect.KAI else ""),
        started=started_at(pod, decided) if pod.started else None,
        run_limit=None if pod.run_limit is None else float(pod.run_limit),
        critical=is_critical(pod),
        annotations=()
        if _READ_AT_ALL.isdisjoint(pod.labels) and _READ_AT_ALL.isdisjoint(pod.annotations)
        else _read(pod),
        zones=holding_of(pod.annotations) if pod.node_name and pod.annotations else None,
        budgets=budgets,
        owned=bool(pod.owners) and pod.controller is not None,
        guaranteed=pod.shape.guaranteed,
    )


def _read(pod: views.Pod) -> tuple[tuple[str, str], ...]:
    annotations, labels = pod.annotations, pod.labels
    found = [
        (name, labels.get(name) or annotations.get(name))
        if name == _COOLDOWN
        else (name, annotations.get(name) or labels.get(name))
        for name in _READ
    ]
    return tuple((name, text) for name, text in found if text)


def _number(text: str) -> int:
    """An integer; 0 for what is none."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
