"""More that a score may offer beside :class:`~windlass.spi.plugins.Score`: what it learns, how it is made up,
which card it prefers.

A score of footprint ``ROW`` that looks at :meth:`~windlass.spi.nodes.NodeView.cards` says so by an attribute
``reads_cards`` that is true: its answer for a node is then kept only as long as the node's cards stay as they
are, too. One that looks at them only for pods with parts of cards need not say so. A score that learns may
have an attribute ``silent``: as long as it is true the score has no word on anything, and nobody asks; it may
change with what :class:`LearningScore` answers.

What looks at cards may be asked about one node in plain values as well (:class:`PlainDeviceScore`,
:class:`PlainDeviceRanks`): optional, and a matter of speed alone. The answers must be those of the arrays, to the
last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from windlass.spi.devices import DeviceNeed
from windlass.spi.nodes import FloatArray, NodeView
from windlass.spi.objects import Needs


class ClusterTotals(Protocol):
    """What there is, for scores that learn. Nothing is counted before it is asked for."""

    def empty(self) -> bool:
        """Whether there are no pods."""
        ...

    def parts_wanted(self) -> bool:
        """Whether any pod speaks of cards otherwise than as plain whole ones."""
        ...

    def sliceable(self) -> bool:
        """Whether any card can be handed out in slices."""
        ...

    def kinds(self) -> Iterable[tuple[Needs, int]]:
        """Every kind of pods with how many exist, waiting or placed."""
        ...

    def cards(self) -> Mapping[tuple[str, int], int]:
        """Model and memory (MiB; "" and 0 where not known) → how many healthy cards all nodes have."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class DeviceKinds:
    """What does not change about the cards of a node, by slot. One object for all nodes with equal cards."""

    resources: tuple[str, ...]
    models: tuple[str, ...]
    memory_mib: tuple[int, ...]
    """0 where it is not known."""
    usable: tuple[bool, ...]
    """Whether the node has it, and it is healthy."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeDevices:
    """The cards of one node as :meth:`~windlass.spi.nodes.NodeView.cards` shows them now, by slot. One object
    for all nodes whose cards are equal and in equal states, and it never changes: so what follows from it may
    be remembered by it."""

    kinds: DeviceKinds
    free_milli: tuple[int, ...]
    free_mib: tuple[int, ...]


CardScorer = Callable[[Sequence[int], Sequence[int], NodeDevices], float]
"""The score of one node by what is available and what is used of each resource, and by its cards."""
CardRanker = Callable[[Sequence[int], NodeDevices], Sequence[float]]
"""Points per slot of one node, by what is available of each resource, and by its cards."""


@runtime_checkable
class PlainDeviceScore(Protocol):
    """A :class:`~windlass.spi.plugins.Score` of footprint ``ROW`` that looks at cards, about one node."""

    def plain_cards(self, needs: Needs, resources: Sequence[str]) -> CardScorer | None:
        """As :meth:`~windlass.spi.plugins.PlainScore.plain`. ``None``: no opinion."""
        ...


@runtime_checkable
class PlainDeviceRanks(Protocol):
    """:class:`DeviceRanks` about one node."""

    def plain_rank(self, needs: Needs, need: DeviceNeed, resources: Sequence[str]) -> CardRanker | None:
        """For one kind of pods and one of their needs. ``None``: no opinion."""
        ...


@runtime_checkable
class RemembersState(Protocol):
    """A policy that has learned something which a dumped state is to keep."""

    name: str

    def remembered(self) -> object:
        """What it has learned, of plain values that JSON knows; part of a dumped state."""
        ...

    def recall(self, learned: object) -> None:
        """Take over what :meth:`remembered` said, in another process. Before the first question."""
        ...


@runtime_checkable
class LearningScore(RemembersState, Protocol):
    """A score that goes by what pods usually ask for."""

    def take_stock(self, now: float, totals: ClusterTotals) -> bool:
        """Asked once at the beginning of every cycle: whether to ask for all its answers anew, ``trend`` and
        ``silent`` included. To be quick where nothing is to be learned."""
        ...


@runtime_checkable
class ScoreParts(Protocol):
    """A score that is a sum of parts with names of their own: what a table of scores shows."""

    def parts(self, needs: Needs, nodes: NodeView) -> Mapping[str, tuple[float, FloatArray]]:
        """Name → weight and points per node. The sum of weight times points is the plugin's own weight
        times its score; empty where it has no opinion."""
        ...


@runtime_checkable
class DeviceRanks(Protocol):
    """Which card of a node is best, by the state of the whole node."""

    name: str
    weight: float

    def rank(self, needs: Needs, need: DeviceNeed, nodes: NodeView) -> FloatArray | None:
        """Points per node and slot of ``nodes.cards()``; what it says of cards that do not take the pod does
        not matter. ``None``: no opinion. Counts beside :class:`~windlass.spi.devices.DeviceChoice`, before the
        lowest index."""
        ...
