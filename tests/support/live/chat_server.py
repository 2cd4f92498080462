"""Server with OpenAI's chat completions that answers with the words of the user in capitals."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class ChatServer(ThreadingHTTPServer):
    """``answered``: texts in order. A text with "bad" gets 400; every tenth request is refused once with 429.

    Requests beyond ``most`` answers wait until ``released`` is set.
    """

    daemon_threads = True
    answered: list[str]
    refused: set[str]
    most: float
    released: threading.Event


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = body["messages"][-1]["content"]
        if text.endswith("0") and text not in self.server.refused:
            self.server.refused.add(text)
            return self._answer(429, {"error": {"message": "too many requests"}}, retry="0")
        if "bad" in text:
            return self._answer(400, {"error": {"message": "the prompt is too long"}})
        if len(self.server.answered) >= self.server.most:
            self.server.released.wait()
        self.server.answered.append(text)
        choice = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": text.upper()},
        }
        return self._answer(200, {"object": "chat.completion", "model": body["model"], "choices": [choice]})

    def _answer(self, status: int, body: dict[str, object], retry: str = "") -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        if retry:
            self.send_header("Retry-After", retry)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving_chat() -> Iterator[ChatServer]:
    """Give a running server on a free port of the loopback."""
    with ChatServer(("127.0.0.1", 0), _Handler) as server:
        server.answered, server.refused, server.released = [], set(), threading.Event()
        server.most = float("inf")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.released.set()
            server.shutdown()
            thread.join()
