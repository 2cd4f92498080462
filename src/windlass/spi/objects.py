"""The engine's nouns as a plugin sees them: immutable, free of wire objects.

Resources are mappings *name → int* in the units of ``api.quantities``: CPU and devices in milli,
memory in bytes, others 1. Times are Unix seconds. Keys are ``namespace/name`` unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

import msgspec

from windlass.spi.devices import DeviceMode, DeviceNeed, SliceProfile
from windlass.spi.numa import NumaHolding, NumaNeed, NumaTopology
from windlass.spi.quantities import is_device
from windlass.spi.topology import TopologyNeed

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
class WeightedPodTerm:
    weight: int
    term: PodTerm


@dataclass(frozen=True, slots=True)
class SpreadTerm:
    """A topology spread constraint. ``selector``: as of :class:`PodTerm`, always in the pod's namespace.

    ``hard``: a filter (``DoNotSchedule``), else a wish. ``min_domains`` only of a hard one. Domains are
    counted on nodes that meet the pod's selector and affinity (``honor_affinity``) and whose taints it
    tolerates (``honor_taints``).
    """

    topology_key: str
    max_skew: int
    hard: bool
    selector: tuple[Expression, ...] | None
    min_domains: int | None = None
    honor_affinity: bool = True
    honor_taints: bool = False

    def label_alone(self) -> SpreadTerm:
        """What it asks of a node whatever runs where: a value of its key."""
        return SpreadTerm(self.topology_key, 1, self.hard, None)


class HostPort(NamedTuple):
    """``address``: the node's address it is bound to; empty stands for all of them."""

    protocol: str
    number: int
    address: str = ""


@dataclass(frozen=True, slots=True)
class VolumeOption:
    """A persistent volume that could serve a claim: its name and the nodes that reach it (``None``: all)."""

    volume: str
    terms: tuple[NodeTerm, ...] | None = None


@dataclass(frozen=True, slots=True)
class VolumeNeed:
    """A volume of a pod, as far as it says where the pod can go.

    * ``claim``: ``namespace/name`` of the claim, or what the pod calls the volume.
    * ``terms``: of the volume it is bound to, or of the topologies that its class allows: on nodes that
      satisfy one of them it can be used. ``None``: on all.
    * ``options``: for a claim that waits for its first consumer and is served by volumes that exist: it
      takes one of them, which nobody else has. ``None``: it is not served that way.
    * ``exclusive``: one pod in the whole cluster may use it (ReadWriteOncePod).
    * ``limit``: the resource of the node that counts attached volumes of its driver; empty: unlimited.
      ``identity``: volumes of equal identity are attached to a node once.
    * ``size``: of a volume that would be made there (``5Gi``); empty for one that exists.
    * ``problem``: why no node will do now, in words; empty if some may. ``fault``: why none would, whatever nodes
      there were.
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
    """A pod's own word on how it is scored by resources: a strategy's name (``MostAllocated``,
    ``LeastAllocated``) and the weights of resources. Without weights it has no score."""

    strategy: str
    weights: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeGroups:
    """Which groups of nodes (by label ``volcano.sh/nodegroup-name``) a queue may or would rather use.

    ``inherited``: the nearest ancestor says so, the queue itself says nothing. ``limits``: group → what
    ``queue`` may hold of resources there; ``limits_unreadable``: it says something that is none.
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
    """With pods of which roles of its own gang a pod wants to share a node, and with which not; itself where
    its own role is meant. ``place``: of its role in the order in which roles are placed."""

    gang: str
    role: str
    near: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    place: int = 0


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
    """One accelerator of a node. ``index`` is what ``windlass.dev/devices`` speaks of.

    ``slots``: how many may share it at most, where a device plug-in has its own limit; 0: it has none.
    ``compute``: its CUDA compute capability, (0, 0) where it is not known. ``geometry``: the profiles that it
    can be sliced into, as the node says; without them those of its model count (by name, or by model and
    memory; :mod:`windlass.engine.devices.mig`). ``draws``: the counters of its node that it takes from while somebody
    has it (several devices may be carved of one): name, units, how many there are. ``shared``: any number of claims may
    have parts of it, each as much as they ask for of what it has (:attr:`~windlass.spi.devices.DeviceNeed.draws`);
    nobody has it whole. ``drawn``: name and units of what is taken of it for nobody who is known. ``late``: claims take
    it after all others.
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
    """A MIG instance that a task has: on which card, of which profile, from which memory slice on."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride]
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
    """What queues divide beside ``allocatable``, though no pod can take it here as such: a card's worth of MIG
    slices, for queues that count GPUs alone."""
    images: tuple[tuple[str, int], ...] = ()
    """The container images it has, by every name, with their sizes in bytes; only where a policy asks for them
    (:class:`~windlass.spi.plugins.ReadsImages`)."""


class QueueState(StrEnum):
    OPEN = "Open"
    CLOSING = "Closing"
    CLOSED = "Closed"


class Dialect(StrEnum):
    """The queue API whose rules a queue, its groups and its pods follow.

    ``WINDLASS`` also names the placement rules of pods with ``schedulerName: windlass``.
    """

    VOLCANO = "volcano"
    KAI = "kai"
    WINDLASS = "windlass"


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of any API, under its engine key: Volcano's ``root/…`` names as they are, KAI's as ``kai/NAME``.

    ``None`` in an entry of ``capability`` never occurs: absent means no limit. ``unlimited`` names the
    resources of which the queue deserves any amount (KAI's quota -1). ``surplus_weights``: resource →
    weight in the division of what is left after deserved amounts (KAI's ``overQuotaWeight``; 0 means no
    share of it); a resource that is not named has ``weight``. Minimum run times are in seconds, ``None``
    where the queue says nothing (its ancestors' then hold).
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
    """Only those that a policy reads (``volcano.sh/hierarchy`` and its weights, node groups)."""


@dataclass(frozen=True, slots=True)
class SubGroup:
    """A part of a gang with a minimum of its own; parts form a tree by ``parent`` (empty: the group).

    ``min_members``: of its own tasks. ``min_subgroups``: how many of its parts must reach theirs;
    ``None`` means all of them.
    """

    name: str
    parent: str = ""
    min_members: int = 0
    min_subgroups: int | None = None
    topology: TopologyNeed | None = None
    """How near to one another its tasks, and those of the parts below it, are to be."""


_BY_PRIORITY = ("preempt", "gangpreempt", "gangpreempt-surplus")
"""Actions that take room inside a queue for who is more important."""


class AttainedService(msgspec.Struct, frozen=True):
    """What a group that shares time has behind it, as far as its object says: for how many seconds it has had its room
    in all up to ``at`` (Unix seconds), and how often it was suspended. ``since``: where its object was made anew, since
    when the first one was there (Unix seconds)."""

    attained: float
    at: float
    suspensions: int = 0
    since: float | None = None


class Group(msgspec.Struct, frozen=True):
    """A gang. ``key`` is ``namespace/name``; of a pod without a group (a group of one) ``namespace/pod:name``.

    ``admitted``: its phase is past Pending (Inqueue or later). ``min_task_member``: role → minimum.
    ``min_subgroups``: how many of the parts directly below the group must reach their minimum (``None``:
    all). Durations in seconds, times in Unix seconds:

    * ``preemption_delay``: causes no eviction before this long after creation, or its last eviction.
    * ``stale_grace``: how long it may hold less than its minimum before all of it is evicted; ``None``
      or negative: for ever. ``stale_since``: since when it has, as far as an API object says.
    * ``started``: when it last reached its minimum; ``last_eviction``: when a task of it was last evicted.
    * ``run_estimate``: how long its tasks run; ``None`` where nothing is known. By its owner's word, unless
      ``learned`` says on which earlier runs it rests; ``run_bound``: the longest of those, ``runs``: the last of them
      in ascending order.
    * ``waiting_limit``: Volcano's ``sla-waiting-time``.

    ``past``: what it attained before, where time is shared. An engine goes by it once, as it hears of the group.
    ``guest``: another scheduler placed it; it counts in its queue and goes for work of higher priority there, and for
    nothing else: it is not reclaimed, moved, suspended or shuffled.
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
    """Only those that a policy reads (disruption budgets, revocable zones)."""
    topology: TopologyNeed | None = None
    """How near to one another its tasks are to be; parts may ask for more."""
    learned: str = ""
    run_bound: float | None = None
    runs: tuple[float, ...] = ()
    guest: bool = False
    past: AttainedService | None = None

    def yields_to(self, action: str, priority: int) -> bool:
        """Whether it goes for a claim of this action and priority, as far as it is a guest."""
        return not self.guest or (action in _BY_PRIORITY and priority > self.priority)


@dataclass(frozen=True, slots=True)
class NamespaceQuota:
    """A ResourceQuota without scopes: what the requests of all unfinished pods of its namespace may sum up
    to. ``key`` is ``namespace/name``; ``pods`` counts pods."""

    key: str
    hard: Resources = field(default_factory=dict)


class TaskState(StrEnum):
    """``ASSUMED`` is a bind that was decided and is on its way. ``STUCK`` has been terminating for so
    long that nobody counts on it: it holds its resources and promises none."""

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
    """What a pod asks of a node: equal needs make one task class. Hashable; mappings as sorted pairs."""

    request: tuple[tuple[str, int], ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[NodeTerm, ...] | None = None
    preferred_nodes: tuple[WeightedNodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    """The pod's own labels: those that an affinity term of any pod could select on, and those that a
    policy reads (:class:`~windlass.spi.plugins.ReadsLabels`)."""
    namespace: str = ""
    dialect: Dialect = Dialect.WINDLASS
    """Whose placement rules (scores) hold for the pod."""
    preferred_affinity: tuple[WeightedPodTerm, ...] = ()
    preferred_anti_affinity: tuple[WeightedPodTerm, ...] = ()
    spread: tuple[SpreadTerm, ...] = ()
    volumes: tuple[VolumeNeed, ...] = ()
    node_groups: NodeGroups | None = None
    """What the pod's queue says about groups of nodes."""
    revocable_zone: str = ""
    """Volcano's ``volcano.sh/revocable-zone``: ``*`` for a pod that may use nodes only for a time."""
    scoring: Scoring | None = None
    devices: tuple[DeviceNeed, ...] = ()
    """Parts of cards, and whole cards that must be of a kind. Each need stands for itself: two of them may be
    served by one card, the cards of one are distinct."""
    by_card: tuple[str, ...] = ()
    """Names in ``request`` that only queues are charged for, beside the resources of ``devices``: on the
    node, ``devices`` says what is taken."""
    zones: NumaNeed | None = None
    """What its containers ask of NUMA zones, if any of it could be given from one."""
    roles: RolePreferences | None = None
    """Near which roles of its gang it wants to be."""
    images: tuple[str, ...] = ()
    """The images of its containers and init containers, with a tag or a digest, sorted, as often as they are used;
    only where a policy asks for them (:class:`~windlass.spi.plugins.ReadsImages`)."""

    @property
    def node_request(self) -> tuple[tuple[str, int], ...]:
        """``request`` without what is counted card by card."""
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
        """What filters, capacities and scores see: all but what relates the pod to other pods. Of a hard constraint on
        spread that is the label.

        Classes that differ in the rest share what is known about the nodes.
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
    subgroup: str = ""
    """The part of the gang it belongs to; empty: directly to the group."""
    started: float | None = None
    """Since when it runs, Unix seconds."""
    run_limit: float | None = None
    """After how many seconds of running it is ended (``activeDeadlineSeconds``)."""
    critical: bool = False
    """Never a victim: of kube-system, or of a system-critical priority class."""
    never_preempts: bool = False
    """Its own ``preemptionPolicy`` is Never: nothing is evicted for it."""
    annotations: tuple[tuple[str, str], ...] = ()
    """Only those that a policy reads (cooldown time, disruption budgets)."""
    slices: tuple[HeldSlice, ...] = ()
    """The MIG instances it has, as far as the world says."""
    zones: NumaHolding | None = None
    """What it holds of NUMA zones, as far as the world says."""
    budgets: tuple[str, ...] = ()
    """The PodDisruptionBudgets that protect it, ``namespace/name``."""
    owned: bool = True
    """Whether a controller makes it anew once it is gone."""
    guaranteed: bool = False
    """Of quality of service Guaranteed: what its containers ask for of CPU and memory is what they are limited to."""
