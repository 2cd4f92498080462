"""Policies that may reject a decision before it is executed (the stage Permit)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from windlass.api.reasons import Reason
from windlass.spi import renamed
from windlass.spi.plugins import Rejection
from windlass.spi.tiers import GangView, TaskView

if not TYPE_CHECKING:
    __getattr__ = renamed.old_names(__name__)

LATER = Rejection(Reason.PENDING_EVALUATION, detail="its turn is in the next cycle")
"""Rejection because no question fits into this cycle any more.

The group is tried in the next cycle, which starts at once.
"""


@renamed.attributes
@dataclass(frozen=True, slots=True)
class ProposedDecision:
    """Binds and evictions that would be decided together.

    * ``gang``: the group for which they are made; ``None`` if there is none.
    * ``placed``: pods that are bound, to the node that each shows.
    * ``evicted``: pods that are evicted.

    Nominations are not part of it.
    """

    gang: GangView | None
    placed: Sequence[TaskView] = ()
    evicted: Sequence[TaskView] = ()


@runtime_checkable
class Permit(Protocol):
    """Permission for each decision that binds or evicts a pod, after all other checks.

    A rejected group pauses for some seconds, and nothing of the decision is executed.
    Without a gang a rejection changes nothing: for pods that leave a node for the node's
    sake, and for the rest of a broken gang.
    """

    name: str

    def permit(self, proposal: ProposedDecision) -> Rejection | None:
        """Return ``None`` to permit the decision. A policy that is called later may reject it."""
        ...

    def withdrawn(self, proposal: ProposedDecision) -> None:
        """Note that a later policy rejected a decision which this one permitted."""
        ...


@runtime_checkable
class CycleObserver(Protocol):
    """A policy that is notified when a cycle begins and ends."""

    def opened(self, now: float) -> None: ...

    def closed(self) -> None: ...
