"""Invariants of the engine in any history.

``windlass.engine.invariants`` checks every cycle (see ``cluster_dsl.Cluster.cycle``).
"""

from __future__ import annotations

from cluster_dsl import Cluster
from engine_fuzz import PLAIN, RELATED, Op, Player, ops, start, twin_world
from example_counts import examples
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from windlass.engine import invariants
from windlass.engine.config import EngineConfig
from windlass.engine.decision import Decision
from windlass.engine.deltas import GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins

SETTINGS = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)


def played(history: list[Op], classes=PLAIN, cluster: Cluster | None = None) -> Player:
    player = Player(start(cluster or Cluster()), classes)
    player.play(history)
    return player


def at_rest(history: list[Op]) -> Cluster:
    """A cluster after a history, all reports in, all pauses over, nothing left to do."""
    cluster = played(history, PLAIN + RELATED).cluster
    cluster.confirm()
    cluster.cycle()  # pauses after failed binds begin here
    cluster.now += 10_000
    cluster.settle(quiet=0)
    return cluster


@SETTINGS
@given(ops())
def test_invariants_hold_after_any_history(history: list[Op]) -> None:
    played([*history, Op("cycle")])


@SETTINGS
@given(ops())
def test_invariants_hold_with_pods_that_relate_to_one_another(history: list[Op]) -> None:
    played([*history, Op("cycle")], RELATED + PLAIN[:3])


@SETTINGS
@given(ops())
def test_a_still_world_comes_to_rest(history: list[Op]) -> None:
    cluster = at_rest(history)
    cluster.settle(quiet=5)


@SETTINGS
@given(ops())
def test_equal_histories_give_equal_decisions(history: list[Op]) -> None:
    assert played(history, PLAIN + RELATED).decisions == played(history, PLAIN + RELATED).decisions


@SETTINGS
@given(ops(min_size=8), ops(min_size=2, max_size=10))
def test_a_loaded_dump_decides_as_the_original(before: list[Op], after: list[Op]) -> None:
    player = played(before, PLAIN + RELATED)
    cluster = player.cluster
    copy = Engine.load(cluster.engine.dump(), default_plugins())
    assert copy.dump() == cluster.engine.dump()
    twin = Player(twin_world(cluster, copy), PLAIN + RELATED)
    twin.number = player.number
    player.decisions.clear()
    follow = [*after, Op("cycle"), Op("cycle")]
    assert twin.play(follow) == player.play(follow)


@SETTINGS
@given(ops(min_size=8), st.integers(1, 4))
def test_a_bounded_cycle_decides_the_same_in_several_steps(history: list[Op], bound: int) -> None:
    def decided(config: EngineConfig) -> list[object]:
        player = Player(start(Cluster(config)), PLAIN)
        player.play([op for op in history if op.kind not in ("cycle", "delay", "fail_bind")])
        binds: list[object] = []
        while True:
            decision = player.cluster.cycle(seconds=0.0, confirm=False)
            binds += decision.binds
            if decision.wake_at != player.cluster.now:
                return binds

    assert decided(EngineConfig(binds_per_cycle=bound)) == decided(EngineConfig())


# ---------------------------------------------------------------------- incremental = rebuilt


@SETTINGS
@given(ops(min_size=8))
def test_the_incremental_state_equals_a_rebuilt_one(history: list[Op]) -> None:
    cluster = at_rest(history)
    fresh = _rebuilt(cluster)
    decision = fresh.engine.cycle(cluster.now)
    invariants.check(fresh.engine, overcommitted=cluster.overcommitted)
    assert _amounts(fresh.engine) == _amounts(cluster.engine)
    assert _sums(fresh.engine) == _sums(cluster.engine)
    # An engine that tries everything again cannot place what the incremental engine has
    # parked either.
    assert decision.binds == ()
    for key in cluster.groups:
        old = cluster.engine.explain(key, cluster.now)
        new = fresh.engine.explain(key, cluster.now)
        assert old == new


def _rebuilt(cluster: Cluster) -> Cluster:
    """A new engine that is told the present state of the world, in another order."""
    fresh = Cluster()
    fresh.engine.apply([TaskUpserted(task) for task in reversed(cluster.tasks.values())])
    fresh.engine.apply([GroupUpserted(group) for group in cluster.groups.values()])
    fresh.engine.apply([NodeUpserted(node) for node in reversed(cluster.node_specs.values())])
    queues = cluster.engine.state.queues
    fresh.engine.apply([QueueUpserted(queue.spec) for queue in queues if not queue.missing])
    return fresh


def _amounts(engine: Engine) -> dict[str, dict[str, list[int]]]:
    """Node → resource → the amounts of all planes, where any is not zero."""
    table = engine.state.table
    found: dict[str, dict[str, list[int]]] = {}
    for name, row in table.rows.items():
        for resource, column in table.resources.codes.items():
            cells = table.planes[row, :, column].tolist()
            if any(cells):
                found.setdefault(name, {})[resource] = cells
    return found


def _sums(engine: Engine) -> dict[str, list[dict[str, int]]]:
    return {
        queue.name: [
            {name: units for name, units in sums.items() if units}
            for sums in (queue.allocated, queue.releasing, queue.pending)
        ]
        for queue in engine.state.queues
    }


# ---------------------------------------------------------------------- counting = one by one


@SETTINGS
@given(ops(min_size=8), st.sampled_from(["binpack", "spread"]))
def test_placing_by_counting_equals_placing_pod_by_pod(history: list[Op], placement: str) -> None:
    def decided(countable: bool) -> list[Decision]:
        cluster = Cluster(plugins=default_plugins(placement=placement))
        if not countable:
            cluster.engine.state.plugins.countable = False
        return played(history, PLAIN + RELATED, cluster).decisions

    assert decided(True) == decided(False)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(1, 16), st.integers(0, 3)), min_size=1, max_size=8),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 12)), min_size=1, max_size=6),
)
def test_the_best_node_is_the_one_a_plain_loop_finds(
    nodes: list[tuple[int, int, int]], gangs: list[tuple[int, int, int]]
) -> None:
    """Against a reference that knows nothing of classes, keys and logs: per pod, all nodes in order of
    their names, the score of the packing formula, the first of the best."""
    cluster = Cluster().queues("default")
    free: dict[str, list[int]] = {}
    whole: dict[str, list[int]] = {}
    for i, (gpus, cpus, prefix) in enumerate(nodes):
        name = f"{'dcba'[prefix]}{i}"
        cluster.nodes(f"{name} gpu={gpus} cpu={cpus} pods=50")
        free[name], whole[name] = [gpus, cpus], [gpus, cpus]
    for number, (gpus, cpus, n) in enumerate(gangs):
        cluster.gang(f"g{number}", n, f"gpu={gpus} cpu={cpus}")
        expected = _plain_gang(free, whole, (gpus, cpus), n)
        cluster.cycle()
        assert cluster.where(f"g{number}") == expected
        for name, count in expected.items():
            free[name][0] -= gpus * count
            free[name][1] -= cpus * count


def _plain_gang(
    free: dict[str, list[int]], whole: dict[str, list[int]], each: tuple[int, int], n: int
) -> dict[str, int]:
    left = {name: list(amounts) for name, amounts in free.items()}
    placed: dict[str, int] = {}
    for _ in range(n):
        best, best_score = "", -1.0
        for name in sorted(left):
            (gpus, cpus), (all_gpus, all_cpus) = left[name], whole[name]
            if gpus < each[0] or cpus < each[1]:
                continue
            gpu_share = (all_gpus - gpus + each[0]) / all_gpus
            score = round(90 * gpu_share + 10 * (all_cpus - cpus + each[1]) / all_cpus, 6)
            if score > best_score:
                best, best_score = name, score
        if not best:
            return {}
        left[best][0] -= each[0]
        left[best][1] -= each[1]
        placed[best] = placed.get(best, 0) + 1
    return dict(sorted(placed.items()))
