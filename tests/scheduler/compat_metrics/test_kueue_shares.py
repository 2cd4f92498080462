"""Kueue's shares of a tree of queues, computed by its rules."""

from __future__ import annotations

from windlass.scheduler.compat_metrics.kueue import Quotas
from windlass.scheduler.compat_metrics.scrape import ScrapedQueue

GPU = "nvidia.com/gpu"


def scene(name: str, parent: str, *children: str, weight: int = 1, **states: float) -> ScrapedQueue:
    figures = {state: {GPU: amount} for state, amount in states.items()}
    return ScrapedQueue(name, figures, parent, children, weight=weight)


QUEUES = {
    queue.name: queue
    for queue in (
        scene("root", "", "cohort", "alone", allocated=9),
        scene("cohort", "root", "a", "b", allocated=8),
        scene("a", "cohort", deserved=4, guarantee=1, allocated=7, weight=2),
        scene("b", "cohort", deserved=2, allocated=1),
        scene("alone", "root", deserved=2, allocated=1),
    )
}


def test_quotas_add_up_where_a_cohort_states_none() -> None:
    quotas = Quotas(QUEUES)
    assert {name: quotas.of(name)[GPU] for name in QUEUES} == {
        "root": 8,
        "cohort": 6,
        "a": 4,
        "b": 2,
        "alone": 2,
    }
    stated = Quotas({**QUEUES, "cohort": scene("cohort", "root", "a", "b", deserved=5)})
    assert stated.of("cohort")[GPU] == 5
    assert stated.of("root")[GPU] == 7


def test_the_share_is_the_borrowed_fraction_by_weight() -> None:
    quotas = Quotas(QUEUES)
    assert quotas.lendable("cohort") == {GPU: 5}  # a keeps one of its four
    assert quotas.weighted_share("a") == (7 - 4) * 1000 // 5 // 2
    assert quotas.weighted_share("b") == 0
    assert quotas.weighted_share("cohort") == (8 - 6) * 1000 // 8
    assert quotas.weighted_share("root") == 0


def test_a_cohort_with_nothing_to_lend_has_no_share() -> None:
    queues = {"root": scene("root", "", "a"), "a": scene("a", "root", allocated=3)}
    assert Quotas(queues).weighted_share("a") == 0
