"""Guests of the live faults: what else happens on the cluster (:mod:`workload_rounds`).

A guest says what it does at which moment, and what has to hold: gangs that must be placed, a judge that looks at every
version of every pod (:mod:`pod_log`), and what is asked of the server in the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from base_load import GPUS, NODE_COUNT, Patient, group, node_of, pod
from overcommitment import FullBooks
from pod_log import GONE, GPU, Books, Entry, Judge, PodLog, requested, shares
from realkube import RealKube

from windlass.api.annotations import VISIBLE_DEVICES
from windlass.api.errors import StatusError
from windlass.api.resources import NODES, POD_GROUPS, PODS, QUEUES
from windlass.client import verbs
from windlass.client.connection import Connection
from windlass.model.devices.reserved_devices import NAMESPACE as RESERVATIONS

Json = dict[str, Any]
EXTRA = "live-extra"
"""A node that comes and goes."""
URGENT = "urgent"
"""A priority class."""
FOREIGN = "somebody-else"
"""Another scheduler."""
TRIES = 3
"""So many nodes another scheduler tries for a pod."""
OVERCOMMITTED = "NodeOvercommitted"
_FIELD = {"fieldPath": f"metadata.annotations['{VISIBLE_DEVICES}']"}
_ENV = [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"fieldRef": _FIELD}}]
"""How a container learns which card it has a part of."""
NOTHING: Mapping[str, str] = MappingProxyType({})
Act = tuple[float, Callable[[], None]]
"""A moment (seconds from the begin) and what is done then."""


class Stage:
    """What guests have in common. ``seconds``: how long the load comes. ``steady``: whether the schedulers live through
    the round."""

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        rng: random.Random,
        log: PodLog,
        seconds: float,
        *,
        steady: bool,
    ) -> None:
        self.client = Patient(connection)
        self.eyes = Patient(connection)
        """For questions from outside, which another thread asks."""
        self.namespace = namespace
        self.rng = rng
        self.log = log
        self.seconds = seconds
        self.steady = steady

    @property
    def books(self) -> FullBooks:
        assert isinstance(self.log.books, FullBooks)
        return self.log.books

    def moment(self, begin: float = 0.0, end: float = 1.0) -> float:
        """One at random, between two parts of the load's time."""
        return self.rng.uniform(begin, end) * self.seconds

    def close(self) -> None:
        self.client.close()
        self.eyes.close()

    def gang(
        self,
        name: str,
        pods: Iterable[Json],
        members: int,
        *,
        notes: Mapping[str, str] = NOTHING,
        **spec: Any,
    ) -> None:
        """``notes``: annotations of its PodGroup."""
        made = group(name, members, **spec)
        made["metadata"]["annotations"] = dict(notes)
        self.client.make(POD_GROUPS, made, self.namespace)
        for one in pods:
            self.client.make(PODS, one, self.namespace)

    def take_back(self, gang: str) -> None:
        """Its owner deletes it, pods first, without grace; nothing more is expected of it."""
        with self.log.lock:
            self.books.forget(gang)
        every = verbs.delete_collection(PODS, self.namespace, labels=f"gang={gang}", grace_seconds=0)
        self.client.surely("call", every)
        self.log.catch_up()
        with self.log.lock:
            self.books.forget(gang)


class Guest:
    """``minima``: gangs that have to be placed, with the least of their members."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage = stage
        self.name = f"{stage.namespace}-{name}"
        self.minima: dict[str, int] = {}
        self.acts: list[Act] = []
        self.judges: list[Judge] = []

    controller_options: Sequence[str] = ()
    """What the controllers are started with."""

    def scheduler_options(self, kube: RealKube) -> list[str]:
        """What a scheduler of the round is started with, asked for each."""
        return []

    def begin(self) -> None:
        """Called once, when the schedulers are ready."""

    def told(self) -> str:
        """What has become of it, in a few words, for the round's line."""
        return ""

    def keep(self) -> None:
        """Asked every now and then for as long as the round lasts."""

    def problems(self) -> list[str]:
        """What does not hold (yet) once all has been placed."""
        return []

    def clear(self) -> None:
        """Leave nothing but pods and groups in the round's namespace."""


class Elastic(Guest):
    """Gangs with more pods than they need."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "elastic")
        for number in range(2):
            gang, members, more = f"{self.name}-{number}", stage.rng.randint(2, 4), stage.rng.randint(1, 4)
            pods = [pod(gang, rank, 1) for rank in range(members + more)]
            self.minima[gang] = members
            self.acts.append(
                (stage.moment(), lambda g=gang, p=pods, m=members: stage.gang(g, p, m))  # type: ignore[misc]
            )


class Restarted(Guest):
    """A gang whose owner deletes its pods, wherever they are, and makes others of the same names at once; and one that
    is deleted for good."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "restarted")
        self._members, self._gpus = stage.rng.randint(3, 6), stage.rng.choice((1, 2))
        self._given_up = f"{self.name}-given-up"
        self.minima |= {self.name: self._members, f"{self.name}-again": self._members, self._given_up: 4}
        begin = stage.moment(0, 0.5)
        self.acts = [
            (begin, self._first),
            (begin + stage.moment(0.05, 0.4), self._again),
            (begin + stage.moment(0.05, 0.5), self._give_up),
        ]

    def _pods(self, label: str) -> list[Json]:
        """They belong to the same group and have the same names, whatever the label says."""
        made = [pod(self.name, rank, self._gpus) for rank in range(self._members)]
        for one in made:
            one["metadata"]["labels"]["gang"] = label
        return made

    def _first(self) -> None:
        self.stage.gang(self.name, self._pods(self.name), self._members)
        self.stage.gang(self._given_up, [pod(self._given_up, rank, 2) for rank in range(4)], 4)

    def _again(self) -> None:
        self.stage.take_back(self.name)
        if self.stage.rng.random() < 0.5:
            self.stage.client.surely("delete", POD_GROUPS, self.name, self.stage.namespace)
        self.stage.gang(self.name, self._pods(f"{self.name}-again"), self._members)

    def _give_up(self) -> None:
        self.stage.take_back(self._given_up)
        self.stage.client.surely("delete", POD_GROUPS, self._given_up, self.stage.namespace)


class Urgent(Guest):
    """A gang of higher priority that comes when the nodes are full: others go for it."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "urgent")
        members = stage.rng.randint(10, 16)
        self.minima[self.name] = members
        pods = [pod(self.name, rank, 2, priorityClassName=URGENT) for rank in range(members)]
        self.acts = [
            (
                stage.moment(0.4, 0.8),
                lambda: stage.gang(self.name, pods, members, priorityClassName=URGENT),
            )
        ]


class Capped(Guest):
    """A queue that may hold so many GPUs, is asked for more, is edited, and is gone for a moment; and one that comes
    after its gang."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "capped")
        self._most = stage.rng.randint(5, 8)
        for number in range(4):
            self.minima[f"{self.name}-{number}"] = stage.rng.randint(2, 5)
        self._late = f"{self.name}-late"
        self.judges = [QueueCap(frozenset(self.minima), self._most)]
        self.minima[self._late] = 2
        gone = stage.moment(0.3, 0.7)
        self.acts = [
            (0.0, lambda: self._make(self.name)),
            *((stage.moment(0, 0.6), lambda g=gang: self._gang(g)) for gang in self.minima),  # type: ignore[misc]
            (stage.moment(), lambda: self._edit({"weight": stage.rng.randint(2, 9)})),
            (gone, lambda: self._delete(self.name)),
            (gone + stage.moment(0.0, 0.2), lambda: self._make(self.name)),
            (stage.moment(0.6, 1.0), lambda: self._make(self._late)),
        ]

    def _gang(self, gang: str) -> None:
        members = self.minima[gang]
        queue = gang if gang == self._late else self.name
        self.stage.gang(gang, [pod(gang, rank, 1) for rank in range(members)], members, queue=queue)

    def _make(self, queue: str) -> None:
        spec = {"weight": 1, "capability": {GPU: str(self._most)}}
        self.stage.client.make(QUEUES, {"metadata": {"name": queue}, "spec": spec}, "")

    def _edit(self, spec: Json) -> None:
        self.stage.client.surely("patch", QUEUES, self.name, {"spec": spec})

    def _delete(self, queue: str) -> None:
        self.stage.client.surely("delete", QUEUES, queue)

    def clear(self) -> None:
        for queue in (self.name, self._late):
            self._delete(queue)


def notes_of(entry: Entry) -> dict[str, str]:
    """A pod's annotations."""
    return entry.pod["metadata"].get("annotations", {})


class QueueCap:
    """Gangs that together hold no more than so many GPUs."""

    def __init__(self, gangs: frozenset[str], most: int) -> None:
        self._gangs = gangs
        self._most = most
        self._held = 0

    def hold(self, key: str, entry: Entry) -> list[str]:
        if entry.gang not in self._gangs:
            return []
        self._held += requested(entry.pod).get(GPU, 0)
        if self._held <= self._most:
            return []
        return [f"its queue may hold {self._most} GPUs; with {key} it holds {self._held}"]

    def release(self, key: str, entry: Entry) -> None:
        if entry.gang in self._gangs:
            self._held -= requested(entry.pod).get(GPU, 0)


class Comings(Guest):
    """A node that comes, goes with all that is on it, and may come back; others are cordoned or lose their cards
    for a moment."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "comings")
        begin, rng = stage.moment(0, 0.3), stage.rng
        self._there = False
        gone = begin + stage.moment(0.2, 0.5)
        self.acts = [(begin, self._come), (gone, self._go)]
        if rng.random() < 0.5:
            self.acts.append((gone + stage.moment(0.05, 0.3), self._come))
        cordoned, bare = (f"live-{number}" for number in rng.sample(range(NODE_COUNT), 2))
        for name, change, back, part in (
            (cordoned, {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": None}}, None),
            (bare, _cards(0), _cards(GPUS), "status"),
        ):
            at = stage.moment(0, 0.7)
            self.acts += [
                (at, lambda n=name, c=change, p=part: self._patch(n, c, p)),  # type: ignore[misc]
                (at + stage.moment(0.05, 0.3), lambda n=name, c=back, p=part: self._patch(n, c, p)),  # type: ignore[misc]
            ]

    def _patch(self, node: str, change: Json, subresource: str | None) -> None:
        self.stage.client.surely("patch", NODES, node, change, subresource=subresource)

    def _come(self) -> None:
        self.stage.client.make(NODES, node_of(EXTRA), "")
        self._there = True

    def _go(self) -> None:
        self._there = False
        self.stage.client.surely("delete", NODES, EXTRA)

    def keep(self) -> None:
        """Whoever stood on it is gone with it: its owner takes the rest back."""
        if self._there:
            return
        with self.stage.log.lock:
            lost = {
                key: entry
                for key, entry in self.stage.books.pods.items()
                if entry.node == EXTRA and not entry.ended
            }
        for gang in {entry.gang for entry in lost.values() if entry.gang}:
            self.stage.take_back(gang)
        for namespace, name in [key.split("/") for key, entry in lost.items() if not entry.gang]:
            self.stage.client.surely("delete", PODS, name, namespace, grace_seconds=0)

    def clear(self) -> None:
        self.stage.client.surely("delete", NODES, EXTRA)


def _cards(number: int) -> Json:
    """As a device plug-in that is started anew leaves the node for a moment."""
    return {"status": {"allocatable": {GPU: str(number)}}}


class Binds(Guest):
    """One that binds pods itself, and knows of no more than it sees: where it and Windlass bind in the same moment, a
    node holds too much, and Windlass evicts its own pod. ``refused``: so many binds Windlass did not let through."""

    refused = 0

    def room(self, gpus: int) -> str:
        """A node that has it as far as anybody can see; empty where none has."""
        with self.stage.log.lock:
            held = {name: taken.get(GPU, 0) for name, taken in self.stage.books.held.items()}
        fits = [f"live-{i}" for i in range(NODE_COUNT) if held.get(f"live-{i}", 0) + gpus <= GPUS]
        return self.stage.rng.choice(fits) if fits else ""

    def bind(self, name: str, node: str) -> bool:
        """Whether Windlass, should it be asked, lets it through."""
        try:
            self.stage.client.surely("call", verbs.bind(self.stage.namespace, name, node, uid=""))
        except StatusError as error:
            if error.code != 403 or "has no room" not in error.message:
                raise
            self.refused += 1
            return False
        return True

    def keep(self) -> None:
        """Whose pod had to go because a node held too much is started anew, elsewhere: here it is taken back."""
        with self.stage.log.lock:
            broken = {gang for gang, why in self.stage.books.broken.items() if why in (OVERCOMMITTED, GONE)}
            there = {entry.gang for entry in self.stage.books.pods.values()}
            left = broken & there & self.stage.books.minima.keys()
        for gang in left:
            self.stage.take_back(gang)


class Foreign(Binds):
    """Another scheduler binds pods of its own where there is room as far as it knows."""

    def __init__(self, stage: Stage, name: str = "foreign") -> None:
        super().__init__(stage, name)
        for number in range(stage.rng.randint(4, 8)):
            self.acts.append((stage.moment(), lambda n=number: self._come(n)))  # type: ignore[misc]

    def _come(self, number: int) -> None:
        stage, gpus = self.stage, self.stage.rng.choice((1, 1, 2))
        made = pod(f"{self.name}-{number}", 0, gpus, FOREIGN)
        del made["metadata"]["annotations"]
        name = made["metadata"]["name"]
        stage.client.make(PODS, made, stage.namespace)
        for _ in range(TRIES):
            node = self.room(gpus)
            if node and self.bind(name, node):
                return
        stage.client.surely("delete", PODS, name, stage.namespace, grace_seconds=0)


class Shared(Guest):
    """Parts of cards beside whole ones: each such card is held by a pod of Windlass', and let go in the end."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "shared")
        self.judges = [CardParts(stage.books)]
        for number in range(4):
            gang, members = f"{self.name}-{number}", stage.rng.randint(1, 4)
            part = stage.rng.choice(("0.25", "0.5", "0.7"))
            pods = [pod(gang, rank, 0) for rank in range(members)]
            for one in pods:
                one["metadata"]["annotations"]["gpu-fraction"] = part
                one["spec"]["containers"][0]["env"] = _ENV
            self.minima[gang] = members
            self.acts.append(
                (stage.moment(), lambda g=gang, p=pods, m=members: stage.gang(g, p, m))  # type: ignore[misc]
            )

    def problems(self) -> list[str]:
        with self.stage.log.lock:
            held = [key for key in self.stage.books.pods if key.startswith(f"{RESERVATIONS}/")]
            used = any(shares(notes_of(e)) and e.gang and not e.ended for e in self.stage.books.pods.values())
        return [f"nobody shares a card, and these are held: {held}"] if held and not used else []


class CardParts:
    """No card is given beyond what it has, nor in parts and as a whole."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._parts: dict[tuple[str, str], dict[str, int]] = {}

    def hold(self, key: str, entry: Entry) -> list[str]:
        found = []
        for card, milli in shares(notes_of(entry)).items():
            parts = self._parts.setdefault((entry.node, card), {})
            parts[entry.uid] = milli
            if sum(parts.values()) > 1000:
                found.append(f"card {card} of {entry.node} is given to {parts}")
        whole = self._books.devices.get(entry.node, {})
        for (node, card), parts in self._parts.items():
            if node == entry.node and parts and card in whole:
                found.append(f"card {card} of {node} is given to {whole[card]} and in parts to {parts}")
        return found

    def release(self, key: str, entry: Entry) -> None:
        for card in shares(notes_of(entry)):
            self._parts.get((entry.node, card), {}).pop(entry.uid, None)
