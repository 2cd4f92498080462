"""Optional parts of a score: learning, named parts, choice of a device.

A :class:`~windlass.spi.plugins.Score` of footprint ``ROW`` that reads
:meth:`~windlass.spi.nodes.NodeView.devices` has a true attribute ``reads_devices``. Its
answer for a node is then kept only while the devices of the node stay as they are. It is
not needed if the score reads them for pods with device shares only.

A learning score may have an attribute ``silent``. While it is true, the score applies to
no task and is not called. It may change with the result of :class:`LearningScore`.

:class:`PlainDeviceScore` and :class:`PlainDeviceRanks` answer for one node in plain
values. They are for speed, and must equal the arrays to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from windlass.spi import renamed
from windlass.spi.devices import DeviceNeed
from windlass.spi.nodes import FloatArray, NodeView
from windlass.spi.objects import Needs

if not TYPE_CHECKING:
    __getattr__ = renamed.old_names(__name__)


class ClusterTotals(Protocol):
    """Totals over all pods and nodes, for scores that learn. They are counted on request."""

    def empty(self) -> bool:
        """Return whether there are no pods."""
        ...

    def shares_requested(self) -> bool:
        """Return whether any pod requests devices other than as plain whole ones."""
        ...

    def sliceable(self) -> bool:
        """Return whether any device can be allocated in slices."""
        ...

    def kinds(self) -> Iterable[tuple[Needs, int]]:
        """Return each kind of pods with their number, pending or placed."""
        ...

    def devices(self) -> Mapping[tuple[str, int], int]:
        """Return the number of healthy devices by model and memory.

        Memory is in MiB. Unknown values are ``""`` and 0.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class DeviceKinds:
    """Constant properties of the devices of a node, by slot.

    Nodes with equal devices share one object.
    """

    resources: tuple[str, ...]
    models: tuple[str, ...]
    memory_mib: tuple[int, ...]
    """0 if it is not known."""
    usable: tuple[bool, ...]
    """True if the node has the device, and it is healthy."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeDevices:
    """State of the devices of one node, by slot, as in :meth:`~windlass.spi.nodes.NodeView.devices`.

    Nodes with equal devices in equal states share one object. It never changes, so results
    may be cached by it.
    """

    kinds: DeviceKinds
    free_milli: tuple[int, ...]
    free_mib: tuple[int, ...]


DeviceScorer = Callable[[Sequence[int], Sequence[int], NodeDevices], float]
"""Score of one node from its available and used amounts, and its devices."""
DeviceRanker = Callable[[Sequence[int], NodeDevices], Sequence[float]]
"""Points by slot of one node, from its available amounts and its devices."""


@runtime_checkable
class PlainDeviceScore(Protocol):
    """A :class:`~windlass.spi.plugins.Score` of footprint ``ROW`` that reads devices, for one node."""

    def plain_devices(self, needs: Needs, resources: Sequence[str]) -> DeviceScorer | None:
        """Return the scorer, as :meth:`~windlass.spi.plugins.PlainScore.plain` does.

        ``None``: the plugin does not apply to such tasks.
        """
        ...


@runtime_checkable
class PlainDeviceRanks(Protocol):
    """:class:`DeviceRanks` for one node."""

    def plain_rank(self, needs: Needs, need: DeviceNeed, resources: Sequence[str]) -> DeviceRanker | None:
        """Return the ranker for one kind of pods and one of their device needs.

        ``None``: the plugin does not apply to such tasks.
        """
        ...


@runtime_checkable
class RemembersState(Protocol):
    """A policy with learned state that belongs into a dump."""

    name: str

    def remembered(self) -> object:
        """Return the learned state, of plain values that JSON knows."""
        ...

    def recall(self, learned: object) -> None:
        """Restore what :meth:`remembered` returned, before any other call."""
        ...


@runtime_checkable
class LearningScore(RemembersState, Protocol):
    """A score that follows the usual requests of pods."""

    def learn_from(self, now: float, totals: ClusterTotals) -> bool:
        """Return whether all answers must be asked for again, ``trend`` and ``silent`` included.

        Called once at the beginning of each cycle. It is quick if nothing has to be
        learned.
        """
        ...


@runtime_checkable
class ScoreParts(Protocol):
    """A score that is a sum of named parts. Tables of scores show them."""

    def parts(self, needs: Needs, nodes: NodeView) -> Mapping[str, tuple[float, FloatArray]]:
        """Return name → weight and points by node.

        The sum of weight times points equals the plugin's own weight times its score.
        Empty if the plugin does not apply.
        """
        ...


@runtime_checkable
class DeviceRanks(Protocol):
    """Choice of a device by the state of the whole node."""

    name: str
    weight: float

    def rank(self, needs: Needs, need: DeviceNeed, nodes: NodeView) -> FloatArray | None:
        """Return points for each node and slot of ``nodes.devices()``.

        Only values of devices that fit the pod are used. They are added to those of
        :class:`~windlass.spi.devices.DeviceChoice`; on equal sums the lowest index is
        taken. ``None``: the plugin does not apply.
        """
        ...
