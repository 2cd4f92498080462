"""HTTP extenders for the plugins of the policy in force."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.scheduler.extender.client import ExtenderClients
from windlass.scheduler.extender.node_extender import NodeExtenders
from windlass.scheduler.policy_services import ServiceContext
from windlass.spi.configuration import SchedulerConfig


class ExtenderService:
    """Gives each plugin its extender client and its node extender."""

    def __init__(self, context: ServiceContext) -> None:
        self._clients = ExtenderClients(
            context.model, clock=context.clock, observe=context.metrics.extender_queried
        )
        self._node_extenders = NodeExtenders(
            context.model.objects.nodes, context.wake, clock=context.clock, session=self._clients.session
        )
        self._start = context.start

    def serve(self, plugins: Sequence[object], policy: SchedulerConfig) -> None:
        self._node_extenders.serve(plugins, self._start)
        self._clients.serve(plugins)

    def close(self) -> None:
        self._clients.close()
