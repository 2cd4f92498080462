"""What has to stand on the server before binds begin, and what a scheduler finds there when it takes over.

A gang that comes to its minimum by several binds gets its reservation written first, in one patch of its
PodGroup that carries whatever else is due on it (:mod:`windlass.model.records.gang_reservation`). Binds whose volumes
wait for their first consumer are held until those are there.

Who takes over binds what waits on such reservations where it was meant to go, if that is still possible as a
whole; otherwise the engine decides anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.api.reasons import Reason
from windlass.engine.decision import Bind
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel, WrittenGroup
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.cluster.object_cache import coscheduling_key, kai_key
from windlass.model.devices.dra_claims import ClaimsChanged, ClaimWrite
from windlass.model.groups.podgroup_status import was_whole
from windlass.model.records import gang_reservation
from windlass.model.records.gang_reservation import ReservedPlace
from windlass.observe import logs
from windlass.scheduler.commit.binder import BindBatch, PreBindWrite, Withdrawn
from windlass.scheduler.commit.device_conditions import DevicesAwaited
from windlass.scheduler.commit.node_fits import takes
from windlass.scheduler.commit.yield_to_others import YieldToOthers

FRESH_SECONDS = 60.0
"""A reservation of which nothing was ever bound counts for so long after it was written."""
log = logs.get("scheduler")
Notes = Callable[[str], Mapping[str, str | None]]
Cards = Callable[[Sequence[Bind]], Callable[[], str | None] | None]


class PreBind:
    """``notes(group)``: annotations that are due on a group's object, to be written along. ``await_volumes``:
    somebody binds volumes, so binds wait for them. ``cards``: for which shared cards binds wait."""

    def __init__(
        self,
        model: ClusterModel,
        ledger: NodeUsage,
        notes: Notes,
        yield_to_others: YieldToOthers,
        *,
        clock: Clock,
        await_volumes: bool,
        cards: Cards,
    ) -> None:
        self._await_volumes = await_volumes
        self._cards = cards
        self._yield_to_others = yield_to_others
        self._clock = clock
        self._model = model
        self._ledger = ledger
        self._notes = notes
        self._claimed: dict[str, str] = {}
        """Pod → its uid, where what is written about its claims for devices goes before its whole batch."""

    # ------------------------------------------------------------------ before binds

    def batches(self, binds: Iterable[Bind], now: float, *, reserve: bool = True) -> list[BindBatch]:
        """The binds of one decision, gang by gang, with what goes before them. ``now``: Unix seconds."""
        found: dict[str, list[Bind]] = {}
        for bind in binds:
            found.setdefault(bind.group, []).append(bind)
        return [self._batch(group, tuple(mates), now, reserve) for group, mates in found.items()]

    def _batch(self, group: str, binds: tuple[Bind, ...], now: float, reserve: bool) -> BindBatch:
        writes = []
        if reserve and len(binds) > 1 and (patch := self._reservation(group, binds, now)) is not None:
            writes.append(patch)
        waiting = []
        for bind in binds:
            storage = self._model.storage_writes(bind.task, bind.node)
            if storage:
                waiting.append(bind)
                writes += [_storage(each.namespace, each.name, each.body) for each in storage]
        conditions: list[Callable[[], str | None]] = []
        undo: Callable[[], Sequence[PreBindWrite]] | None = None
        try:
            written, devices = self._early_claims(binds, now)
            writes += written
            if devices is not None:
                conditions.append(devices)
                undo = _undo(devices)
        except ClaimsChanged as error:
            problem = str(error)
            conditions.append(lambda: problem)
        if waiting and self._await_volumes:
            conditions.append(VolumesAwaited(self._model, waiting))
        if (cards := self._cards(binds)) is not None:
            conditions.append(cards)
        if self._yield_to_others.idle:
            return BindBatch(binds, tuple(writes), _all_of(conditions) if conditions else None, undo=undo)
        conditions.append(_Turn(self._yield_to_others, binds, self._clock))
        return BindBatch(
            binds, tuple(writes), _all_of(conditions), lambda: self._yield_to_others.taken(binds), undo
        )

    def _reservation(self, group: str, binds: Sequence[Bind], now: float) -> PreBindWrite | None:
        """The patch, if the gang needs one: it has no minimum yet by what the server shows."""
        found = self._model.object_of(group)
        if found is None:
            return None
        resource, view = found
        minimum, members = self._minimum(group, view), self._model.members(group)
        if minimum < 2 or members.scheduled >= minimum:
            return None
        text = gang_reservation.encode(binds, now)
        if text is None:
            log.warning("gang too large to reserve", group=group, pods=len(binds))
            return None
        annotations = {**self._notes(group), names.RESERVATION: text}
        body = {"metadata": {"uid": view.uid, "annotations": annotations}}
        return PreBindWrite(resource, view.namespace, view.name, body, vital=False)

    def _minimum(self, group: str, view: WrittenGroup) -> int:
        """As its object says; of other APIs than Volcano's as the engine knows it, 0 where it does not."""
        if isinstance(view, views.PodGroup):
            return view.min_member
        sent = self._model.group_sent(group)
        return sent.min_member if sent is not None else 0

    def _early_claims(
        self, binds: Sequence[Bind], now: float
    ) -> tuple[list[PreBindWrite], DevicesAwaited | None]:
        """What is written about claims before any of the binds: of pods that share one which is not allocated yet,
        once, for all of them; and of those whose devices have to be made ready, which are waited for."""
        together = self._model.sharers(binds)
        inventory = self._model.claims.inventory
        found: list[PreBindWrite] = []
        late: list[Bind] = []
        for bind in binds:
            self._claimed.pop(bind.task, None)
            if bind.task not in together and not inventory.attaches(bind.node):
                continue
            writes = self._model.claim_writes(bind, now, together)
            awaits = any(write.awaits for write in writes)
            if awaits:
                late.append(bind)
            if awaits or bind.task in together:
                self._claimed[bind.task] = bind.uid
                found += [_claim(write) for write in writes]
        return found, DevicesAwaited(self._model, late, now, self._clock) if late else None

    def claim_writes(self, bind: Bind) -> Sequence[PreBindWrite]:
        """What is written about a pod's claims for devices just before it is bound. Raises :class:`Withdrawn`."""
        if self._claimed.pop(bind.task, "") == bind.uid:
            return []
        try:
            return [_claim(write) for write in self._model.claim_writes(bind, self._clock.now())]
        except ClaimsChanged as error:
            raise Withdrawn(str(error)) from error

    # ------------------------------------------------------------------ taking over

    def resumed(self, now: float) -> list[Bind]:
        """Binds that somebody else had begun, as they were meant, as far as they are still possible: gang by gang
        whole or not at all. ``now``: Unix seconds."""
        binds: list[Bind] = []
        booked: list[views.Pod] = []
        for group, namespace, text, minimum in self._reserved():
            found = gang_reservation.decode(text)
            pods = list(self._model.pods_of(group))
            waits = {p.name: p for p in pods if _waits(p)}
            held = sum(1 for p in pods if p.node_name and not p.deleted)
            if found is None or held + len(waits) < minimum or not (held or now - found.at <= FRESH_SECONDS):
                continue
            seats = [s for s in found.seats if s.pod in waits and s.is_of(waits[s.pod].uid)]
            mine = [_bind(group, namespace, seat, waits[seat.pod]) for seat in seats]
            if not mine:
                continue
            taken = self._take_seats(mine, now)
            booked += taken
            log.info(
                "gang finished as it was meant" if taken else "reservation no longer possible",
                group=group,
                bound=held,
                left=len(mine),
            )
            binds += mine if taken else ()
        for pod in booked:
            self._ledger.change(pod, None)
        return binds

    def _reserved(self) -> Iterator[tuple[str, str, str, int]]:
        """Groups between their first bind and their minimum: key, namespace, reservation, minimum."""
        for key, view in self._model.groups.items():
            text = view.annotations.get(names.RESERVATION)
            if text and not was_whole(view):
                yield key, view.namespace, text, view.min_member
        others = [(kai_key(kai), kai) for kai in self._model.kai_groups.values()]
        others += [(coscheduling_key(one), one) for one in self._model.coscheduling_groups.values()]
        for key, other in others:
            text, minimum = other.annotations.get(names.RESERVATION), self._minimum(key, other)
            if text and self._model.members(key).scheduled < minimum:
                yield key, other.namespace, text, minimum

    def _take_seats(self, binds: Sequence[Bind], now: float) -> list[views.Pod]:
        """The pods as they would stand on their nodes, booked; none if one of them cannot be there any more."""
        placed = []
        for bind in binds:
            pod = self._model.pods[bind.task]
            words = {**pod.annotations, **self._model.binding_words(bind, now)}
            placed.append(msgspec.structs.replace(pod, node_name=bind.node, annotations=words))
        for pod in placed:
            self._ledger.change(None, pod)
        nodes = self._model.nodes
        for pod in placed:
            node = nodes.get(pod.node_name)
            if node is None or not takes(node, pod.shape) or self._ledger.overflow(pod, node) is not None:
                for one in placed:
                    self._ledger.change(one, None)
                return []
        return placed


class VolumesAwaited:
    """Whether the volumes of some binds are there. A claim whose node was taken back by whoever makes volumes
    (``selected-node`` is gone again) has failed, as kube-scheduler sees it."""

    def __init__(self, model: ClusterModel, binds: Sequence[Bind]) -> None:
        self._model = model
        self._pods = {bind.task: bind.uid for bind in binds}
        self._claims = {
            bind.task: [f"{pod.namespace}/{name}" for name in pod.claims]
            for bind in binds
            if (pod := model.pods.get(bind.task)) is not None
        }
        self._left = {key: bind.node for bind in binds for key in self._claims.get(bind.task, ())}
        self._seen: set[str] = set()

    def __call__(self) -> str | None:
        answer = self._look()
        for task, claims in self._claims.items():
            late = next((key for key in claims if key in self._left and answer is None), "")
            what = f"claim {late}, for node {self._left[late]}" if late else ""
            self._model.awaits(task, Reason.AWAITING_VOLUME, what)
        return answer

    def _look(self) -> str | None:
        for key, uid in self._pods.items():
            pod = self._model.pods.get(key)
            if pod is None or pod.uid != uid or pod.deleted:
                return f"pod {key} is gone"
        claims = self._model.storage.claims
        for key, node in list(self._left.items()):
            claim = claims.get(key)
            if claim is None or claim.deleted:
                return f"claim {key} is gone"
            if claim.bound:
                del self._left[key]
            elif claim.selected_node == node:
                self._seen.add(key)
            elif key in self._seen:
                return f"no volume could be made for claim {key} on {node}"
        return None if self._left else ""


class _Turn:
    """Whether others have had their turn on the nodes of some binds."""

    def __init__(self, yield_to_others: YieldToOthers, binds: Sequence[Bind], clock: Clock) -> None:
        self._yield_to_others = yield_to_others
        self._binds = binds
        self._clock = clock
        self._since = clock.monotonic()

    def __call__(self) -> str | None:
        held = self._yield_to_others.holds_back(self._binds, self._since, self._clock.monotonic())
        return None if held else ""


def _all_of(conditions: Sequence[Callable[[], str | None]]) -> Callable[[], str | None]:
    """What is in the way of the first; ``None`` while anything is to be waited for."""

    def settled() -> str | None:
        answers = [condition() for condition in conditions]
        problem = next((answer for answer in answers if answer), "")
        return problem or (None if None in answers else "")

    return settled


def _waits(pod: views.Pod) -> bool:
    return not (pod.node_name or pod.finished or pod.deleted or pod.shape.gates)


def _bind(group: str, namespace: str, seat: ReservedPlace, pod: views.Pod) -> Bind:
    return Bind(f"{namespace}/{seat.pod}", pod.uid, group, seat.node, seat.devices, seat.zones)


def _storage(namespace: str, name: str, body: Mapping[str, object]) -> PreBindWrite:
    kind = resources.PERSISTENT_VOLUME_CLAIMS if namespace else resources.PERSISTENT_VOLUMES
    return PreBindWrite(kind, namespace, name, body)


def _undo(devices: DevicesAwaited) -> Callable[[], Sequence[PreBindWrite]]:
    return lambda: [_claim(write) for write in devices.withdrawn()]


def _claim(write: ClaimWrite) -> PreBindWrite:
    return PreBindWrite(
        resources.RESOURCE_CLAIMS, write.namespace, write.name, write.body, write.subresource or None
    )
