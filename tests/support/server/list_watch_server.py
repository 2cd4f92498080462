"""A collection on a pretend API server: lists, pages, watches, WatchLists, compaction and faults.

Answers like the real one in what a reflector depends on: versions, 410, 422, 504, ERROR events, bookmarks.
"""

from __future__ import annotations

import copy
from typing import Any

from fake_transport import Answer, FedStream, ok, page, query_of, streaming

from windlass.api.errors import StatusError, expired, failure
from windlass.client.transport import Request


class TinyServer:
    """``handler`` goes into a ``FakeTransport``. Objects are changed by ``put`` and ``delete``."""

    def __init__(self, *, watch_list: bool = True) -> None:
        self.watch_list = watch_list
        self.rv = 100
        self.compacted = 0
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[int, str, dict[str, Any]]] = []
        self.streams: list[FedStream] = []
        self.faults: list[Answer] = []
        self._serial = 0

    # Changes.

    def put(self, name: str, **spec: Any) -> None:
        self.rv += 1
        old = self.objects.get(name)
        if old is None:
            self._serial += 1
            uid = f"uid-{self._serial}"
        else:
            uid = old["metadata"]["uid"]
        metadata = {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": str(self.rv)}
        obj = {"metadata": metadata, "spec": spec}
        self.objects[name] = obj
        self._note("MODIFIED" if old else "ADDED", obj)

    def delete(self, name: str) -> None:
        self.rv += 1
        obj = copy.deepcopy(self.objects.pop(name))
        obj["metadata"]["resourceVersion"] = str(self.rv)
        self._note("DELETED", obj)

    def _note(self, kind: str, obj: dict[str, Any]) -> None:
        self.history.append((self.rv, kind, obj))
        for stream in self.streams:
            stream.event(kind, obj)

    def compact(self) -> None:
        """Forget all history."""
        self.compacted = self.rv
        self.history.clear()

    def bookmark(self) -> None:
        for stream in self.streams:
            stream.event("BOOKMARK", {"metadata": {"resourceVersion": str(self.rv)}})

    def end_watches(self, error: Exception | None = None) -> None:
        """End all streams: normally, by an ERROR event (StatusError), or by a break."""
        streams, self.streams = self.streams, []
        for stream in streams:
            if isinstance(error, StatusError):
                stream.event("ERROR", error.status)
                stream.end()
            else:
                stream.end(error)

    # Requests.

    def handler(self, request: Request) -> Answer:
        if self.faults:
            return self.faults.pop(0)
        query = query_of(request)
        if query.get("watch") == "true":
            return self._watch(query)
        return self._list(query)

    def _list(self, query: dict[str, str]) -> Answer:
        rv = query.get("resourceVersion", "")
        if rv not in ("", "0") and int(rv) > self.rv:
            return _too_large(rv, self.rv)
        names = sorted(self.objects)
        token = query.get("continue", "")
        if token:
            snapshot, start = token.split(":")
            if int(snapshot) < self.compacted or int(snapshot) != self.rv:
                return expired("The provided continue parameter is too old")
            names = names[int(start) :]
        limit = int(query.get("limit", 0)) if rv != "0" else 0
        taken = names[:limit] if limit else names
        rest = f"{self.rv}:{len(self.objects) - len(names) + limit}" if len(taken) < len(names) else ""
        return page([self.objects[name] for name in taken], str(self.rv), rest)

    def _watch(self, query: dict[str, str]) -> Answer:
        rv = query.get("resourceVersion", "")
        if query.get("sendInitialEvents") == "true":
            if not self.watch_list:
                return failure(422, "Invalid", "sendInitialEvents is forbidden for watch")
            if rv and int(rv) > self.rv:
                return _too_large(rv, self.rv)
            return self._watch_from_state(marked=True)
        if rv in ("", "0"):
            return self._watch_from_state(marked=False)
        if int(rv) < self.compacted:
            stream = FedStream()
            stream.event("ERROR", expired(f"too old resource version: {rv} ({self.compacted})").status)
            stream.end()
            return streaming(stream)
        stream = FedStream()
        for version, kind, obj in self.history:
            if version > int(rv):
                stream.event(kind, obj)
        self.streams.append(stream)
        return streaming(stream)

    def _watch_from_state(self, *, marked: bool) -> Answer:
        stream = FedStream()
        for name in sorted(self.objects):
            stream.event("ADDED", self.objects[name])
        if marked:
            annotations = {"k8s.io/initial-events-end": "true"}
            metadata = {"resourceVersion": str(self.rv), "annotations": annotations}
            stream.event("BOOKMARK", {"metadata": metadata})
        self.streams.append(stream)
        return streaming(stream)

    def version(self) -> Answer:
        return ok({"gitVersion": "v1.36.0"})


def _too_large(asked: str, current: int) -> StatusError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return failure(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        {"causes": [cause], "retryAfterSeconds": 1},
    )
