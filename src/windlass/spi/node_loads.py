"""Measured load of nodes, for policies that look at it. Who measures feeds the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

MEAN_SECONDS = 600.0
"""Over so long loads are averaged for who does not say otherwise; Volcano's."""
FRESH_SECONDS = 300.0
"""Figures that are older say nothing any more; Volcano's."""
MEASURED = ("cpu", "memory")
"""The resources whose load is measured, in the order of :meth:`NodeLoad.percent`."""


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """The mean load of a node in percent of what it has. ``measured``: when, in Unix seconds."""

    cpu_percent: float
    memory_percent: float
    measured: float

    def percent(self, at: int) -> float:
        """0: of the CPU, 1: of the memory."""
        return (self.cpu_percent, self.memory_percent)[at]


@runtime_checkable
class TakesLoads(Protocol):
    """A policy that is fed with measured loads. An attribute ``mean_seconds`` says over how long they are averaged,
    where the source can (:data:`MEAN_SECONDS` without)."""

    def take_loads(self, loads: Mapping[str, NodeLoad]) -> None:
        """The newest figures by node name; they replace all earlier ones."""
        ...


def mean_seconds_of(taker: TakesLoads) -> float:
    """Over how many seconds the loads that it takes are averaged."""
    return float(getattr(taker, "mean_seconds", MEAN_SECONDS))
