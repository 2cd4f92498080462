"""Node labels for the devices of a machine, as GPU feature discovery writes them, and amounts of resources.

With MIG there are two ways (``mig.strategy``). *single*: all devices are cut into slices of one profile, and
``nvidia.com/gpu`` counts slices. *mixed*: whole devices count as ``nvidia.com/gpu``, slices as
``nvidia.com/mig-<profile>``. Devices that the agent carves itself (:attr:`DeviceRecord.dynamic`) count as neither: what
can be had of them stands in their records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from windlass.api.annotations import MIG_MODE
from windlass.api.devices.models import NVIDIA, short_type, tier_of
from windlass.api.devices.node_annotation import DeviceRecord, ProfilePlacement

_FAMILIES = {6: "pascal", 9: "hopper", 10: "blackwell", 11: "blackwell", 12: "blackwell"}
ENGINES = ("copy", "decoder", "encoder", "jpeg", "ofa")


def family(major: int, minor: int) -> str:
    """The architecture of a CUDA compute capability, in GPU feature discovery's words."""
    if major == 7:
        return "turing" if minor >= 5 else "volta"
    if major == 8:
        return "ada-lovelace" if minor == 9 else "ampere"
    return _FAMILIES.get(major, "undefined")


def mig_resource(profile: str) -> str:
    """``1g.10gb+me`` → ``nvidia.com/mig-1g.10gb.me``."""
    return f"nvidia.com/mig-{profile.replace('+', '.')}"


def static_slices(cards: Sequence[DeviceRecord]) -> Counter[str]:
    """How many instances of each profile the statically cut devices have that something can run in."""
    return Counter(
        instance.profile
        for card in cards
        if card.mig and not card.dynamic
        for instance in card.instances
        if instance.uuid
    )


def single_profile(cards: Sequence[DeviceRecord]) -> str:
    """The one profile into which all devices are cut, ``""`` where the strategy *single* cannot hold."""
    own = [card for card in cards if card.resource == NVIDIA]
    profiles = set(static_slices(own))
    whole = [card for card in own if not card.mig or card.dynamic]
    return profiles.pop() if len(profiles) == 1 and not whole else ""


def amounts(cards: Sequence[DeviceRecord]) -> dict[str, int]:
    """What the node has to hand out, by resource."""
    found: Counter[str] = Counter(card.resource for card in cards if not card.mig)
    for profile, count in static_slices(cards).items():
        found[mig_resource(profile)] += count
    return dict(found)


def labels(
    cards: Sequence[DeviceRecord],
    *,
    single: bool = False,
    machine: str = "",
    clique: str = "",
    mode: str = "",
    mig_capable: bool | None = None,
    engines: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, str]:
    """The labels of all resources. ``clique``: the NVLink fabric's; ``mode``: compute or display.

    ``engines``: of each profile, how many of :data:`ENGINES` it has. Of devices of several kinds the labels tell
    the first.
    """
    found: dict[str, str] = {}
    for resource in dict.fromkeys(card.resource for card in cards):
        own = [card for card in cards if card.resource == resource]
        if resource != NVIDIA:
            found |= _plain(resource, own)
            continue
        found |= _nvidia(own, machine=machine, clique=clique, mode=mode)
        capable = any(card.placements for card in own) if mig_capable is None else mig_capable
        found["nvidia.com/mig.capable"] = "true" if capable or any(card.mig for card in own) else "false"
        found |= _mig(own, single=single, engines=engines or {})
    return found


def aliases(cards: Sequence[DeviceRecord]) -> dict[str, str]:
    """Short labels that manifests use: ``gpu-type`` and ``gpu-tier`` of the first device, where they are clear.

    Written only where the node has no such label: an administrator's own word counts.
    """
    if not cards:
        return {}
    product = cards[0].model
    found = {"gpu-type": short_type(product), "gpu-tier": tier_of(product)}
    return {key: value for key, value in found.items() if value}


def _plain(resource: str, cards: Sequence[DeviceRecord]) -> dict[str, str]:
    return {
        f"{resource}.product": cards[0].model.replace(" ", "-"),
        f"{resource}.count": str(len(cards)),
        f"{resource}.memory": str(cards[0].memory_mib),
    }


def _nvidia(cards: Sequence[DeviceRecord], *, machine: str, clique: str, mode: str) -> dict[str, str]:
    first = cards[0]
    found = {
        "nvidia.com/gpu.present": "true",
        **_plain(NVIDIA, cards),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mps.capable": "true" if any(card.mps for card in cards) else "false",
    }
    major, minor = first.capability
    if major:
        found["nvidia.com/gpu.compute.major"] = str(major)
        found["nvidia.com/gpu.compute.minor"] = str(minor)
        found["nvidia.com/gpu.family"] = family(major, minor)
    for key, value in (("machine", machine), ("clique", clique), ("mode", mode)):
        if value:
            found[f"nvidia.com/gpu.{key}"] = value
    return found


def _mig(
    cards: Sequence[DeviceRecord], *, single: bool, engines: Mapping[str, Sequence[int]]
) -> dict[str, str]:
    slices = static_slices(cards)
    found: dict[str, str] = {}
    if any(card.dynamic for card in cards):
        found[MIG_MODE] = "dynamic"
    if not any(card.mig for card in cards):
        return {**found, "nvidia.com/mig.strategy": "none"}
    known = {place.profile: place for card in cards for place in card.placements}
    only = single_profile(cards) if single else ""
    found["nvidia.com/mig.strategy"] = "single" if only else "mixed"
    for profile, count in slices.items():
        prefix = NVIDIA if only else mig_resource(profile)
        found[f"{prefix}.count"] = str(count)
        if only:
            found[f"{NVIDIA}.product"] = f"{cards[0].model}-MIG-{profile}"
        found |= _of_profile(prefix, known.get(profile), engines.get(profile, ()))
    return found


def _of_profile(prefix: str, place: ProfilePlacement | None, engines: Sequence[int]) -> dict[str, str]:
    if place is None:
        return {}
    found = {
        f"{prefix}.memory": str(place.memory_mib),
        f"{prefix}.multiprocessors": str(place.multiprocessors),
        f"{prefix}.slices.gi": str(place.compute),
        f"{prefix}.slices.ci": str(place.compute),
    }
    for name, count in zip(ENGINES, engines, strict=False):
        found[f"{prefix}.engines.{name}"] = str(count)
    return found


def driver_labels(version: str, cuda: int) -> dict[str, str]:
    """Of the driver (``550.54.15``) and its CUDA (12040 is 12.4), the present names and the old ones."""
    parts = [*version.split("."), "", ""]
    found = {"nvidia.com/cuda.driver-version.full": version}
    for name, old, part in zip(
        ("major", "minor", "revision"), ("major", "minor", "rev"), parts, strict=False
    ):
        found[f"nvidia.com/cuda.driver-version.{name}"] = part
        found[f"nvidia.com/cuda.driver.{old}"] = part
    major, minor = str(cuda // 1000), str(cuda % 1000 // 10)
    for prefix in ("cuda.runtime-version", "cuda.runtime"):
        found[f"nvidia.com/{prefix}.major"] = major
        found[f"nvidia.com/{prefix}.minor"] = minor
    found["nvidia.com/cuda.runtime-version.full"] = f"{major}.{minor}"
    return found
