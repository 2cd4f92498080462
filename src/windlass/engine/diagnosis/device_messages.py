"""Blockers of devices for a task class, and their messages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windlass.api.reasons import Reason
from windlass.engine.devices.assignment import DeviceSummary
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.feasibility.task_class import TaskClass
from windlass.spi.devices import DeviceNeed, DeviceOption, Draws, JointDeviceNeed
from windlass.spi.plugins import NodeBlocker
from windlass.spi.quantities import from_units

_NAMED = 4
"""Maximum number of devices that are named one by one."""


def device_blockers(cls: TaskClass, rows: NDArray[np.int64], *, lasting: bool) -> list[NodeBlocker]:
    """Return the device blockers on these rows.

    Either a node has too few matching devices, even if empty, or too little of them is
    free now.
    ``lasting``: only the former.
    """
    needs, allocator = cls.needs, cls.allocator
    where = rows.tolist()
    ever = allocator.empty_counts(where, needs) > 0
    now = allocator.counts(where, needs) > 0
    blocked = np.flatnonzero(~ever if lasting else ~ever | ~now).tolist()
    lasts: dict[int, list[int]] = {}
    short: dict[int, list[tuple[int, DeviceSummary]]] = {}
    together: list[int] = []
    looks: dict[int, list[DeviceSummary]] = {}
    held: list[bool] = ever.tolist()
    for empty in (False, True):
        ats = [at for at in blocked if held[at] != empty]
        said = allocator.summaries([where[at] for at in ats], needs, empty=empty) if ats else []
        looks.update(zip(ats, said, strict=True))
    for at in blocked:
        told = False
        for number, summary in enumerate(looks[at]):
            if summary.fitting < summary.need.count:
                told = True
                if ever[at]:
                    short.setdefault(number, []).append((at, summary))
                else:
                    lasts.setdefault(number, []).append(at)
        if not told:
            together.append(at)
    found = [
        NodeBlocker(
            Reason.NO_SUITABLE_DEVICE, _mask(len(rows), ats), detail=f"needs {wish(needs.devices[n])}"
        )
        for n, ats in sorted(lasts.items())
    ]
    found += [
        NodeBlocker(
            Reason.DEVICE_SHARES_TAKEN,
            _mask(len(rows), [at for at, _ in glances]),
            detail=f"needs {wish(needs.devices[n])}; {_left([glance for _, glance in glances])}",
        )
        for n, glances in sorted(short.items())
    ]
    if together:
        detail = "needs all of it at once" if len(needs.devices) > 1 else "other work is promised the cards"
        found.append(NodeBlocker(Reason.DEVICE_SHARES_TAKEN, _mask(len(rows), together), detail=detail))
    return found


def _mask(size: int, at: list[int]) -> NDArray[np.bool_]:
    mask = np.zeros(size, dtype=np.bool_)
    mask[at] = True
    return mask


def _left(glances: list[DeviceSummary]) -> str:
    """Return what is left on the freest device of these nodes."""
    need = glances[0].need
    if need.joint is not None:
        cards = max(summary.devices for summary in glances)
        return f"not all of it at once is free beside what others have of the {cards} devices that could serve it"
    if need.count > 1:
        most = max(summary.fitting for summary in glances)
        return f"at most {most} of {need.count} cards have that"
    if need.profile:
        return "no card has a place for it"
    told = []
    if need.milli:
        told.append(f"{from_units(need.resource or 'gpu', max(g.milli for g in glances))} of a card")
    if need.memory_mib or (need.memory_milli and not need.milli):
        told.append(f"{max(g.mib for g in glances)} MiB")
    crowded = max(summary.at_limit for summary in glances)
    if crowded and not any(summary.milli or summary.mib for summary in glances):
        return "as many share each card as its device plug-in serves"
    left = f"the freest card has {' and '.join(told)} left" if told else "no card is free for it"
    return (
        f"{left}; as many share {crowded} cards of a node as its device plug-in serves" if crowded else left
    )


def wish(need: DeviceNeed, whole: str = "a whole") -> str:
    """Return a text like ``0.5 of an H100 GPU, 9000 MiB of its memory``.

    ``whole``: article of a device without a named share.
    """
    if need.joint is not None:
        return _joined(need.joint)
    kind = "/".join(need.models) or (need.resource.rpartition("/")[2] if need.resource else "accelerator")
    if need.profile:
        text = f"a {need.profile} slice of a {kind} card"
    elif need.whole:
        text = f"{whole} {kind} card"
    elif need.milli:
        text = f"{need.milli / WHOLE:g} of a {kind} card"
    elif need.memory_milli:
        text = f"{need.memory_milli / WHOLE:g} of the memory of a {kind} card"
    else:
        text = f"a {kind} card"
    if need.memory_mib:
        text += f" with {need.memory_mib} MiB of its memory"
    if need.min_memory_mib:
        text += f" of at least {need.min_memory_mib} MiB"
    if need.min_compute > (0, 0):
        text += f" of compute capability {need.min_compute[0]}.{need.min_compute[1]} or more"
    if len(need.uuids) > _NAMED:
        text += f" ({len(need.uuids)} of the cluster's)"
    elif need.uuids:
        text += f" ({', '.join(need.uuids)})"
    return f"{need.count} times {text}" if need.count > 1 else text


def _joined(joint: JointDeviceNeed) -> str:
    """Return the request of resource claims."""
    asked = [
        " or else ".join(_option(option) for option in options)
        for requests in joint.claims
        for options in requests
    ]
    tied = [f"that {'differ' if rule.distinct else 'agree'} in {rule.attribute}" for rule in joint.rules]
    return ", ".join([" and ".join(asked), *dict.fromkeys(tied)])


def _option(option: DeviceOption) -> str:
    text = wish(option.need, _part(option.parts[0][1]) if option.parts else "a whole")
    if option.every:
        text = f"every device of a node like {text}"
    return f"a look at {text}" if option.admin else text


def _part(draws: Draws) -> str:
    """Return a text like ``memory 30Gi of one`` for a share of a device."""
    told = [f"{name.rpartition(':')[2]} {_amount(units)}" for name, units, _ in draws]
    return f"{' and '.join(told)} of one" if told else "a share of one"


def _amount(units: int) -> str:
    """``units``: billionths."""
    whole, rest = divmod(units, 10**9)
    return f"{units / 10**9:g}" if rest else from_units("memory", whole)
