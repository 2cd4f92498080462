"""OpenAI's batches on one box: the unmodified client, jobs, workers and a server with a model."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from chat_server import ChatServer, serving_chat
from single_node import WINDLASS, Box


@pytest.fixture(scope="module", name="openai")
def library() -> Any:
    """The client of OpenAI, imported only where its tests run: that takes seconds."""
    return pytest.importorskip("openai", reason="the client of OpenAI is not installed")


@pytest.fixture(scope="module")
def model() -> Iterator[ChatServer]:
    with serving_chat() as found:
        yield found


@pytest.fixture(scope="module")
def client(model: ChatServer, openai: Any) -> Iterator[Any]:
    with Box() as box:
        backend = f"http://127.0.0.1:{model.server_address[1]}/v1"
        command = [WINDLASS, "batch-api", "--backend", backend, "--listen", "127.0.0.1:0"]
        with subprocess.Popen(command, env=box.environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            url, key = (process.stdout.readline().split("=", 1)[1].strip() for _ in range(2))
            token = subprocess.check_output(["sh", "-c", f"printf %s {key}"], text=True)
            with openai.OpenAI(base_url=url, api_key=token, max_retries=0) as found:
                yield found
            process.terminate()


def start(client: Any, texts: dict[str, str]) -> Any:
    lines = [
        {
            "custom_id": name,
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "tiny", "messages": [{"role": "user", "content": text}]},
        }
        for name, text in texts.items()
    ]
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    uploaded = client.files.create(file=("requests.jsonl", data), purpose="batch")
    return client.batches.create(
        input_file_id=uploaded.id, endpoint="/v1/chat/completions", completion_window="24h"
    )


def until(client: Any, batch: Any, reached: Any) -> Any:
    deadline = time.monotonic() + 200
    while not reached(batch):
        assert time.monotonic() < deadline, batch
        time.sleep(0.2)
        batch = client.batches.retrieve(batch.id)
    return batch


def answers(client: Any, identifier: str) -> dict[str, Any]:
    lines = map(json.loads, client.files.content(identifier).text.splitlines())
    return {line["custom_id"]: line for line in lines}


def test_a_batch_is_answered_once_each_and_a_bad_request_is_one_line(client: Any, model: ChatServer) -> None:
    """W10: a prompt too long is one line of the error file, and the batch completes."""
    texts = {f"r-{number}": f"text {number}" for number in range(200)} | {"odd": "bad text"}
    batch = until(client, start(client, texts), lambda each: each.status in ("completed", "failed"))
    assert (batch.status, batch.request_counts.completed, batch.request_counts.failed) == (
        "completed",
        200,
        1,
    )
    good = answers(client, batch.output_file_id)
    said = {name: line["response"]["body"]["choices"][0]["message"]["content"] for name, line in good.items()}
    assert said == {name: text.upper() for name, text in texts.items() if name != "odd"}
    (bad,) = answers(client, batch.error_file_id).values()
    assert (bad["custom_id"], bad["error"]["code"]) == ("odd", "HTTP400")
    assert sorted(model.answered) == sorted(text for text in texts.values() if "bad" not in text)


def test_a_cancelled_batch_keeps_what_was_answered(client: Any, model: ChatServer) -> None:
    model.most = len(model.answered) + 100
    texts = {f"c-{number}": f"more {number}" for number in range(300)}
    batch = until(client, start(client, texts), lambda each: each.request_counts.completed >= 20)
    client.batches.cancel(batch.id)
    batch = until(client, batch, lambda each: each.status == "cancelled")
    found = answers(client, batch.output_file_id)
    assert 20 <= len(found) == batch.request_counts.completed < 300
