"""``engine.preemption.suspension_search``: what is clear from the first of those who rank worse is what all of them
would say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import inf

import cluster_dsl
from cluster_dsl import GPU, Cluster, needs
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.pending.capacity_if_evicted import FutureFree
from windlass.engine.preemption.suspension_search import NextSize, SuspendableBySize, SuspensionSearch
from windlass.engine.timesharing.attained_service import TimeAccount
from windlass.spi.objects import Device
from windlass.spi.timeshare import RunSegment

NODES = 3
RUNS = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(1, 4), st.integers(0, 5), st.integers(1, 4)),
    min_size=1,
    max_size=9,
)
"""Node, accelerators, rank, processors."""


def sized(worst: list[TimeAccount], looked: int) -> tuple[SuspendableBySize, NextSize]:
    """What :meth:`SuspensionSearch.cheapest_if_clear` asks for, of these; so many at the most at a time."""

    def able(more: float, most: float) -> Iterator[TimeAccount]:
        return islice((one for one in worst if more < one.segment.devices <= most), looked)

    def next_size(more: float) -> float | None:
        sizes = [one.segment.devices for one in worst if one.segment.devices > more]
        return min(sizes) if sizes and len(worst) <= looked else None

    return able, next_size


@given(runs=RUNS, asked=st.integers(1, 4), processors=st.integers(1, 8), looked=st.integers(1, 9))
@settings(max_examples=examples(60), deadline=None)
def test_a_clear_answer_is_the_answer(
    runs: list[tuple[int, int, int, int]], asked: int, processors: int, looked: int
) -> None:
    c = Cluster().nodes(*(f"n{at} gpu=4 cpu=8" for at in range(NODES)))
    free, unused, accounts = [4] * NODES, [8] * NODES, []
    for at, (node, size, rank, cpu) in enumerate(runs):
        if size > free[node] or cpu > unused[node]:
            continue
        free[node] -= size
        unused[node] -= cpu
        c.running(f"r{at}", f"n{node}", f"gpu={size} cpu={cpu}")
        accounts.append((f"ns/r{at}", size, rank))
    c.cycle()
    state = c.engine.state
    cls = state.classes.get(needs(f"gpu={asked} cpu={processors}"))
    cls.refresh()
    worst: list[TimeAccount] = []
    for key, size, rank in accounts:
        group = state.groups[key]
        time_account = TimeAccount(group, RunSegment(group.spec, float(size)))
        time_account.base = float(rank)
        worst.append(time_account)
    worst.sort(key=lambda one: one.place, reverse=True)
    leftover = FutureFree(state.table)
    device = next(state.table.resources.codes[name] for name, _ in cls.items if "gpu" in name)
    found = SuspensionSearch(cls, 1, leftover, device).cheapest(worst)
    clear = SuspensionSearch(cls, 1, leftover, device).cheapest_if_clear(*sized(worst, looked))
    if clear is not None:
        assert clear == found
    if found and asked == processors == 1 and looked >= len(worst):
        assert clear == found  # whoever runs makes room alone
    if found is not None:
        stopped = sum(one.segment.devices for one in found)
        least = min((asked - left for left in free), default=asked)
        assert stopped >= least


def test_nobody_is_looked_at_once_an_answer_is_clear() -> None:
    """Who has more than what is needed is not looked at before those who have less were too few; and nobody behind
    the first who makes room alone."""
    c = Cluster().nodes("n0 gpu=2 cpu=64", "n1 gpu=4 cpu=64")
    for name, node, size in (("r0", "n0", 1), ("r1", "n0", 1), ("r2", "n1", 2), ("r3", "n1", 2)):
        c.running(name, node, f"gpu={size} cpu=1")
    c.cycle()
    state = c.engine.state
    device = next(code for name, code in state.table.resources.codes.items() if "gpu" in name)
    accounts = [
        TimeAccount(group, RunSegment(group.spec, size))
        for key, size in (("ns/r0", 1.0), ("ns/r1", 1.0), ("ns/r2", 2.0), ("ns/r3", 2.0))
        if (group := state.groups.get(key)) is not None
    ]
    asked: list[tuple[float, float]] = []
    looked: list[TimeAccount] = []

    def clear(wish: str, runners: list[TimeAccount]) -> list[TimeAccount] | None:
        cls = state.classes.get(needs(wish))
        cls.refresh()
        asked.clear()
        looked.clear()
        able, next_size = sized(runners, 4)

        def noted(more: float, most: float) -> Iterator[TimeAccount]:
            asked.append((more, most))
            for one in able(more, most):
                looked.append(one)
                yield one

        return SuspensionSearch(cls, 1, FutureFree(state.table), device).cheapest_if_clear(noted, next_size)

    assert clear("gpu=1 cpu=1", accounts) == accounts[:1]
    assert looked == accounts[:1]
    assert clear("gpu=1 cpu=1", accounts[2:]) == accounts[2:3]  # nobody has one alone
    assert asked == [(-inf, 1.0), (1.0, 2.0)]
    assert looked == accounts[2:3]
    assert clear("gpu=1 cpu=1", []) is None


def test_who_has_a_card_that_has_fallen_ill_makes_no_room_by_it() -> None:
    """The last in rank has one that nobody can be handed: who comes before him on the same node goes instead; where
    two are asked for, somebody on another node."""
    c, cards = Cluster(), tuple(Device(at, GPU) for at in range(2))
    spec = cluster_dsl.node("n0 gpu=2 cpu=64", cards)
    c.nodes(spec, cluster_dsl.node("n1 gpu=2 cpu=64", cards))
    c.running("ill", "n0", "gpu=1 cpu=1", devices=(0,)).running("well", "n0", "gpu=1 cpu=1", devices=(1,))
    c.running("two", "n1", "gpu=2 cpu=1", devices=(0, 1))
    c.nodes(replace(spec, devices=(replace(cards[0], healthy=False), cards[1])))
    c.cycle()
    state = c.engine.state
    worst = []
    for rank, (name, size) in enumerate((("ill", 1.0), ("well", 1.0), ("two", 2.0))):
        group = state.groups[f"ns/{name}"]
        worst.append(TimeAccount(group, RunSegment(group.spec, size)))
        worst[-1].base = float(-rank)

    def gone(asked: str) -> list[str]:
        cls, leftover = state.classes.get(needs(asked)), FutureFree(state.table)
        cls.refresh()
        device = state.table.resources.codes[GPU]
        found = SuspensionSearch(cls, 1, leftover, device).cheapest(worst)
        assert found is not None
        assert SuspensionSearch(cls, 1, leftover, device).cheapest_if_clear(*sized(worst, 3)) in (None, found)
        return [time_account.group.key for time_account in found]

    assert gone("gpu=1 cpu=1") == ["ns/well"]
    assert gone("gpu=2 cpu=1") == ["ns/two"]
