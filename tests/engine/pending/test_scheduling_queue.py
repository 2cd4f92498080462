"""``engine.pending.scheduling_queue`` and ``engine.queueing.queue_order``: who waits for what, and whose turn it is."""

from __future__ import annotations

import random

import numpy as np
import pytest
from cluster_dsl import needs, queue
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.pending_class import PendingClass, WakeConditions
from windlass.engine.nodes.table import NOMINATED, RELEASING, USED, NodeTable
from windlass.engine.pending.scheduling_queue import SchedulingQueue
from windlass.engine.plugin_set import PluginSet
from windlass.engine.queueing.queue_order import QueueHeap
from windlass.engine.queues.tree import QueueTree
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Needs, Node


def group(key: str, order: int) -> GroupEntry:
    entry = GroupEntry(key, lambda task: task.key)
    entry.order_key = (order, key)
    return entry


def lot_of(*nodes: Node) -> tuple[SchedulingQueue, NodeTable, QueueTree]:
    table = NodeTable()
    for spec in nodes:
        table.upsert(spec)
    queues = QueueTree(table.total)
    queues.upsert(queue("q"))
    table.improved.clear()
    queues.freed.clear()
    return SchedulingQueue(table, queues, []), table, queues


def test_the_head_is_the_first_in_order_of_those_who_are_still_there() -> None:
    scheduling_queue, _, queues = lot_of()
    groups = [group(f"g{i}", order) for i, order in enumerate((3, 1, 2))]
    for entry in groups:
        pending_class = scheduling_queue.enter(("s",), queues.get("q"), entry)
    assert pending_class.head() is groups[1]
    scheduling_queue.leave(groups[1])
    assert pending_class.head() is groups[2]
    groups[1].order_key = (9, "g1")
    scheduling_queue.enter(("s",), queues.get("q"), groups[1])
    assert pending_class.head() is groups[2]
    for entry in groups:
        scheduling_queue.leave(entry)
    scheduling_queue.leave(groups[0])
    assert (scheduling_queue.pending_classes, pending_class.head()) == ({}, None)


def classes(table: NodeTable, *requests: str) -> list[TaskClass]:
    plugins = PluginSet(default_plugins())
    return [TaskClass(i, needs(request), table, plugins) for i, request in enumerate(requests)]


def parked(
    scheduling_queue: SchedulingQueue, queues: QueueTree, name: str, waits: WakeConditions
) -> PendingClass:
    pending_class = scheduling_queue.enter((name,), queues.get("q"), group(name, 0))
    scheduling_queue.park(pending_class, waits)
    return pending_class


def free(table: NodeTable, name: str, used: int) -> None:
    row = table.rows[name]
    table.planes[row, USED, table.column("nvidia.com/gpu")] = used
    table.touch(row)
    table.improved.add(row)


def test_room_wakes_once_there_is_enough_and_any_room_at_once() -> None:
    scheduling_queue, table, queues = lot_of(*[Node(f"n{i}", {"nvidia.com/gpu": 2000}) for i in range(3)])
    one, big = classes(table, "gpu=1", "gpu=2")
    for i in range(3):
        free(table, f"n{i}", 2000)
    scheduling_queue.wake(set())
    three = parked(scheduling_queue, queues, "three", WakeConditions(capacity={one: 3}))
    either = parked(scheduling_queue, queues, "either", WakeConditions(any_capacity={one, big}))
    large = parked(scheduling_queue, queues, "large", WakeConditions(capacity={big: 1}))
    assert scheduling_queue.wake(set()) == []
    free(table, "n0", 1000)
    assert scheduling_queue.wake(set()) == [either]
    free(table, "n1", 1000)
    assert scheduling_queue.wake(set()) == []
    free(table, "n2", 0)
    assert {b.signature for b in scheduling_queue.wake(set())} == {three.signature, large.signature}
    assert (scheduling_queue.by_class, three.parked, three.wake_conditions) == ({}, False, WakeConditions())


def test_rows_queues_and_anything() -> None:
    scheduling_queue, table, queues = lot_of(Node("n0", {"cpu": 1}), Node("n1", {"cpu": 1}))
    row = parked(scheduling_queue, queues, "row", WakeConditions(rows={table.rows["n1"]}))
    quota = parked(scheduling_queue, queues, "quota", WakeConditions(queues={"q"}))
    anything = parked(scheduling_queue, queues, "anything", WakeConditions(anything=True))
    nothing = parked(scheduling_queue, queues, "nothing", WakeConditions())
    table.improved.add(table.rows["n0"])
    assert scheduling_queue.wake(set()) == [anything]
    table.improved.add(table.rows["n1"])
    assert scheduling_queue.wake(set()) == [row]
    queues.allocate(queues.get("q"), (("cpu", 1),), -1)
    assert scheduling_queue.wake(set()) == [quota]
    scheduling_queue.park(anything, WakeConditions(anything=True))
    assert scheduling_queue.wake({7}) == [anything]
    assert nothing.parked


def test_a_bucket_that_empties_is_no_longer_watched_for() -> None:
    scheduling_queue, table, queues = lot_of(Node("n0", {"nvidia.com/gpu": 1000}))
    (one,) = classes(table, "gpu=1")
    pending_class = parked(
        scheduling_queue, queues, "x", WakeConditions({one: 1}, {one}, {"q"}, {one}, True, {0})
    )
    scheduling_queue.leave(next(iter(pending_class.members.values())))
    assert not any(
        (
            scheduling_queue.by_class,
            scheduling_queue.by_queue,
            scheduling_queue.by_domain,
            scheduling_queue.by_anything,
            scheduling_queue.by_row,
            scheduling_queue.pending_classes,
        )
    )


# ---------------------------------------------------------------------- turns


class Rig:
    """A queue tree with one-group buckets; taking a turn adds to the queue's share."""

    def __init__(self, *texts: str) -> None:
        self.queues = QueueTree({"cpu": 1000})
        for text in texts:
            self.queues.upsert(queue(text))
        self.queue_heap = QueueHeap(self.queues, PluginSet(default_plugins()))
        self.scheduling_queue = SchedulingQueue(NodeTable(), self.queues, [])
        self.number = 0

    def add(self, name: str, order: int = 0) -> PendingClass:
        self.number += 1
        entry = group(f"g{self.number}", order)
        pending_class = self.scheduling_queue.enter((self.number,), self.queues.get(name), entry)
        self.queue_heap.push(pending_class)
        return pending_class

    def pop(self) -> PendingClass | None:
        turn = self.queue_heap.pop()
        return turn[0] if turn is not None else None

    def take(self) -> str:
        pending_class = self.pop()
        if pending_class is None:
            return ""
        self.queues.start(pending_class.queue, (("cpu", 1),), 1)
        return pending_class.queue.name


def test_one_queue_takes_its_groups_in_order() -> None:
    rig = Rig("q")
    pending_classes = [rig.add("q", order) for order in (2, 1, 3)]
    assert [rig.pop() for _ in range(4)] == [pending_classes[1], pending_classes[0], pending_classes[2], None]


def test_queues_take_turns_by_share() -> None:
    rig = Rig("a weight=2", "b")
    for name in "aaaaaabbb":
        rig.add(name)
    assert "".join(rig.take() for _ in range(9)) == "abaabaaba"
    assert rig.take() == ""


def test_cousins_share_what_their_parents_have() -> None:
    rig = Rig("p", "q", "a parent=p", "b parent=p", "c parent=q")
    for name in "aabbcccc":
        rig.add(name)
    taken = "".join(rig.take() for _ in range(8))
    assert [taken[:4].count(x) for x in "abc"] == [1, 1, 2]
    assert sorted(taken) == list("aabbcccc")


def test_parked_and_empty_buckets_are_passed_over() -> None:
    rig = Rig("a", "b")
    first, second, third = rig.add("a"), rig.add("a"), rig.add("b")
    rig.scheduling_queue.park(first, WakeConditions())
    for entry in list(second.members.values()):
        rig.scheduling_queue.leave(entry)
    assert rig.pop() is third
    assert rig.pop() is None
    rig.queue_heap.push(second)
    assert rig.pop() is None


def test_a_head_that_has_left_passes_the_turn_to_the_next() -> None:
    rig = Rig("a")
    entries = [group(f"x{i}", i) for i in range(3)]
    for entry in entries:
        pending_class = rig.scheduling_queue.enter(("same",), rig.queues.get("a"), entry)
    rig.queue_heap.push(pending_class)
    rig.scheduling_queue.leave(entries[0])
    entries[1].order_key = (9, "x1")  # moved back, and entered again elsewhere in the order
    rig.scheduling_queue.leave(entries[1])
    rig.scheduling_queue.enter(("same",), rig.queues.get("a"), entries[1])
    assert rig.queue_heap.pop() == (pending_class, entries[2])


def test_pushing_again_does_not_double_the_turn() -> None:
    rig = Rig("a", "b")
    pending_class = rig.add("a")
    rig.queue_heap.push(pending_class)
    assert rig.pop() is pending_class
    assert rig.pop() is None


def test_a_moved_tree_is_built_anew() -> None:
    rig = Rig("p", "a parent=p", "b parent=p")
    pending_classes = [rig.add(name) for name in "ab"]
    rig.queues.upsert(queue("a"))
    rig.queues.upsert(queue("c priority=1"))
    pending_classes.append(rig.add("c"))
    rig.queue_heap.rebuild(pending_classes)
    assert sorted(filter(None, (rig.take() for _ in range(4)))) == ["a", "b", "c"]


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**6))
def test_every_turn_goes_to_the_queue_that_a_plain_walk_finds(seed: int) -> None:
    """Against a walk that looks at every queue at every turn."""
    rng = random.Random(seed)
    texts = ["p0", "p1 weight=2 priority=1"]
    texts += [
        f"l{i} parent=p{i % 2} weight={rng.randint(1, 3)} priority={rng.randint(0, 1)}" for i in range(5)
    ]
    texts += ["solo weight=3"]
    rig = Rig(*texts)
    leaves = [f"l{i}" for i in range(5)] + ["solo"]
    waiting = {name: 0 for name in leaves}
    orders = PluginSet(default_plugins()).queue_orders
    for _ in range(30):
        if rng.random() < 0.5:
            name = rng.choice(leaves)
            waiting[name] += 1
            rig.add(name)
        elif any(waiting.values()):
            level = [q for q in rig.queues if q.parent is None]
            while True:
                open_ones = [
                    q for q in level if any(waiting[n] for n in leaves if q in rig.queues.get(n).path)
                ]
                best = min(open_ones, key=lambda q: (*[o.queue_key(q, None) for o in orders], q.name))
                if not best.children:
                    break
                level = list(best.children.values())
            assert rig.take() == best.name
            waiting[best.name] -= 1


@pytest.mark.parametrize("n", [0, 1, 5])
def test_pop_ends(n: int) -> None:
    rig = Rig("a")
    for _ in range(n):
        rig.add("a")
    assert sum(rig.pop() is not None for _ in range(n + 3)) == n


AMOUNTS = st.dictionaries(st.sampled_from(("cpu", "memory", "nvidia.com/gpu")), st.integers(0, 9))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(AMOUNTS, st.sampled_from((USED, RELEASING, NOMINATED)), AMOUNTS), min_size=1, max_size=5
    ),
    st.lists(AMOUNTS, min_size=1, max_size=6),
)
def test_few_rows_and_classes_are_looked_at_as_many_are(nodes, asked) -> None:
    scheduling_queue, table, queues = lot_of(
        *[Node(f"n{i}", {"pods": 2, **has}) for i, (has, _, _) in enumerate(nodes)]
    )
    leaf = queues.get("q")
    for at, request in enumerate(asked):
        wanted = Needs(tuple(sorted((name, units) for name, units in request.items() if units)))
        cls = TaskClass(at, wanted, table, PluginSet(default_plugins()))
        pending_class = scheduling_queue.enter((at,), leaf, group(f"g{at}", at))
        scheduling_queue.park(pending_class, WakeConditions(capacity={cls: 1}))
    for i, (_, plane, amounts) in enumerate(nodes):
        for name, units in amounts.items():
            column = table.column(name)
            table.planes[table.rows[f"n{i}"], plane, column] = units
    rows = np.array(sorted(table.rows.values()), dtype=np.int64)
    few = list(scheduling_queue._candidates(rows))
    many = list(scheduling_queue._candidates(np.tile(rows, 9)))
    assert few == many
