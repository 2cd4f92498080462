"""``engine.preemption.victim_candidates``: what is offered of groups that run, as the policies see it."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
from cluster_dsl import GPU, NAMESPACE, Cluster
from hypothesis import given, settings
from hypothesis import strategies as st
from preemption_cluster import ALL, Arena

from windlass.engine.config import EngineConfig
from windlass.engine.deltas import Delta, GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.engine.engine import Engine
from windlass.engine.plugin_set import PluginSet
from windlass.engine.preemption.victim_candidates import VictimCandidates
from windlass.engine.queues.running_groups import RunningGroups
from windlass.engine.victims.victim_pool import VictimPool
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Dialect, Group, Needs, Node, Queue, Task, TaskState
from windlass.spi.plugins import QueueView
from windlass.spi.victims import Preemption, PreemptionTerms, VictimScope, VictimSet


class Watcher:
    """Spares nothing, and notes what it is asked about."""

    name = "watcher"

    def __init__(self) -> None:
        self.victim_sets: list[VictimSet] = []

    def protects_queue(self, preemption: Preemption, path: Sequence[QueueView]) -> bool:
        return False

    def protects_victim(self, preemption: Preemption, victim_set: VictimSet) -> bool:
        self.victim_sets.append(victim_set)
        return False


def watched(gpus: int) -> tuple[Arena, Watcher]:
    watcher = Watcher()
    a = Arena()
    a.world = Cluster(EngineConfig(actions=ALL), [*default_plugins(), watcher])
    return a.node("n0", gpus).queue("q", deserved=gpus), watcher


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_core_is_asked_about_with_all_that_it_holds(n: int) -> None:
    a, watcher = watched(2 * n)
    a.runs("low", "q", *["n0:2"] * n, min=n, priority=40).waits("high", "q", 2, priority=60).cycle()
    victim_set = watcher.victim_sets[0]
    assert {task.key for task in victim_set.tasks} == {f"{NAMESPACE}/low-{i}" for i in range(n)}
    assert (
        victim_set.request[GPU],
        victim_set.is_minimum,
        victim_set.elastic_members,
        victim_set.members,
    ) == (
        2000 * n,
        True,
        0,
        n,
    )
    assert len(a.evicted) == n


def test_extras_are_asked_about_one_by_one_and_the_core_after_them() -> None:
    a, watcher = watched(4)
    a.runs("low", "q", *["n0:1"] * 4, min=2, priority=40).waits("high", "q", 4, priority=60).cycle()
    found = dict.fromkeys(
        (u.is_minimum, u.elastic_members, u.members, u.request[GPU]) for u in watcher.victim_sets
    )
    assert list(found) == [(False, 2, 4, 1000), (False, 1, 3, 1000), (True, 0, 2, 2000)]
    assert {(victim_set.size, victim_set.started) for victim_set in watcher.victim_sets} == {(4, 2.0)}


def test_of_a_core_one_task_may_move_the_last_first() -> None:
    a = Arena("allocate", "consolidation").node("n0", 2).node("n1", 2).queue("q", deserved=4)
    a.runs("pair", "q", "n0:1", "n1:1", min=2).waits("mine", "q", 2).cycle()
    assert a.evicted == {"pair-1"}
    assert a.promised == {"mine-0": "n1", "pair-1": "n0"}
    a.rest()
    assert a.running() == {"pair": 2, "mine": 1}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=6, max_size=6), st.booleans())
def test_asked_by_branches_the_same_queues_give(leaves: list[tuple[int, int]], kai: bool) -> None:
    dialect = Dialect.KAI if kai else Dialect.VOLCANO
    engine = Engine(EngineConfig(actions=("allocate",)), default_plugins())
    deltas: list[Delta] = [NodeUpserted(Node("n", {GPU: 64_000, "pods": 99}))]
    deltas += [QueueUpserted(Queue(top, dialect=dialect)) for top in ("a", "b")]
    for at, (deserved, pods) in enumerate(leaves):
        name = f"{'ab'[at % 2]}{at}"
        quota = {GPU: 1000 * deserved}
        deltas.append(QueueUpserted(Queue(name, name[0], deserved=quota, dialect=dialect)))
        deltas.append(GroupUpserted(Group(name, name, uid=name, dialect=dialect)))
        needs = Needs(request=((GPU, 1000),), dialect=dialect)
        running = [
            Task(f"{name}-{i}", f"{name}-{i}", name, needs, state=TaskState.RUNNING, node="n")
            for i in range(pods)
        ]
        deltas += [TaskUpserted(task) for task in running]
    engine.apply(deltas)
    engine.cycle(1.0)
    state = engine.state
    running_groups = RunningGroups(state.groups)
    running_groups.update(())
    plain = copy.copy(state.plugins)
    plain.branch_filters, plain.queue_filters = [], plain.victim_filters
    for at in range(len(leaves)):
        path = state.queues.get(f"{'ab'[at % 2]}{at}").path
        for scope in VictimScope:
            preemption = Preemption(
                "reclaim", Group("new", path[0].name, dialect=dialect), {GPU: 1000}, 1, path, False, 1.0
            )
            found = [
                [
                    q.name
                    for q in VictimCandidates(
                        state, running_groups, p, preemption, PreemptionTerms(scope)
                    ).queues()
                ]
                for p in (state.plugins, plain)
            ]
            assert found[0] == found[1]


class Nearest:
    """Who has as much as is asked for goes first."""

    name = "nearest"

    def victim_key_inputs(self, preemption: Preemption) -> int:
        return preemption.request[GPU]

    def victim_queue_key(self, preemption: Preemption, queue: QueueView, taken: object) -> None:
        return None

    def victim_key(self, preemption: Preemption, victim_set: VictimSet) -> int:
        return abs(victim_set.request[GPU] - preemption.request[GPU])


def test_an_order_by_what_is_asked_for_is_not_kept_for_a_claim_that_asks_for_something_else() -> None:
    a = Arena()
    a.world = Cluster(EngineConfig(actions=ALL), [Nearest(), *default_plugins()])
    a.node("n0", 5).queue("q", deserved=5)
    for name, gpus in (("s1", 1), ("s2", 1), ("s3", 1), ("large", 2)):
        a.runs(name, "q", f"n0:{gpus}", priority=40)
    a.waits("one", "q", 1, priority=60).waits("two", "q", 2, priority=60).cycle()
    assert "large-0" in a.evicted
    assert len(a.evicted) == 2


def test_who_may_go_is_not_asked_again_as_orders_change_but_of_what_has_changed() -> None:
    a, watcher = watched(4)
    a.world = Cluster(EngineConfig(actions=("allocate",)), [watcher, Nearest(), *default_plugins()])
    a.node("n0", 4).queue("q", deserved=4)
    a.runs("small", "q", "n0:1", priority=40).runs("large", "q", "n0:3", priority=40).cycle()
    state, plugins = a.world.engine.state, PluginSet([watcher, Nearest()])
    running, pool = RunningGroups(state.groups), VictimPool()
    running.update(())
    path = state.queues.get(a.key("q")).path
    mine = Group("mine", path[0].name, priority=60, dialect=a.dialect)
    state.group("mine")

    def offered(gpus: int) -> list[str]:
        preemption = Preemption("preempt", mine, {GPU: 1000 * gpus}, 1, path, False, 1.0)
        terms = PreemptionTerms(VictimScope.OWN_QUEUE)
        found = VictimCandidates(state, running, plugins, preemption, terms, pool).leading_tasks(2)
        return [entry.key.removeprefix(f"{NAMESPACE}/") for entry in found]

    assert offered(1) == ["small-0", "large-0"]
    assert len(watcher.victim_sets) == 2
    assert offered(3) == ["large-0", "small-0"]
    assert len(watcher.victim_sets) == 2
    running.mark_changed([state.groups[f"{NAMESPACE}/small"]])
    assert offered(2) == ["large-0", "small-0"]
    assert [victim_set.group.key for victim_set in watcher.victim_sets[2:]] == [f"{NAMESPACE}/small"]


@pytest.mark.parametrize("below", ["a-late", "z-late"])
def test_a_queue_that_others_are_made_below_offers_its_work_and_theirs_once(below: str) -> None:
    """Somebody makes a queue below one in which work runs: met before it, or after it."""
    a = Arena("allocate").node("n0", 4).queue("team").queue("claims", deserved=4).queue(below, parent="team")
    for name in ("team", below):
        a.runs(f"{name}0", name, "n0:1").runs(f"{name}1", name, "n0:1")
    a.cycle()
    state = a.world.engine.state
    running = RunningGroups(state.groups)
    running.update(())
    path = state.queues.get(a.key("claims")).path
    preemption = Preemption(
        "reclaim", Group("mine", path[0].name, dialect=a.dialect), {GPU: 1000}, 1, path, False, 1.0
    )
    state.group("mine")
    candidates = VictimCandidates(
        state, running, state.plugins, preemption, PreemptionTerms(VictimScope.OTHER_QUEUES)
    )
    units = [unit.group.key for unit in candidates.in_order(only_allowed=False)]
    assert sorted(units) == sorted(f"{NAMESPACE}/{name}{i}" for name in ("team", below) for i in range(2))
