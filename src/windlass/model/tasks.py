"""Pod view → the engine's task."""

from __future__ import annotations

from functools import lru_cache

from windlass.api import annotations as names
from windlass.api import views
from windlass.model.groups import Classes, index_of, preemptible, role_of
from windlass.spi.objects import Needs, Task, TaskState

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


def state_of(pod: views.Pod) -> TaskState:
    """A terminating pod that is bound still holds its room."""
    if pod.phase == "Succeeded":
        return TaskState.SUCCEEDED
    if pod.phase == "Failed":
        return TaskState.FAILED
    if not pod.node_name:
        return TaskState.PENDING
    if pod.deleted:
        return TaskState.RELEASING
    return TaskState.RUNNING if pod.phase == "Running" else TaskState.BOUND


def task_of(pod: views.Pod, group: str, needs: Needs, classes: Classes) -> Task:
    """``group`` :data:`FOREIGN` for a pod of another scheduler."""
    return Task(
        key=pod.key,
        uid=pod.uid,
        group=group,
        needs=needs,
        role=role_of(pod),
        index=index_of(pod),
        priority=pod.priority if pod.priority is not None else classes.value(pod.priority_class),
        state=state_of(pod),
        node=pod.node_name,
        devices=devices_of(pod.annotations.get(names.DEVICES, "")) if pod.node_name else (),
        gated=bool(pod.shape.gates),
        preemptible=preemptible(pod.labels, pod.annotations),
        created=pod.created,
    )
