"""The extension surface: every built-in policy fits it, and it is documented."""

from __future__ import annotations

import inspect

import pytest

from windlass.engine.plugin_set import PluginSet
from windlass.plugins.defaults import default_plugins
from windlass.spi import devices, nodes, numa, plugins, scoring, shares, timeshare, topology, victims
from windlass.spi.objects import Dialect, Needs

PROTOCOLS = [
    plugins.Filter,
    plugins.Capacity,
    plugins.NodeBlockers,
    plugins.Domain,
    plugins.Score,
    plugins.RelativeScore,
    plugins.QueueOrder,
    plugins.GroupOrder,
    plugins.TaskOrder,
    plugins.Admit,
    shares.Division,
    devices.DeviceChoice,
]
ELSEWHERE = [
    victims.PreemptionPolicy,
    victims.VictimFilter,
    victims.VictimOrder,
    victims.VictimSetRule,
    timeshare.TimeSharing,
]
"""Protocols that are tested with the actions that ask them."""


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.__name__)
def test_every_protocol_has_a_built_in_policy_with_the_same_parameters(protocol: type) -> None:
    found = [plugin for plugin in default_plugins() if isinstance(plugin, protocol)]
    assert found
    methods = [
        name for name, member in vars(protocol).items() if callable(member) and not name.startswith("_")
    ]
    for plugin in found:
        for name in methods:
            mine = list(inspect.signature(getattr(type(plugin), name)).parameters)
            assert mine == list(inspect.signature(getattr(protocol, name)).parameters), (plugin, name)


@pytest.mark.parametrize("module", [devices, nodes, numa, plugins, scoring, shares, timeshare, topology])
def test_everything_public_is_documented(module) -> None:
    for name, member in vars(module).items():
        if inspect.isclass(member) and member.__module__ == module.__name__:
            assert member.__doc__, name
            for attribute, value in vars(member).items():
                if inspect.isfunction(value) and not attribute.startswith("_"):
                    assert value.__doc__, f"{name}.{attribute}"


def test_every_policy_does_something_and_has_a_name_of_its_own() -> None:
    names = [plugin.name for plugin in default_plugins()]  # type: ignore[attr-defined]
    assert len(set(names)) == len(names)
    for plugin in default_plugins():
        assert any(isinstance(plugin, protocol) for protocol in (*PROTOCOLS, *ELSEWHERE)), plugin


def test_policies_are_sorted_by_what_they_do() -> None:
    plugins = PluginSet(default_plugins())
    assert [p.name for p in plugins.static_filters] == [
        "availability",
        "node-affinity",
        "taints",
        "spread-labels",
    ]
    assert [p.name for p in plugins.capacities] == ["resources"]
    assert [p.name for p in plugins.domains] == [
        "host-ports",
        "pod-affinity",
        "topology-spread",
        "numa",
        "volumes",
    ]
    assert [p.name for p in plugins.scores(Dialect.WINDLASS).row] == ["binpack"]
    assert plugins.countable
    assert plugins.shares_rows
    assert plugins.score_never_falls(Needs(request=(("cpu", 1),)))
    assert not plugins.score_never_falls(Needs())


def test_a_scorer_without_weight_is_left_out() -> None:
    plugins = PluginSet(default_plugins())
    plugins.scores(Dialect.WINDLASS).row[0].weight = 0
    assert PluginSet(plugins.plugins).scores(Dialect.WINDLASS).row == ()
