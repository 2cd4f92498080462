"""Who holds which device of this machine: one file, so that no device is ever given twice.

The scheduler decides; the ledger only refuses what cannot be true. It outlives the agent.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from windlass.kits.files import write_atomic


class DeviceBusy(Exception):
    """Another pod of this machine holds the device."""

    def __init__(self, device: str, holder: str) -> None:
        super().__init__(f"device {device} is held by pod {holder}")
        self.device = device
        self.holder = holder


class DeviceLedger:
    """``device → {"uid", "pod"}`` in a JSON file, rewritten whole and durably at each change."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: dict[str, dict[str, str]] = {}
        try:
            record = json.loads(path.read_bytes())
        except FileNotFoundError:
            return
        self._held = {str(device): dict(holder) for device, holder in record.items()}

    @property
    def held(self) -> Mapping[str, Mapping[str, str]]:
        return self._held

    def claim(self, uid: str, pod: str, devices: Sequence[str]) -> None:
        """Give ``devices`` to the pod; once more is no change. Raises :class:`DeviceBusy`, taking none."""
        for device in devices:
            holder = self._held.get(device)
            if holder is not None and holder["uid"] != uid:
                raise DeviceBusy(device, holder["pod"])
        fresh = [device for device in devices if device not in self._held]
        if not fresh:
            return
        self._write({**self._held, **{device: {"uid": uid, "pod": pod} for device in fresh}})

    def release(self, uid: str) -> list[str]:
        """Take back all that the pod holds; its devices."""
        freed = [device for device, holder in self._held.items() if holder["uid"] == uid]
        if freed:
            with contextlib.suppress(
                FileNotFoundError
            ):  # the state folder was removed, and the ledger with it
                self._write({device: holder for device, holder in self._held.items() if holder["uid"] != uid})
        return freed

    def keep_only(self, uids: Collection[str]) -> list[str]:
        """Take back what pods hold that are no longer on this machine."""
        freed = [device for device, holder in self._held.items() if holder["uid"] not in uids]
        if freed:
            self._write({device: holder for device, holder in self._held.items() if holder["uid"] in uids})
        return freed

    def _write(self, held: dict[str, dict[str, str]]) -> None:
        write_atomic(self._path, json.dumps(held, sort_keys=True))
        self._held = held
