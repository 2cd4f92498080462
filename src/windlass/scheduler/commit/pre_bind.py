"""Batches of binds: their writes, their conditions, and their recovery.

A gang that reaches its minimum by several binds gets its reservation first, in one
patch of its PodGroup together with other annotations that are due
(:mod:`windlass.model.records.gang_reservation`). Binds that are the first consumer of a
volume are held until the volume exists.

A new leader binds the pods of such a reservation as recorded, if that is still possible
for the whole gang. Otherwise the engine decides again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.engine.decision import Bind
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.group_index import WrittenGroup
from windlass.model.cluster.node_usage import NodeUsage
from windlass.model.devices.dra_claims import ClaimsChanged, ClaimWrite
from windlass.model.groups.podgroup_status import was_whole
from windlass.model.groups.podgroups import coscheduling_key, kai_key
from windlass.model.records import gang_reservation
from windlass.model.records.gang_reservation import ReservedPlace
from windlass.observe import logs
from windlass.scheduler.commit.bind_batch import BindBatch, Condition, PreBindWrite, Withdrawn
from windlass.scheduler.commit.device_conditions import DevicesReady
from windlass.scheduler.commit.device_reservations import DeviceReservations
from windlass.scheduler.commit.node_fits import accepts
from windlass.scheduler.commit.volume_conditions import VolumesReady
from windlass.scheduler.commit.yield_to_others import YieldToOthers

FRESH_SECONDS = 60.0
"""Maximum age in seconds of a reservation of which nothing was bound."""
log = logs.get("scheduler")


class PreBind:
    """Composes the batches of a decision.

    ``due_annotations(group)``: written on a group's object along with a reservation.
    ``await_volumes``: binds wait for their volumes, since a controller binds these.
    """

    def __init__(
        self,
        model: ClusterModel,
        node_usage: NodeUsage,
        reservations: DeviceReservations,
        yield_to_others: YieldToOthers,
        due_annotations: Callable[[str], Mapping[str, str | None]],
        *,
        clock: Clock,
        await_volumes: bool,
    ) -> None:
        self._model = model
        self._node_usage = node_usage
        self._reservations = reservations
        self._yield_to_others = yield_to_others
        self._due_annotations = due_annotations
        self._clock = clock
        self._await_volumes = await_volumes
        self._claims_written: dict[str, str] = {}
        """Pod → uid, if the writes about its DRA claims come before its whole batch."""

    # ------------------------------------------------------------------ before binds

    def batches(self, binds: Iterable[Bind], now: float, *, reserve: bool = True) -> list[BindBatch]:
        """Return the binds of one decision gang by gang. ``now``: Unix seconds.

        ``reserve``: gangs get a reservation.
        """
        by_group: dict[str, list[Bind]] = {}
        for bind in binds:
            by_group.setdefault(bind.group, []).append(bind)
        return [self._batch(group, tuple(members), now, reserve) for group, members in by_group.items()]

    def _batch(self, group: str, binds: tuple[Bind, ...], now: float, reserve: bool) -> BindBatch:
        writes = []
        if reserve and len(binds) > 1 and (patch := self._reservation(group, binds, now)) is not None:
            writes.append(patch)
        with_volumes = []
        for bind in binds:
            storage = self._model.writes.storage_writes(bind.task, bind.node)
            if storage:
                with_volumes.append(bind)
                writes += [_storage_write(each.namespace, each.name, each.body) for each in storage]
        conditions: list[Condition] = []
        undo: Callable[[], Sequence[PreBindWrite]] | None = None
        try:
            claims, devices = self._early_claim_writes(binds, now)
            writes += claims
            if devices is not None:
                conditions.append(devices)
                undo = _undo(devices)
        except ClaimsChanged as error:
            problem = str(error)
            conditions.append(lambda: problem)
        if with_volumes and self._await_volumes:
            conditions.append(VolumesReady(self._model, with_volumes))
        if (reserved := self._reservations.condition(binds)) is not None:
            conditions.append(reserved)
        if self._yield_to_others.idle:
            return BindBatch(binds, tuple(writes), _all_of(conditions) if conditions else None, undo=undo)
        conditions.append(_Precedence(self._yield_to_others, binds, self._clock))
        return BindBatch(
            binds, tuple(writes), _all_of(conditions), lambda: self._yield_to_others.verify(binds), undo
        )

    def _reservation(self, group: str, binds: Sequence[Bind], now: float) -> PreBindWrite | None:
        """Return the patch if the API server shows the gang below its minimum."""
        entry = self._model.groups.object_of(group)
        if entry is None:
            return None
        resource, view = entry
        minimum, members = self._minimum(group, view), self._model.groups.members(group)
        if minimum < 2 or members.scheduled >= minimum:
            return None
        text = gang_reservation.encode(binds, now)
        if text is None:
            log.warning("gang too large to reserve", group=group, pods=len(binds))
            return None
        annotations = {**self._due_annotations(group), names.RESERVATION: text}
        body = {"metadata": {"uid": view.uid, "annotations": annotations}}
        return PreBindWrite(resource, view.namespace, view.name, body, vital=False)

    def _minimum(self, group: str, view: WrittenGroup) -> int:
        """Return the minimum of a group.

        That of a Volcano PodGroup is on the object. That of other APIs is the engine's,
        0 if the engine does not know the group.
        """
        if isinstance(view, views.PodGroup):
            return view.min_member
        sent = self._model.group_sent(group)
        return sent.min_member if sent is not None else 0

    def _early_claim_writes(
        self, binds: Sequence[Bind], now: float
    ) -> tuple[list[PreBindWrite], DevicesReady | None]:
        """Return the writes about DRA claims that come before any of the binds.

        These are claims that several pods share and that are not allocated yet, written
        once for all pods. Claims of devices that must be made ready are written here
        too, and awaited.
        """
        together = self._model.writes.sharers(binds)
        inventory = self._model.features.claims.index.inventory
        writes: list[PreBindWrite] = []
        awaited: list[Bind] = []
        for bind in binds:
            self._claims_written.pop(bind.task, None)
            if bind.task not in together and not inventory.attaches(bind.node):
                continue
            claim_writes = self._model.writes.claim_writes(bind, now, together)
            awaits = any(write.needs_preparation for write in claim_writes)
            if awaits:
                awaited.append(bind)
            if awaits or bind.task in together:
                self._claims_written[bind.task] = bind.uid
                writes += [_claim_write(write) for write in claim_writes]
        return writes, DevicesReady(self._model, awaited, now, self._clock) if awaited else None

    def claim_writes(self, bind: Bind) -> Sequence[PreBindWrite]:
        """Return the writes about a pod's DRA claims just before it is bound.

        Raises :class:`~windlass.scheduler.commit.bind_batch.Withdrawn`.
        """
        if self._claims_written.pop(bind.task, "") == bind.uid:
            return []
        try:
            return [_claim_write(write) for write in self._model.writes.claim_writes(bind, self._clock.now())]
        except ClaimsChanged as error:
            raise Withdrawn(str(error)) from error

    # ------------------------------------------------------------------ taking over

    def resumed(self, now: float) -> list[Bind]:
        """Return the binds that an earlier leader had started, as recorded.

        Each gang is completed as a whole or not at all. ``now``: Unix seconds.
        """
        binds: list[Bind] = []
        booked: list[views.Pod] = []
        for group, namespace, text, minimum in self._recorded():
            reservation = gang_reservation.decode(text)
            pods = list(self._model.groups.pods_of(group))
            pending = {pod.name: pod for pod in pods if _is_pending(pod)}
            held = sum(1 for pod in pods if pod.node_name and not pod.deleted)
            if reservation is None or held + len(pending) < minimum:
                continue
            if not held and now - reservation.at > FRESH_SECONDS:
                continue
            places = [
                place
                for place in reservation.seats
                if place.pod in pending and place.is_of(pending[place.pod].uid)
            ]
            remaining = [_bind(group, namespace, place, pending[place.pod]) for place in places]
            if not remaining:
                continue
            placed = self._book(remaining, now)
            booked += placed
            log.info(
                "completing a gang as reserved" if placed else "reservation no longer possible",
                group=group,
                bound=held,
                left=len(remaining),
            )
            binds += remaining if placed else ()
        for pod in booked:
            self._node_usage.change(pod, None)
        return binds

    def _recorded(self) -> Iterator[tuple[str, str, str, int]]:
        """Return the groups between their first bind and their minimum.

        Each is a tuple of key, namespace, reservation and minimum.
        """
        for key, view in self._model.objects.groups.items():
            text = view.annotations.get(names.RESERVATION)
            if text and not was_whole(view):
                yield key, view.namespace, text, view.min_member
        others = [(kai_key(kai), kai) for kai in self._model.objects.kai_groups.values()]
        others += [
            (coscheduling_key(view), view) for view in self._model.objects.coscheduling_groups.values()
        ]
        for key, other in others:
            text, minimum = other.annotations.get(names.RESERVATION), self._minimum(key, other)
            if text and self._model.groups.members(key).scheduled < minimum:
                yield key, other.namespace, text, minimum

    def _book(self, binds: Sequence[Bind], now: float) -> list[views.Pod]:
        """Count the pods as if they were bound, and return them.

        Returns an empty list, and counts nothing, if one of them no longer fits.
        """
        placed = []
        for bind in binds:
            pod = self._model.objects.pods[bind.task]
            annotations = {**pod.annotations, **self._model.writes.annotations(bind, now)}
            placed.append(msgspec.structs.replace(pod, node_name=bind.node, annotations=annotations))
        for pod in placed:
            self._node_usage.change(None, pod)
        if all(self._fits(pod) for pod in placed):
            return placed
        for pod in placed:
            self._node_usage.change(pod, None)
        return []

    def _fits(self, pod: views.Pod) -> bool:
        node = self._model.objects.nodes.get(pod.node_name)
        return node is not None and accepts(node, pod.shape) and self._node_usage.overflow(pod, node) is None


class _Precedence:
    """Condition that other schedulers have had precedence on the nodes of some binds."""

    def __init__(self, yield_to_others: YieldToOthers, binds: Sequence[Bind], clock: Clock) -> None:
        self._yield_to_others = yield_to_others
        self._binds = binds
        self._clock = clock
        self._since = clock.monotonic()

    def __call__(self) -> str | None:
        held = self._yield_to_others.holds_back(self._binds, self._since, self._clock.monotonic())
        return None if held else ""


def _all_of(conditions: Sequence[Condition]) -> Condition:
    """Return the condition that all are met. The first that cannot be met decides."""

    def ready() -> str | None:
        states = [condition() for condition in conditions]
        problem = next((state for state in states if state), "")
        return problem or (None if None in states else "")

    return ready


def _is_pending(pod: views.Pod) -> bool:
    return not (pod.node_name or pod.finished or pod.deleted or pod.shape.gates)


def _bind(group: str, namespace: str, place: ReservedPlace, pod: views.Pod) -> Bind:
    return Bind(f"{namespace}/{place.pod}", pod.uid, group, place.node, place.devices, place.zones)


def _storage_write(namespace: str, name: str, body: Mapping[str, object]) -> PreBindWrite:
    kind = resources.PERSISTENT_VOLUME_CLAIMS if namespace else resources.PERSISTENT_VOLUMES
    return PreBindWrite(kind, namespace, name, body)


def _undo(devices: DevicesReady) -> Callable[[], Sequence[PreBindWrite]]:
    return lambda: [_claim_write(write) for write in devices.withdrawals()]


def _claim_write(write: ClaimWrite) -> PreBindWrite:
    return PreBindWrite(
        resources.RESOURCE_CLAIMS, write.namespace, write.name, write.body, write.subresource or None
    )
