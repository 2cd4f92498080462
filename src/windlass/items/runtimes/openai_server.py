"""Runtime ``openai``: any server with the chat completions of OpenAI.

The number of concurrent requests follows the server: it falls by half when the server is
overloaded (429, 503), and grows by one after as many good answers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any
from urllib.parse import urlsplit

from windlass.api.fields.aigc import on_loopback
from windlass.items.runtimes.base import (
    INFRASTRUCTURE,
    PERMANENT,
    PROGRAM,
    LeasedRow,
    RowOutcome,
    RuntimeContext,
    WorkBatch,
)
from windlass.items.runtimes.http_json import JsonClient

REQUEST_SECONDS = 300.0
"""Default timeout of one request (seconds)."""
OVERLOAD_SECONDS = 900.0
"""Maximum time that a request is repeated while the server is overloaded (seconds)."""
UNREACHABLE = "ServerUnreachable"
CONNECT_ATTEMPTS = 5
"""Maximum number of attempts to reach a server."""
MAX_DELAY_SECONDS = 60.0
"""Maximum delay between attempts (seconds)."""


class RequestLimit:
    """Maximum number of concurrent requests, adapted to the load of the server."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(most)
        self._running = 0
        self._changed = threading.Condition()

    @property
    def current(self) -> int:
        return max(1, int(self._limit))

    def __enter__(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._running < self.current)
            self._running += 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def overloaded(self) -> None:
        with self._changed:
            self._limit = max(1.0, self._limit / 2)

    def succeeded(self) -> None:
        with self._changed:
            self._limit = min(float(self._most), self._limit + 1.0 / self._limit)
            self._changed.notify_all()


class OpenAIRuntime:
    """Sends each row as one request. A row with ``messages`` or ``body`` is sent as it is."""

    def __init__(self, context: RuntimeContext) -> None:
        self._context = context
        runtime = context.batch.runtime
        self._url = runtime.url.rstrip("/")
        key = context.environment.get(runtime.api_key_env, "")
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.concurrency = runtime.concurrency
        self.limit = RequestLimit(runtime.concurrency)
        self._threads = ThreadPoolExecutor(runtime.concurrency, "request")
        self._local = threading.local()
        self._clients: list[JsonClient] = []

    def setup(self) -> None:
        return

    def teardown(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for client in self._clients:
            client.close()

    def process(self, batch: WorkBatch) -> Iterator[RowOutcome]:
        running: set[Future[RowOutcome]] = set()
        items = batch.left()
        try:
            for item in items:
                running.add(self._threads.submit(self.request, item, batch.model))
                while len(running) >= self.concurrency:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            for future in running:
                future.cancel()

    def _client(self) -> JsonClient:
        client = getattr(self._local, "client", None)
        if client is None:
            timeout = self._context.batch.items.timeout_seconds or REQUEST_SECONDS
            client = self._local.client = JsonClient(self._url, self._headers, timeout)
            self._clients.append(client)
        return client

    def _lost_server(self) -> None:
        """Called when the server cannot be reached, before the next attempt."""

    def _own_address(self) -> str:
        """Tell that a loopback address is the pod's own, which has a network of its own by default."""
        if not on_loopback(self._url):
            return ""
        return (
            f" ({urlsplit(self._url).hostname} is the pod itself, or its node with "
            "spec.template.spec.hostNetwork: true)"
        )

    def request(self, item: LeasedRow, model: str) -> RowOutcome:
        """Send one row, again while the server is overloaded or cannot be reached."""
        started = self._context.monotonic()
        path, body = request_of(item, model, self._context)
        outcome = self._repeat(item, path, body, started)
        outcome.seconds = self._context.monotonic() - started
        return outcome

    def _repeat(self, item: LeasedRow, path: str, body: Mapping[str, Any], started: float) -> RowOutcome:
        failures = overloads = 0
        while True:
            try:
                with self.limit:
                    status, headers, answer = self._client().request("POST", path, body)
            except TimeoutError:
                return RowOutcome(
                    item.number, None, 0.0, PROGRAM, "Timeout", "the server did not answer in time"
                )
            except OSError as error:
                self._lost_server()
                failures += 1
                message = f"{self._url} cannot be reached: {error}{self._own_address()}"
                self._context.tell(UNREACHABLE, message)
                if failures >= CONNECT_ATTEMPTS:
                    return RowOutcome(item.number, None, 0.0, INFRASTRUCTURE, UNREACHABLE, message)
                self._context.pause(min(MAX_DELAY_SECONDS, 0.5 * 2**failures))
                continue
            if status in (429, 503, 529):
                self.limit.overloaded()
                overloads += 1
                if self._context.monotonic() - started > OVERLOAD_SECONDS:
                    message = f"the server answered {status} for {OVERLOAD_SECONDS:g} s"
                    return RowOutcome(item.number, None, 0.0, INFRASTRUCTURE, "ServerOverloaded", message)
                self._context.pause(retry_delay(headers, overloads))
                continue
            if status == 200:
                self.limit.succeeded()
            return outcome_of(item, status, answer)


def retry_delay(headers: Mapping[str, str], attempt: int) -> float:
    """Return the delay in seconds that the server asks for, or an exponential one."""
    try:
        return max(0.0, min(MAX_DELAY_SECONDS, float(headers["retry-after"])))
    except (KeyError, ValueError):
        return min(MAX_DELAY_SECONDS, 0.25 * 2**attempt)


def request_of(item: LeasedRow, model: str, context: RuntimeContext) -> tuple[str, dict[str, Any]]:
    """Return path and body of the request for a row."""
    row, batch = item.row, context.batch
    body = row.get("body")
    if isinstance(body, Mapping):
        path = str(row.get("url") or "/chat/completions").removeprefix("/v1")
        return path, {"model": model, **body}
    messages = row.get("messages")
    if not isinstance(messages, list):
        messages = []
        system = row.get("system") or batch.input.system_prompt
        if system:
            messages.append({"role": "system", "content": str(system)})
        messages.append({"role": "user", "content": item.prompt})
    parameters = dict(batch.runtime.parameters)
    return "/chat/completions", {"model": row.get("model") or model, "messages": messages, **parameters}


def outcome_of(item: LeasedRow, status: int, answer: bytes) -> RowOutcome:
    """Return the outcome of a response."""
    found = _decoded(answer)
    if status != 200:
        message = _error_text(found) or answer[:200].decode(errors="replace")
        kind = PERMANENT if 400 <= status < 500 and status not in (408, 409, 425) else PROGRAM
        if status in (502, 504):
            kind = INFRASTRUCTURE
        return RowOutcome(
            item.number, None, 0.0, kind, f"HTTP{status}", f"the server answered {status}: {message}"
        )
    if isinstance(item.row.get("body"), Mapping):
        return RowOutcome(
            item.number, {"id": item.row["id"], "response": {"status_code": 200, "body": found}}
        )
    try:
        choice = found["choices"][0]
        output = {"id": item.row["id"], "text": choice["message"]["content"] or ""}
        output["finishReason"] = choice.get("finish_reason")
        usage = found.get("usage") or {}
        output["promptTokens"] = usage.get("prompt_tokens")
        output["completionTokens"] = usage.get("completion_tokens")
    except (TypeError, KeyError, IndexError, AttributeError):
        shown = answer[:200].decode(errors="replace")
        return RowOutcome(
            item.number, None, 0.0, PROGRAM, "InvalidAnswer", f"the answer has no choice: {shown}"
        )
    return RowOutcome(item.number, {name: value for name, value in output.items() if value is not None})


def _decoded(answer: bytes) -> Any:
    """Return the JSON value of an answer; None if it has none."""
    try:
        return json.loads(answer)
    except ValueError:
        return None


def _error_text(found: Any) -> str:
    error = found.get("error") if isinstance(found, dict) else None
    if isinstance(error, dict):
        return str(error.get("message", ""))[:500]
    return str(error)[:500] if error else ""
