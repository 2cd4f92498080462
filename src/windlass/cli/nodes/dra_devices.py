"""The devices that drivers list in ResourceSlices, and who was given them, for commands that show nodes and cards."""

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
"""So the names of the drivers of GPUs begin (``gpu.nvidia.com``, ``gpu.amd.com``, ``gpu.intel.com``)."""
_WHOLE = 1000


@dataclass(frozen=True, slots=True)
class ListedGpus:
    """The GPUs that drivers list for a node, in thousandths: those that count as whole ones, and what pods have of
    them by their claims, by name (``namespace/name``). What was given for an amount (``extendedResourceName`` of a
    class) is left out: their amounts tell it."""

    milli: int = 0
    held: Mapping[str, int] = field(default_factory=dict)


def slices_of(client: BlockingClient) -> list[dict[str, Any]]:
    """What drivers list, as far as that may be seen. Where it is nothing, as on most clusters, nobody need load the
    model for :func:`claims_of`."""
    with suppress(StatusError):
        return client.list(RESOURCE_SLICES).items
    return []


def claims_of(client: BlockingClient, slices: Iterable[Mapping[str, Any]]) -> DraClaims:
    """Those devices, and who was given them, as far as that may be seen."""
    from windlass.api import views
    from windlass.model.devices.dra_claims import DraClaims

    book = DraClaims({})
    for item in slices:
        book.upsert(views.decode_resource_slice(views.encode(item)))
    with suppress(StatusError):
        for item in client.list(RESOURCE_CLAIMS).items:
            book.upsert(views.decode_device_claim(views.encode(item)))
    return book


def listed_gpus(book: DraClaims, pods: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, ListedGpus]:
    """By node. ``pods``: by node, those that have something there. A device that several pods use together is the
    first one's."""
    from windlass.api import views
    from windlass.spi.devices import DeviceMode

    found = {}
    for node in book.inventory.nodes():
        cards = [one for one in book.cards_of(node) if one.resource.startswith(_GPUS)]
        whole = sum(one.healthy and one.mode is not DeviceMode.NAMED for one in cards)
        gpus, seen = {(one.resource, one.index) for one in cards}, set[tuple[str, int, str]]()
        held: dict[str, int] = {}
        for pod in pods.get(node, ()):
            if (pod.get("status") or {}).get("extendedResourceClaimStatus"):
                continue
            view = views.decode_pod(views.encode(pod))
            for _, resource, index, share, draws in book.allotted(view) if view.shape.claims else ():
                if (resource, index) in gpus and (resource, index, share) not in seen:
                    seen.add((resource, index, share))
                    held[view.key] = held.get(view.key, 0) + book.inventory.milli_of(
                        node, resource, index, draws
                    )
        found[node] = ListedGpus(whole * _WHOLE, held)
    return found
