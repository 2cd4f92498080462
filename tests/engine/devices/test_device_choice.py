"""Which cards a pod gets: joined ones, those of one NUMA zone, the tightest group that holds it; or those that
a policy chooses."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from cluster_dsl import GPU, Cluster, needs
from device_fuzz import gpu, part

from windlass.plugins.defaults import default_plugins
from windlass.spi.devices import CandidateDevice, DeviceNeed
from windlass.spi.objects import Device, Needs, Node
from windlass.spi.scoring import DeviceRanks


def node(links: Sequence[int] = (), zones: Sequence[int] = (), n: int = 8) -> Node:
    devices = tuple(
        Device(
            i,
            GPU,
            "Tesla-T4",
            15_360,
            link_group=links[i] if links else -1,
            numa=zones[i] if zones else -1,
        )
        for i in range(n)
    )
    return Node("n", {"cpu": 64_000, "pods": 110, GPU: n * 1000}, devices=devices)


WHOLE = [lambda n: needs(f"gpu={n} cpu=1"), lambda n: part("cpu=1", gpu(milli=1000, count=n))]


@pytest.mark.parametrize("want", WHOLE, ids=["plain", "by card"])
@pytest.mark.parametrize(
    ("links", "zones", "asked", "expected"),
    [
        ((), (), [2, 1], [[0, 1], [2]]),
        ((0, 0, 0, 0, 0, 1, 1, 1), (), [2, 2, 1], [[5, 6], [0, 1], [7]]),
        ((0, 1, 0, 1, 0, 1, 0, 1), (), [4], [[0, 2, 4, 6]]),
        ((), (1, 1, 1, 0, 0, 0, 0, 0), [3], [[0, 1, 2]]),
        ((0, 0, 1, 1, 2, 2, 3, 3), (0, 0, 0, 0, 1, 1, 1, 1), [3], [[0, 1, 2]]),
        ((0, 0, 0, 0, 1, 1, 1, 1), (), [6], [[0, 1, 2, 3, 4, 5]]),
    ],
)
def test_whole_cards_come_from_the_tightest_group(
    want, links: Sequence[int], zones: Sequence[int], asked: list[int], expected: list[list[int]]
) -> None:
    c = Cluster().queues("default").nodes(node(links, zones))
    for at, n in enumerate(asked):
        c.gang(f"g{at}", 1, want(n))
        c.cycle()
    assert [sorted(c.devices_of(f"g{at}-0")) for at in range(len(asked))] == expected


def plain() -> list[object]:
    """The default policy without those that choose cards."""
    return [p for p in default_plugins() if not isinstance(p, DeviceRanks)]


class Last:
    """Rather the last cards."""

    name = "last"
    weight = 1.0

    def prefer(self, needs: Needs, need: DeviceNeed, devices: Sequence[CandidateDevice]) -> Sequence[float]:
        return [float(device.index) for device in devices]


@pytest.mark.parametrize(
    "want",
    [*WHOLE, lambda n: part("cpu=1", gpu(milli=300, memory_milli=300, count=n))],
    ids=["plain", "by card", "shares"],
)
def test_a_policy_may_choose(want) -> None:
    c = Cluster(plugins=[*plain(), Last()]).queues("default").nodes(node(n=4))
    c.gang("g", 1, want(2))
    c.cycle()
    assert sorted(c.devices_of("g-0")) == [2, 3]


@pytest.mark.parametrize(("pack", "expected"), [(True, [0, 0, 1]), (False, [0, 1, 2]), (None, [0, 0, 1])])
def test_shares_are_packed_unless_they_are_to_be_spread(pack: bool | None, expected: list[int]) -> None:
    c = Cluster(plugins=plain()).queues("default").nodes(node(n=4))
    for at in range(3):
        c.gang(f"g{at}", 1, part("cpu=1", gpu(milli=400, memory_milli=400, pack=pack)))
        c.cycle()
    assert [c.devices_of(f"g{at}-0")[0] for at in range(3)] == expected


def test_a_whole_pod_keeps_off_the_card_that_a_part_is_promised_of() -> None:
    """Where another card does."""
    c = Cluster().queues("default").nodes(node(n=2))
    state = c.engine.state
    c.gang("a", 1, part("cpu=1", gpu(milli=500, memory_milli=500)))
    c.engine.update_groups(c.now)
    entry = next(iter(state.tasks.values()))
    state.ledger.nominate(entry, state.table.rows["n"])
    assert entry.nominated_shares[0].index == 0
    c.gang("b", 1, needs("gpu=1 cpu=1"))
    row = state.table.rows["n"]
    assert state.table.devices.rows[row][GPU].pick(1) == 0b10
    state.ledger.remove_nomination(entry)
    assert state.table.devices.rows[row][GPU].pick(1) == 0b01
