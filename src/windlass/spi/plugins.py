"""Extension points of the scheduler: small Protocols, most of them with one method.

A policy is one class that implements any number of them. Most policies need one of three:

* :class:`Filter`: nodes on which a pod may run.
* :class:`Score`: how good a node is for a pod.
* :class:`Admit`: whether a group may take its next step.

Methods of the other Protocols are optional. Some make an answer faster
(``docs/guides/write-a-policy.md``, "For speed").

The engine calls all plugins in the order of the configuration. A method is pure in its
arguments and in what the calls of :class:`Domain` told the plugin before. It does not
block, does not keep a reference to its arguments, and does not raise for a legal input.

**Footprint** declares what an answer depends on, and so how long the engine keeps it:

* ``STATIC``: the name, labels, taints and readiness of the node. The engine asks again
  when one of them changes.
* ``ROW``: in addition the amounts of the node (allocatable, used, releasing, available).
  The engine asks again for a row when its amounts change. Rows with equal amounts share
  an answer, unless the plugin has a true attribute ``reads_labels``.
* A policy that relates pods to one another (affinity, spread, ports, volumes) implements
  :class:`Domain` instead. Tasks of a class that it constrains are placed one by one.
  Filters, capacities and scores see needs without these relations
  (:meth:`~windlass.spi.objects.Needs.node_part`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from windlass.api.reasons import Reason
from windlass.spi import renamed
from windlass.spi.nodes import BoolArray, FloatArray, IntArray, NodeView
from windlass.spi.objects import Needs, Task
from windlass.spi.views import FLAVOR as FLAVOR
from windlass.spi.views import GroupView as GroupView
from windlass.spi.views import QueueView as QueueView
from windlass.spi.views import StepView as StepView
from windlass.spi.views import flavor_matches as flavor_matches
from windlass.spi.views import flavor_of as flavor_of
from windlass.spi.views import include_flavors as include_flavors
from windlass.spi.views import unfilled_guarantee as unfilled_guarantee

if not TYPE_CHECKING:
    __getattr__ = renamed.old_names(__name__)


class Footprint(StrEnum):
    """Inputs of an answer; see the docstring of this module."""

    STATIC = "static"
    ROW = "row"


class Trend(IntEnum):
    """Direction of a node's score as pods of one class are added to the node.

    ``ANY`` makes no statement.
    """

    FALLS = -1
    ANY = 0
    RISES = 1


@dataclass(frozen=True, slots=True)
class NodeBlocker:
    """One obstacle, for all nodes of a view. ``blocked`` is true where it holds.

    * ``resource``, ``needed``: the missing resource and its requested amount, in engine
      units.
    * ``available``: amount on each node. It is negative where pods hold more than the
      node has.
    * ``detail``: the label, taint or port that blocks.
    """

    code: Reason
    blocked: BoolArray
    resource: str = ""
    needed: int = 0
    available: IntArray | None = None
    detail: str = ""

    @property
    def most_available(self) -> int:
        """Largest available amount on a blocked node, at least 0; 0 without ``available``."""
        return 0 if self.available is None else max(0, int(self.available[self.blocked].max(initial=0)))


class Rejection(msgspec.Struct, frozen=True):
    """Rejection of a whole step by a policy.

    * ``queue``: the queue that rejects it, the group's or an ancestor. The step is tried
      again when this queue releases something or is changed. Without a queue it is tried
      again when anything in the cluster is released or changed.
    * ``elsewhere``: the rejection also depends on other queues or on nodes. The step is
      then tried again as without a queue.
    * ``permanent``: only a change of the group or of the queue helps.
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
    """Any policy that reads labels of pods.

    ``reads`` lists their keys. ``Needs.labels`` then contains them for each pod with
    these labels.
    """

    reads: Collection[str]


@runtime_checkable
class ReadsImages(Protocol):
    """A :class:`RelativeScore` that reads container images, if ``reads_images`` is true.

    ``Needs.images`` and ``Node.images`` are then filled. Pods with different images
    belong to different classes.
    """

    reads_images: bool


@runtime_checkable
class Filter(Protocol):
    """Nodes on which a task may run."""

    name: str
    footprint: Footprint

    def filter(self, needs: Needs, nodes: NodeView) -> BoolArray | None:
        """Return a mask that is true for nodes that pass.

        ``None``: the plugin does not apply to such tasks.
        """
        ...


@runtime_checkable
class Capacity(Protocol):
    """Number of further tasks of one class that fit on a node; always of footprint ``ROW``.

    It is for limits that placements use up. With it the engine places a gang by counting.

    A true attribute ``resources_only`` declares that the answer follows from resources:
    the minimum, over the requested resources (one of ``pods`` included), of available
    divided by requested. The engine then computes it without the plugin.
    """

    name: str

    def capacity(self, needs: Needs, nodes: NodeView) -> IntArray | None:
        """Return a number of at least 0 for each node; ``None`` for no limit."""
        ...


@runtime_checkable
class NodeBlockers(Protocol):
    """Reasons why nodes are rejected, of a :class:`Filter`, :class:`Capacity` or :class:`Domain`."""

    def blockers(self, needs: Needs, nodes: NodeView) -> Sequence[NodeBlocker]:
        """Return all obstacles.

        At least one of them blocks a node if and only if the plugin rejects this node.
        """
        ...


@runtime_checkable
class Domain(Protocol):
    """A policy that relates pods to one another.

    The engine reports each placement to it, and each undo of a placement. Task classes
    are identified by a number; :meth:`learn` gives the needs behind a number. The plugin
    holds state, so one instance serves one engine.

    An attribute ``counts_terminating`` that is false declares that terminating tasks do
    not count. :meth:`add` then reports a task as gone when it begins to terminate, not
    when it leaves its node, and ``placed`` contains no terminating tasks.
    """

    name: str

    def attach(self, nodes: NodeView) -> None:
        """Keep ``nodes``, which always shows all rows as they are. Called once, first."""
        ...

    def learn(self, number: int, needs: Needs, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        """Add a class.

        ``placed``: for each class with placed tasks its number, and row → number of tasks.
        """
        ...

    def forget(self, number: int) -> None:
        """Remove a class. No task of it is left."""
        ...

    def add(self, number: int, row: int, count: int) -> None:
        """Count ``count`` more tasks of the class on ``row``; fewer if negative."""
        ...

    def constrains(self, number: int) -> bool:
        """Return whether :meth:`verdict` may now reject any node for the class."""
        ...

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        """Return a mask that is true for nodes that pass; ``None`` if all pass."""
        ...

    def listens_to(self, number: int) -> Collection[int]:
        """Return the classes that may turn a rejection into a pass when placed or removed."""
        ...

    def relabelled(self, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        """Count again from ``placed``: labels of nodes with tasks have changed."""
        ...


@runtime_checkable
class PlacementEffect(Protocol):
    """A :class:`Domain` that knows which verdicts one placement changes. For speed."""

    def touched(self, number: int, row: int) -> Sequence[tuple[str, int]] | None:
        """Return where :meth:`Domain.verdict` may differ after a placement on ``row``.

        A task of the class ``number`` was placed there. The result has pairs of a label
        and a code of it (all nodes with this value), or of ``""`` and a row. ``None``:
        anywhere.
        """
        ...


@runtime_checkable
class IsInterested(Protocol):
    """A :class:`Domain` or :class:`RelativeScore` that ignores some classes. For speed."""

    def is_interested(self, number: int) -> bool:
        """Return false if tasks of the class do not matter to the plugin.

        The plugin then neither counts them (:meth:`Domain.add` may be left out), nor
        constrains them, nor prefers a node for them. This holds until another class is
        learned or forgotten.
        """
        ...


@runtime_checkable
class Listeners(Protocol):
    """A :class:`Domain` with the inverse of :meth:`Domain.listens_to`. For speed.

    The engine then finds the classes that wait for a change without asking about each.
    """

    def listeners(self, number: int) -> Collection[int]:
        """Return the classes that listen to this one, which may be unknown or forgotten."""
        ...


@runtime_checkable
class RelativeScore(Protocol):
    """Score that depends on other nodes or on pods elsewhere, computed for each placement.

    The plugin may also be a :class:`Domain`. Tasks of a class with a preference are
    placed one by one. A true attribute ``outranks_vacancy`` declares that the score
    decides before the question whether the capacity is free now.
    """

    name: str
    weight: float

    def has_preference(self, number: int, needs: Needs, nodes: NodeView) -> bool:
        """Return whether it prefers any node for the class ``number``.

        True also if it will do so once tasks of the class are placed.
        """
        ...

    def relative(self, number: int, needs: Needs, nodes: NodeView, candidates: BoolArray) -> FloatArray:
        """Return a score of 0 to 100 for each node.

        Only values where ``candidates`` is true are used. It is true for at least one
        node.
        """
        ...


@runtime_checkable
class TimeVarying(Protocol):
    """A filter or score with answers that change with time, or with data that it is given."""

    def changed(self, now: float) -> bool:
        """Return whether all answers must be asked for again. Called once in each cycle."""
        ...

    def due(self, now: float) -> float | None:
        """Return the time of the next cycle that it needs; ``None`` if no time is known."""
        ...


@runtime_checkable
class Score(Protocol):
    """Score of a node for a task, from 0 to 100. ``weight`` is its weight among scores.

    Capacity that is free now goes before capacity that terminating pods still hold,
    whatever the scores. A true attribute ``outranks_vacancy`` declares that this score
    decides before that.
    """

    name: str
    footprint: Footprint
    weight: float

    def trend(self, needs: Needs) -> Trend:
        """Return how each node's score moves as tasks are added to the node.

        With a trend the engine places many tasks at once.
        """
        ...

    def score(self, needs: Needs, nodes: NodeView) -> FloatArray | None:
        """Return a score for each node, which depends on no other node.

        ``None``: the plugin does not apply to such tasks.
        """
        ...


PlainScorer = Callable[[Sequence[int], Sequence[int], Sequence[int]], float]
"""Score of one node from its allocatable, used and releasing amounts."""


@runtime_checkable
class PlainScore(Protocol):
    """A :class:`Score` of footprint ``ROW`` that also scores one node in plain integers.

    For speed: if all scores of a task do, a few nodes are scored without arrays, ten
    times faster. The answers must equal those of ``score`` to the last bit.
    """

    def plain(self, needs: Needs, resources: Sequence[str]) -> PlainScorer | None:
        """Return the scorer for such tasks; ``None`` if the plugin does not apply.

        The scorer takes amounts in the order of ``resources``, which may grow later. It
        contains all that the tasks request.
        """
        ...


@runtime_checkable
class ManyScores(Protocol):
    """A :class:`Score` of footprint ``ROW`` that also scores many kinds of tasks at once.

    For speed: if many nodes have changed, all recently used classes are scored in one
    call. The answers must equal those of ``score`` to the last bit.
    """

    weight: float

    def score_many(self, many: Sequence[Needs], nodes: NodeView) -> FloatArray:
        """Return an array kinds × nodes; 0 for a kind to which the plugin does not apply."""
        ...


@runtime_checkable
class QueueOrder(Protocol):
    """Order in which sibling queues are served."""

    name: str

    def queue_key(self, queue: QueueView, step: StepView | None) -> Any:
        """Return a sort key; the smallest is served first.

        All keys are of one totally ordered type. On equal keys the next plugin decides.
        ``step``: the step that would be placed next in the subtree of the queue;
        ``None`` if it is not known.
        """
        ...


@runtime_checkable
class GroupOrder(Protocol):
    """Order of the groups of one queue."""

    name: str

    def group_key(self, group: GroupView) -> Any:
        """Return a sort key of one totally ordered type; the smallest goes first."""
        ...


@runtime_checkable
class TaskOrder(Protocol):
    """Order of the tasks of one group."""

    name: str

    def task_key(self, task: Task) -> Any:
        """Return a sort key of one totally ordered type; the smallest goes first."""
        ...


@runtime_checkable
class Admit(Protocol):
    """Admission of the next step of a group by its queue and all ancestors."""

    name: str

    def admits(self, step: StepView, path: Sequence[QueueView], nodes: NodeView) -> Rejection | None:
        """Return ``None`` to admit the step, or why it is rejected.

        ``path``: from the group's queue to the root. ``nodes``: all nodes.
        """
        ...


@runtime_checkable
class AdmissionNote(Protocol):
    """An :class:`Admit` that also says something about admitted steps, for ``windlass plugin try``."""

    def note(self, step: StepView) -> str:
        """Return the message for an admitted step; empty for none."""
        ...


@runtime_checkable
class AdmitUnconditionally(Protocol):
    """An :class:`Admit` that admits all steps of some queues. For speed."""

    def may_reject(self, path: Sequence[QueueView]) -> bool:
        """Return false if every step of a group in the first of these queues is admitted.

        This holds until the tree or the rules of any queue change.
        """
        ...


@runtime_checkable
class GathersTasks(Protocol):
    """A :class:`Domain` plugin that ties the tasks of a gang to one another.

    The first task of such a gang could go to any domain, and all others only to the
    same one. The gang is then tried in one domain after the other.
    """

    def gathered(self, numbers: Collection[int], *, first: bool = False) -> Mapping[str, Collection[int]]:
        """Return which of these classes have to share a domain, by topology key.

        ``first``: leave out classes that may already go next to a placed pod.
        """
        ...


class DomainsView(Protocol):
    """Some domains of one level of a topology, in the order of their names."""

    def allocatable(self, resource: str) -> IntArray:
        """Return the allocatable amount of each domain."""
        ...

    def used(self, resource: str) -> IntArray:
        """Return the used amount of each domain, terminating pods included."""
        ...


@runtime_checkable
class DomainScore(Protocol):
    """Choice among the domains that can hold a group.

    The first policy that applies decides. Without one, the domain that can hold the
    fewest further groups is taken (packing). On equal values the first by name is taken.
    """

    name: str

    def domain_scores(self, request: Mapping[str, int], domains: DomainsView) -> FloatArray:
        """Return a value for each domain; the largest wins.

        ``request``: sum over all members that are to be placed.
        """
        ...
