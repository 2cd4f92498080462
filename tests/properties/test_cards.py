"""What must hold for parts of cards in any history. Every cycle is checked by ``windlass.engine.invariants``
as it happens: no card above one, none both shared and whole, all sums equal to what the tasks have."""

from __future__ import annotations

from card_fuzz import PARTS, CardPlayer, start_with_cards
from cluster_dsl import Cluster
from engine_fuzz import Op, ops
from hypothesis import HealthCheck, given, settings

from windlass.engine.decision import Decision
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def played(history: list[Op], cluster: Cluster | None = None) -> CardPlayer:
    player = CardPlayer(start_with_cards(cluster or Cluster()), PARTS)
    player.play(history)
    return player


@SETTINGS
@given(ops(min_size=8))
def test_invariants_hold_after_any_history(history: list[Op]) -> None:
    played([*history, Op("cycle")])


@SETTINGS
@given(ops(min_size=8))
def test_placing_by_counting_equals_placing_pod_by_pod(history: list[Op]) -> None:
    def decided(countable: bool) -> list[Decision]:
        cluster = Cluster(plugins=default_plugins())
        if not countable:
            cluster.engine.world.policies.countable = False
        return played(history, cluster).decisions

    assert decided(True) == decided(False)


@SETTINGS
@given(ops(min_size=8), ops(min_size=2, max_size=10))
def test_a_loaded_dump_decides_as_the_original(before: list[Op], after: list[Op]) -> None:
    player = played(before)
    cluster = player.cluster
    copy = Engine.load(cluster.engine.dump(), default_plugins())
    assert copy.dump() == cluster.engine.dump()
    twin = CardPlayer(_twin_world(cluster, copy), PARTS)
    twin.number = player.number
    player.decisions.clear()
    follow = [*after, Op("cycle"), Op("cycle")]
    assert twin.play(follow) == player.play(follow)


def _twin_world(cluster: Cluster, engine: Engine) -> Cluster:
    twin = Cluster()
    twin.engine = engine
    twin.now, twin._created, twin.overcommitted = cluster.now, cluster._created, cluster.overcommitted
    twin.tasks, twin.groups = dict(cluster.tasks), dict(cluster.groups)
    twin.node_specs = dict(cluster.node_specs)
    return twin
