"""Hierarchical DRF: the published examples, and the tree by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from cluster_dsl import GIB, Cluster, queue
from engine_fuzz import PLAIN, Op, Player, ops, start
from example_counts import examples
from hdrf_reference import tree_of, victims
from hypothesis import given, settings

from windlass.engine.config import EngineConfig
from windlass.engine.deltas import QueueUpserted
from windlass.plugins import registry
from windlass.plugins.defaults import default_plugins
from windlass.plugins.queue_api_filter import ApiQueueOrder, limited_to_api
from windlass.plugins.volcano.queues import hdrf_tree
from windlass.plugins.volcano.queues.hdrf import HdrfEvictable, HdrfOrder, before
from windlass.plugins.volcano.queues.hdrf_tree import HIERARCHY, WEIGHTS, HdrfTree, key_of
from windlass.spi.configuration import PluginOption, PluginTier, SchedulerConfig
from windlass.spi.objects import Dialect, Group, Queue
from windlass.spi.tiers import Purpose, TaskView
from windlass.testing import Scene

ON = {"enableHierarchy": True, "enableQueueOrder": True, "enableJobOrder": True}


def cluster(*nodes: str, actions: tuple[str, ...] = ("allocate",), **queues: tuple[str, str]) -> Cluster:
    """``queues``: name → hierarchy and weights."""
    config = SchedulerConfig(("allocate",), (PluginTier((PluginOption("drf", ON),)),))
    plugins, _ = registry.build(config, warn=lambda text: None)
    c = Cluster(EngineConfig(actions=actions), list(plugins)).nodes(*nodes)
    c.engine.apply([QueueUpserted(Queue("root"))])
    for name, (path, weights) in queues.items():
        notes = {HIERARCHY: path, WEIGHTS: weights}
        c.engine.apply([QueueUpserted(Queue(name, "root", annotations=notes))])
    return c


def pods(c: Cluster, name: str, n: int, request: str, queue: str) -> None:
    for i in range(n):
        c.gang(f"{name}{i}", 1, request, queue=queue)


def started(c: Cluster, name: str) -> int:
    return sum(1 for key in c.groups if key.startswith(f"ns/{name}") and c.where(key.removeprefix("ns/")))


def test_each_side_of_the_tree_gets_half() -> None:
    c = cluster(
        "n cpu=10 mem=10",
        sci=("root/sci", "100/50"),
        dev=("root/eng/dev", "100/50/50"),
        prod=("root/eng/prod", "100/50/50"),
    )
    pods(c, "sci", 10, "cpu=1 mem=1", "sci")
    pods(c, "dev", 10, "cpu=1", "dev")
    pods(c, "prod", 10, "mem=1", "prod")
    c.settle()
    assert (started(c, "sci"), started(c, "dev"), started(c, "prod")) == (5, 5, 5)


def test_a_blocked_subtree_does_not_hold_up_the_others() -> None:
    """Volcano's example "blocking nodes": 30 CPUs and 30 G, four queues that need one of each."""
    c = cluster(
        "n cpu=30 mem=30",
        q1=("root/queue1", "100/25"),
        q2=("root/queue2", "100/25"),
        q31=("root/queue3/queue31", "100/25/50"),
        q32=("root/queue3/queue32", "100/25/50"),
        q4=("root/queue4", "100/25"),
    )
    pods(c, "a", 30, "cpu=1", "q1")
    pods(c, "b", 30, "cpu=1", "q2")
    pods(c, "c", 30, "cpu=1", "q31")
    pods(c, "d", 30, "mem=1", "q32")
    pods(c, "e", 30, "mem=1", "q4")
    c.settle()
    assert [started(c, name) for name in "abcde"] == [10, 10, 10, 15, 15]


def test_weights_count_among_siblings() -> None:
    c = cluster("n cpu=12", a=("root/a", "1/1"), b=("root/b", "1/3"), tiny=("root/c", "1/0.1"))
    for name in ("a", "b"):
        pods(c, name, 12, "cpu=1", name)
    c.settle()
    assert (started(c, "a"), started(c, "b")) == (3, 9)


def test_who_has_nothing_of_what_it_asks_for_is_not_saturated() -> None:
    waiting = SimpleNamespace(spec=Group("g"), holding={}, requested={"cpu": 1})
    leaf = SimpleNamespace(spec=Queue("q", annotations={HIERARCHY: "root/q"}), gangs=[waiting])
    tree = tree_of([leaf], {"cpu": 10}, {})  # type: ignore[list-item]
    assert not tree.children["q"].saturated
    assert tree_of([leaf], {"cpu": 10}, {"g": {"cpu": 1}}).children["q"].saturated  # type: ignore[list-item]


@pytest.mark.parametrize(("held", "goes"), [(6, True), (5, True), (4, False)])
def test_who_keeps_more_than_the_claimer_gives(held: int, goes: bool) -> None:
    """The claimer would hold 3 of 10."""
    root = SimpleNamespace(spec=Queue("root"))
    pods = {}
    queues: list[SimpleNamespace] = []
    for name, units in (("a", 2), ("b", held)):
        notes = {HIERARCHY: f"root/{name}"}
        leaf = SimpleNamespace(
            name=name,
            spec=Queue(name, annotations=notes),
            siblings=queues,
            cluster={"cpu": 10},
            touched=0,
        )
        gang = SimpleNamespace(
            spec=Group(name), holding={"cpu": units}, requested={"cpu": 20}, path=[leaf, root]
        )
        leaf.gangs = [gang]
        queues.append(leaf)
        pods[name] = SimpleNamespace(gang=gang, request={"cpu": 1}, task=SimpleNamespace(key=name))
    rule = HdrfEvictable()
    found = rule.victims(Purpose.RECLAIM, pods["a"], [pods["b"]])  # type: ignore[arg-type]
    assert found == ([pods["b"]] if goes else [])
    assert rule.victims(Purpose.PREEMPT, pods["a"], [pods["b"]]) is None  # type: ignore[arg-type]


def test_a_placement_anywhere_may_move_any_queue() -> None:
    (order,) = limited_to_api(HdrfOrder(), Dialect.VOLCANO, inside=True)
    assert isinstance(order, ApiQueueOrder)
    assert order.entangled


def test_shares_that_differ_by_a_millionth_are_alike() -> None:
    low = Fraction(1, 10)
    alike, higher = low + Fraction(1, 10**6), low + Fraction(10_000_005, 10**13)
    assert not before(((False, low),), ((False, alike),))
    assert before(((False, low),), ((False, higher),))
    assert not before(((False, low),), ((False, low), (False, higher)))  # not below one another
    assert not before(((False, low), (False, higher)), ((False, low),))


def test_the_tree_sums_and_scales() -> None:
    c = cluster("n cpu=10 mem=10", dev=("root/eng/dev", "1/1/1"), prod=("root/eng/prod", "1/1/2"))
    pods(c, "dev", 4, "cpu=1", "dev")
    pods(c, "prod", 2, "mem=1", "prod")
    c.cycle()
    c.gang("more", 2, "cpu=9", queue="prod")
    c.gang("rest", 2, "cpu=9", queue="dev")
    c.cycle()
    queues = c.engine.state.queues.get("root").subqueues
    total = {"cpu": 10_000, "memory": 10 * GIB}
    root = tree_of(queues, total, {})
    eng = root.children["eng"]
    assert (eng.children["dev"].share, eng.children["prod"].share) == (Fraction(4, 10), Fraction(2, 10))
    assert not eng.saturated
    # groups that have all they ask for are saturated, so nothing is scaled below; above, the empty ones wait
    assert {name: child.saturated for name, child in eng.children.items()} == {"dev": False, "prod": False}
    assert eng.held == {"cpu": 2000, "pods": 2 + 2, "memory": 2 * GIB}
    dev, prod = (next(q for q in queues if q.name == name) for name in ("dev", "prod"))
    assert before(key_of(root, prod), key_of(root, dev))
    assert not before(key_of(root, dev), key_of(root, prod))
    changed = tree_of(queues, total, {f"ns/prod{i}": {"memory": 5 * GIB} for i in range(2)})
    assert before(key_of(changed, dev), key_of(changed, prod))


PATHS = {
    "a": ("root/eng/dev", "1/2/3"),
    "b": ("root/eng/prod", "1/4/0.5"),
    "default": ("root/eng", "1/2"),
    "c": ("root/sci", "1/3"),
}
"""One of them is above two others; two more queues have no place of their own."""


class Annotated(Cluster):
    def queues(self, *texts: str) -> Cluster:
        for text in texts:
            spec = replace(queue(text), parent="")
            path = PATHS.get(spec.name)
            notes = {HIERARCHY: path[0], WEIGHTS: path[1]} if path else {}
            self.engine.apply([QueueUpserted(replace(spec, annotations=notes))])
        return self


@settings(max_examples=examples(60), deadline=None)
@given(history=ops())
def test_the_kept_tree_equals_one_made_anew_after_any_history(history: list[Op]) -> None:
    c = start(Annotated(plugins=[*default_plugins(), HdrfOrder()]))
    player, kept_tree, order = Player(c, PLAIN), HdrfTree(), HdrfOrder()
    tree = c.engine.state.queues
    for op in history:
        player.play([op])
        tops = tree.known_tops()
        if not tops:
            continue
        total = tops[0].cluster
        anew = tree_of(tops, total, {})
        assert kept_tree.updated(tops, total) == anew
        for top in tops if op.kind == "cycle" else ():
            expected = key_of(anew, top) if top.spec.annotations and not top.mixed else ()
            assert order.queue_key(top, None) == expected


def test_only_what_a_placement_touched_is_summed_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    c = cluster("n cpu=20", a=("root/a", "1/1"), b=("root/b", "1/1"))
    pods(c, "a", 3, "cpu=1", "a")
    pods(c, "b", 3, "cpu=1", "b")
    c.cycle()
    queues = c.engine.state.queues.get("root").subqueues
    total = queues[0].cluster
    kept_tree = HdrfTree()
    kept_tree.updated(queues, total)
    made: list[str] = []
    values_of = hdrf_tree.values_of

    def counted(*arguments: Any) -> Any:
        made.append("leaf")
        return values_of(*arguments)

    monkeypatch.setattr(hdrf_tree, "values_of", counted)
    kept_tree.updated(queues, total)
    assert made == []
    c.gang("more", 1, "cpu=1", queue="b")
    c.cycle()
    assert kept_tree.updated(queues, total).children["b"].held == {"cpu": 4000, "pods": 4}
    assert made == ["leaf"]


class Checked(HdrfEvictable):
    """Judges as the definition does."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.named = 0

    def victims(
        self, purpose: Purpose, claimer: TaskView, candidates: Sequence[TaskView]
    ) -> Sequence[TaskView] | None:
        found = super().victims(purpose, claimer, candidates)
        if purpose is Purpose.RECLAIM:
            assert found == victims(claimer, candidates)
            self.calls += 1
            self.named += len(candidates)
        return found


@pytest.mark.parametrize("seed", range(5))
def test_who_may_go_is_who_the_definition_names(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in the middle of a claim, after some have been evicted for it."""
    random, rules = Random(seed), Checked()
    monkeypatch.setattr("windlass.plugins.volcano_catalogue.hdrf.HdrfEvictable", lambda: rules)
    config = SchedulerConfig(
        ("allocate", "reclaim"),
        (PluginTier((PluginOption("gang"), PluginOption("drf", ON), PluginOption("predicates"))),),
    )
    scene = Scene(config=config)
    for n in range(4):
        scene.node(f"n{n}", gpu=8, cpu=16)
    for name, (path, weights) in PATHS.items():
        notes = {HIERARCHY: path, WEIGHTS: weights}
        scene.engine.apply([QueueUpserted(Queue(name, annotations=notes))])
    for n in range(30):
        queue = random.choice(sorted(PATHS)) if n > 8 else "a"
        count = random.randint(1, 4)
        gpu, cpu = random.randint(0, 2), random.randint(0, 3)
        scene.gang(f"g{n}", pods=count, min_member=random.randint(0, 1), gpu=gpu, cpu=cpu, queue=queue)
        if not n % 2:
            scene.cycle()
    assert rules.named >= rules.calls > 0
