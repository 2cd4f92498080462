"""Placement of related pods in rounds has the same outcome as evaluating everything again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from cluster_dsl import Cluster, needs
from example_counts import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from windlass.engine.feasibility.one_by_one import PlacementRound
from windlass.engine.placement.placer import Placer
from windlass.spi.objects import (
    Dialect,
    Expression,
    HostPort,
    Needs,
    Node,
    NodeTerm,
    PodTerm,
    SpreadTerm,
    TaskState,
    VolumeNeed,
    VolumeOption,
    WeightedNodeTerm,
    WeightedPodTerm,
)
from windlass.spi.plugins import Listeners

HOST = "kubernetes.io/hostname"
LIMIT = "attachable-volumes-csi-disk"
KEYS = (HOST, "zone", "rack")
APPS = ("x", "y")


def selects(app: str) -> tuple[Expression, ...]:
    return (Expression("app", "In", (app,)),)


terms = st.builds(PodTerm, st.sampled_from(APPS).map(selects), st.sampled_from(KEYS))
spreads = st.builds(
    SpreadTerm,
    st.sampled_from(KEYS),
    st.integers(1, 2),
    st.booleans(),
    st.sampled_from(APPS).map(selects),
    st.none(),
    st.booleans(),
    st.booleans(),
)
hard_with_minimum = st.builds(
    SpreadTerm,
    st.sampled_from(KEYS),
    st.integers(1, 2),
    st.just(True),
    st.sampled_from(APPS).map(selects),
    st.integers(1, 4),
)
in_zone = st.sampled_from(("a", "b")).map(lambda z: (NodeTerm((Expression("zone", "In", (z,)),)),))
volumes = st.one_of(
    st.builds(VolumeNeed, st.sampled_from(("ns/p", "ns/q")), in_zone),
    st.builds(
        VolumeNeed,
        st.sampled_from(("ns/r", "ns/s")),
        st.none(),
        st.lists(in_zone, max_size=2).map(lambda t: tuple(VolumeOption(f"v{i}", x) for i, x in enumerate(t))),
    ),
    st.just(VolumeNeed("ns/t", exclusive=True)),
    st.builds(lambda i: VolumeNeed(f"ns/d{i}", limit=LIMIT, identity=f"d{i}"), st.integers(0, 2)),
)


def few(strategy: st.SearchStrategy, most: int = 1) -> st.SearchStrategy:
    return st.lists(strategy, max_size=most).map(tuple)


weighted = st.builds(WeightedPodTerm, st.sampled_from((1, 50)), terms)
wanted = st.builds(
    lambda request, app, **rest: needs(request, labels={"app": app}, **rest),
    st.sampled_from(("cpu=1", "cpu=2", "gpu=1 cpu=1", "")),
    st.sampled_from(APPS),
    affinity=few(terms),
    anti_affinity=few(terms),
    preferred_affinity=few(weighted),
    preferred_anti_affinity=few(weighted),
    spread=few(st.one_of(spreads, hard_with_minimum), 2),
    host_ports=few(st.sampled_from((HostPort("TCP", 80), HostPort("TCP", 80, "10.0.0.1")))),
    volumes=few(volumes),
    dialect=st.sampled_from(Dialect),
    preferred_nodes=few(st.builds(WeightedNodeTerm, st.just(3), in_zone.map(lambda t: t[0]))),
)
nodes = st.lists(
    st.tuples(
        st.sampled_from(("a", "b", "")),
        st.sampled_from(("1", "2", "3", "")),
        st.integers(0, 4),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=7,
)
gangs = st.lists(st.tuples(wanted, st.integers(1, 5)), min_size=1, max_size=4)


class Naive(Placer):
    """Placer that evaluates everything again for every task."""

    def _place_in_rounds(self, statement, group, cls, entries) -> int:
        for placed, entry in enumerate(entries):
            row = PlacementRound(
                self._table, self._ranks, cls, self.constraints(cls), self._ranks.rankers(cls)
            ).best()
            if row < 0:
                return placed
            statement.allocate(group, cls, row, (entry,))
        return len(entries)


@contextmanager
def placed_by(method) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Placer, "_place_in_rounds", method)
        yield


def play(layout: list[tuple[str, str, int, int]], groups: list[tuple[Needs, int]]) -> list[tuple[str, str]]:
    cluster = Cluster().queues("default")
    build(cluster, layout)
    binds = []
    for i, (what, n) in enumerate(groups):
        cluster.gang(f"g{i}", n, what, min=1)
        binds += [(bind.task, bind.node) for bind in cluster.cycle().binds]
        gone = f"g{i - 1}"
        if i % 2 and cluster.placed(gone):
            cluster.finish(gone)
    return binds


def build(cluster: Cluster, layout: list[tuple[str, str, int, int]]) -> None:
    for i, (zone, rack, cpu, gpus) in enumerate(layout):
        labels = {HOST: f"n{i}", **({"zone": zone} if zone else {}), **({"rack": rack} if rack else {})}
        amounts = {"cpu": cpu * 1000, "memory": 1 << 30, "pods": 20, "nvidia.com/gpu": gpus * 1000, LIMIT: 2}
        cluster.nodes(Node(f"n{i}", amounts, labels))


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nodes, gangs)
def test_rounds_place_as_asking_everything_anew(layout, groups) -> None:
    swift = play(layout, groups)
    with placed_by(Naive._place_in_rounds):
        assert swift == play(layout, groups)


def naive_promise(self, statement, cls, entries) -> int:
    """Nominate one by one, evaluating everything again, whether counting would suffice or not."""
    with self.vacated(statement):
        for placed, entry in enumerate(entries):
            domains, rankers = self.constraints(cls), self._ranks.rankers(cls)
            everywhere = np.arange(self._table.height, dtype=np.int64)
            rows = everywhere if domains or rankers else self._table.releasing_rows()
            row = PlacementRound(self._table, self._ranks, cls, domains, rankers, later=rows).best()
            if row < 0:
                return placed
            statement.pipeline(entry, row)
    return len(entries)


def promised(
    layout: list[tuple[str, str, int, int]], before: list[tuple[Needs, int]], after: list[tuple[Needs, int]]
) -> list[tuple[str, str]]:
    """Return the nominations of gangs that arrive while earlier victims terminate."""
    cluster = Cluster().queues("default")
    build(cluster, layout)
    for i, (what, n) in enumerate(before):
        cluster.gang(f"old{i}", n, what, min=1)
    cluster.cycle()
    for key, task in list(cluster.tasks.items()):
        if task.node:
            cluster.task(altered(task, state=TaskState.RELEASING))
        else:
            cluster.remove_task(key.removeprefix("ns/"))
    for i, (what, n) in enumerate(after):
        cluster.gang(f"new{i}", n, what)
    return [(nomination.task, nomination.node) for nomination in cluster.cycle().nominations]


@settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(nodes, gangs, gangs)
def test_room_being_vacated_is_promised_as_asking_everything_anew(layout, before, after) -> None:
    swift = promised(layout, before, after)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Placer, "nominate", naive_promise)
        assert swift == promised(layout, before, after)


@settings(max_examples=examples(60), deadline=None)
@given(gangs)
def test_those_who_listen_are_heard(groups) -> None:
    cluster = Cluster().queues("default").nodes("n0")
    for i, (what, n) in enumerate(groups):
        cluster.gang(f"g{i}", n, what)
    cluster.engine.update_groups(cluster.now)
    numbers = [cls.number for cls in cluster.engine.state.classes]
    for plugin in cluster.engine.state.plugins.domains:
        assert isinstance(plugin, Listeners), plugin
        for number in numbers:
            expected = {other for other in numbers if number in plugin.listens_to(other)}
            assert set(plugin.listeners(number)) == expected
    for cls in list(cluster.engine.state.classes):
        for plugin in cluster.engine.state.plugins.domains:
            plugin.forget(cls.number)
            assert set(plugin.listeners(cls.number)) == set()


def test_the_naive_way_is_the_naive_way() -> None:
    """The comparison compares: with a round that forgets what a placement touched, the outcome differs."""
    layout = [("a", "1", 4, 0), ("b", "1", 4, 0)]
    apart = needs("cpu=1", labels={"app": "x"}, anti_affinity=(PodTerm(selects("x"), HOST),))

    def forgetful(self, statement, group, cls, entries) -> int:
        one = PlacementRound(self._table, self._ranks, cls, self.constraints(cls), self._ranks.rankers(cls))
        statement.allocate(group, cls, one.best(), entries)
        return len(entries)

    swift = play(layout, [(apart, 2)])
    assert sorted(node for _, node in swift) == ["n0", "n1"]
    cluster = Cluster().queues("default").nodes("n0", "n1")
    cluster.gang("g", 2, apart)
    with placed_by(forgetful):
        assert {bind.node for bind in cluster.engine.cycle(1.0).binds} == {"n0"}
