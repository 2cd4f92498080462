"""Devices that drivers list in ResourceSlices, and their allocations by claims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windlass.api.errors import StatusError
from windlass.api.resources import RESOURCE_CLAIMS, RESOURCE_SLICES

if TYPE_CHECKING:
    from windlass.client.blocking import BlockingClient
    from windlass.model.devices.dra_claims import DraClaims

_GPUS = "gpu."
"""Prefix of the names of GPU drivers, such as ``gpu.nvidia.com`` and ``gpu.amd.com``.
"""
_WHOLE = 1000


@dataclass(frozen=True, slots=True)
class ListedGpus:
    """GPUs of a node that drivers list, in thousandths.

    ``milli``: GPUs that count as whole. ``held``: amounts that pods hold by claims, by
    ``namespace/name``. Devices allocated for an amount (``extendedResourceName`` of a
    class) are not included, as the amounts count them.
    """

    milli: int = 0
    held: Mapping[str, int] = field(default_factory=dict)


def slices_of(client: BlockingClient) -> list[dict[str, Any]]:
    """Return the visible ResourceSlices.

    If there are none, as on most clusters, the model for :func:`claims_of` need not be
    loaded.
    """
    with suppress(StatusError):
        return client.list(RESOURCE_SLICES).items
    return []


def drivers_by_node(slices: Iterable[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return node → drivers that list devices of it."""
    drivers: dict[str, set[str]] = {}
    for item in slices:
        spec = item.get("spec") or {}
        if spec.get("nodeName") and spec.get("driver"):
            drivers.setdefault(spec["nodeName"], set()).add(spec["driver"])
    return drivers


def claims_of(client: BlockingClient, slices: Iterable[Mapping[str, Any]]) -> DraClaims:
    """Return the devices of these slices with their allocations, as far as visible."""
    from windlass.api import views
    from windlass.model.devices.dra_claims import DraClaims

    claims = DraClaims({})
    for item in slices:
        claims.upsert(views.decode_resource_slice(views.encode(item)))
    with suppress(StatusError):
        for item in client.list(RESOURCE_CLAIMS).items:
            claims.upsert(views.decode_device_claim(views.encode(item)))
    return claims


def listed_gpus(claims: DraClaims, pods: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, ListedGpus]:
    """Return the listed GPUs by node.

    A device that several pods use is counted for the first one.

    :param pods: pods of each node that hold something there
    """
    from windlass.api import views
    from windlass.spi.devices import DeviceMode

    result = {}
    for node in claims.inventory.nodes():
        gpus = [gpu for gpu in claims.listed_devices(node) if gpu.resource.startswith(_GPUS)]
        whole = sum(gpu.healthy and gpu.mode is not DeviceMode.NAMED for gpu in gpus)
        slots, seen = {(gpu.resource, gpu.index) for gpu in gpus}, set[tuple[str, int, str]]()
        held: dict[str, int] = {}
        for pod in pods.get(node, ()):
            if (pod.get("status") or {}).get("extendedResourceClaimStatus"):
                continue
            view = views.decode_pod(views.encode(pod))
            for _, resource, index, share, draws in claims.allocations_of(view) if view.shape.claims else ():
                if (resource, index) in slots and (resource, index, share) not in seen:
                    seen.add((resource, index, share))
                    held[view.key] = held.get(view.key, 0) + claims.inventory.milli_of(
                        node, resource, index, draws
                    )
        result[node] = ListedGpus(whole * _WHOLE, held)
    return result
