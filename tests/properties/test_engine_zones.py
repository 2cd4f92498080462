"""NUMA zones through the engine: the books of zones agree with what every task holds, whatever happens; nothing
is placed that a kubelet would refuse; and a dump brings all of it back."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cluster_dsl import GIB, GPU, Cluster, needs, node
from engine_fuzz import Op, Player, ops, start, twin_world
from example_counts import examples
from hypothesis import HealthCheck, given, settings

from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins
from windlass.plugins.numa.plugin import NumaZones
from windlass.plugins.numa.zone_usage import RowZones
from windlass.spi.numa import (
    NO_HOLDING,
    AlignmentPolicy,
    ContainerNeed,
    NumaHolding,
    NumaNeed,
    NumaTopology,
    NumaZone,
)
from windlass.spi.objects import Needs, Node, TaskState

SETTINGS = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
POLICIES = tuple(AlignmentPolicy)


def asking(text: str, *containers: dict[str, int], guaranteed: bool = True) -> Needs:
    """Needs in sum, and those of each container (the sum's where none is given)."""
    whole = needs(text)
    each = [dict(whole.request)] if not containers else list(containers)
    found = tuple(ContainerNeed(tuple(sorted(amounts.items()))) for amounts in each)
    return replace(whole, zones=NumaNeed(found, guaranteed))


ZONED: tuple[Needs, ...] = (
    asking("gpu=1 cpu=2 mem=1"),
    asking("gpu=2 cpu=4 mem=4"),
    asking("cpu=3 mem=2"),
    asking("gpu=4", guaranteed=False),
    asking(
        "gpu=2 cpu=2 mem=2", {"cpu": 1000, "memory": GIB, GPU: 1000}, {"cpu": 1000, "memory": GIB, GPU: 1000}
    ),
    needs("cpu=1"),
)


def zoned(spec: Node, y: int) -> Node:
    """The node with two zones, or four, or none."""
    size = (2, 4, 2, 0)[y % 4]
    if not size:
        return replace(spec, zones=None)
    gpus = spec.allocatable.get(GPU, 0) // 1000
    cards = tuple((GPU, index, index * size // max(gpus, 1)) for index in range(gpus))
    zones = []
    for number in range(size):
        amounts = {
            "cpu": spec.allocatable["cpu"] // size // 1000 * 1000,
            "memory": spec.allocatable["memory"] // size,
            GPU: 1000 * sum(zone == number for _, _, zone in cards),
        }
        pairs = tuple(sorted(amounts.items()))
        zones.append(NumaZone(number, pairs, pairs))
    found = NumaTopology(
        tuple(zones),
        POLICIES[y // 4 % 4],
        pod_scope=bool(y % 3),
        pinned_memory=bool(y % 2),
        cards=cards if y % 5 else (),
    )
    return replace(spec, zones=found)


class Zoned(Player):
    def _node(self, op: Op) -> None:
        super()._node(op)
        name = list(self.cluster.node_specs)[-1]
        self.cluster.overcommitted = True  # zones that come under running work may hold more than they have
        self.cluster.nodes(zoned(self.cluster.node_specs[name], op.z))


def played(history: list[Op], cluster: Cluster | None = None) -> Player:
    world = start(cluster or Cluster())
    for at, name in enumerate(sorted(world.node_specs)):
        world.nodes(zoned(world.node_specs[name], 5 * at + 1))
    player = Zoned(world, ZONED)
    for op in history:
        player.play([op])
        check(world)
    return player


def plugin_of(engine: Engine) -> NumaZones:
    return next(p for p in engine.state.plugins.plugins if isinstance(p, NumaZones))


def check(cluster: Cluster) -> None:
    """The books of every row are what its tasks and promises hold, to the last unit."""
    state = cluster.engine.state
    held: dict[int, list[NumaHolding]] = {}
    for entry in state.tasks.values():
        if entry.row >= 0 and entry.row in state.table.numa:
            assert entry.zones is not None
            held.setdefault(entry.row, []).append(entry.zones)
        if entry.nominated_row >= 0 and entry.nominated_zones is not None:
            held.setdefault(entry.nominated_row, []).append(entry.nominated_zones)
    for hold in state.ledger.holds:
        if hold.zones is not None:
            held.setdefault(hold.row, []).append(hold.zones)
    books = plugin_of(cluster.engine)._row_zones
    assert books.keys() == state.table.numa.keys()
    for row, book in books.items():
        expected = RowZones(state.table.numa[row])
        for holding in held.get(row, []):
            if holding != NO_HOLDING:
                expected.change(holding, 1)
        assert book.used == expected.used
        assert book.spans == expected.spans


@SETTINGS
@given(ops())
def test_the_books_of_zones_are_what_tasks_hold(history: list[Op]) -> None:
    played([*history, Op("cycle")])


@SETTINGS
@given(ops(min_size=8), ops(min_size=2, max_size=8))
def test_a_loaded_dump_knows_the_zones(before: list[Op], after: list[Op]) -> None:
    player = played(before)
    cluster = player.cluster
    copy = Engine.load(cluster.engine.dump(), default_plugins())
    assert copy.dump() == cluster.engine.dump()
    twin = twin_world(cluster, copy)
    twin.overcommitted = True
    check(twin)
    other = Zoned(twin, ZONED)
    other.number = player.number
    player.decisions.clear()
    cluster.overcommitted = True
    follow = [*after, Op("cycle"), Op("cycle")]
    assert other.play(follow) == player.play(follow)


@SETTINGS
@given(ops(min_size=8))
def test_no_zone_is_given_twice(history: list[Op]) -> None:
    """In a world that does only what it is told, aligned nodes never hold more of a zone than it has, and pods
    on ``single-numa-node`` nodes hold one zone per container (or per pod)."""
    kinds = {"gang", "cycle", "remove", "finish", "release", "grow", "parted", "cordon"}
    cluster = played([op for op in history if op.kind in kinds] + [Op("cycle")]).cluster
    for book in plugin_of(cluster.engine)._row_zones.values():
        for name, amounts in book.used.items():
            assert all(u <= has for u, has in zip(amounts, book.layout.allocatable[name], strict=True)), name
    state = cluster.engine.state
    for entry in state.tasks.values():
        zones = state.table.numa.get(entry.row) if entry.row >= 0 else None
        if zones is None or zones.policy is not AlignmentPolicy.SINGLE_NUMA_NODE or entry.zones is None:
            continue
        containers = entry.cls.needs.zones.containers if entry.cls.needs.zones else ()
        assert len(entry.zones.zones) <= (1 if zones.pod_scope else len(containers))
        mine = {(resource, index): zone for resource, index, zone in zones.cards}
        for share in entry.devices:
            zone = mine.get((share.resource, share.index))
            assert zone is None or zone in dict(entry.zones.zones)


def single(name: str, cpu: int, gpus: int, *, zones: int = 2, cards: bool = True) -> Node:
    """Return a node; every zone has ``cpu`` CPUs, ``gpus`` devices and 64 GiB."""
    spec = node(f"{name} cpu={cpu * zones} gpu={gpus * zones} mem={64 * zones}")
    pairs = tuple(sorted({"cpu": cpu * 1000, GPU: gpus * 1000, "memory": 64 * GIB}.items()))
    listed = tuple((GPU, i, i // gpus) for i in range(gpus * zones)) if cards else ()
    return replace(
        spec,
        zones=NumaTopology(
            tuple(NumaZone(i, pairs, pairs) for i in range(zones)),
            AlignmentPolicy.SINGLE_NUMA_NODE,
            cards=listed,
        ),
    )


def test_a_gang_goes_where_each_pod_has_one_zone_and_the_cards_of_that_zone() -> None:
    cluster = Cluster().queues("default").nodes(single("n1", 8, 4), single("n2", 8, 4))
    cluster.gang("a", 4, asking("gpu=3 cpu=6 mem=1"))
    cluster.cycle()
    assert cluster.where("a") == {"n1": 2, "n2": 2}
    found = sorted(cluster.devices_of(f"a-{i}") for i in range(4))
    assert found == [[0, 1, 2], [0, 1, 2], [4, 5, 6], [4, 5, 6]]
    cluster.gang("b", 1, asking("gpu=2 cpu=1 mem=1"))
    cluster.cycle()
    assert cluster.code("b") == "NumaAlignmentFailed"
    said = cluster.explain("b")
    assert "2 nvidia.com/gpu in one zone: zone 0 has 1 nvidia.com/gpu left, zone 1 has 1" in said.message
    cluster.gang("c", 1, asking("gpu=2 cpu=1 mem=1", {"cpu": 1000, GPU: 1000}, {GPU: 1000}))
    cluster.cycle()
    assert cluster.placed("c") == 1  # container by container it is served
    cluster.finish("a")
    cluster.cycle()
    assert cluster.placed("b") == 1


def test_who_leaves_a_zone_wakes_who_waits_for_it() -> None:
    cluster = Cluster().queues("default").nodes(single("n1", 8, 4))
    cluster.gang("a", 1, asking("gpu=2"))
    cluster.gang("b", 1, asking("gpu=3"))
    cluster.gang("c", 1, asking("gpu=3"))
    cluster.cycle()
    assert [cluster.placed(name) for name in "abc"] == [1, 1, 0]
    cluster.settle()
    cluster.finish("a")
    cluster.cycle()
    assert cluster.placed("c") == 1


def test_zones_are_counted_where_it_is_not_known_which_cards_they_have() -> None:
    cluster = Cluster().queues("default").nodes(single("n1", 8, 4, cards=False))
    cluster.gang("a", 2, asking("gpu=3"))
    cluster.gang("b", 1, asking("gpu=2"))
    cluster.cycle()
    assert cluster.placed("a") == 2
    assert cluster.code("b") == "NumaAlignmentFailed"


def test_what_is_reported_of_running_pods_counts_more_than_what_was_foreseen() -> None:
    cluster = Cluster().queues("default").nodes(single("n1", 8, 4, cards=False))
    cluster.gang("a", 1, asking("gpu=4 cpu=4"))
    cluster.cycle()
    entry = cluster.engine.state.tasks["ns/a-0"]
    assert entry.zones is not None
    assert [zone for zone, _ in entry.zones.zones] == [0]
    elsewhere = NumaHolding(((1, (("cpu", 4000), (GPU, 4000))),))
    cluster.change_task("a-0", zones=elsewhere)
    assert entry.zones == elsewhere
    check(cluster)


def test_a_pod_that_says_nothing_is_found_where_the_node_says_that_room_is_gone() -> None:
    spec = single("n1", 8, 4, cards=False)
    assert spec.zones is not None
    full, busy = spec.zones.zones
    free = tuple(sorted({"cpu": 4000, GPU: 1000, "memory": 64 * GIB}.items()))
    spec = replace(
        spec,
        zones=replace(spec.zones, zones=(replace(full, free=full.allocatable), replace(busy, free=free))),
    )
    cluster = Cluster().queues("default").nodes(spec)
    cluster.running("old", "n1", "gpu=3 cpu=4")
    cluster.change_task("old-0", needs=asking("gpu=3 cpu=4"))
    entry = cluster.engine.state.tasks["ns/old-0"]
    assert entry.zones is not None
    assert Counter(dict(entry.zones.zones)).keys() == {1}


def test_room_that_is_being_vacated_is_promised_zone_by_zone() -> None:
    cluster = Cluster().queues("default").nodes(single("n1", 8, 4))
    cluster.gang("a", 2, asking("gpu=4"))
    cluster.cycle()
    (leaver,) = [f"a-{i}" for i in range(2) if 4 in cluster.devices_of(f"a-{i}")]
    cluster.change_task(leaver, state=TaskState.RELEASING)
    cluster.gang("b", 1, asking("gpu=3"))
    cluster.gang("c", 1, asking("gpu=2"))
    cluster.cycle()
    tasks = cluster.engine.state.tasks
    assert tasks["ns/b-0"].nominated_zones == NumaHolding(((1, ((GPU, 3000),)),))
    assert tasks["ns/c-0"].nominated_row < 0
    check(cluster)
    cluster.change_task(leaver, state=TaskState.SUCCEEDED)
    cluster.cycle()
    assert cluster.devices_of("b-0") == [4, 5, 6]
    check(cluster)


def test_a_dump_knows_what_was_promised_of_zones_that_are_gone_with_their_node() -> None:
    spec = single("n1", 8, 4)
    cluster = Cluster().queues("default").nodes(spec)
    cluster.gang("a", 1, asking("gpu=4"))
    cluster.cycle()
    cluster.change_task("a-0", state=TaskState.RELEASING)
    cluster.gang("b", 2, asking("gpu=4"))
    cluster.cycle()
    kept = cluster.engine.state.tasks["ns/b-0"].nominated_zones
    assert kept is not None
    cluster.remove_node("n1")
    copy = Engine.load(cluster.engine.dump(), default_plugins())
    assert copy.dump() == cluster.engine.dump()
    assert copy.state.tasks["ns/b-0"].nominated_zones == kept
    twin = twin_world(cluster, copy)
    for world in (cluster, twin):
        world.nodes(spec)
        check(world)
        world.cycle()
        check(world)
    assert copy.dump() == cluster.engine.dump()


def test_a_dump_knows_that_nothing_was_promised_of_zones_that_came_later() -> None:
    spec = single("n1", 8, 4)
    cluster = Cluster().queues("default").nodes(replace(spec, zones=None))
    cluster.gang("a", 1, asking("gpu=8"))
    cluster.cycle()
    cluster.change_task("a-0", state=TaskState.RELEASING)
    cluster.gang("b", 1, asking("gpu=4"))
    cluster.cycle()
    cluster.overcommitted = True
    cluster.nodes(spec)
    entry = cluster.engine.state.tasks["ns/b-0"]
    assert entry.nominated_row >= 0
    assert entry.nominated_zones is None
    copy = Engine.load(cluster.engine.dump(), default_plugins())
    assert copy.dump() == cluster.engine.dump()
    twin = twin_world(cluster, copy)
    for world in (cluster, twin):
        check(world)
        world.change_task("a-0", state=TaskState.SUCCEEDED)
        world.cycle()
        check(world)
        assert world.placed("b") == 1
    assert copy.dump() == cluster.engine.dump()


def test_what_no_empty_zone_holds_is_told_so() -> None:
    cluster = Cluster().queues("default").nodes(single("n1", 8, 4))
    cluster.gang("wide", 1, asking("gpu=1 cpu=10 mem=1"))
    cluster.gang("many", 3, asking("gpu=1 cpu=5 mem=1"))
    cluster.gang("two", 2, asking("gpu=1 cpu=5 mem=1"))
    cluster.cycle()
    wide, many = cluster.explain("wide"), cluster.explain("many")
    assert wide.code == "ExceedsEveryNode"
    assert wide.waiting_helps == "no"
    assert "no node's NUMA zones would fit it, even empty" in wide.message
    assert "10 cpu in one zone: no zone has more than 8" in str(wide.blockers)
    assert many.code == "ExceedsCluster"
    assert "would hold 2 even if empty" in many.message
    assert cluster.placed("two") == 2
