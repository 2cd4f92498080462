"""Changes of pods, handed on to everything that follows pods besides the model."""

from __future__ import annotations

from windlass.api import views
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.devices.reserved_devices import NAMESPACE
from windlass.scheduler.backpressure import Backpressure
from windlass.scheduler.commit.bind_guard import BindGuard
from windlass.scheduler.commit.conflict_detector import BindConflicts
from windlass.scheduler.commit.overcommit import OvercommitCheck
from windlass.scheduler.commit.yield_to_others import YieldToOthers
from windlass.scheduler.estimates.run_times import LearnedRunTimes
from windlass.scheduler.leader.leadership import Leadership
from windlass.scheduler.status.pod_status import PodStatuses


class PodChanges:
    """Hands changes of pods on.

    Invariant: an assumed bind ends once the informer shows the pod on a node.
    """

    def __init__(
        self,
        model: ClusterModel,
        node_usage: NodeUsage,
        leadership: Leadership,
        run_times: LearnedRunTimes,
        backpressure: Backpressure,
        yield_to_others: YieldToOthers,
        conflicts: BindConflicts,
        guard: BindGuard | None,
        overcommit: OvercommitCheck,
        pod_statuses: PodStatuses,
        *,
        clock: Clock,
    ) -> None:
        self._model = model
        self._node_usage = node_usage
        self._leadership = leadership
        self._run_times = run_times
        self._backpressure = backpressure
        self._yield_to_others = yield_to_others
        self._conflicts = conflicts
        self._guard = guard
        self._overcommit = overcommit
        self._pod_statuses = pod_statuses
        self._clock = clock

    def changed(self, old: views.Pod | None, new: views.Pod | None) -> None:
        """Hand on a change that the informer shows. The model has it already."""
        now, taking_over = self._clock.monotonic(), self._leadership.taking_over
        if old is None and not taking_over:  # pods that existed before do not arrive
            self._backpressure.count()
        self._node_usage.change(old, new)
        self._yield_to_others.pod_changed(old, new, now)
        if self._leadership.leads:
            self._run_times.pod_changed(old, new)
        assumed = self._model.binds.assumed.get(new.key) if new is not None else None
        if self._guard is not None:
            as_decided = (
                assumed is not None
                and new is not None
                and (assumed.uid, assumed.node) == (new.uid, new.node_name)
            )
            self._guard.pod_changed(old, new, now, foreign=not (taking_over or as_decided))
        if new is None or not new.node_name or new.namespace == NAMESPACE:
            return  # pods in this namespace reserve devices for this scheduler
        if old is not None and old.node_name:
            if old.shape is not new.shape or old.annotations != new.annotations:
                self._conflicts.usage_grew(new)
            return
        own = assumed is not None and assumed.uid == new.uid
        if assumed is not None and own:
            self._model.binds.forget(new.key, new.uid)
            if assumed.node == new.node_name and self._conflicts.is_disputed(new.node_name, now):
                self._overcommit.check(new)
        if taking_over:  # a pod bound before is not foreign
            return
        if assumed is None or not own or not assumed.shown_by(new):
            self._conflicts.foreign_pod_bound(new, now)
        self._pod_statuses.bound(new)
