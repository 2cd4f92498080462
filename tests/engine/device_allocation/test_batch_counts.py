"""What the cards of many rows say at once is what each of them says alone."""

from __future__ import annotations

import numpy as np
from cluster_dsl import Cluster
from device_fuzz import PARTS, start_with_cards
from engine_fuzz import LEAVES
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.device_allocation.allocator import DeviceAllocator
from windlass.engine.devices.assignment import UNLIMITED


@given(st.lists(st.lists(st.sampled_from(PARTS), min_size=1, max_size=6), min_size=2, max_size=4))
@settings(max_examples=examples(25), deadline=None)
def test_rows_with_equal_keys_say_the_same(arrivals) -> None:
    cluster = start_with_cards(Cluster())
    state = cluster.engine.state
    together = DeviceAllocator(state.table, state.plugins)
    number = 0
    for wanted in arrivals:
        for needs in wanted:
            number += 1
            cluster.gang(f"g{number}", 1, needs, queue=LEAVES[0])
        cluster.cycle()
        rows = np.flatnonzero(state.table.live[: state.table.height]).tolist()
        alone = DeviceAllocator(state.table, state.plugins)
        for needs in PARTS:
            if not needs.devices:
                continue
            for empty in (False, True):
                said = together.summaries(rows, needs, empty=empty)
                assert said == [alone.summary(row, needs, empty=empty) for row in rows]
            counts = [
                alone.rows.assignment_if_empty(row, needs.devices, None).count(
                    needs.devices, alone.rows.plan(row, needs.devices), UNLIMITED
                )
                for row in rows
            ]
            assert together.empty_counts(rows, needs).tolist() == counts
