"""Queues, groups and next steps as policies see them; names of device models.

:mod:`windlass.spi.plugins` exports all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from windlass.spi import renamed
from windlass.spi.objects import Group, Needs, Queue

if not TYPE_CHECKING:
    __getattr__ = renamed.old_names(__name__)

FLAVOR = "@"
"""Separator of resource and device model: ``nvidia.com/gpu@H100``."""


def flavor_of(resource: str) -> tuple[str, str]:
    """Return the plain resource and the model of a name; the model of a plain name is empty."""
    plain, _, model = resource.partition(FLAVOR)
    return plain, model


def flavor_matches(resource: str, model: str) -> bool:
    """Return whether devices of ``model`` count under a name such as ``nvidia.com/gpu@H100``.

    They do if the name gives the model, or one of its parts between dashes, in any case.
    """
    wanted, name = flavor_of(resource)[1].casefold(), model.casefold()
    return bool(wanted) and (wanted == name or wanted in name.split("-"))


def include_flavors(amounts: Mapping[str, int]) -> Mapping[str, int]:
    """Return amounts in which those of device models count for the plain resource too.

    The plain amount becomes at least their sum: 8 of ``nvidia.com/gpu@H100`` and 4 of
    ``nvidia.com/gpu@A100`` are 12 of ``nvidia.com/gpu``.
    """
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
    """A queue of the tree with its sums.

    Mappings are resource → amount in engine units, as exact integers. Sums include all
    queues below.
    """

    @property
    def name(self) -> str: ...

    @property
    def spec(self) -> Queue: ...

    @property
    def parent(self) -> QueueView | None: ...

    @property
    def allocated(self) -> Mapping[str, int]:
        """Amounts that tasks hold, terminating tasks included."""
        ...

    @property
    def releasing(self) -> Mapping[str, int]:
        """Part of ``allocated`` that terminating tasks hold."""
        ...

    @property
    def nominated(self) -> Mapping[str, int]:
        """Capacity being freed that is nominated for pending tasks. No other sum contains it."""
        ...

    @property
    def requested(self) -> Mapping[str, int]:
        """``allocated`` and the requests of pending tasks."""
        ...

    @property
    def sibling_weight(self) -> int:
        """Sum of the weights of all children of the parent, this queue included."""
        ...

    @property
    def cluster(self) -> Mapping[str, int]:
        """Allocatable amounts of all nodes together."""
        ...

    @property
    def subqueues(self) -> Sequence[QueueView]:
        """Children, by name."""
        ...

    @property
    def flavored(self) -> Sequence[str]:
        """Names in its capability that give a device model."""
        ...

    @property
    def gangs(self) -> Sequence[GroupView]:
        """Groups of the queue itself."""
        ...

    @property
    def stamp(self) -> int:
        """Number that changes with any sum or rule of any queue."""
        ...

    @property
    def touched(self) -> int:
        """:attr:`stamp` of the last change of :attr:`gangs`, or of what they hold or request."""
        ...

    @property
    def siblings(self) -> Sequence[QueueView]:
        """Queues of its level by name, itself included."""
        ...

    @property
    def guarantees(self) -> Mapping[str, int]:
        """Guarantees of all queues of the cluster together."""
        ...

    @property
    def reserved(self) -> Mapping[str, int]:
        """Guarantee of the subtree: its own, or the sum of its children's if that is larger."""
        ...

    @property
    def demand(self) -> Mapping[str, int]:
        """Amounts held by tasks that do not terminate, and requests of pending tasks."""
        ...

    @property
    def committed(self) -> Mapping[str, int]:
        """Amounts held after all terminating tasks are gone and all nominations are met."""
        ...

    @property
    def allocated_nonpreemptible(self) -> Mapping[str, int]:
        """Part of ``committed`` that groups hold which are not preemptible."""
        ...

    @property
    def fair_share(self) -> Mapping[str, int]:
        """Fair share of the queue (:class:`~windlass.spi.shares.QueueShare`).

        It is constant during a cycle: evictions and binds do not change it.
        """
        ...

    @property
    def allocatable_share(self) -> Mapping[str, int]:
        """Amounts that queues below their share cannot reclaim; no entry means no bound."""
        ...

    @property
    def real_capability(self) -> Mapping[str, int]:
        """Maximum that it can hold, less what is reserved for others; no entry means no bound."""
        ...

    @property
    def usage(self) -> Mapping[str, int]:
        """Decayed past usage, in parts per million of what the cluster had.

        Empty where past usage is not counted.
        """
        ...

    @property
    def mixed(self) -> bool:
        """True if its siblings are of more than one queue API, as only top queues can be."""
        ...


def unfilled_guarantee(
    queue: QueueView, name: str, path: Sequence[QueueView], units: int, *, idle: bool = False
) -> int:
    """Return the part of a subtree's guarantee that it would not hold.

    The queues of ``path`` then hold ``units`` more. ``idle``: nothing else is held.
    The held and the unfilled amount together are never less than the guarantee.
    """
    if not queue.reserved.get(name, 0):
        return 0
    held = 0 if idle else queue.committed.get(name, 0)
    held += units if any(queue.name == own.name for own in path) else 0
    own = max(0, queue.spec.guarantee.get(name, 0) - held)
    return max(own, sum(unfilled_guarantee(child, name, path, units, idle=idle) for child in queue.subqueues))


class GroupView(Protocol):
    """A group as an order sees it."""

    @property
    def spec(self) -> Group: ...

    @property
    def held_members(self) -> int:
        """Number of tasks that count toward the minimum."""
        ...

    @property
    def queue(self) -> QueueView | None:
        """Its queue; ``None`` while it has none."""
        ...

    @property
    def holding(self) -> Mapping[str, int]:
        """Amounts that its tasks hold or are nominated for, without terminating tasks."""
        ...

    @property
    def requested(self) -> Mapping[str, int]:
        """``holding`` and the requests of its pending tasks."""
        ...

    def ready(self) -> bool:
        """Return whether the group holds its minimum. Pending tasks are then elastic."""
        ...

    def surplus(self) -> bool:
        """Return whether the group holds more than its minimum."""
        ...


@renamed.attributes
class StepView(msgspec.Struct, frozen=True):
    """Next step of a group: the tasks that are placed next.

    * ``request``: sum over all ``tasks`` of the step.
    * ``elastic``: they are beyond the minimum of the group.
    * ``future``: the step waits for capacity that is being freed, so terminating tasks
      count as gone.
    * ``needs``: distinct needs of its tasks.
    """

    group: Group
    request: Mapping[str, int]
    tasks: int
    elastic: bool = False
    future: bool = False
    needs: tuple[Needs, ...] = ()

    def usage_of(self, queue: QueueView, resource: str) -> int:
        """Return the amount that counts as held by a queue for this step.

        It is what the subtree holds, and what is nominated for others. Nominations are
        first met from terminating tasks.
        """
        held = queue.allocated.get(resource, 0)
        releasing = queue.releasing.get(resource, 0)
        nominated = queue.nominated.get(resource, 0)
        if self.future:
            return held - releasing + nominated
        return held + max(nominated - releasing, 0)
