"""The embedded server in process, on a clock that stands still."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from volcanoobjects import queue

from windlass.client.transport import Request
from windlass.kits.clock import FakeClock
from windlass.server.apiserver import ApiServer
from windlass.server.bootstrap import bootstrap
from windlass.server.core import ServerOptions
from windlass.server.log_source import LogSource
from windlass.server.request.users import ADMIN, UserInfo
from windlass.store.families import StoreOptions
from windlass.store.store import Store

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def reason(self) -> str:
        return self.json["reason"]

    @property
    def message(self) -> str:
        return self.json["message"]

    def ok(self, status: int = 200) -> Any:
        assert self.status == status, self.body.decode()
        return self.json

    @property
    def warnings(self) -> str:
        return self.headers.get("warning", "")


class Watch:
    """An open watch; ``events()`` gives what has come by now."""

    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self._stream = stream
        self._events: list[tuple[str, dict[str, Any]]] = []
        self._task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for chunk in self._stream:
            assert chunk.endswith(b"\n")
            for line in chunk.splitlines():
                event = json.loads(line)
                self._events.append((event["type"], event["object"]))

    async def events(self) -> list[tuple[str, dict[str, Any]]]:
        for _ in range(30):
            await asyncio.sleep(0)
        found, self._events = self._events, []
        return found

    async def names(self) -> list[tuple[str, str]]:
        return [(kind, obj["metadata"].get("name", "")) for kind, obj in await self.events()]

    @property
    def ended(self) -> bool:
        return self._task.done()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._stream.aclose()  # type: ignore[attr-defined]


class Api:
    """Requests as dicts. ``async with Api() as api``."""

    def __init__(
        self,
        *,
        options: ServerOptions | None = None,
        store: StoreOptions | None = None,
        logs: LogSource | None = None,
        control: Path | None = None,
    ) -> None:
        self.clock = FakeClock()
        self.store = Store.open(":memory:", clock=self.clock, options=store)
        self.server = ApiServer(
            self.store, clock=self.clock, rng=random.Random(7), logs=logs, options=options, control=control
        )
        self.user = ADMIN

    async def __aenter__(self) -> Api:
        await bootstrap(self.server)
        (await self.post(QUEUES, queue("default"))).ok(201)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.stop()
        await self.store.close()

    async def asleep(self) -> None:
        """Return when a request waits for the clock to go on."""
        while self.clock.left() is None:
            await asyncio.sleep(0)

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "",
        user: UserInfo | None = None,
        **query: Any,
    ) -> Answer:
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        headers = {"content-type": content_type}
        if accept:
            headers["accept"] = accept
        request = Request(method, path, urlencode(query), headers, raw)
        response = await self.server.handle(request, user or self.user)
        data = response.body
        if response.stream is not None:
            data = b"".join([chunk async for chunk in response.stream])
        return Answer(response.status, response.headers, data)

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.send("GET", path, **options)

    async def post(self, path: str, body: Any, **options: Any) -> Answer:
        return await self.send("POST", path, body, **options)

    async def put(self, path: str, body: Any, **options: Any) -> Answer:
        return await self.send("PUT", path, body, **options)

    async def delete(self, path: str, body: Any = None, **options: Any) -> Answer:
        return await self.send("DELETE", path, body, **options)

    async def patch(self, path: str, body: Any, kind: str = "merge", **options: Any) -> Answer:
        media = {"merge": "merge-patch", "json": "json-patch", "strategic": "strategic-merge-patch"}[kind]
        return await self.send("PATCH", path, body, content_type=f"application/{media}+json", **options)

    async def watch(self, path: str, *, accept: str = "", **query: Any) -> Watch:
        request = Request(
            "GET", path, urlencode({"watch": "1", **query}), {"accept": accept} if accept else {}
        )
        response = await self.server.handle(request, self.user)
        assert response.status == 200, response.body
        assert response.stream is not None
        return Watch(response.stream)  # type: ignore[arg-type]


def pod(name: str = "", **members: Any) -> dict[str, Any]:
    """A pod body; ``members`` are merged at the top, ``spec`` into the spec."""
    spec = {"containers": [{"name": "main", "image": "train:1"}], **members.pop("spec", {})}
    metadata = {**({"name": name} if name else {}), **members.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, **members}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def binding(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"kind": "Node", "name": node},
    }
