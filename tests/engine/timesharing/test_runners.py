"""``engine.timesharing.attained_service.Runners``: ranks fall at several paces, and all the same the worst comes
first."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.groups.entries import GroupEntry
from windlass.engine.timesharing.attained_service import RunningAccounts, TimeAccount
from windlass.spi.objects import Group
from windlass.spi.timeshare import RunSegment

RANK = st.tuples(st.integers(-20, 60), st.sampled_from((0, 1, 2, 8)))
"""The rank at time 0, and by how much it falls with each second."""
RUNS = st.lists(st.tuples(RANK, RANK, st.sampled_from(("stays", "reranked", "gone"))), max_size=12)


def account(name: str, rank: tuple[int, int]) -> TimeAccount:
    group = GroupEntry(f"ns/{name}", lambda task: (task.key,))
    one = TimeAccount(group, RunSegment(Group(group.key, "q"), 1.0))
    one.segment.started = 0.0
    one.base, one.falls = map(float, rank)
    return one


@given(runs=RUNS, now=st.integers(0, 5), above=st.integers(-40, 60))
@settings(max_examples=200, deadline=None)
def test_all_that_rank_worse_come_worst_first(
    runs: list[tuple[tuple[int, int], tuple[int, int], str]], now: int, above: int
) -> None:
    runners, left = RunningAccounts(), dict[str, TimeAccount]()
    for at, (rank, later, fate) in enumerate(runs):
        one = account(f"r{at}", rank)
        runners.add(one)
        left[one.group.key] = one
        if fate == "reranked":
            runners.take_out(one)
            one.base, one.falls = map(float, later)
            runners.put(one)
        elif fate == "gone":
            runners.discard(one)
            del left[one.group.key]
    worse = [(one.value(now), key) for key, one in left.items() if one.value(now) > above]
    assert [one.group.key for one in runners.worst_first(now, above)] == [
        key for _, key in sorted(worse, reverse=True)
    ]
    of_one = [one.group.key for one in runners.worst_first(now, above, 0.5, 1.0)]
    assert of_one == [key for _, key in sorted(worse, reverse=True)]  # each has one accelerator
    assert not list(runners.worst_first(now, above, 1.0))
    assert not list(runners.worst_first(now, above, most=0.5))
    assert (runners.next_size(0.5), runners.next_size(1.0)) == (1.0 if left else None, None)
    assert (runners.worst(now) > above) is bool(worse)
    assert len(runners) == len(left)
