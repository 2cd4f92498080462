"""Units into which a device plug-in divides the devices of a node by itself, and what of a device each of them is.

Replicas (time-slicing, MPS: ``nvidia.com/gpu.replicas`` of each device or slice) and MIG slices (strategy ``single``:
the devices' own resource counts slices; ``mixed``: one resource per profile) are counted by the kubelet like devices.
What a cluster has of devices is told by these words; how many units there are is the resource's own amount.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from windlass.api.devices.mig_profiles import MEDIA, profiles_of
from windlass.api.devices.request import GPU, MIG, WHOLE
from windlass.api.devices.resource_names import FOUR_SLICED, profile_of

RENAMED = "nvidia.com/gpu.shared"
"""Resource name of device replicas if the device plugin renames them."""
_RENAMED = ".shared"
TIME_SLICING, MPS, SLICES = "time-slicing", "mps", "mig"
_STRATEGY = "nvidia.com/gpu.sharing-strategy"
_COUNT = "nvidia.com/gpu.count"
_SHARED, _SLICED = "-SHARED", "-MIG-"
_SIZE = re.compile(r"-([0-9]{2,3})GB")


@dataclass(frozen=True, slots=True)
class PluginUnit:
    """Unit of a device plugin.

    ``part``: fraction of a device in one unit, at least. ``sharing``: ``time-slicing``, ``mps`` or ``mig``
    (slices that are not replicated). ``replicas``: of each device or slice; 1 where it has none. ``profile``: of a
    slice, ``1g.5gb``; empty also where it cannot be read."""

    sharing: str
    part: Fraction
    replicas: int = 1
    profile: str = ""

    @property
    def words(self) -> str:
        """``time-slicing``, ``mps``, ``1g.5gb``, ``1g.5gb time-slicing``."""
        return (
            " ".join(filter(None, (self.profile, "" if self.sharing == SLICES else self.sharing))) or SLICES
        )


def unit_of(resource: str, labels: Mapping[str, str], listed: int = 0) -> PluginUnit | None:
    """Return what one unit of the resource is on a node with these labels; ``None`` for a whole device.

    ``listed``: number of units on the node. It gives the number of replicas if no label does.
    """
    base = resource.removesuffix(_RENAMED)
    if base != GPU and not base.startswith(MIG):
        return None
    product, strategy = labels.get(f"{base}.product", ""), labels.get(_STRATEGY, "")
    if base == GPU:
        replicated = strategy in (TIME_SLICING, MPS) or product.endswith(_SHARED) or base != resource
        sliced = labels.get("nvidia.com/mig.strategy") == "single" and _SLICED in product
        profile = _profile_in(product) if sliced else ""
        part = Fraction(1, _on_one_card(profile, product)) if profile else Fraction(1)
    else:
        replicated = _number(labels.get(f"{base}.replicas", "")) > 1 or base != resource
        sliced, profile = True, profile_of(base)
        part = compute_of(profile) if profile else Fraction(1)
    if replicated:
        replicas = _number(labels.get(f"{base}.replicas", "")) or _guessed(base, labels, listed)
        return PluginUnit(MPS if strategy == MPS else TIME_SLICING, part / replicas, replicas, profile)
    return PluginUnit(SLICES, part, 1, profile) if sliced else None


def devices_of_units(amounts: Mapping[str, int], labels: Mapping[str, str]) -> int:
    """Return the number of devices behind the units in ``amounts`` (thousandths, by resource).

    It is the smallest number that can hold them, and at least the number that feature discovery counts in addition
    to whole devices.
    """
    found, sliced, whole = 0, Fraction(0), 0
    for resource, milli in amounts.items():
        unit = unit_of(resource, labels, milli // WHOLE)
        if unit is not None and resource.startswith(MIG):
            sliced += unit.part * (milli // WHOLE)
        elif unit is not None:
            found += ceil(unit.part * (milli // WHOLE))
        elif resource == GPU:
            whole = milli // WHOLE
    if not sliced:
        return found
    return found + max(ceil(sliced), _number(labels.get(_COUNT, "")) - whole - found)


def more_units_than_devices(
    asked: Mapping[str, int], listed: Mapping[str, int], labels: Mapping[str, str]
) -> str:
    """Describe a request for more units than the node has devices (or slices), on a node with replicas.

    Such a pod shares devices with itself. Returns ``""`` for any other request. Amounts are in thousandths.
    """
    found = []
    for resource, milli in sorted(asked.items()):
        wanted = milli // WHOLE
        unit = unit_of(resource, labels, listed.get(resource, 0) // WHOLE) if wanted > 1 else None
        if unit is None or unit.replicas < 2:
            continue
        there = -(-(listed.get(resource, 0) // WHOLE) // unit.replicas)
        if wanted > there:
            what = (
                f"slice{'s' * (there != 1)} {unit.profile}" if unit.profile else f"card{'s' * (there != 1)}"
            )
            found.append(
                f"asks for {wanted} {resource}, of which the node has {there} {what} in {unit.replicas} units each "
                f"({unit.sharing}): some of them are one and the same"
            )
    return "; ".join(found)


def compute_of(profile: str) -> Fraction:
    """``3g.40gb`` → 3/7: of the compute slices of its device."""
    return Fraction(int(profile.partition("g")[0]), 4 if profile in FOUR_SLICED else 7)


def _guessed(base: str, labels: Mapping[str, str], listed: int) -> int:
    """Replicas by the number of devices (of slices) that feature discovery counts; 1 where it does not."""
    return max(1, listed // max(1, _number(labels.get(f"{base}.count", "")) or listed))


def _profile_in(product: str) -> str:
    """``NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED`` → ``1g.5gb``; empty for a product that is no slice."""
    _, found, text = product.removesuffix(_SHARED).partition(_SLICED)
    return profile_of(MIG + text) if found else ""


def _on_one_card(profile: str, product: str) -> int:
    """Return how many slices of the profile fit on an empty device."""
    if profile.endswith(MEDIA):
        return 1
    size = _SIZE.search(product)
    for known in profiles_of(product, 1000 * int(size[1]) if size else 0):
        if known.name == profile:
            return len(known.starts)
    return max(1, int(1 / compute_of(profile)))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else 0
