"""``deviceshare``: which device of a node, and which node, for parts of devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from device_views import Box, Cards, part, plain, whole

from windlass.plugins import registry
from windlass.plugins.volcano.nodes.deviceshare import DevicePolicy, DeviceShareScore, build
from windlass.spi.configuration import PluginOption, PluginTier, SchedulerConfig
from windlass.spi.objects import Dialect, Needs
from windlass.spi.plugins import Trend


def volcano(needs: Needs) -> Needs:
    return replace(needs, dialect=Dialect.VOLCANO)


def scene(policy: str) -> Cards:
    cards = Cards(Box("a", 3), policies=[DevicePolicy(policy)])
    cards.put("a", volcano(part(memory_mib=8192)), 0)
    cards.put("a", volcano(part(memory_mib=8192)), 0)
    cards.put("a", volcano(part(memory_mib=40960)), 1)
    return cards


@pytest.mark.parametrize(("policy", "card"), [("binpack", 1), ("spread", 2), ("", 2)])
def test_the_policy_chooses_the_card(policy, card):
    assert scene(policy).place(volcano(part(memory_mib=4096))) == ("a", (card,))


def test_spread_counts_users_not_memory():
    cards = scene("spread")
    cards.put("a", volcano(whole(1)), 2)
    assert cards.place(volcano(part(memory_mib=4096))) == ("a", (1,))


def test_other_queues_and_a_pods_own_word_are_left_alone():
    assert scene("spread").place(part(memory_mib=4096)) == ("a", (1,))  # packed, as by default
    assert scene("binpack").place(volcano(part(memory_mib=4096, pack=False))) == ("a", (2,))


@pytest.mark.parametrize(
    ("policy", "expected"), [("binpack", [60.0, 10.0, 0.0]), ("spread", [0.0, 100.0, 0.0])]
)
def test_nodes_are_scored_by_the_card_that_would_be_taken(policy, expected):
    cards = Cards(Box("a", 1), Box("b", 2), Box("c", 0))
    cards.put("a", part(memory_mib=40960), 0)
    score = DeviceShareScore(policy, 1.0).score(part(memory_mib=8192), cards.view)
    assert score is not None
    assert score.tolist() == expected


def test_the_mean_over_several_cards():
    cards = Cards(Box("a", 3))
    cards.put("a", part(memory_mib=40960), 0)
    score = DeviceShareScore("binpack", 1.0).score(replace_count(part(memory_mib=8192), 2), cards.view)
    assert score is not None
    assert score.tolist() == [35.0]


def replace_count(needs: Needs, count: int) -> Needs:
    return replace(needs, devices=(replace(needs.devices[0], count=count),))


def test_whole_cards_and_plain_pods_have_no_score():
    cards = Cards(Box("a", 1))
    plugin = DeviceShareScore("binpack", 1.0)
    for needs in (whole(1), whole(1, models=("A100",)), plain(1)):
        assert plugin.score(needs, cards.view) is None
    assert plugin.trend(plain(1)) is Trend.RISES
    assert plugin.trend(part(500)) is Trend.ANY


@pytest.mark.parametrize(
    ("arguments", "scores", "weight"),
    [
        ({}, True, None),
        ({"deviceshare.SchedulePolicy": "binpack"}, True, None),
        ({"deviceshare.SchedulePolicy": "binpack", "deviceshare.ScheduleWeight": 10}, True, 10.0),
        ({"deviceshare.SchedulePolicy": "spread", "deviceshare.ScheduleWeight": "5"}, True, 5.0),
        ({"deviceshare.SchedulePolicy": "binpack", "deviceshare.ScheduleWeight": 10}, False, None),
        ({"deviceshare.ScheduleWeight": 10}, True, None),
    ],
)
def test_nodes_are_scored_only_with_a_weight_and_a_policy(arguments, scores, weight):
    found = [p.weight for p in build(arguments, scores=scores) if isinstance(p, DeviceShareScore)]
    assert found == ([] if weight is None else [weight])


def test_a_configuration_enters_it_and_switches_cannot_take_vocabularies_away():
    told: list[str] = []
    option = PluginOption(
        "deviceshare", {}, {"deviceshare.VGPUEnable": False, "deviceshare.SchedulePolicy": "spread"}
    )
    plugins, _ = registry.build(SchedulerConfig((), (PluginTier((option,)),)), told.append)
    assert any(isinstance(plugin, DevicePolicy) for plugin in plugins)
    assert told == ["deviceshare.VGPUEnable cannot be disabled: GPU shares of all device plugins are placed"]
