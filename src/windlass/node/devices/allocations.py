"""Device allocations of this node, in one file, so that no device is allocated twice.

The scheduler decides. This module only rejects impossible allocations: a device that is both
whole and shared, more compute or memory than the device has, slices that overlap. The file
outlives the agent and is replaced atomically.

Writes do not wait for the disk. After a power failure the file may be outdated, incomplete or
empty. But then no process uses the devices any more, and each pod that is restarted allocates
what its binding names (:meth:`~windlass.node.devices.manager.DeviceManager.allocate`).
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from windlass.kits.files import write_atomic

WHOLE = 1000


class DeviceBusy(Exception):
    """Another pod of this node holds the device, or the requested part of it."""

    def __init__(self, device: str, holder: str, why: str = "") -> None:
        super().__init__(f"device {device} is held by pod {holder}" + (f": {why}" if why else ""))
        self.device = device
        self.holder = holder


@dataclass(frozen=True, slots=True)
class DeviceHold:
    """Whole device (``milli`` 1000), share of it, or slice at ``start`` of ``size`` memory slices.

    ``together``: the ResourceClaim (``namespace/name``) through which several pods use the device.
    Holds of one claim do not conflict.
    """

    device: str
    milli: int = WHOLE
    memory_mib: int = 0
    profile: str = ""
    start: int = -1
    size: int = 0
    together: str = ""

    @property
    def whole(self) -> bool:
        return not self.profile and self.milli >= WHOLE


@dataclass(frozen=True, slots=True)
class Held:
    """Hold of one pod: its uid and its ``namespace/name``."""

    hold: DeviceHold
    uid: str
    pod: str


class DeviceAllocations:
    """All holds, in a JSON file that is rewritten at each change.

    ``lost``: why the content of the file is unknown. Empty if it is known. The file format of older
    releases (``device → {"uid", "pod"}``, whole devices only) is read too.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: tuple[Held, ...] = ()
        self.lost = ""
        try:
            self._held = tuple(_read(json.loads(path.read_bytes())))
        except FileNotFoundError:
            return
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            self.lost = f"{path} cannot be read ({error})"

    @property
    def held(self) -> tuple[Held, ...]:
        return self._held

    def holds_of(self, uid: str) -> tuple[DeviceHold, ...]:
        """Return the holds of a pod."""
        return tuple(held.hold for held in self._held if held.uid == uid)

    def holders(self, device: str) -> tuple[Held, ...]:
        return tuple(held for held in self._held if held.hold.device == device)

    def allocate(
        self, uid: str, pod: str, holds: Sequence[DeviceHold], memory: Mapping[str, int] | None = None
    ) -> None:
        """Allocate ``holds`` to the pod. Repeating the call changes nothing.

        ``memory``: device → total MiB. Without an entry the device's memory is not checked.
        Raises :class:`DeviceBusy` and then allocates nothing.
        """
        new_holds = list((Counter(holds) - Counter(self.holds_of(uid))).elements())
        if not new_holds:
            return
        present = list(self._held)
        for hold in new_holds:
            _check(hold, [held for held in present if held.hold.device == hold.device], memory or {})
            present.append(Held(hold, uid, pod))
        self._write(tuple(present))

    def release(self, uid: str) -> list[DeviceHold]:
        """Release all holds of the pod, and return them."""
        freed = [held.hold for held in self._held if held.uid == uid]
        if freed:
            with contextlib.suppress(FileNotFoundError):  # the state directory was removed
                self._write(tuple(held for held in self._held if held.uid != uid))
        return freed

    def retain(self, uids: Collection[str]) -> list[DeviceHold]:
        """Release the holds of all other pods, and return them."""
        freed = [held.hold for held in self._held if held.uid not in uids]
        if freed:
            self._write(tuple(held for held in self._held if held.uid in uids))
        return freed

    def _write(self, held: tuple[Held, ...]) -> None:
        entries = [{**asdict(each.hold), "uid": each.uid, "pod": each.pod} for each in held]
        write_atomic(self._path, json.dumps({"claims": entries}, sort_keys=True), durable=False)
        self._held = held


def _read(record: Mapping[str, Any]) -> Iterator[Held]:
    holds = record.get("claims")
    if isinstance(holds, list):
        for entry in holds:
            fields = {key: value for key, value in entry.items() if key not in ("uid", "pod")}
            yield Held(DeviceHold(**fields), str(entry["uid"]), str(entry["pod"]))
        return
    for device, holder in record.items():
        yield Held(DeviceHold(str(device)), str(holder["uid"]), str(holder["pod"]))


def _check(hold: DeviceHold, present: Sequence[Held], memory: Mapping[str, int]) -> None:
    """Raise :class:`DeviceBusy` if ``hold`` conflicts with ``present`` on one device."""
    for held in present:
        other = held.hold
        if hold.together and hold.together == other.together:
            continue
        if hold.whole or other.whole:
            raise DeviceBusy(hold.device, held.pod)
        if bool(hold.profile) != bool(other.profile):
            raise DeviceBusy(hold.device, held.pod, "a GPU is either shared or partitioned into MIG slices")
        if hold.profile and _overlap(hold, other):
            raise DeviceBusy(hold.device, held.pod, f"it overlaps slice {other.profile} at {other.start}")
    if hold.profile or hold.whole or not present:
        return
    milli = hold.milli + sum(held.hold.milli for held in present)
    if milli > WHOLE:
        raise DeviceBusy(hold.device, present[-1].pod, f"its sharers would have {milli / 10:g} % of it")
    mib = hold.memory_mib + sum(held.hold.memory_mib for held in present)
    if mib > memory.get(hold.device, mib):
        raise DeviceBusy(
            hold.device, present[-1].pod, f"its sharers would have {mib} of {memory[hold.device]} MiB"
        )


def _overlap(hold: DeviceHold, other: DeviceHold) -> bool:
    first, second = sorted((hold, other), key=lambda each: each.start)
    return second.start < first.start + max(1, first.size)
