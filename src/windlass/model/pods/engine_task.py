"""Translation of a pod view to the engine's task."""

from __future__ import annotations

from functools import lru_cache

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.devices.assignment_annotations import SLICES
from windlass.model.devices.assignment import held_devices, slices_of
from windlass.model.groups.podgroups import KAI, Classes, index_of, kind_prefix, preemptible, role_of
from windlass.model.nodes.numa import holding_of
from windlass.spi.objects import Dialect, Needs, Task, TaskState

_REPLICATED = frozenset(("ReplicaSet", "ReplicationController", "StatefulSet"))
"""Kinds of controllers with pods that all run at once, without end."""
STUCK_SECONDS = 120.0
"""Delay (seconds) after its deletion time at which a terminating pod counts as stuck."""
_CRITICAL_CLASSES = ("system-cluster-critical", "system-node-critical")
_COOLDOWN = "volcano.sh/cooldown-time"
"""Setting for which Volcano's label takes precedence over the annotation."""
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
"""Group of pods that another scheduler placed. They only hold resources."""


@lru_cache(maxsize=4096)
def devices_of(text: str) -> tuple[int, ...]:
    """Return the indices in a text: ``"0,3"`` is (0, 3).

    Invalid entries are skipped. The node then counts amounts only.
    """
    indices = []
    for piece in text.split(","):
        digits = piece.strip()
        if digits.isascii() and digits.isdigit() and len(digits) < 5:
            indices.append(int(digits))
    return tuple(sorted(set(indices)))


def state_of(pod: views.Pod, now: float = 0.0) -> TaskState:
    """Return the state of a pod. A terminating pod that is bound still holds its resources.

    ``now``: Unix seconds; 0.0: no pod is stuck.
    """
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
    """Return the start of a pod (Unix seconds); ``None`` before its start.

    Objects state whole seconds, rounded down. In the second of its decision a pod
    cannot have started before it was ``decided`` (0.0: unknown).
    """
    if not pod.started:
        return None
    return decided if pod.started < decided < pod.started + 1.0 else pod.started


def is_critical(pod: views.Pod) -> bool:
    """Return whether the cluster itself depends on the pod: it is never evicted."""
    return pod.namespace == "kube-system" or pod.priority_class in _CRITICAL_CLASSES


def is_stuck(pod: views.Pod, now: float) -> bool:
    """Return whether the pod's termination counts as stuck."""
    deadline = stuck_from(pod)
    return deadline is not None and now >= deadline


def stuck_from(pod: views.Pod) -> float | None:
    """Return when (Unix seconds) a termination counts as stuck; ``None``: only running pods do."""
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
    owners_known: bool = True,
) -> Task:
    """Return the engine's task.

    ``group``: :data:`FOREIGN` for a pod of another scheduler.
    ``dialect``: the API of its queue.
    ``node``: the node of a bound pod, if known.
    ``decided``: see :func:`started_at`.
    ``owners_known``: see :func:`recreated`.
    """
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
        preemptible=preemptible(
            pod.labels, pod.annotations, protected_class=classes.protects(pod.priority_class)
        ),
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
        owned=recreated(pod, group, owners_known=owners_known),
        deleted=pod.deleted if pod.node_name else 0.0,
        replica_of=_replicated_by(pod),
        guaranteed=pod.shape.guaranteed,
    )


def _replicated_by(pod: views.Pod) -> str:
    """Return the controller that keeps the pod and its other replicas running at once, "" for none."""
    owner = pod.controller if pod.owners else None
    return f"{owner.kind} {owner.name}" if owner is not None and owner.kind in _REPLICATED else ""


def recreated(pod: views.Pod, group: str, *, owners_known: bool) -> bool:
    """Return whether the pod is created again after it is deleted.

    Its controller does that. Manifests that no API server returned often leave out the
    owners that the pods of a KAI PodGroup have in a cluster. These pods count as
    recreated, unless other manifests state owners (``owners_known``).
    """
    if pod.owners:
        return pod.controller is not None
    return not (owners_known or pod.resource_version) and kind_prefix(group) == KAI


def _read(pod: views.Pod) -> tuple[tuple[str, str], ...]:
    annotations, labels = pod.annotations, pod.labels
    settings = [
        (name, labels.get(name) or annotations.get(name))
        if name == _COOLDOWN
        else (name, annotations.get(name) or labels.get(name))
        for name in _READ
    ]
    return tuple((name, text) for name, text in settings if text)


def _number(text: str) -> int:
    """Return an integer; 0 for any other text."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0
