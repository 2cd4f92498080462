"""Inference server that the workers of a node share: started once, started again when it is lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from batch_run import BatchRun, jsonl, rows_of

from windlass.items.runtimes.node_server import filled, server_key
from windlass.items.spec import ServerSpec, SpecError, parse_batch

SERVER = """
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
host, port, name, starts, once, go = sys.argv[1:]
with open(starts, "a") as file:
    file.write(f"{os.getpid()} {name}\\n")
time.sleep(0.5)  # loading

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answered = 0

    def answer(self, body):
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.answer({"data": [{"id": name}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        while not os.path.exists(go):
            time.sleep(0.02)
        Handler.answered += 1
        if Handler.answered >= 20 and not os.path.exists(once):
            open(once, "w").close()
            os._exit(9)
        text = body["messages"][-1]["content"].upper()
        self.answer({"choices": [{"message": {"content": text}}], "model": body["model"]})

    def log_message(self, *_):
        pass

ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
"""


def spec_of(folder: Path, rows: int) -> dict[str, Any]:
    (folder / "server.py").write_text(SERVER)
    command = [sys.executable, str(folder / "server.py"), "{host}", "{port}", "{name}"]
    command += [str(folder / "starts"), str(folder / "once"), str(folder / "go")]
    return {
        "input": {"inline": jsonl([{"id": f"r{n}", "prompt": f"row {n}"} for n in range(rows)])},
        "model": {"name": "tiny", "sharing": {"mode": "Server", "command": command}},
        "runtimeRef": {"name": "openai"},
        "batching": {"mode": "Fixed", "size": 4},
        "outputs": {"path": str(folder / "out.jsonl")},
    }


def test_workers_of_a_node_share_one_server_and_start_it_again(tmp_path: Path) -> None:
    run = BatchRun(tmp_path / "run", spec_of(tmp_path, 60), workers=3)
    run.environment["WINDLASS_MODEL_SERVERS"] = str(tmp_path / "servers")
    run.start_driver()
    workers = [run.start_worker(name) for name in run.names]
    try:  # a worker that begins late finds no rows otherwise, and uses no server
        run.wait_status(lambda status: sum((status.get("model") or {}).values()) == 3)
        (tmp_path / "go").touch()
        assert run.driver is not None
        assert run.driver.wait(120) == 0, run.text()
        assert [worker.wait(60) for worker in workers] == [0, 0, 0], run.text()
    finally:
        run.end()
    rows = rows_of(tmp_path / "out.jsonl")
    assert {row["id"]: row["text"] for row in rows} == {f"r{n}": f"ROW {n}" for n in range(60)}
    starts = (tmp_path / "starts").read_text().split("\n")
    assert [line.split()[1] for line in starts if line] == ["tiny", "tiny"]  # the first one ended by itself
    status = json.loads((tmp_path / ".out.jsonl.windlass/status.json").read_text())
    assert status["model"] == {"served": 1, "attached": 2}
    assert not list((tmp_path / "servers").glob("*.address"))


def test_a_server_needs_a_command_and_belongs_to_its_gpus() -> None:
    spec: dict[str, Any] = {
        "runtimeRef": {"name": "openai"},
        "model": {"name": "m", "sharing": {"mode": "Server"}},
    }
    with pytest.raises(SpecError, match=r"spec\.model\.sharing\.command: Required value"):
        parse_batch({"metadata": {"name": "j"}, "spec": spec})
    server = ServerSpec(("serve", "{path}"))
    keys = [server_key({"CUDA_VISIBLE_DEVICES": gpu}, "m", server) for gpu in ("0", "1", "0")]
    assert keys[0] == keys[2] != keys[1]
    assert filled("--port={port}", {"port": "8000"}) == "--port=8000"
