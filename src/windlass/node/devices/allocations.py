"""Who holds what of which device of this machine: one file, so that nothing is ever given twice.

The scheduler decides; the ledger only refuses what cannot be true: a device whole and in parts, more compute or
memory than it has, slices that overlap. It outlives the agent, however that ends: the file is replaced in one step.

It does not wait for the disk. What a power cut leaves may be older, torn or empty; but then nothing runs on the devices
any more, and each pod that is started again takes anew what its binding names
(:meth:`~windlass.node.devices.manager.DeviceManager.take`).
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
    """Another pod of this machine holds the device, or what would be needed of it."""

    def __init__(self, device: str, holder: str, why: str = "") -> None:
        super().__init__(f"device {device} is held by pod {holder}" + (f": {why}" if why else ""))
        self.device = device
        self.holder = holder


@dataclass(frozen=True, slots=True)
class DeviceHold:
    """All of a device (``milli`` 1000), a share of it, or a slice at ``start`` of ``size`` memory slices.

    ``together``: the ResourceClaim (``namespace/name``) through which pods use the device together; those of one
    claim do not stand in one another's way.
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
    """A claim and whose it is: the pod's uid and its ``namespace/name``."""

    claim: DeviceHold
    uid: str
    pod: str


class DeviceAllocations:
    """All claims in a JSON file, rewritten whole at each change. ``lost``: why what the file said is not known; empty
    if it is.

    The file of releases before shares (``device → {"uid", "pod"}``) is read too: devices held whole.
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

    def of(self, uid: str) -> tuple[DeviceHold, ...]:
        """What the pod holds."""
        return tuple(held.claim for held in self._held if held.uid == uid)

    def holders(self, device: str) -> tuple[Held, ...]:
        return tuple(held for held in self._held if held.claim.device == device)

    def claim(
        self, uid: str, pod: str, claims: Sequence[DeviceHold], memory: Mapping[str, int] | None = None
    ) -> None:
        """Give ``claims`` to the pod; once more is no change. Raises :class:`DeviceBusy`, taking none.

        ``memory``: what each device has in all, in MiB; a device that is not in it is not bounded by memory.
        """
        fresh = list((Counter(claims) - Counter(self.of(uid))).elements())
        if not fresh:
            return
        present = list(self._held)
        for claim in fresh:
            _check(claim, [held for held in present if held.claim.device == claim.device], memory or {})
            present.append(Held(claim, uid, pod))
        self._write(tuple(present))

    def release(self, uid: str) -> list[DeviceHold]:
        """Take back all that the pod holds; what that was."""
        freed = [held.claim for held in self._held if held.uid == uid]
        if freed:
            with contextlib.suppress(FileNotFoundError):  # the state folder was removed, the ledger with it
                self._write(tuple(held for held in self._held if held.uid != uid))
        return freed

    def keep_only(self, uids: Collection[str]) -> list[DeviceHold]:
        """Take back what pods hold that are no longer on this machine."""
        freed = [held.claim for held in self._held if held.uid not in uids]
        if freed:
            self._write(tuple(held for held in self._held if held.uid in uids))
        return freed

    def _write(self, held: tuple[Held, ...]) -> None:
        entries = [{**asdict(each.claim), "uid": each.uid, "pod": each.pod} for each in held]
        write_atomic(self._path, json.dumps({"claims": entries}, sort_keys=True), durable=False)
        self._held = held


def _read(record: Mapping[str, Any]) -> Iterator[Held]:
    claims = record.get("claims")
    if isinstance(claims, list):
        for entry in claims:
            fields = {key: value for key, value in entry.items() if key not in ("uid", "pod")}
            yield Held(DeviceHold(**fields), str(entry["uid"]), str(entry["pod"]))
        return
    for device, holder in record.items():
        yield Held(DeviceHold(str(device)), str(holder["uid"]), str(holder["pod"]))


def _check(claim: DeviceHold, present: Sequence[Held], memory: Mapping[str, int]) -> None:
    """Raises :class:`DeviceBusy` where ``claim`` cannot stand beside ``present``, all on one device."""
    for held in present:
        other = held.claim
        if claim.together and claim.together == other.together:
            continue
        if claim.whole or other.whole:
            raise DeviceBusy(claim.device, held.pod)
        if bool(claim.profile) != bool(other.profile):
            raise DeviceBusy(claim.device, held.pod, "a GPU is either shared or cut into slices")
        if claim.profile and _overlap(claim, other):
            raise DeviceBusy(claim.device, held.pod, f"slice {other.profile} at {other.start} is in the way")
    if claim.profile or claim.whole or not present:
        return
    milli = claim.milli + sum(held.claim.milli for held in present)
    if milli > WHOLE:
        raise DeviceBusy(claim.device, present[-1].pod, f"its sharers would have {milli / 10:g} % of it")
    mib = claim.memory_mib + sum(held.claim.memory_mib for held in present)
    if mib > memory.get(claim.device, mib):
        raise DeviceBusy(
            claim.device, present[-1].pod, f"its sharers would have {mib} of {memory[claim.device]} MiB"
        )


def _overlap(one: DeviceHold, other: DeviceHold) -> bool:
    first, second = sorted((one, other), key=lambda claim: claim.start)
    return second.start < first.start + max(1, first.size)
