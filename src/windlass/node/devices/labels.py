"""Node labels of devices, as GPU feature discovery writes them, and resources.

MIG has two strategies (``mig.strategy``). *single*: all devices have slices of one profile, and
``nvidia.com/gpu`` counts slices. *mixed*: whole devices count as ``nvidia.com/gpu``, slices as
``nvidia.com/mig-<profile>``. Devices on which the agent creates the instances
(:attr:`DeviceRecord.dynamic`) count as neither. Their records describe what they offer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from windlass.api.annotations import MIG_MODE
from windlass.api.devices.models import NVIDIA, find_model, short_type, tier_of
from windlass.api.devices.node_annotation import DeviceRecord, ProfilePlacement

_FAMILIES = {6: "pascal", 9: "hopper", 10: "blackwell", 11: "blackwell", 12: "blackwell"}
DRIVER_VERSION, MIG_ENABLED = "nvidia.com/gpu.driver.version", "nvidia.com/mig.enabled"
"""Labels in addition to those of GPU feature discovery, under the names that older guides use."""
SIMULATED_DRIVER = "simulated"
"""Driver version of simulated devices."""
ENGINES = ("copy", "decoder", "encoder", "jpeg", "ofa")


def family(major: int, minor: int) -> str:
    """Return the architecture of a CUDA compute capability, in GPU feature discovery's words."""
    if major == 7:
        return "turing" if minor >= 5 else "volta"
    if major == 8:
        return "ada-lovelace" if minor == 9 else "ampere"
    return _FAMILIES.get(major, "undefined")


def mig_resource(profile: str) -> str:
    """Return the resource name of a profile: ``1g.10gb+me`` → ``nvidia.com/mig-1g.10gb.me``."""
    return f"nvidia.com/mig-{profile.replace('+', '.')}"


def static_slices(devices: Sequence[DeviceRecord]) -> Counter[str]:
    """Return profile → number of usable instances on statically partitioned devices."""
    return Counter(
        instance.profile
        for device in devices
        if device.mig and not device.dynamic
        for instance in device.instances
        if instance.uuid
    )


def single_profile(devices: Sequence[DeviceRecord]) -> str:
    """Return the single profile of all devices, or ``""`` if the strategy *single* does not apply."""
    own = [device for device in devices if device.resource == NVIDIA]
    profiles = set(static_slices(own))
    whole = [device for device in own if not device.mig or device.dynamic]
    return profiles.pop() if len(profiles) == 1 and not whole else ""


def resources(devices: Sequence[DeviceRecord]) -> dict[str, int]:
    """Return the capacity of the node: resource name → number."""
    result: Counter[str] = Counter(device.resource for device in devices if not device.mig)
    for profile, count in static_slices(devices).items():
        result[mig_resource(profile)] += count
    return dict(result)


def allocatable(devices: Sequence[DeviceRecord]) -> dict[str, int]:
    """Return the allocatable resources: the capacity without unhealthy devices and their slices."""
    healthy = Counter(resources([device for device in devices if device.healthy]))
    return {name: healthy[name] for name in resources(devices)}


def labels(
    devices: Sequence[DeviceRecord],
    *,
    single: bool = False,
    machine: str = "",
    clique: str = "",
    mode: str = "",
    mig_capable: bool | None = None,
    engines: Mapping[str, Sequence[int]] | None = None,
) -> dict[str, str]:
    """Return the labels of all resources.

    ``clique``: the NVLink fabric's. ``mode``: compute or display. ``engines``: profile → number of
    each of :data:`ENGINES`. If devices have several kinds, the labels describe the first.
    """
    result: dict[str, str] = {}
    for resource in dict.fromkeys(device.resource for device in devices):
        own = [device for device in devices if device.resource == resource]
        if resource != NVIDIA:
            result |= _plain(resource, own)
            continue
        result |= _nvidia(own, machine=machine, clique=clique, mode=mode)
        capable = any(device.placements for device in own) if mig_capable is None else mig_capable
        result["nvidia.com/mig.capable"] = "true" if capable or any(device.mig for device in own) else "false"
        result[MIG_ENABLED] = "true" if any(device.mig for device in own) else "false"
        result |= _mig(own, single=single, engines=engines or {})
    return result


def simulated_labels(devices: Sequence[DeviceRecord]) -> dict[str, str]:
    """Return the labels of simulated devices. They have no driver, so the version says that."""
    models = (find_model(device.model) for device in devices)
    capable = any(model is not None and model.placements for model in models)
    result = labels(devices, mig_capable=capable)
    return {**result, DRIVER_VERSION: SIMULATED_DRIVER} if f"{NVIDIA}.present" in result else result


def summary_annotations(devices: Sequence[DeviceRecord]) -> dict[str, str]:
    """Return annotations that summarise GPUs of NVIDIA in ``kubectl describe node``.

    They are the product without the kind of its memory (``NVIDIA-H100-80GB``) and the number of MIG
    instances. The values are empty without such GPUs.
    """
    own = [device for device in devices if device.resource == NVIDIA]
    product = own[0].model if own else ""
    return {
        f"{NVIDIA}.product": re.sub(r"-HBM\d+e?$", "", product),
        "nvidia.com/mig": str(sum(len(device.instances) for device in own)) if own else "",
    }


def aliases(devices: Sequence[DeviceRecord]) -> dict[str, str]:
    """Return the short labels ``gpu-type`` and ``gpu-tier`` of the first device, if they are clear.

    They are written only if the node lacks them: a label of an administrator takes precedence.
    """
    if not devices:
        return {}
    product = devices[0].model
    result = {"gpu-type": short_type(product), "gpu-tier": tier_of(product)}
    return {key: value for key, value in result.items() if value}


def _plain(resource: str, devices: Sequence[DeviceRecord]) -> dict[str, str]:
    return {
        f"{resource}.product": devices[0].model.replace(" ", "-"),
        f"{resource}.count": str(len(devices)),
        f"{resource}.memory": str(devices[0].memory_mib),
    }


def _nvidia(devices: Sequence[DeviceRecord], *, machine: str, clique: str, mode: str) -> dict[str, str]:
    first = devices[0]
    result = {
        "nvidia.com/gpu.present": "true",
        **_plain(NVIDIA, devices),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mps.capable": "true" if any(device.mps for device in devices) else "false",
    }
    major, minor = first.capability  # 0.0 if unknown, with family "undefined" as in feature discovery
    result["nvidia.com/gpu.compute.major"] = str(major)
    result["nvidia.com/gpu.compute.minor"] = str(minor)
    result["nvidia.com/gpu.family"] = family(major, minor)
    for key, value in (("machine", machine), ("clique", clique), ("mode", mode)):
        if value:
            result[f"nvidia.com/gpu.{key}"] = value
    return result


def _mig(
    devices: Sequence[DeviceRecord], *, single: bool, engines: Mapping[str, Sequence[int]]
) -> dict[str, str]:
    slices = static_slices(devices)
    result: dict[str, str] = {}
    if any(device.dynamic for device in devices):
        result[MIG_MODE] = "dynamic"
    if not any(device.mig for device in devices):
        return {**result, "nvidia.com/mig.strategy": "none"}
    known = {place.profile: place for device in devices for place in device.placements}
    only = single_profile(devices) if single else ""
    result["nvidia.com/mig.strategy"] = "single" if only else "mixed"
    for profile, count in slices.items():
        prefix = NVIDIA if only else mig_resource(profile)
        result[f"{prefix}.count"] = str(count)
        if only:
            result[f"{NVIDIA}.product"] = f"{devices[0].model}-MIG-{profile}"
        result |= _of_profile(prefix, known.get(profile), engines.get(profile, ()))
    return result


def _of_profile(prefix: str, place: ProfilePlacement | None, engines: Sequence[int]) -> dict[str, str]:
    if place is None:
        return {}
    result = {
        f"{prefix}.memory": str(place.memory_mib),
        f"{prefix}.multiprocessors": str(place.multiprocessors),
        f"{prefix}.slices.gi": str(place.compute),
        f"{prefix}.slices.ci": str(place.compute),
    }
    for name, count in zip(ENGINES, engines, strict=False):
        result[f"{prefix}.engines.{name}"] = str(count)
    return result


def driver_labels(version: str, cuda: int) -> dict[str, str]:
    """Return labels of the driver (``550.54.15``) and its CUDA version (12040 is 12.4).

    They have the current and the old names.
    """
    parts = [*version.split("."), "", ""]
    result = {"nvidia.com/cuda.driver-version.full": version, DRIVER_VERSION: version}
    for name, old, part in zip(
        ("major", "minor", "revision"), ("major", "minor", "rev"), parts, strict=False
    ):
        result[f"nvidia.com/cuda.driver-version.{name}"] = part
        result[f"nvidia.com/cuda.driver.{old}"] = part
    major, minor = str(cuda // 1000), str(cuda % 1000 // 10)
    for prefix in ("cuda.runtime-version", "cuda.runtime"):
        result[f"nvidia.com/{prefix}.major"] = major
        result[f"nvidia.com/{prefix}.minor"] = minor
    result["nvidia.com/cuda.runtime-version.full"] = f"{major}.{minor}"
    return result
