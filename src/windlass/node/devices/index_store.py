"""The numbers of a machine's devices, kept: a device is called by the same index as long as it is there.

NVML counts the devices that answer. When one is lost, those behind it move up with the next start of the agent, and
``windlass.dev/devices`` of a running pod would name another device than the pod has. So numbers go by UUID
(``cards.json``): a new device gets its place if that is free, a lost one keeps its number until the machine
is rebooted.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from windlass.api.devices import node_annotation
from windlass.api.devices.node_annotation import DeviceRecord
from windlass.kits.files import write_atomic


class DeviceIndexStore:
    """``boot``: of the machine now."""

    def __init__(self, path: Path, boot: str) -> None:
        self._path = path
        self._boot = boot
        self._text = ""
        self.cards: tuple[DeviceRecord, ...] = ()
        """As they were last seen, in this boot or an earlier one."""
        self.same_boot = False
        try:
            record = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError):
            return
        self.same_boot = record.get("boot") == boot
        self.cards = node_annotation.read({node_annotation.NODE_DEVICES: str(record.get("cards", ""))}).cards

    @property
    def numbers(self) -> dict[str, int]:
        """UUID → index."""
        return {card.uuid: card.index for card in self.cards if card.uuid}

    @property
    def expected(self) -> tuple[DeviceRecord, ...]:
        """Devices that should be there, since they were in this boot."""
        return self.cards if self.same_boot else ()

    def keep(self, found: Sequence[DeviceRecord]) -> None:
        """Written when something changed."""
        text = node_annotation.write(found)
        if text != self._text:
            write_atomic(self._path, json.dumps({"boot": self._boot, "cards": text}))
            self._text, self.cards, self.same_boot = text, tuple(found), True


def numbered(uuids: Sequence[str], known: Mapping[str, int]) -> dict[str, int]:
    """The numbers of these devices, listed in NVML's order: those that are known, then their own place or
    else the first that is free."""
    found = {uuid: known[uuid] for uuid in uuids if uuid in known}
    taken = set(found.values()) | set(known.values())
    for place, uuid in enumerate(uuids):
        if uuid in found:
            continue
        number = place if place not in taken else first_free(taken)
        found[uuid] = number
        taken.add(number)
    return found


def first_free(taken: Iterable[int]) -> int:
    held = set(taken)
    return next(number for number in range(len(held) + 1) if number not in held)
