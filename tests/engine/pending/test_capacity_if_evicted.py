"""``engine.pending.capacity_if_evicted``: how much room there would be if some tasks were gone."""

from __future__ import annotations

import numpy as np
from cluster_dsl import Cluster, needs
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.feasibility.task_class import TaskClass
from windlass.engine.groups.entries import TaskEntry
from windlass.engine.pending.capacity_after_termination import CapacityAfterTermination
from windlass.engine.pending.capacity_if_evicted import (
    CapacityIfEvicted,
    FutureFree,
    could_hold,
    future_free,
    missing_fractions,
)
from windlass.engine.state.statement import Outbox, Statement


def cluster() -> Cluster:
    c = Cluster().nodes("n1 gpu=4 cpu=8", "n2 gpu=4 cpu=8", "n3 gpu=4 cpu=8 cordoned")
    for at, node in enumerate(("n1", "n1", "n2", "n3")):
        c.running(f"r{at}", node, "gpu=2 cpu=2")
    c.cycle()
    return c


def cls_of(c: Cluster, text: str) -> TaskClass:
    return c.engine.state.classes.get(needs(text))


def entry(c: Cluster, name: str) -> TaskEntry:
    return c.engine.state.tasks[f"ns/{name}-0"]


def test_counts_follow_who_goes_and_who_stays() -> None:
    c = cluster()
    room = CapacityIfEvicted(c.engine.state.table, cls_of(c, "gpu=3 cpu=1"))
    assert room.total == 0
    room.change([entry(c, "r2")], 1)
    assert room.total == 1
    room.change([entry(c, "r0"), entry(c, "r1")], 1)
    assert room.total == 2
    room.change([entry(c, "r3")], 1)  # on a cordoned node
    assert room.total == 2
    room.change([entry(c, "r1")], -1)
    assert room.total == 1
    room.change([entry(c, "r0"), entry(c, "r2")], -1)
    assert room.total == 0


def test_what_there_would_be_at_best_leaves_the_count_alone() -> None:
    c = cluster()
    room = CapacityIfEvicted(c.engine.state.table, cls_of(c, "gpu=1 cpu=1"))
    assert room.total == 2
    assert room.total_if_evicted([entry(c, "r0"), entry(c, "r3")]) == 4
    assert room.total_if_evicted([]) == 2
    assert room.total == 2


def test_the_scarcest_resource_counts() -> None:
    c = cluster()
    room = CapacityIfEvicted(c.engine.state.table, cls_of(c, "gpu=1 cpu=4"))
    assert room.total == 1
    room.change([entry(c, "r0")], 1)
    assert room.total == 2


def test_what_terminates_is_free_and_what_is_promised_is_not() -> None:
    c = cluster()
    table = c.engine.state.table
    s = Statement(c.engine.state.ledger)
    gpu = table.resources.codes["nvidia.com/gpu"]
    row = table.rows["n1"]
    leftover = FutureFree(table)

    def free() -> int:
        found = future_free(table)
        assert np.array_equal(leftover.free(), found)
        assert leftover.free() is leftover.free()
        assert leftover.cells() == found.tolist()
        assert leftover.sums() == found[table.live[: table.height]].sum(axis=0).tolist()
        return int(found[row, gpu])

    assert free() == 0
    s.evict(entry(c, "r0"), "preempt")
    assert free() == 2000
    c.gang("waits", 1, "gpu=1")
    s.pipeline(entry(c, "waits"), row)
    assert free() == 1000
    s.rollback()
    assert free() == 0
    table.remove("n1")
    assert free() == -4000  # what is on it is still in the books, and in nobody's sum


@settings(max_examples=examples(25), deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(("place", "go", "stay", "cordon", "other")), st.integers(0, 5)), max_size=12
    )
)
def test_how_many_there_is_room_for_is_followed_as_it_would_be_counted(steps: list[tuple[str, int]]) -> None:
    c = Cluster().nodes("n1 gpu=4 cpu=8", "n2 gpu=4 cpu=3", "n3 gpu=2 cpu=8")
    leftover, gpu = FutureFree(c.engine.state.table), "nvidia.com/gpu"
    kinds = [cls_of(c, text) for text in ("gpu=1 cpu=1", "gpu=3 cpu=2", "cpu=2")]
    c.cycle()
    for number, (step, which) in enumerate(steps):
        placed = [one for one in c.engine.state.tasks.values() if one.row >= 0]
        if step == "place":
            c.running(f"r{number}", f"n{which % 3 + 1}", f"gpu={1 + which % 2} cpu=1")
        elif step == "cordon":
            c.nodes(f"n{which % 3 + 1} gpu=4 cpu=8 cordoned")
        elif step == "other":
            c.nodes(f"n{which} gpu=3 cpu=8")
        elif placed:
            statement = Statement(c.engine.state.ledger)
            statement.evict(placed[which % len(placed)], "preempt")
            assert_followed(c, leftover, kinds, gpu)
            if step == "stay":
                statement.rollback()
            else:
                statement.commit(Outbox.empty())
        assert_followed(c, leftover, kinds, gpu)


def assert_followed(c: Cluster, leftover: FutureFree, kinds: list[TaskClass], resource: str) -> None:
    device = c.engine.state.table.resources.codes[resource]
    for cls in kinds:
        cls.refresh()
        found, fresh = (
            leftover.after_termination(cls, device),
            CapacityAfterTermination(cls, FutureFree(c.engine.state.table), device),
        )
        assert (found.fits, found.total, found.maximum) == (fresh.fits, fresh.total, fresh.maximum)
        assert sum(fresh.fits) == CapacityIfEvicted(c.engine.state.table, cls).total
        without = leftover.after_termination(cls, -1)
        assert (without.fits, without.maximum) == (fresh.fits, 0)


def test_empty_nodes_hold_so_many() -> None:
    c = cluster()
    table = c.engine.state.table
    assert could_hold(table, cls_of(c, "gpu=2")) == 4
    assert could_hold(table, cls_of(c, "gpu=5")) == 0


def test_what_is_lacking_is_a_part_of_the_request() -> None:
    c = cluster()
    table = c.engine.state.table
    lacks = missing_fractions(table, future_free(table), cls_of(c, "gpu=4 cpu=2"))
    by_name = {table.names[row]: lacks[row] for row in range(table.height)}
    assert by_name == {"n1": 1.0, "n2": 0.5, "n3": np.inf}
    assert np.isinf(missing_fractions(table, future_free(table), cls_of(c, "gpu=5"))).all()
