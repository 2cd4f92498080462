"""Metrics of a job from Prometheus, for the scaling of its workers (``spec.autoscale.prometheus``).

One request for each query. A query has to give one series: none, several, a value that is not
a number, and an error are problems, never zero.
"""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from windlass.items.driver.messages import QueryRequest

TIMEOUT_SECONDS = 2.0
"""Timeout of one request in seconds."""
MAX_QUERIES = 10
_MAX_BYTES = 1 << 20


def query_all(request: QueryRequest) -> dict[str, dict[str, Any]]:
    """Return name → ``{"value", "at"}`` or ``{"problem"}``. Blocks."""
    found: dict[str, dict[str, Any]] = {}
    for number, (name, query) in enumerate(sorted(request.queries.items())):
        if number >= MAX_QUERIES:
            found[name] = {"problem": f"more than {MAX_QUERIES} queries"}
            continue
        try:
            found[name] = _value(_ask(request.address, query))
        except (OSError, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            found[name] = {"problem": f"{request.address}: {reason}"}
    return found


def _ask(address: str, query: str) -> Any:
    form = urllib.parse.urlencode({"query": query}).encode()
    url = f"{address.rstrip('/')}/api/v1/query"
    headers = {"accept": "application/json", "content-type": "application/x-www-form-urlencoded"}
    asked = urllib.request.Request(url, form, headers)
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT_SECONDS) as answer:
            return json.loads(answer.read(_MAX_BYTES))
    except urllib.error.HTTPError as error:
        text = error.read(_MAX_BYTES)
        try:
            words = json.loads(text).get("error") or ""
        except (ValueError, AttributeError):
            words = ""
        raise ValueError(f"status {error.code}{f', {words}' if words else ''}") from None


def _value(answer: Any) -> dict[str, Any]:
    """Return the value of an answer of Prometheus' HTTP API."""
    if not isinstance(answer, dict) or answer.get("status") != "success":
        words = answer.get("error") if isinstance(answer, dict) else ""
        return {"problem": str(words or "the answer is not one of Prometheus")}
    data = answer.get("data") or {}
    result: Any = data.get("result")
    if data.get("resultType") == "scalar":
        sample: Any = result
    elif data.get("resultType") == "vector" and isinstance(result, list):
        if not result:
            return {"problem": "the query gives no series"}
        if len(result) > 1:
            return {"problem": f"the query gives {len(result)} series: aggregate them, for example by avg()"}
        sample = result[0].get("value")
    else:
        return {"problem": f"the query gives a {data.get('resultType')}, not a vector or a scalar"}
    at, value = float(sample[0]), float(sample[1])
    if not math.isfinite(value):
        return {"problem": f"the value is {sample[1]}"}
    return {"value": value, "at": at}
