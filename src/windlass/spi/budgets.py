"""PodDisruptionBudgets, as policies see them: how many more pods may be evicted."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Budgets(Protocol):
    """What budgets leave, by ``namespace/name``."""

    def left(self, key: str) -> int | None:
        """How many more pods of a budget may go; never more than its status allows, less the evictions that are
        decided, or just being tried, and that the status does not show. ``None``: there is no such budget."""
        ...


@runtime_checkable
class TakesBudgets(Protocol):
    """A policy that is given the budgets, once, before anything else."""

    def hear_budgets(self, budgets: Budgets) -> None: ...
