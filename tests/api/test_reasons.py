"""The vocabulary of waiting: complete, and the record survives the wire."""

from __future__ import annotations

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.reasons import (
    FACTS,
    Blocker,
    Explanation,
    NearMiss,
    Reason,
    SuggestedChange,
    SuggestedChangeKind,
)


def test_every_reason_has_its_facts() -> None:
    assert set(FACTS) == set(Reason)
    for reason, facts in FACTS.items():
        assert facts.waiting_helps in ("yes", "no", "maybe"), reason
        assert 1 <= facts.tier <= 5
        assert facts.meaning.endswith(".")
        assert facts.volcano
        assert facts.kueue
        assert facts.slurm


def test_empty_entries_are_left_out() -> None:
    record = Explanation(Reason.BEHIND_IN_QUEUE, "two go first", position=3).as_dict()
    assert record == {
        "code": "BehindInQueue",
        "message": "two go first",
        "position": 3,
        "waitingHelps": "yes",
        "blockers": [],
    }


_names = st.text("abc/-", min_size=1, max_size=6)
_blockers = st.builds(
    Blocker, st.sampled_from(Reason), st.integers(0, 9), _names, _names, _names, st.text(max_size=5)
)
_changes = st.builds(
    SuggestedChange,
    st.sampled_from(SuggestedChangeKind),
    _names,
    _names,
    _names,
    _names,
    st.floats(0, 1),
    _names,
)
_explanations = st.builds(
    Explanation,
    st.sampled_from(Reason),
    st.text(max_size=20),
    blockers=st.lists(_blockers, max_size=3).map(tuple),
    nearest=st.none() | st.builds(NearMiss, _names, _names),
    holders=st.lists(_names, max_size=2).map(tuple),
    position=st.integers(0, 9),
    ahead=st.lists(_names, max_size=2).map(tuple),
    estimate_seconds=st.none() | st.integers(1, 10**6).map(float),
    estimate_basis=_names,
    estimate_at=st.integers(0, 10**9).map(float),
    estimate_band=st.lists(st.integers(0, 10**6).map(float), max_size=2).map(tuple),
    changes=st.lists(_changes, max_size=2).map(tuple),
    remedies=st.lists(_names, max_size=2).map(tuple),
    nodes_considered=st.integers(0, 100),
    extra=st.dictionaries(_names, _names, max_size=2),
    planned_nodes=st.dictionaries(_names, st.integers(1, 9), max_size=2),
)


@settings(max_examples=examples(60), deadline=None)
@given(_explanations)
def test_the_record_survives_the_wire(explanation: Explanation) -> None:
    assert Explanation.from_dict(explanation.as_dict()) == explanation


def test_unknown_code_is_rejected_and_unknown_keys_are_not() -> None:
    assert Explanation.from_dict({"code": "OnHold", "message": "", "later": 1}).code is Reason.ON_HOLD
    former = {"code": "ReservingCard", "message": "", "blockers": [{"code": "ReservingCard"}]}
    assert Explanation.from_dict(former).code is Reason.RESERVING_DEVICE
    assert Explanation.from_dict(former).blockers[0].code is Reason.RESERVING_DEVICE
    with pytest.raises(ValueError, match="Mystery"):
        Explanation.from_dict({"code": "Mystery"})


def test_an_estimate_that_is_read_later_counts_from_then() -> None:
    """A record may stay unchanged for an hour."""
    told = Explanation(
        Reason.INSUFFICIENT_RESOURCES,
        "m",
        estimate_seconds=600.0,
        estimate_at=1000.0,
        estimate_band=(500.0, 900.0),
    )
    later = told.as_of(1400.0)
    assert (later.estimate_seconds, later.estimate_band, later.estimate_at) == (200.0, (100.0, 500.0), 1400.0)
    assert later.as_of(1500.0) == told.as_of(1500.0)
    assert told.as_of(900.0) == told, "of a clock that is behind"
    due = told.as_of(2000.0)
    assert (due.estimate_seconds, due.estimate_band) == (0.0, (0.0, 0.0))
    assert due.as_dict()["estimate_seconds"] == 0.0
    plain = Explanation(Reason.INSUFFICIENT_RESOURCES, "m", estimate_seconds=600.0)
    assert plain.as_of(1e9) == plain, "the time of the estimate is unknown"
