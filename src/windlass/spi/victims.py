"""Who may take room from whom: the policies that the evicting actions ask.

A *claim* is a waiting group's next step together with the action that looks for room for it (``preempt``:
inside its queue; ``reclaim``: from other queues; ``consolidation``: by moving others). The engine asks

1. :class:`PreemptionPolicy`: may it, and on which terms. Nobody speaking for it means no.
2. :class:`VictimFilter`: which queues and which *units* are spared. A unit is what goes together: one
   task beyond a gang's minimum, or all that makes up the minimum.
3. :class:`VictimOrder`: which unit goes first. This order is the measure of "cheapest": the engine finds
   the set of units that spares the dearest one that can be spared, then the next dearest, and so on.
4. :class:`VictimSetRule`: whether a set, in its order, is within the rules. Units that get another place are
   not counted in it, where the terms allow for that.

Nothing is evicted unless the whole step is proven to fit afterwards. Work that is not preemptible, system
critical pods and the claimer itself are never offered.

What a queue had for keeps (:attr:`QueueView.committed`) when the claim was made says :meth:`Preemption.held`: the
queue's own sums move while the engine tries something out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import msgspec

from windlass.api.reasons import Reason
from windlass.spi.objects import Group, Resources, Task
from windlass.spi.plugins import QueueView


class VictimScope(StrEnum):
    """In which queues victims are looked for."""

    OWN_QUEUE = "own-queue"
    OTHER_QUEUES = "other-queues"
    ALL_QUEUES = "all-queues"


class RelocationMode(StrEnum):
    """Whether evicted tasks are to get another place in the same decision."""

    NEVER = "never"
    MAY = "may"
    """Those that can are moved; they do not count as taken from their queue."""
    MUST = "must"
    """All of them, or nothing is done."""


class HeldAtStart:
    """What queues held when a claim was made."""

    def __init__(self) -> None:
        self._held: dict[str, Mapping[str, int]] = {}

    def of(self, queue: QueueView) -> Mapping[str, int]:
        """As at the first question about the queue; the engine asks about all that matter beforehand."""
        found = self._held.get(queue.name)
        if found is None:
            found = self._held[queue.name] = dict(queue.committed)
        return found


class CompetingGroup(msgspec.Struct, frozen=True):
    """A group of another queue that waits, could be where the claimer could be, and has been promised nothing.
    ``request``: of its next step; ``path``: its queue, its parent, … up to the root."""

    group: Group
    request: Resources
    path: tuple[QueueView, ...]


def no_competitors() -> Iterable[CompetingGroup]:
    return ()


class Preemption(msgspec.Struct, frozen=True, eq=False):
    """A step that needs room. ``request``: of all ``tasks`` of the step together. ``path``: the group's
    queue, its parent, … up to the root. ``extra``: a task beyond the gang's minimum. ``now`` in Unix
    seconds. ``rivals``: who may take back from the claimer what it takes, where groups of other queues can; one for all
    that wait for the same."""

    action: str
    group: Group
    request: Resources
    tasks: int
    path: tuple[QueueView, ...]
    extra: bool
    now: float
    held_at_start: HeldAtStart = msgspec.field(default_factory=HeldAtStart)
    rivals: Callable[[], Iterable[CompetingGroup]] = no_competitors

    def held(self, queue: QueueView) -> Mapping[str, int]:
        """What a queue had for keeps when the claim was made."""
        return self.held_at_start.of(queue)


class VictimSet(msgspec.Struct, frozen=True):
    """What goes together. ``core``: what makes up the group's minimum. ``spare``: how many of the group's
    tasks beyond its minimum are still there, this unit included. ``ready``: the group holds its minimum
    now. ``members``: how many of its tasks hold something before this unit goes, ``size``: how many it has in
    all, ``finished``: how many of those have succeeded or failed. ``started``: when the task of the unit that runs
    longest started, as far as known."""

    group: Group
    path: tuple[QueueView, ...]
    tasks: tuple[Task, ...]
    request: Resources
    core: bool
    spare: int
    ready: bool = True
    members: int = 0
    size: int = 0
    started: float | None = None
    finished: int = 0


class PreemptionTerms(msgspec.Struct, frozen=True):
    """What a claim may do. ``groups``: how many victim groups it may look at; 0 for any number. ``below``:
    only groups of a lower priority are victims; ``None`` for any. ``only``: the keys of the groups that may be
    moved, of a policy that knows which, in the order in which they go: the first ones make room for the claim, those
    after them for the first ones. ``None``: those near the room that lacks least. ``places``: to which node each of
    them goes (empty: to the one with the best score); who has no room there goes elsewhere."""

    scope: VictimScope
    move: RelocationMode = RelocationMode.NEVER
    groups: int = 0
    below: int | None = None
    only: tuple[str, ...] | None = None
    places: tuple[str, ...] = ()

    @property
    def place_of(self) -> dict[str, str]:
        """Group → the node that it goes to, of those with a place."""
        return {group: place for group, place in zip(self.only or (), self.places, strict=False) if place}


class PreemptionDenied(msgspec.Struct, frozen=True):
    """The claim may take nothing. ``until``: Unix seconds from which on it may, as things stand.
    ``personal``: this group only; others of its queue and priority that ask for the same may. ``stands``: as long as
    it says yes, every claim for the same would be denied, of any group of that queue, API and priority that is as
    preemptible; it is asked often in place of the claim. It is to be hashable, and equal for claims of which one
    cannot be had without the others, so that it is asked once for all of them."""

    code: Reason
    until: float | None = None
    detail: str = ""
    personal: bool = False
    stands: Callable[[], bool] | None = None


Taken = Mapping[str, Mapping[str, int]]
"""Queue → resource → what the units chosen so far give back, at each queue and at its ancestors."""


class FreedResources(msgspec.Struct, frozen=True):
    """What a set of units takes. ``taken`` is by queue; ``units`` in the order in which they go. ``going``:
    these and those that get another place."""

    units: Sequence[VictimSet] = ()
    taken: Taken = msgspec.field(default_factory=dict[str, Mapping[str, int]])
    going: Sequence[VictimSet] = ()


@runtime_checkable
class PreemptionPolicy(Protocol):
    """Whether a claim may look for victims. The first plugin that grants sets the terms; any denial ends it.

    A plugin may have a method ``may_grant(action, dialect)``: false promises that it grants nothing to claims under
    that name of groups of that API. Where nobody may, nobody is asked.
    """

    name: str

    def claims(self, preemption: Preemption) -> PreemptionTerms | PreemptionDenied | None:
        """``None``: nothing to say."""
        ...


@runtime_checkable
class VictimFilter(Protocol):
    """What is spared. Answers for a claim must not depend on other victims.

    An attribute ``spares_no_queue`` that is true promises that ``spares_queue`` never is.

    A plugin whose answer changes with time alone also has a method ``spared_until(claim, unit)``, which
    says when a unit that it spares is to be looked at again (Unix seconds, or ``None``).

    An attribute ``lasting`` that is true, here and of a :class:`VictimOrder`, promises that what is said of a unit to
    claims of one action and queue, of groups of one API and priority, changes only with its group and its tasks, with
    what queues are configured to be, with PodDisruptionBudgets, and at the moments that ``spared_until`` names.
    Where all promise it, the engine remembers the answers.
    """

    name: str

    def spares_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        """Whether nothing of a queue may be taken; ``path`` from that queue to the root."""
        ...

    def spares(self, preemption: Preemption, victim_set: VictimSet) -> bool: ...


@runtime_checkable
class QueueVictimFilter(Protocol):
    """A :class:`VictimFilter` whose ``spares_queue`` looks at no more than the two queues at which the paths
    of claimer and victim part (:func:`parting`). Optional, and a matter of speed alone: it is then asked
    once for all queues below."""

    def spares_branch(self, preemption: Preemption, ours: QueueView, theirs: QueueView) -> bool: ...


@runtime_checkable
class VictimOrder(Protocol):
    """Which of two units goes first: the tree is walked from the root, then the groups of the queue."""

    name: str

    def victim_queue_key(self, preemption: Preemption, queue: QueueView, taken: Mapping[str, int]) -> Any:
        """Any totally ordered value of one type, or ``None`` for no opinion; the smaller goes first.

        ``taken``: what units chosen before give back of this queue.
        """
        ...

    def victim_key(self, preemption: Preemption, victim_set: VictimSet) -> Any:
        """The same for units of one queue. ``None`` for no opinion on any unit of this claim. Sorted units are kept for
        claims of one action and queue, of groups of one API and priority: whoever goes by more is a
        :class:`VictimKeyInputs`."""
        ...


@runtime_checkable
class VictimKeyInputs(Protocol):
    """For a :class:`VictimOrder` whose ``victim_key`` goes by more of a claim than its action and queue, and its
    group's API and priority: by what it asks for, or the time."""

    def goes_by(self, preemption: Preemption) -> Hashable:
        """Equal for claims for which it says the same of every unit. The fewer there are, the more is kept."""
        ...


@runtime_checkable
class VictimSetRule(Protocol):
    """The rules for sets of units."""

    name: str

    def may_take(self, preemption: Preemption, victim_set: VictimSet, taken: Taken) -> bool:
        """Whether a unit may go after those in ``taken`` went."""
        ...

    def validates(self, preemption: Preemption, freed: FreedResources) -> bool:
        """Whether a whole set may go."""
        ...


def parting(claimer: Sequence[QueueView], victim: Sequence[QueueView]) -> tuple[QueueView, QueueView]:
    """The two queues, one on each path to the root, at which the paths part.

    Of two groups of one queue that is the queue itself, twice.
    """
    names = {queue.name for queue in claimer}
    theirs = victim[0]
    for queue in victim:
        if queue.name in names:
            break
        theirs = queue
    names = {queue.name for queue in victim}
    ours = claimer[0]
    for queue in claimer:
        if queue.name in names:
            break
        ours = queue
    return ours, theirs
