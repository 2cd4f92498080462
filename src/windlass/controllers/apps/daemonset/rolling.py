"""Rolling update of a DaemonSet: the pods to delete, and the nodes that get a second pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from windlass.api.views import Pod


@dataclass(frozen=True, slots=True)
class UpdateLimits:
    """Numbers of nodes. ``surge``: with two pods at once. ``unavailable``: without an available pod."""

    desired: int
    surge: int
    unavailable: int


@dataclass(frozen=True, slots=True)
class UpdateStep:
    delete: tuple[Pod, ...]
    create: tuple[str, ...] = ()


class _Pair:
    """Live pods of one node: one of the present template, and one of another. ``excess``: more than that."""

    def __init__(self, pods: Sequence[Pod], is_new: Callable[[Pod], bool]) -> None:
        live = [pod for pod in pods if not pod.deleting]
        new, old = [pod for pod in live if is_new(pod)], [pod for pod in live if not is_new(pod)]
        self.excess = len(new) > 1 or len(old) > 1
        self.new = new[0] if new else None
        self.old = old[0] if old else None


def replace_pods(
    nodes: Mapping[str, Sequence[Pod]],
    limits: UpdateLimits,
    is_new: Callable[[Pod], bool],
    is_available: Callable[[Pod], bool],
) -> UpdateStep:
    """Return the old pods to delete, so that at most ``limits.unavailable`` nodes are without one."""
    unavailable, lost, candidates = 0, [], []
    for pods in nodes.values():
        pair = _Pair(pods, is_new)
        if pair.excess or (pair.new is None) == (pair.old is None):
            unavailable += 1
        elif pair.new is not None:
            unavailable += not is_available(pair.new)
        elif pair.old is not None and not is_available(pair.old):
            lost.append(pair.old)
            unavailable += 1
        elif pair.old is not None:
            candidates.append(pair.old)
    room = max(0, limits.unavailable - unavailable)
    return UpdateStep((*lost, *candidates[:room]))


def surge_pods(
    nodes: Mapping[str, Sequence[Pod]],
    limits: UpdateLimits,
    is_new: Callable[[Pod], bool],
    is_available: Callable[[Pod], bool],
    runs_on: Callable[[str], bool],
) -> UpdateStep:
    """Return the old pods that are replaced, and the nodes that get a new pod next to the old one.

    ``runs_on``: whether a node still starts the pod.
    """
    surging = available = 0
    delete: list[Pod] = []
    leaving: list[Pod] = []
    urgent: list[str] = []
    candidates: list[str] = []
    for name, pods in nodes.items():
        pair = _Pair(pods, is_new)
        if pair.excess:
            surging += 1
            continue
        shown = pair.old or pair.new
        available += shown is not None and is_available(shown)
        if pair.old is None:
            continue
        if pair.new is not None:
            if is_available(pair.new):
                delete.append(pair.old)
            else:
                surging += 1
        elif not runs_on(name):
            (leaving if is_available(pair.old) else delete).append(pair.old)
        else:
            (candidates if is_available(pair.old) else urgent).append(name)
    delete += leaving[: max(0, available - limits.desired)]
    room = max(0, limits.surge - surging)
    return UpdateStep(tuple(delete), (*urgent, *candidates[:room]))
