"""One face for the servers that the conformance tests run against: the embedded one and a real one."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection
from windlass.client.transport import Request

if TYPE_CHECKING:
    from embeddedkube import EmbeddedKube
    from realkube import RealKube

Json = dict[str, Any]
_serial = itertools.count()

_MOMENT = 0.25
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True)
class Answer:
    """An HTTP answer as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    def ok(self, status: int = 200) -> Any:
        """The decoded body; the test fails with the body shown when the status is another."""
        assert self.status == status, f"{self.status}: {self.text}"
        return self.json


@dataclass
class Cluster:
    """A running server. ``name`` is ``embedded`` or ``real``."""

    name: str
    connection: Connection
    kubeconfig: Path
    forget_history: Callable[[], None]
    """Make every resourceVersion of the past too old."""
    _client: BlockingClient = field(init=False)

    def __post_init__(self) -> None:
        self._client = BlockingClient(self.connection, user_agent="conformance", timeout_seconds=60)

    @staticmethod
    def of_real(kube: RealKube) -> Cluster:
        return Cluster("real", kube.connection, kube.kubeconfig, kube.forget_history)

    @staticmethod
    def of_embedded(kube: EmbeddedKube) -> Cluster:
        return Cluster("embedded", kube.connection, kube.kubeconfig, kube.forget_history)

    @property
    def embedded(self) -> bool:
        return self.name == "embedded"

    @property
    def client(self) -> BlockingClient:
        return self._client

    def close(self) -> None:
        self._client.close()

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: str = "",
        content: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """One request, the answer whatever it is. ``body`` is encoded as JSON unless it is bytes."""
        headers = {"accept": accept}
        raw = b""
        if body is not None:
            raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
            headers["content-type"] = content
        response = self._client.request(Request(method, path, query, headers, raw))
        return Answer(response.status, response.headers, response.body)

    def get(self, path: str, query: str = "", **options: Any) -> Answer:
        return self.send("GET", path, query=query, **options)

    def post(self, path: str, body: Any, query: str = "", **options: Any) -> Answer:
        return self.send("POST", path, body, query=query, **options)

    def put(self, path: str, body: Any, query: str = "", **options: Any) -> Answer:
        return self.send("PUT", path, body, query=query, **options)

    def patch(self, path: str, body: Any, content: str = MERGE, query: str = "", **options: Any) -> Answer:
        return self.send("PATCH", path, body, query=query, content=content, **options)

    def delete(self, path: str, body: Any = None, query: str = "", **options: Any) -> Answer:
        return self.send("DELETE", path, body, query=query, **options)

    def new_namespace(self, prefix: str = "t") -> str:
        """A namespace of the test's own; it stays (without controllers a real server cannot remove it)."""
        name = f"{prefix}-{os.getpid()}-{next(_serial)}"
        self.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok(201)
        return name

    def watch(
        self, path: str, query: str = "", *, accept: str = "application/json", count: int, bookmarks: int = 0
    ) -> list[tuple[str, Any]]:
        """The first ``count`` events and so many bookmarks, and whatever comes within a moment after them."""
        events: list[tuple[str, Any]] = []
        deadline = time.monotonic() + 60
        for event in self.watching(path, query, accept=accept, seconds=60, silence_seconds=_MOMENT):
            if event is not None:
                events.append(event)
            elif time.monotonic() > deadline:
                break
            else:
                marks = sum(kind == "BOOKMARK" for kind, _ in events)
                if marks >= bookmarks and len(events) - marks >= count:
                    break
        return events

    def watching(
        self,
        path: str,
        query: str = "",
        *,
        accept: str = "application/json",
        seconds: int = 10,
        silence_seconds: float | None = None,
    ) -> Iterator[Any]:
        """Events as they come, until the server ends the watch; ``None`` for each silence."""
        full = f"watch=true&timeoutSeconds={seconds}" + (f"&{query}" if query else "")
        with BlockingClient(self.connection) as client:
            buffer = b""
            for chunk in client.stream(path, full, accept=accept, silence_seconds=silence_seconds):
                if not chunk:
                    yield None
                buffer += chunk
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    event = msgspec.json.decode(line)
                    yield event["type"], event["object"]


def eventually(check: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Call until the result is true, and return it; what it raises last is shown. A field or an item that is missing
    counts as not there yet."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            result = check()
            if result:
                return result
            problem: Exception | None = None
        except (AssertionError, LookupError) as error:
            problem = error
        if time.monotonic() > deadline:
            raise problem or AssertionError(f"still {result!r} after {seconds} s")
        time.sleep(0.1)


def pod(name: str = "", **changes: Any) -> Json:
    """A pod that no scheduler takes: ``schedulerName`` is one that nobody serves."""
    spec: Json = {
        "schedulerName": "nobody",
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "busybox", "command": ["sleep", "1"]}],
    }
    metadata: Json = {"name": name} if name else {}
    metadata.update(changes.pop("metadata", {}))
    spec.update(changes.pop("spec", {}))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, **changes}


def config_map(name: str = "", data: Mapping[str, str] | None = None, **metadata: Any) -> Json:
    named = {"name": name} if name else {}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**named, **metadata},
        "data": dict(data or {}),
    }


def status_of(code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> Json:
    """The whole Status body of a failure."""
    body: Json = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
    }
    if reason:
        body["reason"] = reason
    if details is not None:
        body["details"] = dict(details)
    body["code"] = code
    return body
