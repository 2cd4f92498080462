"""Rows of several groups at the same time, sent to a server."""

from __future__ import annotations

import json
import signal
import sqlite3
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from batch_run import BatchRun, rows_of

AT_ONCE = 4


class Handler(BaseHTTPRequestHandler):
    """Answers a request when as many others wait, or when the gate is open."""

    protocol_version = "HTTP/1.1"
    together = threading.Barrier(AT_ONCE)
    gate: threading.Event | None = None
    texts: list[str] = []
    waiting = threading.Semaphore(0)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = 200
        if self.gate is not None:
            self.waiting.release()
            self.gate.wait(120)
        else:
            try:
                self.together.wait(120)
            except threading.BrokenBarrierError:
                status = 400
        text = body["messages"][0]["content"]
        self.texts.append(text)
        data = json.dumps({"choices": [{"message": {"content": f"about {text}"}}]}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        return


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of connections of workers that were stopped."""


@pytest.fixture
def server() -> Iterator[str]:
    Handler.together, Handler.gate, Handler.texts = threading.Barrier(AT_ONCE), None, []
    Handler.waiting = threading.Semaphore(0)
    running = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}/v1"
    if Handler.gate is not None:
        Handler.gate.set()
    running.shutdown()
    thread.join()
    running.server_close()


def spec_of(folder: Path, url: str, rows: int) -> dict[str, Any]:
    """Return a job in which each row has a group of its own."""
    lines = [f'{{"id": {n}, "kind": "k{n}"}}\n' for n in range(rows)]
    (folder / "rows.jsonl").write_text("".join(lines))
    return {
        "input": {
            "source": "file",
            "format": "jsonl",
            "path": str(folder / "rows.jsonl"),
            "prompt": "{kind}",
        },
        "runtimeRef": {"name": "openai", "url": url, "concurrency": AT_ONCE},
        "model": {"name": "m"},
        "grouping": {"by": "kind"},
        "outputs": {"path": str(folder / "out.jsonl")},
    }


def test_rows_of_small_groups_are_sent_together(tmp_path: Path, server: str) -> None:
    """With one group at a time, no request would ever be answered."""
    run = BatchRun(tmp_path / "run", spec_of(tmp_path, server, 3 * AT_ONCE), workers=1)
    assert run.run() == 0, run.text()
    found = rows_of(tmp_path / "out.jsonl")
    assert [(row["id"], row["text"]) for row in found] == [(n, f"about k{n}") for n in range(3 * AT_ONCE)]
    assert len(Handler.texts) == 3 * AT_ONCE


def test_stopped_worker_gives_the_rows_of_all_its_leases_back(tmp_path: Path, server: str) -> None:
    gate = Handler.gate = threading.Event()
    run = BatchRun(tmp_path / "run", spec_of(tmp_path, server, 10), workers=1)
    run.start_driver()
    first = run.start_worker("first")
    try:
        for _ in range(AT_ONCE):
            assert Handler.waiting.acquire(timeout=60)
        assert run.call("/v1/status")["items"]["inFlight"] >= AT_ONCE
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 143
        run.wait_status(lambda status: status["items"]["inFlight"] == 0)
        gate.set()
        run.start_worker("second")
        assert run.driver is not None
        assert run.driver.wait(60) == 0, run.text()
    finally:
        run.end()
    assert [row["id"] for row in rows_of(tmp_path / "out.jsonl")] == list(range(10))
    with sqlite3.connect(tmp_path / ".out.jsonl.windlass/ledger.sqlite") as ledger:
        assert ledger.execute("SELECT sum(attempts), sum(losses) FROM items").fetchone() == (0, 0)
