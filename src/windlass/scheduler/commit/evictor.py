"""Evictor: evicts pods with their grace periods, and writes the reason on each pod.

Victims of other groups are evicted through the Eviction API, which respects
PodDisruptionBudgets. If a budget rejects an eviction, it is repeated for a while. After
that it has failed, and the preemptor is placed elsewhere. Pods that must not stay where
they are (a gang below its minimum, a pod on an overcommitted node) are deleted: no
budget counts on them.

The record of a group's evictions (:mod:`windlass.scheduler.commit.eviction_record`) is
written first. If it cannot be, the pods are evicted without it.

The condition is Kubernetes' ``DisruptionTarget``. Evictions and deletions name the uid,
so a later pod of the same name is never affected. The API server writes a condition of
its own with an eviction. Windlass' condition follows it, and a deletion follows
Windlass' condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from windlass.api import resources, views
from windlass.api.errors import StatusError
from windlass.client.client import Client
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.client.responses import is_another, is_missing, may_pass, refusal_by_budget
from windlass.engine.decision import Eviction
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.kits.timestamps import rfc3339
from windlass.model.groups.podgroups import job_title
from windlass.observe import logs
from windlass.scheduler.commit.bind_batch import PreBindWrite
from windlass.scheduler.pod_conditions import condition
from windlass.scheduler.write_queue import WriteQueue

GANG_BIND_FAILED = "GangBindFailed"
PREEMPTION = "PreemptionByScheduler"
OVERCOMMITTED = "NodeOvercommitted"
DEVICE_LOST = "CardReservationLost"
PATIENCE_SECONDS = 15.0
"""Timeout in seconds of an eviction that a budget rejects."""
COOLING_SECONDS = 60.0
"""Interval in seconds between the rejection of a pod's eviction and the next attempt."""
BROKEN_SECONDS = 60.0
"""Timeout in seconds of a victim's eviction that fails inside the server.

An unreachable webhook is an example. The preemptor is then placed elsewhere, and its
reserved capacity is released.
"""
CONDITION_SECONDS = 5.0
"""Timeout in seconds of writing the reason on a pod before it is evicted without one."""
LEASE_CHECK_SECONDS = 0.5
"""Interval in seconds between checks of the lease while another instance may lead."""
log = logs.get("scheduler")
WITHOUT_BUDGETS = ("stale-gang",)
"""Actions that ignore budgets, since the pods are of no use as they are."""
_SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
_OVERLOADED = (429, 503, 504)


@dataclass(frozen=True, slots=True)
class EvictionOrder:
    """One eviction.

    ``reason``: of the condition and of the event.
    ``preemptor``: the group that needs the capacity.
    ``guarded``: PodDisruptionBudgets are respected.
    """

    key: str
    uid: str
    reason: str
    message: str
    preemptor: str = ""
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class EvictionResult:
    """End of one eviction.

    ``evicted`` is also true for a pod that did not exist any more. ``rejected``: by a
    budget.
    """

    order: EvictionOrder
    evicted: bool
    message: str = ""
    rejected: bool = False


@dataclass(frozen=True, slots=True)
class _Held:
    """Orders that wait for a write."""

    write: PreBindWrite
    orders: tuple[EvictionOrder, ...]


@dataclass(slots=True)
class _Rejection:
    uid: str
    since: float
    until: float = 0.0


def order_for(eviction: Eviction) -> EvictionOrder:
    """Return the order for an eviction that the engine has decided."""
    message = f"evicted by {eviction.action}"
    if eviction.preemptor:
        message += f" to free capacity for {job_title(eviction.preemptor)}"
    elif eviction.reason:
        message += f": {eviction.reason}"
    guarded = eviction.action not in WITHOUT_BUDGETS
    return EvictionOrder(eviction.task, eviction.uid, PREEMPTION, message, eviction.preemptor, guarded)


def _joined(earlier: PreBindWrite, later: PreBindWrite) -> PreBindWrite:
    """Return one write of annotations on an object for two of them."""
    before, metadata = earlier.body["metadata"], later.body["metadata"]
    if before.get("uid") != metadata.get("uid"):
        return later
    merged = {**before["annotations"], **metadata["annotations"]}
    return replace(later, body={"metadata": {**metadata, "annotations": merged}})


def _has_several_budgets(error: StatusError) -> bool:
    """Return whether a pod has more budgets than the Eviction API supports."""
    return error.code == 500 and _SEVERAL_BUDGETS in error.message


def _reason(error: StatusError) -> str:
    return refusal_by_budget(error) or error.message


class Evictor:
    """Evicts pods.

    ``pods``: as the informer shows them.
    ``done(result)``: called once per order.
    ``delayed(order, why)``: called whenever a budget rejects an eviction for now.
    ``holds_lease()``: whether no other instance can lead. No pod is evicted before.
    """

    def __init__(
        self,
        client: Client,
        pods: Mapping[str, views.Pod],
        recorder: EventRecorder,
        done: Callable[[EvictionResult], None],
        *,
        delayed: Callable[[EvictionOrder, str], None] = lambda _order, _why: None,
        holds_lease: Callable[[], bool] = lambda: True,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._client = client
        self._pods = pods
        self._recorder = recorder
        self._done = done
        self._delayed = delayed
        self._clock = clock
        self._orders: dict[str, EvictionOrder] = {}
        self._evicted: set[str] = set()
        """Evicted pods without a condition yet."""
        self._rejections: dict[str, _Rejection] = {}
        self._failing_since: dict[str, float] = {}
        """Key of a write that fails inside the server → since when."""
        self._held: dict[str, _Held] = {}
        self._queue = WriteQueue(
            self._write,
            clock=clock,
            rng=rng,
            concurrency=8,
            outages=client.outages,
            postpone=lambda _: 0.0 if holds_lease() else LEASE_CHECK_SECONDS,
        )

    def submit_together(self, orders: Sequence[EvictionOrder], write: PreBindWrite | None) -> None:
        """Evict pods of one group after ``write`` has been performed or has failed."""
        if write is None:
            for order in orders:
                self.submit(order)
            return
        key = f"{write.resource.api_version} {write.namespace}/{write.name}"
        held = self._held.get(key)
        if held is not None:
            write = _joined(held.write, write)
        self._held[key] = _Held(write, (*(held.orders if held is not None else ()), *orders))
        self._queue.enqueue(key)

    def submit(self, order: EvictionOrder) -> None:
        """Evict a pod, unless it is being evicted already.

        An order that ignores budgets replaces one that respects them.
        """
        known = self._orders.get(order.key)
        if known is not None and known.uid == order.uid and (order.guarded or not known.guarded):
            return
        self._orders[order.key] = order
        self._evicted.discard(order.key)
        self._failing_since.pop(order.key, None)
        rejection = self._rejections.get(order.key)
        if rejection is not None and (rejection.uid != order.uid or not order.guarded):
            del self._rejections[order.key]
            rejection = None
        self._queue.drop(order.key)
        self._queue.enqueue(
            order.key, max(0.0, rejection.until - self._clock.monotonic()) if rejection else 0.0
        )

    async def run(self) -> None:
        await self._queue.run()

    async def _write(self, key: str) -> None:
        """Perform one eviction or record.

        Raises errors that are worth another attempt.
        """
        if key in self._held:
            await self._write_record(key)
            return
        order = self._orders.get(key)
        if order is None:
            return
        namespace, _, name = key.partition("/")
        try:
            if not order.guarded:
                await self._write_condition(order, namespace, name)
                await self._client.delete(resources.PODS, name, namespace, uid=order.uid)
            else:
                await self._evict(order, namespace, name)
        except StatusError as error:
            if self._orders.get(key) is not order:
                return
            gone = is_missing(error) or is_another(error)
            if not gone and not self._is_final(order, error):
                raise
            rejected = bool(refusal_by_budget(error)) or _has_several_budgets(error)
            if rejected:
                self._cool(order)
            self._finish(order, EvictionResult(order, gone, _reason(error), rejected))
            return
        if self._orders.get(key) is not order:
            return
        ref = ObjectRef("v1", "Pod", namespace, name, order.uid)
        self._recorder.event(ref, "Warning", order.reason, order.message)
        self._finish(order, EvictionResult(order, True))

    async def _write_record(self, key: str) -> None:
        held = self._held[key]
        write = held.write
        try:
            await self._client.patch(write.resource, write.name, write.body, write.namespace)
        except StatusError as error:
            final = is_missing(error) or is_another(error) or not self._queue.repeats(key, error)
            if not final and not self._fails_for(key, CONDITION_SECONDS):
                raise
            log.warning("evicting without a record", object=write.description, why=error.message)
        self._failing_since.pop(key, None)
        if self._held[key] is not held:  # there is more to write by now
            return
        del self._held[key]
        for order in held.orders:
            self.submit(order)

    async def _evict(self, order: EvictionOrder, namespace: str, name: str) -> None:
        if order.key not in self._evicted:
            await self._client.evict(namespace, name, uid=order.uid)
            self._evicted.add(order.key)
            self._failing_since.pop(order.key, None)
        await self._write_condition(order, namespace, name)

    async def _write_condition(self, order: EvictionOrder, namespace: str, name: str) -> None:
        """Write the condition. A failure prevents no eviction."""
        target = condition(self._pods.get(order.key), "DisruptionTarget", "True", order.reason, order.message)
        target["lastTransitionTime"] = rfc3339(self._clock.now())
        patch = {"metadata": {"uid": order.uid}, "status": {"conditions": [target]}}
        try:
            await self._client.patch(
                resources.PODS, name, patch, namespace, kind="strategic", subresource="status"
            )
        except StatusError as error:
            if may_pass(error) and not self._fails_for(order.key, CONDITION_SECONDS):
                raise
            log.debug("condition not written", pod=order.key, why=error.message)

    def _finish(self, order: EvictionOrder, result: EvictionResult) -> None:
        del self._orders[order.key]
        self._evicted.discard(order.key)
        self._failing_since.pop(order.key, None)
        if result.evicted:
            self._rejections.pop(order.key, None)
        self._done(result)

    def _is_final(self, order: EvictionOrder, error: StatusError) -> bool:
        """Return whether a failed eviction is not repeated."""
        if refusal_by_budget(error):
            return self._is_rejected_for_long(order, error)
        if _has_several_budgets(error) or not self._queue.repeats(order.key, error):
            return True
        return self._is_broken(order, error)

    def _is_broken(self, order: EvictionOrder, error: StatusError) -> bool:
        """Return whether a victim's eviction has failed inside the server for too long.

        Pods that must not stay where they are have no such timeout.
        """
        if error.code in _OVERLOADED or not order.guarded or order.key in self._evicted:
            return False
        self._delayed(order, error.message)
        return self._fails_for(order.key, BROKEN_SECONDS)

    def _fails_for(self, key: str, seconds: float) -> bool:
        """Record a failure. Return whether failures have lasted for ``seconds``."""
        now = self._clock.monotonic()
        return now - self._failing_since.setdefault(key, now) >= seconds

    def _is_rejected_for_long(self, order: EvictionOrder, error: StatusError) -> bool:
        """Record a budget's rejection. Return whether to give up."""
        now = self._clock.monotonic()
        rejection = self._rejections.get(order.key)
        if rejection is None or rejection.until:
            rejection = self._rejections[order.key] = _Rejection(order.uid, now)
        self._delayed(order, _reason(error))
        return now - rejection.since >= PATIENCE_SECONDS

    def _cool(self, order: EvictionOrder) -> None:
        now = self._clock.monotonic()
        self._rejections = {key: r for key, r in self._rejections.items() if not r.until or r.until > now}
        self._rejections[order.key] = _Rejection(order.uid, now, now + COOLING_SECONDS)
