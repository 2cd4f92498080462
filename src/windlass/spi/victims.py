"""Policies of the evicting actions: which groups may preempt, which tasks are victims.

A :class:`Preemption` is the next step of a pending group, together with the action that
looks for capacity for it: ``preempt`` inside its queue, ``reclaim`` from other queues,
``consolidation`` by moving tasks. The engine asks in this order:

1. :class:`PreemptionPolicy`: whether the preemption is allowed, and its terms. It is not
   allowed if no policy grants it.
2. :class:`VictimFilter`: queues and *victim sets* that are protected. A victim set is
   evicted as a whole: one task beyond the minimum of a gang, or the whole minimum.
3. :class:`VictimOrder`: which victim set is taken first. This order defines "cheapest":
   the engine looks for the victim sets that spare the most expensive one that can be
   spared, then the next most expensive one, and so on.
4. :class:`VictimSetRule`: whether the chosen victim sets together obey the rules. Sets
   that get another place do not count, if the terms allow moves.

Nothing is evicted unless the whole step is proven to fit afterwards. Tasks that are not
preemptible, system-critical pods and the preemptor itself are never candidates.

:meth:`Preemption.held` returns what a queue held (:attr:`QueueView.committed`) when the
preemption began. The sums of the queue itself change while the engine tries victims.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from windlass.api.reasons import Reason
from windlass.spi import renamed
from windlass.spi.objects import Group, Resources, Task
from windlass.spi.plugins import QueueView

if not TYPE_CHECKING:
    __getattr__ = renamed.old_names(__name__)


class VictimScope(StrEnum):
    """Queues in which victims are looked for."""

    OWN_QUEUE = "own-queue"
    OTHER_QUEUES = "other-queues"
    ALL_QUEUES = "all-queues"


class RelocationMode(StrEnum):
    """Choice to give evicted tasks another place in the same decision."""

    NEVER = "never"
    MAY = "may"
    """Tasks that fit elsewhere are moved. They do not count as taken from their queue."""
    MUST = "must"
    """All of them are moved, or nothing is evicted."""


class HeldAtStart:
    """Amounts that queues held when a preemption began."""

    def __init__(self) -> None:
        self._held: dict[str, Mapping[str, int]] = {}

    def of(self, queue: QueueView) -> Mapping[str, int]:
        """Return the amounts at the first call for the queue.

        The engine makes this call for all relevant queues before it tries anything.
        """
        found = self._held.get(queue.name)
        if found is None:
            found = self._held[queue.name] = dict(queue.committed)
        return found


class CompetingGroup(msgspec.Struct, frozen=True):
    """Pending group of another queue that fits where the preemptor fits.

    Nothing is nominated for it. ``request``: of its next step. ``path``: from its queue
    to the root.
    """

    group: Group
    request: Resources
    path: tuple[QueueView, ...]


def no_competitors() -> Iterable[CompetingGroup]:
    """Return no group."""
    return ()


@renamed.attributes
class Preemption(msgspec.Struct, frozen=True, eq=False):
    """A step that needs capacity.

    * ``request``: sum over all ``tasks`` of the step.
    * ``path``: from the group's queue to the root.
    * ``elastic``: the step is a task beyond the minimum of the gang.
    * ``now``: Unix seconds.
    * ``competitors``: groups that may take back from the preemptor what it takes, if
      groups of other queues can; one for each distinct request.
    """

    action: str
    group: Group
    request: Resources
    tasks: int
    path: tuple[QueueView, ...]
    elastic: bool
    now: float
    held_at_start: HeldAtStart = msgspec.field(default_factory=HeldAtStart)
    competitors: Callable[[], Iterable[CompetingGroup]] = no_competitors

    def held(self, queue: QueueView) -> Mapping[str, int]:
        """Return what a queue held when the preemption began."""
        return self.held_at_start.of(queue)


@renamed.attributes
class VictimSet(msgspec.Struct, frozen=True):
    """Tasks of one group that are evicted together.

    * ``is_minimum``: the tasks are the minimum of the group.
    * ``elastic_members``: tasks of the group beyond its minimum that are still there,
      this set included.
    * ``ready``: the group holds its minimum now.
    * ``members``: tasks of the group that hold something before this set is evicted.
    * ``size``: all tasks of the group. ``finished``: those of them that have succeeded or
      failed.
    * ``started``: start of the task of the set that has run longest, if it is known.
    """

    group: Group
    path: tuple[QueueView, ...]
    tasks: tuple[Task, ...]
    request: Resources
    is_minimum: bool
    elastic_members: int
    ready: bool = True
    members: int = 0
    size: int = 0
    started: float | None = None
    finished: int = 0


class PreemptionTerms(msgspec.Struct, frozen=True):
    """Terms on which a preemption is granted.

    * ``groups``: maximum number of victim groups to consider; 0 for no limit.
    * ``below``: only groups of a lower priority are victims; ``None`` for any.
    * ``only``: keys of the groups that may be moved, in order, of a policy that knows
      them. The first ones make room for the preemptor, later ones for the first ones.
      ``None``: groups near the smallest gap.
    * ``places``: target node of each of them; empty for the node with the best score. A
      group that does not fit on its target goes elsewhere.
    """

    scope: VictimScope
    move: RelocationMode = RelocationMode.NEVER
    groups: int = 0
    below: int | None = None
    only: tuple[str, ...] | None = None
    places: tuple[str, ...] = ()

    @property
    def place_of(self) -> dict[str, str]:
        """Target node by group, for groups with a target."""
        return {group: place for group, place in zip(self.only or (), self.places, strict=False) if place}


class PreemptionDenied(msgspec.Struct, frozen=True):
    """Denial of a preemption.

    * ``until``: Unix seconds from which on it may be allowed, as things are now.
    * ``personal``: it holds for this group only. Other groups of its queue and priority
      with the same request may be allowed.
    * ``stands``: while it returns true, each preemption with the same request would be
      denied, for any group of that queue, queue API, priority and preemptibility. The
      engine calls it often instead of the policy. It is hashable. It is equal for
      preemptions that can only be granted together, so that it is called once for them.
    """

    code: Reason
    until: float | None = None
    detail: str = ""
    personal: bool = False
    stands: Callable[[], bool] | None = None


Taken = Mapping[str, Mapping[str, int]]
"""Queue → resource → amount that the victim sets chosen so far release.

Each amount counts at the queue of the victim and at its ancestors.
"""


@renamed.attributes
class FreedResources(msgspec.Struct, frozen=True):
    """Result of a choice of victims.

    * ``victim_sets``: sets that give their capacity, in the order of their eviction.
    * ``taken``: their amounts by queue.
    * ``all_sets``: these sets and those that get another place.
    """

    victim_sets: Sequence[VictimSet] = ()
    taken: Taken = msgspec.field(default_factory=dict[str, Mapping[str, int]])
    all_sets: Sequence[VictimSet] = ()


@runtime_checkable
class PreemptionPolicy(Protocol):
    """Permission of a preemption to look for victims.

    The first plugin that grants it sets the terms. Any denial ends it.

    A plugin may have a method ``may_grant(action, dialect)``. If it returns false, the
    plugin grants nothing to preemptions of that action and queue API. The engine skips an
    action that no plugin may grant.
    """

    name: str

    def preemption_terms(self, preemption: Preemption) -> PreemptionTerms | PreemptionDenied | None:
        """Return the terms, a denial, or ``None`` if the plugin does not apply."""
        ...


@runtime_checkable
class VictimFilter(Protocol):
    """Protection of queues and victim sets. Answers do not depend on other victims.

    Optional attributes and methods:

    * ``protects_no_queue``: if true, ``protects_queue`` always returns false.
    * ``protected_until(preemption, victim_set)``: for answers that change with time
      alone. It returns the Unix time at which a protected set is looked at again,
      or ``None``.
    * ``lasting``: for speed, here and for a :class:`VictimOrder`. If true, an answer for
      a victim set holds for all preemptions of one action and queue, by groups of one
      queue API and priority. It changes only with the group and its tasks, with the
      configuration of queues, with PodDisruptionBudgets, and at the times of
      ``protected_until``. If all plugins are lasting, the engine keeps the answers.
    """

    name: str

    def protects_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        """Return whether nothing may be taken from a queue.

        ``path``: from that queue to the root.
        """
        ...

    def protects_victim(self, preemption: Preemption, victim_set: VictimSet) -> bool:
        """Return whether this set may not be evicted."""
        ...


@runtime_checkable
class RelocationFilter(Protocol):
    """Protection of tasks from relocation: being stopped here and started again elsewhere.

    It holds for relocations by any action. A protected task may still be evicted where
    the rules allow to take its capacity.
    """

    name: str

    def may_relocate(self, group: Group, task: Task) -> bool:
        """Return whether a task of a group may be relocated."""
        ...


@runtime_checkable
class QueueVictimFilter(Protocol):
    """A :class:`VictimFilter` that compares only two queues in ``protects_queue``. For speed.

    These are the queues at which the paths of preemptor and victim part
    (:func:`parting`). The engine then asks once for all queues below.
    """

    def protects_branch(self, preemption: Preemption, ours: QueueView, theirs: QueueView) -> bool:
        """Return whether nothing may be taken from ``theirs`` and the queues below it.

        ``ours``: the queue on the preemptor's path.
        """
        ...


@runtime_checkable
class VictimOrder(Protocol):
    """Order of victim sets: the tree is walked from the root, then the groups of a queue."""

    name: str

    def victim_queue_key(self, preemption: Preemption, queue: QueueView, taken: Mapping[str, int]) -> Any:
        """Return a sort key of one totally ordered type; the smallest queue gives first.

        ``taken``: amounts that the sets chosen so far release in this queue. ``None``:
        the plugin does not apply.
        """
        ...

    def victim_key(self, preemption: Preemption, victim_set: VictimSet) -> Any:
        """Return a sort key of one totally ordered type for the sets of one queue.

        ``None``: the plugin does not apply to this preemption. The sorted sets are kept
        for preemptions of one action and queue, by groups of one queue API and priority.
        If the key depends on more, the plugin is a :class:`VictimKeyInputs`.
        """
        ...


@runtime_checkable
class VictimKeyInputs(Protocol):
    """A :class:`VictimOrder` with a ``victim_key`` that depends on more of a preemption.

    That is more than its action, its queue, and the queue API and priority of its group:
    for example its request, or the time.
    """

    def victim_key_inputs(self, preemption: Preemption) -> Hashable:
        """Return a value that is equal for preemptions with equal keys.

        The fewer values there are, the more sorted sets can be kept.
        """
        ...


@runtime_checkable
class VictimSetRule(Protocol):
    """Rules for several victim sets together."""

    name: str

    def may_take(self, preemption: Preemption, victim_set: VictimSet, taken: Taken) -> bool:
        """Return whether a set may be evicted after the sets in ``taken``."""
        ...

    def validates(self, preemption: Preemption, freed: FreedResources) -> bool:
        """Return whether all chosen sets may be evicted."""
        ...


def parting(preemptor: Sequence[QueueView], victim: Sequence[QueueView]) -> tuple[QueueView, QueueView]:
    """Return the two queues at which the paths of preemptor and victim part.

    Both paths run to the root. For two groups of one queue, it is this queue twice.
    """
    names = {queue.name for queue in preemptor}
    theirs = victim[0]
    for queue in victim:
        if queue.name in names:
            break
        theirs = queue
    names = {queue.name for queue in victim}
    ours = preemptor[0]
    for queue in preemptor:
        if queue.name in names:
            break
        ours = queue
    return ours, theirs
