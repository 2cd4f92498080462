"""``engine.state.relocation_holds``: places kept for moved tasks until they come back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cluster_dsl import GPU
from msgspec.structs import replace as altered
from preemption_cluster import Arena

from windlass.engine import invariants
from windlass.engine.deltas import EvictionFailed
from windlass.engine.engine import Engine
from windlass.plugins.defaults import default_plugins
from windlass.spi.objects import TaskState


def moving() -> Arena:
    """``small`` is to move from n1 to n0, to make room for ``mine``."""
    a = Arena("allocate", "reclaim").node("n0", 3).node("n1", 2)
    a.queue("busy", deserved=3).queue("claims", deserved=2).queue("other", deserved=0)
    a.runs("big", "busy", "n0:2").runs("small", "busy", "n1:1").waits("mine", "claims", 2)
    a.cycle(follow=False)
    assert a.promised == {"mine-0": "n1", "small-0": "n0"}
    return a


def left() -> Arena:
    """Its task is gone, and none has come in its stead."""
    a = moving()
    a.world.remove_task("small-0")
    a.cycle()
    assert a.bound == {"mine-0": "n1"}
    return a


def held(a: Arena) -> list[tuple[str, str, float | None]]:
    names = a.world.engine.state.table.names
    return [(hold.group.key, names[hold.row], hold.until) for hold in a.world.engine.state.ledger.holds]


def test_a_place_is_kept_from_the_end_of_the_one_to_the_coming_of_the_other() -> None:
    a = moving()
    assert held(a) == []
    a.world.remove_task("small-0")
    assert held(a) == [("ns/small", "n0", None)]
    a.waits("thief", "busy", 1, priority=90).cycle()
    assert held(a) == [("ns/small", "n0", a.world.now + 60.0)]
    assert "thief-0" not in a.bound
    old = a.world.tasks["ns/big-0"]
    needs = replace(old.needs, request=(("cpu", 1000), ("memory", 1 << 30), ("nvidia.com/gpu", 1000)))
    a.world.task(
        altered(
            old, key="ns/small-9", uid="9", group="ns/small", needs=needs, node="", state=TaskState.PENDING
        )
    )
    assert held(a) == []
    assert a.world.engine.state.tasks["ns/small-9"].nominated_row >= 0
    a.cycle()
    assert a.bound == {"small-9": "n0"}


def test_who_moves_goes_on_though_more_of_its_group_wait_in_vain() -> None:
    """An elastic gang of one, of which another task finds no room while the place on n0 is kept for the first."""
    a = moving()
    small = a.world.tasks["ns/small-0"]
    waiting = altered(small, node="", state=TaskState.PENDING, devices=())
    a.world.task(altered(waiting, key="ns/small-1", uid="1"))
    a.cycle(follow=False)
    a.world.remove_task("small-0")
    a.world.task(altered(waiting, key="ns/small-0", uid="9"))
    a.cycle()
    assert a.bound == {"mine-0": "n1", "small-0": "n0"}


def test_a_task_of_another_kind_does_not_get_it() -> None:
    a = left()
    old = a.world.tasks["ns/big-0"]
    a.world.task(altered(old, key="ns/small-9", uid="9", group="ns/small", node="", state=TaskState.PENDING))
    a.cycle()
    assert len(held(a)) == 1


def test_it_is_given_up_in_time() -> None:
    a = left()
    a.waits("late", "busy", 1)
    assert a.cycle().wake_at == a.world.now + 59.0
    a.cycle(seconds=58.0)
    assert (len(held(a)), a.bound) == (1, {})
    a.cycle(seconds=1.0)
    assert (held(a), a.bound) == ([], {"late-0": "n0"})


def test_it_counts_for_its_device_model_once_a_queue_speaks_of_models() -> None:
    a = left()
    n0 = a.world.node_specs["n0"]
    a.world.nodes(replace(n0, labels={**n0.labels, f"{GPU}.product": "NVIDIA-H100"}))
    a.queue("busy", deserved=3, capability={f"{GPU}@H100": 8000})
    a.cycle()
    busy = a.world.engine.state.queues.get("kai/busy")
    assert (len(held(a)), busy.nominated[f"{GPU}@H100"]) == (1, 1000)


@pytest.mark.parametrize("how", ["queue", "gone"])
def test_it_goes_with_its_group(how: str) -> None:
    a = left()
    if how == "queue":
        a.world.change_group("small", queue="kai/other")
    else:
        a.world.remove_group("small")
    assert held(a) == []
    a.waits("late", "busy", 1).cycle()
    assert a.bound == {"late-0": "n0"}


def test_its_node_may_go_before_it() -> None:
    a = left()
    a.world.finish("big")
    a.world.remove_node("n0")
    a.cycle()
    a.cycle(seconds=60.0)
    a.cycle()
    assert held(a) == []
    a.node("n2", 2).waits("late", "busy", 1).cycle()
    assert a.bound == {"late-0": "n2"}


def test_who_stays_after_all_keeps_no_second_place() -> None:
    a = moving()
    a.world.engine.apply([EvictionFailed("ns/small-0", "uid-small-0", "no")])
    assert a.world.engine.state.tasks["ns/small-0"].nominated_row == -1
    invariants.check(a.world.engine)
    b = moving()
    b.world.change_task("small-0", state=TaskState.STUCK)
    assert b.world.engine.state.tasks["ns/small-0"].nominated_row == -1
    invariants.check(b.world.engine)


def test_one_that_ended_while_it_was_to_move_leaves_its_place_to_the_next() -> None:
    a = moving()
    a.world.change_task("small-0", state=TaskState.FAILED)
    assert [name for name, _, _ in held(a)] == ["ns/small"]
    invariants.check(a.world.engine)


@pytest.mark.parametrize("make", [moving, left])
def test_it_survives_being_written_down(make: object) -> None:
    a = make()  # type: ignore[operator]
    copy = Engine.load(a.world.engine.dump(), default_plugins())
    invariants.check(copy)
    assert copy.dump() == a.world.engine.dump()
    names = copy.state.table.names
    assert [(hold.group.key, names[hold.row], hold.until) for hold in copy.state.ledger.holds] == held(a)
    a.waits("late", "busy", 1)
    copy = Engine.load(a.world.engine.dump(), default_plugins())
    assert copy.cycle(2000.0) == a.world.engine.cycle(2000.0)
