"""Runtimes: commands, functions and OpenAI-compatible servers, with good and bad rows."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from windlass.items.quality import scorers
from windlass.items.runtimes import process
from windlass.items.runtimes.base import (
    LeasedRow,
    RowOutcome,
    Runtime,
    RuntimeContext,
    SetupError,
    WorkBatch,
    create,
)
from windlass.items.runtimes.builtin_generate import generate
from windlass.items.runtimes.openai_server import OpenAIRuntime, RequestLimit, retry_delay
from windlass.items.spec import parse_batch
from windlass.items.worker.loop import score_of


def runtime_of(spec: dict[str, Any], pauses: list[float] | None = None) -> Runtime:
    batch = parse_batch({"metadata": {"name": "job"}, "spec": spec})
    pause = time.sleep if pauses is None else pauses.append
    runtime = create(RuntimeContext(batch, {"KEY": "sesame"}, time.monotonic, pause))
    runtime.setup()
    return runtime


def batch_of(*rows: dict[str, Any]) -> WorkBatch:
    return WorkBatch(
        [LeasedRow(n, row, 1, str(row.get("prompt", ""))) for n, row in enumerate(rows)], model="m"
    )


def command(code: str, **items: object) -> dict[str, Any]:
    container = {"command": [sys.executable, "-c", code]}
    return {
        "runtimeRef": {"name": "process"},
        "template": {"spec": {"containers": [container]}},
        "items": items,
    }


def errors(outcomes: list[RowOutcome]) -> dict[int, str]:
    return {one.number: one.reason for one in outcomes if one.output is None}


ECHO = """
import json, os, sys, time
for line in sys.stdin:
    row = json.loads(line)
    if row.get("exit"): print("no such cup\\n", file=sys.stderr); os._exit(4)
    if row.get("sleep"): time.sleep(60)
    print("no JSON" if row.get("bad") else json.dumps({"id": row["id"], "pid": os.getpid()}))
"""


def test_one_command_answers_all_batches_and_bad_rows_fail_alone() -> None:
    runtime = runtime_of(command(ECHO, timeoutSeconds=8))
    first = list(runtime.process(batch_of({"id": "a"}, {"id": "b"})))
    second = list(runtime.process(batch_of({"id": "c"}, {"id": "d", "bad": True}, {"id": "e"})))
    pids = {one.output["pid"] for one in first + second if one.output}
    assert len(pids) == 1
    assert errors(second) == {1: "InvalidAnswer"}
    third = list(
        runtime.process(
            batch_of({"id": 1}, {"id": 2, "exit": True}, {"id": 3}, {"id": 4, "sleep": 1}, {"id": 5})
        )
    )
    assert [one.number for one in third] == [0, 1, 2, 3, 4]
    assert errors(third) == {1: "ProcessExited", 3: "Timeout"}
    assert third[1].message == "the command ended with exit code 4 before it answered: no such cup"
    runtime.teardown()


def test_commands_that_hold_answers_back_are_recognised(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(process, "QUIET_SECONDS", 0.3)
    monkeypatch.setattr(process, "PATIENT_SECONDS", 0.3)
    monkeypatch.setattr(process, "MAX_QUIET_SECONDS", 0.5)
    starts = tmp_path / "starts"
    note = f"import sys\nopen({str(starts)!r}, 'a').write('1')\n"
    at_the_end = "rows = sys.stdin.readlines()\nsys.stdout.writelines(rows)"
    in_blocks = "for line in sys.stdin:\n    out.write(line)\nout.flush()"
    for code in (at_the_end, "import io\nout = io.StringIO()\nout = open(1, 'w', 4096)\n" + in_blocks):
        starts.unlink(missing_ok=True)
        runtime = runtime_of(command(note + code))
        for _ in range(3):
            outcomes = list(runtime.process(batch_of(*({"id": n} for n in range(1000)))))
            assert [one.output for one in outcomes] == [{"id": n} for n in range(1000)]
        assert starts.read_text() == "111"
        runtime.teardown()


def test_a_command_that_holds_back_has_the_time_of_all_rows() -> None:
    code = "import sys, time\nrows = sys.stdin.readlines()\ntime.sleep(0.8)\nsys.stdout.writelines(rows)"
    for rows, held, reasons in ((40, process.HELD, {}), (1, process.HELD, {0: "Timeout"})):
        runtime = runtime_of(command(code, timeoutSeconds=0.4))
        assert isinstance(runtime, process.ProcessRuntime)
        runtime._held = held
        assert errors(list(runtime.process(batch_of(*({"id": n} for n in range(rows)))))) == reasons
        runtime.teardown()


def test_rows_that_exceed_the_pipe_pass_in_both_directions() -> None:
    code = "import sys\nfor line in sys.stdin:\n    print(line, end='')"
    runtime = runtime_of(command(code))
    rows = [{"id": n, "text": "x" * 50_000} for n in range(40)]
    assert [one.output for one in runtime.process(batch_of(*rows))] == rows
    runtime.teardown()


def test_a_command_that_is_missing_ends_the_worker() -> None:
    spec = command("")
    spec["template"]["spec"]["containers"][0]["command"] = ["/nowhere/model"]
    with pytest.raises(SetupError, match="/nowhere/model cannot be started: No such file or directory"):
        runtime_of(spec)


def python_spec(tmp_path: Path, name: str, **more: object) -> dict[str, Any]:
    module = f"functions_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(
        "import time\n"
        "def upper(row):\n"
        "    if row.get('sleep'): time.sleep(30)\n"
        "    return row['name'].upper()\n"
        "class Model:\n"
        "    loads = 0\n"
        "    def setup(self): Model.loads += 1\n"
        "    def process(self, rows):\n"
        "        if any(row['name'] == 'bad' for row in rows): raise ValueError('bad row')\n"
        "        return [{'text': row['name'], 'loads': Model.loads} for row in rows]\n"
    )
    container = {"workingDir": str(tmp_path)}
    runtime = {"name": "python", "function": f"{module}:{name}"}
    return {"runtimeRef": runtime, "template": {"spec": {"containers": [container]}}, **more}


def test_functions_and_classes_process_rows(tmp_path: Path) -> None:
    runtime = runtime_of(python_spec(tmp_path, "upper", items={"timeoutSeconds": 2}))
    outcomes = list(
        runtime.process(batch_of({"id": 1, "name": "a"}, {"id": 2}, {"id": 3, "name": "c", "sleep": 1}))
    )
    assert outcomes[0].output == {"id": 1, "text": "A"}
    assert errors(outcomes) == {1: "KeyError", 2: "Timeout"}
    model = runtime_of(python_spec(tmp_path, "Model"))
    rows = [{"id": n, "name": "bad" if n == 3 else f"n{n}"} for n in range(5)]
    outcomes = list(model.process(batch_of(*rows)))
    assert errors(outcomes) == {3: "ValueError"}
    assert outcomes[4].output == {"id": 4, "text": "n4", "loads": 1}
    with pytest.raises(SetupError, match="cannot be imported"):
        runtime_of(python_spec(tmp_path, "missing"))


class _Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answers: list[int] = []
    seen: list[tuple[str, str, Any]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append((self.path, self.headers.get("Authorization", ""), body))
        status = self.answers.pop(0) if self.answers else 200
        answer: Any = {
            "choices": [{"message": {"content": "85 points"}, "finish_reason": "stop"}],
            "usage": {},
        }
        if status != 200:
            answer = {"error": {"message": "context length exceeded"}}
        data = json.dumps(answer).encode()
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "7")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def server() -> Iterator[str]:
    _Server.answers, _Server.seen = [], []
    running = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    running.daemon_threads = True
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}/v1"
    running.shutdown()
    thread.join()
    running.server_close()


def openai_spec(url: str, **more: object) -> dict[str, Any]:
    runtime = {
        "name": "openai",
        "url": url,
        "apiKeyEnv": "KEY",
        "concurrency": 1,
        "parameters": {"temperature": 0},
    }
    return {"runtimeRef": runtime, "input": {"systemPrompt": "Be brief."}, **more}


def test_an_openai_server_is_asked_and_a_prompt_too_long_is_one_error(server: str) -> None:
    """W10, ray#59194: the other rows go on."""
    pauses: list[float] = []
    runtime = runtime_of(openai_spec(server), pauses)
    _Server.answers = [200, 400, 429, 429, 200, 500]
    rows = [{"id": n, "prompt": f"p{n}"} for n in range(3)]
    rows.append({"id": 3, "body": {"messages": [], "model": "other"}, "url": "/v1/embeddings"})
    outcomes = sorted(runtime.process(batch_of(*rows)), key=lambda one: one.number)
    assert outcomes[0].output == {"id": 0, "text": "85 points", "finishReason": "stop"}
    assert (outcomes[1].kind, outcomes[1].reason) == ("permanent", "HTTP400")
    assert outcomes[1].message == "the server answered 400: context length exceeded"
    assert outcomes[2].output is not None
    assert pauses == [7.0, 7.0]
    assert (outcomes[3].kind, outcomes[3].reason) == ("program", "HTTP500")
    path, key, body = _Server.seen[0]
    assert (path, key) == ("/v1/chat/completions", "Bearer sesame")
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (body["model"], body["temperature"]) == ("m", 0)
    assert _Server.seen[-1][0] == "/v1/embeddings"
    runtime.teardown()


def test_a_model_judges_outputs(server: str) -> None:
    quality = {
        "scorer": {"name": "judge", "url": server, "model": "judge-1", "prompt": "Rate {text} for {prompt}"}
    }
    batch = parse_batch({"metadata": {}, "spec": {"outputs": {"quality": quality}}})
    assert batch.outputs.quality is not None
    score = scorers.create(batch.outputs.quality, RuntimeContext(batch, {}, time.monotonic, time.sleep))
    item = LeasedRow(0, {"id": 1}, 1, "a lamp")
    assert score(item, {"id": 1, "text": "It shines."}) == 85
    _, _, body = _Server.seen[0]
    assert (body["model"], body["messages"][0]["content"]) == ("judge-1", "Rate It shines. for a lamp")
    _Server.answers = [503]
    outcome = RowOutcome(0, {"id": 1, "text": "x"})
    assert score_of(score, outcome, item) is None
    assert (outcome.output, outcome.kind, outcome.reason) == (None, "infrastructure", "ScorerUnreachable")


def test_a_server_that_cannot_be_reached_is_no_error_of_the_row() -> None:
    pauses: list[float] = []
    runtime = runtime_of(openai_spec("http://127.0.0.1:9/v1"), pauses)
    outcome = next(iter(runtime.process(batch_of({"id": 1, "prompt": "x"}))))
    assert (outcome.kind, outcome.reason) == ("infrastructure", "ServerUnreachable")
    assert (
        "(127.0.0.1 is the pod itself, or its node with spec.template.spec.hostNetwork: true)"
        in outcome.message
    )
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    assert isinstance(runtime, OpenAIRuntime)
    runtime.teardown()


def test_concurrency_follows_the_load_of_the_server() -> None:
    limit = RequestLimit(16)
    limit.overloaded()
    limit.overloaded()
    assert limit.current == 4
    for _ in range(5):
        limit.succeeded()
    assert limit.current == 5
    assert retry_delay({}, 3) == 2.0
    assert retry_delay({"retry-after": "3600"}, 1) == 60.0


def test_generated_text_depends_on_prompt_and_model_only() -> None:
    assert generate("Describe a lamp", "m", 40) == generate("Describe a lamp", "m", 40)
    assert generate("Describe a lamp", "m", 40) != generate("Describe a lamp", "n", 40)
    assert len(generate("Describe a lamp", "m", 25).split()) == 25
