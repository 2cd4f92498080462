"""Lines of input, output and error files of a batch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.batchapi.objects import LineError

MOST_ERRORS = 50
"""Most faults of a file that are reported."""


@dataclass(frozen=True)
class CheckedInput:
    """Result of a check. ``requests``: good lines. ``models``: names of the models that they ask for."""

    requests: int
    models: tuple[str, ...]
    errors: tuple[LineError, ...]


def check_input(lines: Iterable[bytes], endpoint: str) -> CheckedInput:
    """Check the lines of an input file, as OpenAI does before a batch runs."""
    seen: set[str] = set()
    models: dict[str, None] = {}
    errors: list[LineError] = []
    good = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        fault = _fault(number, line, endpoint, seen, models)
        if fault is None:
            good += 1
        else:
            errors.append(fault)
            if len(errors) == MOST_ERRORS:
                break
    if not good and not errors:
        errors.append(LineError(None, "empty_file", "the input file has no requests"))
    return CheckedInput(good, tuple(models), tuple(errors))


def _fault(
    number: int, line: bytes, endpoint: str, seen: set[str], models: dict[str, None]
) -> LineError | None:
    try:
        request = json.loads(line)
    except ValueError as error:
        return LineError(number, "invalid_json_line", f"this line is no JSON: {error}")
    if not isinstance(request, dict):
        return LineError(number, "invalid_json_line", "this line is no JSON object")
    custom = request.get("custom_id")
    if not isinstance(custom, str) or not custom:
        return LineError(number, "missing_required_parameter", "custom_id is missing", "custom_id")
    if custom in seen:
        return LineError(number, "duplicate_custom_id", f"custom_id {custom!r} occurs twice", "custom_id")
    if request.get("method") != "POST":
        return LineError(number, "invalid_method", "method must be POST", "method")
    if request.get("url") != endpoint:
        return LineError(number, "mismatched_url", f"url must be {endpoint}, as that of the batch", "url")
    body = request.get("body")
    if not isinstance(body, dict):
        return LineError(number, "missing_required_parameter", "body is missing", "body")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        return LineError(number, "missing_required_parameter", "body.model is missing", "body.model")
    seen.add(custom)
    models[model] = None
    return None


def output_line(batch: str, row: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the line of a finished row, and whether it belongs to the error file.

    ``row``: of the outputs of the AIGCJob, with ``id`` and ``response`` or ``error``.
    """
    custom = str(row.get("id"))
    digest = hashlib.sha256(f"{batch}\0{custom}".encode()).hexdigest()[:24]
    line: dict[str, Any] = {"id": f"batch_req_{digest}", "custom_id": custom, "response": None, "error": None}
    response = row.get("response")
    if isinstance(response, dict):
        line["response"] = {"request_id": f"req_{digest}", **response}
        return line, response.get("status_code") != 200
    line["error"] = {
        "code": str(row.get("reason") or "server_error"),
        "message": str(row.get("error") or "the request has no answer"),
    }
    return line, True
