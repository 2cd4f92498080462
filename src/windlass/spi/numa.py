"""NUMA zones of nodes: what pods request of them, and what pods hold of them.

The Topology Manager of a kubelet, or of Windlass' own agent, serves a pod with
processors, memory and devices of one zone or of several, or it rejects the pod. This
module has the data that a scheduler needs to predict that. Amounts are pairs sorted by
resource, in engine units: processors and devices in milli, memory in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from windlass.spi import renamed

if not TYPE_CHECKING:
    __getattr__ = renamed.old_names(__name__)

Amounts = tuple[tuple[str, int], ...]

MAX_NUMA_ZONES = 8
"""Maximum number of zones (``max-allowable-numa-nodes``).

A kubelet with a policy other than ``none`` does not start on more.
"""
CPU = "cpu"
MEMORY = "memory"
HUGE_PAGES = "hugepages-"


class AlignmentPolicy(StrEnum):
    """Policies of the Topology Manager (kubelet ``--topology-manager-policy``)."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class ContainerKind(StrEnum):
    """Kind of a container. Containers are served in the order of the pod, init containers first."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = ""


@dataclass(frozen=True, slots=True)
class NumaZone:
    """One NUMA zone of a node.

    * ``number``: of the NUMA node.
    * ``capacity``: full amount of each resource, including the part reserved for the
      system. The minimum number of zones for a request follows from it, not from free
      amounts.
    * ``allocatable``: amount that pods may hold.
    * ``free``: amount that no pod held when the node reported it; ``None``: not reported.
    * ``distances``: to each zone of the node, in their order; empty if unknown.
    """

    number: int
    capacity: Amounts
    allocatable: Amounts
    free: Amounts | None = None
    distances: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NumaTopology:
    """Zones of a node, by number, and how its kubelet serves pods from them.

    * ``pod_scope``: all containers of a pod are served from the same zones.
    * ``exclusive_cpus``: the static CPU manager gives whole processors to containers of
      Guaranteed pods. ``pinned_memory``: the Static memory manager pins their memory.
    * ``closest``: among sets of equal size, the one with the smallest distances is taken
      (``prefer-closest-numa-nodes``).
    * ``obeys``: the node agent serves a pod by the policy that the pod names, if it names
      one.
    * ``cards``: resource, index of a device, and its zone.
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
    """Request of one container."""

    amounts: Amounts
    kind: ContainerKind = ContainerKind.MAIN


@dataclass(frozen=True, slots=True)
class NumaNeed:
    """Request of a pod to NUMA zones.

    ``guaranteed``: its quality of service, on which whole processors and pinned memory
    depend. ``policy``: a policy that the pod names and the node must follow.
    """

    containers: tuple[ContainerNeed, ...]
    guaranteed: bool = False
    policy: AlignmentPolicy | None = None


@dataclass(frozen=True, slots=True)
class NumaHolding:
    """Amounts that a pod holds.

    ``zones``: zone number → amounts. ``spans``: the zones that each pinned piece of
    memory spans. ``cards``: its devices by resource and index, as far as they are known.
    """

    zones: tuple[tuple[int, Amounts], ...] = ()
    spans: tuple[tuple[int, ...], ...] = ()
    cards: tuple[tuple[str, int], ...] = ()


NO_HOLDING = NumaHolding()


@runtime_checkable
class NumaAccounting(Protocol):
    """A policy that accounts for NUMA zones. An engine uses one of them only.

    The engine reports each single task that is placed on a node with zones, or nominated
    for it. It keeps the result with the task and passes it back when the task is removed.
    """

    name: str

    def open(self, row: int, zones: NumaTopology | None) -> None:
        """Set the zones of a node (``None``: it has none). No pod holds any of them yet."""
        ...

    def plan(self, number: int, row: int) -> NumaHolding | None:
        """Return what a task of class ``number`` would get now; ``None`` if it were rejected."""
        ...

    def most(self, number: int, row: int) -> int | None:
        """Return the number of tasks of the class that the empty node would serve.

        ``None`` for no limit.
        """
        ...

    def take(
        self, number: int, row: int, devices: tuple[tuple[str, int], ...], reported: NumaHolding | None
    ) -> NumaHolding:
        """Account for a task on the node, whether the node would admit it or not.

        ``devices``: its devices, if known. ``reported``: what it holds by the node's
        report. Return the accounted holding.
        """
        ...

    def hold(self, row: int, holding: NumaHolding) -> None:
        """Account for exactly this holding."""
        ...

    def give(self, row: int, holding: NumaHolding) -> None:
        """Free an accounted holding."""
        ...
