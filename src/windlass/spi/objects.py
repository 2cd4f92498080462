"""Objects of the engine as policies see them: immutable, without wire objects.

Resources are mappings *name → int* in the units of ``api.quantities``: CPU and devices in
milli, memory in bytes, others 1. Times are Unix seconds. Keys are ``namespace/name``
unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from windlass.spi import renamed
from windlass.spi.devices import DeviceMode, DeviceNeed, SliceProfile
from windlass.spi.numa import NumaHolding, NumaNeed, NumaTopology
from windlass.spi.quantities import is_device
from windlass.spi.topology import TopologyNeed

Resources = Mapping[str, int]
NOTHING: Resources = {}

if not TYPE_CHECKING:
    __getattr__ = renamed.old_names(__name__)


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
    """A pod (anti-)affinity term.

    No ``namespaces`` means the pod's own. No ``selector`` selects nothing.
    """

    selector: tuple[Expression, ...] | None
    topology_key: str
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WeightedPodTerm:
    weight: int
    term: PodTerm


@dataclass(frozen=True, slots=True)
class SpreadTerm:
    """A topology spread constraint.

    * ``selector``: as in :class:`PodTerm`, always in the pod's namespace.
    * ``hard``: a filter (``DoNotSchedule``); otherwise a preference.
    * ``min_domains``: for hard constraints only.
    * ``honor_affinity``, ``honor_taints``: domains count only nodes that meet the pod's
      selector and affinity, or that have only taints which it tolerates.
    """

    topology_key: str
    max_skew: int
    hard: bool
    selector: tuple[Expression, ...] | None
    min_domains: int | None = None
    honor_affinity: bool = True
    honor_taints: bool = False

    def label_alone(self) -> SpreadTerm:
        """Return the part that depends on no other pod: the node has a value of the key."""
        return SpreadTerm(self.topology_key, 1, self.hard, None)


class HostPort(NamedTuple):
    """A port of the node. ``address``: the node's address to bind; empty for all addresses."""

    protocol: str
    number: int
    address: str = ""


@dataclass(frozen=True, slots=True)
class VolumeOption:
    """A persistent volume that could serve a claim.

    ``terms``: the nodes that can use it; ``None`` for all.
    """

    volume: str
    terms: tuple[NodeTerm, ...] | None = None


@dataclass(frozen=True, slots=True)
class VolumeNeed:
    """A volume of a pod, as far as it restricts the nodes for the pod.

    * ``claim``: ``namespace/name`` of the claim, or the name of the volume in the pod.
    * ``terms``: of the bound volume, or of the topologies that its class allows. Nodes
      that satisfy one of them can use the volume. ``None``: all nodes can.
    * ``options``: for a claim that waits for its first consumer and is served by existing
      volumes. It takes one of them that no other claim has. ``None``: it is not served
      that way.
    * ``exclusive``: one pod in the whole cluster may use it (ReadWriteOncePod).
    * ``limit``: resource of the node that counts attached volumes of its driver; empty
      for no limit. ``identity``: volumes of equal identity are attached to a node once.
    * ``size``: of a volume that would be provisioned (``5Gi``); empty for one that
      exists.
    * ``problem``: why no node is suitable now, as text; empty if some node may be.
      ``fault``: why no node could be, whatever nodes there were.
    """

    claim: str
    terms: tuple[NodeTerm, ...] | None = None
    options: tuple[VolumeOption, ...] | None = None
    exclusive: bool = False
    limit: str = ""
    identity: str = ""
    size: str = ""
    problem: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Scoring:
    """Scoring by resources as the pod itself states it.

    ``strategy``: ``MostAllocated`` or ``LeastAllocated``. ``weights``: of resources.
    Without weights it has no score.
    """

    strategy: str
    weights: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeGroups:
    """Groups of nodes (label ``volcano.sh/nodegroup-name``) that a queue may or prefers to use.

    * ``inherited``: stated by the nearest ancestor, not by the queue itself.
    * ``limits``: group → amounts that ``queue`` may hold there.
    * ``limits_unreadable``: the stated limits cannot be parsed.
    """

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    anti_required: tuple[str, ...] = ()
    anti_preferred: tuple[str, ...] = ()
    inherited: bool = False
    queue: str = ""
    limits: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()
    limits_unreadable: bool = False


@dataclass(frozen=True, slots=True)
class RolePreferences:
    """Roles of its own gang with which a pod prefers to share a node, or not to.

    ``near``: roles on the same node; ``apart``: roles on other nodes. Either may contain
    its own role. ``place``: position of its role in the order of placement.
    """

    gang: str
    role: str
    near: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    place: int = 0


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration. An empty ``key`` with Exists tolerates all; an empty ``effect`` matches all."""

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
    """One accelerator of a node.

    * ``index``: its index in ``windlass.dev/devices``.
    * ``slots``: maximum number of pods that share it, if a device plugin sets one; 0 for
      no limit.
    * ``compute``: its CUDA compute capability; (0, 0) if it is not known.
    * ``geometry``: profiles into which it can be sliced, as the node reports. Without
      them those of its model hold (by name, or by model and memory;
      :mod:`windlass.engine.devices.mig`).
    * ``draws``: counters of its node that it consumes while it is allocated, because
      several devices may be made from one: name, consumed units, units in all.
    * ``shared``: any number of claims may have shares of it, each with the units that it
      requests (:attr:`~windlass.spi.devices.DeviceNeed.draws`). It is never allocated as
      a whole.
    * ``drawn``: name and units of consumption by unknown claims.
    * ``late``: claims take it after all other devices.
    """

    index: int
    resource: str
    model: str = ""
    memory_mib: int = 0
    uuid: str = ""
    healthy: bool = True
    numa: int = -1
    link_group: int = -1
    mode: DeviceMode = DeviceMode.PLAIN
    compute: tuple[int, int] = (0, 0)
    geometry: tuple[SliceProfile, ...] = ()
    slots: int = 0
    draws: tuple[tuple[str, int, int], ...] = ()
    shared: bool = False
    drawn: tuple[tuple[str, int], ...] = ()
    late: bool = False


class HeldSlice(NamedTuple):
    """A MIG instance of a task: index of the device, profile, first memory slice."""

    index: int  # type: ignore[override]
    profile: str
    start: int


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
    zones: NumaTopology | None = None
    """Its NUMA zones, where they are known."""
    quota: Resources = field(default_factory=dict)
    """Amounts that count for queues in addition to ``allocatable``, but that no pod can take.

    For example a whole device for its MIG slices, for queues that count GPUs only.
    """
    images: tuple[tuple[str, int], ...] = ()
    """Its container images, under each name, with their sizes in bytes.

    Filled only if a policy is a :class:`~windlass.spi.plugins.ReadsImages`.
    """
    unreadable_labels: tuple[tuple[str, str], ...] = ()
    """Label and value of labels about its devices that are not the numbers they should be."""


class QueueState(StrEnum):
    OPEN = "Open"
    CLOSING = "Closing"
    CLOSED = "Closed"


class Dialect(StrEnum):
    """Queue API, with its rules for a queue, its groups and its pods.

    ``WINDLASS`` also names the placement rules of pods with ``schedulerName: windlass``.
    """

    VOLCANO = "volcano"
    KAI = "kai"
    WINDLASS = "windlass"


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of any API, under its engine key.

    Volcano's names ``root/…`` are used as they are, KAI's as ``kai/NAME``.

    * ``capability``: no entry means no limit.
    * ``unlimited``: resources of which the queue deserves any amount (KAI's quota -1).
    * ``surplus_weights``: resource → weight in the division of what deserved amounts
      leave (KAI's ``overQuotaWeight``; 0 means no share). Without an entry ``weight``
      holds.
    * ``preempt_min_runtime``, ``reclaim_min_runtime``: seconds; ``None``: those of its
      ancestors hold.
    """

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
    dialect: Dialect = Dialect.VOLCANO
    unlimited: tuple[str, ...] = ()
    surplus_weights: Mapping[str, float] = field(default_factory=dict)
    preempt_min_runtime: float | None = None
    reclaim_min_runtime: float | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations that a policy reads (``volcano.sh/hierarchy`` and its weights, node groups)."""


@dataclass(frozen=True, slots=True)
class SubGroup:
    """Part of a gang with a minimum of its own.

    Subgroups form a tree by ``parent`` (empty: the group). ``min_members``: minimum of
    its own tasks. ``min_subgroups``: number of its subgroups that must reach theirs;
    ``None`` for all.
    """

    name: str
    parent: str = ""
    min_members: int = 0
    min_subgroups: int | None = None
    topology: TopologyNeed | None = None
    """Topology constraint of its tasks and those of its subgroups."""


_BY_PRIORITY = ("preempt", "gangpreempt", "gangpreempt-surplus")
"""Actions that preempt inside a queue, for a higher priority."""


class AttainedService(msgspec.Struct, frozen=True):
    """History of a time-sharing group, as its object states it.

    * ``attained``: seconds in all for which it had its capacity, up to ``at`` (Unix
      seconds).
    * ``suspensions``: number of suspensions.
    * ``since``: creation time (Unix seconds) of the first object, if the object was
      recreated.
    """

    attained: float
    at: float
    suspensions: int = 0
    since: float | None = None


class Group(msgspec.Struct, frozen=True):
    """A gang.

    * ``key``: ``namespace/name``; ``namespace/pod:name`` for a pod without a group (a
      group of one).
    * ``admitted``: its phase is after Pending (Inqueue or later).
    * ``has_run``: its phase is after Inqueue (Running, Unknown or Completed). Without any
      unfinished task such a group is over: it reserves nothing.
    * ``min_task_member``: role → minimum.
    * ``min_subgroups``: number of its direct subgroups that must reach their minimum;
      ``None`` for all.
    * ``past``: attained service, for time-sharing. The engine reads it once, when it
      learns of the group.
    * ``guest``: another scheduler placed it. It counts in its queue, and is evicted only
      for groups of higher priority there. It is not reclaimed, moved, suspended or
      shuffled.

    Durations are in seconds, times in Unix seconds:

    * ``preemption_delay``: minimum time after its creation or last eviction before it
      causes an eviction.
    * ``stale_grace``: maximum time below its minimum before it is evicted as a whole;
      ``None`` or negative for no limit. ``stale_since``: beginning of this time, as an
      API object states it.
    * ``started``: when it last reached its minimum. ``last_eviction``: when a task of it
      was last evicted.
    * ``run_estimate``: run time of its tasks; ``None`` if nothing is known. Its owner
      states it, unless ``learned`` describes the earlier runs from which it is derived.
      ``run_bound``: the longest of these runs. ``runs``: the last of them in ascending
      order.
    * ``waiting_limit``: Volcano's ``sla-waiting-time``.
    * ``earliest_start``: no task of it is placed before this time, and its capacity is
      reserved from then on. ``reserve_until``: end of that reservation.
    * ``minimum_name``: field of its API that states ``min_member``, for messages.
    """

    key: str
    queue: str = "default"
    priority: int = 0
    min_member: int = 1
    min_task_member: Mapping[str, int] = msgspec.field(default_factory=dict)
    min_resources: Resources = msgspec.field(default_factory=dict)
    preemptible: bool = True
    never_preempts: bool = False
    created: float = 0.0
    uid: str = ""
    admitted: bool = False
    has_run: bool = False
    held: bool = False
    dialect: Dialect = Dialect.VOLCANO
    subgroups: tuple[SubGroup, ...] = ()
    min_subgroups: int | None = None
    preemption_delay: float = 0.0
    stale_grace: float | None = None
    stale_since: float | None = None
    started: float | None = None
    last_eviction: float | None = None
    run_estimate: float | None = None
    waiting_limit: float | None = None
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Annotations that a policy reads (disruption budgets, revocable zones)."""
    topology: TopologyNeed | None = None
    """Topology constraint of its tasks; subgroups may have tighter ones."""
    learned: str = ""
    run_bound: float | None = None
    runs: tuple[float, ...] = ()
    guest: bool = False
    past: AttainedService | None = None
    earliest_start: float | None = None
    reserve_until: float | None = None
    minimum_name: str = "minAvailable (minMember)"

    def yields_to(self, action: str, priority: int) -> bool:
        """Return whether it may be evicted by this action for this priority; true unless a guest."""
        return not self.guest or (action in _BY_PRIORITY and priority > self.priority)


@dataclass(frozen=True, slots=True)
class NamespaceQuota:
    """A ResourceQuota without scopes.

    ``key``: ``namespace/name``. ``hard``: limits of the requests of all unfinished pods
    of the namespace; ``pods`` counts pods.
    """

    key: str
    hard: Resources = field(default_factory=dict)


class TaskState(StrEnum):
    """State of a task.

    ``ASSUMED``: a bind was decided and is not confirmed yet. ``STUCK``: it has been
    terminating for so long that its end is uncertain. It holds its resources, and none
    of them can be nominated.
    """

    PENDING = "Pending"
    ASSUMED = "Assumed"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    STUCK = "Stuck"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Needs:
    """Requirements of a pod to a node. Pods with equal needs form one task class.

    Hashable. Mappings are sorted pairs.
    """

    request: tuple[tuple[str, int], ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[NodeTerm, ...] | None = None
    preferred_nodes: tuple[WeightedNodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    """Labels of the pod that an affinity term of any pod could select, or that a policy reads.

    See :class:`~windlass.spi.plugins.ReadsLabels`.
    """
    namespace: str = ""
    dialect: Dialect = Dialect.WINDLASS
    """Queue API that determines the placement rules (scores) of the pod."""
    preferred_affinity: tuple[WeightedPodTerm, ...] = ()
    preferred_anti_affinity: tuple[WeightedPodTerm, ...] = ()
    spread: tuple[SpreadTerm, ...] = ()
    volumes: tuple[VolumeNeed, ...] = ()
    node_groups: NodeGroups | None = None
    """Node groups of the pod's queue."""
    revocable_zone: str = ""
    """Volcano's ``volcano.sh/revocable-zone``: ``*`` for a pod that may use nodes only for a time."""
    scoring: Scoring | None = None
    devices: tuple[DeviceNeed, ...] = ()
    """Device shares, and whole devices with conditions.

    The devices of one need are distinct. Two needs may be served by one device.
    """
    by_card: tuple[str, ...] = ()
    """Names in ``request`` that count for queues only, besides the resources of ``devices``.

    On the node, ``devices`` determines what is allocated.
    """
    zones: NumaNeed | None = None
    """Request of its containers to NUMA zones, if any of it could be served from one."""
    roles: RolePreferences | None = None
    """Preferences for roles of its gang."""
    images: tuple[str, ...] = ()
    """Images of its containers and init containers, with a tag or a digest, sorted.

    An image occurs once for each container that uses it. Filled only if a policy is a
    :class:`~windlass.spi.plugins.ReadsImages`.
    """

    @property
    def node_request(self) -> tuple[tuple[str, int], ...]:
        """``request`` without resources that are counted by device."""
        if not self.devices and not self.by_card:
            return self.request
        skipped = {need.resource for need in self.devices if need.joint is None}.union(self.by_card)
        every = "" in skipped
        return tuple(
            (name, units)
            for name, units in self.request
            if name not in skipped and not (every and is_device(name))
        )

    def node_part(self) -> Needs:
        """Return the needs that filters, capacities and scores see.

        They exclude all relations to other pods. Of a hard spread constraint the label
        remains. Classes that differ in the rest share answers about nodes.
        """
        if not (
            self.labels
            or self.namespace
            or self.affinity
            or self.anti_affinity
            or self.preferred_affinity
            or self.preferred_anti_affinity
            or self.spread
            or self.host_ports
            or self.volumes
            or self.zones
            or self.roles
            or self.images
        ):
            return self
        return replace(
            self,
            affinity=(),
            anti_affinity=(),
            preferred_affinity=(),
            preferred_anti_affinity=(),
            spread=tuple(dict.fromkeys(term.label_alone() for term in self.spread if term.hard)),
            host_ports=(),
            volumes=(),
            labels=(),
            namespace="",
            zones=None,
            roles=None,
            images=(),
        )


class Task(msgspec.Struct, frozen=True):
    """A pod as member of a group. ``key``: ``namespace/name``. ``uid`` identifies the incarnation."""

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
    subgroup: str = ""
    """Subgroup of the task; empty: it belongs directly to the group."""
    started: float | None = None
    """Start of its run, Unix seconds."""
    run_limit: float | None = None
    """Maximum run time in seconds (``activeDeadlineSeconds``)."""
    critical: bool = False
    """Never a victim: it is in kube-system, or has a system-critical priority class."""
    never_preempts: bool = False
    """Its own ``preemptionPolicy`` is Never: nothing is evicted for it."""
    annotations: tuple[tuple[str, str], ...] = ()
    """Annotations that a policy reads (cooldown time, disruption budgets)."""
    slices: tuple[HeldSlice, ...] = ()
    """Reported MIG instances of the task."""
    zones: NumaHolding | None = None
    """Reported holding of NUMA zones."""
    budgets: tuple[str, ...] = ()
    """The PodDisruptionBudgets that protect it, ``namespace/name``."""
    owned: bool = True
    """True if a controller recreates the pod after it is deleted."""
    deleted: float = 0.0
    """Time (Unix seconds) at which a terminating pod should have ended; 0.0: it does not terminate."""
    replica_of: str = ""
    """Identity of the controller that keeps all its replicas running at once; empty for none."""
    guaranteed: bool = False
    """Quality of service Guaranteed: requests of CPU and memory equal the limits."""
