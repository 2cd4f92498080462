"""Packing policies place every pod where their published formulas do, in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packing_reference import SCORES, Host, Typical, fragments, place, typical

from windlass.kits.clock import FakeClock
from windlass.kits.rng import seeded
from windlass.sim.traces.openb import OpenbNode, OpenbPod
from windlass_lab.packing.packing import POINTS, Cluster, pack, sequence
from windlass_lab.packing.packing_policies import PACK_POLICIES

SHAPES = (
    (64_000, 262_144, 8, "G2"),
    (128_000, 131_072, 8, "G3"),
    (96_000, 131_072, 2, "T4"),
    (48_000, 196_608, 4, "V100M16"),
    (24_000, 65_536, 1, "A10"),
)
KINDS = ((0, 0), (1, 1000), (1, 1000), (2, 1000), (4, 1000), (8, 1000), (1, 460), (1, 230), (1, 810), (1, 50))
MODELS = ((), (), ("T4",), ("T4", "A10"), ("G2", "G3"))


def drawn(seed: int) -> Cluster:
    chance = Random(seed)
    nodes = [OpenbNode(f"n{at:03d}", *chance.choice(SHAPES)) for at in range(chance.randint(2, 7))]
    pods = []
    for at in range(chance.randint(5, 10 * len(nodes))):
        gpus, milli = chance.choice(KINDS)
        cpu, memory = chance.choice((0, 1000, 3152, 6400, 12_800)), chance.choice((0, 4096, 12_288))
        pods.append(OpenbPod(f"p{at:04d}", cpu, memory, gpus, milli, chance.choice(MODELS) if gpus else ()))
    return Cluster(tuple(nodes), tuple(pods))


@pytest.mark.parametrize("policy", [*SCORES, "fgd"])
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1 << 20))
def test_every_pod_goes_where_the_formula_says(policy: str, seed: int) -> None:
    cluster, chance = drawn(seed), seeded(seed)
    coming = sequence(cluster.pods, cluster.capacity, chance, cluster.tune)
    PACK_POLICIES[policy].make(cluster.pods, chance)  # some draw beforehand
    order = list(cluster.nodes)
    chance.shuffle(order)
    hosts, mix = [Host.of(node) for node in order], typical(cluster.pods)
    run = pack(cluster, PACK_POLICIES[policy], seed, FakeClock())
    arrived, cells = 0, dict[int, list[tuple[Fraction, Fraction]]]()
    for at, pod in enumerate(coming):
        assert run.placed.get(at) == place(policy, hosts, pod, mix)
        arrived += pod.demand
        percent = round(Fraction(100 * arrived, cluster.capacity))  # half to even
        if percent in POINTS:
            cells.setdefault(percent, []).append(shares(hosts, mix, cluster))
    for percent, cell in cells.items():
        taken, fragmented = (float(sum(column) / len(cell)) for column in zip(*cell, strict=True))
        assert run.allocation_percent[percent] == pytest.approx(taken)
        assert run.fragmented_percent[percent] == pytest.approx(fragmented)


def shares(hosts: list[Host], mix: Typical, cluster: Cluster) -> tuple[Fraction, Fraction]:
    """What is allocated and what is fragmented, in percent of all cards."""
    free = sum(sum(context.free) for context in hosts)
    fragmented = sum(fragments(context, mix) for context in hosts)
    return 100 - Fraction(100 * free, cluster.capacity), Fraction(100 * fragmented, cluster.capacity)
