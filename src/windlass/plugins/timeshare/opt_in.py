"""Common base of time-sharing policies: opt-in, and protection of a start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from windlass.plugins.timeshare.suspension_cost import CHECKPOINTED
from windlass.spi.objects import Group, Queue
from windlass.spi.plugins import QueueView
from windlass.spi.timeshare import QueueContention, RunSegment

TIME_SHARE = "windlass.dev/time-share"
QUANTUM_SECONDS = 60.0
"""Default time (seconds) for which a start is protected: about the restart of a large job."""

OPT_IN_KEYS = frozenset({TIME_SHARE, CHECKPOINTED})
"""Annotations of groups and queues that opt in."""

OptIn = Callable[[Group, Sequence[QueueView]], bool]


def opted_in(group: Group, path: Sequence[QueueView]) -> bool:
    """Return whether the group takes part; see :func:`consent`."""
    return bool(consent(group, (queue.spec for queue in path)))


def consent(group: Group, path: Iterable[Queue]) -> bool | None:
    """Return whether the group opted in; ``None`` if nothing states it.

    The group's annotation decides first. Without it a declared checkpoint counts as
    yes. Otherwise the nearest queue with the annotation decides. Nonpreemptible groups
    never take part.

    :param path: the group's queue and its ancestors up to the root
    """
    if not group.preemptible:
        return False
    value = group.annotations.get(TIME_SHARE)
    if value is not None:
        return value == "true"
    if CHECKPOINTED in group.annotations:
        return True
    for queue in path:
        value = queue.annotations.get(TIME_SHARE)
        if value is not None:
            return value == "true"
    return None


def all_preemptible(group: Group, path: Sequence[QueueView]) -> bool:
    """Return whether the group is preemptible: opt-in of all groups that may be evicted."""
    return group.preemptible


class OptInSharing:
    """Base of policies that protect a start for a quantum.

    The quantum is multiplied by the ratio of the victim's and the preemptor's
    accelerators, if that is above 1. The victim's restart then costs more than the
    preemptor gains.
    """

    def __init__(self, joins: OptIn = opted_in, quantum_seconds: float = QUANTUM_SECONDS) -> None:
        self._joins = joins
        self.opt_in_keys = OPT_IN_KEYS if joins is opted_in else None
        """Annotations without which no group joins; ``None`` if unknown."""
        self._quantum = quantum_seconds

    def joins(self, group: Group, path: Sequence[QueueView]) -> bool:
        return self._joins(group, path)

    def protected_until(
        self, victim: RunSegment, preemptor: RunSegment, rank: float, contention: QueueContention, now: float
    ) -> float:
        return self.quantum_over(victim, preemptor, now)

    def quantum_over(self, victim: RunSegment, preemptor: RunSegment, now: float) -> float:
        """Return the end of the protection of a start against a preemptor (Unix seconds)."""
        started, devices, requested = victim.started, victim.devices, preemptor.devices
        quantum = (
            self._quantum * (devices if devices > 1.0 else 1.0) / (requested if requested > 1.0 else 1.0)
        )
        return now + quantum if started is None else started + quantum

    def finished(self, segment: RunSegment) -> None:
        pass
