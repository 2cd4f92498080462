"""Controller that creates the built-in training runtimes in single-node mode.

A missing runtime is created. An existing one is never changed. Keys are names.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.api.resources import CLUSTER_TRAINING_RUNTIMES
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Create, Effects
from windlass.controllers.expectations import StoredObject, decode_stored_object
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.trainer.builtin import BUILT_IN


class TrainingRuntimeController:
    """Built-in ClusterTrainingRuntimes."""

    name = "trainingruntimes"
    pause_seconds = 0.0

    def __init__(self, informers: Informers) -> None:
        self._runtimes: Informer[StoredObject] = informers.informer(
            CLUSTER_TRAINING_RUNTIMES, decode=decode_stored_object
        )

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._runtimes, lambda found: [found.key] if found.key in BUILT_IN else []),
        )

    def initial_keys(self) -> Iterable[str]:
        return BUILT_IN

    async def reconcile(self, key: str) -> Effects:
        if key in self._runtimes.items or key not in BUILT_IN:
            return NOTHING
        return Effects(stages=((Create(CLUSTER_TRAINING_RUNTIMES, dict(BUILT_IN[key])),),))
