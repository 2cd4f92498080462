"""A judge outside of the process who has a say about nodes. Who reaches it is no policy's business."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from windlass.spi.objects import Needs


@dataclass(frozen=True, slots=True)
class Opinion:
    """On one node: why it is refused (empty: it is not), and its points."""

    refusal: str = ""
    points: float = 0.0


class NodeJudge(Protocol):
    """Knows what the judge said. It never blocks: what it does not know it finds out meanwhile."""

    def opinions(self, needs: Needs, nodes: Sequence[str]) -> Mapping[str, Opinion]:
        """What is known about these nodes for such pods. Nodes that are missing are being asked about."""
        ...

    def learned(self) -> bool:
        """Whether anything was learned since this was last asked."""
        ...


@dataclass(frozen=True, slots=True)
class Hooks:
    """Where the judge is, and what is asked: ``predicate`` and ``prioritize`` are the last parts of the
    paths, empty for what is not asked. ``ignorable``: if it fails, no node is refused for that."""

    url: str
    predicate: str = ""
    prioritize: str = ""
    timeout_seconds: float = 1.0
    ignorable: bool = False


@runtime_checkable
class TakesJudge(Protocol):
    """A policy that asks a judge."""

    hooks: Hooks

    def take_judge(self, judge: NodeJudge) -> None:
        """From now on this one is asked; before, the policy has nothing to say."""
        ...
