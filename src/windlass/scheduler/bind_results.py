"""What comes back from the API server: pods as they change, the outcomes of binds and evictions, and what never comes.

Invariants: a decided bind counts as done until the pod shows it, its failure is known, or it was looked up; whatever
the engine must know of it becomes a delta of the next cycle.
"""

from __future__ import annotations

from collections import deque

from windlass.api import views
from windlass.api.devices.plugin_units import more_than_cards
from windlass.api.errors import StatusError
from windlass.client.errors import Unreachable
from windlass.client.recorder import ObjectRef
from windlass.engine import deltas
from windlass.engine.decision import Bind
from windlass.model.devices.reserved_devices import NAMESPACE
from windlass.model.groups.podgroups import shown_key
from windlass.observe import logs
from windlass.scheduler.commit import evictor as evictions
from windlass.scheduler.commit.binder import Outcome
from windlass.scheduler.commit.conflict_detector import instead
from windlass.scheduler.commit.evictor import Order
from windlass.scheduler.components import Crew
from windlass.scheduler.observability.group_counters import NOT_READY

log = logs.get("scheduler")


class Returns:
    """``refused``: group → why what it needs was not evicted."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self.refused: dict[str, str] = {}
        self._deadlines: deque[tuple[float, str, str]] = deque()
        self._bound_counter = crew.metrics.binds.labels("bound")

    @property
    def next_deadline(self) -> float | None:
        """The (monotonic) moment at which a bind that was not seen is to be looked up."""
        return self._deadlines[0][0] if self._deadlines else None

    def pod_changed(self, old: views.Pod | None, new: views.Pod | None) -> None:
        """The informer shows a change of a pod; the model has it already."""
        crew = self._crew
        if old is None and not crew.takes_over:  # what was there before does not come
            crew.rush.count()
        crew.ledger.change(old, new)
        crew.courtesy.change(old, new, crew.clock.monotonic())
        if crew.leads.is_set():
            crew.run_times.pod(old, new)
        assumed = crew.model.assumed.get(new.key) if new is not None else None
        if crew.guard is not None:
            here = (
                assumed is not None
                and new is not None
                and (assumed.uid, assumed.node) == (new.uid, new.node_name)
            )
            crew.guard.seen(old, new, crew.clock.monotonic(), foreign=not (crew.takes_over or here))
        if new is None or not new.node_name or new.namespace == NAMESPACE:
            return  # what holds shared cards is ours
        if old is not None and old.node_name:
            if old.shape is not new.shape or old.annotations != new.annotations:
                crew.contest.grown(new)
            return
        ours = assumed is not None and assumed.uid == new.uid
        if assumed is not None and ours:
            crew.model.forget(new.key, new.uid)
            if assumed.node == new.node_name and crew.contest.disputed(new.node_name, crew.clock.monotonic()):
                self._check_room(new)
        if crew.takes_over:  # what was bound before is nobody's bind
            return
        if assumed is None or not ours or not assumed.shown_by(new):
            crew.contest.seen(new, crew.clock.monotonic())
        crew.publisher.pods.bound(new)

    def _check_room(self, pod: views.Pod) -> None:
        """Our bind came through; did another scheduler's come first and take the room?"""
        crew = self._crew
        overflow = crew.ledger.overflow(pod, crew.model.nodes.get(pod.node_name))
        if overflow is not None:
            log.warning("another scheduler took the room", pod=pod.key, node=pod.node_name, why=overflow)
            crew.metrics.conflicts.labels("overcommitted").inc()
            message = f"{overflow}: another scheduler's pod was bound there first"
            goes = instead(pod, crew.model, crew.ledger)
            self._doubt_start(goes)
            crew.evictor.submit(Order(goes.key, goes.uid, evictions.OVERCOMMITTED, message))

    def _doubt_start(self, goes: views.Pod) -> None:
        """Whether its gang comes to its minimum again is watched, unless it was at work before."""
        crew = self._crew
        group = crew.model.group_of(goes.key)
        since = crew.time() - crew.options().gang_seconds
        if group is not None and not crew.model.started_before(group, since):
            crew.gangs.doubt(group, crew.clock.monotonic())

    def bound(self, outcome: Outcome) -> None:
        crew = self._crew
        bind = outcome.bind
        pod = crew.model.pods.get(bind.task)
        seen = pod is not None and pod.uid == bind.uid and pod.node_name == bind.node
        if outcome.bound or seen:
            self._bind_succeeded(bind, outcome.seconds, pod)
        else:
            self._bind_failed(outcome)
        if crew.journeys is not None:
            fault = "" if outcome.bound or seen else outcome.message
            crew.journeys.bound(bind, outcome.seconds, crew.time(), fault)
        crew.wake()

    def _bind_succeeded(self, bind: Bind, seconds: float, pod: views.Pod | None) -> None:
        crew = self._crew
        self._bound_counter.inc()
        crew.rush.count()
        crew.metrics.bind_seconds.observe(seconds)
        if pod is not None and pod.created:
            crew.metrics.wait_seconds.observe(max(0.0, crew.clock.now() - pod.created))
        message = f"Successfully assigned {bind.task} to {bind.node}"
        node = crew.model.nodes.get(bind.node)
        if pod is not None and node is not None:
            shared = more_than_cards(pod.shape.request, node.allocatable, node.labels)
            message += f"; it {shared}" if shared else ""
        crew.announcer.say(_reference(bind), "Scheduled", message)
        if bind.task in crew.model.assumed:
            due = crew.clock.monotonic() + crew.options().assume_seconds
            self._deadlines.append((due, bind.task, bind.uid))

    def _bind_failed(self, outcome: Outcome) -> None:
        crew = self._crew
        bind = outcome.bind
        crew.metrics.binds.labels("gone" if outcome.gone else "failed").inc()
        say = log.info if outcome.recalled else log.warning
        say("bind failed", pod=bind.task, node=bind.node, why=outcome.message)
        taken = outcome.pod is not None and outcome.pod.uid == bind.uid and bool(outcome.pod.node_name)
        kind = "elsewhere" if taken else "gone" if outcome.gone else "recalled" if outcome.recalled else ""
        if kind:
            crew.metrics.conflicts.labels(kind).inc()
        if not crew.model.forget(bind.task, bind.uid):
            return
        if taken and outcome.pod is not None:
            self._learn(outcome.pod)
            return
        crew.inbox.append(deltas.BindFailed(bind.task, bind.uid, outcome.message))
        if not outcome.gone:
            message = f"binding to {bind.node} failed: {outcome.message}"
            crew.recorder.event(_reference(bind), "Warning", "FailedScheduling", message)

    def _learn(self, pod: views.Pod) -> None:
        """A pod as it was looked up, unless the informer has shown as much since."""
        known = self._crew.model.pods.get(pod.key)
        if known is not None and known.uid == pod.uid and not known.node_name:
            self._crew.model.upsert_pod(pod)

    def eviction_waits(self, order: Order, why: str) -> None:
        """A budget refuses to let a pod go: that is why its claimer still waits."""
        if order.claimer:
            self.refused[order.claimer] = f"eviction of pod {order.key} is refused: {why}"

    def evicted(self, result: evictions.Result) -> None:
        crew = self._crew
        order = result.order
        outcome = "done" if result.evicted else "refused" if result.refused else "failed"
        crew.metrics.evictions.labels(order.reason, outcome).inc()
        if result.evicted:
            self.refused.pop(order.claimer, None)
            return
        log.warning("eviction failed", pod=order.key, why=result.message)
        if result.refused:  # until there is news of its budgets, they allow nothing
            crew.model.spare(order.key, crew.time() + evictions.COOLING_SECONDS)
            crew.inbox += [deltas.BudgetUpserted(key, 0) for key in crew.model.budgets_of(order.key)]
            crew.recorder.event(
                ObjectRef("v1", "Pod", *_parts(order.key), order.uid),
                "Warning",
                "EvictionRefused",
                result.message,
            )
        crew.inbox.append(deltas.EvictionFailed(order.key, order.uid, result.message))
        crew.wake()

    # ------------------------------------------------------------------ what does not come back

    def expire(self) -> None:
        crew = self._crew
        now = crew.clock.monotonic()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, key, uid = self._deadlines.popleft()
            assumed = crew.model.assumed.get(key)
            if assumed is not None and assumed.uid == uid:
                crew.keeper.start(self._look_up(key, uid), f"look up {key}")
        crew.contest.forget(now)
        for group in crew.gangs.take_overdue(now):
            self._evict_incomplete(group)

    async def _look_up(self, key: str, uid: str) -> None:
        """A bind that succeeded but was never seen: what became of the pod?"""
        crew = self._crew
        try:
            pod = await crew.binder.look_up(key)
        except (StatusError, Unreachable) as error:
            log.warning("look-up failed", pod=key, why=error.message)
            self._deadlines.append((crew.clock.monotonic() + crew.options().assume_seconds, key, uid))
            return
        if not crew.model.forget(key, uid):
            return
        if pod is not None and pod.uid == uid and pod.node_name:
            self._learn(pod)
        else:
            crew.inbox.append(deltas.BindFailed(key, uid, "the binding did not last"))
        crew.wake()

    def _evict_incomplete(self, group: str) -> None:
        crew = self._crew
        left = [p for p in crew.model.pods_of(group) if p.node_name and not p.finished and not p.deleted]
        if not left:
            return  # the last of it is on its way out
        shown = shown_key(group)
        patience = crew.options().gang_seconds
        message = f"gang {shown} did not reach its minimum within {patience:g} s of its last progress"
        log.warning("gang incomplete", group=shown)
        crew.publisher.gang_failed(group, message)
        crew.milestones.loses(group, NOT_READY, crew.time())
        for pod in left:
            crew.evictor.submit(Order(pod.key, pod.uid, evictions.GANG_BIND_FAILED, message))


def _parts(key: str) -> tuple[str, str]:
    namespace, _, name = key.partition("/")
    return namespace, name


def _reference(bind: Bind) -> ObjectRef:
    return ObjectRef("v1", "Pod", *_parts(bind.task), bind.uid)
