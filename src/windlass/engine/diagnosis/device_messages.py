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
        detail = (
            "needs all of it at once" if len(needs.devices) > 1 else "the GPUs are reserved for other work"
        )
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
        kinds = "1 device" if devices == 1 else f"{devices} devices"
        return f"other pods hold too much of the {kinds} that could serve it"
    if need.count > 1:
        maximum = max(summary.fitting for summary in summaries)
        return f"at most {maximum} of {need.count} GPUs have that"
    if need.profile:
        return "no GPU has a free position for it"
    amounts = []
    if need.milli:
        amounts.append(f"{from_units(need.resource or 'gpu', max(g.milli for g in summaries))} of a GPU")
    if need.memory_mib or (need.memory_milli and not need.milli):
        amounts.append(f"{max(g.mib for g in summaries)} MiB")
    at_limit = max(summary.at_limit for summary in summaries)
    if at_limit and not any(summary.milli or summary.mib for summary in summaries):
        return "every GPU has as many containers as its device plugin serves"
    text = f"the freest GPU has {' and '.join(amounts)} left" if amounts else "no GPU is free for it"
    if not at_limit:
        return text
    return f"{text}; {at_limit} GPUs of a node have as many containers as their device plugin serves"


def describe_need(need: DeviceNeed, whole: str = "a whole") -> str:
    """Return a text like ``0.5 of an H100 GPU, 9000 MiB of its memory``.

    ``whole``: article of a device without a named share.
    """
    if need.joint is not None:
        return _describe_joint(need.joint)
    kind = _kind_of(need)
    if need.profile:
        text = f"a {need.profile} slice of a {kind}"
    elif need.whole:
        text = f"{whole} {kind}"
    elif need.milli:
        text = f"{need.milli / WHOLE:g} of a {kind}"
    elif need.memory_milli:
        text = f"{need.memory_milli / WHOLE:g} of the memory of a {kind}"
    else:
        text = f"a {kind}"
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


def _kind_of(need: DeviceNeed) -> str:
    """Return the kind of device, such as ``H100 GPU``, ``GPU`` or ``npu device``."""
    if need.models:
        return f"{'/'.join(need.models)} GPU"
    name = need.resource.rpartition("/")[2] or "accelerator"
    return {"gpu": "GPU", "accelerator": name}.get(name, f"{name} device")


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
    amounts = [f"{name.rpartition(':')[2]} {_amount(units)}" for name, units, _ in draws]
    return f"{' and '.join(amounts)} of one" if amounts else "a share of one"


def _amount(units: int) -> str:
    """``units``: billionths."""
    whole, rest = divmod(units, 10**9)
    return f"{units / 10**9:g}" if rest else from_units("memory", whole)
