"""The extension points: small Protocols, most of one method. A policy implements any of them.

The engine asks every plugin it is given, in the order given. All methods are pure in their
arguments and in what :class:`Domain` calls have told the plugin before; none blocks, none keeps a
reference to what it is handed, none raises for a legal input.

**Footprint** says what an answer depends on, and so how long it may be kept:

* ``STATIC``: on the node's name, labels, taints, readiness. Asked again only when those change.
* ``ROW``: also on the node's amounts (allocatable, used, releasing, available). Asked again for a
  row whose amounts changed; answers are shared between rows with equal amounts, unless the plugin
  has an attribute ``reads_labels`` that is true.
* A policy about pods in relation to one another (affinity, spread, ports, volumes) implements
  :class:`Domain` instead; a class of tasks that it constrains is placed one by one. Filters,
  capacities and scores are shown needs without what is about other pods
  (:meth:`~windlass.spi.objects.Needs.node_part`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, Protocol, runtime_checkable

import msgspec

from windlass.api.reasons import Reason
from windlass.spi.nodes import BoolArray, FloatArray, IntArray, NodeView
from windlass.spi.objects import Needs, Task
from windlass.spi.views import FLAVOR as FLAVOR
from windlass.spi.views import GroupView as GroupView
from windlass.spi.views import QueueView as QueueView
from windlass.spi.views import StepView as StepView
from windlass.spi.views import flavor_matches as flavor_matches
from windlass.spi.views import flavor_of as flavor_of
from windlass.spi.views import plain_due as plain_due
from windlass.spi.views import unfilled as unfilled


class Footprint(StrEnum):
    """What an answer depends on; see the top of this module."""

    STATIC = "static"
    ROW = "row"


class Trend(IntEnum):
    """How a node's score moves as pods of one class are added to it. ``ANY`` promises nothing."""

    FALLS = -1
    ANY = 0
    RISES = 1


@dataclass(frozen=True, slots=True)
class NodeBlocker:
    """One obstacle over the nodes of a view. ``blocked`` is true where it holds.

    ``needed`` and ``available`` are amounts of ``resource`` in engine units; ``available`` has one
    entry per node, below 0 where pods hold more than is there. ``detail`` says what exactly: a label, a taint, a port.
    """

    code: Reason
    blocked: BoolArray
    resource: str = ""
    needed: int = 0
    available: IntArray | None = None
    detail: str = ""

    @property
    def most_available(self) -> int:
        """The most that a node has which is blocked; 0 where all hold more than they have, or none is told of."""
        return 0 if self.available is None else max(0, int(self.available[self.blocked].max(initial=0)))


class Rejection(msgspec.Struct, frozen=True):
    """A policy's no to a whole step. ``queue`` is the queue (the group's or an ancestor) that says it.

    The step is tried again when that queue gives something back or is changed; with an empty
    ``queue``, or where it hangs on what there is ``elsewhere`` too (what other queues hold or are due, what nodes
    have), whenever anything in the cluster is given back or changed. ``permanent``: no waiting helps, only a change
    of the group or of the queue.
    """

    code: Reason
    queue: str = ""
    resource: str = ""
    needed: int = 0
    available: int = 0
    detail: str = ""
    permanent: bool = False
    remedies: tuple[str, ...] = ()
    elsewhere: bool = False


@runtime_checkable
class ReadsLabels(Protocol):
    """For any policy that looks at labels of pods: ``reads`` names their keys. They then stand in
    ``Needs.labels``, for every pod that carries them."""

    reads: Collection[str]


@runtime_checkable
class ReadsImages(Protocol):
    """For any :class:`RelativeScore` that looks at container images: ``reads_images`` is true. They then stand in
    ``Needs.images`` and ``Node.images``, and pods of different images are of different classes."""

    reads_images: bool


@runtime_checkable
class Filter(Protocol):
    """Which nodes may take a task."""

    name: str
    footprint: Footprint

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        """True where the node passes; ``None`` where the plugin has nothing to say on such tasks."""
        ...


@runtime_checkable
class Capacity(Protocol):
    """How many tasks of one class a node takes on top of what it holds. Always of footprint ``ROW``.

    For limits that are used up by placing: with it the engine places a gang by counting. An attribute
    ``amounts_decide`` that is true promises that the answer is the least, over the resources that a task
    asks for (one of ``pods`` included), of what is available divided by what is asked: the engine then
    counts that by itself.
    """

    name: str

    def capacity(self, needs: Needs, nodes: NodeView) -> IntArray | None:
        """Per node, at least 0; ``None`` for no limit."""
        ...


@runtime_checkable
class NodeBlockers(Protocol):
    """Why nodes are refused. For a plugin with :class:`Filter`, :class:`Capacity` or :class:`Domain`."""

    def findings(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        """All obstacles. A node is blocked by at least one of them exactly if the plugin refuses it."""
        ...


@runtime_checkable
class Domain(Protocol):
    """A policy about pods in relation to one another. It is told of every placement, and of its undoing.

    Classes of tasks are known by a number here: ``learn`` tells which needs it stands for. Such a
    plugin holds state, so one instance serves one engine.

    An attribute ``counts_terminating`` that is false says that a task is gone once it begins to terminate:
    ``add`` tells so then, not when it leaves its node, and ``placed`` is without those that terminate.
    """

    name: str

    def attach(self, nodes: NodeView) -> None:
        """Called once, first: ``nodes`` stays valid and always shows all rows as they are."""
        ...

    def learn(self, number: int, needs: Needs, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        """A class appears. ``placed`` has the number of tasks by row of every class that is placed."""
        ...

    def forget(self, number: int) -> None:
        """No task of the class is left."""
        ...

    def add(self, number: int, row: int, count: int) -> None:
        """``count`` tasks of the class come to ``row``; negative: they leave."""
        ...

    def constrains(self, number: int) -> bool:
        """Whether :meth:`verdict` may refuse any node for the class as things stand."""
        ...

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        """True where the node passes; ``None`` for everywhere."""
        ...

    def listens(self, number: int) -> Collection[int]:
        """The classes whose coming or going may turn a no for this class into a yes."""
        ...

    def relabelled(self, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        """Nodes that hold tasks changed their labels: count afresh from ``placed``."""
        ...


@runtime_checkable
class PlacementEffect(Protocol):
    """For a :class:`Domain`: what one placement can change, so that the rest is not asked again."""

    def touched(self, number: int, row: int) -> Sequence[tuple[str, int]] | None:
        """A task of the class has just come to ``row``: where :meth:`Domain.verdict` on this class may
        differ now. Pairs of a label and a code of it (all nodes of that value), or of ``""`` and a row;
        ``None``: anywhere."""
        ...


@runtime_checkable
class IsInterested(Protocol):
    """For a :class:`Domain` or a :class:`RelativeScore`: which classes are nothing to it, so that it is spared
    most of what happens."""

    def minds(self, number: int) -> bool:
        """False: whatever is placed, it neither counts tasks of the class (:meth:`Domain.add` need not be told)
        nor constrains it or prefers any node for it, until another class is learned or forgotten."""
        ...


@runtime_checkable
class Listeners(Protocol):
    """For a :class:`Domain`: its :meth:`Domain.listens` from the other side, so that what moves finds those
    that wait for it without asking everyone."""

    def heard_by(self, number: int) -> Collection[int]:
        """The classes that listen to this one; also of a class that is not known (any more)."""
        ...


@runtime_checkable
class RelativeScore(Protocol):
    """A score that depends on other nodes or on pods elsewhere: it is made anew for each placement.

    The plugin may also be a :class:`Domain`. A class on which it has an opinion is placed one by one. An
    attribute ``outranks_vacancy`` that is true says that it counts more than whether room is free now.
    """

    name: str
    weight: float

    def opines(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        """Whether it prefers any node to another for the class (``number``), now or once some of its
        tasks are placed."""
        ...

    def relative(self, number: int, needs: Needs, nodes: NodeView, rivals: BoolArray) -> FloatArray:
        """From 0 to 100 per node; what it says where ``rivals`` (the nodes to choose from) is false does
        not matter. At least one node is a rival."""
        ...


@runtime_checkable
class TimeVarying(Protocol):
    """A filter or a score whose answers change by themselves: with the time, or with what it is fed."""

    def changed(self, now: float) -> bool:
        """Asked once at the beginning of every cycle: whether to ask for all its answers again."""
        ...

    def due(self, now: float) -> float | None:
        """When a cycle is needed for its sake; ``None`` if no time is known."""
        ...


@runtime_checkable
class Score(Protocol):
    """How good a node is for a task, from 0 to 100. ``weight`` says how much the opinion counts.

    Room that is free now goes before room that is being vacated, whatever the scores, unless a plugin
    has an attribute ``outranks_vacancy`` that is true: its opinion goes before that.
    """

    name: str
    footprint: Footprint
    weight: float

    def trend(self, needs: Needs) -> Trend:
        """Holds for every node: a promise that lets the engine place many tasks at once."""
        ...

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        """Element-wise: a node's score depends on no other node. ``None``: no opinion on such tasks."""
        ...


PlainScorer = Callable[[Sequence[int], Sequence[int], Sequence[int]], float]
"""The score of one node by what is allocatable, used and releasing on it."""


@runtime_checkable
class PlainScore(Protocol):
    """A :class:`Score` of footprint ``ROW`` that can be asked about one node in plain integers as well.

    Optional, and a matter of speed alone: where every score for a task answers like this, a few nodes are
    judged without arrays, an order of magnitude faster. The answers must be those of ``score``, to the
    last bit.
    """

    def plain(self, needs: Needs, resources: Sequence[str]) -> PlainScorer | None:
        """The score of a node for such tasks by its amounts, which come in the order of ``resources``
        (that may grow later; all that the tasks ask for is in it). ``None``: no opinion."""
        ...


@runtime_checkable
class ManyScores(Protocol):
    """A :class:`Score` of footprint ``ROW`` that can be asked about many kinds of tasks at once as well.

    Optional, and a matter of speed alone: where many nodes have changed, all classes that were asked of
    late are judged in one go. The answers must be those of ``score``, to the last bit.
    """

    weight: float

    def score_many(self, many: Sequence[Needs], nodes: NodeView) -> FloatArray:
        """Kinds × nodes; 0 for a kind without an opinion."""
        ...


@runtime_checkable
class QueueOrder(Protocol):
    """Which of two sibling queues is served next."""

    name: str

    def queue_key(self, queue: QueueView, step: StepView | None) -> Any:
        """Any totally ordered value of one type; the smaller goes first. Ties go on to the next plugin.

        ``step``: what would be placed next in the queue's subtree; ``None`` where that is not known.
        """
        ...


@runtime_checkable
class GroupOrder(Protocol):
    """Which of two groups of a queue goes first."""

    name: str

    def group_key(self, group: GroupView) -> Any:
        """Any totally ordered value of one type; the smaller goes first."""
        ...


@runtime_checkable
class TaskOrder(Protocol):
    """Which of two tasks of a group goes first."""

    name: str

    def task_key(self, task: Task) -> Any:
        """Any totally ordered value of one type; the smaller goes first."""
        ...


@runtime_checkable
class Admit(Protocol):
    """Whether a queue and its ancestors let a group take its next step."""

    name: str

    def admits(self, step: StepView, path: Sequence[QueueView], nodes: NodeView) -> Rejection | None:
        """``path`` runs from the group's queue to the root; ``nodes`` are all nodes. ``None`` means yes."""
        ...


@runtime_checkable
class AdmitUnconditionally(Protocol):
    """An :class:`Admit` that can say at once that it has nothing against any step. Optional: a matter of
    speed alone."""

    def concerns(self, path: Sequence[QueueView]) -> bool:
        """False promises that every step of a group in the first of these queues is admitted, until the
        rules of some queue, or the tree, change."""
        ...


class DomainsView(Protocol):
    """Some domains of one level, in the order of their names."""

    def allocatable(self, resource: str) -> IntArray:
        """Per domain, what its nodes have."""
        ...

    def used(self, resource: str) -> IntArray:
        """Per domain, what is taken, terminating pods included."""
        ...


@runtime_checkable
class DomainScore(Protocol):
    """Which of several domains that could hold a group is taken. The first policy that has an opinion decides;
    without one it is the domain that holds fewest more (packing). Ties: the first by name."""

    name: str

    def domain_scores(self, request: Mapping[str, int], domains: DomainsView) -> FloatArray:
        """Per domain, the larger the better. ``request``: of all members that are to be placed, in sum."""
        ...
