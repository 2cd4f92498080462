"""What policies see of queues, of groups and of what a group asks for next; and names of device models.

Part of the surface of :mod:`windlass.spi.plugins`, from where all of it can be imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from windlass.spi.objects import Group, Needs, Queue

FLAVOR = "@"
"""``nvidia.com/gpu@H100``: devices of one model."""


def flavor_of(resource: str) -> tuple[str, str]:
    """The plain resource and the model that a name speaks of; the model is empty for a plain name."""
    plain, _, model = resource.partition(FLAVOR)
    return plain, model


def flavor_matches(resource: str, model: str) -> bool:
    """Whether devices of ``model`` count under a name such as ``nvidia.com/gpu@H100``: that is the model's
    name, or one of its parts between dashes, whatever the case."""
    wanted, name = flavor_of(resource)[1].casefold(), model.casefold()
    return bool(wanted) and (wanted == name or wanted in name.split("-"))


def plain_due(amounts: Mapping[str, int]) -> Mapping[str, int]:
    """Amounts in which what is stated for single device models counts for the plain resource too, at the
    least: 8 of ``nvidia.com/gpu@H100`` and 4 of ``nvidia.com/gpu@A100`` are 12 of ``nvidia.com/gpu``."""
    if not any(FLAVOR in name for name in amounts):
        return amounts
    found = dict(amounts)
    by_model: dict[str, int] = {}
    for name, units in amounts.items():
        plain, model = flavor_of(name)
        if model:
            by_model[plain] = by_model.get(plain, 0) + units
    for plain, units in by_model.items():
        found[plain] = max(found.get(plain, 0), units)
    return found


class QueueView(Protocol):
    """A queue in the tree, with its sums. Mappings are resource → engine units, exact integers."""

    @property
    def name(self) -> str: ...

    @property
    def spec(self) -> Queue: ...

    @property
    def parent(self) -> QueueView | None: ...

    @property
    def allocated(self) -> Mapping[str, int]:
        """What the subtree's tasks hold, terminating ones included."""
        ...

    @property
    def releasing(self) -> Mapping[str, int]:
        """The part of ``allocated`` that is being given back."""
        ...

    @property
    def promised(self) -> Mapping[str, int]:
        """What is kept, on room that is being freed, for waiting tasks of the subtree; part of none of the others."""
        ...

    @property
    def requested(self) -> Mapping[str, int]:
        """``allocated`` and what the subtree's pending tasks ask for."""
        ...

    @property
    def sibling_weight(self) -> int:
        """The sum of the weights of all children of the parent, this queue included."""
        ...

    @property
    def cluster(self) -> Mapping[str, int]:
        """What all nodes have together."""
        ...

    @property
    def subqueues(self) -> Sequence[QueueView]:
        """The children that are known, by name."""
        ...

    @property
    def flavored(self) -> Sequence[str]:
        """What its capability says of single device models."""
        ...

    @property
    def gangs(self) -> Sequence[GroupView]:
        """The groups of the queue itself that are known."""
        ...

    @property
    def stamp(self) -> int:
        """Changes with every change of any queue's sums or rules."""
        ...

    @property
    def touched(self) -> int:
        """:attr:`stamp` as it was when the groups of the queue itself (:attr:`gangs`), or what they hold or ask
        for, changed last."""
        ...

    @property
    def siblings(self) -> Sequence[QueueView]:
        """The known queues of its level by name, itself included."""
        ...

    @property
    def guarantees(self) -> Mapping[str, int]:
        """What is guaranteed to all queues of the cluster together."""
        ...

    @property
    def reserved(self) -> Mapping[str, int]:
        """What is guaranteed to the subtree: its own guarantee, or those of its children if they are more."""
        ...

    @property
    def demand(self) -> Mapping[str, int]:
        """What the subtree's tasks hold and do not give back, and what its pending tasks ask for."""
        ...

    @property
    def committed(self) -> Mapping[str, int]:
        """What the subtree holds once all that is being given back is gone and all promises are met."""
        ...

    @property
    def allocated_nonpreemptible(self) -> Mapping[str, int]:
        """The part of ``committed`` that groups hold which no one may evict."""
        ...

    @property
    def fair_share(self) -> Mapping[str, int]:
        """What the queue is due, of all that is divided (:class:`~windlass.spi.shares.QueueShare`). It stands
        still during a cycle: evictions and binds do not move it."""
        ...

    @property
    def allocatable_share(self) -> Mapping[str, int]:
        """Up to where its holdings are safe from others below their share; not named: no bound."""
        ...

    @property
    def real_capability(self) -> Mapping[str, int]:
        """What it can ever hold, reservations of others taken off; not named: no bound."""
        ...

    @property
    def usage(self) -> Mapping[str, int]:
        """What it used in the past, fading, as part of what the cluster had, in parts per million; empty
        where past usage is not counted."""
        ...

    @property
    def mixed(self) -> bool:
        """Whether its siblings follow more than one API: only queues at the top ever do."""
        ...


def unfilled(
    queue: QueueView, name: str, path: Sequence[QueueView], units: int, *, idle: bool = False
) -> int:
    """What the subtree is guaranteed, and would not hold if the queues of ``path`` held ``units`` more.

    ``idle``: if nobody held anything yet. What is held and unfilled together is never less than that.
    """
    if not queue.reserved.get(name, 0):
        return 0
    held = 0 if idle else queue.committed.get(name, 0)
    held += units if any(queue.name == own.name for own in path) else 0
    own = max(0, queue.spec.guarantee.get(name, 0) - held)
    return max(own, sum(unfilled(child, name, path, units, idle=idle) for child in queue.subqueues))


class GroupView(Protocol):
    """A group as an ordering sees it."""

    @property
    def spec(self) -> Group: ...

    @property
    def held_members(self) -> int:
        """Tasks that count toward the minimum."""
        ...

    @property
    def queue(self) -> QueueView | None:
        """Its queue; ``None`` while it has none."""
        ...

    @property
    def holding(self) -> Mapping[str, int]:
        """What its tasks hold or are promised; what is being given back left out."""
        ...

    @property
    def asked(self) -> Mapping[str, int]:
        """``holding``, and what its pending tasks ask for."""
        ...

    def ready(self) -> bool:
        """Whether the group holds its minimum; what still waits is then elastic."""
        ...

    def surplus(self) -> bool:
        """Whether the group holds more than its minimum."""
        ...


class StepView(msgspec.Struct, frozen=True):
    """What a group asks for next: ``request`` in sum, by ``tasks`` tasks. ``extra``: beyond its minimum.

    ``future``: it would wait for room that is being given back, so what terminates counts as gone.
    ``needs``: what its tasks ask of nodes, each kind once.
    """

    group: Group
    request: Mapping[str, int]
    tasks: int
    extra: bool = False
    future: bool = False
    needs: tuple[Needs, ...] = ()

    def standing(self, queue: QueueView, resource: str) -> int:
        """What of a resource the queue's subtree counts as holding when this step is judged: what it
        holds and what is promised to others; promises are first met from what terminates."""
        held = queue.allocated.get(resource, 0)
        leaving = queue.releasing.get(resource, 0)
        promised = queue.promised.get(resource, 0)
        if self.future:
            return held - leaving + promised
        return held + max(promised - leaving, 0)
