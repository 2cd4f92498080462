"""Node view → the engine's node, with its devices."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from windlass.api import views
from windlass.api.quantities import is_device
from windlass.spi.objects import Device, Node, Taint

WHOLE = 1000
"""Engine units of one whole device."""
MAX_DEVICES = 1024
"""A node that claims more devices of one kind is believed for no more (the largest real ones have 16)."""


def node_of(
    view: views.Node,
    attachable: Mapping[str, int] | None = None,
    hypernodes: Mapping[str, str] | None = None,
) -> Node:
    """``attachable``: how many volumes it attaches, by the resource that counts them. ``hypernodes``: labels
    that it carries inside the engine, for the HyperNodes that it is in.

    A node without a Ready condition counts as ready: kube-scheduler, too, goes by taints alone.

    Devices are numbered from 0 per resource; model and memory (MiB) come from the labels that feature
    discovery writes: ``<resource>.product`` and ``<resource>.memory``.
    """
    devices: tuple[Device, ...] = ()
    for resource, units in sorted(view.allocatable.items()):
        if is_device(resource) and units >= WHOLE:
            devices += _devices(
                resource,
                min(units // WHOLE, MAX_DEVICES),
                view.labels.get(f"{resource}.product", ""),
                _number(view.labels.get(f"{resource}.memory", "")),
            )
    return Node(
        name=view.name,
        allocatable={**view.allocatable, **attachable} if attachable else view.allocatable,
        labels={**_with_hostname(view), **hypernodes} if hypernodes else _with_hostname(view),
        taints=tuple(Taint(t.key, t.value, t.effect) for t in view.taints),
        unschedulable=view.unschedulable,
        ready=view.ready in ("", "True"),
        devices=devices,
    )


def _with_hostname(view: views.Node) -> dict[str, str]:
    labels = dict(view.labels)
    labels.setdefault("kubernetes.io/hostname", view.name)
    return labels


@lru_cache(maxsize=1024)
def _devices(resource: str, count: int, model: str, memory_mib: int) -> tuple[Device, ...]:
    return tuple(Device(index, resource, model, memory_mib) for index in range(count))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
