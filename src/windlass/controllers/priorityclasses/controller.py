"""Controller that creates PriorityClasses: Kubernetes' two, and those for AI work.

A missing class is created. An existing class is never changed. Keys are names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from windlass.api.resources import PRIORITY_CLASSES
from windlass.api.views import PriorityClass, decode_priority_class
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Create, Effects
from windlass.controllers.runner import Informers, WatchedCollection

SHIPPED: Mapping[str, tuple[int, str]] = {
    "system-cluster-critical": (
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, "
        "but can be moved to another node if necessary.",
    ),
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    "high-priority": (10_000, "Work that goes before ordinary work."),
    "aigc-urgent": (100_000, "AIGC work that cannot wait."),
    "aigc-high": (10_000, "AIGC work of high priority."),
    "aigc-medium": (1_000, "AIGC work of ordinary priority."),
    "aigc-low": (100, "AIGC work that may wait."),
}


def reconcile(name: str, present: bool) -> Effects:
    """Create the class ``name`` if it is shipped and not there. Pure."""
    if present or name not in SHIPPED:
        return NOTHING
    value, description = SHIPPED[name]
    obj = {
        "apiVersion": PRIORITY_CLASSES.api_version,
        "kind": PRIORITY_CLASSES.kind,
        "metadata": {"name": name},
        "value": value,
        "description": description,
    }
    return Effects(stages=((Create(PRIORITY_CLASSES, obj),),))


class PriorityClassController:
    name = "priorityclasses"
    pause_seconds = 0.0

    def __init__(self, informers: Informers) -> None:
        self._classes: Informer[PriorityClass] = informers.informer(
            PRIORITY_CLASSES, decode=decode_priority_class
        )

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._classes, lambda found: [found.name] if found.name in SHIPPED else []),
        )

    def initial_keys(self) -> Iterable[str]:
        return SHIPPED.keys()

    async def reconcile(self, key: str) -> Effects:
        return reconcile(key, key in self._classes.items)
