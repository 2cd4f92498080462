"""Metrics from Prometheus' HTTP API: one series gives a value, everything else a problem."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

from windlass.items.driver.messages import QueryRequest
from windlass.items.driver.prometheus import query_all


def vector(*values: str) -> dict[str, Any]:
    result = [{"metric": {"n": str(n)}, "value": [1_700_000_000.5, value]} for n, value in enumerate(values)]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


ANSWERS = {
    "one": vector("0.81"),
    "scalar": {"status": "success", "data": {"resultType": "scalar", "result": [1_700_000_000, "3"]}},
    "none": vector(),
    "two": vector("1", "2"),
    "nan": vector("NaN"),
    "matrix": {"status": "success", "data": {"resultType": "matrix", "result": []}},
    "wrong": {"status": "error", "errorType": "bad_data", "error": "parse error at char 3"},
}
PROBLEMS = {
    "none": "the query gives no series",
    "two": "the query gives 2 series: aggregate them, for example by avg()",
    "nan": "the value is NaN",
    "matrix": "the query gives a matrix, not a vector or a scalar",
    "wrong": "status 400, parse error at char 3",
}


class _Prometheus(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        answer = ANSWERS[parse_qs(body)["query"][0]]
        text = json.dumps(answer).encode()
        self.send_response(400 if answer["status"] == "error" else 200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Prometheus)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_only_one_finite_series_is_a_value(address: str):
    found = query_all(QueryRequest(address, {name: name for name in ANSWERS}))
    assert found["one"] == {"value": 0.81, "at": 1_700_000_000.5}
    assert found["scalar"] == {"value": 3.0, "at": 1_700_000_000}
    for name, words in PROBLEMS.items():
        assert found[name]["problem"].endswith(words)
        assert "value" not in found[name]


def test_server_that_does_not_answer_is_a_problem():
    found = query_all(QueryRequest("http://127.0.0.1:1", {"load": "up"}))
    assert "refused" in found["load"]["problem"]
