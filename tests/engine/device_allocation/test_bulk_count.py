"""Counting shares over many rows at once equals seating pods one after the other."""

from __future__ import annotations

import numpy as np
from device_views import GPU, Box, Cards, part, whole
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.device_allocation.allocator import DeviceAllocator
from windlass.engine.device_allocation.bulk_count import is_plain, plain_counts
from windlass.engine.invariants import check
from windlass.spi.devices import DeviceNeed
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
@settings(max_examples=150, deadline=None)
def test_counts_at_once_equal_counts_one_by_one(boxes, pods, needs: Needs):
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
    rows = np.arange(len(boxes), dtype=np.int64)
    if not needs.devices:
        return
    need = needs.devices[0]
    assert is_plain(need)
    found, known = plain_counts(world.table, rows, need)
    one_by_one = DeviceAllocator(world.table, world.plugins)._counted(rows.tolist(), needs, later=False)
    assert found[known].tolist() == one_by_one[known].tolist()


def test_what_is_not_plain_is_left_to_others():
    assert not is_plain(DeviceNeed(GPU, 2, 500))
    assert not is_plain(DeviceNeed("", 1, 500))
    assert not is_plain(DeviceNeed(GPU, 1, profile="1g.10gb"))
    assert not is_plain(DeviceNeed(GPU, 1, 500, avoids=("x",)))
    assert not is_plain(DeviceNeed(GPU, 1, 500, uuids_not=("GPU-1",)))


def test_free_cards_are_known_and_all_counted():
    cards = Cards(Box("a", 3), Box("b", 2))
    cards.put("b", part(700), 0)
    found, known = plain_counts(cards.engine.state.table, np.arange(2), part(300).devices[0])
    assert known.all()
    assert found.tolist() == [9, 4]
