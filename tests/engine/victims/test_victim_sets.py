"""``engine.victims.victim_sets``: what goes together when room is taken from a group."""

from __future__ import annotations

from cluster_dsl import NAMESPACE, Cluster
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as altered

from windlass.engine.groups.subgroups import SubGroupTree
from windlass.engine.victims.victim_sets import elastic_and_minimum
from windlass.spi.objects import Group, SubGroup, TaskState


def units(c: Cluster, name: str = "g") -> list[list[str]]:
    group = c.engine.state.groups[f"{NAMESPACE}/{name}"]
    extras, core = elastic_and_minimum(group)
    taken = [*extras, core] if core else extras
    return [[entry.key.removeprefix(f"{NAMESPACE}/{name}-") for entry in unit] for unit in taken]


def placed(n: int, minimum: int, **more) -> Cluster:
    c = Cluster().queues("default").nodes("n1 gpu=8", "n2 gpu=8")
    c.gang("g", n, "gpu=1", min=minimum, **more)
    c.cycle()
    assert c.placed("g") == n
    return c


def parted(parts: str, held: dict[str, int], **group) -> Cluster:
    """``parts``: ``"a:2 b:1 ab:1/2(parent)"`` as ``name:min`` with ``>parent`` and ``/needed``."""
    specs = []
    for word in parts.split():
        name, _, rest = word.partition(":")
        rest, _, parent = rest.partition(">")
        least, _, needed = rest.partition("/")
        specs.append(SubGroup(name, parent, int(least), int(needed) if needed else None))
    c = Cluster().queues("default").nodes("n1 gpu=8", "n2 gpu=8")
    c.group(Group("ns/g", min_member=group.pop("min_member", 0), subgroups=tuple(specs), uid="g", **group))
    for part, n in held.items():
        c.add_tasks("g", n, "gpu=1", role=part)
        for i in range(n):
            c.task(
                altered(
                    c.tasks[f"ns/g-{part}-{i}"], subgroup=part, role="", state=TaskState.RUNNING, node="n1"
                )
            )
    c.overcommitted = True
    c.cycle()
    return c


def test_extras_go_one_by_one_the_last_first_and_the_core_as_one() -> None:
    assert units(placed(4, 2)) == [["3"], ["2"], ["1", "0"]]


def test_a_rigid_gang_goes_whole_and_one_without_a_minimum_bit_by_bit() -> None:
    assert units(placed(3, 3)) == [["2", "1", "0"]]
    c = placed(3, 1)
    c.change_group("g", min_member=0)
    assert units(c) == [["2"], ["1"], ["0"]]
    assert elastic_and_minimum(c.engine.state.groups["ns/g"])[1] == []


def test_a_gang_below_its_minimum_is_one_unit() -> None:
    c = placed(4, 4)
    c.remove_task("g-2")
    assert units(c) == [["3", "1", "0"]]


def test_those_who_ended_well_count_toward_the_minimum() -> None:
    c = placed(4, 2)
    c.change_task("g-0", state=TaskState.SUCCEEDED)
    c.change_task("g-1", state=TaskState.SUCCEEDED)
    assert units(c) == [["3"], ["2"]]


def test_what_terminates_is_no_victim_and_no_member() -> None:
    c = placed(4, 2)
    c.change_task("g-3", state=TaskState.RELEASING)
    assert units(c) == [["2"], ["1", "0"]]


def test_a_role_keeps_its_minimum() -> None:
    c = Cluster().queues("default").nodes("n1 gpu=8")
    c.gang("g", 3, "gpu=1", min=3, roles={"w": 1, "m": 1}, role="w").add_tasks("g", 1, "gpu=1", role="m")
    c.cycle()
    assert c.placed("g") == 4
    assert units(c) == [["w-2"], ["w-1", "w-0", "m-0"]]


def test_parts_give_their_extras_the_fullest_first() -> None:
    c = parted("a:1 b:1", {"a": 3, "b": 2})
    assert units(c) == [["a-2"], ["b-1"], ["a-1"], ["a-0", "b-0"]]


def test_a_part_that_can_be_done_without_goes_whole_after_all_extras() -> None:
    c = parted("a:2 b:2", {"a": 3, "b": 2}, min_subgroups=1)
    assert units(c) == [["a-2"], ["b-1", "b-0"], ["a-1", "a-0"]]


def test_what_is_not_complete_goes_first() -> None:
    c = parted("a:1 b:2", {"a": 2, "b": 1}, min_subgroups=1)
    assert units(c) == [["b-0"], ["a-1"], ["a-0"]]


def test_of_what_serves_nothing_as_many_stay_as_the_group_counts_on() -> None:
    c = parted("x:0 a:0>x b:2>x", {"a": 1, "b": 1}, min_member=1, min_subgroups=0)
    assert units(c) == [["b-0"], ["a-0"]]


def test_parts_of_parts() -> None:
    c = parted("x:0/1 y:0 a:1>x b:1>x c:1>y d:1>y", {"a": 1, "b": 2, "c": 2, "d": 1})
    assert units(c) == [["b-1"], ["c-1"], ["b-0"], ["a-0", "c-0", "d-0"]]


def test_the_group_may_ask_for_more_than_its_parts() -> None:
    c = parted("a:1 b:1", {"a": 2, "b": 2}, min_member=3)
    assert units(c) == [["b-1"], ["a-1", "a-0", "b-0"]]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(-1, 3)), min_size=1, max_size=5),
    st.integers(0, 4),
    st.none() | st.integers(0, 3),
)
def test_the_group_stays_complete_until_its_core_goes(
    drawn: list[tuple[int, int, int]], least: int, needed: int | None
) -> None:
    specs = [
        f"p{at}:{minimum}" + (f">p{parent}" if 0 <= parent < at else "")
        for at, (minimum, _, parent) in enumerate(drawn)
    ]
    held = {f"p{at}": n for at, (_, n, _) in enumerate(drawn)}
    c = parted(" ".join(specs), held, min_member=least, min_subgroups=needed)
    group = c.engine.state.groups["ns/g"]
    extras, core = elastic_and_minimum(group)
    left = {entry.key for entry in group.tasks.values()}
    assert left == {entry.key for unit in [*extras, core] for entry in unit}
    assert sum(map(len, extras)) + len(core) == len(left)

    def complete(keys: set[str], part: str = "") -> bool:
        tree = SubGroupTree(group.spec)
        for key in keys:
            tree.of(group.tasks[key].task.subgroup).held += 1
        return tree.root.is_complete() and tree.of(part).is_complete() and len(keys) >= least

    if not group.ready():
        assert not extras
        return
    for unit in extras:
        left -= {entry.key for entry in unit}
        assert complete(left)
    spared = [key for key in left if complete(left - {key}, group.tasks[key].task.subgroup)]
    assert not spared, "an extra was left in the core"
