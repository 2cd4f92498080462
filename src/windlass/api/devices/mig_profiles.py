"""MIG profiles of the devices that have them, by family: what stands where, and what it has.

The figures are from NVIDIA's and users' listings of real devices. What a node says about its devices (NVML's
possible placements) goes before them. Memory is never computed from a profile's name (``1g.18gb`` has
16 GiB); where it is not known it is 0, and no claim on memory is served there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MEDIA = "+me"


@dataclass(frozen=True, slots=True)
class SliceProfile:
    """A MIG profile and where on the device it can stand.

    ``compute``: of the device's compute slices; ``size``: of its memory slices, from one of ``starts`` on.
    ``memory_mib``: what is usable; 0 where that is not known: then no claim on memory is served by it.
    ``sms``: multiprocessors. ``media``: it has the device's only media extensions (``+me``).
    """

    name: str
    compute: int
    size: int
    starts: tuple[int, ...]
    memory_mib: int = 0
    sms: int = 0
    media: bool = False


_SLOTS = (
    (1, 1, (0, 1, 2, 3, 4, 5, 6)),
    (1, 2, (0, 2, 4, 6)),
    (2, 2, (0, 2, 4)),
    (3, 4, (0, 4)),
    (4, 4, (0,)),
    (7, 8, (0,)),
)
"""Compute slices, memory slices and starts of 1g, 1g of double memory, 2g, 3g, 4g, 7g on the devices with seven
compute and eight memory slices."""
_AMPERE = (14, 14, 28, 42, 56, 98)
_HOPPER = (16, 26, 32, 60, 64, 132)
_UNKNOWN = (0, 0, 0, 0, 0, 0)


def _common(
    names: str, memory: tuple[int, ...] = _UNKNOWN, sms: tuple[int, ...] = _UNKNOWN
) -> tuple[SliceProfile, ...]:
    """The profiles of a device of seven compute slices: ``names`` in the order of the slots, after 1g the same
    with the media extensions."""
    found: list[SliceProfile] = []
    for name, (compute, size, starts), mib, units in zip(names.split(), _SLOTS, memory, sms, strict=True):
        found.append(SliceProfile(name, compute, size, starts, mib, units))
        if compute == size == 1:
            found.append(SliceProfile(name + MEDIA, compute, size, starts, mib, units, media=True))
    return tuple(found)


PROFILES: dict[str, tuple[SliceProfile, ...]] = {
    "A30": (
        SliceProfile("1g.6gb", 1, 1, (0, 1, 2, 3)),
        SliceProfile("1g.6gb+me", 1, 1, (0, 1, 2, 3), media=True),
        SliceProfile("2g.12gb", 2, 2, (0, 2)),
        SliceProfile("2g.12gb+me", 2, 2, (0, 2), media=True),
        SliceProfile("4g.24gb", 4, 4, (0,)),
    ),
    "A100-40": _common(
        "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb",
        (4_864, 9_856, 9_856, 19_968, 19_968, 40_192),
        _AMPERE,
    ),
    "A100-80": _common(
        "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
        (9_856, 19_968, 19_968, 40_192, 40_192, 80_384),
        _AMPERE,
    ),
    "H100-80": _common(
        "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb",
        (9_984, 20_090, 20_090, 40_448, 40_448, 81_152),
        _HOPPER,
    ),
    "H100-94": _common(
        "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb",
        (11_008, 22_138, 22_138, 47_493, 47_493, 95_354),
        _HOPPER,
    ),
    "H100-96": _common("1g.12gb 1g.24gb 2g.24gb 3g.48gb 4g.48gb 7g.96gb"),
    "H200": _common(
        "1g.18gb 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb",
        (16_384, 33_280, 33_280, 71_475, 71_475, 143_360),
        _HOPPER,
    ),
    "B200": _common("1g.23gb 1g.45gb 2g.45gb 3g.90gb 4g.90gb 7g.180gb"),
    "GB200": _common("1g.23gb 1g.47gb 2g.47gb 3g.93gb 4g.93gb 7g.186gb"),
}
_BY_MODEL: tuple[tuple[str, int, int, str], ...] = (
    ("A30", 0, 0, "A30"),
    ("A100", 0, 50_000, "A100-40"),
    ("A100", 50_000, 0, "A100-80"),
    ("GH200", 90_000, 100_000, "H100-96"),
    ("H20", 90_000, 100_000, "H100-96"),
    ("H20", 130_000, 0, "H200"),
    ("H100", 50_000, 90_000, "H100-80"),
    ("H100", 90_000, 97_000, "H100-94"),
    ("H200", 130_000, 0, "H200"),
    ("GB200", 0, 0, "GB200"),
    ("B200", 0, 0, "B200"),
)
"""A word of the model's name, its memory in MiB from … to (0: any), the family."""
_WORD = re.compile(r"[A-Z0-9]+")


def profiles_of(model: str, memory_mib: int) -> tuple[SliceProfile, ...]:
    """Return the MIG profiles of a device of that model and memory; empty if it is not in the table."""
    words = set(_WORD.findall(model.upper()))
    for word, least, most, family in _BY_MODEL:
        if word in words and memory_mib >= least and (not most or memory_mib < most):
            return PROFILES[family]
    return ()
