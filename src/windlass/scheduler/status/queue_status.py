"""How queues stand, on the queues themselves: what they have, and their fair share with why it is what it is.
Keys of the writes are ``queue NAME`` and ``share NAME``.

Beside another scheduler what queues have is counted by that one, and the share is told of those alone that were handed
over; what stands on others is of an earlier time, and is taken away."""

from __future__ import annotations

import msgspec

from windlass.api import annotations as names
from windlass.api import resources
from windlass.api.quantities import from_units
from windlass.engine.decision import QueueUsage
from windlass.model.cluster.ownership import KAI, VOLCANO
from windlass.model.queues import engine_queue
from windlass.scheduler.status.writer_context import COUNTS_SECONDS, StatusWriterContext

SHARE_SECONDS = 2.0


class QueueStatuses:
    """Those of the last cycle that told of a queue."""

    def __init__(self, context: StatusWriterContext) -> None:
        self._context = context
        self._usage: dict[str, QueueUsage] = {}

    def note(self, usage: QueueUsage) -> None:
        """A queue's figures changed."""
        self._usage[usage.queue] = usage
        if not self._beside(usage.queue):
            self._context.wish(f"queue {usage.queue}", COUNTS_SECONDS)
        self._context.wish(f"share {usage.queue}", SHARE_SECONDS)

    def _beside(self, name: str) -> bool:
        """Whether the scheduler whose API a queue is of still runs."""
        kind = KAI if engine_queue.is_kai(name) else VOLCANO
        return any(peer.kind == kind for peer in self._context.options.beside)

    def gone(self, name: str) -> None:
        self._usage.pop(name, None)
        self._context.drop(f"queue {name}")
        self._context.drop(f"share {name}")

    async def write(self, name: str) -> None:
        usage = self._usage.get(name)
        view = self._context.model.queues.get(name)
        if usage is None or view is None:
            return
        wanted = {
            resource: from_units(resource, units) for resource, units in usage.allocated.items() if units
        }
        if wanted == view.allocated:
            return
        change: dict[str, str | None] = dict.fromkeys(view.allocated)
        change.update(wanted)
        await self._context.client.patch(
            resources.QUEUES, name, {"status": {"allocated": change}}, subresource="status"
        )
        self._context.metrics.writes.labels("queue").inc()

    async def write_share(self, name: str) -> None:
        """The fair share and why it is what it is, on the queue itself: of either API. Nothing on one that another
        scheduler serves."""
        usage = self._usage.get(name)
        kai = engine_queue.is_kai(name)
        view = (self._context.model.kai_queues if kai else self._context.model.queues).get(
            engine_queue.plain(name)
        )
        if usage is None or view is None:
            return
        record = None
        if view.annotations.get(names.ADOPTED) == "true" or not self._beside(name):
            record = msgspec.json.encode(engine_queue.share_record(usage), order="sorted").decode()
        if view.annotations.get(names.QUEUE_SHARE) == record:
            return
        resource = resources.KAI_QUEUES if kai else resources.QUEUES
        await self._context.client.patch(
            resource, view.name, {"metadata": {"annotations": {names.QUEUE_SHARE: record}}}
        )
        self._context.metrics.writes.labels("queue-share").inc()
