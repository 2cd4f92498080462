"""Limits of queues that a group exceeds, and the remedies for them.

A remedy names the queues with the binding limits: its own or any queue above it. It
is stated only if no limit rejects the group once these limits are raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from msgspec.structs import replace as altered

from windlass.api.reasons import Reason
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.queue_entry import QueueEntry
from windlass.spi.objects import Dialect, Resources
from windlass.spi.plugins import FLAVOR, Rejection
from windlass.spi.quantities import from_units
from windlass.spi.views import flavor_of

LIMIT_CODES = frozenset({Reason.WAITING_FOR_QUOTA, Reason.EXCEEDS_QUEUE_LIMIT})
KAI = "scheduling.run.ai"
"""API group of KAI's queues. Only their own objects change them."""
NOTHING: Mapping[str, Resources] = {}
_ROOT = "root"
"""Volcano's root queue. The API server does not accept a limit of it."""
_KAI_FIELDS = {"nvidia.com/gpu": "gpu", "cpu": "cpu", "memory": "memory"}
"""Resource → field of ``spec.resources`` of a KAI queue."""
_KAI_UNITS = {"cpu": 1, "memory": 10**6}
"""Resource → engine units per unit of that field."""


@dataclass(frozen=True, slots=True)
class ExceededLimit:
    """A limit that the group would exceed. ``to``: the limit with which it would not."""

    queue: QueueEntry
    resource: str
    limit: int
    to: int


def exceeded_limits(
    group: GroupEntry,
    request: Resources,
    rejections: Sequence[Rejection],
    reserved: Mapping[str, Resources] = NOTHING,
) -> list[ExceededLimit]:
    """Return the limits that a request exceeds, those of the highest queue first.

    ``reserved``: queue → amounts that count as held.
    """
    if group.queue is None:
        return []
    path = _path(group.queue)
    needed: dict[tuple[str, str], int] = {}
    for queue in path:
        for resource in queue.spec.capability:
            units = request.get(resource, 0)
            held = max(queue.allocated.get(resource, 0), queue.committed.get(resource, 0))
            total = held + reserved.get(queue.name, {}).get(resource, 0) + units
            if units > 0 and total > queue.spec.capability[resource]:
                needed[queue.name, resource] = total
    for rejection in rejections:
        queue = next((q for q in path if q.name == rejection.queue), None)
        if queue is None or rejection.code not in LIMIT_CODES or rejection.remedies:
            continue
        for key, total in _rejected(queue, rejection):
            needed[key] = max(needed.get(key, 0), total)
    for resource in {resource for _, resource in needed}:
        below = 0
        for queue in path:  # a limit above that of a queue higher up has no effect
            below = max(below, needed.get((queue.name, resource), 0))
            if below > queue.spec.capability.get(resource, below):
                needed[queue.name, resource] = below
    return [
        ExceededLimit(queue, resource, queue.spec.capability[resource], needed[queue.name, resource])
        for queue in reversed(path)
        for resource in sorted(queue.spec.capability)
        if (queue.name, resource) in needed
    ]


def _path(queue: QueueEntry) -> list[QueueEntry]:
    """Return the queue and all above it, each once, also if the parents form a ring."""
    return list(dict.fromkeys(queue.path))


def _rejected(queue: QueueEntry, rejection: Rejection) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield the limit that a rejection names: queue and resource, and the amount it would need."""
    limits, resource = queue.spec.capability, rejection.resource
    if not resource:
        return
    if resource in limits:
        if not rejection.permanent:
            yield (queue.name, resource), limits[resource] + rejection.needed - rejection.available
        if FLAVOR not in resource:
            return
    names = sorted(name for name in limits if FLAVOR in name and flavor_of(name)[0] == flavor_of(resource)[0])
    if names and FLAVOR in resource:
        names = [resource]
    for name in names[:1]:
        yield (queue.name, name), queue.allocated.get(name, 0) + rejection.needed


@contextmanager
def raised(exceeded: Sequence[ExceededLimit]) -> Iterator[None]:
    """Raise the limits for a trial."""
    before = [(each.queue, each.queue.spec, each.queue.share) for each in exceeded]
    try:
        for each in exceeded:
            queue = each.queue
            queue.spec = replace(queue.spec, capability=_with(queue.spec.capability, each.resource, each.to))
            if each.resource in queue.share.real_capability:
                real = _with(queue.share.real_capability, each.resource, each.to)
                queue.share = altered(queue.share, real_capability=real)
        yield
    finally:
        for queue, spec, share in reversed(before):
            queue.spec, queue.share = spec, share


def _with(amounts: Mapping[str, int], resource: str, units: int) -> dict[str, int]:
    return {**amounts, resource: max(units, amounts.get(resource, 0))}


def limit_remedies(
    group: GroupEntry,
    request: Resources,
    rejections: Sequence[Rejection],
    rejections_now: Callable[[], Sequence[Rejection]],
    reserved: Mapping[str, Resources] = NOTHING,
) -> tuple[str, ...]:
    """Return the remedies for limits of queues.

    :param rejections: rejections of the request by limits
    :param rejections_now: evaluates them again, after limits were raised
    :param reserved: queue → amounts that count as held
    """
    own = [each for each in rejections if each.code in LIMIT_CODES and not each.remedies]
    if not own:
        return ()
    exceeded = exceeded_limits(group, request, rejections, reserved)
    never = any(each.code is Reason.EXCEEDS_QUEUE_LIMIT for each in own) or any(
        request.get(each.resource, 0) > each.limit for each in exceeded
    )
    queues = list(dict.fromkeys(each.queue.name for each in exceeded)) or [
        name for name in dict.fromkeys(each.queue for each in own) if name
    ]
    first = "Ask for less" if never else f"Wait for work of {_queues(queues)} to end"
    if not (never or queues):
        return ()
    how = _how_to_raise(exceeded)
    if how:
        with raised(exceeded):
            rest = [each for each in rejections_now() if each.code in LIMIT_CODES]
        if any(not each.remedies for each in rest):
            how = ""
        elif rest:
            return (f"{first}.", f"In addition, raise {how}")
    return (f"{first}, or raise {how}" if how else f"{first}.",)


def _queues(names: Sequence[str]) -> str:
    return " and of ".join(f"queue {name}" for name in names)


def _how_to_raise(exceeded: Sequence[ExceededLimit]) -> str:
    """Return the commands that raise the limits, ``""`` if none does."""
    if not exceeded or any(each.queue.name == _ROOT for each in exceeded):
        return ""
    what = "the limit" if len(exceeded) == 1 else "the limits"
    kai = exceeded[0].queue.spec.dialect is Dialect.KAI
    if kai and any(each.resource not in _KAI_FIELDS for each in exceeded):
        return ""
    queues = dict.fromkeys(each.queue for each in exceeded)
    commands = [
        (_kai_command if kai else _command)(queue, [each for each in exceeded if each.queue is queue])
        for queue in queues
    ]
    return f"{what}: {' && '.join(commands)}"


def _command(queue: QueueEntry, exceeded: Sequence[ExceededLimit]) -> str:
    limits = " ".join(f"capability.{each.resource}={from_units(each.resource, each.to)}" for each in exceeded)
    return f"windlass queue set {queue.name} {limits}"


def _kai_command(queue: QueueEntry, exceeded: Sequence[ExceededLimit]) -> str:
    limits = ", ".join(
        f"spec.resources.{_KAI_FIELDS[each.resource]}.limit: {_kai_amount(each)}" for each in exceeded
    )
    return f"kubectl edit queues.{KAI} {object_name(queue.name)}   ({limits})"


def _kai_amount(each: ExceededLimit) -> str:
    """Return the amount in the unit of KAI's field: GPUs, millicores or megabytes."""
    if each.resource == "nvidia.com/gpu":
        return from_units(each.resource, each.to)
    return str(-(-each.to // _KAI_UNITS[each.resource]))


def object_name(queue: str) -> str:
    """Return the object name of a queue of KAI."""
    return queue.rpartition("/")[2]
