"""Carries out evictions: says why on the pod, then deletes it with its grace.

The condition is Kubernetes' ``DisruptionTarget``; the deletion names the uid, so that a pod of the same
name that came later is never hit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from windlass.api import resources
from windlass.api.errors import StatusError
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.engine.decision import Eviction
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.kits.timestamps import rfc3339
from windlass.model.groups import shown_key
from windlass.scheduler.writes import WriteQueue

GANG_BIND_FAILED = "GangBindFailed"
PREEMPTION = "PreemptionByScheduler"
OVERCOMMITTED = "NodeOvercommitted"


@dataclass(frozen=True, slots=True)
class Order:
    """One eviction: ``reason`` is that of the condition and of the event."""

    key: str
    uid: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Result:
    """``evicted`` is also true for a pod that was gone already."""

    order: Order
    evicted: bool
    message: str = ""


def order_for(eviction: Eviction) -> Order:
    """What an engine's eviction is called on the pod."""
    message = f"evicted by {eviction.action}"
    if eviction.claimer:
        message += f" to make room for {shown_key(eviction.claimer)}"
    return Order(eviction.task, eviction.uid, PREEMPTION, message)


class Evictor:
    """``done`` is called once per order."""

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        done: Callable[[Result], None],
        *,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._done = done
        self._clock = clock
        self._orders: dict[str, Order] = {}
        self._queue = WriteQueue(self._write, clock=clock, rng=rng, concurrency=8)

    def submit(self, order: Order) -> None:
        """Carry out, unless the same pod is being evicted already."""
        known = self._orders.get(order.key)
        if known is not None and known.uid == order.uid:
            return
        self._orders[order.key] = order
        self._queue.wish(order.key)

    async def run(self) -> None:
        await self._queue.run()

    async def _write(self, key: str) -> None:
        order = self._orders[key]
        namespace, _, name = key.partition("/")
        try:
            await self._tell(order, namespace, name)
            await self._client.delete(resources.PODS, name, namespace, uid=order.uid)
        except StatusError as error:
            if error.code in (429, 500, 503, 504):
                raise  # tried again
            del self._orders[key]
            gone = error.code == 404 or (error.code in (409, 422) and "uid" in error.message.lower())
            self._done(Result(order, gone, error.message))
            return
        except Unreachable:
            raise  # tried again
        del self._orders[key]
        ref = ObjectRef("v1", "Pod", namespace, name, order.uid)
        self._recorder.event(ref, "Warning", order.reason, order.message)
        self._done(Result(order, True))

    async def _tell(self, order: Order, namespace: str, name: str) -> None:
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": order.reason,
            "message": order.message,
            "lastTransitionTime": rfc3339(self._clock.now()),
        }
        patch = {"metadata": {"uid": order.uid}, "status": {"conditions": [condition]}}
        await self._client.patch(
            resources.PODS, name, patch, namespace, kind="strategic", subresource="status"
        )
