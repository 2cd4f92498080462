"""What the engine itself closes nodes for, in the form of a policy about pods in relation to one another."""

from __future__ import annotations

from collections.abc import Collection

from windlass.spi.nodes import NodeView
from windlass.spi.objects import Needs


class DomainBound:
    """The part of :class:`~windlass.spi.plugins.Domain` that one has no use for which is in force for as long as
    one group is placed, and reads what it says from elsewhere."""

    def attach(self, nodes: NodeView) -> None:
        """Nothing to remember."""

    def learn(self, number: int, needs: Needs, placed: object) -> None:
        """Nothing to remember."""

    def forget(self, number: int) -> None:
        """Nothing to forget."""

    def add(self, number: int, row: int, count: int) -> None:
        """Nothing to count."""

    def constrains(self, number: int) -> bool:
        return True

    def listens(self, number: int) -> Collection[int]:
        return ()

    def relabelled(self, placed: object) -> None:
        """Nothing to count afresh."""
