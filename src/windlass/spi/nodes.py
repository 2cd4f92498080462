"""What a policy sees of the nodes: columns, not objects.

A :class:`NodeView` covers all rows of the node table or some of them; every array has one entry per
covered row, in the same order. Arrays are read-only by agreement. Labels, taint sets and names are
interned: a column of small integer *codes* and the text of each code, so that a test on text is made
once per distinct value and spread over the nodes by one indexing: ``verdict[nodes.label(key)]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from windlass.spi.arrays import BoolArray as BoolArray
from windlass.spi.arrays import FloatArray as FloatArray
from windlass.spi.arrays import IntArray as IntArray
from windlass.spi.devices import DeviceView
from windlass.spi.objects import Taint


class ImageView(Protocol):
    """The container images of the covered nodes."""

    @property
    def nodes(self) -> int:
        """How many nodes the cluster has, covered or not."""
        ...

    def sizes(self, image: str) -> IntArray:
        """Bytes of the image on each covered node; 0 where it is not."""
        ...

    def carriers(self, image: str) -> int:
        """How many nodes of the cluster, covered or not, have the image."""
        ...


class NodeView(Protocol):
    """Columns over some node rows. Amounts in engine units."""

    @property
    def size(self) -> int:
        """How many rows the view covers."""
        ...

    @property
    def rows(self) -> IntArray:
        """The row ids covered: stable while the node exists; for plugins that keep a state per node."""
        ...

    @property
    def version(self) -> int:
        """Another number whenever any node came or went, or changed its labels, taints or readiness."""
        ...

    def resources(self) -> Sequence[str]:
        """The names of all resources that any node or task has named."""
        ...

    def allocatable(self, resource: str) -> IntArray:
        """What the node has in all; 0 where it has none of it."""
        ...

    def used(self, resource: str) -> IntArray:
        """What its pods hold, terminating ones included."""
        ...

    def releasing(self, resource: str) -> IntArray:
        """The part of ``used`` that terminating pods hold."""
        ...

    def available(self, resource: str) -> IntArray:
        """What new work may take now: unused, and not promised to someone who waits for it."""
        ...

    def coming(self, resource: str) -> IntArray:
        """What new work may be promised: unused once all that terminates is gone, and not promised to somebody else."""
        ...

    def amounts(self, resources: tuple[str, ...]) -> tuple[IntArray, IntArray]:
        """``allocatable`` and ``used`` of several resources at once: nodes × resources."""
        ...

    def label(self, key: str) -> IntArray:
        """The code of the node's value of label ``key``; 0 where the node lacks it."""
        ...

    def label_values(self, key: str) -> Sequence[str]:
        """The value behind each code of ``key``; entry 0 stands for "absent"."""
        ...

    def label_carried(self, key: str) -> BoolArray:
        """By code of ``key``: whether any node of the cluster, covered or not, carries the value now.

        A static filter that asks this is asked anew for all nodes when an answer changes.
        """
        ...

    def taints(self) -> IntArray:
        """The code of the node's set of taints; 0 is the empty set."""
        ...

    def taint_sets(self) -> Sequence[tuple[Taint, ...]]:
        """The taints behind each code."""
        ...

    def names(self) -> Sequence[str]:
        """The node names."""
        ...

    def unschedulable(self) -> BoolArray:
        """Cordoned nodes."""
        ...

    def ready(self) -> BoolArray:
        """Nodes whose agent reports them ready."""
        ...

    def cards(self) -> DeviceView:
        """The accelerator cards of the covered rows."""
        ...

    def images(self) -> ImageView:
        """The container images of the covered rows; for a :class:`~windlass.spi.plugins.ReadsImages`. What follows
        from them may change at any time: it is no matter for what is asked once and kept."""
        ...
