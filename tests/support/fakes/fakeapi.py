"""A Kubernetes API in a dictionary, with the parts of ``client.Client`` that reconcilers use.

Enough of the semantics for unit tests: resourceVersions and conflicts, uids and preconditions, merge
patches, the status subresource, graceful deletion of bound pods, finalizers. Informers are fed at once,
or when the test says so (``lagging``). End-to-end tests use the real servers instead.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from windlass.api import errors
from windlass.api.resources import ALIASES, PODS, Resource
from windlass.client import responses
from windlass.client.informers import Informer, key_of
from windlass.client.outages import Outages
from windlass.client.responses import ListResult
from windlass.controllers.effects import EmitEvent
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]


class Crash(BaseException):
    """The process that writes is gone."""


class FakeApi:
    def __init__(self, clock: FakeClock | None = None) -> None:
        self.clock = clock or FakeClock()
        self.outages = Outages(self.clock)
        self.stored: dict[Resource, dict[str, Json]] = {}
        self.log: list[tuple[str, str, str]] = []
        """Every successful write: (verb, plural, key)."""
        self.reads: list[Resource] = []
        """Kind of each :meth:`find`."""
        self.reject: Callable[[str, Resource, Json], errors.StatusError | None] = lambda *_: None
        self.crash_after: int | None = None
        """Writes that still succeed before :class:`Crash`."""
        self.status_in_object: set[Resource] = set()
        """Kinds without a subresource ``status``."""
        self.lagging = False
        self._late: list[tuple[Resource, str, Json | None, Json | None]] = []
        self._versions = itertools.count(1)
        self._uids = itertools.count(1)
        self._informers: dict[Resource, list[Informer[Any]]] = {}

    # What tests look at.

    def objects(self, resource: Resource, namespace: str | None = None) -> list[Json]:
        found = self.stored.get(resource, {}).values()
        return [o for o in found if namespace is None or o["metadata"].get("namespace") == namespace]

    def object(self, resource: Resource, key: str) -> Json | None:
        return self.stored.get(resource, {}).get(key)

    def put(self, resource: Resource, obj: Json) -> Json:
        """Create without counting as a write of the code under test."""
        metadata = obj.setdefault("metadata", {})
        if resource.namespaced:
            metadata.setdefault("namespace", "default")
        obj.setdefault("apiVersion", resource.api_version)
        obj.setdefault("kind", resource.kind)
        metadata.setdefault("uid", f"uid-{next(self._uids)}")
        metadata.setdefault("creationTimestamp", rfc3339(self.clock.now()))
        metadata.setdefault("generation", 1)
        self._store(resource, obj)
        return copy.deepcopy(obj)

    def change(self, resource: Resource, key: str, **parts: Any) -> Json:
        """Merge-patch as somebody else would (``status={…}``, ``metadata={…}``)."""
        obj = copy.deepcopy(self.stored[resource][key])
        merge(obj, parts)
        self._store(resource, obj)
        return obj

    def remove(self, resource: Resource, key: str) -> None:
        """Take an object away at once, as somebody else would."""
        self._drop(resource, key)

    def finish_deletions(self) -> None:
        """The node agent has stopped every pod that was being deleted."""
        for key, pod in list(self.stored.get(PODS, {}).items()):
            if pod["metadata"].get("deletionTimestamp"):
                self._drop(PODS, key)

    # Informers.

    def informer(self, resource: Resource, *, decode: Any = dict, **_: Any) -> Informer[Any]:
        """Same signature as ``SharedInformers.informer``; synced from the start."""
        decoder = responses.decoder(decode) if isinstance(decode, type) else decode
        for known in self._informers.get(resource, []):
            if known.decode == decoder:
                return known
        informer: Informer[Any] = Informer(resource, decoder)
        for key, obj in self.stored.get(resource, {}).items():
            informer.put(key, _decoded(informer, obj))
        informer.now_synced()
        self._informers.setdefault(resource, []).append(informer)
        return informer

    def drop(self, informer: Informer[Any]) -> None:
        """Stop delivering changes to an informer."""
        for known in self._informers.values():
            if informer in known:
                known.remove(informer)

    def catch_up(self) -> None:
        """Deliver what the caches have missed while ``lagging``."""
        late, self._late = self._late, []
        for resource, key, old, new in late:
            self._deliver(resource, key, old, new)

    def _changed(self, resource: Resource, key: str, old: Json | None, new: Json | None) -> None:
        if self.lagging:
            self._late.append((resource, key, old, new))
        else:
            self._deliver(resource, key, old, new)

    def _deliver(self, resource: Resource, key: str, old: Json | None, new: Json | None) -> None:
        for informer in self._informers.get(resource, []):
            if old and new and old["metadata"]["uid"] != new["metadata"]["uid"]:
                informer.tell(informer.put(key, None), None)
            record = _decoded(informer, new) if new is not None else None
            informer.tell(informer.put(key, record), record)

    # The store.

    def _store(self, resource: Resource, obj: Json) -> None:
        key = _key(obj)
        old = self.stored.setdefault(resource, {}).get(key)
        obj["metadata"]["resourceVersion"] = str(next(self._versions))
        kept = copy.deepcopy(obj)
        self.stored[resource][key] = kept
        self._changed(resource, key, old, kept)

    def _drop(self, resource: Resource, key: str) -> None:
        old = self.stored.get(resource, {}).pop(key, None)
        if old is not None:
            self._changed(resource, key, old, None)

    def _wrote(self, verb: str, resource: Resource, key: str) -> None:
        self.log.append((verb, resource.plural, key))

    def _may_write(self, verb: str, resource: Resource, obj: Json) -> None:
        if self.crash_after is not None:
            if self.crash_after <= 0:
                raise Crash
            self.crash_after -= 1
        problem = self.reject(verb, resource, obj)
        if problem is not None:
            raise problem

    # The client.

    async def get(self, resource: Resource, name: str, namespace: str | None = None, **_: Any) -> Json:
        obj = self.stored.get(ALIASES.get(resource, resource), {}).get(key_of(namespace or "", name))
        if obj is None:
            raise errors.not_found(resource, name)
        return copy.deepcopy(obj)

    async def find(self, resource: Resource, name: str, namespace: str | None = None) -> Json | None:
        self.reads.append(resource)
        obj = self.stored.get(resource, {}).get(key_of(namespace or "", name))
        return copy.deepcopy(obj) if obj is not None else None

    async def list(
        self, resource: Resource, namespace: str | None = None, *, labels: str = "", limit: int = 0, **kw: Any
    ) -> ListResult[Any]:
        from windlass.api.selectors import parse_labels

        wanted = parse_labels(labels)
        found = [o for o in self.objects(resource, namespace) if wanted.matches(o["metadata"].get("labels"))]
        where = str(kw.get("fields", "")).partition("spec.nodeName=")[2]
        if where:
            found = [o for o in found if o["spec"].get("nodeName") == where]
        kind = kw.get("type", dict)
        items = [copy.deepcopy(obj) for obj in found[: limit or None]]
        if kind is not dict:
            items = [responses.decoder(kind)(msgspec.json.encode(item)) for item in items]
        return ListResult(items, "0")

    async def list_page(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        limit: int = 0,
        continue_token: str = "",
        **kw: Any,
    ) -> ListResult[Any]:
        whole = await self.list(resource, namespace, **kw)
        start = int(continue_token or 0)
        end = start + limit if limit else len(whole.items)
        token = str(end) if end < len(whole.items) else ""
        return ListResult(whole.items[start:end], "0", token)

    async def create(self, resource: Resource, obj: Json, namespace: str | None = None, **_: Any) -> Json:
        obj = copy.deepcopy(dict(obj))
        if resource.namespaced:
            obj["metadata"].setdefault("namespace", namespace or "default")
        self._may_write("create", resource, obj)
        if _key(obj) in self.stored.get(resource, {}):
            raise errors.already_exists(resource, obj["metadata"]["name"])
        if resource == PODS:
            obj.setdefault("status", {"phase": "Pending"})
        created = self.put(resource, obj)
        self._wrote("create", resource, _key(obj))
        return created

    async def update(
        self, resource: Resource, obj: Json, *, subresource: str | None = None, **_: Any
    ) -> Json:
        self._may_write("update", resource, obj)
        key = _key(obj)
        present = self.stored.get(resource, {}).get(key)
        if present is None:
            raise errors.not_found(resource, obj["metadata"]["name"])
        wanted = obj["metadata"].get("resourceVersion")
        if wanted and wanted != present["metadata"]["resourceVersion"]:
            raise errors.conflict(resource, obj["metadata"]["name"])
        updated = copy.deepcopy(dict(obj))
        if subresource == "status":
            metadata = present["metadata"] if resource.custom else {**present["metadata"], **obj["metadata"]}
            updated = {
                **copy.deepcopy(present),
                "metadata": copy.deepcopy(metadata),
                "status": updated.get("status", {}),
            }
        elif "status" in present and "status" in resource.subresources:
            updated["status"] = copy.deepcopy(present["status"])
        return self._replace("update", resource, key, present, updated)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: Json,
        namespace: str | None = None,
        *,
        subresource: str | None = None,
        **_: Any,
    ) -> Json:
        self._may_write("patch", resource, patch)
        key = key_of(namespace or "", name)
        present = self.stored.get(resource, {}).get(key)
        together = resource in self.status_in_object
        if present is None or (together and subresource == "status"):
            raise errors.not_found(resource, name)
        metadata = patch.get("metadata") or {}
        for field in ("uid", "resourceVersion"):
            if metadata.get(field) and metadata[field] != present["metadata"][field]:
                why = (
                    f"Precondition failed: UID in precondition: {metadata[field]}" if field == "uid" else None
                )
                raise errors.conflict(resource, name, why)
        updated = copy.deepcopy(present)
        merge(updated, patch)
        if subresource == "status":
            updated = {**copy.deepcopy(present), "status": updated.get("status", {})}
        elif "status" in resource.subresources and resource.custom and not together:
            updated["status"] = copy.deepcopy(present.get("status", {}))
        return self._replace("patch", resource, key, present, updated)

    def _replace(self, verb: str, resource: Resource, key: str, present: Json, updated: Json) -> Json:
        self._wrote(verb, resource, key)
        if updated == present:
            return copy.deepcopy(present)
        metadata = updated["metadata"]
        held = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp") and not held:
            self._drop(resource, key)
            return updated
        self._store(resource, updated)
        return copy.deepcopy(updated)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        propagation: str | None = None,
        grace_seconds: int | None = None,
        resource_version: str | None = None,
        **_: Any,
    ) -> Json:
        self._may_write("delete", resource, {"metadata": {"name": name, "namespace": namespace}})
        key = key_of(namespace or "", name)
        present = self.stored.get(resource, {}).get(key)
        if present is None:
            raise errors.not_found(resource, name)
        if uid and uid != present["metadata"]["uid"]:
            raise errors.conflict(resource, name, "the UID in the precondition does not match")
        if resource_version and resource_version != present["metadata"]["resourceVersion"]:
            raise errors.conflict(resource, name, "the ResourceVersion in the precondition does not match")
        self._wrote("delete", resource, key)
        metadata = present["metadata"]
        finalizers = list(metadata.get("finalizers") or ())
        if propagation in ("Foreground", "Orphan"):
            finalizers.append({"Foreground": "foregroundDeletion", "Orphan": "orphan"}[propagation])
        finished = (present.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        bound = resource == PODS and (present.get("spec") or {}).get("nodeName")
        graceful = bound and not finished and grace_seconds != 0
        if graceful or finalizers:
            if not metadata.get("deletionTimestamp"):
                change: Json = {"metadata": {"deletionTimestamp": rfc3339(self.clock.now())}}
                if graceful:
                    change["metadata"]["deletionGracePeriodSeconds"] = 30
                if finalizers:
                    change["metadata"]["finalizers"] = finalizers
                self.change(resource, key, **change)
            return {}
        self._drop(resource, key)
        return {}


class Words:
    """A recorder that keeps what was said."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, str, str]] = []

    def event(self, ref: Any, type: str, reason: str, message: str) -> None:
        self.said.append((ref.name, type, reason, message))

    def reasons(self) -> list[str]:
        return [reason for _, _, reason, _ in self.said]


def reasons(events: Iterable[EmitEvent]) -> list[str]:
    return [event.reason for event in events]


def merge(target: Json, patch: Json) -> None:
    """RFC 7386."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            part = target.get(name)
            if not isinstance(part, dict):
                part = target[name] = {}
            merge(part, value)
        else:
            target[name] = copy.deepcopy(value)


def _key(obj: Json) -> str:
    return key_of(obj["metadata"].get("namespace") or "", obj["metadata"]["name"])


def _decoded(informer: Informer[Any], obj: Json) -> Any:
    return informer.decode(msgspec.Raw(msgspec.json.encode(obj)))
