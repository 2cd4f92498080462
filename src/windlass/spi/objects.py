"""The engine's nouns as a plugin sees them: immutable, free of wire objects.

Resources are mappings *name → int* in the units of ``api.quantities``: CPU and devices in milli,
memory in bytes, others 1. Times are Unix seconds. Keys are ``namespace/name`` unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Resources = Mapping[str, int]
NOTHING: Resources = {}


@dataclass(frozen=True, slots=True)
class Expression:
    """A label requirement: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """One node selector term: all expressions on labels and on fields (``metadata.name``) hold."""

    labels: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightedNodeTerm:
    weight: int
    term: NodeTerm


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A pod (anti-)affinity term. No ``namespaces`` means the pod's own; no ``selector`` selects nothing."""

    selector: tuple[Expression, ...] | None
    topology_key: str
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Toleration:
    """Empty ``key`` with Exists tolerates all; empty ``effect`` matches every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator of a node. ``index`` is what ``windlass.dev/devices`` speaks of."""

    index: int
    resource: str
    model: str = ""
    memory_mib: int = 0
    uuid: str = ""
    healthy: bool = True
    numa: int = -1
    link_group: int = -1


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    allocatable: Resources
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    devices: tuple[Device, ...] = ()
    """Empty: one anonymous healthy device per whole unit of each device resource."""


class QueueState(StrEnum):
    OPEN = "Open"
    CLOSING = "Closing"
    CLOSED = "Closed"


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of any API. ``None`` in an entry of ``capability`` never occurs: absent means no limit."""

    name: str
    parent: str = ""
    weight: int = 1
    priority: int = 0
    guarantee: Resources = field(default_factory=dict)
    deserved: Resources = field(default_factory=dict)
    capability: Resources = field(default_factory=dict)
    reclaimable: bool = True
    state: QueueState = QueueState.OPEN
    created: float = 0.0
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A gang. ``key`` is ``namespace/name``; of a pod without a group (a group of one) ``namespace/pod:name``.

    ``admitted``: its phase is past Pending (Inqueue or later). ``min_task_member``: role → minimum.
    """

    key: str
    queue: str = "default"
    priority: int = 0
    min_member: int = 1
    min_task_member: Mapping[str, int] = field(default_factory=dict)
    min_resources: Resources = field(default_factory=dict)
    preemptible: bool = True
    never_preempts: bool = False
    created: float = 0.0
    uid: str = ""
    admitted: bool = False
    held: bool = False


class TaskState(StrEnum):
    """``ASSUMED`` is a bind that was decided and is on its way."""

    PENDING = "Pending"
    ASSUMED = "Assumed"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Needs:
    """What a pod asks of a node: equal needs make one task class. Hashable; mappings as sorted pairs."""

    request: tuple[tuple[str, int], ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[NodeTerm, ...] | None = None
    preferred_nodes: tuple[WeightedNodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    host_ports: tuple[tuple[str, int], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    """The pod's own labels, only where an affinity term of any pod could select on them."""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """A pod in a group. ``key`` is ``namespace/name``; ``uid`` tells incarnations apart."""

    key: str
    uid: str
    group: str
    needs: Needs
    role: str = ""
    index: int = 0
    priority: int = 0
    state: TaskState = TaskState.PENDING
    node: str = ""
    devices: tuple[int, ...] = ()
    gated: bool = False
    preemptible: bool = True
    created: float = 0.0
