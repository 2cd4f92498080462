"""What they share who write on the API server what is neither a bind nor an eviction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.api.reasons import Explanation
from windlass.client.client import Client
from windlass.client.recorder import EventRecorder
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.records import attained_service
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.status.podgroup_status import PodGroupStatuses
from windlass.spi.objects import AttainedService

COUNTS_SECONDS = 1.0
OWN_WRITE_SECONDS = 10.0
"""For so long a written status is not written again while the informers do not show it yet."""
NOTHING: Mapping[str, str | None] = {}


class WriteRequest(Protocol):
    def __call__(self, key: str, seconds: float = 0.0) -> None: ...


class Nodes(Protocol):
    """Who asks for nodes (:mod:`.nodesasked`)."""

    def serves(self, group: str) -> bool: ...
    def note(self, group: str) -> None: ...
    def asked_elsewhere(self, pod: views.Pod, group: str) -> bool: ...


@dataclass(slots=True)
class StatusWriterContext:
    """``explain(group)`` gives the detailed record. ``wish`` and ``drop``: those of the queue of writes. ``rush()``:
    whether what can wait has to (:mod:`.rush`). ``past(group)``: what it has behind it, where it shares time."""

    client: Client
    statuses: PodGroupStatuses
    model: ClusterModel
    recorder: EventRecorder
    metrics: SchedulerMetrics
    options: SchedulerOptions
    explain: Callable[[str], Explanation | None]
    clock: Clock
    wish: WriteRequest
    drop: Callable[[str], None]
    rush: Callable[[], bool]
    nodes: Nodes
    past: Callable[[str], AttainedService | None]

    def past_note(self, group: str, written: Mapping[str, str]) -> Mapping[str, str | None]:
        """What a group that shares time has behind it, where its object says something else."""
        past = self.past(group)
        if past is None:
            return NOTHING
        wanted = attained_service.written(past)
        same = all(written.get(name) == wanted[name] for name in (names.ATTAINED, names.SUSPENSIONS))
        return NOTHING if same else wanted

    async def annotate(
        self,
        resource: resources.Resource,
        namespace: str,
        name: str,
        written: Mapping[str, str],
        text: str | None,
        more: Mapping[str, str | None] = NOTHING,
        along: Mapping[str, str | None] = NOTHING,
    ) -> None:
        """Write the explanation where it is another, and ``more`` annotations; ``along`` only if there is anything
        else to be written."""
        change = dict(more)
        if written.get(names.EXPLANATION) != text:
            change[names.EXPLANATION] = text
            self.metrics.writes.labels("explanation").inc()
        if change:
            change.update(along)
            await self.client.patch(resource, name, {"metadata": {"annotations": change}}, namespace)


def record(told: Explanation | None) -> str | None:
    """The Explanation as one JSON text, the same for the same record."""
    return None if told is None else msgspec.json.encode(told.as_dict(), order="sorted").decode()
