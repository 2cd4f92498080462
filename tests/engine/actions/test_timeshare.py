"""``engine.actions.timeshare``: groups that opted in are suspended for one another, and nobody else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from cluster_dsl import NAMESPACE
from msgspec.structs import replace as altered
from preemption_cluster import Arena

from windlass.api.reasons import Reason
from windlass.kits import timestamps
from windlass.plugins.timeshare.gittins import FACTOR, FIRST
from windlass.plugins.timeshare.opt_in import QUANTUM_SECONDS, TIME_SHARE
from windlass.plugins.timeshare.suspension_cost import CHECKPOINT_EVERY, CHECKPOINTED
from windlass.spi.objects import Dialect

YES: Mapping[str, str] = {TIME_SHARE: "true", CHECKPOINT_EVERY: "0s"}
"""A stop loses it nothing."""
NO: Mapping[str, str] = {TIME_SHARE: "false"}
LONG = FIRST + 1.0
"""After so long a group is expected to go on for longer than one that begins."""


def sharing(*gpus: int, **queue: object) -> Arena:
    a = Arena("allocate", "preempt", "timeshare", dialect=Dialect.VOLCANO).queue("q", deserved=64, **queue)
    a.world.now = 0.0  # what runs was started just now
    for at, n in enumerate(gpus):
        a.node(f"n{at}", n)
    return a


def test_who_ran_long_is_suspended_for_one_that_begins_and_the_room_is_kept() -> None:
    a = sharing(4).runs("old", "q", "n0:4", annotations=YES)
    a.cycle()
    a.cycle(LONG)
    a.waits("new", "q", 4, annotations=YES)
    decision = a.cycle(follow=False)
    assert [(e.task, e.action, e.preemptor) for e in decision.evictions] == [
        (f"{NAMESPACE}/old-0", "timeshare", f"{NAMESPACE}/new")
    ]
    assert a.promised == {"new-0": "n0"}
    a.follow()
    assert a.cycle().binds[0].task == f"{NAMESPACE}/new-0"
    assert a.rest() == 0  # nobody takes it back


def test_who_was_suspended_is_told_so_and_goes_on_once_there_is_room() -> None:
    a = sharing(4).runs("old", "q", "n0:4", annotations=YES)
    a.cycle()
    a.cycle(LONG)
    a.waits("new", "q", 4, annotations=YES).cycle()
    a.cycle()
    told = a.world.engine.explain(f"{NAMESPACE}/old", a.world.now)
    assert told is not None
    assert told.code is Reason.TIME_SHARED
    assert "has run for 10m" in told.message
    assert "suspended once" in told.message
    a.world.remove_task("new-0")
    a.cycle()
    assert a.running() == {"old": 1}


@pytest.mark.parametrize(
    ("old", "new"), [({}, YES), (YES, {}), (NO, YES), (YES, NO), ({CHECKPOINTED: "", **NO}, YES)]
)
def test_both_have_to_agree(old: Mapping[str, str], new: Mapping[str, str]) -> None:
    a = sharing(4).runs("old", "q", "n0:4", annotations=old)
    a.cycle()
    a.cycle(LONG)
    a.waits("new", "q", 4, annotations=new).cycle()
    assert a.evicted == set()
    assert a.rest() == 0


def test_a_checkpoint_or_the_queue_agrees_for_the_group() -> None:
    a = sharing(4).runs("old", "q", "n0:4", annotations={CHECKPOINTED: "2026-01-01T00:00:00Z"})
    a.cycle()
    a.cycle(LONG)
    a.waits("new", "q", 4, annotations=YES).cycle()
    assert a.evicted == {"old-0"}
    b = sharing(4, annotations=YES).runs("old", "q", "n0:4", annotations={CHECKPOINT_EVERY: "0s"})
    b.cycle()
    b.cycle(LONG)
    b.waits("new", "q", 4).cycle()
    assert b.evicted == {"old-0"}


def test_neither_higher_priority_nor_other_queues_nor_what_is_not_preemptible_is_touched() -> None:
    a = sharing(2, 2, 2).queue("other", deserved=64)
    a.runs("high", "q", "n0:2", annotations=YES, priority=60)
    a.runs("elsewhere", "other", "n1:2", annotations=YES)
    a.runs("firm", "q", "n2:2", annotations=YES, preemptible=False)
    a.cycle()
    a.cycle(LONG)
    a.waits("new", "q", 2, annotations=YES).cycle()
    assert a.evicted == set()


def test_nothing_goes_unless_the_whole_gang_fits() -> None:
    a = sharing(4, 4).runs("old", "q", "n0:4", annotations=YES).runs("firm", "q", "n1:4")
    a.cycle()
    a.cycle(LONG)
    a.waits("gang", "q", 4, 4, min=2, annotations=YES).cycle()
    assert a.evicted == set()
    a.waits("small", "q", 4, annotations=YES).cycle()
    assert a.evicted == {"old-0"}


def test_a_gang_goes_whole_and_as_little_as_possible_goes() -> None:
    a = sharing(4, 4).runs("wide", "q", "n0:4", "n1:2", min=2, annotations=YES)
    a.runs("small", "q", "n1:1", annotations=YES).runs("tiny", "q", "n1:1", annotations=YES)
    a.cycle()
    a.cycle(LONG)
    a.waits("one", "q", 1, annotations=YES).cycle()
    assert a.evicted in ({"small-0"}, {"tiny-0"})
    b = sharing(4, 4).runs("wide", "q", "n0:4", "n1:2", min=2, annotations=YES).runs("firm", "q", "n1:2")
    b.cycle()
    b.cycle(LONG)
    b.waits("four", "q", 4, annotations=YES).cycle()
    assert b.evicted == {"wide-0", "wide-1"}


def test_a_start_is_left_alone_for_a_while() -> None:
    a = sharing(4).waits("big", "q", 4, annotations=YES)
    a.cycle()
    a.cycle(LONG)
    a.waits("one", "q", 1, annotations=YES).cycle()
    assert a.evicted == {"big-0"}
    a.cycle()
    a.world.remove_task("one-0")
    a.cycle()
    assert a.running() == {"big": 1}
    a.waits("two", "q", 1, annotations=YES)
    decision = a.cycle()
    assert a.evicted == set()
    assert decision.wake_at is not None
    assert decision.wake_at == pytest.approx(a.world.now + 4 * QUANTUM_SECONDS, abs=5)
    a.cycle(4 * QUANTUM_SECONDS + 1)
    assert a.evicted == {"big-0"}


def test_what_the_queue_s_limit_forbids_is_made_room_for_too() -> None:
    a = sharing(8, limit=4).runs("old", "q", "n0:4", annotations=YES)
    a.cycle()
    a.cycle(LONG)
    a.waits("new", "q", 2, annotations=YES).cycle()
    assert a.evicted == {"old-0"}


def test_gangs_of_several_kinds_of_pods_are_tried() -> None:
    a = sharing(4, 4).runs("a", "q", "n0:4", annotations=YES).runs("b", "q", "n1:4", annotations=YES)
    a.cycle()
    a.cycle(LONG)
    a.waits("mixed", "q", 4, 2, min=2, annotations=YES).cycle()
    assert a.evicted == {"a-0", "b-0"}
    a.cycle()
    assert a.running() == {"mixed": 2}


def test_an_engine_that_begins_anew_knows_who_has_run_long() -> None:
    """After a restart of the scheduler: the world says since when pods run and when groups came."""
    for seconds, goes in ((LONG, {"old-0"}), (1.0, set())):
        a = sharing(4).runs("old", "q", "n0:4", annotations=YES)
        a.world.now = 10_000.0
        a.world.change_task("old-0", started=a.world.now - seconds)
        a.waits("new", "q", 4, annotations=YES).cycle()
        assert a.evicted == goes
        time_account = a.world.engine.state.time_sharing.accounts[f"{NAMESPACE}/old"]
        had = time_account.segment.attained if goes else a.world.now - (time_account.started or 0.0)
        assert had == pytest.approx(seconds, abs=2.0)


def chained() -> Arena:
    """``new`` has just suspended ``mid``, of two GPUs; ``old``, of four on the other node, ranks worse than both."""
    a = sharing(2, 4).runs("mid", "q", "n0:2", annotations=YES).runs("old", "q", "n1:4", annotations=YES)
    a.world.now = 10_000.0
    a.world.change_task("mid-0", started=a.world.now - LONG)
    a.world.change_task("old-0", started=a.world.now - FACTOR * LONG)
    a.waits("new", "q", 2, annotations=YES).cycle()
    assert a.evicted == {"mid-0"}
    return a


def test_who_was_suspended_rests_before_it_suspends_others() -> None:
    a = chained()
    suspended = a.world.now - 1.0
    decision = a.cycle()
    assert a.running() == {"new": 1, "old": 1}
    assert a.evicted == set()
    assert decision.wake_at == pytest.approx(suspended + QUANTUM_SECONDS, abs=1.0)
    a.cycle(QUANTUM_SECONDS / 2)
    assert a.evicted == set()
    told = a.world.engine.explain(f"{NAMESPACE}/mid", a.world.now)
    assert told is not None
    assert told.code is Reason.TIME_SHARED
    assert "or ranks below it, in 2" in told.message  # seconds
    a.cycle(QUANTUM_SECONDS / 2)
    assert a.evicted == {"old-0"}


def test_who_rests_starts_where_there_is_room() -> None:
    a = chained()
    a.cycle()
    a.node("n2", 2)
    decision = a.cycle()
    assert a.running() == {"new": 1, "old": 1, "mid": 1}
    assert decision.wake_at is None or decision.wake_at > a.world.now + QUANTUM_SECONDS  # it rests no more


# ---------------------------------------------------------------------- what a suspension loses


def saving(every: str) -> Mapping[str, str]:
    return {TIME_SHARE: "true", CHECKPOINT_EVERY: every}


def test_who_would_lose_more_than_it_is_worth_is_spared_until_its_next_checkpoint_and_that_is_said() -> None:
    a = sharing(4).runs("old", "q", "n0:4", annotations=saving("1h"))
    a.cycle()
    a.cycle(3000.0)
    a.waits("new", "q", 4, annotations=YES)
    decision = a.cycle()
    assert a.evicted == set()
    assert decision.wake_at == pytest.approx(3600.0, abs=5)
    told = a.world.engine.explain(f"{NAMESPACE}/new", a.world.now)
    assert told is not None
    assert told.code is Reason.TIME_SHARED
    assert "the next checkpoint of one of them is in 9m" in told.message
    a.cycle(600.0)
    assert a.evicted == {"old-0"}


def test_who_never_says_that_it_saved_its_work_loses_all_since_its_start() -> None:
    a = sharing(4).runs("old", "q", "n0:4", annotations={TIME_SHARE: "true"})
    a.cycle()
    a.cycle(9000.0)
    a.waits("new", "q", 4, annotations=YES).cycle()
    assert a.evicted == set()
    told = a.world.engine.explain(f"{NAMESPACE}/new", a.world.now)
    assert told is not None
    assert "none of them states its next checkpoint" in told.message
    assert a.rest() == 0


def test_who_says_that_it_has_just_saved_its_work_may_go_at_once() -> None:
    a = sharing(4).runs("old", "q", "n0:4", annotations={TIME_SHARE: "true"})
    a.cycle()
    a.cycle(9000.0)
    a.waits("new", "q", 4, annotations=YES).cycle()
    assert a.evicted == set()
    known = a.world.engine.state.groups[f"{NAMESPACE}/old"].group
    assert known is not None
    notes = {TIME_SHARE: "true", CHECKPOINTED: timestamps.rfc3339(a.world.now)}
    a.world.group(altered(known, annotations=notes))
    a.cycle()
    assert a.evicted == {"old-0"}


def test_what_one_alone_is_not_worth_many_are() -> None:
    """Eight of eight cards run what would lose half an hour; those that wait are tried again as more come."""
    a = sharing(8)
    for at in range(8):
        a.runs(f"old{at}", "q", "n0:1", annotations=saving("10000s"))
    a.cycle()
    a.cycle(12_000.0)
    a.waits("new", "q", 1, annotations=YES).cycle()
    assert a.evicted == set()
    for at in range(40):
        a.waits(f"more{at}", "q", 1, annotations=YES)
    a.cycle()
    assert a.evicted
