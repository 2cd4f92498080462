"""Policies against schedules worked out by hand from their published definitions.

Each trace is small enough that every start follows from the definition with a pencil; the reasons stand beside it.
Nothing here is what the simulator happened to say.
"""

from __future__ import annotations

import pytest
from small_traces import ends, job, of, play, started

from windlass.sim.cluster import make_nodes, parse
from windlass.sim.replay.policies import POLICIES
from windlass.sim.replay.replay import ReplayOptions, replay

RESERVED = [
    job(0, 100, 4, "a"),
    job(1, 100, 6, "b"),
    job(2, 100, 8, "c"),
    job(3, 300, 2, "d"),
    job(4, 100, 2, "e"),
    job(5, 80, 2, "f"),
]
"""On eight cards. While ``a`` has four, ``b`` lacks two until 100, ``c`` waits behind it, and the rest is small."""


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        # nobody passes b, then nobody passes c
        ("fifo", {"a": 0, "b": 100, "c": 200, "d": 300, "e": 300, "f": 300}),
        # whoever fits: d and e at once, f on a's cards; b has its six when f ends, c all eight when d does
        ("fifo-backfill", {"a": 0, "b": 180, "c": 303, "d": 3, "e": 4, "f": 100}),
        # EASY (Lifka 1995): b is due 100 and leaves two cards, which d may have for ever; then e would delay b, f is
        # over before; from 200 on c is due 303, when d ends, and e is over at 300
        ("easy", {"a": 0, "b": 100, "c": 303, "d": 3, "e": 200, "f": 5}),
        # conservative (Mu'alem and Feitelson 2001): c is due 200 as well, so d, which would be in its way, comes behind
        # it; e and f are over before 200, and b has its six from 100 on beside e
        ("conservative", {"a": 0, "b": 100, "c": 200, "d": 300, "e": 4, "f": 5}),
    ],
)
def test_who_may_pass_whom(policy: str, starts: dict[str, float]) -> None:
    assert started(play(RESERVED, policy=policy)) == starts


SAID = [
    job(0, 100, 4, "a", requested_seconds=100.0),
    job(1, 50, 4, "b", requested_seconds=200.0),
    job(2, 100, 8, "c", requested_seconds=100.0),
    job(3, 50, 6, "d", requested_seconds=100.0),
    job(60, 100, 4, "e", requested_seconds=100.0),
    job(61, 39, 4, "f", requested_seconds=39.0),
]
"""On eight cards; ``b`` ends at 51, long before 201, as its owner had said. Until then ``c`` is due 201, ``d`` 301."""


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        # what was promised moves forward when b ends: c is due 100, when a ends, and d 200. So e may not have the four
        # cards that are free at 60, as it would end at 160; it comes behind d, which ends at 250, 50 before its time,
        # and f is over at 100
        ("conservative", {"a": 0, "b": 1, "c": 100, "d": 200, "e": 250, "f": 61}),
        # the one reservation stays where it was: e is over at 160, before 201, and c begins then; f has the others'
        # cards at 61 no more, at 100 it is over before c is due
        ("easy", {"a": 0, "b": 1, "c": 160, "d": 260, "e": 60, "f": 100}),
    ],
)
def test_who_moves_forward_when_one_ends_before_its_time(policy: str, starts: dict[str, float]) -> None:
    """Schedule compression: Mu'alem and Feitelson, IEEE TPDS 12(6), 2001."""
    made = POLICIES[policy].by("user")
    assert started(replay(SAID, make_nodes(parse("1x8")), made, ReplayOptions())) == starts


SHORT = [
    job(0, 50, 8, "p"),
    job(10, 60, 2, "q"),
    job(20, 15, 4, "r"),
    job(40, 10, 8, "s"),
    job(45, 100, 1, "t"),
]
"""Short and wide against long and narrow, on eight cards."""


@pytest.mark.parametrize(
    ("policy", "over", "stops"),
    [
        # not preemptive: at 50 s is the shortest, at 60 q, r and t fit together
        ("sjf", {"p": 50, "q": 120, "r": 75, "s": 60, "t": 160}, 0),
        # remaining time: r (15) stops p (30 left) at 20, and q (60) runs beside it; p (30) stops q (45) at 35, s (10)
        # stops p (25) at 40; p from 50 to 75, then q (45) and t
        ("srtf", {"p": 75, "q": 120, "r": 35, "s": 50, "t": 175}, 3),
        # remaining card-seconds: q (120) stops p (320) at 10, r (60) runs beside it, s (80) does not stop q (60 left at
        # 40) nor, at 70, t (75 left); it runs when t ends, and p (320) last
        ("srsf", {"p": 195, "q": 70, "r": 35, "s": 155, "t": 145}, 1),
    ],
)
def test_who_is_the_shortest(policy: str, over: dict[str, float], stops: int) -> None:
    outcome = play(SHORT, policy=policy)
    assert ends(outcome) == over
    assert sum(ended.preemptions for ended in outcome.jobs) == stops


def test_two_queues_by_attained_service() -> None:
    """Tiresias without run times (Gu et al., NSDI 2019), two queues parted at two card-hours, by age within each: ``a``
    has had them at 900 and makes way for ``b`` and ``c``; ``d`` is younger than both and waits until ``c`` has had its
    own at 2,700; ``e`` fits beside. Of the two in the second queue ``a`` is the older."""
    jobs = [job(0, 3000, 8, "a"), job(100, 600, 4, "b"), job(200, 2000, 4, "c")]
    outcome = play([*jobs, job(1000, 100, 8, "d"), job(1200, 50, 2, "e")], policy="las")
    assert started(outcome) == {"a": 0, "b": 900, "c": 900, "d": 2700, "e": 1500}
    assert ends(outcome) == {"a": 4900, "b": 1500, "c": 5100, "d": 2800, "e": 1550}
    assert [ended.preemptions for ended in outcome.jobs] == [1, 0, 1, 0, 0]


def test_pods_one_by_one() -> None:
    """As kube-scheduler, on two nodes: ``b`` holds one of its two nodes from 10 to 600, and nobody else gets that.
    ``g`` holds one from 5,800 on; looked at each half hour after it came (5,760) it is given up at 7,560, comes again
    at 7,860, is given up at 9,660 and has both at 9,960, since ``f`` ended at 9,800. ``h`` has its node while ``g``
    pauses."""
    jobs = [job(0, 600, 8, "a"), job(10, 5000, 16, "b"), job(20, 100, 4, "c"), job(5000, 100, 1, "d")]
    jobs += [job(5590, 100, 16, "e"), job(5750, 4000, 8, "f"), job(5760, 100, 16, "g"), job(6000, 50, 8, "h")]
    outcome = play(jobs, "2x8", "kube")
    assert started(outcome) == {
        "a": 0,
        "b": 600,
        "c": 5600,
        "d": 5600,
        "e": 5700,
        "f": 5800,
        "g": 9960,
        "h": 7560,
    }
    assert of(outcome, "g").failed_starts == 2
    assert outcome.partial_gang_gpu_seconds == 8 * (590 + 1760 + 1800)
    spread = {span.job: span.nodes for span in outcome.spans if span.start == 5600}
    assert spread[2] != spread[3]  # each on the emptiest


def test_kai_s_queues_take_back_what_they_are_due() -> None:
    """Two queues of equal weight, eight cards: ``b1`` is within its queue's four and has ``a1`` go, which holds all
    eight. ``a2`` fits beside ``b1``. ``b2`` would be above its queue's share and waits for ``a2`` to end; ``a1`` asks
    for more than its share, so it takes nothing back and runs once all is free."""
    jobs = [job(0, 1000, 8, "a1", queue="a"), job(10, 100, 4, "b1", queue="b")]
    jobs += [job(20, 50, 4, "a2", queue="a"), job(30, 60, 4, "b2", queue="b")]
    outcome = play(jobs, policy="kai-like", queues=True)
    assert started(outcome) == {"a1": 0, "b1": 10, "a2": 20, "b2": 70}
    assert ends(outcome) == {"a1": 130 + 990, "b1": 110, "a2": 70, "b2": 130}
    assert of(outcome, "a1").preemptions == 1


def test_kai_s_only_queue_has_room_for_what_is_not_preemptible() -> None:
    """From priority 100 on KAI evicts nobody and lets him have no more than the quota of his queue. With one queue that
    is all: ``b`` waits for ``a``, which goes for nobody. Of several queues of a trace nobody knows a quota."""
    jobs = [job(0, 100, 8, "a", priority=100), job(10, 50, 8, "b", priority=1000)]
    assert started(play(jobs, policy="kai-like")) == {"a": 0, "b": 100}
    assert started(play(jobs, policy="kai-like", queues=True)) == {"a": 0, "b": 100}
    parted = [*jobs, job(20, 5, 1, "c", queue="other")]
    assert started(play(parted, policy="kai-like", queues=True)) == {"a": None, "b": None, "c": 20}
