"""Y23: containers with whole CPUs get CPUs of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.node.limits import NO_LIMITS, ContainerLimits, WatchLimiter
from windlass.node.static_cpus import Key, NotEnoughCpus, StaticCpus, exclusive_counts, reserved_cpus

CORES = tuple(range(8))


class Moves:
    """Records where running containers were moved."""

    def __init__(self) -> None:
        self.at: dict[Key, tuple[int, ...]] = {}

    def __call__(self, moved: Mapping[Key, Sequence[int]]) -> None:
        self.at.update({key: tuple(cpus) for key, cpus in moved.items()})


def limiter(reserved: Sequence[int] = (0,), **more: Any) -> tuple[StaticCpus, Moves]:
    moves = Moves()
    return StaticCpus(WatchLimiter(CORES, "test"), CORES, reserved, repin=moves, **more), moves


def own(count: int) -> ContainerLimits:
    return ContainerLimits(cpu_milli=1000 * count, exclusive_cpus=count)


def pod(**amounts: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "resources": {"limits": amounts, "requests": amounts}}]}}


def test_whole_cpus_of_guaranteed_pods_are_exclusive() -> None:
    assert exclusive_counts(pod(cpu="2", memory="1Gi")) == {"main": 2}
    assert exclusive_counts(pod(cpu="1500m", memory="1Gi")) == {}
    assert exclusive_counts(pod(cpu="2")) == {}  # Burstable
    assert exclusive_counts({"spec": {"containers": [{"name": "main"}]}}) == {}


def test_y23_running_containers_leave_exclusive_cpus_and_come_back() -> None:
    static, moves = limiter()
    assert static.apply("a", "main", ContainerLimits()).affinity == ()  # all CPUs
    assert static.apply("b", "main", own(3)).affinity == (1, 2, 3)
    assert moves.at["a", "main"] == (0, 4, 5, 6, 7)
    assert static.apply("c", "main", ContainerLimits()).affinity == (0, 4, 5, 6, 7)
    static.release("b")
    assert moves.at["a", "main"] == moves.at["c", "main"] == CORES


def test_too_few_free_cpus_are_an_error() -> None:
    static, _ = limiter()
    static.apply("a", "main", own(6))
    with pytest.raises(NotEnoughCpus, match="2 CPUs of its own are needed, 1 are free"):
        static.apply("b", "main", own(2))
    static.release("a")
    assert len(static.apply("b", "main", own(2)).affinity) == 2


def test_numa_nodes_of_the_pod_and_whole_physical_cores_come_first() -> None:
    pairs = [frozenset((cpu, cpu + 4)) for cpu in range(4)]
    static, _ = limiter(neighbours=pairs)
    assert static.apply("a", "main", own(2)).affinity == (1, 5)
    assert static.apply("b", "main", own(1), within=(6, 7)).affinity == (6,)
    assert static.apply("c", "main", own(2)).affinity == (3, 7)  # core 2 is no longer whole


def test_restarted_agent_knows_who_has_which_cpus() -> None:
    static, moves = limiter()
    static.adopt("old", "main", (1, 2), own(2))
    static.adopt("other", "main", ())
    assert static.apply("new", "main", own(2)).affinity == (3, 4)
    assert moves.at["other", "main"] == (0, 5, 6, 7)


def test_reserved_cpus_cover_the_reserved_amount() -> None:
    assert reserved_cpus(CORES, (), 1500) == (0, 1)
    assert reserved_cpus(CORES, (6, 7), 1000) == (6, 7)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.booleans()), max_size=30))
def test_exclusive_cpus_overlap_with_nothing(steps: list[tuple[int, int, bool]]) -> None:
    static, moves = limiter()
    exclusive: dict[str, tuple[int, ...]] = {}
    shared: set[str] = set()
    for number, count, stop in steps:
        uid = str(number)
        exclusive.pop(uid, None)
        shared.discard(uid)
        static.release(uid)
        if stop:
            continue
        try:
            cpus = static.apply(uid, "main", own(count) if count else ContainerLimits()).affinity or CORES
        except NotEnoughCpus:
            assert count > 7 - sum(map(len, exclusive.values()))
            continue
        if count:
            exclusive[uid] = cpus
        else:
            shared.add(uid)
            moves.at[uid, "main"] = cpus
        taken = [cpu for cpus in exclusive.values() for cpu in cpus]
        assert len(taken) == len(set(taken))
        assert 0 not in taken
        for one in shared:
            assert not set(taken) & set(moves.at[one, "main"])


def test_two_exclusive_containers_have_disjoint_core_sets() -> None:
    """F53: the sets that `windlass show` prints."""
    cores = (0, 1, 2, 3)
    found = StaticCpus(WatchLimiter(cores, "no cgroups"), cores, (0,), repin=lambda _: None)
    for name, count in (("a", 1), ("b", 2)):
        found.apply(name, "main", replace(NO_LIMITS, cpu_milli=count * 1000, exclusive_cpus=count))
    found.apply("c", "main", NO_LIMITS)
    sets = [set(found.cpus_of(name, "main")) for name in ("a", "b", "c")]
    assert [len(cpus) for cpus in sets] == [1, 2, 1]
    assert len(set.union(*sets)) == 4
    found.release("a")
    assert found.cpus_of("a", "main") == ()
    assert len(found.cpus_of("c", "main")) == 2
