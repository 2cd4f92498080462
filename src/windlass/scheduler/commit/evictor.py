"""Carries out evictions, each with its grace, and says why on the pod.

Who goes to make room for others is evicted through the Eviction API: PodDisruptionBudgets are kept. Where one
refuses, it is asked again for a while; then the eviction has failed, and the claimer looks elsewhere. Who has to go
because he should not be where he is (a gang below its minimum, a node with one pod too many) is
deleted: he was never part of what a budget counts on.

What goes before a group's evictions (:mod:`.leaving`) is written first; if it cannot be, they go without.

The condition is Kubernetes' ``DisruptionTarget``. Evictions and deletions name the uid, so that a pod of the
same name that came later is never hit. The API server writes a condition of its own with an eviction; ours
follows it, and a deletion follows ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from windlass.api import resources, views
from windlass.api.errors import StatusError
from windlass.client.client import Client
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.client.responses import is_another, is_missing, may_pass, refusal_by_budget
from windlass.engine.decision import Eviction
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.kits.timestamps import rfc3339
from windlass.model.groups.podgroups import shown_key
from windlass.observe import logs
from windlass.scheduler.commit.binder import PreBindWrite
from windlass.scheduler.pod_conditions import condition
from windlass.scheduler.write_queue import WriteQueue

GANG_BIND_FAILED = "GangBindFailed"
PREEMPTION = "PreemptionByScheduler"
OVERCOMMITTED = "NodeOvercommitted"
DEVICE_LOST = "CardReservationLost"
PATIENCE_SECONDS = 15.0
"""So long is a budget that refuses asked again."""
COOLING_SECONDS = 60.0
"""A pod whose eviction was refused for good is not asked to go again before this has passed."""
BROKEN_SECONDS = 60.0
"""An eviction for a claimer that fails inside the server for so long (a webhook that nobody answers) has failed: the
claimer looks elsewhere, and its room is not kept for ever."""
TELL_SECONDS = 5.0
UNSURE_SECONDS = 0.5
"""So long is tried to say why a pod goes, before it goes untold."""
log = logs.get("scheduler")
UNGUARDED = ("stale-gang",)
"""Actions that take away what is worth nothing as it is."""
_SEVERAL = "more than one PodDisruptionBudget"
_OVERLOADED = (429, 503, 504)


@dataclass(frozen=True, slots=True)
class EvictionOrder:
    """One eviction: ``reason`` is that of the condition and of the event. ``claimer``: the group that the room is
    for. ``guarded``: budgets are asked."""

    key: str
    uid: str
    reason: str
    message: str
    claimer: str = ""
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class EvictionResult:
    """``evicted`` is also true for a pod that was gone already. ``refused``: a budget said no."""

    order: EvictionOrder
    evicted: bool
    message: str = ""
    refused: bool = False


@dataclass(frozen=True, slots=True)
class _Held:
    """Orders that wait until something is written."""

    write: PreBindWrite
    orders: tuple[EvictionOrder, ...]


@dataclass(slots=True)
class _Refusal:
    uid: str
    since: float
    until: float = 0.0


def order_for(eviction: Eviction) -> EvictionOrder:
    """What an engine's eviction is called on the pod."""
    message = f"evicted by {eviction.action}"
    if eviction.claimer:
        message += f" to make room for {shown_key(eviction.claimer)}"
    elif eviction.why:
        message += f": {eviction.why}"
    guarded = eviction.action not in UNGUARDED
    return EvictionOrder(eviction.task, eviction.uid, PREEMPTION, message, eviction.claimer, guarded)


def _is_of_several(error: StatusError) -> bool:
    """Whether a pod has more budgets than the Eviction API can judge."""
    return error.code == 500 and _SEVERAL in error.message


def _why(error: StatusError) -> str:
    return refusal_by_budget(error) or error.message


class Evictor:
    """``pods`` as the watch shows them. ``done`` is called once per order, ``waits`` whenever a budget refuses one for
    now. While it is not ``sure`` that nobody else leads nobody is evicted."""

    def __init__(
        self,
        client: Client,
        pods: Mapping[str, views.Pod],
        recorder: EventRecorder,
        done: Callable[[EvictionResult], None],
        *,
        waits: Callable[[EvictionOrder, str], None] = lambda _order, _why: None,
        sure: Callable[[], bool] = lambda: True,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._client = client
        self._pods = pods
        self._recorder = recorder
        self._done = done
        self._waits = waits
        self._clock = clock
        self._orders: dict[str, EvictionOrder] = {}
        self._going: set[str] = set()
        """Evicted, but not told yet."""
        self._refusals: dict[str, _Refusal] = {}
        self._broken: dict[str, float] = {}
        """Since when evictions, their conditions, or what goes before them, fail inside the server."""
        self._held: dict[str, _Held] = {}
        self._queue = WriteQueue(
            self._write,
            clock=clock,
            rng=rng,
            concurrency=8,
            outages=client.outages,
            later=lambda _: 0.0 if sure() else UNSURE_SECONDS,
        )

    def submit_together(self, orders: Sequence[EvictionOrder], write: PreBindWrite | None) -> None:
        """Carry out those of one group, once ``write`` stands on its object, or cannot."""
        if write is None:
            for order in orders:
                self.submit(order)
            return
        key = f"{write.resource.api_version} {write.namespace}/{write.name}"
        held = self._held.get(key)
        self._held[key] = _Held(write, (*(held.orders if held is not None else ()), *orders))
        self._queue.wish(key)

    def submit(self, order: EvictionOrder) -> None:
        """Carry out, unless the same pod is being evicted already. One that need not ask budgets goes before
        one that does."""
        known = self._orders.get(order.key)
        if known is not None and known.uid == order.uid and (order.guarded or not known.guarded):
            return
        self._orders[order.key] = order
        self._going.discard(order.key)
        self._broken.pop(order.key, None)
        refusal = self._refusals.get(order.key)
        if refusal is not None and (refusal.uid != order.uid or not order.guarded):
            del self._refusals[order.key]
            refusal = None
        self._queue.drop(order.key)
        self._queue.wish(order.key, max(0.0, refusal.until - self._clock.monotonic()) if refusal else 0.0)

    async def run(self) -> None:
        await self._queue.run()

    async def _write(self, key: str) -> None:
        """Raises what is worth trying again."""
        if key in self._held:
            await self._write_first(key)
            return
        order = self._orders.get(key)
        if order is None:
            return
        namespace, _, name = key.partition("/")
        try:
            if not order.guarded:
                await self._say(order, namespace, name)
                await self._client.delete(resources.PODS, name, namespace, uid=order.uid)
            else:
                await self._evict(order, namespace, name)
        except StatusError as error:
            if self._orders.get(key) is not order:
                return
            gone = is_missing(error) or is_another(error)
            if not gone and not self._is_final(order, error):
                raise
            refused = bool(refusal_by_budget(error)) or _is_of_several(error)
            if refused:
                self._cool(order)
            self._end(order, EvictionResult(order, gone, _why(error), refused))
            return
        if self._orders.get(key) is not order:
            return
        ref = ObjectRef("v1", "Pod", namespace, name, order.uid)
        self._recorder.event(ref, "Warning", order.reason, order.message)
        self._end(order, EvictionResult(order, True))

    async def _write_first(self, key: str) -> None:
        held = self._held[key]
        write = held.write
        try:
            await self._client.patch(write.resource, write.name, write.body, write.namespace)
        except StatusError as error:
            lasts = is_missing(error) or is_another(error) or not self._queue.repeats(key, error)
            if not lasts and not self._fails_for(key, TELL_SECONDS):
                raise
            log.warning("not written before evictions", object=write.what, why=error.message)
        self._broken.pop(key, None)
        if self._held[key] is not held:  # there is more to write by now
            return
        del self._held[key]
        for order in held.orders:
            self.submit(order)

    async def _evict(self, order: EvictionOrder, namespace: str, name: str) -> None:
        if order.key not in self._going:
            await self._client.evict(namespace, name, uid=order.uid)
            self._going.add(order.key)
            self._broken.pop(order.key, None)
        await self._say(order, namespace, name)

    async def _say(self, order: EvictionOrder, namespace: str, name: str) -> None:
        """Write the condition. That it cannot be written keeps nobody from going."""
        try:
            await self._tell(order, namespace, name)
        except StatusError as error:
            if may_pass(error) and not self._fails_for(order.key, TELL_SECONDS):
                raise
            log.debug("condition not written", pod=order.key, why=error.message)

    def _end(self, order: EvictionOrder, result: EvictionResult) -> None:
        del self._orders[order.key]
        self._going.discard(order.key)
        self._broken.pop(order.key, None)
        if result.evicted:
            self._refusals.pop(order.key, None)
        self._done(result)

    def _is_final(self, order: EvictionOrder, error: StatusError) -> bool:
        """Whether a no is the last word."""
        if refusal_by_budget(error):
            return self._given_up(order, error)
        if _is_of_several(error) or not self._queue.repeats(order.key, error):
            return True
        return self._is_broken(order, error)

    def _is_broken(self, order: EvictionOrder, error: StatusError) -> bool:
        """The server failed once more to evict for a claimer; whether that is enough. (Who has to go in any case is
        asked to go for ever.)"""
        if error.code in _OVERLOADED or not order.guarded or order.key in self._going:
            return False
        self._waits(order, error.message)
        return self._fails_for(order.key, BROKEN_SECONDS)

    def _fails_for(self, key: str, seconds: float) -> bool:
        """Something failed once more. Whether it has for so long."""
        now = self._clock.monotonic()
        return now - self._broken.setdefault(key, now) >= seconds

    def _given_up(self, order: EvictionOrder, error: StatusError) -> bool:
        """A budget said no once more; whether that is enough."""
        now = self._clock.monotonic()
        refusal = self._refusals.get(order.key)
        if refusal is None or refusal.until:
            refusal = self._refusals[order.key] = _Refusal(order.uid, now)
        self._waits(order, _why(error))
        return now - refusal.since >= PATIENCE_SECONDS

    def _cool(self, order: EvictionOrder) -> None:
        now = self._clock.monotonic()
        self._refusals = {key: r for key, r in self._refusals.items() if not r.until or r.until > now}
        self._refusals[order.key] = _Refusal(order.uid, now, now + COOLING_SECONDS)

    async def _tell(self, order: EvictionOrder, namespace: str, name: str) -> None:
        target = condition(self._pods.get(order.key), "DisruptionTarget", "True", order.reason, order.message)
        target["lastTransitionTime"] = rfc3339(self._clock.now())
        patch = {"metadata": {"uid": order.uid}, "status": {"conditions": [target]}}
        await self._client.patch(
            resources.PODS, name, patch, namespace, kind="strategic", subresource="status"
        )
