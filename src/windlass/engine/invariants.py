"""Invariants of the engine between any two calls, recomputed from the tasks.

For tests and debugging. This is slow on purpose: no sum, index or cache of the engine
is trusted.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from windlass.engine.core import Core
from windlass.engine.decision import Bind, Decision
from windlass.engine.device_invariants import add_device_charges, device_problems, open_devices
from windlass.engine.devices.whole_device_table import WHOLE, bits
from windlass.engine.feasibility.task_class import TaskClass, request_of
from windlass.engine.groups.entries import (
    ACTIVE,
    ENDING,
    OCCUPYING,
    GroupEntry,
    NextTasks,
    TaskEntry,
    nominated,
)
from windlass.engine.groups.next_step import Shortage, next_step
from windlass.engine.groups.pending_class import PendingClass, Signature, strict_signature
from windlass.engine.groups.subgroups import SubGroupTree
from windlass.engine.nodes.table import ALLOCATABLE, NOMINATED, RELEASING, USED
from windlass.engine.queueing.enqueue import signature_of
from windlass.engine.queues.tree import SUMS, QueueEntry
from windlass.engine.state.counters import is_firm
from windlass.engine.state.expected_ends import end_of, releasing_row
from windlass.spi.objects import TaskState
from windlass.spi.topology import NODE_NAME


class InvariantViolation(AssertionError):
    """The engine's state is inconsistent, or a decision broke an invariant."""


def check(engine: Core, *, overcommitted: bool = False) -> None:
    """Check the whole state.

    ``overcommitted``: the cluster has put more on nodes or in queues than they hold, so
    only the engine's own accounts are checked. Raises :class:`InvariantViolation`.
    """
    problems = [
        *_nodes(engine),
        *_devices(engine, overcommitted),
        *device_problems(engine, overcommitted),
        *_queues(engine, overcommitted),
        *_groups(engine),
        *_pending_classes(engine),
        *_classes(engine),
        *_stored_ends(engine),
    ]
    if not overcommitted:
        problems += _capacity(engine)
    if problems:
        raise InvariantViolation("; ".join(problems[:10]))


def check_decision(engine: Core, decision: Decision) -> None:
    """Check what a cycle has just decided. Raises :class:`InvariantViolation`."""
    problems = []
    for task, times in Counter(bind.task for bind in decision.binds).items():
        if times > 1:
            problems.append(f"{task} is bound {times} times in one cycle")
    for key in {bind.group for bind in decision.binds if not _is_standalone(engine, bind)}:
        group = engine.state.groups[key]
        if not group.ready():
            problems.append(f"{key} was started below its minimum: {group.held_members} of {group.minimum}")
    problems += (
        _incomplete_subgroups(engine, decision)
        + _broken_nominations(engine)
        + _violated_topologies(engine, decision)
    )
    for bind in decision.binds:
        entry = engine.state.tasks[bind.task]
        expected = sum(count for _, count in entry.cls.device_requests)
        expected += sum(share.index >= 0 for share in entry.shares)
        if len(bind.devices) != expected:
            problems.append(f"{bind.task} got {len(bind.devices)} devices, not {expected}")
    if problems:
        raise InvariantViolation("; ".join(problems[:10]))


def _is_standalone(engine: Core, bind: Bind) -> bool:
    """Return whether the pod is placed independent of its gang, because it requests nothing."""
    group = engine.state.groups[bind.group]
    return group.best_effort_separate and engine.state.tasks[bind.task].cls.is_best_effort


def _incomplete_subgroups(engine: Core, decision: Decision) -> list[str]:
    """Return problems of subgroups that were started below their minimum."""
    problems = []
    for bind in decision.binds:
        group = engine.state.groups[bind.group]
        if group.subgroups is not None:
            subgroup = group.subgroups.of(engine.state.tasks[bind.task].task.subgroup)
            if subgroup.held < subgroup.minimum:
                problems.append(f"part {subgroup.name!r} of {bind.group} was started below its minimum")
    return problems


def _violated_topologies(engine: Core, decision: Decision) -> list[str]:
    """Return problems of gangs or subgroups that violate their topology constraint.

    Started, moved and nominated gangs are checked, from labels alone.
    """
    problems = []
    nominated_groups = {engine.state.tasks[nomination.task].task.group for nomination in decision.nominations}
    for key in sorted({bind.group for bind in decision.binds} | nominated_groups):
        group = engine.state.groups[key]
        expected = {part.name: part.topology for part in group.spec.subgroups}
        for subgroup, need in {"": group.spec.topology, **expected}.items():
            if need is None or need.required < 0:
                continue
            first = 0 if need.nested else need.required
            labels = [level.label for level in need.levels[first : need.required + 1] if level.label]
            domains = set()
            for entry in group.tasks.values():
                row = entry.nominated_row if entry.nominated_row >= 0 else entry.row
                held = entry.nominated_row >= 0 or entry.state in ACTIVE
                if (
                    row >= 0
                    and held
                    and (not subgroup or _is_in_subgroup(group, entry.task.subgroup, subgroup))
                ):
                    node = engine.state.table.nodes[row]
                    carried = {**node.labels, NODE_NAME: node.name} if node is not None else {}
                    domains.add(tuple(carried.get(label) for label in labels))
            if len(domains) > 1 or any(None in domain for domain in domains):
                problems.append(f"{key} {subgroup} lies in {sorted(map(str, domains))}, not in one domain")
    return problems


def _is_in_subgroup(group: GroupEntry, subgroup: str, above: str) -> bool:
    parents = {spec.name: spec.parent for spec in group.spec.subgroups}
    seen: set[str] = set()
    while subgroup in parents and subgroup not in seen:
        if subgroup == above:
            return True
        seen.add(subgroup)
        subgroup = parents[subgroup]
    return False


def _broken_nominations(engine: Core) -> list[str]:
    """Return nominations that cannot hold, and gangs that are nominated in part."""
    table = engine.state.table
    planes = table.planes
    later = planes[:, USED] - planes[:, RELEASING] + planes[:, NOMINATED]
    over = ((later > planes[:, ALLOCATABLE]) & (planes[:, NOMINATED] > 0)).any(axis=1)
    problems = [
        f"{table.names[row]} promises more than it will have" for row in np.flatnonzero(over).tolist()
    ]
    for group in engine.state.groups.values():
        nominated_tasks = len(nominated(group))
        step = next_step(group) if nominated_tasks else None
        if isinstance(step, NextTasks) and not step.extra and nominated_tasks < step.members:
            problems.append(
                f"{group.key} is promised room for {nominated_tasks} of the {step.members} that it lacks"
            )
    return problems


def _nodes(engine: Core) -> list[str]:
    table = engine.state.table
    problems, expected = _expected_planes(engine)
    wrong = np.flatnonzero((expected != table.planes).any(axis=(1, 2))).tolist()
    problems += [f"the books of {table.names[row] or row} are wrong" for row in wrong]
    if sum(len(tasks) for tasks in table.tasks) != sum(e.row >= 0 for e in engine.state.tasks.values()):
        problems.append("nodes hold tasks that do not exist")
    for name, row in table.rows.items():
        if table.names[row] != name or bool(table.live[row]) != (table.nodes[row] is not None):
            problems.append(f"row {row} of {name} is out of step")
        written = table.planes[row, ALLOCATABLE].copy()
        table.write_allocatable(row)
        if (table.planes[row, ALLOCATABLE] != written).any():
            problems.append(f"allocatable of {name} is out of date")
    total: Counter[str] = Counter()
    for node in table.nodes:
        total.update(node.allocatable if node else {})
    if {n: u for n, u in table.total.items() if u} != {n: u for n, u in total.items() if u}:
        problems.append("the cluster's total is wrong")
    return problems


def _expected_planes(engine: Core) -> tuple[list[str], NDArray[np.int64]]:
    """Return the amounts of all nodes, computed from the tasks."""
    state, table = engine.state, engine.state.table
    expected = np.zeros_like(table.planes)
    expected[:, ALLOCATABLE] = table.planes[:, ALLOCATABLE]
    problems = []
    for entry in state.tasks.values():
        vector = table.request_vector(request_of(entry.cls.needs.node_request))
        if entry.state in OCCUPYING:
            if entry.row < 0 or table.tasks[entry.row].get(entry.key) is not entry:
                problems.append(f"{entry.key} is {entry.state.value} but on no node")
                continue
            expected[entry.row, USED] += vector
            if entry.state is TaskState.RELEASING:
                expected[entry.row, RELEASING] += vector
                for resource, mask in entry.masks:
                    unhealthy = table.devices.rows[entry.row][resource].unhealthy & mask
                    expected[entry.row, RELEASING, table.column(resource)] -= WHOLE * unhealthy.bit_count()
        elif entry.row >= 0:
            problems.append(f"{entry.key} is {entry.state.value} but on {table.names[entry.row]}")
        releasing = state.ledger.terminating.get(entry.key) is entry
        if releasing != (entry.state is TaskState.RELEASING and entry.row >= 0):
            problems.append(f"{entry.key} is {entry.state.value}: leaving is out of step")
        if entry.nominated_row >= 0 and entry.state not in (TaskState.PENDING, TaskState.RELEASING):
            problems.append(f"{entry.key} is {entry.state.value} and promised room")
        if entry.nominated_row >= 0:
            expected[entry.nominated_row, NOMINATED] += vector
        if (table.nominated_tasks.get(entry.nominated_row, {}).get(entry.key) is entry) != (
            entry.nominated_row >= 0
        ):
            problems.append(f"{entry.key} is not expected where room is promised to it")
    for hold in state.ledger.holds:
        expected[hold.row, NOMINATED] += table.request_vector(request_of(hold.cls.needs.node_request))
    add_device_charges(engine, expected)
    return problems, expected


def _capacity(engine: Core) -> list[str]:
    table = engine.state.table
    over = (table.planes[:, USED] > table.planes[:, ALLOCATABLE]).any(axis=1) & table.live
    return [f"{table.names[row]} is over-committed" for row in np.flatnonzero(over).tolist()]


def _devices(engine: Core, overcommitted: bool) -> list[str]:
    table, open_by_resource = engine.state.table, open_devices(engine)
    problems = []
    for name, row in table.rows.items():
        holders: Counter[tuple[str, int]] = Counter()
        for entry in table.tasks[row].values():
            holders.update((resource, index) for resource, mask in entry.masks for index in bits(mask))
        for resource, slots in table.devices.rows[row].items():
            taken = {index for (held, index) in holders if held == resource}
            opened = open_by_resource.get((row, resource), set())
            holders.update((resource, index) for index in opened)
            taken |= opened
            if set(bits(slots.taken)) != taken:
                problems.append(f"{resource} of {name}: taken {bits(slots.taken)}, held {sorted(taken)}")
            if slots.free != slots.healthy & ~slots.taken:
                problems.append(f"{resource} of {name}: free devices are out of step")
            surplus = {i: n - 1 for (held, i), n in holders.items() if held == resource and n > 1}
            if surplus != slots.surplus:
                problems.append(f"{resource} of {name}: surplus {slots.surplus}, not {surplus}")
        if not overcommitted:
            problems += [f"device {i} of {name} is held {n} times" for (_, i), n in holders.items() if n > 1]
    return problems


def _queue_sums(engine: Core) -> dict[str, list[Counter[str]]]:
    """Return the sums of every queue, in the order of ``SUMS``."""
    state = engine.state
    sums: dict[str, list[Counter[str]]] = {q.name: [Counter() for _ in range(5)] for q in state.queues}
    for group in state.groups.values():
        if group.queue is None:
            continue
        for entry in group.tasks.values():
            for ancestor in group.queue.path:
                allocated, releasing, pending, promised, firm = sums[ancestor.name]
                by_model = state.ledger.counters.by_model(entry.cls, entry.row)
                if entry.state in OCCUPYING:
                    allocated.update(entry.cls.request)
                    allocated.update(by_model)
                if entry.state is TaskState.RELEASING:
                    releasing.update(entry.cls.request)
                    releasing.update(by_model)
                if entry.state is TaskState.PENDING and not entry.task.gated:
                    pending.update(entry.cls.request)
                    pending.update(state.ledger.counters.eligible_models(entry.cls))
                if entry.nominated_row >= 0:
                    promised.update(entry.cls.request)
                    promised.update(state.ledger.counters.by_model(entry.cls, entry.nominated_row))
                holds = entry.state in OCCUPYING and entry.state is not TaskState.RELEASING
                if is_firm(group) and (holds or entry.nominated_row >= 0):
                    firm.update(entry.cls.request)
    for hold in state.ledger.holds:
        for ancestor in hold.group.queue.path if hold.group.queue is not None else ():
            sums[ancestor.name][3].update(hold.cls.request)
            sums[ancestor.name][3].update(state.ledger.counters.by_model(hold.cls, hold.row))
            if is_firm(hold.group):
                sums[ancestor.name][4].update(hold.cls.request)
    return sums


def _queues(engine: Core, overcommitted: bool) -> list[str]:
    state = engine.state
    problems = []
    sums = _queue_sums(engine)
    for queue in state.queues:
        for name, expected_sums in zip(SUMS, sums[queue.name], strict=True):
            stored: dict[str, int] = getattr(queue, name)
            if {n: u for n, u in stored.items() if u} != {n: u for n, u in expected_sums.items() if u}:
                problems.append(f"the sums of queue {queue.name} are wrong")
        problems += _shape(state.queues.entries, queue)
        if not overcommitted:
            problems += [
                f"queue {queue.name} is over its limit of {name}"
                for name, limit in queue.spec.capability.items()
                if queue.allocated.get(name, 0) > limit
            ]
    return problems


def _shape(entries: dict[str, QueueEntry], queue: QueueEntry) -> list[str]:
    path = [queue]
    while path[-1].parent is not None and len(path) <= len(entries):
        path.append(path[-1].parent)
    problems = [] if tuple(path) == queue.path else [f"the path of queue {queue.name} is wrong"]
    if any(child.parent is not queue or entries.get(n) is not child for n, child in queue.children.items()):
        problems.append(f"the children of queue {queue.name} are wrong")
    return problems


def _groups(engine: Core) -> list[str]:
    problems = []
    for key, group in engine.state.groups.items():
        states = Counter(entry.state for entry in group.tasks.values())
        pending = {e.key for e in group.tasks.values() if e.state is TaskState.PENDING and not e.task.gated}
        counted = (group.active, group.succeeded, group.failed)
        if counted != (sum(states[s] for s in ACTIVE), states[TaskState.SUCCEEDED], states[TaskState.FAILED]):
            problems.append(f"the counters of {key} are wrong")
        if group.releasing != states[TaskState.RELEASING]:
            problems.append(f"{key} counts {group.releasing} terminating tasks")
        if set(group.pending) != pending or {e.key for e in group.waiting()} != pending:
            problems.append(f"{key} has lost track of what waits")
        if dict(group.pending_classes) != Counter(group.tasks[k].cls for k in pending):
            problems.append(f"{key} has lost track of the classes of what waits")
        if group.nominations != sum(e.nominated_row >= 0 for e in group.tasks.values()):
            problems.append(f"{key} counts {group.nominations} promises")
        if group.roles_enforced:
            counted = (*ACTIVE, TaskState.SUCCEEDED)
            roles = Counter(e.task.role for e in group.tasks.values() if e.state in counted)
            if {r: n for r, n in group.active_roles.items() if n} != roles:
                problems.append(f"the roles of {key} are wrong")
        if group.subgroups is not None:
            problems += _subgroups(group, group.subgroups)
        if group.best_effort_pending != sum(e.cls.is_best_effort for e in group.pending.values()):
            problems.append(f"{key} counts {group.best_effort_pending} pods that ask for nothing")
        if group.queue is not None and group.queue.groups.get(key) is not group:
            problems.append(f"queue {group.queue.name} does not know {key}")
    return problems


def _subgroups(group: GroupEntry, tree: SubGroupTree) -> list[str]:
    counted = (*ACTIVE, TaskState.SUCCEEDED)
    held = Counter(tree.of(e.task.subgroup).name for e in group.tasks.values() if e.state in counted)
    return [
        f"part {subgroup.name!r} of {group.key} counts {subgroup.held}, not {held[subgroup.name]}"
        for subgroup in tree.root.walk()
        if subgroup.held != held[subgroup.name]
    ]


def _wanted(group: GroupEntry, step: NextTasks, pending_class: PendingClass) -> Signature:
    return strict_signature(pending_class.queue) if pending_class.is_strict else signature_of(group, step)


def _pending_classes(engine: Core) -> list[str]:
    scheduling_queue, state = engine.scheduling_queue, engine.state
    problems = []
    seen: set[str] = set()
    for signature, pending_class in scheduling_queue.pending_classes.items():
        if pending_class.signature != signature or not pending_class.members:
            problems.append(f"{pending_class!r} is out of place")
        head = pending_class.head()
        if head is None or head.order_key != min(g.order_key for g in pending_class.members.values()):
            problems.append(f"{pending_class!r} has lost its head")
        for key, group in pending_class.members.items():
            seen.add(key)
            if pending_class.is_strict and group.nominations and key not in pending_class.nominated:
                problems.append(f"{pending_class!r} does not know what {key} is promised")
            if group.pending_class is not pending_class:
                problems.append(f"{key} does not know its bucket")
            elif key not in state.dirty:
                step = next_step(group)
                if (
                    step is None
                    or isinstance(step, Shortage)
                    or _wanted(group, step, pending_class) != signature
                ):
                    problems.append(f"{key} waits for something it does not ask for")
    problems += [
        f"{g.key} is in a bucket unknown"
        for g in state.groups.values()
        if g.pending_class and g.key not in seen
    ]
    for index in (
        scheduling_queue.by_class,
        scheduling_queue.by_queue,
        scheduling_queue.by_domain,
        scheduling_queue.by_row,
    ):
        problems += [
            f"{bucket!r} is watched for but not parked"
            for pending_classes in index.values()
            for bucket in pending_classes
            if not bucket.parked or scheduling_queue.pending_classes.get(bucket.signature) is not bucket
        ]
    return problems


def _stored_ends(engine: Core) -> list[str]:
    """Return a problem if the stored ends differ from those of all tasks at the same time."""
    ends = engine.state.ledger.expected_ends
    wanted: dict[tuple[float, str], list[TaskEntry]] = {}
    for key, group in engine.state.groups.items():
        for entry in group.tasks.values() if key in engine.state.timed else ():
            if releasing_row(entry) >= 0:
                time = end_of(entry, ends.now)
                if time is not None:
                    wanted.setdefault((time, key), []).append(entry)
    expected = [(*at, entries) for at, entries in sorted(wanted.items(), key=lambda item: item[0])]
    return [] if ends.at(ends.now) == expected else ["the ends of what runs are not as kept"]


def _classes(engine: Core) -> list[str]:
    """Return problems of classes with cached values that differ from those of a new class."""
    state = engine.state
    problems = []
    for cls in state.classes:
        if cls.tasks != sum(entry.cls is cls for entry in state.tasks.values()):
            problems.append(f"{cls!r} counts {cls.tasks} tasks")
        own_tasks = [e for e in state.tasks.values() if e.cls is cls]
        placed = Counter(row for e in own_tasks for row in (e.row, e.nominated_row) if row >= 0)
        placed.update(hold.row for hold in state.ledger.holds if hold.cls is cls)
        if cls.placed != placed:
            problems.append(f"{cls!r} does not know where its tasks are")
        if cls.terminating != Counter(e.row for e in own_tasks if e.state in ENDING):
            problems.append(f"{cls!r} does not know which of its tasks terminate")
        if not cls.built:
            continue
        cls.refresh()
        fresh = TaskClass(cls.number, cls.needs, state.table, state.plugins)
        fresh.refresh()
        problems += [
            f"{field} of {cls!r} is out of date"
            for field in ("static", "count", "key")
            if not np.array_equal(getattr(cls, field), getattr(fresh, field))
        ]
        if cls.total != fresh.total:
            problems.append(f"{cls!r} counts room for {cls.total}, not {fresh.total}")
        if cls.best() != fresh.best():
            problems.append(f"{cls!r} takes another node for the best")
    return problems
