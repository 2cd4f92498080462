"""From a configuration to policies and actions; third parties' plugins by entry point."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from windlass.api.reasons import Reason
from windlass.engine.actions.registry import ACTIONS
from windlass.engine.deltas import GroupUpserted
from windlass.plugins import registry
from windlass.plugins.volcano.tiers import VolcanoTiers
from windlass.plugins.volcano_catalogue import CATALOGUE, Wiring
from windlass.spi.configuration import SWITCHES, PluginOption, PluginTier, SchedulerConfig, canonical_switch
from windlass.spi.objects import Dialect, Group, Needs, Task, TaskState
from windlass.spi.plugins import GroupOrder, QueueOrder, Rejection, Score, TaskOrder
from windlass.spi.quantities import is_device
from windlass.spi.shares import Division
from windlass.testing import Scene
from windlass.testing.scene import GPU

EXAMPLE = Path(__file__).parents[2] / "examples" / "05-low-priority-gate"


def tiered(*names: str, actions: tuple[str, ...] = (), **rest: object) -> SchedulerConfig:
    return SchedulerConfig(actions, (PluginTier(tuple(PluginOption(name) for name in names)),), **rest)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- switches


def test_a_switch_may_be_spelled_with_either_prefix() -> None:
    assert (
        canonical_switch("enableAllocatable")
        == canonical_switch("enabledAllocatable")
        == "enabledAllocatable"
    )
    assert canonical_switch("enabledJobOrder") == "enableJobOrder"
    assert canonical_switch("enableNothing") is None
    assert canonical_switch("jobOrder") is None
    assert all(canonical_switch(name) == name for name in SWITCHES)


def test_a_switch_that_is_not_named_has_its_default() -> None:
    option = PluginOption("capacity", {"enableJobOrder": False})
    assert not option.enabled("enableJobOrder")
    assert option.enabled("enableQueueOrder")
    assert not option.enabled("enableHierarchy")
    with pytest.raises(KeyError):
        option.enabled("enableWhatever")


# ---------------------------------------------------------------------- actions


def test_without_tiers_the_default_policy_runs_the_named_actions() -> None:
    _, actions = registry.build(SchedulerConfig(("enqueue", "allocate", "gangpreempt")))
    assert actions == ("allocate", "preempt")
    assert registry.build(SchedulerConfig())[1] == registry.DEFAULT_ACTIONS


def test_with_tiers_the_actions_are_volcanos_and_kais_beside() -> None:
    _, actions = registry.build(tiered("gang", actions=("enqueue", "allocate", "gangreclaim")))
    assert actions == (
        "volcano-enqueue",
        "allocate",
        "gangreclaim-surplus",
        "gangreclaim",
        "consolidation",
        "reclaim",
        "preempt",
        "stalegangeviction",
    )


def test_tiers_without_actions_run_volcanos_default() -> None:
    assert registry.build(tiered("gang"))[1][:3] == ("volcano-enqueue", "allocate", "volcano-backfill")


def test_every_action_that_tiers_may_name_exists() -> None:
    _, actions = registry.build(tiered("gang", actions=registry.ACTIONS))
    assert set(actions) <= set(ACTIONS)


def test_an_unknown_action_is_refused() -> None:
    with pytest.raises(registry.UnknownAction, match="action 'alocate' does not exist"):
        registry.build(SchedulerConfig(("alocate",)))


# ---------------------------------------------------------------------- plugins


def test_an_unknown_plugin_is_left_out_with_a_warning() -> None:
    told: list[str] = []
    plugins, _ = registry.build(tiered("gang", "bogus"), told.append)
    assert told == ["plugin 'bogus' is unknown and ignored"]
    assert any(isinstance(plugin, VolcanoTiers) for plugin in plugins)


def test_a_plugin_that_is_nearly_known_is_asked_about() -> None:
    told: list[str] = []
    registry.build(tiered("gangg"), told.append)
    registry.build(SchedulerConfig(plugins=(PluginOption("predikted"),)), told.append)
    assert told == [
        "plugin 'gangg' is unknown and ignored; did you mean gang?",
        "plugin 'predikted' is unknown and ignored; did you mean predicted?",
    ]


def test_a_warning_nobody_listens_to_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    registry.build(tiered("bogus"))
    assert "plugin 'bogus' is unknown" in caplog.text


def test_a_plugin_of_a_tier_has_no_place_outside_of_one() -> None:
    told: list[str] = []
    registry.build(SchedulerConfig(plugins=(PluginOption("gang"), PluginOption("nope"))), told.append)
    assert told == [
        "plugin 'gang' is ignored: it belongs into a tier",
        "plugin 'nope' is unknown and ignored",
    ]


def test_disabled_predicate_still_runs_with_a_warning() -> None:
    told: list[str] = []
    off = PluginOption("predicates", {}, {"predicate.PodAffinityEnable": "false"})
    plugins, _ = registry.build(SchedulerConfig((), (PluginTier((off,)),)), told.append)
    assert told
    assert "PodAffinityEnable cannot be disabled" in told[0]
    assert "PodAffinity" in {type(plugin).__name__ for plugin in plugins}


def test_a_predicate_that_is_switched_on_needs_no_word() -> None:
    told: list[str] = []
    on = PluginOption("predicates", {}, {"predicate.PodAffinityEnable": "true", "cacheEnable": "false"})
    registry.build(SchedulerConfig((), (PluginTier((on,)),)), told.append)
    assert told == []


FACETS = [
    ("gang", "enableJobStarving", "starving"),
    ("gang", "enablePreemptable", "preemptable"),
    ("gang", "enableReclaimable", "reclaimable"),
    ("priority", "enableJobStarving", "starving"),
    ("priority", "enablePreemptable", "preemptable"),
    ("conformance", "enablePreemptable", "preemptable"),
    ("conformance", "enableReclaimable", "reclaimable"),
    ("drf", "enablePreemptable", "preemptable"),
    ("proportion", "enableReclaimable", "reclaimable"),
    ("proportion", "enablePreemptive", "preemptive"),
    ("proportion", "enabledOverused", "overused"),
    ("proportion", "enabledAllocatable", "allocatable"),
    ("proportion", "enableJobEnqueued", "enqueueable"),
    ("capacity", "enableReclaimable", "reclaimable"),
    ("capacity", "enablePreemptive", "preemptive"),
    ("capacity", "enabledAllocatable", "allocatable"),
    ("capacity", "enableJobEnqueued", "enqueueable"),
    ("overcommit", "enableJobEnqueued", "enqueueable"),
    ("resourcequota", "enableJobEnqueued", "enqueueable"),
    ("sla", "enableJobEnqueued", "enqueueable"),
    ("cdp", "enablePreemptable", "preemptable"),
    ("cdp", "enableReclaimable", "reclaimable"),
    ("tdm", "enabledVictim", "victim_tasks"),
    ("tdm", "enablePreemptable", "preemptable"),
    ("tdm", "enableJobStarving", "starving"),
]


@pytest.mark.parametrize(("name", "switch", "facet"), FACETS)
def test_a_switch_turns_one_vote_on_and_off(name: str, switch: str, facet: str) -> None:
    voters = {}
    for on in (True, False):
        wiring = Wiring(pytest.fail)
        wiring.open_tier()
        CATALOGUE[name](PluginOption(name, {switch: on}), wiring)
        voters[on] = {each: len(getattr(wiring.tier, each)) for _, _, each in FACETS}
    assert voters[True] == {**voters[False], facet: 1}
    assert voters[False][facet] == 0


@pytest.mark.parametrize(
    ("name", "switch", "kind"),
    [
        ("gang", "enableJobOrder", GroupOrder),
        ("priority", "enableJobOrder", GroupOrder),
        ("priority", "enableTaskOrder", TaskOrder),
        ("drf", "enableJobOrder", GroupOrder),
        ("drf", "enableQueueOrder", QueueOrder),
        ("proportion", "enableQueueOrder", QueueOrder),
        ("capacity", "enableQueueOrder", QueueOrder),
        ("sla", "enableJobOrder", GroupOrder),
        ("tdm", "enableJobOrder", GroupOrder),
        ("nodeorder", "enableNodeOrder", Score),
        ("binpack", "enableNodeOrder", Score),
        ("resource-strategy-fit", "enableNodeOrder", Score),
    ],
)
def test_a_switch_turns_an_order_on_and_off(name: str, switch: str, kind: type) -> None:
    for on in (True, False):
        wiring = Wiring(pytest.fail)
        wiring.open_tier()
        CATALOGUE[name](PluginOption(name, {"enableHierarchy": True, switch: on}), wiring)
        assert any(isinstance(plugin, kind) for plugin in wiring.plugins) is on


def test_scores_that_are_switched_off_weigh_nothing() -> None:
    for name in ("usage", "nodegroup", "tdm"):
        wiring = Wiring(pytest.fail)
        wiring.open_tier()
        CATALOGUE[name](PluginOption(name, {"enableNodeOrder": False, "enabledVictim": False}), wiring)
        assert [getattr(plugin, "weight", 0.0) for plugin in wiring.plugins[:1]] == [0.0]


def test_beside_tiers_only_they_score_nodes_for_volcano_queues() -> None:
    plugins, _ = registry.build(tiered("gang", "binpack"))
    scores = [plugin for plugin in plugins if isinstance(plugin, Score)]
    assert [p.name for p in scores if Dialect.VOLCANO in p.dialects] == ["binpack"]
    assert any(Dialect.KAI in plugin.dialects for plugin in scores)


@pytest.mark.parametrize(
    ("named", "expected"),
    [((), {"enqueue", "allocate", "backfill"}), (("allocate", "preempt"), {"allocate", "preempt"})],
)
def test_tiers_know_their_actions_under_volcanos_names(named: tuple[str, ...], expected: set[str]) -> None:
    plugins, _ = registry.build(tiered("gang", actions=named))
    (tiers,) = [plugin for plugin in plugins if isinstance(plugin, VolcanoTiers)]
    assert tiers.actions == expected


def test_placement_alone_leaves_the_default_policy_in_force() -> None:
    option = PluginOption("nodeplacement", {}, {"gpu": "spread", "cpu": "spread"})
    plugins, actions = registry.build(SchedulerConfig(("allocate",), (PluginTier((option,)),)))
    assert actions == ("allocate",)
    assert not any(isinstance(plugin, VolcanoTiers) for plugin in plugins)


def test_every_known_plugin_can_be_entered() -> None:
    told: list[str] = []
    names = [name for name in registry.known_plugins() if name != "own-low-priority-gate"]
    registry.build(tiered(*(name for name in names if name not in registry.PLACEMENT)), told.append)
    assert [text for text in told if not text.startswith("rescheduling: ")] == []
    assert len(told) == 2  # it is given no targets, and the action is missing
    assert {"gang", "priority", "drf", "proportion", "capacity", "nodeorder", "binpack"} <= set(names)


def test_consolidation_may_be_named_beside_tiers() -> None:
    """Work that agreed to it is moved; nothing else of the default rules takes from Volcano queues."""
    for actions, expected in ((("allocate",), 0), (("allocate", "consolidation"), 1)):
        scene = Scene(config=tiered("priority", "gang", "predicates", "capacity", actions=actions))
        scene.node("n0", gpu=2)
        scene.node("n1", gpu=2)
        spread(scene)
        scene.gang("wide", gpu=2, priority=5)
        decision = scene.cycle()
        assert len(decision.evictions) == expected
        assert {eviction.action for eviction in decision.evictions} <= {"consolidation"}


def spread(scene: Scene) -> None:
    """One movable pod on each of two nodes with two GPUs."""
    for n in range(2):
        key = f"default/m{n}"
        group = Group(key, uid=key, admitted=True, annotations={"windlass.dev/movable": "true"})
        needs = Needs(request=((GPU, 1000),), namespace="default", dialect=Dialect.VOLCANO)
        task = Task(f"{key}-0", key, key, needs, state=TaskState.RUNNING, node=f"n{n}")
        scene.engine.apply([GroupUpserted(group)])
        scene._enter(task)


def test_shares_are_divided_whatever_the_tiers_say() -> None:
    for names in (("gang",), ("gang", "capacity"), ("gang", "proportion")):
        plugins, _ = registry.build(tiered(*names))
        dialects = [plugin.dialect for plugin in plugins if isinstance(plugin, Division)]
        assert sorted(dialects) == [Dialect.KAI, Dialect.VOLCANO]


# ---------------------------------------------------------------------- third parties


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example as if it had been installed with pip."""
    home = tmp_path / "low_priority_gate-0.1.dist-info"
    home.mkdir()
    (home / "METADATA").write_text("Metadata-Version: 2.1\nName: low-priority-gate\nVersion: 0.1\n")
    (home / "entry_points.txt").write_text(
        "[windlass.plugins]\nown-low-priority-gate = low_priority_gate:LowPriorityGate\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delitem(sys.modules, "low_priority_gate", raising=False)


@pytest.mark.usefixtures("installed")
def test_a_third_partys_plugin_comes_by_entry_point() -> None:
    option = PluginOption("own-low-priority-gate", {}, {"nodes": 2})
    for config in (SchedulerConfig(plugins=(option,)), SchedulerConfig((), (PluginTier((option,)),))):
        plugins, _ = registry.build(config)
        (gate,) = [plugin for plugin in plugins if type(plugin).__name__ == "LowPriorityGate"]
        assert gate.nodes == 2  # type: ignore[attr-defined]
    assert "own-low-priority-gate" in registry.known_plugins()


@pytest.mark.usefixtures("installed")
def test_a_third_partys_plugin_of_a_configuration_takes_effect() -> None:
    scene = Scene(config=SchedulerConfig(plugins=(PluginOption("own-low-priority-gate"),)))
    for n in range(5):
        scene.node(f"n{n}", gpu=1)
    scene.gang("busy", pods=3, gpu=1)
    scene.cycle()
    scene.gang("low", gpu=1, labels={"aigc.kurator.dev/priority": "low"})
    scene.gang("high", gpu=1, labels={"aigc.kurator.dev/priority": "high"})
    scene.cycle()
    assert scene.where("low") == {}
    assert scene.where("high") != {}


def test_the_guide_says_what_the_example_does() -> None:
    guide = (EXAMPLE.parents[1] / "docs" / "guides" / "write-a-policy.md").read_text()
    blocks = [part.partition("```")[0] for part in guide.split("```python\n")[1:]]
    known: dict[str, Any] = {"Rejection": Rejection, "Reason": Reason, "is_device": is_device}
    for block in blocks:
        exec(compile(block, "write-a-policy.md", "exec"), known)
    for name, value in list(known.items()):
        if name.startswith("test_"):
            value()
    assert {"test_low_priority_waits", "test_contract"} <= set(known)


def test_the_example_passes_its_own_tests() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    done = subprocess.run(
        [*command, "--rootdir", str(EXAMPLE), str(EXAMPLE)],
        cwd=EXAMPLE,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout


class _OnlyVotes:
    """A third party's plugin that is no order."""

    name = "only-votes"

    def overused(self, queue: object) -> bool:
        return False


@pytest.mark.parametrize("order", [True, False])
def test_a_plugin_without_orders_is_entered_whatever_orders_are_switched_off(order: bool) -> None:
    wiring = Wiring(pytest.fail)
    wiring.open_tier()
    flags = {"enableJobOrder": order, "enableNodeOrder": order, "enabledOverused": True}
    wiring.enter_any(plugin := _OnlyVotes(), PluginOption("only-votes", flags))
    assert wiring.plugins == [plugin]
    assert wiring.tier.overused == [plugin]
