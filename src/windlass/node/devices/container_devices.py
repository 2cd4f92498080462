"""Devices of each container of a pod, and the environment that shows them. Pure.

The pod's annotations have the decision
(:mod:`windlass.api.devices.assignment_annotations`). Here it becomes the environment of the
containers that requested devices. All others see no device.
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
    """Assigned device or part of it, with the identifier that processes use.

    ``identifier``: ``GPU-…``, ``MIG-…`` or an index.
    """

    device: DeviceRecord
    assignment: DeviceAssignment
    identifier: str


@dataclass(frozen=True, slots=True)
class RequestedDevices:
    """Request of one container for ``count`` devices: whole, shares, or slices of a profile."""

    count: int
    whole: bool = False
    profile: str = ""

    def matches(self, assignment: DeviceAssignment) -> bool:
        if self.profile:
            return assignment.profile == self.profile
        return assignment.whole if self.whole else not assignment.whole


def device_requests(pod: Mapping[str, Any]) -> dict[str, list[RequestedDevices]]:
    """Return container → requests for devices. Containers without a request are left out.

    :mod:`windlass.api.devices.request_parser` defines the syntax.
    """
    spec = pod["spec"]
    containers = amounts_of(spec)
    asks = list(read(containers, annotation_words(pod["metadata"].get("annotations") or {})).asks)
    for container in containers:
        if container.init:
            asks += read((replace(container, init=False),)).asks
    first = next((container["name"] for container in spec.get("containers") or ()), "")
    requests: dict[str, list[RequestedDevices]] = {}
    for ask in asks:
        requests.setdefault(ask.container or first, []).append(
            RequestedDevices(ask.count, profile=ask.profile)
        )
    for name, count in containers_asking(pod).items():
        if name not in requests:
            requests[name] = [RequestedDevices(count, whole=True)]
    return requests | _claim_requests(pod, requests)


def shared_claim(pod: Mapping[str, Any]) -> str:
    """Return the ResourceClaim (``namespace/name``) that the pod may share with other pods.

    The pod must name the claim itself and have all its devices from it. Otherwise it is empty.
    """
    claims = [claim.get("resourceClaimName") for claim in pod["spec"].get("resourceClaims") or ()]
    if len(claims) != 1 or not claims[0] or containers_asking(pod):
        return ""
    return f"{pod['metadata'].get('namespace', 'default')}/{claims[0]}"


def _claim_requests(
    pod: Mapping[str, Any], requests: Mapping[str, list[RequestedDevices]]
) -> dict[str, list[RequestedDevices]]:
    """Return the request of the container that uses the pod's device claims.

    Only the binding has the number of their devices.
    """
    spec = pod["spec"]
    if not spec.get("resourceClaims"):
        return {}
    names = [
        container["name"]
        for container in spec.get("containers") or ()
        if (container.get("resources") or {}).get("claims") and container["name"] not in requests
    ]
    assigned = from_annotations(pod["metadata"].get("annotations") or {})
    whole = sum(assignment.whole for assignment in assigned)
    others = sum(request.count for listed in requests.values() for request in listed if request.whole)
    left = whole - others
    return {names[0]: [RequestedDevices(left, whole=True)]} if names and left > 0 else {}


def whole_devices(pod: Mapping[str, Any]) -> int:
    """Return the number of whole devices the pod needs at once.

    It is the sum over the containers, or the largest init container.
    """
    wanted = {name: sum(r.count for r in listed if r.whole) for name, listed in device_requests(pod).items()}
    mains = sum(wanted.get(container["name"], 0) for container in pod["spec"].get("containers") or ())
    inits = [wanted.get(container["name"], 0) for container in pod["spec"].get("initContainers") or ()]
    return max([mains, *inits])


def wanted_slices(pod: Mapping[str, Any]) -> dict[str, int]:
    """Return profile → number of MIG slices that the pod's concurrent containers request."""
    names = {container["name"] for container in pod["spec"].get("containers") or ()}
    slices: dict[str, int] = {}
    for name, requests in device_requests(pod).items():
        for request in requests:
            if request.profile and name in names:
                slices[request.profile] = slices.get(request.profile, 0) + request.count
    return slices


def resource_of(pod: Mapping[str, Any], default: str) -> str:
    """Return the resource name of the pod's devices, or ``default`` if the pod does not say."""
    containers = amounts_of(pod["spec"])
    requests = read(containers, annotation_words(pod["metadata"].get("annotations") or {}))
    if requests.asks:
        return requests.asks[0].resource
    if requests.whole:
        return requests.whole[0][0]
    for container in containers:
        for name, _ in container.amounts:
            if is_device(name) and not profile_of(name):
                return name
    return default


def distribute(pod: Mapping[str, Any], devices: Sequence[VisibleDevice]) -> dict[str, list[VisibleDevice]]:
    """Distribute the pod's devices among its containers, in the order of their requests.

    Init containers run before the others, so they may use the same devices. A single requesting
    container gets all devices.
    """
    spec = pod["spec"]
    wanted = device_requests(pod)
    shares: dict[str, list[VisibleDevice]] = {}
    for group in ("containers", "initContainers"):
        names = [container["name"] for container in spec.get(group) or ()]
        asking = [name for name in names if wanted.get(name)]
        left = list(devices)
        shares |= {name: [] for name in names}
        for name in (name for name in wanted if name in names):
            alone = group == "containers" and asking == [name]
            shares[name] = list(devices) if alone else _take(wanted[name], left)
    return shares


def _take(wanted: Sequence[RequestedDevices], left: list[VisibleDevice]) -> list[VisibleDevice]:
    """Remove the requested devices from ``left``, in order, and return them."""
    taken: list[VisibleDevice] = []
    for request in wanted:
        for device in [device for device in left if request.matches(device.assignment)][: request.count]:
            left.remove(device)
            taken.append(device)
    return taken


def visible_environment(
    devices: Sequence[VisibleDevice], kinds: Sequence[str], daemon: Daemon | None = None
) -> dict[str, str]:
    """Return the environment that makes exactly these devices visible.

    ``kinds``: resource names of all devices of the node. The container sees no device of a kind
    of which it has none.
    """
    variables: dict[str, str] = {}
    for resource in dict.fromkeys([*kinds, *(each.device.resource for each in devices)]):
        own = [each for each in devices if each.device.resource == resource]
        identifiers = ",".join(each.identifier for each in own)
        indices = ",".join(str(each.device.index) for each in own)
        if resource == NVIDIA:
            variables |= {
                "CUDA_VISIBLE_DEVICES": identifiers,
                "NVIDIA_VISIBLE_DEVICES": identifiers or "void",
            }
            variables |= _limits(own, daemon)
        elif resource == AMD:
            # HIP numbers the devices that ROCr shows, from 0.
            variables["ROCR_VISIBLE_DEVICES"] = identifiers
            variables["HIP_VISIBLE_DEVICES"] = ",".join(str(position) for position in range(len(own)))
        elif resource == GAUDI:
            variables["HABANA_VISIBLE_MODULES"] = indices
        elif resource.startswith(ASCEND[: len("huawei.com/Ascend")]):
            variables["ASCEND_RT_VISIBLE_DEVICES"] = indices
    return variables


def without_mps(devices: Sequence[VisibleDevice], daemon: Daemon | None) -> dict[str, str]:
    """Return the environment that separates whole devices and slices from the MPS server.

    CUDA would find the server by itself, and a fault of one MPS client ends all. A directory in the
    manifest takes precedence.
    """
    if daemon is None or not daemon.runs or not devices or shared(devices):
        return {}
    return {mps.PIPE_DIRECTORY: _NO_DAEMON}


def shared(devices: Sequence[VisibleDevice]) -> list[VisibleDevice]:
    """Return the devices that other pods may share. MIG slices do not count: hardware isolates them."""
    return [each for each in devices if not each.assignment.whole and not each.assignment.profile]


def enforced(devices: Sequence[VisibleDevice], daemon: Daemon | None) -> bool:
    """Return whether the driver enforces all shares."""
    return daemon is not None and daemon.runs and all(each.device.mps for each in shared(devices))


def _limits(devices: Sequence[VisibleDevice], daemon: Daemon | None) -> dict[str, str]:
    if daemon is None or not shared(devices) or not enforced(devices, daemon):
        return {}
    shares = [
        (each.assignment.milli if not each.assignment.whole else 0, each.assignment.memory_mib)
        for each in devices
    ]
    return mps.client_environment(daemon, shares)


def description(device: VisibleDevice) -> str:
    """Describe a device, as in ``GPU 0``, ``slice 1g.10gb at 6 of GPU 0`` or
    ``GPU 0: 50 % of its compute``.
    """
    assignment, gpu = device.assignment, f"GPU {device.device.index}"
    if assignment.profile:
        return f"slice {assignment.profile} at {assignment.start} of {gpu}"
    if assignment.whole:
        return gpu
    amounts = [f"{assignment.milli / 10:g} % of its compute"] if assignment.milli else []
    if assignment.memory_mib:
        amounts.append(f"{assignment.memory_mib} MiB of its memory")
    return f"{gpu}: {' and '.join(amounts) or 'a share'}"
