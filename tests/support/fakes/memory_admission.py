"""Admission without a store: objects in a dict, and a server that takes bodies as they come."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from windlass.api import resources
from windlass.api.errors import StatusError
from windlass.api.resources import Resource
from windlass.api.wire import decode, field_review
from windlass.kits.clock import FakeClock
from windlass.server.admission import Admission, AdmissionOptions, Reviewed

Obj = dict[str, Any]


@dataclass(frozen=True)
class Caller:
    namespace: str = "default"
    name: str = ""
    subresource: str = ""
    dry_run: bool = False


class MemoryObjects:
    """:class:`windlass.server.admission.Objects` in a dict."""

    def __init__(self) -> None:
        self._found: dict[tuple[Resource, str, str], tuple[int, Obj]] = {}
        self._version = 0
        self._log: list[tuple[Resource, str]] = []

    def put(self, resource: Resource, obj: Obj) -> Obj:
        self._version += 1
        self._found[self._key(resource, obj)] = (self._version, obj)
        self._log.append((resource, self._text(resource, obj)))
        return obj

    def drop(self, resource: Resource, obj: Obj) -> None:
        del self._found[self._key(resource, obj)]
        self._log.append((resource, self._text(resource, obj)))

    @staticmethod
    def _key(resource: Resource, obj: Obj) -> tuple[Resource, str, str]:
        metadata = obj["metadata"]
        return resource, metadata.get("namespace", "") if resource.namespaced else "", metadata["name"]

    def get(self, resource: Resource, namespace: str, name: str) -> Obj | None:
        found = self._found.get((resource, namespace if resource.namespaced else "", name))
        return found[1] if found else None

    def list(self, resource: Resource, namespace: str | None = None) -> list[Obj]:
        return [
            obj
            for (kind, where, _), (_, obj) in self._found.items()
            if kind is resource and namespace in (None, where)
        ]

    def _text(self, resource: Resource, obj: Obj) -> str:
        _, namespace, name = self._key(resource, obj)
        return f"{namespace}/{name}" if namespace else name

    def keys(self, resource: Resource, namespace: str) -> Iterable[str]:
        return [self._text(resource, obj) for obj in self.list(resource, namespace)]

    def changed(self, resource: Resource, since: int | None) -> tuple[int, list[str] | None]:
        end = len(self._log)
        if since is None:
            return end, None
        return end, [key for kind, key in self._log[since:] if kind is resource]

    def version(self, resource: Resource, key: str) -> int | None:
        namespace, _, name = key.rpartition("/")
        found = self._found.get((resource, namespace, name))
        return found[0] if found else None

    def by_key(self, resource: Resource, key: str) -> Obj | None:
        namespace, _, name = key.rpartition("/")
        return self.get(resource, namespace, name)


class World:
    """A namespace ``default``, queues ``root`` and ``default``, and admission in front of them."""

    def __init__(self, options: AdmissionOptions | None = None) -> None:
        self.objects = MemoryObjects()
        self.admission = Admission(
            self.objects, clock=FakeClock(), rng=random.Random(1), options=options or AdmissionOptions()
        )
        self.objects.put(resources.NAMESPACES, {"metadata": {"name": "default"}})
        for name in ("root", "default"):
            queue = {"metadata": {"name": name}, "spec": {}, "status": {"state": "Open"}}
            self.objects.put(resources.QUEUES, queue)

    def body(self, doc: Obj) -> tuple[Resource, Obj, str]:
        """A document as it is after decoding and a strict field review, with its namespace."""
        doc = copy.deepcopy(doc)
        resource = resources.by_kind(doc["apiVersion"], doc["kind"])
        assert resource is not None, doc
        stored = resources.ALIASES.get(resource, resource)
        doc["apiVersion"] = stored.api_version
        obj = decode.decode_body(stored, "application/json", json.dumps(doc).encode())
        report = field_review.review(stored, obj)
        field_review.enforce(stored, report, "Strict")
        namespace = ""
        if stored.namespaced:
            namespace = obj["metadata"].setdefault("namespace", "default")
        if stored is resources.PODS:
            obj["status"] = {"phase": "Pending"}
        return stored, obj, namespace

    def create(self, doc: Obj) -> Reviewed:
        """Raises StatusError; what is let in is stored."""
        resource, obj, namespace = self.body(doc)
        caller = Caller(namespace, obj["metadata"].get("name", ""))
        reviewed = self.admission.review("CREATE", resource, obj, None, caller)
        self.objects.put(resource, reviewed.object)
        return reviewed

    def update(self, doc: Obj) -> Reviewed:
        resource, obj, namespace = self.body(doc)
        old = self.objects.get(resource, namespace, obj["metadata"]["name"])
        assert old is not None
        caller = Caller(namespace, obj["metadata"]["name"])
        reviewed = self.admission.review("UPDATE", resource, obj, copy.deepcopy(old), caller)
        self.objects.put(resource, reviewed.object)
        return reviewed

    def delete(self, resource: Resource, name: str, namespace: str = "") -> None:
        old = self.objects.get(resource, namespace, name)
        assert old is not None
        self.admission.review("DELETE", resource, None, old, Caller(namespace, name))
        self.objects.drop(resource, old)


def pod(name: str = "p", limits: Obj | None = None, **spec: Any) -> Obj:
    container: Obj = {"name": "c", "image": "i"}
    if limits:
        container["resources"] = {"limits": limits}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **spec},
    }


def queue(name: str, **spec: Any) -> Obj:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def job(name: str = "j", **spec: Any) -> Obj:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    tasks = [{"name": "w", "replicas": 2, "template": template}]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"tasks": tasks, **spec},
    }


def refused(act: Any, *arguments: Any) -> StatusError:
    """What the act is refused with."""
    with pytest.raises(StatusError) as caught:
        act(*arguments)
    return caught.value
