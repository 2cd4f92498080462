"""Old names of the plugin surface are accepted with a warning."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.groups.queue_entry import QueueEntry
from windlass.engine.nodes.view import TableView
from windlass.engine.queueing.tier_views import EngineGangView
from windlass.engine.state.capacity_totals import CapacityTotals
from windlass.plugins import registry
from windlass.plugins.volcano.tiers import VolcanoTiers
from windlass.scheduler.extender.node_extender import HttpNodeExtender
from windlass.spi import extender, plugins, renamed, victims, views
from windlass.spi.configuration import PluginOption, SchedulerConfig
from windlass.spi.objects import Group
from windlass.testing import Scene, check

NAMES = [(module, old, new) for module, names in renamed.NAMES.items() for old, new in names.items()]
ATTRIBUTES = [(owner, old, new) for owner, names in renamed.ATTRIBUTES.items() for old, new in names.items()]
IMPLEMENTED = {
    "ClusterTotals": CapacityTotals,
    "GangView": EngineGangView,
    "GroupView": GroupEntry,
    "NodeExtender": HttpNodeExtender,
    "NodeView": TableView,
    "QueueView": QueueEntry,
    "Tiers": VolcanoTiers,
}
"""Protocol → the class that implements it."""


# ---------------------------------------------------------------------- modules and names


@pytest.fixture
def unloaded() -> Iterator[None]:
    """Old modules are not imported, neither before nor after the test."""

    def drop() -> None:
        for old in renamed.MODULES:
            sys.modules.pop(f"windlass.spi.{old}", None)
            vars(sys.modules["windlass.spi"]).pop(old, None)

    drop()
    yield
    drop()


@pytest.mark.parametrize(("old", "new"), renamed.MODULES.items())
def test_old_module_is_the_new_one(old: str, new: str, unloaded: None) -> None:
    with pytest.warns(DeprecationWarning, match=f"use windlass.spi.{new}"):
        module = importlib.import_module(f"windlass.spi.{old}")
    target = importlib.import_module(f"windlass.spi.{new}")
    public = [
        name for name, member in vars(target).items() if getattr(member, "__module__", "") == target.__name__
    ]
    assert public
    for name in public:
        assert getattr(module, name) is getattr(target, name)
    assert module.__doc__ == target.__doc__


def test_old_names_of_a_moved_module_are_those_of_the_new_one(unloaded: None) -> None:
    with pytest.warns(DeprecationWarning, match="module windlass.spi.waiting"):
        waiting = importlib.import_module("windlass.spi.waiting")
    with pytest.warns(DeprecationWarning, match=r"inputs\.HearsWaiting"):
        found = waiting.HearsWaiting
    assert found is importlib.import_module("windlass.spi.inputs").TakesPendingTasks


@pytest.mark.parametrize(("module", "old", "new"), NAMES)
def test_old_name_is_the_new_one(module: str, old: str, new: str) -> None:
    loaded = importlib.import_module(f"windlass.spi.{module}")
    with pytest.warns(DeprecationWarning, match=rf"windlass\.spi\.{module}\.{new}\."):
        assert getattr(loaded, old) is vars(loaded)[new]


def test_old_name_of_the_testing_tools() -> None:
    from windlass import testing

    with pytest.warns(DeprecationWarning, match=r"windlass\.testing\.ContractViolation\."):
        assert testing.BrokenPromise is testing.ContractViolation  # type: ignore[attr-defined]


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'windlass\.spi\.plugins' has no attribute 'Nothing'"):
        _ = plugins.Nothing  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- attributes


@pytest.mark.parametrize(("owner", "old", "new"), ATTRIBUTES)
def test_old_attribute_returns_the_value_of_the_new_one(owner: str, old: str, new: str) -> None:
    made = renamed.attributes_of(owner)(type(owner, (), {new: 7}))
    with pytest.warns(DeprecationWarning, match=rf"{owner}\.{old} .* use {owner}\.{new}\."):
        assert getattr(made(), old) == 7


@pytest.mark.parametrize("owner", renamed.ATTRIBUTES)
def test_each_class_has_its_old_attributes(owner: str) -> None:
    modules = [importlib.import_module(f"windlass.spi.{module}") for module in renamed.NAMES]
    found = next(vars(module)[owner] for module in modules if owner in vars(module))
    implemented = IMPLEMENTED.get(owner, found)
    for old, new in renamed.ATTRIBUTES[owner].items():
        assert isinstance(vars(implemented)[old], property), old
        assert hasattr(found, new) or new in found.__annotations__, new


def test_old_attributes_of_a_struct_and_of_a_method() -> None:
    step = views.StepView(Group("ns/g"), {}, 1, elastic=True)
    with pytest.warns(DeprecationWarning, match=r"StepView\.extra"):
        assert step.extra is True  # type: ignore[attr-defined]
    hooks = extender.ExtenderEndpoints("http://x")
    with pytest.warns(DeprecationWarning, match=r"ExtenderEndpoints\.concerned"):
        assert hooks.concerned == hooks.applies_to  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- hooks


def answer(*args: Any) -> str:
    return "answer"


@pytest.mark.parametrize("hooks", renamed.HOOKS, ids=" ".join)
def test_old_hooks_get_new_names(hooks: Mapping[str, str]) -> None:
    policy = type("Old", (), dict.fromkeys(hooks, answer))()
    with pytest.warns(DeprecationWarning, match=r"Old\.") as warnings:
        assert renamed.accept_old_hooks(policy) == hooks
    assert [str(warning.message).partition(" ")[0] for warning in warnings] == [f"Old.{old}" for old in hooks]
    for new in hooks.values():
        assert getattr(policy, new)() == "answer"
    assert renamed.accept_old_hooks(policy) == {}


@pytest.mark.parametrize("hooks", renamed.HOOKS, ids=" ".join)
def test_new_hooks_exist(hooks: Mapping[str, str]) -> None:
    modules = [importlib.import_module(f"windlass.spi.{module}") for module in renamed.NAMES]
    text = "\n".join(inspect.getsource(module) for module in modules)
    for new in hooks.values():
        assert f"def {new}(" in text or f"    {new}:" in text or f"``{new}" in text, new


def test_old_hook_of_an_instance() -> None:
    class Old:
        __slots__ = ("__dict__",)

    policy = Old()
    policy.amounts_decide = True  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match=r"Old\.amounts_decide"):
        renamed.accept_old_hooks(policy)
    assert policy.resources_only is True  # type: ignore[attr-defined]


def test_hooks_that_belong_together_are_accepted_together() -> None:
    class Half:
        spares = answer

    assert renamed.accept_old_hooks(Half()) == {}


def test_stub_of_a_protocol_is_no_implementation() -> None:
    class Old(plugins.NodeBlockers):
        def findings(self, needs: Any, nodes: Any) -> list[Any]:
            return ["mine"]

    policy = Old()
    with pytest.warns(DeprecationWarning, match=r"Old\.findings"):
        renamed.accept_old_hooks(policy)
    assert policy.blockers(None, None) == ["mine"]  # type: ignore[arg-type]


def old_protection() -> type[Any]:
    """A policy that is written against the old names."""

    class OldProtection:
        name = "old-protection"
        spares_no_queue = True

        def __init__(self, option: PluginOption | None = None) -> None:
            self.calls = 0

        def spares_queue(self, claim: Any, path: Any) -> bool:
            return False

        def spares(self, claim: Any, unit: Any) -> bool:
            self.calls += 1
            return True

    return OldProtection


def scene(*policies: object) -> Scene:
    found = Scene(*policies)
    found.node("n1", gpu=1)
    found.gang("low", gpu=1)
    found.cycle()
    found.gang("high", gpu=1, priority=10)
    found.cycle()
    return found


def test_old_policy_is_asked_by_the_engine() -> None:
    policy = old_protection()()
    with pytest.warns(DeprecationWarning, match=r"OldProtection\.spares"):
        scene(policy)
    assert policy.calls > 0
    assert isinstance(policy, victims.VictimFilter)


def test_old_policy_passes_the_check() -> None:
    class Old:
        name = "old"
        footprint = plugins.Footprint.STATIC

        def filter(self, needs: Any, nodes: Any) -> Any:
            return np.ones(nodes.size, dtype=np.bool_)

        def findings(self, needs: Any, nodes: Any) -> list[plugins.NodeBlocker]:
            return []

    with pytest.warns(DeprecationWarning, match=r"Old\.findings"):
        check(Old())


def test_registry_warns_of_old_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name = "mine"

        def load(self) -> type[Any]:
            return old_protection()

    monkeypatch.setattr(registry, "_entry_points", lambda: [Point()])
    told: list[str] = []
    config = SchedulerConfig(plugins=(PluginOption("mine"),))
    with pytest.warns(DeprecationWarning, match=r"OldProtection\.spares"):
        built, _ = registry.build(config, told.append)
    assert isinstance(built[-1], victims.VictimFilter)
    assert told == [
        "plugin 'mine' implements names that the next version does not read: spares_queue (now protects_queue), "
        "spares (now protects_victim), spares_no_queue (now protects_no_queue)"
    ]
