"""What a policy that counts placements for the sake of a score has in common with others of its kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from windlass.spi.nodes import BoolArray, NodeView


class CountOnly:
    """The part of :class:`~windlass.spi.plugins.Domain` in which a policy that refuses no node says nothing."""

    def attach(self, nodes: NodeView) -> None:
        """Nothing to remember of the nodes."""

    def constrains(self, number: int) -> bool:
        return False

    def verdict(self, number: int, nodes: NodeView) -> BoolArray | None:
        return None

    def listens_to(self, number: int) -> Collection[int]:
        return ()

    def relabelled(self, placed: Iterable[tuple[int, Mapping[int, int]]]) -> None:
        """Labels are not looked at."""
