"""Gangs near to one another: which domain is taken, what stays in it, and what is refused."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from cluster_dsl import NAMESPACE, Cluster, needs
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from windlass.engine.deltas import NodeUpserted
from windlass.engine.dump import dump, load_into, read
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import Expression, Group, PodTerm, SubGroup, Task, TaskState
from windlass.spi.topology import Level, TopologyNeed

ZONE, RACK = Level("zone"), Level("rack")
LEVELS = (ZONE, RACK)


def want(required: str = "", preferred: str = "", *, anchor: str = "", nested: bool = True) -> TopologyNeed:
    labels = [level.label for level in LEVELS]
    return TopologyNeed(
        "network",
        LEVELS,
        labels.index(required) if required else -1,
        labels.index(preferred) if preferred else -1,
        nested=nested,
        anchor=anchor,
    )


def gang(
    c: Cluster,
    name: str,
    n: int,
    request: str = "gpu=1",
    *,
    near: TopologyNeed | None = None,
    parts: Sequence[tuple[str, str, int, TopologyNeed | None]] = (),
    least: int | None = None,
    priority: int = 0,
    preemptible: bool = True,
    **rest: object,
) -> Cluster:
    """``parts``: name, parent, number of tasks, what it asks for; ``n`` tasks are directly of the group."""
    key = f"{NAMESPACE}/{name}"
    subgroups = tuple(SubGroup(part, parent, count, topology=need) for part, parent, count, need in parts)
    total = n + sum(count for _, _, count, _ in parts)
    c.group(
        Group(
            key,
            min_member=total if least is None else least,
            created=float(len(c.groups)),
            uid=name,
            subgroups=subgroups,
            topology=near,
            priority=priority,
            preemptible=preemptible,
        )
    )
    wants = needs(request, **rest)
    owners = [""] * n + [part for part, _, count, _ in parts for _ in range(count)]
    for at, part in enumerate(owners):
        task = f"{NAMESPACE}/{name}-{at}"
        c.task(Task(task, task, key, wants, index=at, subgroup=part, preemptible=preemptible))
    return c


def racks(c: Cluster, name: str = "g") -> Counter[str]:
    """Rack → placed tasks."""
    return Counter(
        {
            rack: n
            for rack in {spec.labels.get("rack", "") for spec in c.node_specs.values()}
            if (
                n := sum(
                    k
                    for node, k in c.where(name).items()
                    if c.node_specs[node].labels.get("rack", "") == rack
                )
            )
        }
    )


def grid() -> Cluster:
    """Two zones of two racks of two nodes with two GPUs each; neighbours by name lie in different racks."""
    return (
        Cluster().queues("default").nodes(*(f"n{i} gpu=2 zone=z{i % 4 // 2} rack=r{i % 4}" for i in range(8)))
    )


# ---------------------------------------------------------------------- one gang


def test_a_gang_lies_in_one_rack() -> None:
    c = gang(grid(), "g", 4, near=want("rack"))
    c.cycle()
    assert list(racks(c).values()) == [4]


def test_nothing_is_started_where_no_rack_holds_it() -> None:
    c = gang(grid(), "g", 5, near=want("rack"))
    c.cycle()
    assert not c.where("g")


def test_the_tightest_level_is_taken_up_to_the_required_one() -> None:
    c = gang(grid(), "g", 4, near=want("zone", "rack"))
    gang(c, "h", 6, near=want("zone", "rack"))
    c.cycle()
    assert list(racks(c, "g").values()) == [4]
    assert len(racks(c, "h")) == 2
    assert len({rack in ("r0", "r1") for rack in racks(c, "h")}) == 1


def test_what_is_preferred_is_no_condition() -> None:
    c = gang(grid(), "g", 11, near=want(preferred="rack"))
    c.cycle()
    assert sorted(racks(c).values()) == [3, 4, 4]


def test_f75_nodes_with_the_value_false_form_no_domain() -> None:
    """They would have least to spare, but ``rack=false`` says that they are in no rack."""
    c = Cluster().queues("default").nodes(*(f"no{i} gpu=2 zone=z rack=false" for i in range(2)))
    c.nodes(*(f"in{i} gpu=4 zone=z rack=true" for i in range(2)))
    gang(c, "g", 2, "gpu=2", near=want(preferred="rack"))
    gang(c, "h", 2, "gpu=2", near=want("rack"))
    gang(c, "i", 2, "gpu=2", near=want("rack"))
    c.cycle()
    assert (racks(c, "g"), racks(c, "h"), racks(c, "i")) == ({"true": 2}, {"true": 2}, {})


def test_a_gang_too_large_for_any_domain_fills_one_after_the_other() -> None:
    """Two racks of one zone before one of the other, though a rack elsewhere is emptier."""
    c = grid()
    gang(c, "old", 1, "gpu=2", node_selector={"rack": "r0"}).cycle()
    gang(c, "g", 7, near=want(preferred="rack"))
    c.cycle()
    assert racks(c) == {"r2": 4, "r3": 3}


def test_the_domain_with_least_to_spare_is_taken() -> None:
    c = grid()
    gang(c, "old", 1, node_selector={"rack": "r3"}).cycle()
    gang(c, "g", 3, near=want("rack"))
    c.cycle()
    assert racks(c) == {"r3": 3}


def test_the_domain_it_was_in_is_tried_first() -> None:
    c = gang(grid(), "g", 3, near=want("rack", anchor="z1/r2"))
    c.cycle()
    assert racks(c) == {"r2": 3}


def test_elastic_members_stay_in_the_domain() -> None:
    c = gang(grid(), "g", 6, near=want("rack"), least=2)
    c.settle()
    assert list(racks(c).values()) == [4]


def test_a_restarted_member_comes_back_to_the_domain() -> None:
    c = gang(grid(), "g", 3, near=want("rack"))
    c.cycle()
    (home,) = racks(c)
    c.remove_task("g-0")
    task = f"{NAMESPACE}/g-9"
    c.task(Task(task, task, f"{NAMESPACE}/g", needs("gpu=1"), index=9))
    c.settle()
    assert set(racks(c)) == {home}
    assert sum(racks(c).values()) == 3


def test_a_node_without_the_label_is_in_no_domain() -> None:
    c = Cluster().queues("default").nodes("a gpu=8", "b gpu=2 zone=z rack=r", "c gpu=2 zone=z rack=r")
    gang(c, "g", 4, near=want("rack"))
    c.cycle()
    assert c.where("g") == {"b": 2, "c": 2}


def test_nodes_in_no_domain_come_last_and_are_counted_on() -> None:
    c = Cluster().queues("default").nodes("a gpu=8", "b gpu=2 zone=z rack=r", "c gpu=2 zone=z rack=q")
    need = want(preferred="rack")
    gang(c, "g", 6, near=need)
    c.cycle()
    assert c.where("g") == {"a": 2, "b": 2, "c": 2}
    cls = next(iter(c.engine.state.classes))
    tree = c.engine._gang_allocator.domain_selector.trees.of(need)
    assert [tree.totals(cls, level).tolist() for level in range(2)] == [[6, 0], [6, 0, 0]]


def test_racks_of_equal_names_in_two_zones_are_two() -> None:
    c = Cluster().queues("default").nodes("a gpu=1 zone=x rack=r", "b gpu=1 zone=y rack=r")
    gang(c, "g", 2, near=want("rack"))
    c.cycle()
    assert not c.where("g")
    gang(c, "h", 2, near=want("rack", nested=False))
    c.cycle()
    assert c.where("h") == {"a": 1, "b": 1}


def test_a_node_that_changes_its_rack_is_counted_there() -> None:
    c = Cluster().queues("default").nodes("a gpu=1 zone=z rack=r0", "b gpu=1 zone=z rack=r1")
    gang(c, "g", 2, near=want("rack"))
    c.cycle()
    assert not c.where("g")
    c.nodes("b gpu=1 zone=z rack=r0")
    c.cycle()
    assert c.where("g") == {"a": 1, "b": 1}


def test_pods_that_keep_apart_lie_in_one_rack_all_the_same() -> None:
    apart = (PodTerm((Expression("app", "In", ("g",)),), "kubernetes.io/hostname"),)
    c = gang(grid(), "g", 2, near=want("rack"), labels={"app": "g"}, anti_affinity=apart)
    c.cycle()
    assert len(c.where("g")) == 2
    assert len(racks(c)) == 1
    gang(c, "h", 3, near=want("rack"), labels={"app": "g"}, anti_affinity=apart)
    c.cycle()
    assert not c.where("h")


# ---------------------------------------------------------------------- parts


def test_each_part_in_a_rack_of_its_own_inside_one_zone() -> None:
    parts = [("a", "", 3, want("rack")), ("b", "", 3, want("rack"))]
    c = gang(grid(), "g", 0, near=want("zone"), parts=parts)
    c.cycle()
    found = racks(c)
    assert sorted(found.values()) == [3, 3]
    assert set(found) in ({"r0", "r1"}, {"r2", "r3"})


def test_a_part_that_came_first_moves_on_for_a_later_one() -> None:
    """The best rack for the small part is the only one for the large part."""
    c = Cluster().queues("default").nodes("a gpu=2 zone=z rack=r0", "b gpu=3 zone=z rack=r1")
    parts = [("s", "", 2, want("rack")), ("t", "", 2, want("rack")), ("u", "", 1, want("rack"))]
    gang(c, "g", 0, parts=parts)
    c.cycle()
    assert sum(racks(c).values()) == 5


# ---------------------------------------------------------------------- promises


def test_room_that_is_being_vacated_is_promised_in_one_rack() -> None:
    c = grid()
    gang(c, "old", 8, "gpu=2", least=8).cycle()
    for i in range(8):
        if c.node_specs[c.node_of(f"old-{i}")].labels["rack"] in ("r1", "r2"):
            c.change_task(f"old-{i}", state=TaskState.RELEASING)
    gang(c, "g", 4, near=want("rack"))
    c.cycle()
    group = c.engine.state.groups[f"{NAMESPACE}/g"]
    names = c.engine.state.table.names
    promised = {c.node_specs[names[entry.nominated_row]].labels["rack"] for entry in group}
    assert len(promised) == 1


# ---------------------------------------------------------------------- brute force

GPUS = st.integers(0, 3)
SHAPES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2), GPUS), min_size=1, max_size=7)
"""Zone, rack and free GPUs of each node."""
WANTS = st.sampled_from([("rack", ""), ("zone", ""), ("zone", "rack"), ("", "rack"), ("", "zone")])


def shaped(nodes: Sequence[tuple[int, int, int]]) -> Cluster:
    specs = [f"n{i} gpu={gpus} zone=z{zone} rack=r{rack}" for i, (zone, rack, gpus) in enumerate(nodes)]
    return Cluster().queues("default").nodes(*specs)


def domain(node: tuple[int, int, int], level: str) -> tuple[int, ...]:
    return node[:1] if level == "zone" else node[:2]


def room(nodes: Sequence[tuple[int, int, int]], level: str) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    for node in nodes:
        found[domain(node, level)] += node[2]
    return found


def levels_tried(required: str, preferred: str) -> list[str]:
    order = ["rack", "zone"]
    first = order.index(preferred or required)
    last = order.index(required) if required else 1
    return order[first : last + 1]


@given(SHAPES, st.integers(1, 6), WANTS)
@settings(max_examples=examples(120), deadline=None)
def test_one_class_against_brute_force(
    nodes: list[tuple[int, int, int]], n: int, wanted: tuple[str, str]
) -> None:
    """Placed exactly if some domain holds it; in the tightest level; in the domain with least to spare."""
    required, preferred = wanted
    c = gang(shaped(nodes), "g", n, near=want(required, preferred))
    c.cycle()
    placed = [nodes[int(name[1:])] for name in c.where("g")]
    level = next((one for one in levels_tried(*wanted) if max(room(nodes, one).values()) >= n), None)
    if level is None:
        assert bool(placed) is (not required and sum(node[2] for node in nodes) >= n)
        return
    chosen = {domain(node, level) for node in placed}
    assert len(chosen) == 1
    sizes = room(nodes, level)
    assert sizes[chosen.pop()] == min(size for size in sizes.values() if size >= n)


@given(
    SHAPES,
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["rack", "zone", ""])), min_size=1, max_size=4),
    st.sampled_from(["", "zone", "rack"]),
)
@settings(max_examples=examples(120), deadline=None)
def test_parts_against_brute_force(
    nodes: list[tuple[int, int, int]], parts: list[tuple[int, str]], whole: str
) -> None:
    """A gang of parts is placed exactly if its parts can be given domains that hold them together."""
    asked = [(f"p{at}", "", count, want(level) if level else None) for at, (count, level) in enumerate(parts)]
    c = gang(shaped(nodes), "g", 0, near=want(whole) if whole else None, parts=asked)
    c.cycle()
    assert bool(c.where("g")) is possible(nodes, parts, whole)
    for at, (count, level) in enumerate(parts):
        if level and c.where("g"):
            own = [e for e in c.engine.state.groups[f"{NAMESPACE}/g"] if e.task.subgroup == f"p{at}"]
            there = {domain(nodes[int(c.engine.state.table.names[e.row][1:])], level) for e in own}
            assert len(own) == count
            assert len(there) == 1


def possible(nodes: list[tuple[int, int, int]], parts: list[tuple[int, str]], whole: str) -> bool:
    """Whether the parts can be told domains, inside one of the group's, that hold them together."""
    outer = sorted(room(nodes, whole)) if whole else [()]
    for top in outer:
        inside = [node for node in nodes if node[: len(top)] == top]
        free = {rack: size for rack, size in room(inside, "rack").items()}
        choices = [
            [()] if not level else sorted({domain(node, level) for node in inside}) for _, level in parts
        ]
        for places in itertools.product(*choices):
            if _holds(free, [(count, place) for (count, _), place in zip(parts, places, strict=True)]):
                return True
    return False


def _holds(free: dict[tuple[int, ...], int], wanted: list[tuple[int, tuple[int, ...]]]) -> bool:
    """Hall's condition over nested domains: whatever lies in a domain fits into it."""
    domains = {()} | {rack[:1] for rack in free} | set(free)
    for one in domains:
        inside = sum(count for count, place in wanted if place[: len(one)] == one)
        if inside > sum(size for rack, size in free.items() if rack[: len(one)] == one):
            return False
    return True


def test_a_dump_keeps_what_is_asked_for() -> None:
    c = gang(grid(), "g", 5, near=want("rack"))
    c.cycle()
    again = Engine(None, default_plugins())
    load_into(again, read(dump(c.engine)))
    assert dump(again) == dump(c.engine)
    assert altered(again.state.groups[f"{NAMESPACE}/g"].spec).topology == want("rack")
    again.apply([NodeUpserted(c.node_specs["n0"])])


# ---------------------------------------------------------------------- words


def short_of_one() -> Cluster:
    """In each rack of four GPUs one is taken."""
    c = grid()
    for rack in range(4):
        gang(c, f"old{rack}", 1, node_selector={"rack": f"r{rack}"})
    c.cycle()
    return c


def test_which_domains_were_tried_and_what_each_lacks() -> None:
    c = gang(short_of_one(), "g", 4, near=want("rack"))
    c.cycle()
    found = c.explain("g")
    assert found.code == "TopologyPlacementFailed"
    assert found.message == (
        "4 pods must lie in one domain of rack (network); of 4 none holds them now: z0/r0 holds 3, z0/r1 holds 3, "
        "z1/r2 holds 3, z1/r3 holds 3."
    )
    assert [(b.detail, b.nodes, b.needed, b.available) for b in found.blockers] == [
        ("the most that one domain of rack takes, of 4", 8, "4", "3"),
        *((f"rack z{rack // 2}/r{rack}", 2, "4", "3") for rack in range(4)),
    ]
    assert found.nearest is not None
    assert (found.nearest.node, found.nearest.lacks) == ("z0/r0", "1 nvidia.com/gpu")
    assert found.remedies == (
        "Require zone instead of rack: z0 would hold it now.",
        "With minAvailable (minMember) 3 it could start now.",
    )


def test_tighter_levels_are_told_beside_the_required_one() -> None:
    c = gang(short_of_one(), "g", 7, near=want("zone", "rack"))
    c.cycle()
    summary = [(b.detail, b.available) for b in c.explain("g").blockers[:2]]
    assert summary == [
        ("the most that one domain of zone takes, of 2", "6"),
        ("the most that one domain of rack takes, of 4", "3"),
    ]


def test_what_no_domain_holds_even_if_empty_is_told_so() -> None:
    c = gang(grid(), "g", 6, near=want("rack"))
    c.cycle()
    found = c.explain("g")
    assert (found.code, found.waiting_helps) == ("ExceedsEveryDomain", "no")
    assert found.message.startswith(
        "6 pods must lie in one domain of rack (network); of 4 none would hold them even if empty: z0/r0 would hold 4."
    )
    assert found.remedies[:3] == (
        "Require zone instead of rack: z0 would hold it now.",
        "With minAvailable (minMember) 4 it could start now.",
        "Ask for at most 4 pods at once, or add nodes to a domain of rack.",
    )


def test_a_label_that_no_node_carries_is_told_so_with_what_to_do() -> None:
    c = gang(grid(), "g", 2, near=TopologyNeed("row", (Level("row"),), required=0))
    c.cycle()
    found = c.explain("g")
    assert found.message == "No node carries the label row, by which its pods must lie together."
    assert found.remedies[0] == (
        "Label nodes (kubectl label node NODE row=VALUE), or name a label that nodes carry."
    )
    (change,) = found.changes
    assert change.sentence == "If its pods did not have to share one value of row it would start now."


def test_members_bind_the_rest_to_their_domain() -> None:
    c = gang(grid(), "g", 5, near=want("rack"), least=4)
    c.settle()
    found = c.explain("g")
    assert found.code == "ExceedsEveryDomain"
    assert "1 pod in addition to the 4 that run must lie in one domain of rack" in found.message


def test_a_part_says_what_it_lacks() -> None:
    c = gang(grid(), "g", 0, parts=[("a", "", 2, want("rack")), ("b", "", 5, want("rack"))])
    c.cycle()
    assert "5 pods of sub-group b must lie in one domain of rack" in c.explain("g").message


def test_parts_that_fit_alone_but_not_together() -> None:
    c = Cluster().queues("default").nodes("a gpu=3 zone=z rack=r0", "b gpu=3 zone=z rack=r1")
    gang(c, "g", 0, parts=[(name, "", 2, want("rack")) for name in "abc"])
    c.cycle()
    found = c.explain("g")
    assert found.code == "TopologyPlacementFailed"
    assert found.message.startswith(
        "With sub-groups a, b placed: 2 pods of sub-group c must lie in one domain"
    )


def test_one_that_waits_is_woken_only_for_room_in_one_domain() -> None:
    """Room comes in racks one after the other; what waits is tried once some rack has enough."""
    c = grid()
    for rack in range(4):
        gang(c, f"old{rack}", 4, node_selector={"rack": f"r{rack}"})
    c.cycle()
    gang(c, "g", 2, near=want("rack"))
    c.cycle()
    group = c.engine.state.groups[f"{NAMESPACE}/g"]
    for rack in range(4):
        c.remove_task(f"old{rack}-0")
        c.engine.update_groups(c.now)
        assert group.pending_class is not None
        assert group.pending_class.parked
        c.cycle()
        assert not c.where("g")
    c.remove_task("old2-1")
    c.cycle()
    assert racks(c) == {"r2": 2}
