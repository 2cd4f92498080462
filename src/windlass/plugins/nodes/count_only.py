"""Base class of policies that count placements for a score and filter no node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from windlass.spi.nodes import BoolArray, NodeView


class CountOnly:
    """Base of a :class:`~windlass.spi.plugins.Domain` that filters no node."""

    def attach(self, nodes: NodeView) -> None:
        """Do nothing: the policy keeps no state about nodes."""

    def constrains(self, number: int) -> bool:
        return False

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        return None

    def listens_to(self, number: int) -> Collection[int]:
        return ()

    def relabelled(self, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        """Do nothing: the policy reads no labels."""
