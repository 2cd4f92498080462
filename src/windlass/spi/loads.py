"""Measured load of nodes, for policies that look at it. Who measures feeds the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


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
    """A policy that is fed with measured loads."""

    def take_loads(self, loads: Mapping[str, NodeLoad]) -> None:
        """The newest figures by node name; they replace all earlier ones."""
        ...
