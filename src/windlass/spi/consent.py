"""Policies that have the last word: they see what is about to be decided, and may refuse it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from windlass.api.reasons import Reason
from windlass.spi.plugins import Rejection
from windlass.spi.tiers import GangView, TaskView

LATER = Rejection(Reason.PENDING_EVALUATION, detail="its turn is in the next cycle")
"""A refusal that is none: nobody could be asked in this cycle any more. The group is tried in the next, at once."""


@dataclass(frozen=True, slots=True)
class ProposedDecision:
    """What would be decided together. ``gang``: for whom, if for anybody. ``placed``: who is bound, to the node
    that each shows. ``going``: who is asked to go. Promises of room that is still being vacated are no part of it."""

    gang: GangView | None
    placed: Sequence[TaskView] = ()
    going: Sequence[TaskView] = ()


@runtime_checkable
class Permit(Protocol):
    """Asked about every decision that binds or evicts anybody, once all else agrees to it. A group that is refused
    pauses for some seconds; nothing of the decision is carried out. Where there is no gang (pods that have to
    leave a node for its own sake, what is left of a broken gang) a refusal changes nothing."""

    name: str

    def consents(self, outcome: ProposedDecision) -> Rejection | None:
        """``None``: it may be decided, and is, unless a policy asked later refuses."""
        ...

    def withdrawn(self, outcome: ProposedDecision) -> None:
        """A policy asked later has refused what this one consented to."""
        ...


@runtime_checkable
class CycleObserver(Protocol):
    """A policy that is told when a cycle begins and when it ends."""

    def opened(self, now: float) -> None: ...

    def closed(self) -> None: ...
