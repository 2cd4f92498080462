"""Sizes of a Deployment's ReplicaSets: a rollout step by step, and a change of the total."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.controllers.apps.deployment.replica_sets import DESIRED, MAXIMUM, ManagedSet, RolloutLimits


def total(sets: Sequence[ManagedSet]) -> int:
    return sum(one.replicas for one in sets)


def available(sets: Sequence[ManagedSet]) -> int:
    return sum(one.count("availableReplicas") for one in sets)


def active(sets: Sequence[ManagedSet]) -> list[ManagedSet]:
    """Return the sets that have pods, or should have."""
    return [one for one in sets if one.replicas > 0]


def shrink_old(new: ManagedSet, old: Sequence[ManagedSet], limits: RolloutLimits) -> None:
    """Shrink old sets as far as enough pods stay available.

    Pods that are not available go first: their deletion costs nothing.
    """
    every = [*old, new]
    unavailable_new = new.replicas - new.count("availableReplicas")
    room = total(every) - limits.least_available - unavailable_new
    if total(old) == 0 or room <= 0:
        return
    by_age = sorted(active(old), key=lambda one: one.age_order)
    for one in by_age:
        if room <= 0:
            break
        unhealthy = min(room, one.replicas - one.count("availableReplicas"))
        if unhealthy > 0:
            one.replicas -= unhealthy
            room -= unhealthy
    spare = available(every) - limits.least_available
    for one in by_age:
        if spare <= 0:
            break
        step = min(one.replicas, spare)
        one.replicas -= step
        spare -= step


def scale_sets(
    new: ManagedSet | None, old: Sequence[ManagedSet], limits: RolloutLimits, present: int
) -> list[ManagedSet]:
    """Follow a change of the Deployment's size. Returns the sets that were given a size.

    ``present``: number of pods in the status of the Deployment.

    During a rollout, all sets grow or shrink in proportion, so that the change does not
    speed the rollout up.
    """
    every = [*old, *((new,) if new is not None else ())]
    only = _active_or_latest(new, old)
    if only is not None:
        if only.replicas == limits.desired:
            return []
        only.replicas = limits.desired
        return [only]
    if new is not None and _is_saturated(new, limits):
        shrunk = active(old)
        for one in shrunk:
            one.replicas = 0
        return shrunk
    if not limits.rolling or not every:
        return []
    return _scale_in_proportion(active(every), limits, present)


def _active_or_latest(new: ManagedSet | None, old: Sequence[ManagedSet]) -> ManagedSet | None:
    """Return the only active set; without one, the new or else the newest set."""
    every = [*old, *((new,) if new is not None else ())]
    found = active(every)
    if len(found) == 1:
        return found[0]
    if found or not every:
        return None
    return new if new is not None else max(old, key=lambda one: one.age_order)


def _is_saturated(new: ManagedSet, limits: RolloutLimits) -> bool:
    """Return whether the new set has all its pods, and they are available."""
    desired = new.annotations.get(DESIRED, "")
    return (
        desired.isdecimal()
        and new.replicas == limits.desired == int(desired)
        and new.count("availableReplicas") == limits.desired
    )


def _scale_in_proportion(sets: list[ManagedSet], limits: RolloutLimits, present: int) -> list[ManagedSet]:
    allowed = limits.maximum if limits.desired > 0 else 0
    change = allowed - total(sets)
    ordered = sorted(sets, key=lambda one: one.age_order, reverse=change > 0)
    ordered.sort(key=lambda one: one.replicas, reverse=True)
    done = 0
    for one in ordered if change else ():
        part = _proportion(one, limits, present)
        part = min(part, change - done) if change > 0 else max(part, change - done)
        one.replicas += part
        done += part
    if change and ordered:
        ordered[0].replicas = max(0, ordered[0].replicas + change - done)
    return ordered


def _proportion(one: ManagedSet, limits: RolloutLimits, present: int) -> int:
    """Return the change of one set that keeps its part of the total."""
    if limits.desired == 0:
        return -one.replicas
    text = one.annotations.get(MAXIMUM, "")
    before = (int(text) if text.isdecimal() else 0) or present
    if before == 0:
        return 0
    exact = one.replicas * limits.maximum / before
    return int(exact + 0.5) - one.replicas
