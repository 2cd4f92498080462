"""What all policies of time-sharing have in common: who opted in, and how long a start is left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from windlass.plugins.timeshare.suspension_cost import CHECKPOINTED
from windlass.spi.objects import Group, Queue
from windlass.spi.plugins import QueueView
from windlass.spi.timeshare import QueueContention, RunSegment

TIME_SHARE = "windlass.dev/time-share"
QUANTUM_SECONDS = 60.0
"""About what a restart of a large job costs: whoever was started is left alone for as long."""

OptIn = Callable[[Group, Sequence[QueueView]], bool]


def opted_in(group: Group, path: Sequence[QueueView]) -> bool:
    """Return whether the group takes part; see :func:`consent`."""
    return bool(consent(group, (queue.spec for queue in path)))


def consent(group: Group, path: Iterable[Queue]) -> bool | None:
    """By the group's own word; else a checkpoint that it declared stands for a yes; else the word of the nearest
    queue that says anything; ``None``: nobody says anything. What nobody may evict never takes part. ``path``: its
    queue up to the root."""
    if not group.preemptible:
        return False
    said = group.annotations.get(TIME_SHARE)
    if said is not None:
        return said == "true"
    if CHECKPOINTED in group.annotations:
        return True
    for queue in path:
        said = queue.annotations.get(TIME_SHARE)
        if said is not None:
            return said == "true"
    return None


def everybody(group: Group, path: Sequence[QueueView]) -> bool:
    """As if all had opted in, but for what nobody may evict."""
    return group.preemptible


class OptInSharing:
    """A start is left alone for a quantum: longer the more accelerators the victim has for each of the claimer's,
    as its restart then costs more than the claimer gains."""

    def __init__(self, joins: OptIn = opted_in, quantum_seconds: float = QUANTUM_SECONDS) -> None:
        self._joins = joins
        self._quantum = quantum_seconds

    def joins(self, group: Group, path: Sequence[QueueView]) -> bool:
        return self._joins(group, path)

    def protected_until(
        self, victim: RunSegment, preemptor: RunSegment, rank: float, contention: QueueContention, now: float
    ) -> float:
        return self.quantum_over(victim, preemptor, now)

    def quantum_over(self, victim: RunSegment, preemptor: RunSegment, now: float) -> float:
        """Until when a start is left alone by a claimer."""
        started, devices, requested = victim.started, victim.devices, preemptor.devices
        quantum = (
            self._quantum * (devices if devices > 1.0 else 1.0) / (requested if requested > 1.0 else 1.0)
        )
        return now + quantum if started is None else started + quantum

    def finished(self, segment: RunSegment) -> None:
        pass
