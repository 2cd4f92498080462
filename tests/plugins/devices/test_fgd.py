"""``fgd`` in the engine: node and device as the method says, on a made-up trace and on the published one."""

from __future__ import annotations

import random

import numpy as np
import openb_trace as openb
import pytest
from device_views import Box, Cards, part, plain, whole

from windlass.plugins.devices.fgd import Fgd
from windlass.plugins.devices.fragmentation import NO_PLACE, PodDemand, WorkloadMix, descent
from windlass.plugins.devices.workload_mix import PATIENCE_SECONDS
from windlass.sim.traces.openb import OpenbNode, OpenbPod
from windlass.spi.plugins import Trend
from windlass_lab.packing.packing import sequence
from windlass_lab.packing.packing_policies import mix_of
from windlass_lab.packing.published_policies import (
    BestFit,
    DotProd,
    GpuClustering,
    GpuPacking,
    Random,
    TightestCard,
)

SPECS = ((), (), ("T4",), ("T4", "V100"))


def made_up(seed: int) -> tuple[list[OpenbNode], list[OpenbPod]]:
    """Thirty nodes of three shapes and about as many pods as fill them."""
    chance = random.Random(seed)
    shapes = [
        (64000, 262144, 8, "G2"),
        (32000, 131072, 2, "T4"),
        (96000, 393216, 4, "V100"),
        (24000, 65536, 1, "T4"),
    ]
    hosts = [OpenbNode(f"h{at}", *chance.choice(shapes)) for at in range(30)]
    kinds = [
        (0, 0),
        (1, 1000),
        (1, 1000),
        (2, 1000),
        (4, 1000),
        (8, 1000),
        (1, 460),
        (1, 230),
        (1, 110),
        (1, 700),
    ]
    pods = []
    for at in range(150):
        gpus, milli = chance.choice(kinds)
        cpu = chance.choice([1000, 4000, 8000, 12000])
        spec = chance.choice(SPECS) if gpus else ()
        pods.append(OpenbPod(f"p{at:03d}", cpu, chance.choice([2048, 16384]), gpus, milli, spec))
    return hosts, pods


def literally(hosts: list[OpenbNode], coming: list[OpenbPod], mix: WorkloadMix) -> dict[int, int]:
    """The method without an engine: pod after pod, every node, every device. ``hosts`` in their order."""
    cpu = np.array([host.cpu_milli for host in hosts])
    memory = np.array([host.memory_mib for host in hosts])
    free = np.array([[1000 * (slot < host.gpus) for slot in range(8)] for host in hosts])
    groups = np.array([mix.group(host.model) for host in hosts])
    placed = {}
    for number, pod in enumerate(coming):
        demand = PodDemand(pod.cpu_milli, pod.gpu_milli if pod.gpus else 0, pod.gpus, pod.gpu_models)
        points = descent(mix, demand, groups, cpu, free)
        best, card = points.max(axis=1), points.argmax(axis=1)
        best[(cpu < pod.cpu_milli) | (memory < pod.memory_mib)] = NO_PLACE
        if pod.gpus:
            best[[not demand.allows(host.model) for host in hosts]] = NO_PLACE
        row = int(best.argmax())
        if best[row] == NO_PLACE:
            continue
        placed[number] = row
        cpu[row] -= pod.cpu_milli
        memory[row] -= pod.memory_mib
        if pod.gpus == 1:
            free[row, card[row]] -= pod.gpu_milli
        elif pod.gpus:
            free[row, np.flatnonzero(free[row] == 1000)[: pod.gpus]] = 0
    return placed


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_the_engine_places_every_pod_where_the_method_does(seed: int):
    hosts, pods = made_up(seed)
    mix = mix_of(pods)
    coming = sequence(pods, 1000 * sum(host.gpus for host in hosts), random.Random(seed))
    order = list(hosts)
    random.Random(9).shuffle(order)
    for batch in (1, 40):
        placed = openb.packed(hosts, [Fgd(mix=mix)], random.Random(9), coming, batch)
        assert placed == literally(order, coming, mix)
    assert 0 < len(placed) < len(coming)


def test_packing_prefers_cards_in_use_then_nodes_in_use_by_the_published_points():
    cards = Cards(Box("tight", 2), Box("loose", 2), Box("used", 2), Box("idle", 2), Box("large", 8))
    cards.put("tight", part(650), 0)
    cards.put("loose", part(640), 0)
    cards.put("used", part(900), 0)
    score = GpuPacking().score(part(350), cards.view)
    assert score is not None
    # 350 and 360 milli free are three tenths; 100 milli are too few, so a free device of a node in use it is.
    assert score.tolist() == [97.0, 97.0, 49.0, 31.0, 25.0]
    two = GpuPacking().score(whole(2), cards.view)
    assert two is not None
    assert two.tolist()[3:] == [31.0, 25.0]


def test_published_policies_pack_better_than_chance():
    totals: dict[str, float] = {}
    for seed in range(4):
        hosts, pods = made_up(seed)
        coming = sequence(pods, 1000 * sum(host.gpus for host in hosts), random.Random(seed))
        for name, policies in {
            "fgd": [Fgd(mix=mix_of(pods))],
            "best-fit": [BestFit(), TightestCard()],
            "dot-prod": [DotProd(), TightestCard()],
            "packing": [GpuPacking(), TightestCard()],
            "clustering": [GpuClustering(), TightestCard()],
            "random": [Random(random.Random(seed))],
        }.items():
            cells = openb.allocated(hosts, policies, random.Random(seed), coming, (130,))
            totals[name] = totals.get(name, 0.0) + cells[130] / 4
    assert min(totals, key=lambda name: totals[name]) == "random"
    assert totals["fgd"] > totals["random"] + 1.0, totals


# ---------------------------------------------------------------------- the published table


def published() -> dict[tuple[str, str, int], float]:
    if not (openb.FOLDER / "published_table.csv").exists():
        pytest.skip("the OpenB trace is not here; made-up traces cover the method")
    return openb.published(openb.FOLDER)


@pytest.mark.timeout(300)
def test_openb_default_is_as_published():
    """Three seeds; each cell at 100 and at 130 percent arrived within 0.6 points."""
    table = published()
    hosts, pods = openb.nodes(), openb.pods()
    found: dict[int, list[float]] = {100: [], 130: []}
    for seed in (42, 43, 44):
        chance = random.Random(seed)
        coming = sequence(pods, 1000 * sum(host.gpus for host in hosts), chance)
        cells = openb.allocated(hosts, [Fgd(mix=mix_of(pods))], chance, coming, tuple(found))
        for percent, values in found.items():
            values.append(cells[percent])
    for percent, values in found.items():
        assert sum(values) / 3 == pytest.approx(table["default", "FGD", percent], abs=0.6)


# ---------------------------------------------------------------------- learning


def learned(cards: Cards) -> Fgd:
    plugin = Fgd()
    plugin.learn_from(0.0, cards.stock)
    return plugin


def test_it_is_silent_where_nobody_asks_for_parts_of_cards():
    cards = Cards(Box("a"), Box("b"))
    cards.ask(whole(1))
    cards.ask(plain(4))
    plugin = learned(cards)
    assert plugin.score(whole(1), cards.view) is None
    assert plugin.trend(whole(1)) is Trend.RISES


def test_it_speaks_once_a_pod_asks_for_a_part():
    cards = Cards(Box("a", 2), Box("b", 2))
    cards.ask(part(300))
    cards.ask(whole(1))
    plugin = learned(cards)
    assert plugin.trend(whole(1)) is Trend.ANY
    cards.put("a", part(300), 1)
    score = plugin.score(part(300), cards.view)
    assert score is not None
    assert score[0] > score[1]
    ranks = plugin.rank(part(300), part(300).devices[0], cards.view)
    assert ranks is not None
    assert ranks[0, 1] > ranks[0, 0]
    assert plugin.rank(whole(2), whole(2, models=("A100",)).devices[0], cards.view) is None


def test_what_is_learned_stands_for_a_while():
    cards = Cards(Box("a", 2))
    plugin = Fgd()
    assert plugin.learn_from(0.0, cards.stock) is False  # no pods
    cards.ask(part(300))
    assert plugin.learn_from(0.0, cards.stock) is True
    cards.ask(whole(1))
    assert plugin.learn_from(PATIENCE_SECONDS - 1, cards.stock) is False
    assert plugin.learn_from(PATIENCE_SECONDS, cards.stock) is True
    assert plugin.learn_from(2 * PATIENCE_SECONDS, cards.stock) is False


def test_engine_learns_the_mix_and_places_by_it():
    """A share is placed on the device on which it fits in addition, and whole devices
    stay whole."""
    cards = Cards(Box("a", 2), Box("b", 2), policies=[Fgd()])
    cards.put("b", part(600), 1)
    cards.put("a", whole(1), 0)
    assert cards.place(part(400), 0.0) == ("b", (1,))
    assert cards.place(part(600), 1.0) == ("a", (1,))
    assert cards.place(whole(1), 2.0) == ("b", (0,))
    assert cards.place(part(400), 3.0) == ("a", (1,))
