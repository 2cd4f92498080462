"""Results of binds: what the engine, the metrics and the users learn of each.

A successful bind counts as done until the informer shows it. If that does not happen in
time, the pod is looked up. A failed bind becomes a delta of the next cycle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from windlass.api import views
from windlass.api.devices.plugin_units import more_units_than_devices
from windlass.api.errors import StatusError
from windlass.client.errors import Unreachable
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.engine import deltas
from windlass.engine.decision import Bind
from windlass.kits.clock import Clock
from windlass.kits.tasks import TaskGroup
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.observe import logs
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.backpressure import Backpressure
from windlass.scheduler.commit.bind_batch import BindResult
from windlass.scheduler.commit.pod_lookup import PodLookup
from windlass.scheduler.observability.observer import SchedulingObserver
from windlass.scheduler.options import LiveOptions
from windlass.scheduler.status.event_buffer import EventBuffer
from windlass.scheduler.steady_time import SteadyTime

log = logs.get("scheduler")


class BindResults:
    """Takes in the results of binds.

    ``inbox``: deltas of the next cycle. ``wake()`` requests a cycle.
    """

    def __init__(
        self,
        model: ClusterModel,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        options: LiveOptions,
        inbox: list[deltas.Delta],
        look_up: PodLookup,
        event_buffer: EventBuffer,
        backpressure: Backpressure,
        observers: Sequence[SchedulingObserver],
        *,
        clock: Clock,
        time: SteadyTime,
        task_group: TaskGroup,
        wake: Callable[[], None],
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._metrics = metrics
        self._options = options
        self._inbox = inbox
        self._look_up = look_up
        self._event_buffer = event_buffer
        self._backpressure = backpressure
        self._observers = observers
        self._clock = clock
        self._time = time
        self._task_group = task_group
        self._wake = wake
        self._unseen: deque[tuple[float, str, str]] = deque()
        """Successful binds not shown yet: (time of the look-up, pod, uid)."""
        self._bound_counter = metrics.binds.labels("bound")

    @property
    def next_deadline(self) -> float | None:
        """Monotonic time at which the next unseen bind is looked up."""
        return self._unseen[0][0] if self._unseen else None

    def finished(self, result: BindResult) -> None:
        """Take in the result of one bind."""
        bind = result.bind
        pod = self._model.objects.pods.get(bind.task)
        seen = pod is not None and pod.uid == bind.uid and pod.node_name == bind.node
        succeeded = result.bound or seen
        if succeeded:
            self._succeeded(bind, result.seconds, pod)
        else:
            self._failed(result)
        fault = "" if succeeded else result.message
        for observer in self._observers:
            observer.bind_finished(bind, result.seconds, self._time.now(), fault)
        self._wake()

    def _succeeded(self, bind: Bind, seconds: float, pod: views.Pod | None) -> None:
        self._bound_counter.inc()
        self._backpressure.count()
        self._metrics.bind_seconds.observe(seconds)
        if pod is not None and pod.created:
            self._metrics.wait_seconds.observe(max(0.0, self._clock.now() - pod.created))
        message = f"Successfully assigned {bind.task} to {bind.node}"
        node = self._model.objects.nodes.get(bind.node)
        if pod is not None and node is not None:
            shared = more_units_than_devices(pod.shape.request, node.allocatable, node.labels)
            message += f"; it {shared}" if shared else ""
        self._event_buffer.record(_reference(bind), "Scheduled", message)
        if bind.task in self._model.binds.assumed:
            self._expect(bind.task, bind.uid)

    def _expect(self, key: str, uid: str) -> None:
        """Look a pod up later, unless the informer shows it before."""
        due = self._clock.monotonic() + self._options.current.assume_seconds
        self._unseen.append((due, key, uid))

    def _failed(self, result: BindResult) -> None:
        bind = result.bind
        self._metrics.binds.labels("gone" if result.gone else "failed").inc()
        write_log = log.info if result.recalled else log.warning
        write_log("bind failed", pod=bind.task, node=bind.node, why=result.message)
        taken = result.pod is not None and result.pod.uid == bind.uid and bool(result.pod.node_name)
        kind = "elsewhere" if taken else "gone" if result.gone else "recalled" if result.recalled else ""
        if kind:
            self._metrics.conflicts.labels(kind).inc()
        if not self._model.binds.forget(bind.task, bind.uid):
            return
        if taken and result.pod is not None:
            self._update_model(result.pod)
            return
        self._inbox.append(deltas.BindFailed(bind.task, bind.uid, result.message))
        if not result.gone:
            message = f"binding to {bind.node} failed: {result.message}"
            self._recorder.event(_reference(bind), "Warning", "FailedScheduling", message)

    def _update_model(self, pod: views.Pod) -> None:
        """Take in a pod that was looked up, unless the informer has shown as much since."""
        known = self._model.objects.pods.get(pod.key)
        if known is not None and known.uid == pod.uid and not known.node_name:
            self._model.objects.upsert_pod(pod)

    # ------------------------------------------------------------------ unseen binds

    def look_up_overdue(self, now: float) -> None:
        """Look up the pods of binds that have not been shown in time."""
        while self._unseen and self._unseen[0][0] <= now:
            _, key, uid = self._unseen.popleft()
            assumed = self._model.binds.assumed.get(key)
            if assumed is not None and assumed.uid == uid:
                self._task_group.start(self._resolve(key, uid), f"look up {key}")

    async def _resolve(self, key: str, uid: str) -> None:
        try:
            pod = await self._look_up(key)
        except (StatusError, Unreachable) as error:
            log.warning("look-up failed", pod=key, why=error.message)
            self._expect(key, uid)
            return
        if not self._model.binds.forget(key, uid):
            return
        if pod is not None and pod.uid == uid and pod.node_name:
            self._update_model(pod)
        else:
            self._inbox.append(deltas.BindFailed(key, uid, "the binding did not last"))
        self._wake()


def _reference(bind: Bind) -> ObjectRef:
    namespace, _, name = bind.task.partition("/")
    return ObjectRef("v1", "Pod", namespace, name, bind.uid)
