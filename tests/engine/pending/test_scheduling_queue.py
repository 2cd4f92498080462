"""``engine.pending.scheduling_queue`` and ``engine.queueing.queue_order``: who waits for what, and whose turn it is."""

from __future__ import annotations

import random

import numpy as np
import pytest
from cluster_dsl import needs, queue
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.nodes.table import PROMISED, RELEASING, USED, NodeTable
from windlass.engine.pending.scheduling_queue import Bucket, ParkingLot, Waits
from windlass.engine.plugin_set import Policies
from windlass.engine.queueing.queue_order import Turns
from windlass.engine.queues.tree import QueueTree
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Needs, Node


def group(key: str, order: int) -> GroupEntry:
    entry = GroupEntry(key, lambda task: task.key)
    entry.order_key = (order, key)
    return entry


def lot_of(*nodes: Node) -> tuple[ParkingLot, NodeTable, QueueTree]:
    table = NodeTable()
    for spec in nodes:
        table.upsert(spec)
    queues = QueueTree(table.total)
    queues.upsert(queue("q"))
    table.improved.clear()
    queues.freed.clear()
    return ParkingLot(table, queues, []), table, queues


def test_the_head_is_the_first_in_order_of_those_who_are_still_there() -> None:
    lot, _, queues = lot_of()
    groups = [group(f"g{i}", order) for i, order in enumerate((3, 1, 2))]
    for entry in groups:
        bucket = lot.enter(("s",), queues.get("q"), entry)
    assert bucket.head() is groups[1]
    lot.leave(groups[1])
    assert bucket.head() is groups[2]
    groups[1].order_key = (9, "g1")
    lot.enter(("s",), queues.get("q"), groups[1])
    assert bucket.head() is groups[2]
    for entry in groups:
        lot.leave(entry)
    lot.leave(groups[0])
    assert (lot.buckets, bucket.head()) == ({}, None)


def classes(table: NodeTable, *requests: str) -> list[TaskClass]:
    policies = Policies(default_plugins())
    return [TaskClass(i, needs(request), table, policies) for i, request in enumerate(requests)]


def parked(lot: ParkingLot, queues: QueueTree, name: str, waits: Waits) -> Bucket:
    bucket = lot.enter((name,), queues.get("q"), group(name, 0))
    lot.park(bucket, waits)
    return bucket


def free(table: NodeTable, name: str, used: int) -> None:
    row = table.rows[name]
    table.planes[row, USED, table.column("nvidia.com/gpu")] = used
    table.touch(row)
    table.improved.add(row)


def test_room_wakes_once_there_is_enough_and_any_room_at_once() -> None:
    lot, table, queues = lot_of(*[Node(f"n{i}", {"nvidia.com/gpu": 2000}) for i in range(3)])
    one, big = classes(table, "gpu=1", "gpu=2")
    for i in range(3):
        free(table, f"n{i}", 2000)
    lot.wake(set())
    three = parked(lot, queues, "three", Waits(room={one: 3}))
    either = parked(lot, queues, "either", Waits(any_room={one, big}))
    large = parked(lot, queues, "large", Waits(room={big: 1}))
    assert lot.wake(set()) == []
    free(table, "n0", 1000)
    assert lot.wake(set()) == [either]
    free(table, "n1", 1000)
    assert lot.wake(set()) == []
    free(table, "n2", 0)
    assert {b.signature for b in lot.wake(set())} == {three.signature, large.signature}
    assert (lot.by_class, three.parked, three.waits) == ({}, False, Waits())


def test_rows_queues_and_anything() -> None:
    lot, table, queues = lot_of(Node("n0", {"cpu": 1}), Node("n1", {"cpu": 1}))
    row = parked(lot, queues, "row", Waits(rows={table.rows["n1"]}))
    quota = parked(lot, queues, "quota", Waits(queues={"q"}))
    anything = parked(lot, queues, "anything", Waits(anything=True))
    nothing = parked(lot, queues, "nothing", Waits())
    table.improved.add(table.rows["n0"])
    assert lot.wake(set()) == [anything]
    table.improved.add(table.rows["n1"])
    assert lot.wake(set()) == [row]
    queues.allocate(queues.get("q"), (("cpu", 1),), -1)
    assert lot.wake(set()) == [quota]
    lot.park(anything, Waits(anything=True))
    assert lot.wake({7}) == [anything]
    assert nothing.parked


def test_a_bucket_that_empties_is_no_longer_watched_for() -> None:
    lot, table, queues = lot_of(Node("n0", {"nvidia.com/gpu": 1000}))
    (one,) = classes(table, "gpu=1")
    bucket = parked(lot, queues, "x", Waits({one: 1}, {one}, {"q"}, {one}, True, {0}))
    lot.leave(next(iter(bucket.members.values())))
    assert not any((lot.by_class, lot.by_queue, lot.by_domain, lot.by_anything, lot.by_row, lot.buckets))


# ---------------------------------------------------------------------- turns


class Rig:
    """A queue tree with one-group buckets; taking a turn adds to the queue's share."""

    def __init__(self, *texts: str) -> None:
        self.queues = QueueTree({"cpu": 1000})
        for text in texts:
            self.queues.upsert(queue(text))
        self.turns = Turns(self.queues, Policies(default_plugins()))
        self.lot = ParkingLot(NodeTable(), self.queues, [])
        self.number = 0

    def add(self, name: str, order: int = 0) -> Bucket:
        self.number += 1
        entry = group(f"g{self.number}", order)
        bucket = self.lot.enter((self.number,), self.queues.get(name), entry)
        self.turns.push(bucket)
        return bucket

    def pop(self) -> Bucket | None:
        turn = self.turns.pop()
        return turn[0] if turn is not None else None

    def take(self) -> str:
        bucket = self.pop()
        if bucket is None:
            return ""
        self.queues.start(bucket.queue, (("cpu", 1),), 1)
        return bucket.queue.name


def test_one_queue_takes_its_groups_in_order() -> None:
    rig = Rig("q")
    buckets = [rig.add("q", order) for order in (2, 1, 3)]
    assert [rig.pop() for _ in range(4)] == [buckets[1], buckets[0], buckets[2], None]


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
    rig.lot.park(first, Waits())
    for entry in list(second.members.values()):
        rig.lot.leave(entry)
    assert rig.pop() is third
    assert rig.pop() is None
    rig.turns.push(second)
    assert rig.pop() is None


def test_a_head_that_has_left_passes_the_turn_to_the_next() -> None:
    rig = Rig("a")
    entries = [group(f"x{i}", i) for i in range(3)]
    for entry in entries:
        bucket = rig.lot.enter(("same",), rig.queues.get("a"), entry)
    rig.turns.push(bucket)
    rig.lot.leave(entries[0])
    entries[1].order_key = (9, "x1")  # moved back, and entered again elsewhere in the order
    rig.lot.leave(entries[1])
    rig.lot.enter(("same",), rig.queues.get("a"), entries[1])
    assert rig.turns.pop() == (bucket, entries[2])


def test_pushing_again_does_not_double_the_turn() -> None:
    rig = Rig("a", "b")
    bucket = rig.add("a")
    rig.turns.push(bucket)
    assert rig.pop() is bucket
    assert rig.pop() is None


def test_a_moved_tree_is_built_anew() -> None:
    rig = Rig("p", "a parent=p", "b parent=p")
    buckets = [rig.add(name) for name in "ab"]
    rig.queues.upsert(queue("a"))
    rig.queues.upsert(queue("c priority=1"))
    buckets.append(rig.add("c"))
    rig.turns.rebuild(buckets)
    assert sorted(filter(None, (rig.take() for _ in range(4)))) == ["a", "b", "c"]


@settings(max_examples=60, deadline=None)
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
    orders = Policies(default_plugins()).queue_orders
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


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(AMOUNTS, st.sampled_from((USED, RELEASING, PROMISED)), AMOUNTS), min_size=1, max_size=5
    ),
    st.lists(AMOUNTS, min_size=1, max_size=6),
)
def test_few_rows_and_classes_are_looked_at_as_many_are(nodes, asked) -> None:
    lot, table, queues = lot_of(*[Node(f"n{i}", {"pods": 2, **has}) for i, (has, _, _) in enumerate(nodes)])
    leaf = queues.get("q")
    for at, request in enumerate(asked):
        wanted = Needs(tuple(sorted((name, units) for name, units in request.items() if units)))
        cls = TaskClass(at, wanted, table, Policies(default_plugins()))
        bucket = lot.enter((at,), leaf, group(f"g{at}", at))
        lot.park(bucket, Waits(room={cls: 1}))
    for i, (_, plane, amounts) in enumerate(nodes):
        for name, units in amounts.items():
            column = table.column(name)
            table.planes[table.rows[f"n{i}"], plane, column] = units
    rows = np.array(sorted(table.rows.values()), dtype=np.int64)
    few = list(lot._candidates(rows))
    many = list(lot._candidates(np.tile(rows, 9)))
    assert few == many
