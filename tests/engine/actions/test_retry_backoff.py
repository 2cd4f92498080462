"""``engine.actions.retry_backoff``: which claims are made again, and when."""

from __future__ import annotations

import pytest
from preemption_cluster import Arena

from windlass.engine.actions.retry_backoff import RetryBackoff
from windlass.engine.preemption.solver import PreemptionSolver


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The actions under which room was looked for, in order."""
    found: list[str] = []
    solve = PreemptionSolver.solve

    def watched(self, claim, *args):
        found.append(claim.action)
        return solve(self, claim, *args)

    monkeypatch.setattr(PreemptionSolver, "solve", watched)
    return found


def busy(a: Arena, solved: list[str], cycles: int = 4) -> int:
    """How often room is looked for while others come and go who change nothing about it."""
    solved.clear()
    for at in range(cycles):
        name = f"passing{a.world.now:.0f}{at}"
        a.waits(name, "other", 0, priority=99).cycle()
        a.cycle()
        a.world.finish(name)
    a.cycle()
    return len(solved)


def test_nobody_is_asked_again_while_nothing_of_lower_priority_runs(solved: list[str]) -> None:
    a = Arena("allocate", "preempt").node("n0", 1).queue("q", deserved=9).queue("other", deserved=0)
    a.runs("peer", "q", "n0:1", priority=60).waits("high", "q", 1, priority=60).cycle()
    assert busy(a, solved) == 0
    a.node("n1", 1).runs("low", "q", "n1:1", priority=1).cycle()
    assert a.evicted == {"low-0"}


def test_nothing_is_moved_while_all_nodes_together_have_too_little(solved: list[str]) -> None:
    a = Arena("allocate", "consolidation").node("n0", 2).node("n1", 2)
    a.queue("q", deserved=9).queue("other", deserved=0)
    a.runs("a", "q", "n0:1").runs("b", "q", "n1:1").runs("c", "q", "n1:1").waits("pair", "q", 2).cycle()
    assert busy(a, solved) == 0
    a.world.finish("c")
    a.cycle()
    assert len(a.evicted) == 1


def test_nothing_is_moved_while_what_is_left_does_not_hang_together(solved: list[str]) -> None:
    a = Arena("allocate", "consolidation").node("n0", 3).node("n1", 3)
    a.queue("q", deserved=9).queue("other", deserved=0)
    a.runs("a", "q", "n0:2").runs("b", "q", "n1:2").waits("pair", "q", 2).cycle()
    assert busy(a, solved) == 0
    a.node("n2", 1)  # one more, alone: still no two together
    a.cycle()
    assert a.evicted == set()
    a.node("n3", 2).runs("c", "q", "n3:1").cycle()  # now c can go to n2
    assert a.evicted == {"c-0"}


def test_a_queue_that_has_its_share_claims_nothing_until_it_is_due_more(solved: list[str]) -> None:
    a = Arena("allocate", "reclaim").node("n0", 2).queue("q", deserved=1).queue("other", deserved=1)
    a.runs("mine", "q", "n0:1").runs("theirs", "other", "n0:1").waits("more", "q", 1).cycle()
    assert busy(a, solved) == 0
    a.queue("q", deserved=2).queue("other", deserved=0).cycle()
    assert a.evicted == {"theirs-0"}


def test_a_group_that_no_node_could_ever_hold_is_tried_when_nodes_come(solved: list[str]) -> None:
    a = Arena("allocate", "preempt").node("n0", 1).queue("q", deserved=9).queue("other", deserved=0)
    a.runs("low", "q", "n0:1", priority=1).waits("wide", "q", 2, priority=60).cycle()
    assert busy(a, solved) == 0
    a.node("n1", 2).runs("lower", "q", "n1:2", priority=1).cycle()
    assert a.evicted == {"lower-0"}


def test_what_stands_in_the_way_of_several_is_looked_at_once() -> None:
    a = (
        Arena("allocate", "preempt")
        .node("n0", 1)
        .queue("q", deserved=9)
        .runs("peer", "q", "n0:1", priority=60)
    )
    for gpus in (1, 2, 3):
        a.node(f"wide{gpus}", gpus).runs(f"full{gpus}", "q", f"wide{gpus}:{gpus}", priority=60)
        a.waits(f"high{gpus}", "q", gpus, priority=60)
    a.cycle()
    (action,) = a.world.engine.plain_preempt_actions.values()
    assert [len(behind) for behind in action.retries._by_obstacle.values()] == [3]


def test_a_dump_tells_who_pauses_in_the_order_in_which_that_began() -> None:
    names = [f"low{i}" for i in range(12)]
    a = Arena("allocate", "preempt").node("n0", 1).queue("q", deserved=9)
    a.runs("peer", "q", "n0:1", priority=1).cycle()
    scheduling_queue = a.world.engine.scheduling_queue
    for at, name in enumerate(names):
        a.waits(name, "q", 2, priority=at).cycle()
    retries = RetryBackoff(scheduling_queue, 10.0)
    for name in names:
        pending_class = a.world.engine.state.groups[f"ns/{name}"].pending_class
        assert pending_class is not None
        retries.failed(pending_class, 0.0, None, None)
    retries.new_revision()
    assert retries.again(1.0, 99) == []
    records = retries.as_records("preempt", lambda _: ())
    assert [record.group for record in records] == [f"ns/{name}" for name in names]
