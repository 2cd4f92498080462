"""Data that a policy is given besides its arguments: budgets, pending tasks, node loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from windlass.spi import renamed

if not TYPE_CHECKING:
    __getattr__ = renamed.old_names(__name__)


# ---------------------------------------------------------------------- PodDisruptionBudgets


class Budgets(Protocol):
    """PodDisruptionBudgets, by ``namespace/name``."""

    def left(self, key: str) -> int | None:
        """Return how many more pods of a budget may be evicted; ``None`` if it does not exist.

        It is what the status allows, less evictions that are decided, or just being
        tried, and that the status does not show yet.
        """
        ...


@runtime_checkable
class TakesBudgets(Protocol):
    """A policy that reads PodDisruptionBudgets."""

    def take_budgets(self, budgets: Budgets) -> None:
        """Keep the budgets. Called once, before any other call."""
        ...


# ---------------------------------------------------------------------- pending tasks


class PendingTasks(Protocol):
    """Pending tasks of groups, always current."""

    def waiting(self, group: str) -> Mapping[int, int]:
        """Return class → number of tasks of a group (``namespace/name``).

        Counted are tasks without a node and without a nomination.
        """
        ...


@runtime_checkable
class TakesPendingTasks(Protocol):
    """A policy that reads pending tasks."""

    def take_pending_tasks(self, waiting: PendingTasks) -> None:
        """Keep the source of pending tasks. Called once, before any other call."""
        ...


# ---------------------------------------------------------------------- measured loads

MEAN_SECONDS = 600.0
"""Default period, in seconds, over which loads are averaged; Volcano's."""
FRESH_SECONDS = 300.0
"""Maximum age, in seconds, of a load that is used; Volcano's."""
MEASURED = ("cpu", "memory")
"""Resources with a measured load, in the order of :meth:`NodeLoad.percent`."""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """Mean load of a node in percent of its capacity. ``measured``: Unix seconds."""

    cpu_percent: float
    memory_percent: float
    measured: float

    def percent(self, at: int) -> float:
        """Return the load of the CPU (0) or of the memory (1)."""
        return (self.cpu_percent, self.memory_percent)[at]


@runtime_checkable
class TakesLoads(Protocol):
    """A policy that reads measured loads.

    An attribute ``mean_seconds`` sets the period over which they are averaged, if the
    source supports it (default: :data:`MEAN_SECONDS`).
    """

    def take_loads(self, loads: Mapping[str, NodeLoad]) -> None:
        """Replace all loads by these, given by node name."""
        ...


def mean_seconds_of(taker: TakesLoads) -> float:
    """Return the period in seconds over which the loads of a policy are averaged."""
    return float(getattr(taker, "mean_seconds", MEAN_SECONDS))
