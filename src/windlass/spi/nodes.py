"""Nodes as policies see them: columns, not objects.

A :class:`NodeView` covers all rows of the node table or some of them. Each array has one
entry for each covered row, in the same order. Policies do not write to arrays. Labels,
taint sets and names are interned: a column of small integer *codes*, and the text of each
code. A test on text is so made once for each distinct value, and spread over the nodes by
one indexing operation: ``verdict[nodes.label(key)]``.
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
    """Container images of the covered nodes."""

    @property
    def nodes(self) -> int:
        """Number of nodes in the cluster, covered or not."""
        ...

    def sizes(self, image: str) -> IntArray:
        """Return the size of the image in bytes on each covered node; 0 where it is missing."""
        ...

    def carriers(self, image: str) -> int:
        """Return the number of nodes of the cluster, covered or not, that have the image."""
        ...


class NodeView(Protocol):
    """Columns over some node rows. Amounts are in engine units."""

    @property
    def size(self) -> int:
        """Number of covered rows."""
        ...

    @property
    def rows(self) -> IntArray:
        """Ids of the covered rows, stable while the node exists; for state by node."""
        ...

    @property
    def version(self) -> int:
        """Number that changes with the nodes, their labels, taints or readiness."""
        ...

    def resources(self) -> Sequence[str]:
        """Return the names of all resources of any node or task."""
        ...

    def allocatable(self, resource: str) -> IntArray:
        """Return the allocatable amount of each node; 0 where it has none."""
        ...

    def used(self, resource: str) -> IntArray:
        """Return the amount that pods hold, terminating pods included."""
        ...

    def releasing(self, resource: str) -> IntArray:
        """Return the part of ``used`` that terminating pods hold."""
        ...

    def available(self, resource: str) -> IntArray:
        """Return the amount that a pod may take now: unused, and nominated for no other pod."""
        ...

    def future_available(self, resource: str) -> IntArray:
        """Return the amount that may be nominated for a pod.

        It is unused after all terminating pods are gone, and nominated for no other pod.
        """
        ...

    def amounts(self, resources: tuple[str, ...]) -> tuple[IntArray, IntArray]:
        """Return ``allocatable`` and ``used`` of several resources: nodes × resources."""
        ...

    def label(self, key: str) -> IntArray:
        """Return the code of each node's value of label ``key``; 0 where it is missing."""
        ...

    def label_values(self, key: str) -> Sequence[str]:
        """Return the value of each code of ``key``; entry 0 stands for a missing label."""
        ...

    def label_carried(self, key: str) -> BoolArray:
        """Return, for each code of ``key``, whether any node of the cluster has the value now.

        A static filter that calls this is called again for all nodes if an answer
        changes.
        """
        ...

    def taints(self) -> IntArray:
        """Return the code of each node's set of taints; 0 is the empty set."""
        ...

    def taint_sets(self) -> Sequence[tuple[Taint, ...]]:
        """Return the taints of each code."""
        ...

    def names(self) -> Sequence[str]:
        """Return the names of the nodes."""
        ...

    def unschedulable(self) -> BoolArray:
        """Return a mask of cordoned nodes."""
        ...

    def ready(self) -> BoolArray:
        """Return a mask of nodes that their agent reports ready."""
        ...

    def devices(self) -> DeviceView:
        """Return the devices of the covered rows."""
        ...

    def images(self) -> ImageView:
        """Return the container images of the covered rows.

        For a :class:`~windlass.spi.plugins.ReadsImages`. Answers that depend on images
        may change at any time, so an answer that the engine keeps must not use them.
        """
        ...
