"""Services that plugins of the policy in force need: HTTP extenders, measured loads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from windlass.client.client import Client
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler import features
from windlass.spi.configuration import SchedulerConfig


@dataclass(frozen=True, slots=True)
class ServiceContext:
    """Arguments of every policy service.

    ``wake()`` requests a cycle. ``start(coroutine, name)`` runs a background task until
    the scheduler ends.
    """

    client: Client
    model: ClusterModel
    clock: Clock
    metrics: SchedulerMetrics
    wake: Callable[[], None]
    start: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


class PolicyService(Protocol):
    """Service behind some plugins. Created with a :class:`ServiceContext`."""

    def serve(self, plugins: Sequence[object], policy: SchedulerConfig) -> None:
        """Connect the plugins in force.

        Called again after each change of the policy.
        """
        ...

    def close(self) -> None: ...


class PolicyServices:
    """Loads a policy service when the first plugin needs it."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._services: dict[str, PolicyService] = {}

    def serve(self, plugins: Sequence[object], policy: SchedulerConfig) -> None:
        """Connect the plugins in force."""
        for feature in features.POLICY_FEATURES:
            if feature.name not in self._services:
                if not any(isinstance(plugin, feature.serves) for plugin in plugins):
                    continue
                self._services[feature.name] = getattr(features.load(feature), feature.service)(self._context)
            self._services[feature.name].serve(plugins, policy)

    def close(self) -> None:
        for service in self._services.values():
            service.close()
