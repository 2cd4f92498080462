"""``engine.evictions.clearing``: what is clear from the first of those who rank worse is what all of them would say."""

from __future__ import annotations

from cluster_dsl import Cluster, needs
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.evictions.clearing import Clearing
from windlass.engine.sharing.sharing import Account
from windlass.engine.waiting.room import Leftover
from windlass.spi.timeshare import Stint

NODES = 3
RUNS = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.integers(1, 4), st.integers(0, 5)), min_size=1, max_size=9
)
"""Node, accelerators, rank."""


@given(runs=RUNS, asked=st.integers(1, 4), looked=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_a_clear_answer_is_the_answer(runs: list[tuple[int, int, int]], asked: int, looked: int) -> None:
    c = Cluster().nodes(*(f"n{at} gpu=4 cpu=64" for at in range(NODES)))
    free, accounts = [4] * NODES, []
    for at, (node, size, rank) in enumerate(runs):
        if size > free[node]:
            continue
        free[node] -= size
        c.running(f"r{at}", f"n{node}", f"gpu={size} cpu=1")
        accounts.append((f"ns/r{at}", size, rank))
    c.cycle()
    world = c.engine.world
    cls = world.classes.get(needs(f"gpu={asked} cpu=1"))
    cls.refresh()
    worst: list[Account] = []
    for key, size, rank in accounts:
        group = world.groups[key]
        account = Account(group, Stint(group.spec, float(size)))
        account.base = float(rank)
        worst.append(account)
    worst.sort(key=lambda one: one.place, reverse=True)
    leftover = Leftover(world.table)
    device = next(world.table.resources.codes[name] for name, _ in cls.items if "gpu" in name)

    def clearing() -> Clearing:
        return Clearing(cls, 1, leftover, device)

    found = clearing().cheapest(worst)
    clear = clearing().cheapest(worst[:looked], sure=True)
    if clear is not None:
        assert clear == found
    if clearing().missing == 1 and clearing().least <= 1.0:
        small = [one for one in worst if one.stint.devices <= 1.0]
        single = clearing().cheapest(small, sure=True)
        assert single is None or single == found
    if found is not None:
        stopped = sum(one.stint.devices for one in found)
        least = min((asked - left for left in free), default=asked)
        assert stopped >= least


def test_nobody_is_looked_at_once_an_answer_is_clear() -> None:
    c = Cluster().nodes("n0 gpu=2 cpu=64")
    for name in ("r0", "r1"):
        c.running(name, "n0", "gpu=1 cpu=1")
    c.cycle()
    world = c.engine.world
    cls = world.classes.get(needs("gpu=1 cpu=1"))
    cls.refresh()
    first, second = (
        Account(group, Stint(group.spec, 1.0)) for group in map(world.groups.get, ("ns/r0", "ns/r1")) if group
    )
    device = next(world.table.resources.codes[name] for name, _ in cls.items if "gpu" in name)
    worst = iter([first, second])
    assert Clearing(cls, 1, Leftover(world.table), device).cheapest(worst, sure=True) == [first]
    assert next(worst) is second
    assert Clearing(cls, 1, Leftover(world.table), device).cheapest([], sure=True) is None
