"""Scores that look at devices: ``gpu-aware``, ``scarcity``; and what is stranded."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import msgspec
import numpy as np
import pytest
from device_views import GPU, Box, Cards, part, plain, whole

from windlass.engine.deltas import NodeUpserted
from windlass.engine.nodes.view import TableView
from windlass.plugins.devices.device_arrays import free_milli
from windlass.plugins.devices.fgd import Fgd
from windlass.plugins.devices.gpu_aware import COMMS, COMPUTE, MEMORY, GpuAware, weights_of
from windlass.plugins.devices.scarcity import CPU, MODEL, Scarcity, cpu_per_device, demand_by_model
from windlass.plugins.devices.stranding import strandings
from windlass.plugins.devices.workload_mix import PATIENCE_SECONDS, MixSnapshot, observe
from windlass.spi.configuration import PluginOption
from windlass.spi.devices import DeviceMode
from windlass.spi.objects import Needs
from windlass.spi.plugins import Trend

T4 = {"model": "Tesla-T4", "memory_mib": 15360}
H100 = {"model": "NVIDIA-H100-80GB-HBM3", "memory_mib": 81920}


def points(plugin: GpuAware | Scarcity, needs, cards: Cards) -> dict[str, list[float]]:
    return {name: found.round(4).tolist() for name, (_, found) in plugin.parts(needs, cards.view).items()}


# ---------------------------------------------------------------------- gpu-aware


def test_memory_and_compute_are_what_is_in_use_afterwards():
    cards = Cards(Box("a", 4), Box("b", 2), Box("c", 0))
    cards.put("a", whole(1), 0)
    found = points(GpuAware(), whole(1), cards)
    assert found[MEMORY] == [50.0, 50.0, 0.0]
    assert found[COMPUTE] == [50.0, 50.0, 0.0]
    found = points(GpuAware(), part(500, memory_mib=8192), cards)
    assert found[MEMORY] == pytest.approx([100 * (81920 + 8192) / 327680, 100 * 8192 / 163840, 0.0], abs=1e-3)
    assert found[COMPUTE] == [37.5, 25.0, 0.0]


def test_a_small_claim_fits_a_small_card_better():
    cards = Cards(Box("big", 8, **H100), Box("small", 1, **T4))
    assert cards_best(cards, part(memory_mib=10240)) == "small"


def cards_best(cards: Cards, needs) -> str:
    score = GpuAware().score(needs, cards.view)
    assert score is not None
    return list(cards.view.names())[int(score.argmax())]


@pytest.mark.parametrize(
    ("boxes", "held", "count", "expected"),
    [
        ([Box("a", 4, links=[0, 0, 0, 0])], (), 4, 100.0),
        ([Box("a", 4, links=[0, 0, 1, 1], zones=[0, 0, 0, 0])], (), 4, 60.0),
        ([Box("a", 4, links=[0, 0, 1, 1], zones=[0, 0, 1, 1])], (), 3, 20.0),
        ([Box("a", 4, links=[0, 0, 1, 1], zones=[0, 0, 1, 1])], (0,), 2, 100.0),
        ([Box("a", 4, links=[0, 0, 1, 1], zones=[0, 0, 0, 1])], (0, 2), 2, 20.0),
        ([Box("a", 4)], (), 2, 20.0),
        ([Box("a", 4)], (), 1, 100.0),
        ([Box("a", 4, links=[0, 0, 1, 1])], (), 1, 0.0),
        ([Box("a", 4, links=[0, 0, 1, 1])], (0,), 1, 100.0),
        ([Box("a", 2, links=[0, 1])], (), 1, 100.0),
    ],
)
def test_cards_near_one_another(boxes, held, count, expected):
    cards = Cards(*boxes)
    if held:
        cards.put("a", whole(len(held)), *held)
    assert points(GpuAware(), whole(count), cards)[COMMS] == [expected]


def test_parts_add_up_to_the_score_by_their_weights():
    cards = Cards(Box("a", 4, zones=[0, 0, 1, 1]), Box("b", 2))
    cards.put("a", whole(1), 3)
    plugin = GpuAware(
        weights_of(PluginOption("gpu-aware", {}, {"gpuMemoryWeight": 2, "interGPUCommsWeight": 0}))
    )
    parts = plugin.parts(whole(2), cards.view)
    assert {name: weight for name, (weight, _) in parts.items()} == {MEMORY: 2.0, COMPUTE: 0.8}
    score = plugin.score(whole(2), cards.view)
    assert score is not None
    assert np.allclose(score * plugin.weight, sum(weight * found for weight, found in parts.values()))


def test_pods_without_cards_have_no_score_of_gpu_aware():
    cards = Cards(Box("a", 4))
    assert GpuAware().score(plain(4), cards.view) is None
    assert GpuAware().trend(plain(4)) is Trend.RISES
    assert GpuAware().trend(whole(1)) is Trend.ANY


@pytest.mark.parametrize("given", ["1", True, -1, None, inf, nan, 1e300])
def test_a_weight_that_is_none_is_refused(given):
    with pytest.raises(ValueError, match="gpuComputeWeight"):
        weights_of(PluginOption("gpu-aware", {}, {"gpuComputeWeight": given}))


# ---------------------------------------------------------------------- scarcity


def learned(cards: Cards) -> Scarcity:
    plugin = Scarcity()
    plugin.learn_from(0.0, cards.stock)
    return plugin


def test_one_model_has_nothing_to_say():
    cards = Cards(Box("a"), Box("b"))
    cards.ask(whole(1))
    plugin = learned(cards)
    assert plugin.score(whole(1), cards.view) is None
    assert plugin.trend(whole(1)) is Trend.RISES


def test_the_least_precious_card_that_serves():
    cards = Cards(Box("a", 8, **H100), Box("b", 4, **T4))
    cards.ask(plain(1))
    plugin = learned(cards)
    found = points(plugin, whole(1), cards)[MODEL]
    assert found[0] == 0.0
    assert found[1] == pytest.approx(50.0 * 0.95)


def test_a_model_that_others_cannot_do_without_is_kept_for_them():
    cards = Cards(Box("a", 2, **H100), Box("b", 8, **T4))
    for _ in range(6):
        cards.ask(whole(1, models=("T4",)))
    found = points(learned(cards), whole(1), cards)[MODEL]
    assert found == pytest.approx([0.0, 50.0 * (1 - 6 / 8)])


def test_wanted_are_models_that_not_everybody_takes():
    cards = Cards(Box("a", 2, **H100), Box("b", 4, **T4))
    cards.ask(whole(1, models=("T4", "H100")))
    cards.ask(part(500, models_not=("T4",)))
    moment = observe(cards.stock)
    assert demand_by_model(moment) == {"NVIDIA-H100-80GB-HBM3": 0.25, "Tesla-T4": 0.0}


def test_idle_cards_are_left_enough_cpu():
    cards = Cards(Box("a", 4, cpu=40, **H100), Box("b", 4, cpu=40, **T4), Box("c", 0, cpu=40))
    cards.ask(whole(1, cpu=8))
    plugin = learned(cards)
    assert points(plugin, plain(4), cards)[CPU] == [50.0, 50.0, 50.0]
    assert points(plugin, plain(24), cards)[CPU] == [25.0, 25.0, 50.0]
    cards.put("a", whole(2), 0, 1)
    assert points(plugin, plain(30), cards)[CPU][0] == pytest.approx(50.0 * 9 / 16)
    assert MODEL not in points(plugin, plain(4), cards)


class Untouched:
    """Device inventory that must not be read."""

    def __getattr__(self, name: str) -> object:
        pytest.fail("asked too soon")


def test_cpu_counts_for_pods_that_ask_for_more_than_is_usual():
    cards = Cards(Box("a", 4, cpu=16, **H100), Box("b", 4, cpu=64, **T4))
    for _ in range(9):
        cards.ask(whole(1, cpu=8))
    plugin = learned(cards)
    for needs, heavy in ((whole(1, cpu=8), False), (whole(2, cpu=17), True), (plain(0.1), True)):
        assert (CPU in points(plugin, needs, cards)) is heavy
        assert plugin.trend(needs) is (Trend.ANY if heavy else Trend.RISES)


def test_where_cards_are_shared_worth_decides_between_nodes_that_are_nearly_alike():
    cards = Cards(Box("a", 4, cpu=16, **H100), Box("b", 4, cpu=64, **T4))
    cards.ask(part(300))
    plugin = learned(cards)
    assert set(points(plugin, whole(1, cpu=8), cards)) == {MODEL}
    assert points(plugin, whole(1), cards)[MODEL] == [0.0, 5.0]
    assert plugin.trend(plain(30)) is Trend.RISES
    unknown = Cards(Box("a", 4, model="G2", memory_mib=16384), Box("b", 4, **T4))
    unknown.ask(part(300))
    assert learned(unknown).silent


def test_a_node_is_judged_alike_alone_and_among_others():
    cards = Cards(Box("a", 2, **H100), Box("b", 4, **T4), Box("c", 0), policies=[])
    cards.put("b", part(300), 1)
    cards.ask(part(700, models=("T4",)))
    table = cards.engine.state.table
    for plugin in (Scarcity(), Fgd(), GpuAware()):
        if not isinstance(plugin, GpuAware):
            plugin.learn_from(0.0, cards.stock)
        for needs in (plain(4), whole(1), whole(3), part(700), part(memory_mib=4096)):
            every = plugin.score(needs, cards.view)
            for row in range(3):
                alone = plugin.score(needs, TableView(table, np.array([row])))
                assert (every is None) is (alone is None)
                if every is not None and alone is not None:
                    assert alone[0] == every[row], (plugin.name, needs, row)


def test_a_mix_is_taken_over_when_it_is_another_one():
    cards = Cards(Box("a", 8, **H100), Box("b", 8, **T4))
    plugin = Scarcity()
    assert plugin.learn_from(0.0, cards.stock) is False  # no pods
    cards.ask(whole(1))
    assert plugin.learn_from(0.0, cards.stock) is True
    assert plugin.learn_from(PATIENCE_SECONDS - 1, Untouched()) is False
    assert plugin.learn_from(100.0, cards.stock) is False
    for _ in range(9):
        cards.ask(whole(1))
    assert plugin.learn_from(200.0, cards.stock) is False
    cards.ask(part(500))
    cards.ask(part(500))
    assert plugin.learn_from(300.0, cards.stock) is True


def test_what_is_learned_outlives_the_process():
    cards = Cards(Box("a", 8, **H100), Box("b", 8, **T4))
    cards.ask(whole(1, cpu=8, models=("H100",)))
    cards.ask(part(memory_mib=10240))
    for one, other in ((Scarcity(), Scarcity()), (Fgd(), Fgd())):
        one.learn_from(5.0, cards.stock)
        other.recall(msgspec.json.decode(msgspec.json.encode(one.remembered())))
        assert other.silent is one.silent is False
        for needs in (whole(1), part(300), whole(8)):
            expected, found = one.score(needs, cards.view), other.score(needs, cards.view)
            assert expected is not None
            assert found is not None
            assert found.tolist() == expected.tolist()
        assert other.learn_from(5.0 + PATIENCE_SECONDS - 1, Untouched()) is False
        assert other.learn_from(5.0 + PATIENCE_SECONDS, cards.stock) is False
    fresh = Scarcity()
    fresh.recall(msgspec.json.decode(msgspec.json.encode(Scarcity().remembered())))
    assert fresh.silent
    assert fresh.learn_from(0.0, cards.stock) is True


def test_cards_of_all_nodes_are_counted_by_model():
    cards = Cards(Box("a", 2, **H100), Box("b", 8, **T4), Box("c", 8, **T4), Box("d", 0))
    assert cards.stock.devices() == {("NVIDIA-H100-80GB-HBM3", 81920): 2, ("Tesla-T4", 15360): 16}
    assert cards.stock.empty()
    cards.ask(whole(1))
    assert not cards.stock.empty()
    assert not cards.stock.shares_requested()
    cards.ask(part(300))
    assert cards.stock.shares_requested()


def test_where_cards_can_be_sliced_packing_stays():
    cards = Cards(Box("a", 2), policies=[Fgd()])
    cards.ask(part(300))
    assert not observe(cards.stock).sliced
    sliced = Box("b", 1).node()
    sliced = replace(sliced, devices=(replace(sliced.devices[0], mode=DeviceMode.EITHER),))
    cards.engine.apply([NodeUpserted(sliced)])
    assert cards.stock.sliceable()
    plugin = Fgd()
    assert plugin.learn_from(0.0, cards.stock) is False
    assert plugin.silent


def test_the_middle_card_stands_for_all():
    cards = Cards(Box("a", 2, **H100), Box("b", 8, **T4), Box("c", 1, memory_mib=0))
    cards.ask(part(memory_mib=7680))
    moment = observe(cards.stock)
    assert moment.memory_mib == 15360
    assert [demand.milli for demand, _ in moment.pods] == [500]


def test_cpu_beside_a_card_is_the_mean():
    cards = Cards(Box("a"))
    cards.ask(whole(2, cpu=8))
    cards.ask(part(500, cpu=3))
    cards.ask(plain(100))
    assert cpu_per_device(observe(cards.stock)) == pytest.approx(11000 / 2.5)
    assert cpu_per_device(MixSnapshot()) == 0.0


# ---------------------------------------------------------------------- stranded


def stranded(cards: Cards) -> dict[str, dict[str, int]]:
    found = strandings(cards.kinds(), cards.view)
    return {name: found.reasons(at) for at, name in enumerate(cards.view.names())}


def test_cards_without_cpu_or_memory_beside_them_are_stranded():
    cards = Cards(Box("a", 4), Box("b", 4), Box("c", 4, memory_gib=8), Box("d", 0))
    cards.put("b", plain(62))
    cards.put("a", whole(1, cpu=4), 0)
    roomy = [(Needs((("cpu", 4000), ("memory", 16 << 30), (GPU, 1000))), 5)]
    found = strandings(roomy, cards.view)
    assert found.idle.tolist() == [3000, 4000, 4000, 0]
    assert [found.reasons(at) for at in range(4)] == [{}, {"cpu": 4000}, {"memory": 4000}, {}]
    found = strandings([*cards.kinds(), *roomy], cards.view)  # some need no memory
    assert [found.reasons(at) for at in range(4)] == [{}, {"cpu": 4000}, {}, {}]


def test_what_is_left_of_a_card_may_be_too_little_for_anybody():
    cards = Cards(Box("a", 2), Box("b", 2))
    cards.put("a", part(850), 0)
    cards.ask(part(300))
    cards.ask(whole(1))
    assert stranded(cards) == {"a": {"size": 150}, "b": {}}


def test_too_few_cards_at_once_are_of_no_use_to_those_who_want_many():
    cards = Cards(Box("a", 4), Box("b", 4))
    cards.put("a", whole(2), 0, 1)
    for _ in range(25):
        cards.ask(whole(4))
    assert stranded(cards) == {"a": {"size": 2000}, "b": {}}


def test_a_model_that_nobody_takes_is_stranded():
    cards = Cards(Box("a", 2, **H100), Box("b", 2, **T4))
    cards.ask(whole(1, models=("H100",)))
    assert stranded(cards) == {"a": {}, "b": {"model": 2000}}


def test_without_pods_one_card_with_one_cpu_is_usual():
    cards = Cards(Box("a", 2), Box("b", 2, cpu=0.5))
    assert stranded(cards) == {"a": {}, "b": {"cpu": 2000}}


def test_fragmented_is_what_the_mean_pod_could_not_use():
    cards = Cards(Box("a", 2))
    cards.put("a", part(700), 0)
    cards.ask(whole(1))
    found = strandings(cards.kinds(), cards.view)
    assert found.fragmented.tolist() == [300.0]
    assert found.reasons(0) == {"size": 300}


def test_whole_cards_that_nobody_can_name_count_as_taken():
    cards = Cards(Box("a", 4), Box("b", 4))
    cards.put("a", whole(3))
    cards.put("b", part(500), 0)
    found = free_milli(cards.view, cards.view.devices())
    assert found.tolist() == [[1000, 0, 0, 0], [500, 1000, 1000, 1000]]
    assert points(GpuAware(), whole(1), cards)[COMPUTE] == [100.0, 37.5]
