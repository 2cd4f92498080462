"""Measured loads for the plugins of the policy in force."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.scheduler.loads.load_feed import LoadFeed
from windlass.scheduler.policy_services import ServiceContext
from windlass.spi.configuration import SchedulerConfig


class MeasuredLoadService:
    """Measures loads from the source that the policy names."""

    def __init__(self, context: ServiceContext) -> None:
        self._plugins: Sequence[object] = ()
        self._feed = LoadFeed(
            context.client, context.model.objects.nodes, self._in_force, context.wake, clock=context.clock
        )
        context.start(self._feed.run(), "measured loads")

    def _in_force(self) -> Sequence[object]:
        return self._plugins

    def serve(self, plugins: Sequence[object], policy: SchedulerConfig) -> None:
        self._plugins = plugins
        self._feed.use(policy.metrics)

    def close(self) -> None:
        """Do nothing: the background task closes its connections when it ends."""
