"""Volcano's buckets: which pods of a job are to share a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.model.groups.task_topology import role_preferences
from windlass.plugins.volcano.jobs.buckets import Buckets, PodKind, concern, order

AFFINITY, APART, ORDER = (
    f"volcano.sh/task-topology-{name}" for name in ("affinity", "anti-affinity", "task-order")
)
ROLES = "abcd"


def kinds_of(notes: dict[str, str], requests: Sequence[int] = (1000, 1000, 1000, 1000)) -> list[PodKind]:
    """One kind for each role with wishes, by number."""
    wishes = [role_preferences(notes, "d/g", role) for role in ROLES]
    return [
        PodKind(at, roles, {"cpu": cpu})
        for at, (roles, cpu) in enumerate(zip(wishes, requests, strict=True))
        if roles is not None and concern(roles)
    ]


def shape(buckets: Buckets) -> list[dict[str, int]]:
    """The waiting pods of each bucket, by role."""
    return [
        {ROLES[number]: pods for number, pods in sorted(bucket.waiting.items()) if pods}
        for bucket in buckets._buckets
    ]


@pytest.mark.parametrize(
    ("notes", "waiting", "expected"),
    [
        ({AFFINITY: "a,b", APART: "a"}, (2, 4), [{"a": 1, "b": 2}, {"a": 1, "b": 2}]),
        ({APART: "a"}, (3,), [{"a": 1}, {"a": 1}, {"a": 1}]),
        ({AFFINITY: "a"}, (3,), [{"a": 3}]),
        ({AFFINITY: "a,b;b,c"}, (1, 1, 1), [{"a": 1, "b": 1, "c": 1}]),
        ({APART: "a,b"}, (2, 1), [{"a": 2}, {"b": 1}]),
        ({AFFINITY: "a,b", APART: "a", ORDER: "b,a"}, (2, 1), [{"a": 2, "b": 1}]),
    ],
)
def test_who_belongs_together(notes: dict[str, str], waiting: Sequence[int], expected: list[object]) -> None:
    assert shape(Buckets(kinds_of(notes), dict(enumerate(waiting)), {})) == expected


def test_those_that_run_are_in_one_bucket_per_node_and_others_join_them() -> None:
    buckets = Buckets(kinds_of({AFFINITY: "a,b", APART: "a"}), {0: 1, 1: 2}, {0: {4: 1}, 1: {4: 1, 9: 1}})
    assert shape(buckets) == [{"b": 2}, {"a": 1}]
    assert buckets.largest == 4


def test_how_many_would_be_on_each_node() -> None:
    kinds = kinds_of({AFFINITY: "a,b"}, (2000, 1000, 0, 0))
    buckets = Buckets(kinds, {0: 1, 1: 3}, {})
    rows = np.array([2, 5, 7])
    assert buckets.together(0, rows, {"cpu": np.array([2000, 3999, 9000])}).tolist() == [1, 2, 4]
    assert buckets.take(0, 5)
    assert buckets.together(1, rows, {"cpu": np.array([2000, 1999, 9000])}).tolist() == [2, 2, 3]
    assert not buckets.take(0, 5)
    assert buckets.give_back(0, 5)
    assert not buckets.give_back(0, 5)
    assert buckets.together(0, rows, {"cpu": np.array([2000, 3999, 9000])}).tolist() == [1, 2, 4]


GROUPS = st.lists(st.lists(st.sampled_from(ROLES), min_size=1, max_size=3, unique=True), max_size=3)


@given(GROUPS, GROUPS, st.permutations(ROLES), st.integers(0, 4), st.data())
def test_one_pod_after_the_other_joins_those_it_likes_best(
    near: list[list[str]], apart: list[list[str]], turns: list[str], named: int, data: st.DataObject
) -> None:
    """The rule of Volcano, said as plainly as can be."""
    notes = {
        AFFINITY: ";".join(map(",".join, near)),
        APART: ";".join(map(",".join, apart)),
        ORDER: ",".join(turns[:named]),
    }
    requests = data.draw(st.tuples(*[st.integers(1, 3).map(lambda n: n * 1000)] * 4))
    kinds = kinds_of(notes, requests)
    waiting = {kind.number: data.draw(st.integers(0, 4)) for kind in kinds}
    there = {kind.number: {3: 1} for kind in kinds if data.draw(st.booleans())}
    plain: list[tuple[Counter[str], list[int]]] = []  # roles of all of a bucket; what those that wait ask for
    if there:
        plain.append((Counter(ROLES[number] for number in there), []))
    for kind in sorted(kinds, key=lambda one: (order(one.roles), one.number)):
        for _ in range(waiting[kind.number]):
            likes = [
                sum(n * ((role in kind.roles.near) - (role in kind.roles.apart)) for role, n in roles.items())
                for roles, _ in plain
            ]
            if not likes or max(likes) < 0:
                plain.append((Counter(), []))
                chosen = plain[-1]
            else:
                best = [bucket for bucket, like in zip(plain, likes, strict=True) if like == max(likes)]
                chosen = min(best, key=lambda bucket: sum(bucket[1]))
            chosen[0][kind.roles.role] += 1
            chosen[1].append(requests[kind.number])
    buckets = Buckets(kinds, waiting, there)
    assert [bucket.left for bucket in buckets._buckets] == [len(asked) for _, asked in plain]
    found = shape(buckets)
    if there:
        found[0] = dict(Counter(found[0]) + Counter(ROLES[number] for number in there))
    assert found == [dict(sorted(roles.items())) for roles, _ in plain]
    moves = data.draw(st.lists(st.tuples(st.sampled_from([*waiting, -1]), st.integers(0, 5)), max_size=6))
    before, done = shape(buckets), [move for move in moves if buckets.take(*move)]
    assert all([buckets.give_back(*move) for move in reversed(done)])
    assert shape(buckets) == before
