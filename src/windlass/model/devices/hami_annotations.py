"""Annotations with which HAMi's device plugin and scheduler learn a pod's devices.

The plugin allocates to a container the devices that
``hami.io/vgpu-devices-to-allocate`` names for it, and removes them from the list. Init
containers come first. It identifies the pod by the lock on its node
(:mod:`windlass.scheduler.commit.hami_node_lock`). HAMi's scheduler counts
``hami.io/vgpu-devices-allocated``. A whole device has all memory and 100 percent of the
compute, which excludes other pods in HAMi.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.devices import request_parser
from windlass.api.devices.request import GPU, WHOLE
from windlass.api.quantities import QuantityError, parse
from windlass.engine.decision import Bind, DeviceShare
from windlass.model.devices import hami_registration
from windlass.spi.objects import Device

TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"
_VENDOR = "NVIDIA"
_PLACE = re.compile(r"spec\.(initContainers|containers)\[([0-9]+)\]")


def annotations_of(bind: Bind, pod: views.Pod, node: views.NodeObject, now: float) -> dict[str, str]:
    """Return the annotations of the Binding. ``now``: Unix seconds.

    There are none on a node that HAMi does not serve, or for a pod without devices.
    :data:`TO_ALLOCATE` is left out if no container requests the plugin's resource.
    """
    shares = [share for share in bind.devices if share.resource == GPU]
    devices = {
        device.index: device
        for device in hami_registration.read(node.annotations.get(names.REGISTER_HAMI, ""))
    }
    if not shares or not all(share.index in devices for share in shares):
        return {}
    asking = _asking(pod)
    seconds = str(int(now))
    written = {"hami.io/vgpu-node": node.name, "hami.io/vgpu-time": seconds}
    if not any(container.devices for container in asking):
        return written | {names.ALLOCATED_HAMI: _text([shares], devices)}
    text = _text(_shared_out(pod, shares, asking), devices)
    written |= {names.ALLOCATED_HAMI: text, TO_ALLOCATE: text}
    return written | {"hami.io/bind-time": seconds, "hami.io/bind-phase": "allocating"}


def _text(containers: Iterable[Sequence[DeviceShare]], devices: Mapping[int, Device]) -> str:
    return "".join(
        "".join(_entry(share, devices[share.index]) for share in shares) + ";" for shares in containers
    )


def _entry(share: DeviceShare, device: Device) -> str:
    whole = share.milli >= WHOLE
    mib = share.memory_mib or (device.memory_mib if whole else 0)
    return f"{device.uuid},{_VENDOR},{mib},{100 if whole else share.milli // 10}:"


class _Asking(NamedTuple):
    """Container that requests ``devices`` devices from the plugin.

    ``init``: true if it ends before the others start.
    """

    name: str
    devices: int
    init: bool


def _asking(pod: views.Pod) -> list[_Asking]:
    """Return every container of the pod, init containers first."""
    first = sum(1 for request in pod.shape.containers if request.kind)
    containers = [_Asking("", 0, False)] * len(pod.shape.containers)
    for request in pod.shape.devices:
        place = _PLACE.match(request.place)
        amount = dict(request.amounts).get(GPU)
        if place is None or amount is None:
            continue
        position = int(place[2]) + (first if place[1] == "containers" else 0)
        with contextlib.suppress(QuantityError):
            containers[position] = _Asking(request.name, int(parse(amount)), request.init)
    return containers


def _shared_out(
    pod: views.Pod, shares: Sequence[DeviceShare], asking: Sequence[_Asking]
) -> Iterator[Sequence[DeviceShare]]:
    """Yield the devices of each container.

    Containers that run at the same time have separate devices. An init container, which
    ends before they start, uses the first of the pod's devices.
    """
    parsed = request_parser.read(pod.shape.devices, request_parser.annotation_words(pod.annotations))
    remaining = list(shares)
    own: dict[str, list[DeviceShare]] = {}
    for request in parsed.asks:
        own[request.container], remaining = remaining[: request.count], remaining[request.count :]
    for container in asking:
        if container.init:
            yield shares[: container.devices]
        elif container.name in own:
            yield own[container.name]
        else:
            yield remaining[: container.devices]
            remaining = remaining[container.devices :]
