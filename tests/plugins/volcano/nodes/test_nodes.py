"""Volcano's policies about nodes: their formulas and their arguments."""

from __future__ import annotations

import numpy as np
import pytest
from cluster_dsl import GIB, GPU, Cluster, needs, node

from windlass.api.reasons import Reason
from windlass.engine.nodes.table import USED, NodeTable
from windlass.engine.nodes.view import TableView
from windlass.plugins.default_node_plugins import CountingPluginSet
from windlass.plugins.defaults import default_plugins
from windlass.plugins.volcano.nodes import (
    binpack,
    nodegroup,
    nodeorder,
    resource_strategy_fit,
    revocable,
    usage,
)
from windlass.spi.inputs import NodeLoad, TakesLoads
from windlass.spi.objects import (
    Dialect,
    Expression,
    Needs,
    Node,
    NodeGroups,
    NodeTerm,
    Scoring,
    Toleration,
    WeightedNodeTerm,
)
from windlass.spi.plugins import Trend


def want(text: str = "", **rest) -> Needs:
    return needs(text, dialect=Dialect.VOLCANO, **rest)


def nodes(*texts: str) -> TableView:
    table = NodeTable()
    for text in texts:
        table.upsert(node(text))
    return TableView(table)


def use(view: TableView, row: int, resource: str, units: int) -> None:
    view._table.planes[row, USED, view._table.column(resource)] = units


def scores(plugin, wants: Needs, view: TableView) -> list[float]:
    return [round(score, 6) for score in plugin.score(wants, view).tolist()]


# ---------------------------------------------------------------------- binpack


def test_packing_looks_at_a_gpu_only_where_it_is_listed() -> None:
    view = nodes("n1 gpu=8 cpu=10 mem=100", "n2 gpu=8 cpu=10 mem=100")
    use(view, 0, GPU, 4000)
    use(view, 1, "cpu", 5000)
    (plain,) = binpack.build({})
    assert scores(plain, want("gpu=1 cpu=1"), view) == [10.0, 60.0]
    listed = {
        "binpack.resources": f"{GPU}, example.com/none",
        f"binpack.resources.{GPU}": 3,
        "binpack.cpu": "1",
    }
    (plugin,) = binpack.build(listed)
    assert scores(plugin, want("gpu=1 cpu=1"), view) == [
        round(100 * (3 * 5 / 8 + 1 / 10) / 4, 6),
        round(100 * (3 * 1 / 8 + 6 / 10) / 4, 6),
    ]


def test_what_a_node_lacks_or_has_too_little_of_adds_nothing_but_divides() -> None:
    view = nodes("n1 cpu=10", "n2 gpu=1 cpu=10", "n3 gpu=2 cpu=10")
    (plugin,) = binpack.build({"binpack.resources": GPU})
    assert scores(plugin, want("gpu=2 cpu=1"), view) == [5.0, 5.0, 55.0]


def test_weights_of_packing() -> None:
    assert binpack.build({"binpack.weight": 0}) == []
    (plugin,) = binpack.build({"binpack.weight": 7, "binpack.cpu": -3, "binpack.memory": 0})
    assert plugin.weight == 7
    view = nodes("n1 cpu=10 mem=10")
    assert scores(plugin, want("cpu=4 mem=9"), view) == [40.0]
    (negative,) = binpack.build({"binpack.cpu": -3})
    assert scores(negative, want("cpu=4 mem=9"), view) == [65.0]
    assert scores(negative, Needs(request=(("cpu", 0), ("memory", 9 * GIB))), view) == [90.0]
    assert plugin.score(want("mem=9"), view) is None
    assert plugin.trend(want()) is Trend.RISES


# ---------------------------------------------------------------------- nodeorder


def order(arguments: dict) -> dict[str, object]:
    counting = CountingPluginSet()
    return {p.name: p for p in nodeorder.build(arguments, counting.affinity, counting.spread)}


def test_the_parts_of_nodeorder_have_kube_schedulers_weights() -> None:
    assert {name: p.weight for name, p in order({}).items()} == {
        "imagelocality": 1,
        "leastrequested": 1,
        "balancedresource": 1,
        "nodeaffinity": 2,
        "podaffinity": 2,
        "tainttoleration": 3,
        "podtopologyspread": 2,
    }
    found = order({"mostrequested.weight": "2", "leastrequested.weight": 0, "tainttoleration.weight": -1})
    assert found["mostrequested"].weight == 2
    assert "leastrequested" not in found
    assert "tainttoleration" not in found


def test_least_and_most_requested_round_down_twice() -> None:
    view = nodes("n1 cpu=3 mem=7", "n2 cpu=4 mem=8")
    use(view, 0, "cpu", 1000)
    found = order({"mostrequested.weight": 1})
    least = [(100 * 1000 // 3000 + 100 * 6 // 7) // 2, (100 * 3000 // 4000 + 100 * 7 // 8) // 2]
    most = [(100 * 2000 // 3000 + 100 * 1 // 7) // 2, (100 * 1000 // 4000 + 100 * 1 // 8) // 2]
    assert scores(found["leastrequested"], want("cpu=1 mem=1"), view) == least
    assert scores(found["mostrequested"], want("cpu=1 mem=1"), view) == most


def test_a_pod_without_requests_counts_as_a_little_of_each() -> None:
    view = nodes("n1 cpu=1 mem=1")
    found = order({"mostrequested.weight": 1})
    assert scores(found["mostrequested"], want(), view) == [(10 + 100 * (200 << 20) // GIB) // 2]


def test_a_node_without_memory_is_judged_by_its_cpu() -> None:
    view = nodes("n1")
    view._table.upsert(Node("bare", {"cpu": 4000}))
    assert scores(order({})["leastrequested"], want("cpu=1"), TableView(view._table))[1] == 75
    view._table.upsert(Node("bare", {"cpu": 1}))
    assert (
        scores(order({"mostrequested.weight": 1})["mostrequested"], want(), TableView(view._table))[1] == 100
    )


def test_balanced_is_one_less_the_deviation_of_the_shares_in_use() -> None:
    view = nodes("n1 cpu=10 mem=10", "n2 cpu=10 mem=10 gpu=10")
    use(view, 1, "cpu", 5000)
    plugin = order({})["balancedresource"]
    assert scores(plugin, want("cpu=2 mem=2"), view) == [100.0, 75.0]
    shares = np.array([0.7, 0.2, 0.1])
    assert scores(plugin, want("cpu=2 mem=2 gpu=1"), view)[1] == np.floor(100 * (1 - shares.std()))


def test_a_resource_that_is_used_beyond_all_there_is_counts_as_full() -> None:
    view = nodes("n1 cpu=10 mem=10")
    use(view, 0, "cpu", 30000)
    use(view, 0, "memory", 4 << 30)
    assert scores(order({})["balancedresource"], want("cpu=1 mem=1"), view) == [75.0]


def test_preferred_nodes_are_scaled_to_the_best_candidate() -> None:
    view = nodes("n1 zone=a disk=ssd", "n2 zone=a", "n3 disk=ssd")
    prefers = tuple(
        WeightedNodeTerm(weight, NodeTerm((Expression(key, "In", (value,)),)))
        for weight, key, value in ((30, "zone", "a"), (10, "disk", "ssd"))
    )
    plugin = order({})["nodeaffinity"]
    wants = want(preferred_nodes=prefers)
    assert plugin.has_preference(0, wants, view)
    assert not plugin.has_preference(0, want(), view)
    everyone = np.ones(3, dtype=bool)
    assert plugin.relative(0, wants, view, everyone).tolist() == [100, 75, 25]
    assert plugin.relative(0, wants, view, np.array([False, False, True]))[2] == 100


def test_soft_taints_are_scaled_to_the_worst_candidate() -> None:
    soft = "taint=a=1:PreferNoSchedule"
    view = nodes(f"n1 {soft} taint=b=1:PreferNoSchedule", f"n2 {soft}", "n3")
    plugin = order({})["tainttoleration"]
    assert plugin.has_preference(0, want(), view)
    everyone = np.ones(3, dtype=bool)
    assert plugin.relative(0, want(), view, everyone).tolist() == [0, 50, 100]
    calm = want(tolerations=(Toleration("", "Exists"),))
    assert not plugin.has_preference(0, calm, view)


# ---------------------------------------------------------------------- resource-strategy-fit


def test_each_resource_has_its_strategy() -> None:
    view = nodes("n1 gpu=8 cpu=10", "n2 gpu=8 cpu=10", "n3 cpu=10")
    use(view, 0, GPU, 4000)
    arguments = {
        "resources": {
            "nvidia.com/*": {"type": "MostAllocated", "weight": 2},
            "nvidia.com/gpu*": {"type": "MostAllocated", "weight": 3},
            "cpu": {"type": "Nonsense", "weight": 0},
            "*": {"type": "MostAllocated"},
        }
    }
    (plugin,) = resource_strategy_fit.build(arguments)
    assert plugin.weight == 10
    assert scores(plugin, want("gpu=1 cpu=5"), view) == [
        round(100 * (3 * 5 / 8 + 0.5) / 4, 6),
        round(100 * (3 * 1 / 8 + 0.5) / 4, 6),
        12.5,
    ]
    assert scores(plugin, want("gpu=5 cpu=5"), view)[0] == 0
    assert plugin.trend(want("gpu=1")) is Trend.RISES
    assert plugin.trend(want("cpu=1")) is Trend.FALLS
    assert plugin.trend(want("cpu=1 gpu=1")) is Trend.ANY


def test_a_pod_may_have_a_strategy_of_its_own() -> None:
    (plugin,) = resource_strategy_fit.build({})
    view = nodes("n1 cpu=10 mem=10", "n2 cpu=10 mem=10")
    use(view, 0, "cpu", 5000)
    most = want("cpu=1 mem=1", scoring=Scoring("MostAllocated", (("cpu", 3), ("gpu", 1))))
    assert scores(plugin, most, view) == [60.0, 10.0]
    assert plugin.trend(most) is Trend.RISES
    for scoring in (Scoring("MostAllocated"), Scoring("Other", (("cpu", 1),))):
        assert plugin.score(want("cpu=1 mem=1", scoring=scoring), view) is None


def test_without_resources_the_emptiest_node_is_best() -> None:
    (plugin,) = resource_strategy_fit.build({"resourceStrategyFitWeight": -4})
    assert plugin.weight == 10
    view = nodes("n1 cpu=10 mem=10")
    assert scores(plugin, want("cpu=5 mem=2"), view) == [65.0]
    assert resource_strategy_fit.build({"resourceStrategyFitWeight": 0}) == []
    (light,) = resource_strategy_fit.build({"resourceStrategyFitWeight": 0.5})
    assert light.weight == 0.5


def test_a_strategy_without_a_weight_has_one() -> None:
    bad = {"a*b": {}, "*": {}}  # ignored
    (plugin,) = resource_strategy_fit.build({"resources": {**bad, "cpu": {}, "memory": {"weight": 3}}})
    assert scores(plugin, want("cpu=5 mem=10"), nodes("n1 cpu=10 mem=10")) == [12.5]


def test_scarce_resources_keep_others_away() -> None:
    sra = {"enable": True, "resources": f"{GPU},example.com/fpga", "weight": 4, "resourceWeight": {GPU: 3}}
    (plugin,) = resource_strategy_fit.build({"resourceStrategyFitWeight": 0, "sra": sra})
    view = nodes("n1 gpu=8", "n2 fpga=1", "n3", "n4 gpu=1 fpga=1")
    assert plugin.weight == 4
    assert scores(plugin, want("cpu=1"), view) == [25.0, 75.0, 100.0, 0.0]
    assert scores(plugin, want("fpga=1"), view) == [0.0, 75.0, 0.0, 0.0]
    for off in ({"enable": False}, {"weight": 0}):
        assert resource_strategy_fit.build({"resourceStrategyFitWeight": 0, "sra": {**sra, **off}}) == []


def test_a_proportion_is_kept_for_idle_devices() -> None:
    arguments = {
        "resourceStrategyFitWeight": 0,
        "proportional": {
            "enable": True,
            "resources": GPU,
            "resourceProportion": {f"{GPU}.cpu": 4, f"{GPU}.memory": 8},
        },
    }
    (plugin,) = resource_strategy_fit.build(arguments)
    view = nodes("n1 gpu=8 cpu=40", "n2 gpu=8 cpu=40", "n3 cpu=40")
    use(view, 1, GPU, 6000)
    assert plugin.capacity(want("cpu=5"), view)[:2].tolist() == [1, 6]
    assert plugin.capacity(want("cpu=5"), view)[2] > 1000
    assert plugin.capacity(want("gpu=1 cpu=5"), view) is None
    assert plugin.capacity(want("cpu=20"), view)[:2].tolist() == [0, 1]
    for used, room in ((8000, True), (8001, False)):
        use(view, 0, "cpu", used)
        assert bool(plugin.capacity(want("mem=1"), view)[0]) is room
    use(view, 0, "cpu", 0)
    (finding,) = plugin.blockers(want("cpu=20"), view)
    assert (finding.code, finding.blocked.tolist()) == (Reason.NODE_RESERVED, [True, False, False])
    assert finding.detail == f"up to 32 cpu are kept for idle {GPU}"


# ---------------------------------------------------------------------- nodegroup


GROUPS = (
    "n1 volcano.sh/nodegroup-name=a",
    "n2 volcano.sh/nodegroup-name=b",
    "n3 volcano.sh/nodegroup-name=c",
    "n4",
)


@pytest.mark.parametrize(
    ("groups", "strict", "open_"),
    [
        (NodeGroups(required=("a",)), True, "n1"),
        (NodeGroups(required=("a",), preferred=("b",)), True, "n1 n2"),
        (NodeGroups(required=("a", "b"), anti_required=("b",)), True, "n1"),
        (NodeGroups(anti_required=("a",)), True, ""),
        (NodeGroups(required=("a",), anti_preferred=("c",)), True, "n1 n3"),
        (None, True, ""),
        (None, False, "n4"),
        (NodeGroups(required=("a",)), False, "n1"),
        (NodeGroups(preferred=("b",)), False, "n2"),
        (NodeGroups(anti_required=("a",)), False, ""),
        (NodeGroups(anti_preferred=("c",)), False, "n3"),
        (NodeGroups(required=("a",), inherited=True), False, "n4"),
    ],
)
def test_queues_use_the_groups_that_they_name(groups: NodeGroups | None, strict: bool, open_: str) -> None:
    (plugin,) = nodegroup.build({"strict": strict})
    view = nodes(*GROUPS)
    mask = plugin.filter(want(node_groups=groups), view)
    assert [name for name, good in zip(view.names(), mask, strict=True) if good] == open_.split()
    for blocker in plugin.blockers(want(node_groups=groups), view):
        assert (blocker.blocked == ~mask).all()
    assert plugin.filter(needs(node_groups=groups), view) is None


def test_groups_are_scored_by_how_they_are_wanted() -> None:
    groups = NodeGroups(required=("a",), preferred=("a", "b"), anti_preferred=("c",))
    view = nodes(*GROUPS)
    (plugin,) = nodegroup.build({})
    points = plugin.score(want(node_groups=groups), view) * nodegroup.POINTS - 1
    assert points.round(6).tolist() == [150, 50, -1, 0]
    (ordered,) = nodegroup.build({"enablePreferredOrder": "true"})
    points = ordered.score(want(node_groups=groups), view) * nodegroup.POINTS - 1
    assert points.round(6).tolist() == [150, 25, -1, 0]
    assert ordered.score(want(), view) is None
    for part in (plugin, ordered):
        assert part.weight == 1.51
        assert all(0 <= score <= 100 for score in part.score(want(node_groups=groups), view).tolist())


def test_a_queue_inherits_where_the_hierarchy_is_on() -> None:
    (plugin,) = nodegroup.build({}, hierarchy=True)
    groups = NodeGroups(required=("a",), inherited=True)
    assert plugin.filter(want(node_groups=groups), nodes(*GROUPS)).tolist() == [True, False, False, False]


def limited(**limits: int) -> NodeGroups:
    found = tuple((group, (("cpu", units),)) for group, units in sorted(limits.items()))
    return NodeGroups(required=("a", "b"), queue="q", limits=found)


def test_a_queue_holds_so_much_on_the_nodes_of_a_group() -> None:
    plugins = [*nodegroup.build({}), nodegroup.NodeGroupLimits()]
    c = Cluster(plugins=[*default_plugins(), *plugins]).queues("default").nodes(*GROUPS)
    c.gang("g", 5, want("cpu=2", node_groups=limited(a=4000, b=2000)), min=1)
    for _ in range(6):
        c.cycle()
    assert c.where("g") == {"n1": 2, "n2": 1}
    details = {blocker.detail: blocker.nodes for blocker in c.explain("g").blockers}
    assert details["node group a: queue q may hold 4 cpu there"] == 1
    assert details["node group b: queue q may hold 2 cpu there"] == 1
    c.finish("g")
    c.gang("h", 3, want("cpu=2", node_groups=limited(a=4000, b=2000)))
    c.cycle()
    assert c.where("h") == {"n1": 2, "n2": 1}


def test_limits_that_cannot_be_read_let_nothing_in() -> None:
    plugin = nodegroup.NodeGroupLimits()
    view = nodes(*GROUPS)
    plugin.attach(view)
    broken = want("cpu=1", node_groups=NodeGroups(required=("a",), queue="q", limits_unreadable=True))
    plugin.learn(0, broken, [])
    assert plugin.verdict(0, view).tolist() == [False, False, False, True]
    assert {f.detail for f in plugin.blockers(broken, view)} == {
        f"node group {group}: the limits of queue q cannot be read" for group in "abc"
    }
    free = want("cpu=1", node_groups=NodeGroups(required=("a",), queue="q"))
    plugin.learn(1, free, [])
    assert not plugin.constrains(1)


def test_limits_follow_the_labels_of_nodes() -> None:
    table = NodeTable()
    for text in GROUPS:
        table.upsert(node(text))
    plugin = nodegroup.NodeGroupLimits()
    plugin.attach(TableView(table))
    plugin.learn(0, want("cpu=2", node_groups=limited(a=3000)), [])
    plugin.add(0, 0, 1)
    assert plugin.touched(99, 0) == []
    assert plugin.touched(0, 0) == [(nodegroup.LABEL, TableView(table).label(nodegroup.LABEL)[0])]
    assert plugin.verdict(0, TableView(table)).tolist() == [False, True, True, True]
    table.upsert(node("n1 volcano.sh/nodegroup-name=b"))
    plugin.relabelled([(0, {0: 1})])
    assert plugin.verdict(0, TableView(table)).tolist() == [True, True, True, True]
    plugin.add(0, 0, -1)
    assert plugin._held == {}


# ---------------------------------------------------------------------- revocable zones

HOUR = 3600.0


@pytest.mark.parametrize(
    ("hours", "at", "active"),
    [
        ("00:00-23:59", 23.98, True),
        ("23:00-00:30", 23.5, True),
        ("10:00-21:00", 9.99, False),
        ("10:00-21:00", 10, True),
        ("10:00-21:00", 21, True),
        ("10:00-21:00", 21.01, False),
        ("22:00-06:00", 23, True),
        ("22:00-06:00", 5, True),
        ("22:00-06:00", 7, False),
        ("08:00-08:00", 3, True),
    ],
)
def test_hours(hours: str, at: float, active: bool) -> None:
    parsed = revocable.parse_hours(hours)
    assert parsed is not None
    assert revocable.is_active(parsed, 86_400 * 5 + at * HOUR) is active


@pytest.mark.parametrize(
    "text", ["", "10-11", "24:00-01:00", "01:00-24:00", "10:00", "10:60-11:00", "10:00-11:60"]
)
def test_what_is_no_span_of_hours_is_none(text: str) -> None:
    assert revocable.parse_hours(text) is None


def test_hours_that_close_nothing_still_score() -> None:
    (plugin,) = revocable.build({"tdm.revocable-zone.rz": "00:00-23:59"}, closes=False)
    view = nodes("n1 volcano.sh/revocable-zone=rz", "n2 volcano.sh/revocable-zone=other", "n3")
    plugin.changed(0.0)
    assert plugin.filter(want(), view) is None
    assert plugin.blockers(want(), view) == []
    assert scores(plugin, want(revocable_zone="*"), view) == [100, 0, 0]
    (closing,) = revocable.build({})
    assert closing.filter(needs(), view) is None
    assert closing.filter(want(), view).tolist() == [False, False, True]


def test_revocable_nodes_open_and_close_with_the_time() -> None:
    plugins = revocable.build({"tdm.revocable-zone.rz1": "10:00-21:00", "tdm.evict.period": "1m"})
    c = Cluster(plugins=[*default_plugins(), *plugins]).nodes("n1 gpu=1 volcano.sh/revocable-zone=rz1")
    c.queues("default")
    c.now = 86_400 * 5 + 9 * HOUR
    c.gang("g", 1, want("gpu=1", revocable_zone="*")).gang("other", 1, want("gpu=1"))
    decision = c.cycle()
    assert (decision.binds, decision.wake_at) == ((), 86_400 * 5 + 10 * HOUR)
    assert "revocable zone rz1 is not in its hours" in str(c.explain("g").blockers)
    c.now = 86_400 * 5 + 10 * HOUR
    decision = c.cycle()
    assert [bind.task for bind in decision.binds] == ["ns/g-0"]
    assert decision.wake_at == 86_400 * 5 + 21 * HOUR + 1
    assert "takes revocable pods only" in str(c.explain("other").blockers)


# ---------------------------------------------------------------------- usage


def test_loaded_nodes_are_closed_and_empty_ones_preferred() -> None:
    (plugin,) = usage.build({"thresholds": {"cpu": 60}})
    assert isinstance(plugin, TakesLoads)
    c = Cluster(plugins=[*default_plugins(own_for_volcano=False), plugin]).queues("default")
    c.nodes("n1 cpu=10 mem=10", "n2 cpu=10 mem=10", "n3 cpu=10 mem=10")
    plugin.take_loads(
        {
            "n1": NodeLoad(61, 10, c.now),
            "n2": NodeLoad(30, 30, c.now),
            "n3": NodeLoad(10, 10, c.now),
        }
    )
    c.gang("g", 4, want("cpu=3"))
    c.cycle()
    assert c.where("g") == {"n2": 1, "n3": 3}  # 2.1 cores are estimated for each
    c.gang("big", 1, want("cpu=8"))
    c.cycle()
    assert c.placed("big") == 0
    assert "measured cpu load above 60 %" in str(c.explain("big").blockers)
    c.cycle(301)  # the figures are too old to say anything
    assert c.where("big") == {"n1": 1}


def measured(arguments: dict, **loads: tuple[float, float]) -> tuple[usage.Usage, TableView]:
    """The policy with figures (cpu, memory in percent) of its nodes; the third one has none."""
    (plugin,) = usage.build(arguments)
    view = nodes("n1 cpu=10 mem=10", "n2 cpu=10 mem=10", "n3 cpu=10 mem=10")
    plugin.attach(view)
    plugin.take_loads({name: NodeLoad(cpu, memory, 0.0) for name, (cpu, memory) in loads.items()})
    assert plugin.changed(0.0)
    return plugin, view


EVERYONE = np.ones(3, dtype=bool)


def test_the_score_is_what_is_left_of_a_node() -> None:
    plugin, view = measured({}, n1=(30, 10), n2=(100, 40))
    assert plugin.relative(0, want(), view, EVERYONE).round(6).tolist() == [80, 30, 0]
    plugin, view = measured({"cpu.weight": 3}, n1=(30, 10), n2=(100, 40))
    assert plugin.relative(0, want(), view, EVERYONE).round(6).tolist() == [75, 15, 0]
    plugin, view = measured({"cpu.weight": 0, "memory.weight": 0}, n1=(30, 10))
    assert plugin.relative(0, want(), view, EVERYONE).tolist() == [0, 0, 0]


def test_what_a_young_pod_will_use_is_estimated() -> None:
    plugin, view = measured({}, n1=(0, 0), n2=(60, 60))
    for number, wants in enumerate((want("cpu=2"), want())):
        plugin.learn(number, wants, [])
        for row, factor in ((0, 1.0), (1, 1.2)):
            before = plugin.relative(number, wants, view, EVERYONE)[row]
            plugin.add(number, row, 1)
            after = plugin.relative(number, wants, view, EVERYONE)[row]
            uses = (0.7 * 2 / 10, 0) if number == 0 else (0.25 / 10, (200 << 20) / (10 * GIB))
            assert before - after == pytest.approx(100 * factor * sum(uses) / 2)
            plugin.add(number, row, -1)


def test_a_node_may_be_as_small_as_it_likes() -> None:
    (plugin,) = usage.build({})
    table = NodeTable()
    table.upsert(Node("n", {"cpu": 1, "memory": 1}))
    plugin.take_loads({"n": NodeLoad(50, 50, 0.0)})
    plugin.changed(0.0)
    assert plugin.relative(0, want(), TableView(table), EVERYONE[:1]).tolist() == [50]


def test_a_pod_without_requests_may_count_for_nothing() -> None:
    (plugin,) = usage.build({"estimator": {"be_cpu": 0, "be_mem": "0"}})
    assert plugin._rules.estimator.best_effort == (0, 0)


def test_usage_has_volcanos_defaults() -> None:
    (plugin,) = usage.build({})
    assert plugin._rules == usage.UsageRules()
    assert usage.UsageRules() == usage.UsageRules(
        (80.0, 80.0), (1.0, 1.0), usage.Estimator(0.7, 0.6, 1.2, (250, 200 << 20)), 30.0
    )


def test_without_figures_the_policy_says_nothing() -> None:
    (plugin,) = usage.build({})
    view = nodes("n1", "n2")
    assert plugin.filter(want("cpu=1"), view) is None
    assert not plugin.has_preference(0, want("cpu=1"), view)
    assert plugin.blockers(want("cpu=1"), view) == []
    assert plugin.due(5.0) is None


def test_arguments_of_usage_out_of_range_keep_their_defaults() -> None:
    arguments = {
        "usage.weight": -1,
        "cpu.weight": 3,
        "thresholds": {"cpu": 101, "mem": "70"},
        "estimator": {
            "request_ratio": 2,
            "risk_factor": 0.5,
            "be_cpu": "100m",
            "be_mem": 10,
            "risk_threshold": 1,
        },
    }
    (plugin,) = usage.build(arguments)
    assert plugin.weight == 5
    assert plugin._rules == usage.UsageRules(
        (80.0, 70.0), (3.0, 1.0), usage.Estimator(0.7, 1.0, 1.2, (100, 10 << 20))
    )


def test_what_weighs_how_much_unless_it_is_said() -> None:
    assert usage.Usage().weight == 5.0
    assert binpack.VolcanoBinpack({}).weight == 1.0
    parts = nodeorder.build({}, CountingPluginSet().affinity, CountingPluginSet().spread)
    assert {part.name: part.weight for part in parts} == {
        "imagelocality": 1,
        "leastrequested": 1,
        "balancedresource": 1,
        "nodeaffinity": 2,
        "tainttoleration": 3,
        "podaffinity": 2,
        "podtopologyspread": 2,
    }


def test_one_core_and_one_gibibyte_are_kept_for_a_device_unless_it_is_said() -> None:
    arguments = {"resourceStrategyFitWeight": 0, "proportional": {"enable": True, "resources": GPU}}
    (plugin,) = resource_strategy_fit.build(arguments)
    view = nodes("n1 gpu=8 cpu=10 mem=10")
    assert plugin.capacity(want("cpu=1"), view).tolist() == [2]
    assert plugin.capacity(want("mem=1"), view).tolist() == [2]
