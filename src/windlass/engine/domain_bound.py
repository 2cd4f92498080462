"""Base of the engine's own node restrictions, in the form of domain plugins."""

from __future__ import annotations

from collections.abc import Collection

from windlass.spi.nodes import NodeView
from windlass.spi.objects import Needs


class DomainBound:
    """Default methods of :class:`~windlass.spi.plugins.Domain`.

    A restriction is active while one group is placed, and reads its state from
    elsewhere.
    """

    def attach(self, nodes: NodeView) -> None:
        """Do nothing: there is no state."""

    def learn(self, number: int, needs: Needs, placed: object) -> None:
        """Do nothing: there is no state."""

    def forget(self, number: int) -> None:
        """Do nothing: there is no state."""

    def add(self, number: int, row: int, count: int) -> None:
        """Do nothing: there are no counts."""

    def constrains(self, number: int) -> bool:
        return True

    def listens_to(self, number: int) -> Collection[int]:
        return ()

    def relabelled(self, placed: object) -> None:
        """Do nothing: there are no counts."""
