"""Counts of device shares from the cache equal those of the full evaluation."""

from __future__ import annotations

from device_views import Box, Cards, part, whole
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.device_allocation.allocator import DeviceAllocator
from windlass.engine.devices.assignment import UNLIMITED
from windlass.engine.invariants import check
from windlass.engine.nodes.row_cache import resources_at
from windlass.spi.objects import Needs, TaskState

MODELS = (("NVIDIA-A100-SXM4-80GB", 81920), ("Tesla-T4", 15360), ("", 0))
STATES = st.sampled_from([TaskState.RUNNING, TaskState.RUNNING, TaskState.RELEASING])
amounts = st.sampled_from([50, 200, 330, 500, 1000])
held = st.one_of(
    st.builds(part, amounts),
    st.builds(lambda mib: part(memory_mib=mib), st.sampled_from([4096, 10240])),
    st.builds(lambda m, mib: part(m, memory_mib=mib), amounts, st.sampled_from([1000, 9000])),
    st.builds(lambda: whole(1)),
)
asked = st.one_of(
    held,
    st.builds(lambda m: part(m, models=("A100",)), amounts),
    st.builds(lambda m: part(m, min_memory_mib=40000), amounts),
    st.builds(lambda: whole(1, models=("T4",))),
    st.builds(lambda m: part(memory_milli=m, milli=m), amounts),
)


@given(
    st.lists(
        st.tuples(st.sampled_from(MODELS), st.integers(1, 3), st.integers(0, 3)), min_size=2, max_size=4
    ),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), held, STATES), max_size=8),
    asked,
)
@settings(max_examples=examples(150), deadline=None)
def test_counts_of_many_rows_equal_the_full_evaluation(boxes, pods, needs: Needs):
    cards = Cards(
        *(
            Box(f"n{at}", count, model, mib, slots=slots)
            for at, ((model, mib), count, slots) in enumerate(boxes)
        )
    )
    for node, index, needed, state in pods:
        if node < len(boxes) and index < boxes[node][1]:
            cards.put(f"n{node}", needed, index, state=state)
    check(cards.engine, overcommitted=True)
    world = cards.engine.state
    if not needs.devices:
        return
    allocator = DeviceAllocator(world.table, world.plugins)
    rows, devices, choose = range(len(boxes)), needs.devices, allocator.choice.choice(needs)
    evaluated = [
        allocator.rows.assignment(row, devices, choose, later=False).count(
            devices, allocator.rows.plan(row, devices), UNLIMITED
        )
        for row in rows
    ]
    assert allocator.counts(rows, needs).tolist() == evaluated
    counter = allocator.counter(needs)
    assert [counter(row, resources_at(world.table, row)[0]) for row in rows] == evaluated


def test_free_shares_of_all_devices_are_counted():
    cards = Cards(Box("a", 3), Box("b", 2))
    cards.put("b", part(700), 0)
    table = cards.engine.state.table
    allocator = DeviceAllocator(table, cards.engine.state.plugins)
    assert allocator.counts(range(2), part(300)).tolist() == [9, 4]
