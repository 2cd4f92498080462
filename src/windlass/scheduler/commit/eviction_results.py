"""Results of evictions: what the engine, the metrics and the users learn of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.engine import deltas
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.observe import logs
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.commit.evictor import COOLING_SECONDS, EvictionOrder, EvictionResult
from windlass.scheduler.steady_time import SteadyTime

log = logs.get("scheduler")


class EvictionResults:
    """Takes in the results of evictions.

    ``inbox``: deltas of the next cycle. ``wake()`` requests a cycle.
    """

    def __init__(
        self,
        model: ClusterModel,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        inbox: list[deltas.Delta],
        *,
        time: SteadyTime,
        wake: Callable[[], None],
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._metrics = metrics
        self._inbox = inbox
        self._time = time
        self._wake = wake
        self._rejections: dict[str, str] = {}

    @property
    def rejections(self) -> Mapping[str, str]:
        """Preemptor → why a victim was not evicted."""
        return self._rejections

    def forget(self, group: str) -> None:
        """Forget a preemptor that does not exist any more."""
        self._rejections.pop(group, None)

    def delayed(self, order: EvictionOrder, why: str) -> None:
        """Record that a budget rejects an eviction for now, so the preemptor waits."""
        if order.preemptor:
            self._rejections[order.preemptor] = f"eviction of pod {order.key} is refused: {why}"

    def finished(self, result: EvictionResult) -> None:
        """Take in the result of one eviction."""
        order = result.order
        label = "done" if result.evicted else "refused" if result.rejected else "failed"
        self._metrics.evictions.labels(order.reason, label).inc()
        if result.evicted:
            self._rejections.pop(order.preemptor, None)
            return
        log.warning("eviction failed", pod=order.key, why=result.message)
        if result.rejected:  # until its budgets change, they allow no eviction
            self._model.protect(order.key, self._time.now() + COOLING_SECONDS)
            self._inbox.extend(deltas.BudgetUpserted(key, 0) for key in self._model.budgets_of(order.key))
            namespace, _, name = order.key.partition("/")
            ref = ObjectRef("v1", "Pod", namespace, name, order.uid)
            self._recorder.event(ref, "Warning", "EvictionRefused", result.message)
        self._inbox.append(deltas.EvictionFailed(order.key, order.uid, result.message))
        self._wake()
