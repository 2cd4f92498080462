"""``engine.victims.victim_pool``: what is kept of what queues offer, and what keeping it costs."""

from __future__ import annotations

import pytest

from windlass.engine.victims import victim_pool
from windlass.engine.victims.victim_pool import QueueVictims, VictimPool


class Counted(list[object]):
    """Units of which it is told how often they are counted."""

    counts = 0

    def __len__(self) -> int:
        Counted.counts += 1
        return super().__len__()


def filled(pool: VictimPool, kind: str, units: int) -> None:
    pool.queue_victims((kind,))["q"] = QueueVictims(Counted([(0, "", None)] * units), None, 0)  # type: ignore[arg-type]


def test_what_was_asked_for_longest_ago_is_forgotten_once_that_is_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(victim_pool, "MAX_CACHED", 10)
    pool = VictimPool()
    for kind in ("old", "older", "new"):
        filled(pool, kind, 5)
    pool.queue_victims(("old",))
    pool.renew(None)
    assert not pool.queue_victims(("older",))
    assert pool.queue_victims(("old",))
    assert pool.queue_victims(("new",))


def test_what_there_is_is_counted_as_often_as_it_may_have_become_more() -> None:
    """Else every claim would cost as much as there are kinds of claims."""
    pool = VictimPool()
    for kind in range(100):
        filled(pool, f"kind-{kind}", 3)
    pool.renew(None)
    counted = Counted.counts
    pool.renew(None)
    assert Counted.counts == counted, "nobody claimed anything"
    for kind in range(100):
        pool.queue_victims((f"kind-{kind}",))
        pool.renew(None)
    assert Counted.counts == counted + 100
