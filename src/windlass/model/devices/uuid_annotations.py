"""Devices by UUID in the annotations of Volcano's and HAMi's schedulers and device plugins.

Each device is ``UUID,type,MiB,percent`` with ``:`` after it. Containers are separated
by ``;``. In HAMi's form init containers come first, and a ``;`` follows each container.
The part of the UUID before ``[`` identifies the device: older HAMi versions add a slice
there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from windlass.api.devices.request import WHOLE


class UuidShare(NamedTuple):
    """Total use of one device by a pod. ``slots``: number of containers that use it at once."""

    uuid: str
    slots: int
    milli: int
    memory_mib: int


@lru_cache(maxsize=4096)
def uuid_shares(text: str, first: int = 0) -> tuple[UuidShare, ...]:
    """Return the use of each device by a pod.

    ``first``: number of init containers among the containers that name devices. They
        run before the others, one at a time. Unreadable entries are skipped.
    """
    peaks: dict[str, UuidShare] = {}
    sums: dict[str, UuidShare] = {}
    for position, entries in enumerate(_containers(text)):
        for share in entries:
            if position < first:
                peaks[share.uuid] = _larger(peaks.get(share.uuid), share)
            elif (known := sums.get(share.uuid)) is None:
                sums[share.uuid] = share
            else:
                added = (known.slots + 1, known.milli + share.milli, known.memory_mib + share.memory_mib)
                sums[share.uuid] = UuidShare(share.uuid, *added)
    return tuple(_larger(peaks.get(uuid), sums.get(uuid)) for uuid in {**peaks, **sums})


def _larger(first: UuidShare | None, second: UuidShare | None) -> UuidShare:
    either = first or second
    assert either is not None
    if first is None or second is None:
        return either
    return UuidShare(
        first.uuid,
        max(first.slots, second.slots),
        max(first.milli, second.milli),
        max(first.memory_mib, second.memory_mib),
    )


def _containers(text: str) -> Iterator[list[UuidShare]]:
    """Yield the devices of each container that names any."""
    for container in text.split(";"):
        entries = [share for entry in container.split(":") if (share := _entry(entry)) is not None]
        if entries:
            yield entries


def _entry(entry: str) -> UuidShare | None:
    fields = [field.strip() for field in entry.split(",")]
    if len(fields) < 4 or not fields[0] or not all(_is_number(field) for field in fields[2:4]):
        return None
    return UuidShare(fields[0].partition("[")[0], 1, min(WHOLE, int(fields[3]) * 10), int(fields[2]))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
