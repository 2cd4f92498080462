"""Reservation of a gang: node and devices of each member, as text on its PodGroup.

It is written before the gang's first bind. After a crash the next scheduler completes
the gang by it, instead of deciding again while some binds are done or still in flight.

The text is JSON, ``{"at": "2026-01-01T12:00:00Z", "seats": {"g-0": ["0a1b2c3d", "n1",
"nvidia.com/gpu:0,1"]}}``. Each pod has the first eight characters of its uid, its node,
and its devices. Whole devices are listed by index, with the memory of one after ``@``
if known. Otherwise there is one list per share with the fields of
:class:`~windlass.engine.decision.DeviceShare`. If NUMA zones are known, the pod's zones
come last. Long texts are deflated, in base64 after ``z:``. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import msgspec

from windlass.api.devices.request import WHOLE
from windlass.engine.decision import Bind, DeviceShare
from windlass.kits.timestamps import parse_rfc3339, rfc3339
from windlass.model.records import packed_text
from windlass.spi.numa import NumaHolding

_UID = 8


@dataclass(frozen=True, slots=True)
class ReservedPlace:
    """Node and devices of a pod. ``uid``: first characters of the pod's uid."""

    pod: str
    uid: str
    node: str
    devices: tuple[DeviceShare, ...] = ()
    zones: NumaHolding | None = None

    def is_of(self, uid: str) -> bool:
        """Return whether it belongs to this incarnation of the pod."""
        return bool(self.uid) and uid.startswith(self.uid)


@dataclass(frozen=True, slots=True)
class GangReservation:
    """Reservation of a gang. ``at``: time of the decision, Unix seconds."""

    at: float
    seats: tuple[ReservedPlace, ...]


def encode(binds: Iterable[Bind], now: float) -> str | None:
    """Return the text; ``None`` for a gang too large for an annotation (some ten thousand pods)."""
    seats: dict[str, list[Any]] = {}
    for bind in binds:
        place: list[Any] = [bind.uid[:_UID], bind.node]
        if bind.devices or bind.zones is not None:
            place.append(_devices_text(bind.devices))
        if bind.zones is not None:
            place.append(msgspec.to_builtins(bind.zones))
        seats[bind.task.partition("/")[2]] = place
    text = msgspec.json.encode({"at": rfc3339(now), "seats": seats})
    return packed_text.pack(text)


def decode(text: str) -> GangReservation | None:
    """Return the reservation in a text; ``None`` for an invalid text (a user edited it)."""
    try:
        record = msgspec.json.decode(packed_text.unpack(text))
        seats = tuple(_seat(pod, fields) for pod, fields in record["seats"].items())
        return GangReservation(parse_rfc3339(record["at"]), seats)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


class _Decided(msgspec.Struct):
    at: str


_decided = msgspec.json.Decoder(_Decided)


def decided_at(text: str) -> float | None:
    """Return the time of the reservation in a text, Unix seconds; ``None`` for an invalid text.

    The places are not read: a gang may have ten thousand.
    """
    try:
        return parse_rfc3339(_decided.decode(packed_text.unpack(text)).at)
    except (ValueError, TypeError):
        return None


def _devices_text(shares: Sequence[DeviceShare]) -> Any:
    """Return the short form if all shares are whole devices of one kind, else fields per share."""
    kinds = {(s.resource, s.device_mib) for s in shares}
    plain = (WHOLE, 0, "", -1, ())
    whole = all((s.milli, s.memory_mib, s.profile, s.start, s.draws) == plain for s in shares)
    if not shares:
        return ""
    if len(kinds) > 1 or not whole:
        return [list(astuple(share))[: None if share.draws else -1] for share in shares]
    ((resource, mib),) = kinds
    indices = ",".join(str(share.index) for share in shares)
    return f"{resource}:{indices}@{mib}" if mib else f"{resource}:{indices}"


def _devices(encoded: Any) -> tuple[DeviceShare, ...]:
    if isinstance(encoded, str):
        if not encoded:
            return ()
        resource, _, listing = encoded.rpartition(":")
        indices, _, mib = listing.partition("@")
        return tuple(
            DeviceShare(int(index), resource, device_mib=int(mib or 0)) for index in indices.split(",")
        )
    return tuple(msgspec.convert(dict(zip(_FIELDS, fields, strict=False)), DeviceShare) for fields in encoded)


_FIELDS = ("index", "resource", "milli", "memory_mib", "profile", "start", "device_mib", "draws")


def _seat(pod: str, fields: Sequence[Any]) -> ReservedPlace:
    uid, node, *more = fields
    if not (isinstance(uid, str) and isinstance(node, str) and node):
        raise ValueError("a seat is the pod's uid and a node")
    devices = _devices(more[0]) if more else ()
    zones = msgspec.convert(more[1], NumaHolding) if len(more) > 1 else None
    return ReservedPlace(pod, uid, node, devices, zones)
