"""Eviction of gangs that do not reach their minimum in time."""

from __future__ import annotations

from windlass.api import views
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.groups.member_counts import Members
from windlass.model.groups.podgroup_status import was_whole
from windlass.model.groups.podgroups import shown_key
from windlass.observe import logs
from windlass.scheduler.commit.evictor import GANG_BIND_FAILED, EvictionOrder, Evictor
from windlass.scheduler.commit.gang_timeout import GangWatch
from windlass.scheduler.observability.group_counters import NOT_READY, GroupCounters
from windlass.scheduler.status.status_writer import StatusWriter
from windlass.scheduler.steady_time import SteadyTime

log = logs.get("scheduler")


class IncompleteGangs:
    """Watches gangs that hold less than their minimum, and evicts them after a timeout."""

    def __init__(
        self,
        watch: GangWatch,
        model: ClusterModel,
        evictor: Evictor,
        status_writer: StatusWriter,
        counters: GroupCounters,
        *,
        clock: Clock,
        time: SteadyTime,
    ) -> None:
        self._watch = watch
        self._model = model
        self._evictor = evictor
        self._status_writer = status_writer
        self._counters = counters
        self._clock = clock
        self._time = time

    def observe(self, key: str, members: Members, now: float) -> None:
        """Take in the members of a group. ``now``: monotonic seconds."""
        watch = self._watch
        view, sent = self._model.objects.groups.get(key), self._model.group_sent(key)
        minimum = view.min_member if view is not None else sent.min_member if sent is not None else 0
        unwatched_start = watch.was_complete(key) and not watch.watches(key)
        if view is not None:
            started = was_whole(view) or unwatched_start
        else:  # no phase shows whether it has started
            started = (
                members.scheduled < minimum
                and not watch.watches(key)
                and (watch.was_complete(key) or self._started_long_ago(key))
            )
        watch.observe(key, started, minimum, members, now)

    def _started_long_ago(self, key: str) -> bool:
        """Return whether the group started before the timeout counted from now."""
        return self._model.groups.started_before(key, self._time.now() - self._watch.patience)

    def doubt(self, pod: views.Pod) -> None:
        """Watch the gang of a pod that is being evicted, unless it has run for long."""
        group = self._model.groups.group_of(pod.key)
        if group is not None and not self._started_long_ago(group):
            self._watch.doubt(group, self._clock.monotonic())

    def forget(self, key: str) -> None:
        self._watch.forget(key)

    def next_deadline(self) -> float | None:
        """Return the monotonic time at which the next timeout passes."""
        return self._watch.next_deadline()

    def evict_overdue(self, now: float) -> None:
        """Evict the bound members of overdue gangs."""
        for group in self._watch.take_overdue(now):
            self._evict(group)

    def _evict(self, group: str) -> None:
        bound = [
            pod
            for pod in self._model.groups.pods_of(group)
            if pod.node_name and not pod.finished and not pod.deleted
        ]
        if not bound:
            return  # the last of them is terminating
        shown = shown_key(group)
        message = (
            f"gang {shown} did not reach its minimum within {self._watch.patience:g} s of its last progress"
        )
        log.warning("gang incomplete", group=shown)
        self._status_writer.gang_failed(group, message)
        self._counters.group_evicted(group, NOT_READY, self._time.now())
        for pod in bound:
            self._evictor.submit(EvictionOrder(pod.key, pod.uid, GANG_BIND_FAILED, message))
