"""What is made in place of evicted pods: how old it is, and how much of the gang goes with them."""

from __future__ import annotations

import pytest

from windlass.sim.whatif.recreate import remade
from windlass.spi.objects import AttainedService, Group, Needs, Task, TaskState

NOW = 1000.0


def group(key: str = "ns/g") -> Group:
    past = AttainedService(attained=60.0, at=50.0, suspensions=1)
    return Group(key, created=1.0, uid="g", admitted=True, started=2.0, past=past)


def tasks(*roles: str) -> dict[str, Task]:
    return {
        f"t{at}": Task(f"t{at}", f"u{at}", "ns/g", Needs(), state=TaskState.RUNNING, node="n", role=role)
        for at, role in enumerate(roles)
    }


@pytest.mark.parametrize("restarts", [None, frozenset({"ps"})])
def test_a_gang_that_is_not_started_over_keeps_its_group_and_the_rest(
    restarts: frozenset[str] | None,
) -> None:
    found, anew = remade(group(), tasks("w", "w"), ["t0"], restarts, NOW)
    assert found == group()
    assert {key: (task.state, task.node, task.uid) for key, task in anew.items()} == {
        "t0": (TaskState.PENDING, "", "u0+1")
    }


def test_a_gang_that_is_started_over_is_a_new_one_with_all_its_tasks() -> None:
    there = tasks("w", "w", "ps")
    there["t2"] = Task("t2", "u2", "ns/g", Needs(), state=TaskState.SUCCEEDED, role="ps")
    found, anew = remade(group(), there, ["t1"], frozenset({"w"}), NOW)
    assert (found.created, found.uid, found.admitted, found.started) == (NOW, "g+1", False, None)
    assert sorted(anew) == ["t0", "t1"]


def test_what_a_gang_attained_is_handed_on_when_it_is_started_over() -> None:
    found, anew = remade(group(), tasks("w"), ["t0"], frozenset({"w"}), NOW)
    assert found.past == AttainedService(attained=60.0, at=50.0, suspensions=1, since=1.0)
    newest = AttainedService(attained=90.0, at=NOW + 5, suspensions=2)
    again, _ = remade(found, anew, ["t0"], frozenset({"w"}), NOW + 5, newest)
    assert again.past == AttainedService(attained=90.0, at=NOW + 5, suspensions=2, since=1.0)
    alone, _ = remade(group("ns/pod:a"), tasks(""), ["t0"], None, NOW)
    assert alone.past is None


def test_a_pod_by_itself_is_younger_than_the_one_that_is_gone_and_let_in_as_all_of_its_kind() -> None:
    found, anew = remade(group("ns/pod:a"), tasks(""), ["t0"], None, NOW)
    assert (found.created, found.admitted, found.uid) == (NOW, True, "g+1")
    again, _ = remade(found, anew, ["t0"], None, NOW + 5)
    assert (again.created, again.uid) == (NOW + 5, "g+2")
