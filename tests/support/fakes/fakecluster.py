"""A cluster in a dictionary, with the blocking client's verbs: for tests of the command line."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.api import errors
from windlass.api.resources import ALL, NODES, PODS, QUEUES, Resource
from windlass.api.selectors import parse_labels
from windlass.client.connection import Connection
from windlass.client.errors import Unreachable
from windlass.client.responses import ListResult
from windlass.client.transport import Request

Object = dict[str, Any]
START = "2026-01-01T11:00:00Z"


@dataclass
class FakeCluster:
    """Objects by (resource, namespace, name). ``requests`` remembers every write."""

    objects: dict[tuple[Resource, str, str], Object] = field(default_factory=dict)
    logs: dict[tuple[str, str], bytes] = field(default_factory=dict)
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)
    """Object name → warnings of the server when it is written."""
    on_create: list[Callable[[FakeCluster, Resource, Object], None]] = field(default_factory=list)
    answers: dict[str, bytes] = field(default_factory=dict)
    """Path → body, for raw requests."""
    refuse: dict[str, Exception | Callable[[], Exception]] = field(default_factory=dict)
    """Object name → what writing it raises, or what makes that."""
    hidden: set[Resource] = field(default_factory=set)
    """Kinds that this user may not list."""
    down: bool = False
    _count: int = 0

    def add(self, resource: Resource, obj: Object) -> Object:
        metadata = obj.setdefault("metadata", {})
        self._count += 1
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        metadata.setdefault("uid", f"uid-{self._count}")
        metadata.setdefault("creationTimestamp", START)
        metadata["resourceVersion"] = str(self._count)
        obj.setdefault("apiVersion", resource.api_version)
        obj.setdefault("kind", resource.kind)
        self.objects[(resource, metadata.get("namespace", ""), metadata["name"])] = obj
        return obj

    def client(self, *_: Any) -> FakeClient:
        return FakeClient(self)


class FakeClient:
    """What :class:`windlass.client.blocking.BlockingClient` offers, on a :class:`FakeCluster`."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.on_warning: Callable[[str], None] | None = None
        self.connection = Connection(unix_socket="/run/fake.sock")

    def close(self) -> None:
        """Nothing is open."""

    def _check(self) -> None:
        if self.cluster.down:
            raise Unreachable("WL-SERVER-503", "the control plane is not running", remedies=("windlass up",))

    def _warn(self, name: str) -> None:
        for text in self.cluster.warnings.get(name, ()):
            if self.on_warning is not None:
                self.on_warning(text)
        refusal = self.cluster.refuse.get(name)
        if refusal is not None:
            raise refusal if isinstance(refusal, Exception) else refusal()

    @staticmethod
    def _space(resource: Resource, namespace: str | None) -> str:
        return (namespace or "default") if resource.namespaced else ""

    def get(self, resource: Resource, name: str, namespace: str | None = None, **_: Any) -> Object:
        self._check()
        found = self.cluster.objects.get((resource, self._space(resource, namespace), name))
        if found is None:
            raise errors.not_found(resource, name)
        return copy.deepcopy(found)

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Object | None:
        self._check()
        found = self.cluster.objects.get((resource, self._space(resource, namespace), name))
        return copy.deepcopy(found) if found is not None else None

    def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        **_: Any,
    ) -> ListResult[Any]:
        self._check()
        if resource in self.cluster.hidden:
            raise errors.forbidden(resource, "", "not for you")
        selector = parse_labels(labels) if labels else None
        items = [
            copy.deepcopy(obj)
            for (kind, space, _name), obj in self.cluster.objects.items()
            if kind is resource
            and (namespace is None or not resource.namespaced or space == namespace)
            and (selector is None or selector.matches(obj["metadata"].get("labels") or {}))
            and all(_field(obj, pair) for pair in fields.split(",") if pair)
        ]
        return ListResult(items[: limit or None], str(self.cluster._count))

    def watch(self, *_: Any, **__: Any) -> Iterator[tuple[str, Object]]:
        self._check()
        threading.Event().wait()  # nothing changes any more; the thread ends with the test run
        yield "BOOKMARK", {}

    def logs(self, namespace: str, name: str, **options: Any) -> Iterator[bytes]:
        self._check()
        text = self.cluster.logs.get((namespace, name), b"")
        if not options.get("timestamps"):
            text = b"".join(line.split(b" ", 1)[-1] for line in text.splitlines(keepends=True))
        if options.get("tail_lines") is not None:
            text = b"".join(text.splitlines(keepends=True)[-options["tail_lines"] :])
        yield text

    def stream(self, path: str, query: str = "", **_: Any) -> Iterator[bytes]:
        self._check()
        return iter(())

    def call(self, request: Request) -> bytes:
        self._check()
        self.cluster.requests.append((request.method, request.path, request.body))
        if request.path in self.cluster.answers:
            return self.cluster.answers[request.path]
        if request.path.endswith("/eviction"):
            name = request.path.split("/")[-2]
            self._warn(name)
            self.cluster.objects.pop((PODS, request.path.split("/")[4], name), None)
            return b"{}"
        return self._table(request)

    def _table(self, request: Request) -> bytes:
        for resource in ALL:
            for (kind, space, name), obj in list(self.cluster.objects.items()):
                if kind is resource and request.path == resource.path(space or None, name):
                    return msgspec.json.encode(_table([obj]))
            spaces = {space for kind, space, _ in self.cluster.objects if kind is resource} | {"default"}
            for space in (None, *spaces):
                if request.path == resource.path(space or None):
                    return msgspec.json.encode(_table(self.list(resource, space).items))
        raise errors.not_found(PODS, request.path.rsplit("/", 1)[-1])

    def create(
        self,
        resource: Resource,
        obj: Mapping[str, Any],
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        **options: Any,
    ) -> Object:
        self._check()
        made = copy.deepcopy(dict(obj))
        metadata = made.setdefault("metadata", {})
        self.cluster.requests.append(("CREATE" + (" (dry run)" if dry_run else ""), resource.plural, made))
        if not metadata.get("name"):
            metadata["name"] = f"{metadata.pop('generateName')}{self.cluster._count:05d}"
        self._warn(metadata["name"])
        if resource.namespaced:
            metadata.setdefault("namespace", namespace or "default")
        if (resource, metadata.get("namespace", ""), metadata["name"]) in self.cluster.objects:
            raise errors.already_exists(resource, metadata["name"])
        if dry_run:
            return made
        self.cluster.add(resource, made)
        for hook in self.cluster.on_create:
            hook(self.cluster, resource, made)
        return copy.deepcopy(made)

    def update(self, resource: Resource, obj: Mapping[str, Any], **options: Any) -> Object:
        self._check()
        self.cluster.requests.append(("UPDATE", resource.plural, dict(obj)))
        return copy.deepcopy(self.cluster.add(resource, dict(obj)))

    def patch(
        self, resource: Resource, name: str, patch: Any, namespace: str | None = None, **options: Any
    ) -> Object:
        self._check()
        self._warn(name)
        key = (resource, self._space(resource, namespace), name)
        if key not in self.cluster.objects:
            raise errors.not_found(resource, name)
        verb = "PATCH" + (" (dry run)" if options.get("dry_run") else "")
        self.cluster.requests.append((verb, f"{resource.plural}/{name}", patch))
        changed = _merge(copy.deepcopy(self.cluster.objects[key]), patch)
        if changed != self.cluster.objects[key] and not options.get("dry_run"):
            self.cluster.add(resource, changed)
        return copy.deepcopy(changed)

    def delete(self, resource: Resource, name: str, namespace: str | None = None, **options: Any) -> Object:
        self._check()
        key = (resource, self._space(resource, namespace), name)
        if key not in self.cluster.objects:
            raise errors.not_found(resource, name)
        self.cluster.requests.append(("DELETE", f"{resource.plural}/{name}", options))
        gone = self.cluster.objects.pop(key)
        return {"kind": "Status", "status": "Success", "details": {"uid": gone["metadata"]["uid"]}}


def _field(obj: Object, pair: str) -> bool:
    path, _, wanted = pair.partition("=")
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return str(value or "") == wanted.removeprefix("=")


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    target = target if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = _merge(target.get(key), value)
    return target


def _table(items: list[Object]) -> Object:
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [
            {"name": "Name", "type": "string"},
            {"name": "Phase", "type": "string"},
            {"name": "Node", "type": "string", "priority": 1},
        ],
        "rows": [
            {
                "cells": [
                    item["metadata"]["name"],
                    (item.get("status") or {}).get("phase", ""),
                    (item.get("spec") or {}).get("nodeName"),
                ],
                "object": {"metadata": item["metadata"]},
            }
            for item in items
        ],
    }


# Objects as they look in a running control plane.


def node(name: str, gpus: int = 4, cpu: str = "16", memory: str = "64Gi", **labels: str) -> Object:
    capacity = {"cpu": cpu, "memory": memory, "pods": "250"}
    if gpus:
        capacity["nvidia.com/gpu"] = str(gpus)
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def queue(name: str, state: str = "Open", **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": {"weight": 1, **spec}, "status": {"state": state}}


def box(gpus: int = 4) -> FakeCluster:
    """One node and the queues that exist from the start."""
    cluster = FakeCluster()
    cluster.add(QUEUES, queue("root"))
    cluster.add(QUEUES, queue("default"))
    cluster.add(NODES, node("box", gpus))
    return cluster
