"""Rolling update by the partition of the leaders' StatefulSet.

Groups are updated from the last one to the first. Groups beyond ``replicas``
(``maxSurge``) are created first, and removed when all others are updated and ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windlass.jobs.leaderworkerset.spec import LeaderWorkerSet


@dataclass(frozen=True, slots=True)
class GroupState:
    """State of one group. ``updated``: it has the current revision."""

    ready: bool
    updated: bool


@dataclass(frozen=True, slots=True)
class LeaderSet:
    """The leaders' StatefulSet as it is.

    ``recorded_replicas``: replicas of the LeaderWorkerSet when it was written last.
    """

    replicas: int
    partition: int
    recorded_replicas: int
    revision: str


@dataclass(frozen=True, slots=True)
class Rollout:
    """Partition and number of leaders."""

    partition: int
    replicas: int


def next_rollout(found: LeaderWorkerSet, leaders: LeaderSet | None, states: Sequence[GroupState]) -> Rollout:
    """Return the next step. ``states`` by index of the group, as many as there are leaders."""
    step = _unpartitioned(found, leaders, states)
    return Rollout(
        max(step.partition, found.partition) if leaders is not None else step.partition, step.replicas
    )


def _unpartitioned(
    found: LeaderWorkerSet, leaders: LeaderSet | None, states: Sequence[GroupState]
) -> Rollout:
    wanted = found.replicas
    if leaders is None:
        return Rollout(0, wanted)
    burst = wanted + found.max_surge
    if leaders.revision != found.template.revision:
        return Rollout(min(wanted, leaders.replicas), burst)
    if leaders.partition == 0 and leaders.replicas == wanted:
        return Rollout(0, wanted)
    padded = [*states, *[GroupState(False, False)] * burst]
    finished = all(one.ready and one.updated for one in padded[:wanted])
    replicas = wanted if finished else burst
    if leaders.recorded_replicas != wanted:
        return Rollout(min(leaders.partition, burst), replicas)
    step = found.max_unavailable + found.max_surge - (burst - leaders.replicas)
    return Rollout(_partition(padded[: leaders.replicas], step, leaders.partition), replicas)


def _partition(states: Sequence[GroupState], step: int, current: int) -> int:
    """Return the next partition, which never rises."""
    done = 0
    for state in reversed(states):
        if not (state.ready and state.updated):
            break
        done += 1
    partition = max(0, len(states) - done - step)
    partition = min(len(states), partition + sum(not state.ready for state in states[:partition]))
    # Groups that are not ready lose nothing by their update.
    while partition > 0 and not states[partition - 1].ready:
        partition -= 1
    return min(partition, current)
