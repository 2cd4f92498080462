"""``sim.event_loop.Agenda``: events in order, whether they were added in order or not."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.sim.event_loop import Agenda, EventKind

EVENTS = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(EventKind)), max_size=12)


@given(first=EVENTS, later=st.lists(EVENTS, max_size=6))
@settings(max_examples=60, deadline=None)
def test_events_come_by_moment_then_kind_then_as_they_were_added(
    first: list[tuple[int, EventKind]], later: list[list[tuple[int, EventKind]]]
) -> None:
    agenda, told, expected = Agenda(), [], []
    number = 0

    def add(events: list[tuple[int, EventKind]]) -> None:
        nonlocal number
        for moment, kind in events:
            expected.append((max(float(moment), agenda.now), int(kind), number))
            agenda.add(float(moment), kind, number)
            number += 1

    add(sorted(first))  # as the arrivals of a trace
    for events in later:
        add(events)
        assert len(agenda) == len(expected)
        moment = agenda.moment()
        assert moment == min(expected, default=(None,))[0]
        if moment is None:
            continue
        due = sorted(one for one in expected if one[0] <= moment)
        assert [(kind, what) for kind, what in agenda.due(moment)] == [(kind, n) for _, kind, n in due]
        told += due
        expected = [one for one in expected if one[0] > moment]
    assert len(told) + len(agenda) == number
