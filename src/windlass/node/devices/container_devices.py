"""Which container of a pod gets which of the pod's devices, and what it is told. Pure.

The decision stands in the pod's annotations (:mod:`windlass.api.devices.assignment_annotations`). Here it only becomes
an environment, for the container that asked: the others see no device at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.api.devices.assignment_annotations import DeviceAssignment, from_annotations
from windlass.api.devices.models import AMD, ASCEND, GAUDI, NVIDIA
from windlass.api.devices.node_annotation import DeviceRecord
from windlass.api.devices.request_parser import (
    amounts_of,
    annotation_words,
    containers_asking,
    profile_of,
    read,
)
from windlass.api.quantities import is_device
from windlass.node.devices import mps
from windlass.node.devices.mps import Daemon

_NO_DAEMON = "/nonexistent/nvidia-mps"
"""A pipe directory without a daemon: CUDA then works without MPS."""


@dataclass(frozen=True, slots=True)
class VisibleDevice:
    """A part of a device with what a process knows it by: ``GPU-…``, ``MIG-…``, or an index."""

    card: DeviceRecord
    part: DeviceAssignment
    identifier: str


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """``count`` devices of one container: whole, parts of any kind, or slices of a profile."""

    count: int
    whole: bool = False
    profile: str = ""

    def fits(self, part: DeviceAssignment) -> bool:
        if self.profile:
            return part.profile == self.profile
        return part.whole if self.whole else not part.whole


def draws(pod: Mapping[str, Any]) -> dict[str, list[ContainerDevices]]:
    """What each container of a pod asks of devices, by :mod:`windlass.api.devices.request_parser`; others are not in
    it."""
    spec = pod["spec"]
    containers = amounts_of(spec)
    asked = read(containers, annotation_words(pod["metadata"].get("annotations") or {}))
    asks = list(asked.asks)
    for container in containers:
        if container.init:
            asks += read((replace(container, init=False),)).asks
    first = next((container["name"] for container in spec.get("containers") or ()), "")
    found: dict[str, list[ContainerDevices]] = {}
    for ask in asks:
        found.setdefault(ask.container or first, []).append(ContainerDevices(ask.count, profile=ask.profile))
    for name, count in containers_asking(pod).items():
        if name not in found:
            found[name] = [ContainerDevices(count, whole=True)]
    return found | _claimed(pod, found)


def shared_hold(pod: Mapping[str, Any]) -> str:
    """The ResourceClaim (``namespace/name``) that a pod may use together with others: one that it names itself
    and has all its devices from. Empty for all other pods."""
    claims = [claim.get("resourceClaimName") for claim in pod["spec"].get("resourceClaims") or ()]
    if len(claims) != 1 or not claims[0] or containers_asking(pod):
        return ""
    return f"{pod['metadata'].get('namespace', 'default')}/{claims[0]}"


def _claimed(
    pod: Mapping[str, Any], found: Mapping[str, list[ContainerDevices]]
) -> dict[str, list[ContainerDevices]]:
    """The container that uses the pod's claims for devices: how many they come to is said by the binding alone."""
    spec = pod["spec"]
    if not spec.get("resourceClaims"):
        return {}
    names = [
        container["name"]
        for container in spec.get("containers") or ()
        if (container.get("resources") or {}).get("claims") and container["name"] not in found
    ]
    given = [part for part in from_annotations(pod["metadata"].get("annotations") or {}) if part.whole]
    others = sum(draw.count for every in found.values() for draw in every if draw.whole)
    left = len(given) - others
    return {names[0]: [ContainerDevices(left, whole=True)]} if names and left > 0 else {}


def whole_devices(pod: Mapping[str, Any]) -> int:
    """Whole devices the pod needs at once: the sum of its containers, or the largest init container."""
    wanted = {name: sum(d.count for d in every if d.whole) for name, every in draws(pod).items()}
    mains = sum(wanted.get(container["name"], 0) for container in pod["spec"].get("containers") or ())
    inits = [wanted.get(container["name"], 0) for container in pod["spec"].get("initContainers") or ()]
    return max([mains, *inits])


def wanted_slices(pod: Mapping[str, Any]) -> dict[str, int]:
    """MIG slices that the pod asks for by profile, of its containers that run together."""
    names = {container["name"] for container in pod["spec"].get("containers") or ()}
    found: dict[str, int] = {}
    for name, every in draws(pod).items():
        for draw in every:
            if draw.profile and name in names:
                found[draw.profile] = found.get(draw.profile, 0) + draw.count
    return found


def resource_of(pod: Mapping[str, Any], default: str) -> str:
    """Whose devices the pod speaks of; ``default`` where its words do not tell."""
    containers = amounts_of(pod["spec"])
    asked = read(containers, annotation_words(pod["metadata"].get("annotations") or {}))
    if asked.asks:
        return asked.asks[0].resource
    if asked.whole:
        return asked.whole[0][0]
    for container in containers:
        for name, _ in container.amounts:
            if is_device(name) and not profile_of(name):
                return name
    return default


def share_out(pod: Mapping[str, Any], given: Sequence[VisibleDevice]) -> dict[str, list[VisibleDevice]]:
    """The pod's devices among its containers, in the order in which they ask.

    Init containers run before the others, so they draw from the same devices anew. Where one container alone
    asks, it gets all.
    """
    spec = pod["spec"]
    wanted = draws(pod)
    shares: dict[str, list[VisibleDevice]] = {}
    for group in ("containers", "initContainers"):
        names = [container["name"] for container in spec.get(group) or ()]
        asking = [name for name in names if wanted.get(name)]
        left = list(given)
        shares |= {name: [] for name in names}
        for name in (name for name in wanted if name in names):
            alone = group == "containers" and asking == [name]
            shares[name] = list(given) if alone else _draw(wanted[name], left)
    return shares


def _draw(wanted: Sequence[ContainerDevices], left: list[VisibleDevice]) -> list[VisibleDevice]:
    """Take out of ``left`` what is asked for, in order."""
    taken: list[VisibleDevice] = []
    for draw in wanted:
        for each in [each for each in left if draw.fits(each.part)][: draw.count]:
            left.remove(each)
            taken.append(each)
    return taken


def visible(
    given: Sequence[VisibleDevice], kinds: Sequence[str], daemon: Daemon | None = None
) -> dict[str, str]:
    """The environment that shows a container these devices and no others.

    ``kinds``: the resources of all devices of the machine; of those that the container has none of it sees none.
    """
    found: dict[str, str] = {}
    for resource in dict.fromkeys([*kinds, *(each.card.resource for each in given)]):
        own = [each for each in given if each.card.resource == resource]
        words = ",".join(each.identifier for each in own)
        indices = ",".join(str(each.card.index) for each in own)
        if resource == NVIDIA:
            found |= {"CUDA_VISIBLE_DEVICES": words, "NVIDIA_VISIBLE_DEVICES": words or "void"}
            found |= _limits(own, daemon)
        elif resource == AMD:
            # HIP numbers what ROCr leaves to be seen, anew from 0.
            found["ROCR_VISIBLE_DEVICES"] = words
            found["HIP_VISIBLE_DEVICES"] = ",".join(str(place) for place in range(len(own)))
        elif resource == GAUDI:
            found["HABANA_VISIBLE_MODULES"] = indices
        elif resource.startswith(ASCEND[: len("huawei.com/Ascend")]):
            found["ASCEND_RT_VISIBLE_DEVICES"] = indices
    return found


def apart(given: Sequence[VisibleDevice], daemon: Daemon | None) -> dict[str, str]:
    """What keeps a process with whole devices or slices away from the sharers' MPS server, which it would find
    by itself: a fault of one client ends all. A manifest that names a directory of its own is left its word."""
    if daemon is None or not daemon.runs or not given or shared(given):
        return {}
    return {mps.PIPE_DIRECTORY: _NO_DAEMON}


def shared(given: Sequence[VisibleDevice]) -> list[VisibleDevice]:
    """Those that others may have a part of too, not counting slices, which hardware keeps apart."""
    return [each for each in given if not each.part.whole and not each.part.profile]


def enforced(given: Sequence[VisibleDevice], daemon: Daemon | None) -> bool:
    """Return whether all shares are held to by the driver."""
    return daemon is not None and daemon.runs and all(each.card.mps for each in shared(given))


def _limits(given: Sequence[VisibleDevice], daemon: Daemon | None) -> dict[str, str]:
    if daemon is None or not shared(given) or not enforced(given, daemon):
        return {}
    shares = [(each.part.milli if not each.part.whole else 0, each.part.memory_mib) for each in given]
    return mps.client_environment(daemon, shares)


def words(given: VisibleDevice) -> str:
    """``10240 MiB of card 0``, ``50 % of card 0``, ``slice 1g.10gb at 6 of card 0``, ``card 0``."""
    part, where = given.part, f"GPU {given.card.index}"
    if part.profile:
        return f"slice {part.profile} at {part.start} of {where}"
    if part.whole:
        return where
    amounts = [f"{part.milli / 10:g} % of its compute"] if part.milli else []
    if part.memory_mib:
        amounts.append(f"{part.memory_mib} MiB of its memory")
    return f"{where}: {' and '.join(amounts) or 'a share'}"
