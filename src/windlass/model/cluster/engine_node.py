"""Translation of a node view to the engine's node, with its devices."""

from __future__ import annotations

from collections.abc import Mapping

from windlass.api import views
from windlass.model.devices import node_devices
from windlass.model.devices.unreadable_labels import unreadable_labels
from windlass.spi.numa import NumaTopology
from windlass.spi.objects import Device, Node, Taint


def node_of(
    view: views.NodeObject,
    attachable: Mapping[str, int] | None = None,
    hypernodes: Mapping[str, str] | None = None,
    *,
    kai: bool = False,
    zones: NumaTopology | None = None,
    listed: tuple[Device, ...] = (),
    images: bool = False,
) -> Node:
    """Return the engine's node.

    ``attachable``: number of volumes that it can attach, by the resource that counts
        them.
    ``hypernodes``: labels inside the engine for the HyperNodes that contain it.
    ``kai``: true if some queues count GPUs only, so that MIG slices count there as
        shares of GPUs.
    ``zones``: its NUMA zones, as far as they are known.
    ``listed``: devices that ResourceSlices list for it.
    ``images``: true if some policy reads container images.

    A node without a Ready condition counts as ready: kube-scheduler, too, considers
    taints only.
    """
    amounts = node_devices.amounts_of(view)
    if listed:
        amounts = {**amounts, **node_devices.whole(listed)}
    quota = node_devices.quota_of(view, listed) if kai or listed or node_devices.registered(view) else {}
    return Node(
        name=view.name,
        allocatable={**amounts, **attachable} if attachable else amounts,
        labels={**_with_hostname(view), **hypernodes} if hypernodes else _with_hostname(view),
        taints=tuple(Taint(t.key, t.value, t.effect) for t in view.taints),
        unschedulable=view.unschedulable,
        ready=view.ready in ("", "True"),
        devices=node_devices.devices_of(view) + listed,
        quota=quota,
        zones=zones,
        images=tuple((name, image.size_bytes) for image in view.images for name in image.names or ())
        if images
        else (),
        unreadable_labels=unreadable_labels(view),
    )


def _with_hostname(view: views.NodeObject) -> dict[str, str]:
    labels = dict(view.labels)
    labels.setdefault("kubernetes.io/hostname", view.name)
    return labels
