"""Writes of status: all writes that are neither binds nor evictions.

What is written is true but calm. Phases are written at once, mere counts once a second,
and reasons as :mod:`windlass.scheduler.status.pending_reasons` decides. Pods of a gang,
of which there may be thousands, are rewritten every ``pod_rewrite_seconds``. The writer
first compares with what the informers show, so a restarted scheduler repeats nothing.

Positions in a queue are shown too, and change with every start. They are kept up to
date for the first groups of a queue. Others show the position at the time of the write.

Keys of the write queue: ``group NS/NAME``, ``foreign NS/NAME``, ``pod NS/NAME``,
``queue NAME``, ``share NAME`` (of a queue), ``hypernode NAME``.
"""

from __future__ import annotations

from collections.abc import Callable

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.reasons import Explanation
from windlass.client.client import Client
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.engine.decision import QueueUsage
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.groups import podgroup_status
from windlass.model.groups.member_counts import Members
from windlass.model.records import attained_service
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.autoscaling.provisioning import ProvisioningRequests
from windlass.scheduler.options import LiveOptions
from windlass.scheduler.status.cleanup_foreign import ForeignStatusCleanup
from windlass.scheduler.status.explanation_writer import ExplanationWriter
from windlass.scheduler.status.foreign_groups import ForeignGroups
from windlass.scheduler.status.hypernode_status import HyperNodeStatuses
from windlass.scheduler.status.kai_timestamps import Timestamps
from windlass.scheduler.status.pending_groups import PendingGroups
from windlass.scheduler.status.pending_reasons import PendingReasons
from windlass.scheduler.status.pod_status import PodStatuses
from windlass.scheduler.status.podgroup_status import PodGroupStatuses
from windlass.scheduler.status.queue_status import QueueStatuses
from windlass.scheduler.status.volcano_groups import VolcanoGroups
from windlass.scheduler.write_queue import WriteQueue
from windlass.spi.objects import AttainedService

DEFERRED_SECONDS = 10.0
"""Maximum time in seconds for which a write that may wait is deferred under backpressure.

These are usage of queues, that a gang runs, and counts of its pods. Jobs rely on their
pods, not on these, so a delay is harmless.
"""
RECHECK_SECONDS = 0.5
"""Interval in seconds between checks of a deferred write."""
NEW_PODS_SECONDS = 0.5
"""Interval in seconds between reports on pods that have joined a pending group."""


class StatusWriter:
    """Writes the status of groups, pods, queues and HyperNodes.

    ``explain(group)`` returns the detailed explanation. ``attained(group)`` returns the
    attained service of a group that shares time. ``under_pressure()``: whether writes
    that may wait have to (:mod:`windlass.scheduler.backpressure`).
    """

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        options: LiveOptions,
        pending: PendingGroups,
        provisioning: ProvisioningRequests,
        *,
        clock: Clock,
        rng: Random,
        explain: Callable[[str], Explanation | None],
        attained: Callable[[str], AttainedService | None],
        under_pressure: Callable[[], bool],
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._clock = clock
        self._pending = pending
        self._provisioning = provisioning
        self._under_pressure = under_pressure
        self._queue = WriteQueue(
            self._write,
            clock=clock,
            rng=rng,
            concurrency=options.current.write_concurrency,
            outages=client.outages,
            postpone=self._postpone,
        )
        enqueue = self._queue.enqueue
        statuses = PodGroupStatuses(client)
        explanations = ExplanationWriter(client, metrics, attained)
        self._reasons = PendingReasons(pending, model, options, enqueue, explain, under_pressure, clock=clock)
        reporting = (client, model, recorder, metrics, options)
        self.pods = PodStatuses(*reporting, pending, provisioning, explanations, enqueue, clock=clock)
        self._queues = QueueStatuses(client, model, metrics, options, self._queue)
        self._hypernodes = HyperNodeStatuses(client, model, recorder, metrics, enqueue)
        self.foreign_cleanup = ForeignStatusCleanup(model, metrics, statuses, explanations, enqueue)
        self._foreign = ForeignGroups(*reporting, explanations, enqueue, clock=clock)
        self._groups = VolcanoGroups(
            model,
            recorder,
            metrics,
            pending,
            self._hypernodes,
            statuses,
            explanations,
            enqueue,
            clock=clock,
        )
        self._deferred: dict[str, float] = {}
        """Key of a write that waits for the end of the backpressure → since when."""
        self._reported_attained: dict[str, str] = {}
        """Group → problem of its recorded attained service, as last reported."""

    async def run(self) -> None:
        """Write until cancelled."""
        await self._queue.run()

    @property
    def idle(self) -> bool:
        """Return whether nothing is being written or due."""
        return self._queue.idle

    @property
    def behind(self) -> bool:
        """Return whether writes are deferred, or something is being written."""
        return bool(self._deferred) or self._queue.writing

    # ------------------------------------------------------------------ what is to be written

    def review(self) -> None:
        """Check what an earlier leader has written."""
        self.pods.review()
        self.foreign_cleanup.review()

    def begin_cycle(self, number: int) -> None:
        """Take in the number of a new cycle, with which conditions are stamped."""
        self._groups.begin_cycle(number)
        self._hypernodes.check()

    def nodes_changed(self) -> None:
        """Renew reported reasons, since nodes were added, removed or changed."""
        self._reasons.renew_all()

    def update_queue(self, usage: QueueUsage) -> None:
        """Take in the changed usage of a queue."""
        self._reasons.renew_queue(usage.queue)
        self._queues.update(usage)

    def remove_queue(self, name: str) -> None:
        self._queues.remove(name)
        self._deferred.pop(f"queue {name}", None)
        self._deferred.pop(f"share {name}", None)

    def update_group(
        self, key: str, admitted: bool, explanation: Explanation | None, blocked: bool, members: Members
    ) -> None:
        """Take in the state of a group. ``blocked``: below its minimum and waiting."""
        self._groups.record(key, admitted, blocked)
        self._reasons.update(key, explanation)
        pending = self._pending.get(key)
        if pending is not None:
            if pending.pods_code is not None and members.pending > pending.pods_count:
                self._queue.enqueue(f"group {key}", NEW_PODS_SECONDS)
            reported = pending.reported is not None
            if reported and pending.requests_nodes != self._provisioning.serves(key):
                self._queue.enqueue(f"group {key}")
        self._report_attained(key)
        view = self._model.objects.groups.get(key)
        if view is None:
            self._foreign.update(key, members, pending=pending is not None)
        else:
            self._groups.update(view, members)

    def remove_group(self, key: str) -> None:
        """Forget a group that no longer exists, nor any of its pods."""
        self._reasons.remove(key)
        self._foreign.remove(key)
        self._groups.remove(key)
        self._reported_attained.pop(key, None)
        self._deferred.pop(f"group {key}", None)
        self._queue.drop(f"group {key}")

    def gang_failed(self, key: str, message: str) -> None:
        """Report that a gang did not reach its minimum in time.

        Its bound members are evicted.
        """
        entry = self._model.groups.object_of(key)
        if entry is None:
            return
        resource, view = entry
        if isinstance(view, views.PodGroup):
            self._groups.record_failure(key, message)
        ref = ObjectRef(resource.api_version, resource.kind, view.namespace, view.name, view.uid)
        self._recorder.event(ref, "Warning", podgroup_status.GANG_BIND_FAILED, message)

    def update_kai_timestamps(self, changes: Timestamps) -> None:
        """Take in timestamps to write on groups of KAI."""
        self._foreign.update_timestamps(changes)

    def due_annotations(self, key: str) -> dict[str, str | None]:
        """Return the annotations due on a group before its members are bound."""
        view = self._model.objects.groups.get(key)
        return self._foreign.due_annotations(key) if view is None else self._groups.due_annotations(view)

    def _report_attained(self, key: str) -> None:
        """Report an impossible record of attained service once, as an event on the group."""
        entry = self._model.groups.object_of(key)
        if entry is None or names.ATTAINED not in entry[1].annotations:
            return
        resource, view = entry
        problem = attained_service.problem(view.annotations, view.created)
        if problem and self._reported_attained.get(key) != problem:
            ref = ObjectRef(resource.api_version, resource.kind, view.namespace, view.name, view.uid)
            message = f"{problem}; it counts as if it had attained nothing before"
            self._recorder.event(ref, "Warning", "AttainedIgnored", message)
        self._reported_attained[key] = problem

    # ------------------------------------------------------------------ writing

    async def _write(self, key: str) -> None:
        kind, _, name = key.partition(" ")
        if kind == "group":
            await self._write_group(name)
        elif kind == "pod":
            await self.pods.write(name)
        elif kind == "foreign":
            await self.foreign_cleanup.write(name)
        elif kind == "share":
            await self._queues.write_share(name)
        elif kind == "hypernode":
            await self._hypernodes.write(name)
        else:
            await self._queues.write(name)

    async def _write_group(self, key: str) -> None:
        self._reasons.put_off(key)
        view = self._model.objects.groups.get(key)
        if view is not None and (delay := self._groups.delay(view)) > 0:
            self._queue.enqueue(f"group {key}", delay)
            return
        explanation = self._reasons.report(key)
        self.pods.report(key, explanation)
        if view is None:
            await self._foreign.write(key, explanation, self._groups.is_blocked(key))
        else:
            await self._groups.write(view, explanation)

    def _postpone(self, key: str) -> float:
        """Return the seconds for which a due write is deferred under backpressure."""
        if self._under_pressure() and self._may_wait(*key.split(" ", 1)):
            now = self._clock.monotonic()
            if now - self._deferred.setdefault(key, now) < DEFERRED_SECONDS:
                return RECHECK_SECONDS
        self._deferred.pop(key, None)
        return 0.0

    def _may_wait(self, kind: str, name: str) -> bool:
        """Return whether a write may wait. Reasons for waiting may not."""
        if kind == "pod":
            return self.pods.is_bound(name)
        if kind == "group":
            return self._groups.may_wait(name)
        return kind in ("queue", "share")
