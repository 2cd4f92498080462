"""Volcano's votes: what each says, and how the tiers of a configuration combine them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
from msgspec.structs import replace as altered
from vote_views import GPU, TOTAL, FakeGang, FakeTask, gang_of, names, pod, queue, refused

from windlass.api.reasons import Reason
from windlass.plugins.argument_values import boolean, duration, number
from windlass.plugins.volcano.evictions import tdm
from windlass.plugins.volcano.evictions.cdp import VolcanoCooldown
from windlass.plugins.volcano.evictions.conformance import Conformance
from windlass.plugins.volcano.jobs import drf, gang, priority, sla
from windlass.plugins.volcano.queues import capacity, overcommit, proportion
from windlass.plugins.volcano.queues.step_admission import TierAdmission
from windlass.plugins.volcano.tiers import VolcanoTiers, VotingTier
from windlass.spi.objects import Dialect, Group, Needs, Node, QueueState, Task, TaskState
from windlass.spi.plugins import Rejection, StepView
from windlass.spi.tiers import EnqueueRequest, Purpose, Vote

# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h30m", 5400),
        ("90s", 90),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("1d", 86400),
        ("", None),
        ("10", None),
        ("5x", None),
        ("1h x", None),
    ],
)
def test_durations(text: str, seconds: float | None) -> None:
    assert duration(text) == seconds


def test_numbers_and_booleans_may_be_text() -> None:
    assert number({"a": "1.5"}, "a", 0) == 1.5
    assert number({"a": True}, "a", 7) == 7
    assert number({"a": "x"}, "a", 7) == 7
    assert number({}, "a", 7) == 7
    assert boolean({"a": "True"}, "a", False)
    assert not boolean({"a": "f"}, "a", True)
    assert not boolean({"a": False}, "a", True)
    assert boolean({"a": "maybe"}, "a", True)
    assert boolean({}, "a", True)


# ---------------------------------------------------------------------- gang, priority, conformance, cdp


@pytest.mark.parametrize(
    ("held", "promised", "starves"), [(0, 0, True), (1, 1, False), (2, 0, False), (1, 0, True)]
)
def test_a_gang_starves_below_its_minimum(held: int, promised: int, starves: bool) -> None:
    found = gang_of(min_member=2, held_members=held, nominated_members=promised, members=5)
    assert gang.GangStarving().starving(found) is starves


@pytest.mark.parametrize(("held", "promised", "starves"), [(4, 0, True), (4, 1, False), (5, 0, False)])
def test_priority_starves_while_any_member_is_missing(held: int, promised: int, starves: bool) -> None:
    found = gang_of(min_member=2, held_members=held, nominated_members=promised, members=5)
    assert priority.PriorityStarving().starving(found) is starves


def test_a_gang_gives_only_what_it_has_above_its_minimum_in_the_order_offered() -> None:
    first = gang_of("first", min_member=2, held_members=3)
    second = gang_of("second", min_member=0, held_members=2)
    offered = [pod("a", first), pod("x", second), pod("b", first), pod("c", first), pod("y", second)]
    claimer = pod("claimer", gang_of("claimer"))
    assert names(gang.GangEvictable().victims(Purpose.RECLAIM, claimer, offered)) == ["a", "x", "y"]


def test_only_lower_priority_goes_for_higher() -> None:
    mine = gang_of("mine", priority=5)
    claimer = pod("claimer", mine, priority=3)
    offered = [
        pod("lower", gang_of("l", priority=4), priority=9),
        pod("equal", gang_of("e", priority=5), priority=0),
        pod("own-lower", mine, priority=2),
        pod("own-equal", mine, priority=3),
    ]
    assert names(priority.PriorityEvictable().victims(Purpose.PREEMPT, claimer, offered)) == [
        "lower",
        "own-lower",
    ]
    assert priority.PriorityEvictable().victims(Purpose.RECLAIM, claimer, offered) is None


def test_orders() -> None:
    assert gang.GangOrder().group_key(gang_of(min_member=2, held_members=1)) == 0
    assert gang.GangOrder().group_key(gang_of(min_member=2, held_members=2)) == 1
    assert priority.PriorityOrder().group_key(gang_of(priority=7)) == -7
    assert priority.PriorityTaskOrder().task_key(Task("t", "t", "g", Needs(), priority=4)) == -4


def test_critical_pods_stay() -> None:
    offered = [pod("system", gang_of(), critical=True), pod("user", gang_of())]
    assert names(Conformance().victims(Purpose.PREEMPT, offered[1], offered)) == ["user"]


def test_young_pods_stay_for_their_cooldown() -> None:
    note = (("volcano.sh/cooldown-time", "10m"),)
    offered = [
        pod("young", gang_of(), annotations=note, running_seconds=599.0),
        pod("old", gang_of(), annotations=note, running_seconds=600.0),
        pod("unknown", gang_of(), annotations=note),
        pod("silent", gang_of(), running_seconds=1.0),
        pod("wrong", gang_of(), annotations=(("volcano.sh/cooldown-time", "soon"),), running_seconds=1.0),
    ]
    found = VolcanoCooldown().victims(Purpose.RECLAIM, offered[0], offered)
    assert names(found) == ["old", "unknown", "silent", "wrong"]


# ---------------------------------------------------------------------- drf


def test_drf_takes_from_groups_that_keep_at_least_the_claimers_share() -> None:
    mine = gang_of("mine", holding={GPU: 1})
    rich = gang_of("rich", holding={GPU: 4})
    claimer = pod("claimer", mine, {GPU: 1})
    offered = [pod("a", rich), pod("b", rich), pod("c", rich)]
    # With the task the claimer has 2 of 10; the rich one keeps 3, then 2, then 1 of 10.
    assert names(drf.DrfEvictable().victims(Purpose.PREEMPT, claimer, offered)) == ["a", "b"]
    assert drf.DrfEvictable().victims(Purpose.RECLAIM, claimer, offered) is None


def test_what_the_cluster_lacks_is_left_out_of_a_share() -> None:
    assert drf.dominant_share({"fpga": 5}, TOTAL) == 0
    assert drf.dominant_share({"fpga": 1}, {"fpga": 1}) == 1 << drf.SHIFT
    assert drf.dominant_share({"cpu": 50, GPU: 1}, TOTAL) == (1 << drf.SHIFT) // 2


# ---------------------------------------------------------------------- proportion


def test_proportion_allots_up_to_the_fair_share_of_what_is_asked_for() -> None:
    found = queue(committed={GPU: 3, "cpu": 99}, fair_share={GPU: 4, "cpu": 10})
    vote = proportion.ProportionAllocatable()
    assert vote.may_allocate(found.path, {GPU: 1}) is None
    answer = vote.may_allocate(found.path, {GPU: 2})
    assert answer == Rejection(Reason.WAITING_FOR_SHARE, "q", GPU, 2, 1, "fair share 0.004 of queue q")
    assert refused(vote.may_allocate(found.path, {"cpu": 1}))
    assert vote.may_allocate(found.path, {"cpu": 0}) is None
    assert refused(vote.may_allocate(found.path, {"memory": 1}))  # not named: nothing is due


@pytest.mark.parametrize("state", [QueueState.CLOSED, QueueState.CLOSING])
def test_a_queue_that_is_not_open_gets_and_claims_nothing(state: QueueState) -> None:
    closed = queue(state=state, fair_share={GPU: 9})
    below = queue("below", closed, fair_share={GPU: 9}, deserved={GPU: 9})
    for path in (closed.path, below.path):
        for answer in (
            proportion.ProportionAllocatable().may_allocate(path, {GPU: 1}),
            proportion.ProportionPreemptionVote().may_reclaim(path, {GPU: 1}),
            capacity.CapacityAllocatable().may_allocate(path, {GPU: 1}),
            capacity.CapacityPreemptionVote().may_reclaim(path, {GPU: 1}),
        ):
            assert isinstance(answer, Rejection)
            assert answer.code is Reason.QUEUE_CLOSED


def test_overused_means_all_that_is_deserved_is_held() -> None:
    vote = proportion.ProportionOverused()
    assert not vote.overused(queue(committed={GPU: 4}, fair_share={GPU: 4, "cpu": 1}))
    assert vote.overused(queue(committed={GPU: 4, "cpu": 1}, fair_share={GPU: 4, "cpu": 1}))
    assert vote.overused(queue(fair_share={GPU: 0}))


def test_proportion_gives_while_anything_is_held_above_the_fair_share() -> None:
    rich = queue("rich", committed={GPU: 4, "cpu": 1}, fair_share={GPU: 2, "cpu": 1})
    fair = queue("fair", committed={GPU: 2}, fair_share={GPU: 2})
    many, few = gang_of("many", rich), gang_of("few", fair)
    offered = [pod("a", many), pod("f", few), pod("b", many), pod("c", many)]
    claimer = pod("claimer", gang_of())
    vote = proportion.ProportionEvictable()
    assert names(vote.victims(Purpose.RECLAIM, claimer, offered)) == ["a", "b"]
    assert vote.victims(Purpose.PREEMPT, claimer, offered) is None


@pytest.mark.parametrize(("booked", "vote"), [(1, Vote.PERMIT), (2, None), (-1, Vote.PERMIT)])
def test_admission_counts_what_is_held_and_booked(booked: int, vote: Vote | None) -> None:
    found = queue(committed={GPU: 3}, real_capability={GPU: 6})
    asking = EnqueueRequest(gang_of("g", found, min_resources={GPU: 2}), 0.0, reserved={"q": {GPU: booked}})
    for voter in (proportion.ProportionEnqueueable(), capacity.CapacityEnqueueable()):
        answer = voter.admit(asking)
        assert refused(answer) if vote is None else answer is vote


# ---------------------------------------------------------------------- capacity


def test_deserved_is_bounded_by_the_real_capability_but_not_below_the_guarantee() -> None:
    found = queue(
        deserved={GPU: 8, "cpu": 2}, guarantee={"cpu": 3, "memory": 1}, real_capability={GPU: 5, "cpu": 9}
    )
    assert capacity.deserved(found, hierarchy=False) == {GPU: 5, "cpu": 3, "memory": 1}
    assert capacity.deserved(found, hierarchy=True) == {GPU: 8, "cpu": 3, "memory": 1}


def test_capacity_allots_up_to_the_real_capability_at_every_level_of_a_tree() -> None:
    top = queue("top", committed={GPU: 5}, real_capability={GPU: 5})
    leaf = queue("leaf", top, committed={GPU: 1}, real_capability={GPU: 5}, deserved={GPU: 1})
    assert capacity.CapacityAllocatable().may_allocate(leaf.path, {GPU: 1}) is None
    answer = capacity.CapacityAllocatable(hierarchy=True).may_allocate(leaf.path, {GPU: 1})
    assert isinstance(answer, Rejection)
    assert answer.queue == "top"


def test_a_resource_without_a_bound_hides_no_other() -> None:
    found = queue(real_capability={GPU: 1})
    assert capacity.CapacityAllocatable().may_allocate(found.path, {"cpu": 9, GPU: 1}) is None
    assert refused(capacity.CapacityAllocatable().may_allocate(found.path, {"cpu": 9, GPU: 2}))


def test_capacity_claims_within_what_is_deserved_on_at_least_one_resource() -> None:
    vote = capacity.CapacityPreemptionVote()
    found = queue(committed={GPU: 2, "cpu": 9}, deserved={GPU: 3, "cpu": 9})
    assert vote.may_reclaim(found.path, {GPU: 1, "cpu": 1}) is None
    assert refused(vote.may_reclaim(found.path, {GPU: 2, "cpu": 1}))
    assert refused(vote.may_reclaim(found.path, {"memory": 1}))
    limited = queue(committed={GPU: 2}, deserved={GPU: 3}, real_capability={GPU: 2})
    assert refused(vote.may_reclaim(limited.path, {GPU: 1}))


def test_a_resource_of_which_nothing_is_held_nor_deserved_does_not_count() -> None:
    found = queue(committed={GPU: 9}, deserved={GPU: 9})
    assert refused(capacity.CapacityPreemptionVote().may_reclaim(found.path, {GPU: 1, "cpu": 0}))


@pytest.mark.parametrize(("levels", "granted"), [(0, False), (1, False), (2, True)])
def test_an_ancestor_may_claim_for_its_leaf(levels: int, granted: bool) -> None:
    root = queue("root", deserved={GPU: 99})
    grand = queue("grand", root, deserved={GPU: 5})
    parent = queue("parent", grand, committed={GPU: 1}, deserved={GPU: 1})
    leaf = queue("leaf", parent)
    vote = capacity.CapacityPreemptionVote(hierarchy=True, ancestor_reclaim_level=levels)
    assert (vote.may_reclaim(leaf.path, {GPU: 1}) is None) is granted


def test_the_root_claims_for_nobody() -> None:
    root = queue("root", deserved={GPU: 99})
    leaf = queue("leaf", root)
    vote = capacity.CapacityPreemptionVote(hierarchy=True, ancestor_reclaim_level=5)
    assert refused(vote.may_reclaim(leaf.path, {GPU: 1}))


def victims(rules: capacity.CapacityEvictable, offered: Sequence[FakeTask], **rest: Any) -> list[str] | None:
    claimer = pod("claimer", gang_of("c", rest.get("of")), rest.get("request"))
    return names(rules.victims(Purpose.RECLAIM, claimer, offered))


def test_capacity_takes_until_the_queue_holds_what_it_deserves() -> None:
    rich = gang_of("rich", queue("rich", committed={GPU: 3}, deserved={GPU: 1}))
    offered = [pod(name, rich) for name in "abc"]
    assert victims(capacity.CapacityEvictable(), offered) == ["a", "b"]
    assert capacity.CapacityEvictable().victims(Purpose.PREEMPT, offered[0], offered) is None


def test_a_queue_keeps_its_guarantee() -> None:
    rich = gang_of("rich", queue("rich", committed={GPU: 4}, guarantee={GPU: 2}))
    assert victims(capacity.CapacityEvictable(), [pod(name, rich) for name in "abcd"]) == ["a", "b"]
    assert victims(capacity.CapacityEvictable(), [pod("big", rich, {GPU: 3})]) == []


def test_the_last_one_taken_may_lead_below_what_is_deserved() -> None:
    rich = gang_of("rich", queue("rich", committed={GPU: 4}, deserved={GPU: 3}))
    assert victims(capacity.CapacityEvictable(), [pod("big", rich, {GPU: 4})]) == ["big"]


def test_capacity_never_takes_what_is_guaranteed() -> None:
    rich = gang_of("rich", queue("rich", committed={GPU: 2}, guarantee={GPU: 1}, deserved={}))
    assert victims(capacity.CapacityEvictable(), [pod("a", rich), pod("b", rich)]) == ["a"]


def test_a_queue_without_anything_deserved_of_what_is_used_gives_all() -> None:
    poor = gang_of("poor", queue("poor", committed={GPU: 2}, deserved={"cpu": 5}))
    assert victims(capacity.CapacityEvictable(), [pod("a", poor), pod("b", poor)]) == ["a", "b"]


def test_a_victim_holds_something_of_what_is_asked_for() -> None:
    poor = gang_of("poor", queue("poor", committed={"cpu": 2, "pods": 1}))
    light = pod("light", poor, {"cpu": 2, "pods": 1})
    assert victims(capacity.CapacityEvictable(), [light], request={GPU: 1, "pods": 1}) == []
    assert victims(capacity.CapacityEvictable(), [light], request={"cpu": 1, "pods": 1}) == ["light"]


def test_over_counts_only_on_what_the_victim_uses() -> None:
    mixed = gang_of("m", queue("m", committed={GPU: 9, "cpu": 1}, deserved={GPU: 1, "cpu": 5}))
    light = pod("light", mixed, {"cpu": 1})
    assert victims(capacity.CapacityEvictable(), [light], request={"cpu": 1}) == []


@pytest.mark.parametrize(("levels", "expected"), [(0, ["v"]), (1, ["v"]), (2, [])])
def test_ancestors_of_a_victim_hold_more_than_they_deserve_too(levels: int, expected: list[str]) -> None:
    root = queue("root")
    grand = queue("grand", root, committed={GPU: 2}, deserved={GPU: 3})
    parent = queue("parent", grand, committed={GPU: 2}, deserved={GPU: 1})
    leaf = queue("leaf", parent, committed={GPU: 2}, deserved={GPU: 1})
    rules = capacity.CapacityEvictable(hierarchy=True, ancestor_reclaim_level=levels)
    other = queue("other", queue("aside", root))
    assert victims(rules, [pod("v", gang_of("v", leaf))], of=other) == expected


def test_ancestors_shared_with_the_claimer_are_not_asked() -> None:
    root = queue("root")
    parent = queue("parent", root, committed={GPU: 2}, deserved={GPU: 9})
    leaf = queue("leaf", parent, committed={GPU: 2}, deserved={GPU: 1})
    sibling = queue("sibling", parent, deserved={GPU: 1})
    rules = capacity.CapacityEvictable(hierarchy=True, ancestor_reclaim_level=1)
    assert victims(rules, [pod("v", gang_of("v", leaf))], of=sibling) == ["v"]


def test_siblings_that_deserve_nothing_stated_do_not_take_from_each_other() -> None:
    root = queue("root")
    parent = queue("parent", root, committed={GPU: 2}, deserved={GPU: 1})
    leaf = queue("leaf", parent, committed={GPU: 2})
    sibling = queue("sibling", parent)
    apart = queue("apart", queue("elsewhere", root))
    rules = capacity.CapacityEvictable(hierarchy=True, ancestor_reclaim_level=1)
    assert victims(rules, [pod("v", gang_of("v", leaf))], of=sibling) == []
    assert victims(rules, [pod("v", gang_of("v", leaf))], of=apart) == ["v"]


def test_the_nearest_queues_give_first() -> None:
    root = queue("root")
    parent = queue("parent", root)
    near, far, own = queue("near", parent), queue("far", root), queue("own", parent)
    order = capacity.CapacityVictimQueueOrder(hierarchy=True)
    assert order.victim_queue_key(own.path, near.path) < order.victim_queue_key(own.path, far.path)
    flat = capacity.CapacityVictimQueueOrder()
    assert flat.victim_queue_key(own.path, near.path) == flat.victim_queue_key(own.path, far.path)


# ---------------------------------------------------------------------- overcommit, sla


@pytest.mark.parametrize(
    ("factor", "wanted", "permitted"),
    [(None, 7, True), (None, 8, False), ("1.5", 10, True), (1.5, 11, False), (0.5, 7, True), (0.5, 8, False)]
    + [(given, wanted, wanted == 7) for given in (inf, nan, "1e400", 10**400) for wanted in (7, 8)],
)
def test_overcommit(factor: object, wanted: int, permitted: bool) -> None:
    """With 10 GPUs, 3 used and 2 reserved, a factor of 1.2 leaves 7."""
    vote = overcommit.Overcommit({} if factor is None else {"overcommit-factor": factor})
    asking = EnqueueRequest(
        gang_of(min_resources={"cpu": 0, GPU: wanted}), 0.0, cluster_reserved={GPU: 2}, cluster_used={GPU: 3}
    )
    answer = vote.admit(asking)
    assert (answer is Vote.PERMIT) is permitted
    if isinstance(answer, Rejection):
        assert (answer.resource, answer.needed) == (GPU, wanted)


def test_sla_permits_from_its_deadline_on() -> None:
    vote = sla.SlaEnqueueable({"sla-waiting-time": "1m"})
    late = gang_of(created=100.0)
    assert vote.admit(EnqueueRequest(late, 159.0)) is Vote.ABSTAIN
    assert vote.admit(EnqueueRequest(late, 160.0)) is Vote.PERMIT
    assert vote.deadline(late.spec) == 160.0
    own = gang_of(created=100.0, waiting_limit=5.0)
    assert vote.admit(EnqueueRequest(own, 105.0)) is Vote.PERMIT
    assert sla.SlaEnqueueable({}).admit(EnqueueRequest(late, 1e9)) is Vote.ABSTAIN
    assert sla.SlaEnqueueable({"sla-waiting-time": "bad"}).deadline(late.spec) is None
    assert sla.SlaEnqueueable({}).deadline(gang_of(waiting_limit=0.0).spec) is None


def test_sla_puts_the_earlier_deadline_first() -> None:
    order = sla.SlaOrder({})
    soon, later, never = gang_of(waiting_limit=1.0), gang_of(waiting_limit=2.0), gang_of()
    assert sorted([never, later, soon], key=order.group_key) == [soon, later, never]


# ---------------------------------------------------------------------- tdm


HOUR = 3600.0
NIGHT = tdm.build({"tdm.revocable-zone.rz": "20:00-06:00", "tdm.evict.period": "2m"})


def on(zone: str | None, task: FakeTask) -> FakeTask:
    task.node = Node("n", {}, {} if zone is None else {"volcano.sh/revocable-zone": zone})
    return task


@pytest.mark.parametrize(
    ("notes", "going"),
    [
        ({}, ["p0"]),
        ({"volcano.sh/jdb-max-unavailable": "3"}, ["p0", "p1"]),  # one of five is away already
        ({"volcano.sh/jdb-max-unavailable": "20%"}, []),
        ({"volcano.sh/jdb-min-available": "50%"}, ["p0"]),
        ({"volcano.sh/jdb-min-available": "x"}, ["p0"]),
        ({"volcano.sh/jdb-min-available": "0"}, ["p0", "p1", "p2"]),
        (
            {"volcano.sh/jdb-min-available": "4", "volcano.sh/jdb-max-unavailable": "5"},
            [],
        ),  # the first counts
    ],
)
def test_pods_leave_revocable_nodes_as_their_budget_allows(notes: dict[str, str], going: list[str]) -> None:
    found = gang_of(size=5, running=4, annotations=notes)
    pods = [on("rz", pod(f"p{n}", found)) for n in range(3)] + [on(None, pod("stays", found))]
    assert names(NIGHT.due(pods, 12 * HOUR)) == going
    assert names(NIGHT.due(pods, 22 * HOUR)) == []
    assert NIGHT.next_due(5.0) == 125.0


def test_a_percentage_of_the_pods_is_rounded_up() -> None:
    """51 % of 51 is 26.01."""
    found = gang_of(size=51, running=51, annotations={"volcano.sh/jdb-min-available": "51%"})
    assert len(NIGHT.due([on("rz", pod(f"p{n}", found)) for n in range(51)], 12 * HOUR)) == 51 - 27


def test_pods_that_stay_on_revocable_nodes() -> None:
    """Nonpreemptible pods stay, and pods in a zone without known hours."""
    there = [
        on("rz", pod("firm", gang_of("a", size=2, running=2), preemptible=False)),
        *(on(zone, pod("u", gang_of("b", size=1, running=1))) for zone in ("elsewhere", "", None)),
    ]
    assert names(NIGHT.due(there, 12 * HOUR)) == []
    odd = tdm.build({"tdm.revocable-zone.elsewhere": "25:00-26:00"})
    assert names(odd.due(there, 12 * HOUR)) == []
    assert tdm.build({}).next_due(0.0) == 60.0


def test_terminating_pods_are_unavailable_and_finished_ones_are_not() -> None:
    """Six pods: two are finished, one terminates slowly, three run."""
    notes = {"volcano.sh/jdb-max-unavailable": "2"}
    found = gang_of(size=6, running=3, finished=2, members=5, held_members=5, annotations=notes)
    pods = [on("rz", pod(f"p{n}", found)) for n in range(3)]
    assert names(NIGHT.due(pods, 12 * HOUR)) == ["p0"]
    found.running = 2
    assert names(NIGHT.due(pods[1:], 12 * HOUR)) == []
    found.running, found.finished = 2, 4
    assert names(NIGHT.due(pods[1:], 12 * HOUR)) == ["p1", "p2"]


def running(zone: str | None, name: str, of: FakeGang, **rest: Any) -> FakeTask:
    return on(zone, pod(name, of, state=TaskState.RUNNING, **rest))


def test_firm_work_takes_the_room_of_preemptible_pods_on_ordinary_nodes() -> None:
    votes = tdm.RevocableEvictable()
    firm = pod("firm", gang_of("f"), preemptible=False)
    low = gang_of("low", size=5, running=4, annotations={"volcano.sh/jdb-max-unavailable": "50%"})
    one = gang_of("one", size=2, running=2)
    bound = on(None, pod("bound", low, state=TaskState.BOUND))
    there = [
        *(running(None, f"low{n}", low) for n in range(3)),
        bound,
        running("rz", "zone", gang_of("z", size=1, running=1)),
        running(None, "hard", gang_of("h", size=1, running=1), preemptible=False),
        pod("nowhere", gang_of("n"), state=TaskState.RUNNING),
        *(running(None, f"one{n}", one) for n in range(2)),
    ]
    assert names(votes.victims(Purpose.PREEMPT, firm, there)) == ["low0", "low1", "one0"]
    assert votes.victims(Purpose.RECLAIM, firm, there) is None
    assert votes.victims(Purpose.PREEMPT, pod("soft", gang_of("s")), there) == []
    zone = pod("zone", gang_of("zz"), preemptible=False)
    zone.task = altered(zone.task, needs=replace(zone.task.needs, revocable_zone="*"))
    assert votes.victims(Purpose.PREEMPT, zone, there) == []


@pytest.mark.parametrize(
    ("notes", "preemptible", "revocable"),
    [
        ({}, True, False),
        ({"volcano.sh/preemptable": "true"}, True, True),
        ({"volcano.sh/preemptable": "no"}, False, False),
    ],
)
def test_groups_are_preemptible_only_if_they_say_so(
    notes: dict[str, str], preemptible: bool, revocable: bool
) -> None:
    found = gang_of(members=3, held_members=2, annotations=notes, preemptible=preemptible)
    assert tdm.RevocableStarving().starving(found) is not revocable
    assert not tdm.RevocableStarving().starving(replace(found, held_members=3))
    assert tdm.RevocableOrder().group_key(found) is revocable


# ---------------------------------------------------------------------- tiers


class Says:
    """A voter that names what it is told to."""

    def __init__(self, *answer: str, nothing: bool = False) -> None:
        self.answer = None if nothing else list(answer)
        self.asked = 0

    def victims(self, purpose: Purpose, claimer: Any, candidates: Sequence[Any]) -> Sequence[Any] | None:
        self.asked += 1
        if self.answer is None:
            return None
        return [candidate for candidate in candidates if candidate.task.key in self.answer]


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        ([[Says("a", "b"), Says("b", "c")]], ["b"]),
        ([[Says("a")], [Says("b")]], ["a"]),  # the first tier that names any decides
        ([[Says("a"), Says()], [Says("b")]], ["b"]),  # one that names none ends its tier
        ([[Says("a"), Says(nothing=True)]], ["a"]),  # one that abstains is left out
        ([[Says(nothing=True)], [Says("c")]], ["c"]),
        ([[Says("a"), Says("b")], [Says("c")]], ["c"]),
        ([[Says("a"), Says("b")]], []),
        ([], []),
    ],
)
def test_how_victims_combine(tiers: list[list[Says]], expected: list[str]) -> None:
    offered = [pod(name, gang_of()) for name in "abc"]
    combined = VolcanoTiers([VotingTier(preemptable=list(voters)) for voters in tiers])
    assert names(combined.victims(Purpose.PREEMPT, offered[0], offered)) == expected
    assert names(combined.victims(Purpose.RECLAIM, offered[0], offered)) == []
    other = VolcanoTiers([VotingTier(reclaimable=list(voters)) for voters in tiers])
    assert names(other.victims(Purpose.RECLAIM, offered[0], offered)) == expected


def test_a_voter_that_names_none_ends_its_tier() -> None:
    last = Says("a")
    offered = [pod("a", gang_of())]
    VolcanoTiers([VotingTier(preemptable=[Says(), last])]).victims(Purpose.PREEMPT, offered[0], offered)
    assert last.asked == 0


def test_later_tiers_are_not_asked_once_one_has_named_any() -> None:
    last = Says("b")
    offered = [pod(name, gang_of()) for name in "ab"]
    VolcanoTiers([VotingTier(preemptable=[Says("a")]), VotingTier(preemptable=[last])]).victims(
        Purpose.PREEMPT, offered[0], offered
    )
    assert last.asked == 0


class Starving:
    def __init__(self, answer: bool) -> None:
        self.answer = answer

    def starving(self, gang: Any) -> bool:
        return self.answer


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        ([], False),
        ([[]], False),
        ([[True, True]], True),
        ([[True, False]], False),
        ([[], [True]], True),
        ([[False], [True]], False),
    ],
)
def test_how_starving_combines(tiers: list[list[bool]], expected: bool) -> None:
    combined = VolcanoTiers(
        [VotingTier(starving=[Starving(answer) for answer in voters]) for voters in tiers]
    )
    assert combined.starving(gang_of()) is expected


class Votes:
    def __init__(self, answer: Vote | Rejection) -> None:
        self.answer = answer

    def admit(self, admission: EnqueueRequest) -> Vote | Rejection:
        return self.answer


NO = Rejection(Reason.ON_HOLD)


@pytest.mark.parametrize(
    ("tiers", "admitted"),
    [
        ([], True),
        ([[Vote.ABSTAIN]], True),
        ([[Vote.PERMIT, Vote.REJECT]], False),
        ([[Vote.PERMIT, NO]], False),
        ([[Vote.PERMIT], [NO]], True),  # a tier with a permit ends the walk
        ([[Vote.ABSTAIN], [NO]], False),
    ],
)
def test_how_admission_combines(tiers: list[list[Any]], admitted: bool) -> None:
    combined = VolcanoTiers(
        [VotingTier(enqueueable=[Votes(answer) for answer in voters]) for voters in tiers]
    )
    assert (combined.admit(EnqueueRequest(gang_of(), 0.0)) is None) is admitted


def test_deadlines_timing_and_dialects() -> None:
    early, late = (
        sla.SlaEnqueueable({"sla-waiting-time": "1m"}),
        sla.SlaEnqueueable({"sla-waiting-time": "2m"}),
    )
    combined = VolcanoTiers(
        [VotingTier(enqueueable=[late, Votes(Vote.ABSTAIN)]), VotingTier(enqueueable=[early])]
    )
    assert combined.deadline(Group("g", created=10.0)) == 70.0
    assert VolcanoTiers([]).deadline(Group("g")) is None
    assert not combined.timed
    assert VolcanoTiers([VotingTier(reclaimable=[VolcanoCooldown()])]).timed
    assert combined.serves(queue())
    assert not combined.serves(queue("kai/x", dialect=Dialect.KAI))


def test_allotting_and_claiming_need_all_and_overuse_any() -> None:
    share = proportion.ProportionAllocatable()
    combined = VolcanoTiers(
        [
            VotingTier(
                allocatable=[capacity.CapacityAllocatable()], preemptive=[capacity.CapacityPreemptionVote()]
            ),
            VotingTier(
                allocatable=[share],
                preemptive=[proportion.ProportionPreemptionVote()],
                overused=[proportion.ProportionOverused()],
            ),
        ]
    )
    good = queue(fair_share={GPU: 5}, deserved={GPU: 5})
    assert combined.may_allocate(good.path, {GPU: 1}) is None
    assert combined.may_reclaim(good.path, {GPU: 1}) is None
    assert not combined.overused(good)
    full = queue(committed={GPU: 5}, fair_share={GPU: 5}, deserved={GPU: 9})
    assert combined.overused(full)
    assert refused(combined.may_allocate(full.path, {GPU: 1}))
    assert refused(combined.may_reclaim(full.path, {GPU: 1}))


def test_a_step_of_an_overused_queue_is_refused_in_its_turn() -> None:
    tiers = VolcanoTiers([VotingTier(overused=[proportion.ProportionOverused()])])
    full = queue(committed={GPU: 5}, fair_share={GPU: 5})
    step = StepView(Group("g"), {GPU: 1}, 1)
    answer = TierAdmission(tiers).admits(step, full.path, None)  # type: ignore[arg-type]
    assert isinstance(answer, Rejection)
    assert answer.code is Reason.WAITING_FOR_SHARE
    kai = queue("kai/x", committed={GPU: 5}, fair_share={GPU: 5}, dialect=Dialect.KAI)
    assert TierAdmission(tiers).admits(step, kai.path, None) is None  # type: ignore[arg-type]
