"""Results of a worker: outputs that are not valid JSON are errors of their items."""

from __future__ import annotations

import json
from typing import Any

from windlass.items.runtimes.base import RowOutcome
from windlass.items.worker.loop import result_text


def text(output: dict[str, Any], score: float | None = None) -> dict[str, Any]:
    return json.loads(result_text(RowOutcome(3, output, 0.25), score))


def test_outputs_and_scores_are_sent_as_json() -> None:
    assert text({"id": 1, "text": "灯 \n"}, 90.5) == {
        **{"n": 3, "seconds": 0.25, "score": 90.5},
        "row": {"id": 1, "text": "灯 \n"},
    }
    assert "灯" in result_text(RowOutcome(0, {"text": "灯"}), None)


def test_outputs_that_are_not_valid_json_are_errors() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    for output in ({"x": float("nan")}, {"x": object()}, {"x": "\ud800"}, {"x": b"bytes"}, loop):
        error = text(output)["error"]
        assert (error["kind"], error["reason"]) == ("program", "InvalidOutput")
        assert error["message"].startswith("the output is not valid JSON: ")
