"""Facts about nodes and queues that determine the charge of device shares."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.api import views
from windlass.model.devices import node_devices
from windlass.model.devices.device_needs import ClusterDeviceFacts, queue_words, sizes
from windlass.model.queues import engine_queue
from windlass.spi.objects import Node, Queue

_Told = tuple[frozenset[tuple[str, int]], bool]


class DeviceIndex:
    """Device facts by node.

    ``changed``: a node has changed since the last call of :meth:`facts`.
    """

    def __init__(self) -> None:
        self.changed = False
        self._told: dict[str, _Told] = {}
        """Per node: resources and sizes of its devices, and whether it creates MIG slices."""

    def note(self, view: views.NodeObject, node: Node) -> None:
        told = (
            frozenset((device.resource, device.memory_mib) for device in node.devices),
            node_devices.carves(view),
        )
        if self._told.get(node.name) != told:
            self._told[node.name] = told
            self.changed = True

    def forget(self, node: str) -> None:
        if self._told.pop(node, None) is not None:
            self.changed = True

    def clear(self) -> None:
        self._told.clear()
        self.changed = True

    def facts(self, known: Iterable[Queue]) -> ClusterDeviceFacts:
        """Return the facts, given all ``known`` queues, and reset ``changed``."""
        self.changed = False
        kinds = {kind for told, _ in self._told.values() for kind in told}
        return ClusterDeviceFacts(
            memories=sizes(kinds),
            carved=any(carved for _, carved in self._told.values()),
            queue_words=queue_words(each for queue in known for each in engine_queue.amounts_named(queue)),
            registered=any(resource == node_devices.REGISTERED for resource, _ in kinds),
        )
