"""Status of queues: allocated resources, and the fair share with its explanation.

Keys of the writes are ``queue NAME`` and ``share NAME``.

If another scheduler runs in the cluster, it counts the allocated resources of its
queues. The share is then written only on queues that were handed over. Shares on other
queues are outdated and are removed.
"""

from __future__ import annotations

import msgspec

from windlass.api import annotations as names
from windlass.api import resources
from windlass.api.quantities import from_units
from windlass.client.client import Client
from windlass.engine.decision import QueueUsage
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.ownership import KAI, VOLCANO
from windlass.model.queues import engine_queue
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.options import LiveOptions
from windlass.scheduler.status.explanation_writer import COUNTS_SECONDS
from windlass.scheduler.write_queue import WriteQueue

SHARE_SECONDS = 2.0
"""Interval in seconds between writes of a queue's fair share."""


class QueueStatuses:
    """Writes each queue's usage as reported by the last cycle that mentioned it."""

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        metrics: SchedulerMetrics,
        options: LiveOptions,
        queue: WriteQueue,
    ) -> None:
        self._client = client
        self._model = model
        self._metrics = metrics
        self._options = options
        self._queue = queue
        self._usage: dict[str, QueueUsage] = {}

    def update(self, usage: QueueUsage) -> None:
        """Take in the changed usage of a queue."""
        self._usage[usage.queue] = usage
        if not self._is_foreign(usage.queue):
            self._queue.enqueue(f"queue {usage.queue}", COUNTS_SECONDS)
        self._queue.enqueue(f"share {usage.queue}", SHARE_SECONDS)

    def _is_foreign(self, name: str) -> bool:
        """Return whether the scheduler that owns the queue's API runs in the cluster."""
        kind = KAI if engine_queue.is_kai(name) else VOLCANO
        return any(other.kind == kind for other in self._options.current.other_schedulers)

    def remove(self, name: str) -> None:
        self._usage.pop(name, None)
        self._queue.drop(f"queue {name}")
        self._queue.drop(f"share {name}")

    async def write(self, name: str) -> None:
        """Write the allocated resources of one queue of Volcano's API."""
        usage = self._usage.get(name)
        view = self._model.objects.queues.get(name)
        if usage is None or view is None:
            return
        wanted = {
            resource: from_units(resource, units) for resource, units in usage.allocated.items() if units
        }
        if wanted == view.allocated:
            return
        change: dict[str, str | None] = dict.fromkeys(view.allocated)
        change.update(wanted)
        await self._client.patch(
            resources.QUEUES, name, {"status": {"allocated": change}}, subresource="status"
        )
        self._metrics.writes.labels("queue").inc()

    async def write_share(self, name: str) -> None:
        """Write the fair share of one queue of either API, with its explanation.

        A queue that another scheduler serves has none.
        """
        usage = self._usage.get(name)
        kai = engine_queue.is_kai(name)
        view = (self._model.objects.kai_queues if kai else self._model.objects.queues).get(
            engine_queue.plain(name)
        )
        if usage is None or view is None:
            return
        record = None
        if view.annotations.get(names.ADOPTED) == "true" or not self._is_foreign(name):
            record = msgspec.json.encode(engine_queue.share_record(usage), order="sorted").decode()
        if view.annotations.get(names.QUEUE_SHARE) == record:
            return
        resource = resources.KAI_QUEUES if kai else resources.QUEUES
        await self._client.patch(
            resource, view.name, {"metadata": {"annotations": {names.QUEUE_SHARE: record}}}
        )
        self._metrics.writes.labels("queue-share").inc()
