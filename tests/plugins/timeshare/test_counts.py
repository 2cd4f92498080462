"""Counts of time-sharing outlast the process: read as they were written; what is something else is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from windlass.plugins.timeshare.gittins import SIZES, STRETCHES, LearnedSharing, Tuning
from windlass.plugins.timeshare.predicted import PredictedSharing
from windlass.spi.objects import Group
from windlass.spi.timeshare import PersistentCounts, RunSegment, RunTimeCounts


def taught() -> LearnedSharing:
    policy = LearnedSharing()
    for number in range(40):
        segment = RunSegment(Group(f"ns/{number}"), float(1 + number % 9))
        for attained in (0.0, 700.0, 3000.0)[: 1 + number % 3]:
            segment.attained = attained
            policy.rank(segment)
        policy.finished(segment)
    return policy


@pytest.mark.parametrize("kind", [LearnedSharing, PredictedSharing])
def test_who_goes_on_with_counts_ranks_by_them(kind: type[LearnedSharing]) -> None:
    before, after = taught(), kind()
    assert isinstance(before, PersistentCounts)
    after.resume(msgspec.json.decode(msgspec.json.encode(before.counts()), type=RunTimeCounts, strict=False))
    assert (after.counts(), after.counted) == (before.counts(), before.counted)
    fresh = LearnedSharing()
    fresh.resume(before.counts())
    for attained in (0.0, 650.0, 5000.0):
        one = RunSegment(Group("ns/x"), 4.0, attained)
        assert after.rank(one) == fresh.rank(one)
        assert after.rank(one) != LearnedSharing().rank(one)


def test_what_was_attained_before_is_not_counted_again() -> None:
    policy = LearnedSharing()
    policy.rank(RunSegment(Group("ns/x"), 1.0, attained=5000.0))
    assert policy.counted == 0


def _few(counts: RunTimeCounts) -> Any:
    return msgspec.structs.replace(counts, every=([0.0], [0.0]))


def _negative(counts: RunTimeCounts) -> Any:
    return msgspec.structs.replace(counts, sizes={1: ([-1.0] * STRETCHES, [0.0] * STRETCHES)})


def _many(counts: RunTimeCounts) -> Any:
    return msgspec.structs.replace(counts, sizes=dict.fromkeys(range(SIZES + 1), counts.every))


@pytest.mark.parametrize("spoil", [_few, _negative, _many])
def test_impossible_counts_are_rejected(spoil: Any) -> None:
    policy = taught()
    before = policy.counts()
    with pytest.raises(ValueError, match="each size needs"):
        policy.resume(spoil(before))
    assert policy.counts() == before


def test_counts_of_other_divisions_are_refused() -> None:
    other = LearnedSharing(tuning=Tuning(first_seconds=300.0))
    with pytest.raises(ValueError, match="other divisions"):
        other.resume(taught().counts())
