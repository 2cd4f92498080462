"""KAI's choice among devices for fractions, and of nodes with room on a shared device."""

from __future__ import annotations

from dataclasses import replace

import pytest
from device_views import Box, Cards, part, whole

from windlass.plugins import registry
from windlass.plugins.kai.device_scores import GpuPlacement, SharingOrder, build
from windlass.spi.configuration import PluginOption, PluginTier, SchedulerConfig
from windlass.spi.objects import Dialect, Needs


def kai(needs: Needs) -> Needs:
    return replace(needs, dialect=Dialect.KAI)


@pytest.mark.parametrize(("pack", "card"), [(True, 1), (False, 2)])
def test_the_fullest_card_or_a_free_one(pack, card):
    cards = Cards(Box("a", 3), policies=[GpuPlacement(pack=pack)])
    cards.put("a", kai(part(200)), 0)
    cards.put("a", kai(part(memory_mib=40960)), 1)
    assert cards.place(kai(part(300))) == ("a", (card,))


def test_memory_counts_like_compute():
    cards = Cards(Box("a", 2), policies=[GpuPlacement(pack=False)])
    cards.put("a", kai(part(400)), 0)
    cards.put("a", kai(part(memory_mib=8192)), 1)
    assert cards.place(kai(part(300))) == ("a", (1,))


def test_other_queues_are_left_alone():
    cards = Cards(Box("a", 2), policies=[GpuPlacement(pack=False)])
    cards.put("a", part(400), 0)
    assert cards.place(part(300)) == ("a", (0,))


def test_nodes_with_room_on_a_shared_card_go_first():
    cards = Cards(Box("a", 2), Box("b", 2), Box("c", 2), Box("d", 0))
    cards.put("b", part(500), 0)
    cards.put("c", part(800), 0)
    cards.put("c", whole(1), 1)
    plugin = SharingOrder()
    score = plugin.score(part(400), cards.view)
    assert score is not None
    assert score.tolist() == [0.0, 100.0, 0.0, 0.0]
    assert plugin.score(whole(1), cards.view) is None


def named(*names: str) -> list[object]:
    options = tuple(PluginOption(name) for name in names)
    return registry.build(SchedulerConfig((), (PluginTier(options),)))[0]


@pytest.mark.parametrize(
    ("names", "cards", "sharing"),
    [
        ((), "gpupack", True),
        (("nodeplacement",), "gpupack", False),
        (("nodeplacement", "gpuspread"), "gpuspread", False),
        (("gpupack", "gpusharingorder"), "gpupack", True),
        (("gpusharingorder", "gpuspread"), "gpuspread", True),
    ],
)
def test_a_list_of_kais_placement_plugins_is_the_whole_of_it(names, cards, sharing):
    found = named(*names) if names else registry.build(SchedulerConfig())[0]
    assert [p.name for p in found if isinstance(p, GpuPlacement)] == [cards]
    assert any(isinstance(p, SharingOrder) for p in found) is sharing


def test_another_strategy_is_refused():
    with pytest.raises(ValueError, match="binpack or spread"):
        build("tight", sharing_first=True)
