"""Facts about nodes and queues that determine the charge of device shares."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.api import views
from windlass.model.devices import node_devices
from windlass.model.devices.device_needs import ClusterDeviceFacts, queue_vocabulary, sizes
from windlass.model.queues import engine_queue
from windlass.spi.objects import Node, Queue

_NodeFacts = tuple[frozenset[tuple[str, int]], bool]


class DeviceIndex:
    """Device facts by node.

    ``changed``: a node has changed since the last call of :meth:`facts`.
    """

    def __init__(self) -> None:
        self.changed = False
        self._facts: dict[str, _NodeFacts] = {}
        """Per node: resources and sizes of its devices, and whether it creates MIG slices."""

    def note(self, view: views.NodeObject, node: Node) -> None:
        facts = (
            frozenset((device.resource, device.memory_mib) for device in node.devices),
            node_devices.carves(view),
        )
        if self._facts.get(node.name) != facts:
            self._facts[node.name] = facts
            self.changed = True

    def forget(self, node: str) -> None:
        if self._facts.pop(node, None) is not None:
            self.changed = True

    def clear(self) -> None:
        self._facts.clear()
        self.changed = True

    def facts(self, known: Iterable[Queue]) -> ClusterDeviceFacts:
        """Return the facts, given all ``known`` queues, and reset ``changed``."""
        self.changed = False
        kinds = {kind for resources, _ in self._facts.values() for kind in resources}
        return ClusterDeviceFacts(
            memories=sizes(kinds),
            carved=any(carved for _, carved in self._facts.values()),
            queue_vocabulary=queue_vocabulary(
                each for queue in known for each in engine_queue.amounts_named(queue)
            ),
            registered=any(resource == node_devices.REGISTERED for resource, _ in kinds),
        )
