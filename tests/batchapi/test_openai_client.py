"""The unmodified client of OpenAI: files and batches over HTTP."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from windlass.api.errors import failure
from windlass.batchapi import service as batch_service
from windlass.batchapi.http import BatchApi
from windlass.batchapi.service import BatchService, Settings
from windlass.batchapi.store import BatchStore
from windlass.kits.clock import SystemClock
from windlass.kits.rng import seeded
from windlass.observe.http_server import HttpServer, ServerLimits, bind


class FakeJobs:
    """API server with jobs that end at once: a request with the word "bad" fails, "hold" waits."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.refuse = ""

    async def create(self, body: Mapping[str, Any]) -> None:
        if self.refuse:
            raise failure(403, "Forbidden", self.refuse)
        spec = body["spec"]
        rows = [json.loads(line) for line in Path(spec["input"]["path"]).read_text().splitlines()]
        job = {**body, "status": {"phase": "Running", "items": {"total": len(rows), "done": 0}}}
        self.jobs[body["metadata"]["name"]] = job
        if any("hold" in row["custom_id"] for row in rows):
            return
        with Path(spec["outputs"]["path"]).open("w") as out:
            for row in rows:
                out.write(json.dumps(self.answer(row)) + "\n")
        job["status"] = {"phase": "Succeeded", "items": {"total": len(rows), "done": len(rows)}}

    @staticmethod
    def answer(row: Mapping[str, Any]) -> dict[str, Any]:
        if "bad" in row["custom_id"]:
            return {
                "id": row["custom_id"],
                "error": "the server answered 400",
                "reason": "HTTP400",
                "attempts": 3,
            }
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": row["body"]["messages"][0]["content"].upper()},
        }
        return {"id": row["custom_id"], "response": {"status_code": 200, "body": {"choices": [choice]}}}

    async def get(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        return self.jobs.get(name)

    async def delete(self, namespace: str, name: str) -> None:
        self.jobs.pop(name, None)


class Running:
    """Interface in a thread of its own."""

    def __init__(self, folder: Path, jobs: FakeJobs | None = None, token: str = "secret") -> None:
        self.jobs, self.port = jobs or FakeJobs(), 0
        self._store = BatchStore(folder, seeded(1))
        self._token, self._loop, self._stop = token, asyncio.new_event_loop(), asyncio.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self._thread.start()
        assert self._ready.wait(60)

    async def _serve(self) -> None:
        service = BatchService(
            self._store, self.jobs, SystemClock(), Settings("default", "http://127.0.0.1:1/v1")
        )
        server, listeners = HttpServer(ServerLimits(drain=1)), bind("127.0.0.1", 0)
        await server.listen(BatchApi(service, self._token), listeners)
        self.port = listeners[0].getsockname()[1]
        work = asyncio.create_task(service.run())
        self._ready.set()
        await self._stop.wait()
        work.cancel()
        await server.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="module", name="openai")
def library() -> Any:
    """The client of OpenAI, imported only where its tests run: that takes seconds."""
    return pytest.importorskip("openai", reason="the client of OpenAI is not installed")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(tmp_path)
    yield found
    found.close()


@pytest.fixture
def client(running: Running, openai: Any) -> Iterator[Any]:
    url = f"http://127.0.0.1:{running.port}/v1"
    with openai.OpenAI(base_url=url, api_key="secret", max_retries=0) as found:
        yield found


def request(custom: str, **changes: Any) -> dict[str, Any]:
    body = {"model": "tiny", "messages": [{"role": "user", "content": f"say {custom}"}]}
    return {"custom_id": custom, "method": "POST", "url": "/v1/chat/completions", "body": body, **changes}


def upload(client: Any, lines: list[Any]) -> str:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    return client.files.create(file=("in.jsonl", text.encode()), purpose="batch").id


def start(client: Any, lines: list[Any], **given: Any) -> Any:
    return client.batches.create(
        input_file_id=upload(client, lines),
        endpoint="/v1/chat/completions",
        completion_window="24h",
        **given,
    )


def until(client: Any, batch: Any, *statuses: str) -> Any:
    deadline = time.monotonic() + 60
    while batch.status not in statuses:
        assert time.monotonic() < deadline, batch
        time.sleep(0.02)
        batch = client.batches.retrieve(batch.id)
    return batch


def lines_of(client: Any, identifier: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in client.files.content(identifier).text.splitlines()]


def test_a_batch_gives_its_output_and_error_file(client: Any) -> None:
    many = [request(f"r-{number}") for number in range(3000)]
    batch = start(client, [*many, request("bad-1")], metadata={"night": "1"})
    assert (batch.object, batch.status, batch.metadata) == ("batch", "validating", {"night": "1"})
    batch = until(client, batch, "completed")
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (3001, 3000, 1)
    good, bad = lines_of(client, batch.output_file_id), lines_of(client, batch.error_file_id)
    assert {line["custom_id"] for line in good} == {line["custom_id"] for line in many}
    assert good[0]["response"]["body"]["choices"][0]["message"]["content"] == "SAY R-0"
    assert good[0]["response"]["status_code"] == 200
    assert (bad[0]["custom_id"], bad[0]["response"], bad[0]["error"]["code"]) == ("bad-1", None, "HTTP400")
    assert len({line["id"] for line in good}) == 3000


def test_files_are_listed_read_and_removed(client: Any, tmp_path: Path, openai: Any) -> None:
    text = b'{"a": 1}\r\n--not the end\r\n' * 40_000
    path = tmp_path / "large file.jsonl"
    path.write_bytes(text)
    found = client.files.create(file=path, purpose="batch")
    assert (found.filename, found.bytes, found.status) == ("large file.jsonl", len(text), "processed")
    assert client.files.content(found.id).content == text
    assert [each.id for each in client.files.list(purpose="batch")] == [found.id]
    assert client.files.delete(found.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(found.id)


@pytest.mark.parametrize(
    ("lines", "line", "code"),
    [
        ([request("a"), "not json"], 2, "invalid_json_line"),
        ([request("a"), request("a")], 2, "duplicate_custom_id"),
        ([request("a", url="/v1/embeddings")], 1, "mismatched_url"),
        ([request("a", method="GET")], 1, "invalid_method"),
        ([request("a", body=None)], 1, "missing_required_parameter"),
        ([request("")], 1, "missing_required_parameter"),
        ([""], None, "empty_file"),
    ],
)
def test_a_file_with_a_fault_fails_with_its_line(
    client: Any, running: Running, lines: list[Any], line: int | None, code: str
) -> None:
    batch = until(client, start(client, lines), "failed")
    assert [(each.line, each.code) for each in batch.errors.data] == [(line, code)]
    assert running.jobs.jobs == {}


def test_requests_that_cannot_be_served_are_refused(client: Any, openai: Any) -> None:
    identifier = upload(client, [request("a")])
    for changes, part in (
        ({"endpoint": "/v1/images"}, "endpoint must be one of"),
        ({"completion_window": "1h"}, "completion_window must be 24h"),
        ({"metadata": {str(number): "" for number in range(17)}}, "at most 16 pairs"),
    ):
        given = {"input_file_id": identifier, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        with pytest.raises(openai.BadRequestError, match=part):
            client.batches.create(**{**given, **changes})
    with pytest.raises(openai.NotFoundError, match="No such File object"):
        client.batches.create(
            input_file_id="file-0", endpoint="/v1/chat/completions", completion_window="24h"
        )
    with pytest.raises(openai.BadRequestError, match="purpose must be one of"):
        client.files.create(file=b"x", purpose="fun")
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").files.list()
    with pytest.raises(openai.NotFoundError, match="Unknown request URL"):
        client.models.list()
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve("..%2F..%2Fetc")


def test_a_refused_job_fails_the_batch_with_its_reason(client: Any, running: Running) -> None:
    running.jobs.refuse = "exceeded quota"
    batch = until(client, start(client, [request("a")]), "failed")
    assert batch.errors.data[0].code == "job_refused"
    assert "exceeded quota" in batch.errors.data[0].message


def test_a_batch_is_cancelled_and_then_cannot_be_again(client: Any, running: Running, openai: Any) -> None:
    batch = until(client, start(client, [request("hold")]), "in_progress")
    assert client.batches.cancel(batch.id).status == "cancelling"
    batch = until(client, batch, "cancelled")
    assert running.jobs.jobs == {}
    with pytest.raises(openai.ConflictError, match="Cannot cancel"):
        client.batches.cancel(batch.id)


async def test_a_batch_that_is_cancelled_while_its_file_is_checked_begins_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, jobs = BatchStore(tmp_path, seeded(1)), FakeJobs()
    service = BatchService(store, jobs, SystemClock(), Settings("default", "http://127.0.0.1:1/v1"))
    with store.new_file("in.jsonl", "batch", service.now()) as writer:
        writer.line(request("a"))
    given = {"endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = service.create({"input_file_id": writer.id, **given})
    check = batch_service._check_file

    def cancelled_meanwhile(path: Path, endpoint: str) -> Any:
        service.cancel(batch.id)
        return check(path, endpoint)

    monkeypatch.setattr(batch_service, "_check_file", cancelled_meanwhile)
    await service._step(batch)
    await service._step(store.batch(batch.id))
    assert store.batch(batch.id).status == "cancelled"
    assert jobs.jobs == {}


def test_pages_go_on_where_they_ended(client: Any) -> None:
    made = [start(client, [request("hold")]).id for _ in range(5)]
    first = client.batches.list(limit=2)
    assert (len(first.data), first.has_more) == (2, True)
    assert sorted(each.id for each in client.batches.list(limit=2)) == sorted(made)


def test_a_restarted_interface_goes_on(tmp_path: Path, openai: Any) -> None:
    before = Running(tmp_path)
    url = "http://127.0.0.1:{}/v1"
    with openai.OpenAI(base_url=url.format(before.port), api_key="secret", max_retries=0) as client:
        batch = until(client, start(client, [request("hold")]), "in_progress")
    before.close()
    (job,) = before.jobs.jobs.values()
    job["status"] = {"phase": "Succeeded", "items": {"total": 1, "done": 1}}
    Path(job["spec"]["outputs"]["path"]).write_text(json.dumps(FakeJobs.answer(request("hold"))) + "\n")
    after = Running(tmp_path, before.jobs)
    with openai.OpenAI(base_url=url.format(after.port), api_key="secret", max_retries=0) as client:
        batch = until(client, batch, "completed")
        assert len(lines_of(client, batch.output_file_id)) == 1
    after.close()
