"""Answers of a command get to their rows, whatever else it writes."""

from __future__ import annotations

import json
import sys
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.items.runtimes.answers import Answers
from windlass.items.runtimes.base import LeasedRow, RowOutcome, RuntimeContext, SetupError, WorkBatch
from windlass.items.runtimes.process import ProcessRuntime
from windlass.items.spec import parse_batch
from windlass.kits.clock import SystemClock


def rows(count: int) -> deque[LeasedRow]:
    return deque(LeasedRow(n, {"id": f"r{n}"}, 1) for n in range(count))


def said(answers: Answers, waiting: deque[LeasedRow], *lines: object) -> list[RowOutcome]:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    return [one for text in texts for one in answers.take(text.encode(), waiting, 0.0)]


def good(outcomes: list[RowOutcome]) -> dict[int, object]:
    return {one.number: one.output["text"] for one in outcomes if one.output is not None}


def test_lines_between_named_answers_cost_no_row() -> None:
    answers, waiting = Answers(), rows(3)
    found = said(
        answers,
        waiting,
        "loading shard 1",
        {"id": "r0", "text": "a"},
        "",
        "[1, 2]",
        {"id": "r1", "text": "b"},
        {"id": "r0", "text": "again"},
        {"id": "r2", "text": "c"},
    )
    assert good(found) == {0: "a", 1: "b", 2: "c"}
    assert len(found) == 3
    assert not answers.out_of_step


def test_row_that_is_passed_over_is_an_error_with_the_line_in_its_place() -> None:
    answers, waiting = Answers(), rows(3)
    found = said(answers, waiting, {"id": "r0", "text": "a"}, '{"id": "r1", "te', {"id": "r2", "text": "c"})
    assert good(found) == {0: "a", 2: "c"}
    assert [(one.number, one.message) for one in found if one.output is None] == [
        (1, 'the command wrote a line that is not a JSON object: {"id": "r1", "te')
    ]
    assert said(answers, waiting, {"id": "r1", "text": "late"}) == []


def test_unknown_ids_are_errors_of_the_next_row_alone() -> None:
    answers, waiting = Answers(), rows(2)
    found = said(answers, waiting, {"id": "R0", "text": "a"}, {"id": "r0"}, {"id": "r1", "text": "b"})
    assert good(found) == {1: "b"}
    assert found[0].message == "the command answered with id 'R0' instead of 'r0'"


@pytest.mark.parametrize("stray", ["loading shard 2", "", "[1, 2]", "7"])
@pytest.mark.parametrize("first", [True, False])
def test_answers_without_ids_are_not_paired_after_a_stray_line(stray: str, first: bool) -> None:
    answers, waiting = Answers(), rows(4)
    lines: list[object] = [stray, {"text": "a"}] if first else [{"text": "a"}, stray]
    found = said(answers, waiting, *lines)
    assert answers.out_of_step
    assert good(found) == ({} if first else {0: "a"})
    assert "answers without id cannot be paired after it: write nothing else" in found[-1].message
    answers.begin_process()
    assert good(said(answers, waiting, {"text": "b"})) == {1 if first else 2: "b"}


def test_more_answers_than_rows_end_a_command_without_ids() -> None:
    answers, waiting = Answers(), rows(1)
    said(answers, waiting, {"text": "a"}, "done")
    with pytest.raises(SetupError, match="more answers than it got rows"):
        said(answers, waiting, {"text": "b"})


@given(st.lists(st.sampled_from(["answer", "twice", "stray", "broken"]), min_size=1, max_size=30))
def test_no_row_gets_the_answer_of_another(kinds: list[str]) -> None:
    answers, waiting = Answers(), rows(len(kinds))
    found: list[RowOutcome] = []
    for number, kind in enumerate(kinds):
        answer = {"id": f"r{number}", "text": f"of r{number}"}
        lines: list[object] = {
            "answer": [answer],
            "twice": [answer, answer],
            "stray": ["progress 7%", answer],
            "broken": ["{"],
        }[kind]
        found += said(answers, waiting, *lines)
    assert good(found) == {n: f"of r{n}" for n, kind in enumerate(kinds) if kind != "broken"}
    numbers = [one.number for one in found]
    assert numbers == sorted(set(numbers))


SHIFT = """
import json, sys
for line in sys.stdin:
    row = json.loads(line)
    if row["id"] == 50 and not row.get("again"):
        print("loading shard 2 ...")
    print(json.dumps({"text": f"of {row['name']}"}), flush=True)
"""


def test_stray_line_of_a_real_command_gives_no_row_the_answer_of_another() -> None:
    spec = {
        "runtimeRef": {"name": "process"},
        "template": {"spec": {"containers": [{"command": [sys.executable, "-c", SHIFT]}]}},
    }
    document = {"metadata": {"namespace": "ns", "name": "job", "uid": "u"}, "spec": spec}
    clock = SystemClock()
    runtime = ProcessRuntime(RuntimeContext(parse_batch(document), {}, clock.monotonic, clock.pause))
    runtime.setup()
    items = [LeasedRow(n, {"id": n, "name": f"n{n}"}, 1) for n in range(100)]
    found = list(runtime.process(WorkBatch(items)))
    runtime.teardown()
    assert good(found) == {n: f"of n{n}" for n in range(100) if n != 50}
    assert [one.reason for one in found if one.output is None] == ["InvalidAnswer"]
