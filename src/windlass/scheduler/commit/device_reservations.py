"""Reservations of devices that device plugins hand out whole, for the pods that share them.

Before the binds of a batch are sent, each shared device without a reservation gets a
pod that reserves it (:mod:`windlass.scheduler.commit.reservation_pod`), all devices at
once. The batch waits until every kubelet has named its device. If one does not within
the timeout, no bind of the batch is sent, and no further device of the node is shared
for a while. A reservation that is not used any more is deleted. A pod that uses a
device without a reservation is evicted, since the kubelet may give the device to
another pod.

Invariants:

* A pod is bound to a device only while that is reserved. This is checked again just
  before each bind is sent.
* Only the leader creates and deletes reservations. The lease is checked just before, as
  for binds.
* All state is on the objects. The next leader finds the reservations, uses those that
  are meant for something, and deletes the others.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from windlass.api import resources, views
from windlass.api.errors import StatusError
from windlass.api.reasons import Reason
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.responses import is_another, is_missing, may_pass
from windlass.engine.decision import Bind
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.devices.reserved_devices import NAMESPACE, Slot
from windlass.observe import logs
from windlass.scheduler.commit.bind_batch import Condition
from windlass.scheduler.commit.evictor import DEVICE_LOST, EvictionOrder, Evictor
from windlass.scheduler.commit.reservation_pod import name_of, reservation_pod
from windlass.scheduler.leader.leadership import Leadership
from windlass.scheduler.options import ReservationPodOptions

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 30.0, 480.0
"""Time in seconds for which a node's next device is not shared after a failure.

It doubles after each further failure, up to the maximum.
"""
LEASE_UNCERTAIN = "the lease may be another instance's"
_AGAIN_SECONDS = 0.5
log = logs.get("scheduler")
Start = Callable[[Coroutine[Any, Any, None], str], object]


class DeviceReservations:
    """Creates and deletes reservations.

    ``options`` is ``None`` if no device is reserved. Existing reservations are then
    only cleaned up. ``start(coroutine, name)`` runs a background task. ``wake()``
    requests a cycle.
    """

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        options: ReservationPodOptions | None,
        leadership: Leadership,
        evictor: Evictor,
        *,
        clock: Clock,
        start: Start,
        wake: Callable[[], None],
    ) -> None:
        self._client = client
        self._model = model
        self._index = model.features.requests.reserved
        self._options = options
        self._leadership = leadership
        self._evictor = evictor
        self._clock = clock
        self._start = start
        self._wake = wake
        self._creating: dict[Slot, str] = {}
        """Device with a pod that is being created → why that is impossible, once known."""
        self._deleting: dict[Slot, str] = {}
        """Device with a pod that is being deleted → uid of the pod."""
        self._evicted: dict[str, str] = {}
        """Pod that was evicted since its device is not reserved: key → uid."""
        self._failures: dict[str, int] = {}
        """Node → number of failures in a row."""
        if options is not None:
            model.reserve_devices(cdi=options.cdi)

    # ------------------------------------------------------------------ before binds

    def condition(self, binds: Sequence[Bind]) -> Condition | None:
        """Return the condition that a batch of binds waits for, ``None`` if there is none."""
        if self._options is None:
            return None
        wanted = [(bind, slots) for bind in binds if (slots := self._slots(bind))]
        if not wanted:
            return None
        return _DevicesReserved(self, self._model, wanted, self._clock, self._options.seconds)

    def objection(self, bind: Bind) -> str:
        """Return why a bind must not be sent, ``""`` if it may be."""
        for slot in self._slots(bind):
            if slot in self._deleting or not self._index.device_name(slot):
                return f"{_name(slot)} is not reserved any more"
        return ""

    def _slots(self, bind: Bind) -> tuple[Slot, ...]:
        return self._index.slots(bind, self._model.objects.pods.get(bind.task))

    def request(self, slot: Slot) -> str | None:
        """Reserve a device unless it is reserved.

        Returns ``""`` if it is, ``None`` while that is in progress, or why it is
        impossible.
        """
        pod = self._index.pods.get(slot)
        if pod is None:
            if slot not in self._creating:
                self._creating[slot] = ""
                self._start(self._create(slot), f"reserve {_name(slot)}")
            problem = self._creating[slot]
            if problem:
                del self._creating[slot]
            return problem or None
        self._creating.pop(slot, None)
        if pod.deleted or self._deleting.get(slot) == pod.uid:
            return None
        if pod.finished:
            return _rejection(slot, pod)
        if not self._index.device_name(slot):
            return None
        self._failures.pop(slot[0], None)
        return ""

    def timed_out(self, slot: Slot) -> str:
        """Return what is known of a device that was not named in time."""
        self._creating.pop(slot, None)
        pod = self._index.pods.get(slot)
        if pod is None:
            return "its pod was not created"
        if pod.deleted:
            return "its former pod has not terminated"
        problem = pod.report.problem if pod.report is not None else ""
        return f"pod {pod.key} is {pod.phase or 'Pending'}{f': {problem}' if problem else ''}"

    def failed(self, slot: Slot, problem: str) -> None:
        """Take in a failure: the node's other devices are not shared for a while."""
        node = slot[0]
        if node in self._index.refusing:
            return
        failures = self._failures[node] = self._failures.get(node, 0) + 1
        self._model.open_devices(node, problem)
        seconds = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(failures - 1, 10))
        self._start(self._pause(node, seconds), f"no further device of {node} is shared")

    async def _pause(self, node: str, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._model.open_devices(node, "")
        if node not in self._model.objects.nodes:
            self._failures.pop(node, None)
        self._wake()

    async def _create(self, slot: Slot) -> None:
        """Create the pod of a reservation.

        If the name is taken, the pod is being deleted or the informer has not shown it
        yet.
        """
        options, node = self._options, self._model.objects.nodes.get(slot[0])
        if options is None or node is None:
            self._creating[slot] = f"node {slot[0]} is gone"
            return
        try:
            if self._leadership.holds_lease():
                await self._client.create(resources.PODS, reservation_pod(node, slot[1], options), NAMESPACE)
                log.info("reserving a device", node=slot[0], device=slot[1], pod=name_of(*slot))
                return
            log.info("device not reserved", node=slot[0], device=slot[1], why=LEASE_UNCERTAIN)
        except Unreachable as error:
            log.warning("device not reserved", node=slot[0], device=slot[1], why=error.message)
        except StatusError as error:
            if error.reason != "AlreadyExists" and not may_pass(error):
                self._creating[slot] = f"{_name(slot)} cannot be reserved: {error.message}"
                return
        await self._clock.sleep(_AGAIN_SECONDS)
        self._creating.pop(slot, None)  # a batch that waits requests it again

    # ------------------------------------------------------------------ afterwards

    def clean_up(self) -> None:
        """Delete unused reservations, and evict pods on devices without one.

        Called after every decision.
        """
        index = self._index
        if not index.stale:
            return
        index.stale = False
        assumed = {
            (assumed.node, share.index)
            for assumed in self._model.binds.assumed.values()
            for share in assumed.shares
        }
        for slot, pod in index.pods.items():
            self._clean_up_slot(slot, pod, slot in assumed)
        for slot, users in index.users.items():
            if slot not in index.pods:
                self._evict_users(slot, users)
            elif index.device_name(slot):  # it may be another device than before
                pods = self._model.objects.pods
                self._evict_users(
                    slot, {key: None for key in users if not index.names_reserved_device(pods[key], slot)}
                )
        self._evicted = {key: uid for key, uid in self._evicted.items() if index.uses(key)}
        uids = {slot: pod.uid for slot, pod in index.pods.items()}
        self._deleting = {slot: uid for slot, uid in self._deleting.items() if uids.get(slot) == uid}

    def _clean_up_slot(self, slot: Slot, pod: views.Pod, assumed: bool) -> None:
        """Check one reservation. ``assumed``: a decided bind uses it."""
        self._creating.pop(slot, None)
        deleting = self._deleting.get(slot) == pod.uid
        users = self._index.users.get(slot)
        if users and (pod.finished or (pod.deleted and not deleting)):
            self._evict_users(slot, users)
        unused = not users and not assumed
        if unused and not (pod.finished or pod.deleted or deleting):
            log.info("releasing a device", node=slot[0], device=slot[1], pod=pod.name)
        if (pod.finished or unused) and not pod.deleted and not deleting:
            self._deleting[slot] = pod.uid
            self._start(self._delete(slot, pod), f"release {_name(slot)}")
        if pod.finished and assumed:
            self._creating[slot] = _rejection(slot, pod)  # read by the batch once the pod is gone
        elif assumed and not users:
            self._index.stale = True  # until the pods are bound, or will not be

    async def _delete(self, slot: Slot, pod: views.Pod) -> None:
        try:
            if self._leadership.holds_lease():
                await self._client.delete(resources.PODS, pod.name, pod.namespace, uid=pod.uid)
                return
            log.info("device not released", node=slot[0], device=slot[1], why=LEASE_UNCERTAIN)
        except (StatusError, Unreachable) as error:
            if isinstance(error, StatusError) and (is_missing(error) or is_another(error)):
                return
            log.warning("device not released", node=slot[0], device=slot[1], why=error.message)
        await self._clock.sleep(_AGAIN_SECONDS)
        if self._deleting.get(slot) == pod.uid:
            del self._deleting[slot]
        self._index.stale = True
        self._wake()

    def _evict_users(self, slot: Slot, users: Mapping[str, None]) -> None:
        """Evict the pods that share a device."""
        for key in users:
            pod = self._model.objects.pods.get(key)
            if pod is None or pod.deleted or self._evicted.get(key) == pod.uid:
                continue
            self._evicted[key] = pod.uid
            message = (
                f"{_name(slot)} is not reserved for its pods any more, so its kubelet may give it to others"
            )
            log.warning("evicting a pod", pod=pod.key, why=message)
            self._evictor.submit(EvictionOrder(pod.key, pod.uid, DEVICE_LOST, message))


class _DevicesReserved:
    """Condition that the devices of a batch are reserved.

    ``wanted``: the devices of each bind.
    """

    def __init__(
        self,
        reservations: DeviceReservations,
        model: ClusterModel,
        wanted: Sequence[tuple[Bind, tuple[Slot, ...]]],
        clock: Clock,
        seconds: float,
    ) -> None:
        self._reservations = reservations
        self._model = model
        self._wanted = wanted
        self._clock = clock
        self._until = clock.monotonic() + seconds
        self._seconds = seconds

    def __call__(self) -> str | None:
        problem, waiting = self._missing_pod(), []
        if not problem:
            problem, waiting = self._check_devices()
        for bind, slots in self._wanted:
            awaited = [slot for slot in slots if slot in waiting and not problem]
            self._model.binds.set_awaited(
                bind.task, Reason.RESERVING_DEVICE, _name(awaited[0]) if awaited else ""
            )
        return problem or (None if waiting else "")

    def _missing_pod(self) -> str:
        for bind, _ in self._wanted:
            pod = self._model.objects.pods.get(bind.task)
            if pod is None or pod.uid != bind.uid or pod.deleted:
                return f"pod {bind.task} is gone"
        return ""

    def _check_devices(self) -> tuple[str, list[Slot]]:
        """Return why the devices cannot be reserved, and which are still awaited."""
        states = {slot: self._reservations.request(slot) for _, slots in self._wanted for slot in slots}
        waiting = [slot for slot, state in states.items() if state is None]
        slot, problem = next(((slot, state) for slot, state in states.items() if state), (None, ""))
        if slot is None and waiting and self._clock.monotonic() >= self._until:
            slot = waiting[0]
            why = self._reservations.timed_out(slot)
            problem = f"{_name(slot)} was not named within {self._seconds:g} s: {why}"
        if slot is not None:
            self._reservations.failed(slot, problem)
        return problem or "", waiting


def _rejection(slot: Slot, pod: views.Pod) -> str:
    return f"its kubelet rejected {_name(slot)} ({pod.reason or pod.phase})"


def _name(slot: Slot) -> str:
    return f"GPU {slot[1]} of node {slot[0]}"
