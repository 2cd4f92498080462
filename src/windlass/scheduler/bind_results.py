"""What comes back from the API server: pods as they change, the outcomes of binds and evictions, and what never comes.

Invariants: a decided bind counts as done until the pod shows it, its failure is known, or it was looked up; whatever
the engine must know of it becomes a delta of the next cycle.
"""

from __future__ import annotations

from collections import deque

from windlass.api import views
from windlass.api.devices.plugin_units import more_units_than_devices
from windlass.api.errors import StatusError
from windlass.client.errors import Unreachable
from windlass.client.recorder import ObjectRef
from windlass.engine import deltas
from windlass.engine.decision import Bind
from windlass.model.devices.reserved_devices import NAMESPACE
from windlass.model.groups.podgroups import shown_key
from windlass.observe import logs
from windlass.scheduler.commit import evictor as evictions
from windlass.scheduler.commit.binder import BindResult
from windlass.scheduler.commit.conflict_detector import instead
from windlass.scheduler.commit.evictor import EvictionOrder
from windlass.scheduler.components import SchedulerComponents
from windlass.scheduler.observability.group_counters import NOT_READY

log = logs.get("scheduler")


class BindResults:
    """``refused``: group → why what it needs was not evicted."""

    def __init__(self, components: SchedulerComponents) -> None:
        self._components = components
        self.refused: dict[str, str] = {}
        self._deadlines: deque[tuple[float, str, str]] = deque()
        self._bound_counter = components.metrics.binds.labels("bound")

    @property
    def next_deadline(self) -> float | None:
        """The (monotonic) moment at which a bind that was not seen is to be looked up."""
        return self._deadlines[0][0] if self._deadlines else None

    def pod_changed(self, old: views.Pod | None, new: views.Pod | None) -> None:
        """The informer shows a change of a pod; the model has it already."""
        components = self._components
        if old is None and not components.takes_over:  # what was there before does not come
            components.backpressure.count()
        components.ledger.change(old, new)
        components.yield_to_others.change(old, new, components.clock.monotonic())
        if components.leads.is_set():
            components.run_times.pod(old, new)
        assumed = components.model.assumed.get(new.key) if new is not None else None
        if components.guard is not None:
            here = (
                assumed is not None
                and new is not None
                and (assumed.uid, assumed.node) == (new.uid, new.node_name)
            )
            components.guard.seen(
                old, new, components.clock.monotonic(), foreign=not (components.takes_over or here)
            )
        if new is None or not new.node_name or new.namespace == NAMESPACE:
            return  # what holds shared cards is ours
        if old is not None and old.node_name:
            if old.shape is not new.shape or old.annotations != new.annotations:
                components.conflicts.grown(new)
            return
        ours = assumed is not None and assumed.uid == new.uid
        if assumed is not None and ours:
            components.model.forget(new.key, new.uid)
            if assumed.node == new.node_name and components.conflicts.disputed(
                new.node_name, components.clock.monotonic()
            ):
                self._check_room(new)
        if components.takes_over:  # what was bound before is nobody's bind
            return
        if assumed is None or not ours or not assumed.shown_by(new):
            components.conflicts.seen(new, components.clock.monotonic())
        components.status_writer.pods.bound(new)

    def _check_room(self, pod: views.Pod) -> None:
        """Our bind came through; did another scheduler's come first and take the room?"""
        components = self._components
        overflow = components.ledger.overflow(pod, components.model.nodes.get(pod.node_name))
        if overflow is not None:
            log.warning("another scheduler took the room", pod=pod.key, node=pod.node_name, why=overflow)
            components.metrics.conflicts.labels("overcommitted").inc()
            message = f"{overflow}: another scheduler's pod was bound there first"
            goes = instead(pod, components.model, components.ledger)
            self._doubt_start(goes)
            components.evictor.submit(EvictionOrder(goes.key, goes.uid, evictions.OVERCOMMITTED, message))

    def _doubt_start(self, goes: views.Pod) -> None:
        """Whether its gang comes to its minimum again is watched, unless it was at work before."""
        components = self._components
        group = components.model.group_of(goes.key)
        since = components.time() - components.options().gang_seconds
        if group is not None and not components.model.started_before(group, since):
            components.gangs.doubt(group, components.clock.monotonic())

    def bound(self, result: BindResult) -> None:
        components = self._components
        bind = result.bind
        pod = components.model.pods.get(bind.task)
        seen = pod is not None and pod.uid == bind.uid and pod.node_name == bind.node
        if result.bound or seen:
            self._bind_succeeded(bind, result.seconds, pod)
        else:
            self._bind_failed(result)
        if components.traces is not None:
            fault = "" if result.bound or seen else result.message
            components.traces.bound(bind, result.seconds, components.time(), fault)
        components.wake()

    def _bind_succeeded(self, bind: Bind, seconds: float, pod: views.Pod | None) -> None:
        components = self._components
        self._bound_counter.inc()
        components.backpressure.count()
        components.metrics.bind_seconds.observe(seconds)
        if pod is not None and pod.created:
            components.metrics.wait_seconds.observe(max(0.0, components.clock.now() - pod.created))
        message = f"Successfully assigned {bind.task} to {bind.node}"
        node = components.model.nodes.get(bind.node)
        if pod is not None and node is not None:
            shared = more_units_than_devices(pod.shape.request, node.allocatable, node.labels)
            message += f"; it {shared}" if shared else ""
        components.event_buffer.say(_reference(bind), "Scheduled", message)
        if bind.task in components.model.assumed:
            due = components.clock.monotonic() + components.options().assume_seconds
            self._deadlines.append((due, bind.task, bind.uid))

    def _bind_failed(self, result: BindResult) -> None:
        components = self._components
        bind = result.bind
        components.metrics.binds.labels("gone" if result.gone else "failed").inc()
        say = log.info if result.recalled else log.warning
        say("bind failed", pod=bind.task, node=bind.node, why=result.message)
        taken = result.pod is not None and result.pod.uid == bind.uid and bool(result.pod.node_name)
        kind = "elsewhere" if taken else "gone" if result.gone else "recalled" if result.recalled else ""
        if kind:
            components.metrics.conflicts.labels(kind).inc()
        if not components.model.forget(bind.task, bind.uid):
            return
        if taken and result.pod is not None:
            self._learn(result.pod)
            return
        components.inbox.append(deltas.BindFailed(bind.task, bind.uid, result.message))
        if not result.gone:
            message = f"binding to {bind.node} failed: {result.message}"
            components.recorder.event(_reference(bind), "Warning", "FailedScheduling", message)

    def _learn(self, pod: views.Pod) -> None:
        """A pod as it was looked up, unless the informer has shown as much since."""
        known = self._components.model.pods.get(pod.key)
        if known is not None and known.uid == pod.uid and not known.node_name:
            self._components.model.upsert_pod(pod)

    def eviction_waits(self, order: EvictionOrder, why: str) -> None:
        """A budget refuses to let a pod go: that is why its claimer still waits."""
        if order.claimer:
            self.refused[order.claimer] = f"eviction of pod {order.key} is refused: {why}"

    def evicted(self, result: evictions.EvictionResult) -> None:
        components = self._components
        order = result.order
        outcome = "done" if result.evicted else "refused" if result.refused else "failed"
        components.metrics.evictions.labels(order.reason, outcome).inc()
        if result.evicted:
            self.refused.pop(order.claimer, None)
            return
        log.warning("eviction failed", pod=order.key, why=result.message)
        if result.refused:  # until there is news of its budgets, they allow nothing
            components.model.spare(order.key, components.time() + evictions.COOLING_SECONDS)
            components.inbox += [
                deltas.BudgetUpserted(key, 0) for key in components.model.budgets_of(order.key)
            ]
            components.recorder.event(
                ObjectRef("v1", "Pod", *_parts(order.key), order.uid),
                "Warning",
                "EvictionRefused",
                result.message,
            )
        components.inbox.append(deltas.EvictionFailed(order.key, order.uid, result.message))
        components.wake()

    # ------------------------------------------------------------------ what does not come back

    def expire(self) -> None:
        components = self._components
        now = components.clock.monotonic()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, key, uid = self._deadlines.popleft()
            assumed = components.model.assumed.get(key)
            if assumed is not None and assumed.uid == uid:
                components.task_group.start(self._look_up(key, uid), f"look up {key}")
        components.conflicts.forget(now)
        for group in components.gangs.take_overdue(now):
            self._evict_incomplete(group)

    async def _look_up(self, key: str, uid: str) -> None:
        """A bind that succeeded but was never seen: what became of the pod?"""
        components = self._components
        try:
            pod = await components.binder.look_up(key)
        except (StatusError, Unreachable) as error:
            log.warning("look-up failed", pod=key, why=error.message)
            self._deadlines.append(
                (components.clock.monotonic() + components.options().assume_seconds, key, uid)
            )
            return
        if not components.model.forget(key, uid):
            return
        if pod is not None and pod.uid == uid and pod.node_name:
            self._learn(pod)
        else:
            components.inbox.append(deltas.BindFailed(key, uid, "the binding did not last"))
        components.wake()

    def _evict_incomplete(self, group: str) -> None:
        components = self._components
        left = [
            p for p in components.model.pods_of(group) if p.node_name and not p.finished and not p.deleted
        ]
        if not left:
            return  # the last of it is on its way out
        shown = shown_key(group)
        patience = components.options().gang_seconds
        message = f"gang {shown} did not reach its minimum within {patience:g} s of its last progress"
        log.warning("gang incomplete", group=shown)
        components.status_writer.gang_failed(group, message)
        components.group_counters.loses(group, NOT_READY, components.time())
        for pod in left:
            components.evictor.submit(EvictionOrder(pod.key, pod.uid, evictions.GANG_BIND_FAILED, message))


def _parts(key: str) -> tuple[str, str]:
    namespace, _, name = key.partition("/")
    return namespace, name


def _reference(bind: Bind) -> ObjectRef:
    return ObjectRef("v1", "Pod", *_parts(bind.task), bind.uid)
