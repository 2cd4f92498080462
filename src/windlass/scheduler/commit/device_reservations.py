"""Cards of device plug-ins are held before they are shared, and let go after their last sharer.

Before the binds of a batch are sent, each card that they share and nobody holds yet gets its pod
(:mod:`windlass.scheduler.commit.reservation_pod`), all of them at once; the batch waits until every kubelet has named
its card. Where one does not within the time limit, none of the batch is bound, and the node's other cards are not
shared for a while. What is held and not used any more is deleted; who uses a card that is not held any more is evicted,
as the kubelet may give it to somebody else.

Invariants: a pod is bound to a card only while that is held (asked again just before each bind is sent); one process
alone, the scheduler that leads, starts and ends reservations (asked again just before, as for binds); nothing is
remembered that is not on the objects, so that whoever takes over finds what there is, uses what is meant, and deletes
the rest.
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
from windlass.scheduler.commit import evictor as evictions
from windlass.scheduler.commit.evictor import EvictionOrder
from windlass.scheduler.commit.reservation_pod import name_of, reservation_pod
from windlass.scheduler.options import ReservationPodOptions

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 30.0, 480.0
"""So long is a node's next card not shared after one could not be held; twice as long each time."""
UNSURE = "the lease may be another instance's"
_AGAIN_SECONDS = 0.5
log = logs.get("scheduler")
Start = Callable[[Coroutine[Any, Any, None], str], object]


class DeviceReservations:
    """``options`` ``None``: no card is held, but what is left of other times is looked after. ``sure``: whether nobody
    else leads; ``start`` runs a coroutine beside; ``evict`` carries out orders; ``wake`` has a cycle soon."""

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        options: ReservationPodOptions | None,
        *,
        clock: Clock,
        sure: Callable[[], bool],
        start: Start,
        evict: Callable[[EvictionOrder], None],
        wake: Callable[[], None],
    ) -> None:
        self._client = client
        self._model = model
        self._book = model.reserved
        self._options = options
        self._clock = clock
        self._sure = sure
        self._start = start
        self._evict = evict
        self._wake = wake
        self._asked: dict[Slot, str] = {}
        """Cards whose pods are being made → why they cannot be, once that is known."""
        self._ending: dict[Slot, str] = {}
        """Cards whose pods are being deleted → uid."""
        self._lost: dict[str, str] = {}
        """Who was told to go because his card is not held: key → uid."""
        self._failures: dict[str, int] = {}
        if options is not None:
            model.reserve_cards(cdi=options.cdi)

    # ------------------------------------------------------------------ before binds

    def awaited(self, binds: Sequence[Bind]) -> Callable[[], str | None] | None:
        """What a batch of binds waits for; ``None`` if nothing."""
        if self._options is None:
            return None
        wanted = [(bind, found) for bind in binds if (found := self._slots(bind))]
        return _Awaited(self, self._model, wanted, self._clock, self._options.seconds) if wanted else None

    def objection(self, bind: Bind) -> str:
        """Why a bind is not to be sent; empty if it may be."""
        lacking = [slot for slot in self._slots(bind) if slot in self._ending or not self._book.card(slot)]
        return f"{_said(lacking[0])} is not held any more" if lacking else ""

    def _slots(self, bind: Bind) -> tuple[Slot, ...]:
        return self._book.slots(bind, self._model.pods.get(bind.task))

    def look(self, slot: Slot) -> str | None:
        """Whether a card is held: ``""``; ``None`` while it is to be waited for; or why it will not be."""
        pod = self._book.pods.get(slot)
        if pod is None:
            if slot not in self._asked:
                self._asked[slot] = ""
                self._start(self._make(slot), f"reserve {_said(slot)}")
            problem = self._asked[slot]
            if problem:
                del self._asked[slot]
            return problem or None
        self._asked.pop(slot, None)
        if pod.deleted or self._ending.get(slot) == pod.uid:
            return None
        if pod.finished:
            return _refused(slot, pod)
        if not self._book.card(slot):
            return None
        self._failures.pop(slot[0], None)
        return ""

    def late(self, slot: Slot) -> str:
        """What is known of a card that was not named in time."""
        self._asked.pop(slot, None)
        pod = self._book.pods.get(slot)
        if pod is None:
            return "its pod was not made"
        if pod.deleted:
            return "its former pod has not ended"
        problem = pod.report.problem if pod.report is not None else ""
        return f"pod {pod.key} is {pod.phase or 'Pending'}{f': {problem}' if problem else ''}"

    def failed(self, slot: Slot, problem: str) -> None:
        """A card could not be held: its node's others are left alone for a while."""
        node = slot[0]
        if node in self._book.refusing:
            return
        times = self._failures[node] = self._failures.get(node, 0) + 1
        self._model.open_cards(node, problem)
        seconds = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2 ** min(times - 1, 10))
        self._start(self._pause(node, seconds), f"no further card of {node} is shared")

    async def _pause(self, node: str, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._model.open_cards(node, "")
        if node not in self._model.nodes:
            self._failures.pop(node, None)
        self._wake()

    async def _make(self, slot: Slot) -> None:
        """Have the pod made. A name that is taken belongs to one on its way out, or to one not seen yet."""
        options, node = self._options, self._model.nodes.get(slot[0])
        if options is None or node is None:
            self._asked[slot] = f"node {slot[0]} is gone"
            return
        try:
            if self._sure():
                await self._client.create(resources.PODS, reservation_pod(node, slot[1], options), NAMESPACE)
                log.info("a card is being held", node=slot[0], card=slot[1], pod=name_of(*slot))
                return
            log.info("no card held", node=slot[0], card=slot[1], why=UNSURE)
        except Unreachable as error:
            log.warning("no card held", node=slot[0], card=slot[1], why=error.message)
        except StatusError as error:
            if error.reason != "AlreadyExists" and not may_pass(error):
                self._asked[slot] = f"{_said(slot)} cannot be held: {error.message}"
                return
        await self._clock.sleep(_AGAIN_SECONDS)
        self._asked.pop(slot, None)  # whoever waits asks again

    # ------------------------------------------------------------------ afterwards

    def sweep(self) -> None:
        """End what is of no use, and evict who shares a card that is not held. After every decision."""
        book = self._book
        if not book.stale:
            return
        book.stale = False
        meant = {
            (assumed.node, share.index)
            for assumed in self._model.assumed.values()
            for share in assumed.shares
        }
        for slot, pod in book.pods.items():
            self._asked.pop(slot, None)
            ours = self._ending.get(slot) == pod.uid
            users = book.users.get(slot)
            if users and (pod.finished or (pod.deleted and not ours)):
                self._release(slot, users)
            unused = not users and slot not in meant
            if unused and not (pod.finished or pod.deleted or ours):
                log.info("a card is let go", node=slot[0], card=slot[1], pod=pod.name)
            if (pod.finished or unused) and not pod.deleted and not ours:
                self._ending[slot] = pod.uid
                self._start(self._end(slot, pod), f"let go {_said(slot)}")
            if pod.finished and slot in meant:
                self._asked[slot] = _refused(slot, pod)  # whoever waits for it looks when the pod is gone
            elif slot in meant and not users:
                book.stale = True  # until they are bound, or will not be
        for slot, users in book.users.items():
            if slot not in book.pods:
                self._release(slot, users)
            elif book.card(slot):  # it may be another one than it was
                pods = self._model.pods
                self._release(slot, {key: None for key in users if not book.is_told(pods[key], slot)})
        self._lost = {key: uid for key, uid in self._lost.items() if book.uses(key)}
        there = {slot: pod.uid for slot, pod in book.pods.items()}
        self._ending = {slot: uid for slot, uid in self._ending.items() if there.get(slot) == uid}

    async def _end(self, slot: Slot, pod: views.Pod) -> None:
        try:
            if self._sure():
                await self._client.delete(resources.PODS, pod.name, pod.namespace, uid=pod.uid)
                return
            log.info("card not let go", node=slot[0], card=slot[1], why=UNSURE)
        except (StatusError, Unreachable) as error:
            if isinstance(error, StatusError) and (is_missing(error) or is_another(error)):
                return
            log.warning("card not let go", node=slot[0], card=slot[1], why=error.message)
        await self._clock.sleep(_AGAIN_SECONDS)
        if self._ending.get(slot) == pod.uid:
            del self._ending[slot]
        self._book.stale = True
        self._wake()

    def _release(self, slot: Slot, users: Mapping[str, None]) -> None:
        """Its sharers have to go."""
        for key in users:
            pod = self._model.pods.get(key)
            if pod is None or pod.deleted or self._lost.get(key) == pod.uid:
                continue
            self._lost[key] = pod.uid
            message = (
                f"{_said(slot)} is not held for its sharers any more, so its kubelet may give it to others"
            )
            log.warning("pod evicted", pod=pod.key, why=message)
            self._evict(EvictionOrder(pod.key, pod.uid, evictions.DEVICE_LOST, message))


class _Awaited:
    """Whether the cards of a batch are held. ``wanted``: of each bind, which."""

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
        problem, late = self._gone(), []
        if not problem:
            problem, late = self._cards()
        for bind, slots in self._wanted:
            waits = [slot for slot in slots if slot in late and not problem]
            self._model.awaits(bind.task, Reason.RESERVING_DEVICE, _said(waits[0]) if waits else "")
        return problem or (None if late else "")

    def _gone(self) -> str:
        for bind, _ in self._wanted:
            pod = self._model.pods.get(bind.task)
            if pod is None or pod.uid != bind.uid or pod.deleted:
                return f"pod {bind.task} is gone"
        return ""

    def _cards(self) -> tuple[str, list[Slot]]:
        """Why the cards cannot be had, and which are still to be waited for."""
        said = {slot: self._reservations.look(slot) for _, slots in self._wanted for slot in slots}
        late = [slot for slot, text in said.items() if text is None]
        slot, problem = next(((slot, text) for slot, text in said.items() if text), (None, ""))
        if slot is None and late and self._clock.monotonic() >= self._until:
            slot = late[0]
            why = self._reservations.late(slot)
            problem = f"{_said(slot)} was not named within {self._seconds:g} s: {why}"
        if slot is not None:
            self._reservations.failed(slot, problem)
        return problem or "", late


def _refused(slot: Slot, pod: views.Pod) -> str:
    return f"its kubelet refused {_said(slot)} ({pod.reason or pod.phase})"


def _said(slot: Slot) -> str:
    return f"card {slot[1]} of node {slot[0]}"
