"""Slots of device plugins: how many containers they serve of each device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from windlass.api.reasons import Reason
from windlass.engine.nodes.table import NodeTable
from windlass.spi.objects import Needs
from windlass.spi.plugins import NodeBlocker


def with_slots(
    findings: Sequence[NodeBlocker], table: NodeTable, needs: Needs, rows: NDArray[np.int64]
) -> list[NodeBlocker]:
    """Return the findings, with used-up slots as the detail where they are the cause.

    It concerns pods with several requests of devices. For a single request the detail
    states it anyway.
    """
    if len(needs.devices) < 2:
        return list(findings)
    wanted = sum(need.count for need in needs.devices)
    result = []
    for finding in findings:
        if finding.code is Reason.DEVICE_SHARES_TAKEN:
            slots = [_slots(table, row) for row in rows[finding.blocked].tolist()]
            if slots and all(each is not None and each[0] < wanted for each in slots):
                left = max(each[0] for each in slots if each is not None)
                served = max(each[1] for each in slots if each is not None)
                detail = (
                    f"{wanted} containers need a slot each; the device plugin serves {served} "
                    f"containers of each GPU, and {left} {'slot is' if left == 1 else 'slots are'} free"
                )
                finding = replace(finding, detail=detail)
        result.append(finding)
    return result


def _slots(table: NodeTable, row: int) -> tuple[int, int] | None:
    """Return the free slots of the row, and the slots of one device; ``None`` if a device has no limit."""
    node, devices = table.nodes[row], table.shares.rows[row]
    if node is None or devices is None or not node.devices or any(not each.slots for each in node.devices):
        return None
    limits = {(each.resource, each.index): each.slots for each in node.devices}
    used = sum(
        (share.resource, share.index) in limits for shares in devices.holders.values() for share in shares
    )
    return sum(limits.values()) - used, max(limits.values())
