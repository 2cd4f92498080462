"""NUMA zones of nodes, what pods ask of them, and what pods hold of them.

A kubelet (or Windlass' own agent) serves a pod with processors, memory and devices of one zone or of several,
or refuses it, by its Topology Manager's policy. What stands here is what a scheduler has to know to foresee
that. Amounts are pairs sorted by resource, in engine units: processors and devices in milli, memory in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

Amounts = tuple[tuple[str, int], ...]

MAX_NUMA_ZONES = 8
"""A kubelet with a policy other than ``none`` does not start on more (``max-allowable-numa-nodes``)."""
CPU = "cpu"
MEMORY = "memory"
HUGE_PAGES = "hugepages-"


class AlignmentPolicy(StrEnum):
    """The Topology Manager's policies (kubelet ``--topology-manager-policy``)."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class ContainerKind(StrEnum):
    """Containers are served in the order of the pod: those that run before the others first."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = ""


@dataclass(frozen=True, slots=True)
class NumaZone:
    """``number``: of the NUMA node. ``capacity``: all there is of each resource, what the system keeps
    included: by it, and not by what is free, it is told how few zones would do. ``allocatable``: what pods
    may hold. ``free``: what none of them held when the node said so; ``None``: it does not say.
    ``distances``: to every zone of the node, in their order; empty where unknown.
    """

    number: int
    capacity: Amounts
    allocatable: Amounts
    free: Amounts | None = None
    distances: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NumaTopology:
    """The zones of a node, by number, and how its kubelet serves pods from them.

    ``pod_scope``: all containers of a pod from the same zones. ``exclusive_cpus``: the static CPU manager
    gives whole processors to containers of Guaranteed pods; ``pinned_memory``: the Static memory manager
    does so with memory. ``closest``: of sets of zones of one size, the one whose zones are nearest to one
    another (``prefer-closest-numa-nodes``). ``obeys``: whoever runs the node serves each pod by the policy
    that the pod names, where it names one. ``cards``: (resource, index of a device, zone).
    """

    zones: tuple[NumaZone, ...]
    policy: AlignmentPolicy = AlignmentPolicy.NONE
    pod_scope: bool = False
    exclusive_cpus: bool = True
    pinned_memory: bool = True
    closest: bool = False
    obeys: bool = False
    cards: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerNeed:
    """What one container asks for."""

    amounts: Amounts
    kind: ContainerKind = ContainerKind.MAIN


@dataclass(frozen=True, slots=True)
class NumaNeed:
    """What a pod asks of zones. ``guaranteed``: its quality of service, on which whole processors and pinned
    memory depend. ``policy``: one that the pod names itself; the node must follow it."""

    containers: tuple[ContainerNeed, ...]
    guaranteed: bool = False
    policy: AlignmentPolicy | None = None


@dataclass(frozen=True, slots=True)
class NumaHolding:
    """What a pod holds: zone number → amounts; the set of zones that each pinned piece of memory spans; and
    its devices by (resource, index), as far as it is known which."""

    zones: tuple[tuple[int, Amounts], ...] = ()
    spans: tuple[tuple[int, ...], ...] = ()
    cards: tuple[tuple[str, int], ...] = ()


NO_HOLDING = NumaHolding()


@runtime_checkable
class NumaAccounting(Protocol):
    """A policy that keeps the books of zones. Only one counts in an engine.

    The engine tells it of every single task that comes to a node with zones, or is promised room there; it
    keeps the answer with the task and hands it back when the task goes.
    """

    name: str

    def open(self, row: int, zones: NumaTopology | None) -> None:
        """The zones of a node are these now (``None``: it has none), and nobody holds any of them yet."""
        ...

    def plan(self, number: int, row: int) -> NumaHolding | None:
        """What a task of class ``number`` would get of the node's zones now; ``None`` if it would be refused."""
        ...

    def most(self, number: int, row: int) -> int | None:
        """How many tasks of the class the node's zones would serve if they were empty; ``None``: any number."""
        ...

    def take(
        self, number: int, row: int, cards: tuple[tuple[str, int], ...], reported: NumaHolding | None
    ) -> NumaHolding:
        """A task is on the node, whether it would be let in or not. ``cards``: its devices, where they are
        known; ``reported``: what the world says that it holds. Returns what is booked for it."""
        ...

    def hold(self, row: int, holding: NumaHolding) -> None:
        """Book exactly that."""
        ...

    def give(self, row: int, holding: NumaHolding) -> None:
        """What was booked is free."""
        ...
