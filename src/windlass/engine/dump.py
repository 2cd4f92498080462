"""Dump of an engine's state as one JSON document, and its restoration.

The document holds everything that the next decisions depend on. This includes
unprocessed deltas, parked classes with their wake conditions, and the last reports. A
restored engine decides and reports exactly like the original (a property test checks
this). Caches are not included. Plugins are passed in again and learn the placements
from the tasks.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.api.reasons import Explanation
from windlass.engine.actions.preempt import PreemptActionRecord
from windlass.engine.actions.timeshare import TimeShareRecord
from windlass.engine.config import EngineConfig
from windlass.engine.core import Core
from windlass.engine.decision import GroupStatus, QueueUsage
from windlass.engine.devices.share_table import TaskShare
from windlass.engine.devices.whole_device_table import bits
from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry, NextTasks, TaskEntry
from windlass.engine.groups.next_step import next_step
from windlass.engine.groups.pending_class import NO_CONDITIONS, PendingClass, Signature, WakeConditions
from windlass.engine.queues.decayed_usage import Meter
from windlass.engine.queues.fair_shares import SharesRecord
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.relocation_holds import RelocationHold
from windlass.engine.timesharing import dump_record
from windlass.engine.timesharing.dump_record import TimeSharingRecord
from windlass.engine.victims.disruption_budgets import BudgetRecord
from windlass.spi.numa import NumaHolding
from windlass.spi.objects import Group, HeldSlice, NamespaceQuota, Needs, Node, Queue, Task, TaskState
from windlass.spi.plugins import Rejection

FORMAT = 2


class DumpError(ValueError):
    """The bytes are not a dump that this version can read."""


class ClassRecord(msgspec.Struct, frozen=True):
    number: int
    needs: Needs


class TaskRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Task as reported (``needs`` by class number), and its state in the engine."""

    key: str
    uid: str
    group: str
    needs: int
    role: str = ""
    index: int = 0
    priority: int = 0
    reported_state: TaskState = TaskState.PENDING
    reported_node: str = ""
    reported_devices: tuple[int, ...] = ()
    gated: bool = False
    preemptible: bool = True
    created: float = 0.0
    subgroup: str = ""
    started: float | None = None
    run_limit: float | None = None
    critical: bool = False
    never_preempts: bool = False
    annotations: tuple[tuple[str, str], ...] = ()
    budgets: tuple[str, ...] = ()
    owned: bool = True
    guaranteed: bool = False
    state: TaskState = TaskState.PENDING
    node: str = ""
    devices: tuple[int, ...] = ()
    nominated: str = msgspec.field(default="", name="promised")
    reported_slices: tuple[HeldSlice, ...] = ()
    shares: tuple[TaskShare, ...] = msgspec.field(default=(), name="cuts")
    """Its device shares."""
    nominated_shares: tuple[TaskShare, ...] = msgspec.field(default=(), name="kept")
    """Its nominated device shares."""
    reported_numa: NumaHolding | None = msgspec.field(default=None, name="reported_zones")
    numa: NumaHolding | None = msgspec.field(default=None, name="zones")
    """Its NUMA holding."""
    nominated_numa: NumaHolding | None = msgspec.field(default=None, name="kept_zones")
    """Its nominated NUMA holding."""


class GroupRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    key: str
    group: Group | None = None
    failures: int = 0
    newly_failed: bool = False
    failure: str = ""
    not_before: float = 0.0
    reported: GroupStatus | None = None
    admitted: bool = msgspec.field(default=False, name="let_in")
    stale_since: float | None = None
    stale_tried: float | None = None
    rejection: Rejection | None = msgspec.field(default=None, name="refusal")
    preempted_in_part: bool = msgspec.field(default=False, name="claimed_in_part")


class HoldRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """Capacity that is held for a moved task."""

    group: str
    needs: int
    node: str
    until: float | None = None
    shares: tuple[TaskShare, ...] = msgspec.field(default=(), name="cuts")
    numa: NumaHolding | None = msgspec.field(default=None, name="zones")


class PendingClassRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    signature: list[Any]
    queue: str
    members: list[str]
    parked: bool = False
    capacity: list[tuple[int, int]] = msgspec.field(default_factory=list, name="room")
    any_capacity: list[int] = msgspec.field(default_factory=list, name="any_room")
    queues: list[str] = []
    domains: list[int] = []
    anything: bool = False
    rows: list[str] = []
    reserved_for: str = msgspec.field(default="", name="kept_for")
    explanation: Explanation | None = None
    reported_codes: str = msgspec.field(default="", name="told")
    without_capacity: bool = msgspec.field(default=False, name="roomless")
    """True if its groups wait for capacity only."""


class MeterRecord(msgspec.Struct, frozen=True):
    since: float
    level: dict[str, int]
    sums: dict[str, float]


class UsageRecord(msgspec.Struct, frozen=True):
    renewed: float
    cluster: MeterRecord
    queues: dict[str, MeterRecord]
    reported: dict[str, dict[str, int]] = msgspec.field(name="told")


class DumpDocument(msgspec.Struct, frozen=True):
    format: int
    cycles: int
    config: EngineConfig
    nodes: list[Node]
    queues: list[Queue]
    classes: list[ClassRecord]
    groups: list[GroupRecord]
    tasks: list[TaskRecord]
    pending_classes: list[PendingClassRecord] = msgspec.field(name="buckets")
    reservations: list[tuple[str, float, dict[str, dict[str, int]]]]
    waiting_since: dict[str, float]
    dirty: list[str]
    improved: list[str]
    freed: list[str]
    reshaped: list[str]
    changed: list[str]
    moved: list[int]
    queue_reports: list[QueueUsage]
    shares: SharesRecord
    total_changed: bool
    nodes_reshaped: bool
    rechecks: list[Any] = msgspec.field(name="reviews")
    holds: list[HoldRecord] = []
    reserved_shares: dict[str, dict[str, tuple[TaskShare, ...]]] = msgspec.field(
        default_factory=dict, name="reserved_parts"
    )
    reserved_tasks: dict[str, dict[str, dict[int, int]]] = {}
    """Group → node → class → number of tasks."""
    reserved_due_cycles: dict[str, int] = msgspec.field(default_factory=dict, name="reserved_turns")
    queues_changed: bool = msgspec.field(default=True, name="stirred")
    """True if usage or shares of queues have changed since the last decision."""
    unreserved: bool = False
    """True if a successor of a past reservation has to be looked for."""
    capacity_gained: bool = msgspec.field(default=False, name="room_grown")
    """True if reservations may move forward."""
    early_starts: list[
        tuple[str, float, float, dict[str, dict[int, int]], dict[str, tuple[TaskShare, ...]]]
    ] = []
    """Reservations of groups with an earliest start."""
    planned_nodes_changed: bool = msgspec.field(default=False, name="nodes_unseen")
    """True if nodes differ from those that reservations were planned with."""
    ended_between: tuple[float, float] | None = msgspec.field(default=None, name="room_left")
    """First and last expected end of the tasks that have ended since the last cycle."""
    usage: UsageRecord | None = None
    namespace_quotas: list[NamespaceQuota] = []
    preempt_actions: dict[str, PreemptActionRecord] = msgspec.field(default_factory=dict, name="claims")
    """By action."""
    learned: dict[str, Any] = {}
    """By plugin."""
    budgets: list[BudgetRecord] = []
    budgets_changed: bool = False
    """True if updates of budgets have not been processed."""
    time_sharing: TimeSharingRecord = msgspec.field(default=TimeSharingRecord(), name="sharing")
    time_share: TimeShareRecord | None = None


def dump(engine: Core) -> bytes:
    """Return the engine's state between two calls."""
    state, table = engine.state, engine.state.table
    known = {entry.name for entry in state.queues if not entry.missing}
    document = DumpDocument(
        format=FORMAT,
        cycles=engine.cycles,
        config=engine.config,
        nodes=[node for name in sorted(table.rows) if (node := table.nodes[table.rows[name]]) is not None],
        queues=[state.queues.entries[name].spec for name in sorted(known)],
        classes=[ClassRecord(cls.number, cls.needs) for cls in state.classes],
        groups=[
            _group_record(group, admitted=key in state.gate.admitted) for key, group in state.groups.items()
        ],
        tasks=[_task_record(entry, table.names) for entry in state.tasks.values()],
        pending_classes=[
            _pending_class_record(b, table.names, without_capacity=b in engine.reservations.without_capacity)
            for b in engine.scheduling_queue.pending_classes.values()
            if _existing_members(b)
        ],
        reservations=engine.reservations.as_records(),
        reserved_shares=engine.reservations.device_shares_as_records(),
        reserved_tasks=engine.reservations.tasks_as_records(),
        reserved_due_cycles={
            key: r.due_cycles for key, r in engine.reservations.by_group.items() if r.due_cycles
        },
        early_starts=engine.reservations.early.as_records(),
        unreserved=engine.reservations.may_lack_reservations,
        capacity_gained=engine.reservations.capacity_gained,
        planned_nodes_changed=engine.reservations.nodes_changed,
        ended_between=engine.state.ledger.expected_ends.left,
        waiting_since=engine.reservations.aging.since,
        dirty=list(state.dirty),
        improved=sorted(table.names[row] for row in table.improved if table.names[row]),
        freed=sorted(state.queues.freed),
        reshaped=list(state.queues.rules_changed),
        changed=sorted(state.queues.changed),
        queues_changed=state.queues.was_changed,
        moved=sorted(state.ledger.moved_classes),
        shares=state.fair_shares.as_record(),
        total_changed=table.total_changed,
        nodes_reshaped=table.nodes_changed,
        rechecks=[_as_list(item) for item in engine.rechecks.scheduled],
        holds=_hold_records(state),
        usage=_usage_record(state),
        queue_reports=[
            usage
            for name in sorted(known)
            if isinstance(usage := state.queues.entries[name].reported, QueueUsage)
        ],
        namespace_quotas=list(state.namespace_quotas.values()),
        preempt_actions={name: action.as_record() for name, action in engine.preempt_actions.items()},
        learned={plugin.name: plugin.remembered() for plugin in state.plugins.remembering},
        budgets=state.budgets.as_records(),
        budgets_changed=engine.budgets_unseen,
        time_sharing=dump_record.as_record(state.time_sharing),
        time_share=None if engine.time_share is None else engine.time_share.as_record(),
    )
    return msgspec.json.encode(document)


def _hold_records(state: ClusterState) -> list[HoldRecord]:
    names = state.table.names
    return [
        HoldRecord(hold.group.key, hold.cls.number, names[hold.row], hold.until, hold.shares, hold.zones)
        for hold in state.ledger.holds
    ]


def read(data: bytes) -> DumpDocument:
    """Parse a dump. Raises :class:`DumpError`."""
    try:
        document = msgspec.json.decode(data, type=DumpDocument)
    except msgspec.MsgspecError as error:
        raise DumpError(f"not an engine dump: {error}") from error
    if document.format != FORMAT:
        raise DumpError(f"the dump has format {document.format}, this version reads {FORMAT}")
    return document


def load_into(engine: Core, document: DumpDocument) -> None:
    """Restore the dumped state in a new engine."""
    engine.cycles = document.cycles
    for plugin in engine.state.plugins.remembering:
        if plugin.name in document.learned:
            plugin.recall(document.learned[plugin.name])
    engine.state.plugins.update_scores()
    _load_objects(engine, document)
    dump_record.restore(engine.state.time_sharing, document.time_sharing, engine.state.groups)
    if engine.time_share is not None and document.time_share is not None:
        engine.time_share.restore(document.time_share)
    _load_waiting(engine, document)
    _load_notes(engine, document)
    for name, record in document.preempt_actions.items():
        if name in engine.preempt_actions:
            engine.preempt_actions[name].restore(record)


# ---------------------------------------------------------------------- writing


def _usage_record(state: ClusterState) -> UsageRecord | None:
    usage = state.usage
    if usage.renewed is None or usage.cluster is None:
        return None
    return UsageRecord(
        usage.renewed,
        _meter_record(usage.cluster),
        {name: _meter_record(meter) for name, meter in usage.meters.items()},
        {entry.name: dict(entry.usage) for entry in state.queues if entry.usage},
    )


def _meter_record(meter: Meter) -> MeterRecord:
    return MeterRecord(meter.since, meter.level, meter.sums)


def _group_record(group: GroupEntry, *, admitted: bool) -> GroupRecord:
    return GroupRecord(
        group.key,
        group.group,
        group.failures,
        group.newly_failed,
        group.failure,
        group.not_before,
        group.reported,
        admitted,
        group.stale_since,
        group.stale_tried,
        group.rejection,
        group.preempted_in_part,
    )


def _task_record(entry: TaskEntry, names: list[str]) -> TaskRecord:
    task = entry.task
    return TaskRecord(
        key=task.key,
        uid=task.uid,
        group=task.group,
        needs=entry.cls.number,
        role=task.role,
        index=task.index,
        priority=task.priority,
        reported_state=task.state,
        reported_node=task.node,
        reported_devices=task.devices,
        gated=task.gated,
        preemptible=task.preemptible,
        created=task.created,
        subgroup=task.subgroup,
        started=task.started,
        run_limit=task.run_limit,
        critical=task.critical,
        never_preempts=task.never_preempts,
        annotations=task.annotations,
        budgets=task.budgets,
        owned=task.owned,
        guaranteed=task.guaranteed,
        state=entry.state,
        node=names[entry.row] if entry.row >= 0 else "",
        devices=tuple(index for _, mask in entry.masks for index in bits(mask)),
        nominated=names[entry.nominated_row] if entry.nominated_row >= 0 else "",
        reported_slices=task.slices,
        shares=entry.shares,
        nominated_shares=entry.nominated_shares,
        reported_numa=task.zones,
        numa=entry.zones,
        nominated_numa=entry.nominated_zones,
    )


def _pending_class_record(
    pending_class: PendingClass, names: list[str], *, without_capacity: bool
) -> PendingClassRecord:
    orphaned = _lost_head(pending_class)
    conditions = NO_CONDITIONS if orphaned else pending_class.wake_conditions
    return PendingClassRecord(
        signature=_as_list(pending_class.signature),
        queue=pending_class.queue.name,
        members=_existing_members(pending_class),
        parked=pending_class.parked and not orphaned,
        capacity=[(cls.number, n) for cls, n in conditions.capacity.items()],
        any_capacity=sorted(cls.number for cls in conditions.any_capacity),
        queues=sorted(conditions.queues),
        domains=sorted(cls.number for cls in conditions.domains),
        anything=conditions.anything,
        rows=sorted(names[row] for row in conditions.rows if names[row]),
        reserved_for=conditions.reserved_for,
        explanation=None if orphaned else pending_class.explanation,
        reported_codes=pending_class.reported_codes,
        without_capacity=without_capacity,
    )


def _lost_head(pending_class: PendingClass) -> bool:
    """Return whether the first group of a strict order was removed. The next one is then tried."""
    head = pending_class.head() if pending_class.is_strict and pending_class.parked else None
    return head is not None and head.group is None


def _existing_members(pending_class: PendingClass) -> list[str]:
    """Return the existing members; removed ones leave the class in the next cycle."""
    return sorted(key for key, group in pending_class.members.items() if group.group is not None)


def _as_list(value: Any) -> Any:
    return [_as_list(part) for part in value] if isinstance(value, tuple) else value


def _as_tuple(value: Any) -> Any:
    return tuple(_as_tuple(part) for part in value) if isinstance(value, list) else value


# ---------------------------------------------------------------------- reading


def _load_objects(engine: Core, document: DumpDocument) -> None:
    state = engine.state
    state.namespace_quotas = {quota.key: quota for quota in document.namespace_quotas}
    for queue in document.queues:
        state.set_queue(queue)
    for node in document.nodes:
        state.table.upsert(node)
    for record in document.classes:
        state.classes.restore(record.number, record.needs)
    needs = {record.number: record.needs for record in document.classes}
    for record in document.groups:
        if record.group is not None:
            group = state.group(record.key)
            if record.admitted:
                state.gate.admitted.add(record.key)
            state.set_group(group, record.group)
            state.update_run_time(group)
            state.ledger.counters.join(group, state.queues.get(record.group.queue))
        else:
            state.group(record.key)
    for record in document.tasks:
        _load_task(engine, record, needs[record.needs])
    state.budgets.restore(document.budgets)
    state.budgets.version += document.budgets_changed
    classes = {cls.number: cls for cls in state.classes}
    for record in document.holds:
        row = state.table.row(record.node)
        group, cls = state.groups[record.group], classes[record.needs]
        state.ledger.holds.restore(RelocationHold(group, cls, row, record.until, record.shares, record.numa))
    for record in document.groups:
        group = state.groups[record.key]
        group.failures, group.failure = record.failures, record.failure
        group.newly_failed, group.reported = record.newly_failed, record.reported
        group.stale_since, group.stale_tried = record.stale_since, record.stale_tried
        group.rejection, group.preempted_in_part = record.rejection, record.preempted_in_part
        if record.not_before:
            engine.enqueuer.resume_pause(group, record.not_before)
        engine.enqueuer.resume_early(group)


def _load_task(engine: Core, record: TaskRecord, needs: Needs) -> None:
    task = Task(
        key=record.key,
        uid=record.uid,
        group=record.group,
        needs=needs,
        role=record.role,
        index=record.index,
        priority=record.priority,
        state=record.reported_state,
        node=record.reported_node,
        devices=record.reported_devices,
        gated=record.gated,
        preemptible=record.preemptible,
        created=record.created,
        subgroup=record.subgroup,
        started=record.started,
        run_limit=record.run_limit,
        critical=record.critical,
        never_preempts=record.never_preempts,
        annotations=record.annotations,
        budgets=record.budgets,
        owned=record.owned,
        guaranteed=record.guaranteed,
        slices=record.reported_slices,
        zones=record.reported_numa,
    )
    engine.restore_task(task, record.state, record.node, record.devices, record.shares, record.numa)
    if record.nominated:
        state = engine.state
        row = state.table.row(record.nominated)
        shares = record.nominated_shares if needs.devices else None
        state.ledger.nominate(state.tasks[task.key], row, shares, record.nominated_numa, plan=False)


def _load_waiting(engine: Core, document: DumpDocument) -> None:
    state = engine.state
    classes: dict[int, TaskClass] = {cls.number: cls for cls in state.classes}
    for record in document.pending_classes:
        signature: Signature = _as_tuple(record.signature)
        pending_class = None
        for key in record.members:
            group = state.groups[key]
            step = next_step(group)
            group.step = step if isinstance(step, NextTasks) else None
            group.order_key = state.group_order(group)
            pending_class = engine.scheduling_queue.enter(signature, state.queues.get(record.queue), group)
        if pending_class is not None and record.parked:
            conditions = WakeConditions(
                capacity={classes[number]: n for number, n in record.capacity},
                any_capacity={classes[number] for number in record.any_capacity},
                queues=set(record.queues),
                domains={classes[number] for number in record.domains},
                anything=record.anything,
                rows={state.table.row(name) for name in record.rows},
                reserved_for=record.reserved_for,
            )
            engine.scheduling_queue.park(pending_class, conditions)
            pending_class.explanation = record.explanation
        if pending_class is not None:
            pending_class.reported_codes = record.reported_codes
            if record.without_capacity:
                engine.reservations.without_capacity[pending_class] = None


def _load_notes(engine: Core, document: DumpDocument) -> None:
    """Restore unprocessed changes: exactly those of the dump, none that loading itself caused."""
    state = engine.state
    engine.reservations.restore(document.reservations, document.reserved_shares)
    classes = {cls.number: cls for cls in state.classes}
    engine.reservations.restore_more(
        document.reserved_tasks,
        document.reserved_due_cycles,
        classes,
        gained=document.capacity_gained,
        nodes_changed=document.planned_nodes_changed,
    )
    engine.reservations.early.restore(document.early_starts, classes)
    engine.state.ledger.expected_ends.left = document.ended_between
    engine.reservations.vacant = document.unreserved
    engine.reservations.aging.since = dict(document.waiting_since)
    state.ledger.dirty = {key: state.groups[key] for key in document.dirty}
    state.table.improved = {state.table.rows[name] for name in document.improved if name in state.table.rows}
    state.ledger.moved_classes = set(document.moved)
    queues = state.queues
    if document.usage is not None:
        _load_usage(state, document.usage)
    state.fair_shares.restore(document.shares)
    state.table.total_changed = document.total_changed
    state.table.nodes_changed = document.nodes_reshaped
    engine.rechecks.scheduled = {_as_tuple(item): None for item in document.rechecks}
    queues.freed = {name: queues.get(name) for name in document.freed}
    queues.rules_changed = {name: queues.get(name) for name in document.reshaped}
    queues.changed = {name: queues.get(name) for name in document.changed}
    queues.was_changed = document.queues_changed
    for usage in document.queue_reports:
        queues.get(usage.queue).reported = usage
    engine.requeue_active()


def _load_usage(state: ClusterState, record: UsageRecord) -> None:
    usage = state.usage
    usage.renewed = record.renewed
    usage.cluster = _meter(record.cluster)
    usage.meters = {name: _meter(meter) for name, meter in record.queues.items()}
    for name, amounts in record.reported.items():
        state.queues.get(name).usage = amounts


def _meter(record: MeterRecord) -> Meter:
    return Meter(record.since, dict(record.level), dict(record.sums))
