"""Reason codes of pending work: the one vocabulary, and the record that carries it.

Every pending thing has a reason, and the reason is true. The engine fills an :class:`Explanation`;
conditions, events, ``kubectl describe``, ``windlass ps`` and ``explain``, metrics and (later)
``squeue`` show it in the same words. Tokens are public: clients may match on them.

Mappings follow the newest words of the neighbours: Volcano's PodGroup condition reasons, Kueue's
KEP-10852 tokens, Slurm's job reason codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

_FORMER_CODES = {"ReservingCard": "ReservingDevice"}
"""Former code → code. The previous version may still write it during an upgrade."""


class Reason(StrEnum):
    """Reason codes, most severe tier first (see :data:`FACTS`)."""

    QUEUE_NOT_FOUND = "QueueNotFound"
    QUEUE_CLOSED = "QueueClosed"
    QUEUE_NOT_LEAF = "QueueNotLeaf"
    MISCONFIGURED = "Misconfigured"
    EXCEEDS_CLUSTER = "ExceedsCluster"
    EXCEEDS_EVERY_NODE = "ExceedsEveryNode"
    EXCEEDS_EVERY_DOMAIN = "ExceedsEveryDomain"
    EXCEEDS_QUEUE_LIMIT = "ExceedsQueueLimit"
    NO_MATCHING_NODE = "NoMatchingNode"
    ON_HOLD = "OnHold"
    EARLIEST_START = "EarliestStart"
    SCHEDULING_GATED = "SchedulingGated"
    WAITING_FOR_MEMBERS = "WaitingForMembers"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    WAITING_FOR_SHARE = "WaitingForShare"
    NAMESPACE_QUOTA = "NamespaceQuota"
    TIME_SHARED = "TimeShared"
    INSUFFICIENT_RESOURCES = "InsufficientResources"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    DEVICES_FRAGMENTED = "DevicesFragmented"
    BEHIND_IN_QUEUE = "BehindInQueue"
    WAITING_FOR_VICTIMS = "WaitingForVictims"
    DISRUPTION_BUDGETS = "DisruptionBudgets"
    RESERVING_DEVICE = "ReservingDevice"
    AWAITING_VOLUME = "AwaitingVolume"
    AWAITING_DEVICE = "AwaitingDevice"
    AWAITING_NODE_LOCK = "AwaitingNodeLock"
    BIND_FAILED = "BindFailed"
    PENDING_EVALUATION = "PendingEvaluation"
    # What a single node lacks (blockers):
    NODE_SELECTOR_MISMATCH = "NodeSelectorMismatch"
    NODE_AFFINITY_MISMATCH = "NodeAffinityMismatch"
    TAINT_NOT_TOLERATED = "TaintNotTolerated"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    NODE_NOT_READY = "NodeNotReady"
    POD_AFFINITY_MISMATCH = "PodAffinityMismatch"
    POD_ANTI_AFFINITY_CONFLICT = "PodAntiAffinityConflict"
    HOST_PORT_TAKEN = "HostPortTaken"
    TOO_MANY_PODS = "TooManyPods"
    VOLUME_UNAVAILABLE = "VolumeUnavailable"
    CLAIM_UNAVAILABLE = "VolumeClaimUnavailable"
    TOPOLOGY_SPREAD_CONFLICT = "TopologySpreadConflict"
    NUMA_ALIGNMENT_FAILED = "NumaAlignmentFailed"
    NO_SUITABLE_DEVICE = "NoSuitableDevice"
    DEVICE_SHARES_TAKEN = "DeviceSharesTaken"
    NODE_OVERLOADED = "NodeOverloaded"
    NODE_RESERVED = "NodeReserved"
    REFUSED_BY_EXTENDER = "RefusedByExtender"

    @classmethod
    def _missing_(cls, value: object) -> Reason | None:
        code = _FORMER_CODES.get(str(value))
        return None if code is None else cls(code)


UNPREEMPTIBLE = "for work that is not preemptible"
"""In what is said of a queue's quota that holds for such work alone."""


@dataclass(frozen=True, slots=True)
class ReasonFacts:
    """Constant facts of a reason. ``waiting_helps``: yes, no (needs a change), maybe."""

    tier: int
    waiting_helps: str
    volcano: str
    kueue: str
    slurm: str
    meaning: str


def _facts(tier: int, helps: str, volcano: str, kueue: str, slurm: str, meaning: str) -> ReasonFacts:
    return ReasonFacts(tier, helps, volcano, kueue, slurm, meaning)


FACTS: Mapping[Reason, ReasonFacts] = {
    Reason.QUEUE_NOT_FOUND: _facts(
        1,
        "no",
        "NotEnoughResources",
        "Misconfigured",
        "BadConstraints",
        "The queue that the group names does not exist.",
    ),
    Reason.QUEUE_CLOSED: _facts(
        1,
        "no",
        "NotEnoughResources",
        "OnHold",
        "PartitionDown",
        "The queue admits no new work until it is opened.",
    ),
    Reason.QUEUE_NOT_LEAF: _facts(
        1,
        "no",
        "NotEnoughResources",
        "Misconfigured",
        "BadConstraints",
        "The queue has child queues; work is submitted to a leaf queue.",
    ),
    Reason.MISCONFIGURED: _facts(
        1,
        "no",
        "NotEnoughResources",
        "Misconfigured",
        "BadConstraints",
        "Two parts of the request contradict each other.",
    ),
    Reason.EXCEEDS_CLUSTER: _facts(
        1,
        "no",
        "NotEnoughResources",
        "ExceedsMaxQuota",
        "PartitionNodeLimit",
        "The gang requests more than the capacity of the whole cluster.",
    ),
    Reason.EXCEEDS_EVERY_NODE: _facts(
        1,
        "no",
        "NotEnoughResources",
        "NoMatchingFlavor",
        "BadConstraints",
        "One pod requests more than the capacity of any node.",
    ),
    Reason.EXCEEDS_EVERY_DOMAIN: _facts(
        1,
        "no",
        "NotEnoughResources",
        "NoMatchingFlavor",
        "BadConstraints",
        "The gang requests more than the capacity of any domain of the required level.",
    ),
    Reason.EXCEEDS_QUEUE_LIMIT: _facts(
        1,
        "no",
        "NotEnoughResources",
        "ExceedsMaxQuota",
        "QOSGrpGRES",
        "The gang requests more than the limit of its queue.",
    ),
    Reason.NO_MATCHING_NODE: _facts(
        1,
        "no",
        "NotEnoughResources",
        "NoMatchingFlavor",
        "BadConstraints",
        "No node satisfies the selectors, affinities and tolerations.",
    ),
    Reason.ON_HOLD: _facts(
        2,
        "no",
        "NotEnoughTasks",
        "OnHold",
        "JobHeldUser",
        "The group is on hold by its owner or an administrator.",
    ),
    Reason.EARLIEST_START: _facts(
        2,
        "yes",
        "NotEnoughTasks",
        "AdmissionGated",
        "BeginTime",
        "The group is not needed before a stated time, and its capacity is reserved from then on.",
    ),
    Reason.SCHEDULING_GATED: _facts(
        2,
        "maybe",
        "NotEnoughTasks",
        "AdmissionGated",
        "JobHeldAdmin",
        "A scheduling gate on a pod has not been removed.",
    ),
    Reason.WAITING_FOR_MEMBERS: _facts(
        2,
        "maybe",
        "NotEnoughTasks",
        "WaitingForPodsReady",
        "Dependency",
        "The gang has fewer pods than its minimum.",
    ),
    Reason.WAITING_FOR_QUOTA: _facts(
        3,
        "yes",
        "NotEnoughResources",
        "WaitingForQuota",
        "QOSGrpGRES",
        "The limit of the queue is used up. Capacity returns as work of the queue ends.",
    ),
    Reason.WAITING_FOR_SHARE: _facts(
        3,
        "yes",
        "NotEnoughResources",
        "WaitingForQuota",
        "AssocGrpGRES",
        "The queue holds its share. Other queues are entitled to the rest.",
    ),
    Reason.NAMESPACE_QUOTA: _facts(
        3,
        "maybe",
        "NotEnoughResources",
        "WaitingForQuota",
        "AssocGrpGRES",
        "A ResourceQuota of the namespace is used up.",
    ),
    Reason.TIME_SHARED: _facts(
        3,
        "yes",
        "NotEnoughResources",
        "Preempted",
        "Priority",
        "Time-sharing: the group was suspended for others, or suspending them would lose more work than it gains.",
    ),
    Reason.INSUFFICIENT_RESOURCES: _facts(
        3,
        "yes",
        "NotEnoughResources",
        "WaitingForQuota",
        "Resources",
        "All nodes that fit the pods are in use.",
    ),
    Reason.TOPOLOGY_PLACEMENT_FAILED: _facts(
        3,
        "yes",
        "NotEnoughResources",
        "TopologyPlacementFailed",
        "Resources",
        "No single domain of the required level has the capacity now.",
    ),
    Reason.DEVICES_FRAGMENTED: _facts(
        3,
        "yes",
        "NotEnoughResources",
        "TopologyPlacementFailed",
        "Resources",
        "Enough devices are free, but not on the same node or domain.",
    ),
    Reason.BEHIND_IN_QUEUE: _facts(
        4,
        "yes",
        "NotEnoughResources",
        "PendingEvaluation",
        "Priority",
        "Work with an earlier position or a higher priority is scheduled first.",
    ),
    Reason.WAITING_FOR_VICTIMS: _facts(
        4,
        "yes",
        "NotEnoughResources",
        "WaitingForPreemptedWorkloads",
        "Resources",
        "Capacity is reserved; the pods on it are terminating.",
    ),
    Reason.DISRUPTION_BUDGETS: _facts(
        4,
        "maybe",
        "NotEnoughResources",
        "WaitingForPreemptedWorkloads",
        "Resources",
        "Evictions would free the capacity, but PodDisruptionBudgets forbid them.",
    ),
    Reason.RESERVING_DEVICE: _facts(
        4,
        "yes",
        "NotEnoughResources",
        "PendingEvaluation",
        "Resources",
        "A node was selected. Binding waits for the reservation pod to report which GPU its kubelet allocated.",
    ),
    Reason.AWAITING_VOLUME: _facts(
        4,
        "yes",
        "NotEnoughResources",
        "PendingEvaluation",
        "Resources",
        "A node was selected. Binding waits for a volume to be provisioned.",
    ),
    Reason.AWAITING_DEVICE: _facts(
        4,
        "yes",
        "NotEnoughResources",
        "PendingEvaluation",
        "Resources",
        "A node was selected. Binding waits for a device to be prepared.",
    ),
    Reason.AWAITING_NODE_LOCK: _facts(
        4,
        "yes",
        "NotEnoughResources",
        "PendingEvaluation",
        "Resources",
        "A node was selected. Binding waits for HAMi's node lock: its device plugin assigns GPUs to one pod at a time.",
    ),
    Reason.BIND_FAILED: _facts(
        4,
        "yes",
        "NotEnoughResources",
        "PendingEvaluation",
        "Resources",
        "The last start failed and is retried after a back-off.",
    ),
    Reason.PENDING_EVALUATION: _facts(
        5,
        "yes",
        "NotEnoughResources",
        "PendingEvaluation",
        "None",
        "The scheduler has not evaluated the group yet.",
    ),
    Reason.NODE_SELECTOR_MISMATCH: _facts(
        3,
        "maybe",
        "NotEnoughResources",
        "NoMatchingFlavor",
        "BadConstraints",
        "The node lacks a label of the pod's nodeSelector.",
    ),
    Reason.NODE_AFFINITY_MISMATCH: _facts(
        3,
        "maybe",
        "NotEnoughResources",
        "NoMatchingFlavor",
        "BadConstraints",
        "The node does not satisfy the pod's required node affinity.",
    ),
    Reason.TAINT_NOT_TOLERATED: _facts(
        3,
        "maybe",
        "NotEnoughResources",
        "NoMatchingFlavor",
        "BadConstraints",
        "The node has a taint that the pod does not tolerate.",
    ),
    Reason.NODE_UNSCHEDULABLE: _facts(
        3, "maybe", "NotEnoughResources", "NoMatchingFlavor", "ReqNodeNotAvail", "The node is cordoned."
    ),
    Reason.NODE_NOT_READY: _facts(
        3, "maybe", "NotEnoughResources", "NoMatchingFlavor", "ReqNodeNotAvail", "The node is not ready."
    ),
    Reason.POD_AFFINITY_MISMATCH: _facts(
        3,
        "maybe",
        "NotEnoughResources",
        "TopologyPlacementFailed",
        "BadConstraints",
        "No pod that the affinity requires runs in the node's domain.",
    ),
    Reason.POD_ANTI_AFFINITY_CONFLICT: _facts(
        3,
        "yes",
        "NotEnoughResources",
        "TopologyPlacementFailed",
        "Resources",
        "A pod in the node's domain excludes this one, or the other way round.",
    ),
    Reason.HOST_PORT_TAKEN: _facts(
        3,
        "yes",
        "NotEnoughResources",
        "WaitingForQuota",
        "Resources",
        "A host port that the pod requests is in use on the node.",
    ),
    Reason.TOO_MANY_PODS: _facts(
        3,
        "yes",
        "NotEnoughResources",
        "WaitingForQuota",
        "Resources",
        "The node holds its maximum number of pods.",
    ),
    Reason.VOLUME_UNAVAILABLE: _facts(
        3,
        "maybe",
        "NotEnoughResources",
        "NoMatchingFlavor",
        "BadConstraints",
        "A volume of the pod is not available on the node.",
    ),
    Reason.CLAIM_UNAVAILABLE: _facts(
        3,
        "maybe",
        "NotEnoughResources",
        "NoMatchingFlavor",
        "BadConstraints",
        "A volume claim of the pod is missing, unbound, terminating, or used by another pod alone.",
    ),
    Reason.TOPOLOGY_SPREAD_CONFLICT: _facts(
        3,
        "yes",
        "NotEnoughResources",
        "TopologyPlacementFailed",
        "Resources",
        "One more pod in the domain would violate the topology spread constraint.",
    ),
    Reason.NUMA_ALIGNMENT_FAILED: _facts(
        3,
        "yes",
        "NotEnoughResources",
        "TopologyPlacementFailed",
        "Resources",
        "The node's NUMA nodes do not fit the pod under its Topology Manager policy.",
    ),
    Reason.NO_SUITABLE_DEVICE: _facts(
        3,
        "maybe",
        "NotEnoughResources",
        "NoMatchingFlavor",
        "BadConstraints",
        "The node has too few GPUs of the requested kind.",
    ),
    Reason.DEVICE_SHARES_TAKEN: _facts(
        3,
        "yes",
        "NotEnoughResources",
        "WaitingForQuota",
        "Resources",
        "No GPU of the node has the requested share free.",
    ),
    Reason.NODE_OVERLOADED: _facts(
        3,
        "yes",
        "NotEnoughResources",
        "WaitingForQuota",
        "Resources",
        "The node's measured load is above the configured threshold.",
    ),
    Reason.NODE_RESERVED: _facts(
        3,
        "maybe",
        "NotEnoughResources",
        "NoMatchingFlavor",
        "BadConstraints",
        "The scheduler's configuration reserves the node for other work.",
    ),
    Reason.REFUSED_BY_EXTENDER: _facts(
        3,
        "maybe",
        "NotEnoughResources",
        "NoMatchingFlavor",
        "BadConstraints",
        "The configured extender rejects the node.",
    ),
}


@dataclass(frozen=True, slots=True)
class Blocker:
    """One obstacle, over all nodes it holds on. ``needed``/``available`` are quantities as text."""

    code: Reason
    nodes: int = 0
    resource: str = ""
    needed: str = ""
    available: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """The node that comes closest, and what it still lacks."""

    node: str
    lacks: str


class SuggestedChangeKind(StrEnum):
    """Kind of a suggested change; see :class:`SuggestedChange`."""

    MIN_MEMBER = "min-member"
    REQUEST = "request"
    QUEUE_LIMIT = "queue-limit"
    ADD_NODES = "add-nodes"
    UNCORDON = "uncordon"
    TOLERATE = "tolerate"
    SELECTOR = "selector"
    TOPOLOGY = "topology"


@dataclass(frozen=True, slots=True)
class SuggestedChange:
    """A change after which the group starts in the next cycle, while one unit less of it does not do.

    ``target`` is what is changed (the group, a queue, nodes) in ``field`` from ``current`` to ``wanted``
    (quantities as text). ``size`` is the part of it that changes, for comparison: 0.25 is a quarter.
    ``sentence`` says it in words.
    """

    kind: SuggestedChangeKind
    target: str
    field: str
    current: str
    wanted: str
    size: float
    sentence: str


@dataclass(frozen=True, slots=True)
class NodesRequested:
    """Nodes that a gang lacks and that were requested from the cluster autoscaler, all or none.

    ``what``: ``4 x 8 GPUs``. ``state``: progress since ``since`` (Unix seconds; 0: unknown), with ``detail`` as the
    autoscaler reports it. It is the ``attempt``-th ``request``; ``retry_at``: time of the next request (0: none).
    """

    what: str
    state: str
    since: float = 0.0
    detail: str = ""
    request: str = ""
    class_name: str = ""
    attempt: int = 0
    retry_at: float = 0.0

    @property
    def sentence(self) -> str:
        """For conditions: without what changes with the clock."""
        return f"nodes requested: {self.what}, {self.state}"


MAX_PLANNED_NODES = 64
"""Maximum number of planned nodes that an explanation names."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of a pending group. ``code`` is the most severe blocker; ``blockers`` names all of them.

    ``position`` counts from 1 inside the queue (0: unknown); ``estimate_seconds`` is the time to the
    start, ``None`` when nothing can be said, and ``estimate_basis`` what it depends on. It counts from
    ``estimate_at`` (Unix seconds; 0: not told), as do the earliest and the latest start that are likely in
    ``estimate_band`` (the earliest alone where there is no latest). ``holders`` are the groups that hold
    what it needs. Each of ``changes``, the smallest first, would admit it on its own. ``asked``: the nodes that
    were requested for it. ``planned_nodes``: nodes on which it would start by the estimate, with its pods there
    (:data:`MAX_PLANNED_NODES` at most).
    """

    code: Reason
    message: str
    blockers: tuple[Blocker, ...] = ()
    nearest: NearMiss | None = None
    holders: tuple[str, ...] = ()
    position: int = 0
    ahead: tuple[str, ...] = ()
    estimate_seconds: float | None = None
    estimate_basis: str = ""
    estimate_at: float = 0.0
    estimate_band: tuple[float, ...] = ()
    changes: tuple[SuggestedChange, ...] = ()
    remedies: tuple[str, ...] = ()
    nodes_considered: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)
    asked: NodesRequested | None = None
    planned_nodes: Mapping[str, int] = field(default_factory=dict)
    waiting: str = ""
    """Override of the code's answer whether waiting helps; "" for none."""

    @property
    def statement(self) -> str:
        """Reason and pending action in one text, as conditions show it."""
        return f"{self.message}; {self.asked.sentence}" if self.asked is not None else self.message

    @property
    def facts(self) -> ReasonFacts:
        return FACTS[self.code]

    @property
    def waiting_helps(self) -> str:
        return self.waiting or self.facts.waiting_helps

    def as_of(self, now: float) -> Explanation:
        """The same with the time to the start counted from ``now`` (Unix seconds): a record may be read long after
        it was written. 0 once the start is due."""
        if self.estimate_seconds is None or not self.estimate_at:
            return self
        passed = max(0.0, now - self.estimate_at)
        return replace(
            self,
            estimate_seconds=max(0.0, self.estimate_seconds - passed),
            estimate_band=tuple([max(0.0, seconds - passed) for seconds in self.estimate_band]),
            estimate_at=self.estimate_at + passed,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON; empty entries are left out."""
        record = {key: value for key, value in asdict(self).items() if value not in (None, "", (), 0, {})}
        record["code"] = str(self.code)
        if self.estimate_seconds is not None:
            record["estimate_seconds"] = self.estimate_seconds
        record["waitingHelps"] = self.waiting_helps
        record["blockers"] = [
            {
                key: (str(value) if key == "code" else value)
                for key, value in asdict(b).items()
                if value not in ("", 0)
            }
            for b in self.blockers
        ]
        if self.changes:
            record["changes"] = [{**asdict(change), "kind": str(change.kind)} for change in self.changes]
        return record

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> Explanation:
        """The inverse of :meth:`as_dict`; unknown keys are ignored. Raises ``ValueError`` on an unknown code."""
        nearest, asked = record.get("nearest"), record.get("asked")
        return Explanation(
            code=Reason(record["code"]),
            message=record.get("message", ""),
            blockers=tuple(
                Blocker(
                    Reason(b["code"]),
                    b.get("nodes", 0),
                    b.get("resource", ""),
                    b.get("needed", ""),
                    b.get("available", ""),
                    b.get("detail", ""),
                )
                for b in record.get("blockers") or ()
            ),
            nearest=NearMiss(nearest["node"], nearest["lacks"]) if nearest else None,
            holders=tuple(record.get("holders") or ()),
            position=record.get("position", 0),
            ahead=tuple(record.get("ahead") or ()),
            estimate_seconds=record.get("estimate_seconds"),
            estimate_basis=record.get("estimate_basis", ""),
            estimate_at=record.get("estimate_at", 0.0),
            estimate_band=tuple(record.get("estimate_band") or ()),
            changes=tuple(
                SuggestedChange(
                    SuggestedChangeKind(c["kind"]),
                    c["target"],
                    c["field"],
                    c["current"],
                    c["wanted"],
                    c["size"],
                    c["sentence"],
                )
                for c in record.get("changes") or ()
            ),
            remedies=tuple(record.get("remedies") or ()),
            nodes_considered=record.get("nodes_considered", 0),
            extra=dict(record.get("extra") or {}),
            asked=_nodes_asked(asked) if asked else None,
            planned_nodes=dict(record.get("planned_nodes") or {}),
            waiting=record.get("waiting", ""),
        )


def _nodes_asked(record: Mapping[str, Any]) -> NodesRequested:
    known = {one.name for one in fields(NodesRequested)}
    given: dict[str, Any] = {"what": "", "state": "", **{k: v for k, v in record.items() if k in known}}
    return NodesRequested(**given)
