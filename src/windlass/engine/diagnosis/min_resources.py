"""Explanation of ``minResources`` that exceed what the action ``enqueue`` ever admits."""

from __future__ import annotations

import json

from windlass.api.reasons import Reason
from windlass.engine.groups.entries import GroupEntry, NextTasks
from windlass.engine.groups.next_step import Shortage, min_usage
from windlass.spi.plugins import Rejection
from windlass.spi.quantities import from_units

_COSCHEDULING = "coscheduling:"
_KINDS = {True: "podgroups.scheduling.x-k8s.io", False: "podgroups.scheduling.volcano.sh"}


def is_beyond(rejection: Rejection | None) -> bool:
    """Return whether admission rejects a group that not even an empty cluster or queue admits."""
    return rejection is not None and rejection.code in (Reason.EXCEEDS_CLUSTER, Reason.EXCEEDS_QUEUE_LIMIT)


def sentence(rejection: Rejection) -> str:
    """Return the sentence: the amount in ``minResources``, and the maximum that is admitted."""
    name = rejection.resource
    needed, available = from_units(name, rejection.needed), from_units(name, rejection.available)
    return (
        f"spec.minResources of its PodGroup requests {needed} {name}, and at most {available} is ever "
        f"admitted ({rejection.detail})."
    )


def remedies(group: GroupEntry, step: NextTasks | Shortage | None, rejection: Rejection) -> tuple[str, ...]:
    """Return the change of ``minResources`` that lets the group be admitted, if there is one.

    The amounts are those that the group's minimum of pods requests. Without all these pods it
    is the maximum that is admitted. If the pods request more than that, lower
    ``minResources`` do not help: the reasons of the pods say what does.
    """
    name, most = rejection.resource, rejection.available
    minimum = group.spec.min_resources
    if not isinstance(step, NextTasks):
        return (_patch(group, {name: most}, "the most that is admitted"),)
    usage = min_usage(group, step)
    if usage.get(name, 0) > most:
        return ()
    lower = {other: usage.get(other, 0) for other, units in minimum.items() if units > usage.get(other, 0)}
    return (_patch(group, lower, "what its minimum of pods requests"),)


def _patch(group: GroupEntry, amounts: dict[str, int], what: str) -> str:
    namespace, _, of = group.key.partition("/")
    kind = _KINDS[of.startswith(_COSCHEDULING)]
    texts = {name: from_units(name, units) if units else None for name, units in sorted(amounts.items())}
    listed = ", ".join(f"{text or 'no'} {name}" for name, text in texts.items())
    patch = json.dumps({"spec": {"minResources": texts}})
    return (
        f"Lower spec.minResources to {what} ({listed}): kubectl patch {kind} "
        f"{of.removeprefix(_COSCHEDULING)} -n {namespace} --type merge -p '{patch}'."
    )
