"""``engine.nodes.name_order``: a larger tie value for a smaller name, whatever the order of arrival."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.engine.nodes.name_order import SPAN, NameRanking


def order(ranking: NameRanking, rows: dict[str, int]) -> list[str]:
    return sorted(rows, key=lambda name: -int(ranking.tie[rows[name]]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.text("ab01-", min_size=1, max_size=6), min_size=1, max_size=40), max_size=8))
def test_ties_follow_the_names(batches: list[list[str]]) -> None:
    ranking = NameRanking()
    ranking.resize(512)
    rows: dict[str, int] = {}
    for batch in batches:
        for name in batch:
            if name not in rows:
                rows[name] = len(rows)
                ranking.add(name, rows[name])
        ranking.settle()
        assert order(ranking, rows) == sorted(rows)
        assert len({int(ranking.tie[row]) for row in rows.values()}) == len(rows)


def test_single_arrivals_keep_the_labels_of_the_others() -> None:
    ranking = NameRanking()
    ranking.resize(64)
    for row, name in enumerate(["a", "c", "e"]):
        ranking.add(name, row)
    ranking.settle()
    epoch, before = ranking.epoch, ranking.tie[:3].tolist()
    ranking.add("d", 3)
    ranking.settle()
    assert ranking.epoch == epoch
    assert ranking.tie[:3].tolist() == before
    assert before[1] > int(ranking.tie[3]) > before[2]


def test_a_used_up_gap_gives_all_labels_anew() -> None:
    ranking = NameRanking()
    ranking.resize(256)
    rows = {}
    for row in range(40):  # always just before the last: halves the same gap again and again
        rows["a" * (row + 1)] = row
        ranking.add("a" * (row + 1), row)
        ranking.settle()
    assert ranking.epoch > 0
    assert order(ranking, rows) == sorted(rows)
    assert all(0 <= int(tie) < SPAN for tie in ranking.tie)


def test_removed_names_make_room_and_can_come_back() -> None:
    ranking = NameRanking()
    ranking.resize(8)
    for row, name in enumerate("abc"):
        ranking.add(name, row)
    ranking.settle()
    ranking.remove("b")
    ranking.add("b", 7)
    ranking.remove("b")  # before it was ever settled
    ranking.add("b", 5)
    ranking.settle()
    assert order(ranking, {"a": 0, "b": 5, "c": 2}) == ["a", "b", "c"]
