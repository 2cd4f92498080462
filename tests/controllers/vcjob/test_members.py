from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.controllers.vcjob.members import parse_spans, partition_of, spans


def test_spans() -> None:
    assert spans([]) == ""
    assert spans([5, 0, 1, 2, 2]) == "0-2,5"
    assert parse_spans("0-2,5") == {0, 1, 2, 5}
    assert parse_spans("0-99999999999,3,x,-1,,٣") == {3}, (
        "whoever may write a status does not fill the memory"
    )
    assert parse_spans("") == frozenset()
    assert parse_spans("x,1-y,3") == {3}


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 60)))
def test_spans_keep_every_index(indices: set[int]) -> None:
    assert parse_spans(spans(indices)) == indices


def test_partitions() -> None:
    assert [partition_of(i, 2) for i in range(5)] == ["0", "0", "1", "1", "2"]
    assert partition_of(7, 0) == "0"
