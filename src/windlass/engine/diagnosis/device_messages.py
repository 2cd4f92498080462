"""Blockers of devices for a task class, and their messages."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from windlass.api.reasons import Reason
from windlass.engine.devices.assignment import DeviceSummary
from windlass.engine.devices.whole_device_table import WHOLE
from windlass.engine.feasibility.task_class import TaskClass
from windlass.spi.devices import ConsumedCounters, DeviceNeed, DeviceOption, JointDeviceNeed
from windlass.spi.plugins import NodeBlocker
from windlass.spi.quantities import from_units

_MAX_NAMED = 4
"""Maximum number of devices that are named one by one."""


def device_blockers(cls: TaskClass, rows: NDArray[np.int64], *, lasting: bool) -> list[NodeBlocker]:
    """Return the device blockers on these rows.

    Either a node has too few matching devices, even if empty, or too little of them is
    free now.
    ``lasting``: only the former.
    """
    needs, allocator = cls.needs, cls.allocator
    row_numbers = rows.tolist()
    fits_empty = allocator.empty_counts(row_numbers, needs) > 0
    fits_now = allocator.counts(row_numbers, needs) > 0
    blocked = np.flatnonzero(~fits_empty if lasting else ~fits_empty | ~fits_now).tolist()
    permanent: dict[int, list[int]] = {}
    short: dict[int, list[tuple[int, DeviceSummary]]] = {}
    fits_partly: list[int] = []
    summaries: dict[int, list[DeviceSummary]] = {}
    holds_if_empty: list[bool] = fits_empty.tolist()
    for empty in (False, True):
        positions = [at for at in blocked if holds_if_empty[at] != empty]
        row_summaries = (
            allocator.summaries([row_numbers[at] for at in positions], needs, empty=empty)
            if positions
            else []
        )
        summaries.update(zip(positions, row_summaries, strict=True))
    for position in blocked:
        has_reason = False
        for number, summary in enumerate(summaries[position]):
            if summary.fitting < summary.need.count:
                has_reason = True
                if fits_empty[position]:
                    short.setdefault(number, []).append((position, summary))
                else:
                    permanent.setdefault(number, []).append(position)
        if not has_reason:
            fits_partly.append(position)
    blockers = [
        NodeBlocker(
            Reason.NO_SUITABLE_DEVICE,
            _mask(len(rows), ats),
            detail=f"needs {describe_need(needs.devices[n])}",
        )
        for n, ats in sorted(permanent.items())
    ]
    blockers += [
        NodeBlocker(
            Reason.DEVICE_SHARES_TAKEN,
            _mask(len(rows), [at for at, _ in glances]),
            detail=f"needs {describe_need(needs.devices[n])}; {_describe_free([summary for _, summary in glances])}",
        )
        for n, glances in sorted(short.items())
    ]
    if fits_partly:
        detail = "needs all of it at once" if len(needs.devices) > 1 else "other work is promised the cards"
        blockers.append(NodeBlocker(Reason.DEVICE_SHARES_TAKEN, _mask(len(rows), fits_partly), detail=detail))
    return blockers


def _mask(size: int, position: list[int]) -> NDArray[np.bool_]:
    mask = np.zeros(size, dtype=np.bool_)
    mask[position] = True
    return mask


def _describe_free(summaries: list[DeviceSummary]) -> str:
    """Return what is left on the freest device of these nodes."""
    need = summaries[0].need
    if need.joint is not None:
        devices = max(summary.devices for summary in summaries)
        return f"not all of it at once is free beside what others have of the {devices} devices that could serve it"
    if need.count > 1:
        maximum = max(summary.fitting for summary in summaries)
        return f"at most {maximum} of {need.count} cards have that"
    if need.profile:
        return "no card has a place for it"
    has_reason = []
    if need.milli:
        has_reason.append(f"{from_units(need.resource or 'gpu', max(g.milli for g in summaries))} of a card")
    if need.memory_mib or (need.memory_milli and not need.milli):
        has_reason.append(f"{max(g.mib for g in summaries)} MiB")
    at_limit = max(summary.at_limit for summary in summaries)
    if at_limit and not any(summary.milli or summary.mib for summary in summaries):
        return "as many share each card as its device plug-in serves"
    text = f"the freest card has {' and '.join(has_reason)} left" if has_reason else "no card is free for it"
    return (
        f"{text}; as many share {at_limit} cards of a node as its device plug-in serves" if at_limit else text
    )


def describe_need(need: DeviceNeed, whole: str = "a whole") -> str:
    """Return a text like ``0.5 of an H100 GPU, 9000 MiB of its memory``.

    ``whole``: article of a device without a named share.
    """
    if need.joint is not None:
        return _describe_joint(need.joint)
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
    if len(need.uuids) > _MAX_NAMED:
        text += f" ({len(need.uuids)} of the cluster's)"
    elif need.uuids:
        text += f" ({', '.join(need.uuids)})"
    return f"{need.count} times {text}" if need.count > 1 else text


def _describe_joint(joint: JointDeviceNeed) -> str:
    """Return the request of resource claims."""
    requests = [
        " or else ".join(_describe_option(option) for option in options)
        for requests in joint.claims
        for options in requests
    ]
    constraints = [
        f"that {'differ' if rule.distinct else 'agree'} in {rule.attribute}" for rule in joint.rules
    ]
    return ", ".join([" and ".join(requests), *dict.fromkeys(constraints)])


def _describe_option(option: DeviceOption) -> str:
    text = describe_need(option.need, _describe_share(option.parts[0][1]) if option.parts else "a whole")
    if option.every:
        text = f"every device of a node like {text}"
    return f"a look at {text}" if option.admin else text


def _describe_share(draws: ConsumedCounters) -> str:
    """Return a text like ``memory 30Gi of one`` for a share of a device."""
    has_reason = [f"{name.rpartition(':')[2]} {_amount(units)}" for name, units, _ in draws]
    return f"{' and '.join(has_reason)} of one" if has_reason else "a share of one"


def _amount(units: int) -> str:
    """``units``: billionths."""
    whole, rest = divmod(units, 10**9)
    return f"{units / 10**9:g}" if rest else from_units("memory", whole)
