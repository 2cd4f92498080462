"""Stored indices of a node's devices: a device has the same index as long as it exists.

NVML counts only the devices that respond. When one is lost, the following ones would move up at
the next start of the agent, and ``windlass.dev/devices`` of a running pod would name another
device. So indices belong to UUIDs (``cards.json``). A new device gets its NVML index if that is
free. A lost one keeps its index until the machine is rebooted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from windlass.api.devices import node_annotation
from windlass.api.devices.node_annotation import DeviceRecord
from windlass.kits.files import write_atomic


class DeviceIndexStore:
    """Store of device indices. ``boot``: id of the current boot.

    ``devices``: as last seen, in this boot or an earlier one.
    """

    def __init__(self, path: Path, boot: str) -> None:
        self._path = path
        self._boot = boot
        self._text = ""
        self.devices: tuple[DeviceRecord, ...] = ()
        self.same_boot = False
        try:
            record = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError):
            return
        self.same_boot = record.get("boot") == boot
        self.devices = node_annotation.read(
            {node_annotation.NODE_DEVICES: str(record.get("cards", ""))}
        ).cards

    @property
    def indices(self) -> dict[str, int]:
        """Return UUID → index."""
        return {device.uuid: device.index for device in self.devices if device.uuid}

    @property
    def expected(self) -> tuple[DeviceRecord, ...]:
        """Return the devices that should exist because they were seen in this boot."""
        return self.devices if self.same_boot else ()

    def write(self, devices: Sequence[DeviceRecord]) -> None:
        """Write the devices if they have changed."""
        text = node_annotation.write(devices)
        if text != self._text:
            write_atomic(self._path, json.dumps({"boot": self._boot, "cards": text}))
            self._text, self.devices, self.same_boot = text, tuple(devices), True


def assign_indices(uuids: Sequence[str], known: Mapping[str, int]) -> dict[str, int]:
    """Return UUID → index of devices listed in NVML's order.

    A known device keeps its index. A new one gets its position, or else the first free index.
    """
    indices = {uuid: known[uuid] for uuid in uuids if uuid in known}
    taken = set(indices.values()) | set(known.values())
    for position, uuid in enumerate(uuids):
        if uuid in indices:
            continue
        index = position if position not in taken else first_free(taken)
        indices[uuid] = index
        taken.add(index)
    return indices


def first_free(taken: Iterable[int]) -> int:
    held = set(taken)
    return next(number for number in range(len(held) + 1) if number not in held)
