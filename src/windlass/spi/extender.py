"""Somebody outside of the process who has a say. Who reaches it is no policy's business.

There are two ways to ask. A *judge* is asked about nodes, beside the decisions: what it said of a kind of pods
and a node holds until it says otherwise, so nobody waits for it. A *consultant* is asked in the middle of a
decision, about this very decision, and everybody waits for its answer: it promises to answer, or to say that it
cannot, within a time that is bounded for all questions of one round together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from windlass.spi.objects import Needs


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """On one node: why it is refused (empty: it is not), and its points."""

    refusal: str = ""
    points: float = 0.0


class NodeExtender(Protocol):
    """Knows what the judge said. It never blocks: what it does not know it finds out meanwhile."""

    def opinions(self, needs: Needs, nodes: Sequence[str]) -> Mapping[str, NodeVerdict]:
        """What is known about these nodes for such pods. Nodes that are missing are being asked about."""
        ...

    def learned(self) -> bool:
        """Whether anything was learned since this was last asked."""
        ...


class ExtenderCall(StrEnum):
    """What a consultant is asked, or told."""

    OPEN = "onSessionOpen"
    """Told before the first question of a round."""
    CLOSE = "onSessionClose"
    """Told after the last."""
    PREEMPTABLE = "preemptable"
    """Which of ``others`` may go for ``task``, in its own queue."""
    RECLAIMABLE = "reclaimable"
    """The same, in other queues."""
    OVERUSED = "queueOverused"
    """Whether ``queue`` has so much that it is passed over."""
    ENQUEUEABLE = "jobEnqueueable"
    """Whether ``group`` is let in."""
    ENQUEUED = "jobEnqueued"
    """Told: ``group`` has been let in."""
    READY = "jobReady"
    """Whether ``group`` may start (or grow) as ``seats`` say."""
    ALLOCATE = "allocateFunc"
    """Told, and may be refused: ``task`` gets the place in ``seats``."""
    DEALLOCATE = "deallocateFunc"
    """Told: ``task`` is asked to go, or does not get the place that was told before."""


@dataclass(frozen=True, slots=True)
class ExtenderEndpoints:
    """Where it is, and what is asked: ``predicate``, ``prioritize`` and ``verbs`` are the last parts of the
    paths, empty or not there for what is not asked. ``ignorable``: if it fails, it counts as not there.
    ``managed``: only pods that ask for one of these resources are its business; empty for all pods."""

    url: str
    predicate: str = ""
    prioritize: str = ""
    timeout_seconds: float = 1.0
    ignorable: bool = False
    verbs: Mapping[ExtenderCall, str] = field(default_factory=dict)
    managed: frozenset[str] = frozenset()

    def concerned(self, needs: Needs) -> bool:
        """Whether such pods are its business."""
        return not self.managed or any(name in self.managed for name, _ in needs.request)


@runtime_checkable
class TakesNodeExtender(Protocol):
    """A policy that asks a judge."""

    hooks: ExtenderEndpoints

    def take_judge(self, extender: NodeExtender) -> None:
        """From now on this one is asked; before, the policy has nothing to say."""
        ...


@dataclass(frozen=True, slots=True)
class ExtenderRequest:
    """Tasks, groups and queues by their keys. ``seats``: tasks with the nodes that they would get."""

    matter: ExtenderCall
    task: str = ""
    others: tuple[str, ...] = ()
    group: str = ""
    queue: str = ""
    seats: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ExtenderReply:
    """What was said; which parts of it mean anything depends on the matter. ``status``: above 0 for, below 0
    against, 0 for no opinion. ``named``: uids of tasks. ``refusal``: why not, in words."""

    status: int = 0
    yes: bool = False
    named: frozenset[str] = frozenset()
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ExtenderUnavailable:
    """Why there is none. ``later``: the round's time was up, so it was not even asked; it can be in the next."""

    why: str
    later: bool = False


class ExtenderClient(Protocol):
    """Answers in the middle of a decision. Rounds do not nest; questions are asked inside of rounds."""

    def open(self) -> None:
        """A round begins."""
        ...

    def ask(self, request: ExtenderRequest) -> ExtenderReply | ExtenderUnavailable: ...

    def close(self) -> None:
        """The round is over."""
        ...


@runtime_checkable
class TakesExtenderClient(Protocol):
    """A policy that asks a consultant."""

    hooks: ExtenderEndpoints

    def take_consultant(self, client: ExtenderClient) -> None:
        """From now on this one is asked; before, the policy has nothing to say."""
        ...
