"""Assigned devices of a pod, as annotations that are written with the binding.

``windlass.dev/devices`` names the devices by index, whole or not. Of a share, ``windlass.dev/device-shares`` tells
its parts of compute (thousandths) and memory (MiB); of a MIG slice, ``windlass.dev/device-slices`` tells profile
and start. Components that allocate devices use only these annotations: nothing is computed twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from windlass.api.annotations import DEVICE_SHARES as SHARES
from windlass.api.annotations import DEVICE_SLICES as SLICES
from windlass.api.annotations import DEVICES

__all__ = [
    "DEVICES",
    "RESERVATIONS",
    "RESERVATIONS_KAI",
    "SHARES",
    "SLICES",
    "WHOLE",
    "AssignmentError",
    "DeviceAssignment",
    "from_annotations",
    "to_annotations",
]
WHOLE = 1000
RESERVATIONS = "windlass-reservations"
"""Namespace of reservation pods. Their devices belong to the pods that share them."""
RESERVATIONS_KAI = "kai-resource-reservation"
"""The same of KAI."""
_SHARE = re.compile(r"([0-9]{1,4}):([0-9]{1,4})/([0-9]{1,9})")
_SLICE = re.compile(r"([0-9]{1,4}):([0-9a-z.+-]{1,40})@([0-9]{1,2})")


class AssignmentError(ValueError):
    """An annotation that cannot be meant; the text names it."""


@dataclass(frozen=True, slots=True, order=True)
class DeviceAssignment:
    """Assignment of one device: all of it (``milli`` 1000), a share, or a MIG slice (``profile`` at ``start``)."""

    index: int
    milli: int = WHOLE
    memory_mib: int = 0
    profile: str = ""
    start: int = -1

    @property
    def whole(self) -> bool:
        return not self.profile and self.milli >= WHOLE


def to_annotations(parts: Iterable[DeviceAssignment]) -> dict[str, str]:
    """The annotations that say this; none for no parts. Shares and slices stay in their order, which is that of
    the containers that asked for them."""
    listed = list(parts)
    if not listed:
        return {}
    found = {DEVICES: ",".join(str(index) for index in sorted({part.index for part in listed}))}
    slices = [f"{p.index}:{p.profile}@{p.start}" for p in listed if p.profile]
    shares = [f"{p.index}:{p.milli}/{p.memory_mib}" for p in listed if not p.profile and not p.whole]
    if shares:
        found[SHARES] = ",".join(shares)
    if slices:
        found[SLICES] = ",".join(slices)
    return found


def from_annotations(annotations: Mapping[str, str]) -> tuple[DeviceAssignment, ...]:
    """Shares, slices, then whole devices, each in the order in which they are named. Raises :class:`AssignmentError`.

    A device that ``windlass.dev/devices`` names and the others do not is held whole.
    """
    shares = [
        DeviceAssignment(int(m[1]), int(m[2]), int(m[3]))
        for m in _matches(annotations, SHARES, _SHARE, "0:500/10240")
    ]
    slices = [
        DeviceAssignment(int(m[1]), 0, 0, m[2], int(m[3]))
        for m in _matches(annotations, SLICES, _SLICE, "0:1g.10gb@6")
    ]
    words = [word.strip() for word in annotations.get(DEVICES, "").split(",") if word.strip()]
    if not all(word.isascii() and word.isdecimal() and len(word) < 5 for word in words):
        raise AssignmentError(
            f'annotation {DEVICES} is "{annotations[DEVICES]}": it must name devices by number, as in "0,1"'
        )
    named = [int(word) for word in words]
    if len(set(named)) != len(named):
        raise AssignmentError(f'annotation {DEVICES} is "{annotations[DEVICES]}": it names a device twice')
    partly = {part.index for part in (*shares, *slices)}
    strange = sorted(partly - set(named))
    if strange:
        raise AssignmentError(
            f"annotation {DEVICES} does not name device {strange[0]}, of which a part was given"
        )
    if any(part.milli > WHOLE for part in shares):
        raise AssignmentError(f"annotation {SHARES} gives more than a whole device")
    return (*shares, *slices, *(DeviceAssignment(index) for index in named if index not in partly))


def _matches(
    annotations: Mapping[str, str], name: str, pattern: re.Pattern[str], example: str
) -> list[re.Match[str]]:
    found = []
    for word in annotations.get(name, "").split(","):
        if not word.strip():
            continue
        match = pattern.fullmatch(word.strip())
        if match is None:
            raise AssignmentError(f'annotation {name} holds "{word}": it must be as in "{example}"')
        found.append(match)
    return found
