"""Reconciler of workflows: its caches, the logs and objects that it reads, and its locks."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.resources import (
    CLUSTER_WORKFLOW_TEMPLATES,
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    WORKFLOW_TEMPLATES,
    Resource,
    by_kind,
)
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.apply_effects import Failure
from windlass.controllers.custom_kinds import FollowedKinds, kinds_of
from windlass.controllers.effects import NOTHING, Create, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.controllers.workflow import capture, labels
from windlass.controllers.workflow.observe import WorkflowPod, decode_workflow_pod
from windlass.controllers.workflow.reconcile import (
    ARTIFACT_CLAIM,
    CapturedOutputs,
    WorkflowSnapshot,
    reconcile_workflow,
)
from windlass.controllers.workflow.storage import read_nodes
from windlass.kits.clock import Clock
from windlass.kits.timestamps import parse_rfc3339
from windlass.workflow.locks import LockTable, locks_of
from windlass.workflow.node import NodeStatus
from windlass.workflow.run import CacheEntry, Surroundings
from windlass.workflow.specification import template_scope
from windlass.workflow.templates import holder_scopes

Json = dict[str, Any]
READERS = 8
"""Maximum number of logs and objects that are read concurrently."""
_LINES_PER_OUTPUT = 5000
"""Lines of a log that an output of the largest size takes."""


class WorkflowController:
    """Workflows of one kind. Keys are ``namespace/name``."""

    pause_seconds = 0.0

    def __init__(
        self,
        kind: Resource,
        client: Client,
        informers: Informers,
        clock: Clock,
        locks: LockTable,
        *,
        templates: bool = True,
    ) -> None:
        """``templates``: the server has WorkflowTemplates."""
        self.name = kind.kind.lower()
        self._kind, self._client, self._clock, self._locks = kind, client, clock, locks
        self._workflows: Informer[StoredObject] = informers.informer(kind, decode=decode_stored_object)
        self._templates: list[Informer[StoredObject]] = [
            informers.informer(found, decode=decode_stored_object)
            for found in ((WORKFLOW_TEMPLATES, CLUSTER_WORKFLOW_TEMPLATES) if templates else ())
        ]
        self._pods: Informer[WorkflowPod] = informers.informer(PODS, decode=decode_workflow_pod)
        self._pods_of = RecordIndex(self._pods, lambda pod: (pod.owner[2],), lambda pod: pod.key)
        self._kinds = FollowedKinds(informers)
        self._refused: dict[str, dict[str, str]] = {}
        self._read = asyncio.Semaphore(READERS)
        self._knows_locks = False

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._workflows, lambda found: [found.key]),
            WatchedCollection(self._pods, self._key_of_pod),
            *(WatchedCollection(informer, lambda _: ()) for informer in self._templates),
            WatchedCollection(self._kinds.informer, lambda _: ()),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    def note_failures(self, key: str, failures: Sequence[Failure]) -> None:
        """Note which pods and objects the server refuses: their nodes become errors."""
        for failure in failures:
            if (
                failure.refused
                and isinstance(failure.action, Create)
                and "exceeded quota" not in failure.message
            ):
                metadata = failure.action.object["metadata"]
                node = (metadata.get("annotations") or {}).get(labels.NODE_ID)
                if node:
                    self._refused.setdefault(key, {})[node] = failure.message
        if not failures:
            self._refused.pop(key, None)

    async def reconcile(self, key: str) -> Effects:
        stored = self._workflows.items.get(key)
        if stored is None:
            self._refused.pop(key, None)
            self._locks.forget(key)
            return NOTHING
        self._learn_locks()
        workflow = stored.object
        workflow.setdefault("apiVersion", self._kind.api_version)
        workflow.setdefault("kind", self._kind.kind)
        snapshot = await self._observe(key, stored, workflow)
        return reconcile_workflow(self._kind, workflow, snapshot)

    async def _observe(self, key: str, stored: StoredObject, workflow: Json) -> WorkflowSnapshot:
        namespace = key.partition("/")[0]
        status: Json = workflow.get("status") or {}
        chunks = await self._chunks(namespace, workflow["metadata"]["name"], status)
        nodes = read_nodes(status, [data for _, data in chunks])
        pods = {
            pod.node_id: pod
            for pod in self._pods_of.get(stored.uid).values()
            if not (pod.deleted and pod.ended)  # the pod of an earlier run of the node
        }
        templates = self._referred(namespace, workflow.get("spec") or {})
        snapshot = WorkflowSnapshot(
            nodes=nodes,
            pods=pods,
            now=self._clock.now(),
            templates=templates,
            lookup=self._lookup,
            refused=self._refused.get(key, {}),
            chunks=tuple(name for name, _ in chunks),
        )
        if status.get("finishedAt") and labels.COMMAND not in (workflow["metadata"].get("annotations") or {}):
            return snapshot
        specs = [
            workflow.get("spec") or {},
            status.get("storedWorkflowTemplateSpec") or {},
            *templates.values(),
        ]
        config_maps = await self._config_maps(namespace, specs)
        self._set_limits(namespace, specs, config_maps)
        return replace(
            snapshot,
            captured=await self._capture(namespace, nodes, pods),
            objects=await self._objects(nodes),
            surroundings=_surroundings(config_maps, self._locks),
            config_maps=frozenset(name for name, found in config_maps.items() if found is not None),
            claims=await self._claims(namespace, specs),
        )

    # Templates, kinds and locks.

    def _referred(self, namespace: str, spec: Json) -> dict[str, Json]:
        """Return the WorkflowTemplates that a spec refers to, and those that they refer to."""
        found: dict[str, Json] = {}
        wanted = holder_scopes(spec) | ({template_scope(spec)} - {""})
        while wanted:
            scope = wanted.pop()
            kind, _, name = scope.partition("/")
            key = name if kind == "cluster" else f"{namespace}/{name}"
            stored: StoredObject | None = None
            for informer in self._templates:
                stored = stored or informer.items.get(key)
            if stored is not None and scope not in found:
                found[scope] = stored.object.get("spec") or {}
                wanted |= holder_scopes(found[scope]) - found.keys()
        return found

    def _lookup(self, api_version: str, kind: str) -> Resource | None:
        known = by_kind(api_version, kind)
        if known is not None:
            return known
        served = (one for crd in self._kinds.informer.items.values() for one in kinds_of(crd))
        return next((one for one in served if (one.api_version, one.kind) == (api_version, kind)), None)

    def _learn_locks(self) -> None:
        """Take over the locks that the statuses of workflows tell of, once after the start."""
        if self._knows_locks:
            return
        self._knows_locks = True
        for stored in self._workflows.items.values():
            if b'"synchronization"' not in stored.raw:
                continue
            for entry in ((stored.object.get("status") or {}).get("synchronization") or {}).get(
                "holding"
            ) or ():
                self._locks.holders.setdefault(entry["lock"], set()).add(entry["holder"])

    def _set_limits(self, namespace: str, specs: list[Json], config_maps: Mapping[str, Json | None]) -> None:
        for synchronization in _found(specs, "synchronization"):
            for lock in locks_of(synchronization, namespace):
                _, kind, name, *key = lock.split("/")
                if kind == "Mutex":
                    self._locks.limits[lock] = 1
                else:
                    data = (config_maps.get(name) or {}).get("data") or {}
                    text = str(data.get("/".join(key), "0"))
                    self._locks.limits[lock] = int(text) if text.isdigit() else 0

    # Reads.

    async def _config_maps(self, namespace: str, specs: list[Json]) -> dict[str, Json | None]:
        names = {str(ref.get("name")) for ref in _found(specs, "configMapKeyRef")}
        names |= {
            str(((memo.get("cache") or {}).get("configMap") or {}).get("name"))
            for memo in _found(specs, "memoize")
        }
        wanted = sorted(name for name in names if name and "{{" not in name)
        found = await asyncio.gather(*(self._find(CONFIG_MAPS, name, namespace) for name in wanted))
        return dict(zip(wanted, found, strict=True))

    async def _find(self, kind: Resource, name: str, namespace: str | None) -> Json | None:
        async with self._read:
            return await self._client.find(kind, name, namespace)

    async def _chunks(self, namespace: str, name: str, status: Json) -> list[tuple[str, bytes]]:
        """Return the ConfigMaps with nodes that do not fit into the status."""
        version = status.get("offloadNodeStatusVersion")
        found: list[tuple[str, bytes]] = []
        while version:
            part = f"{name}-nodes-{version}-{len(found)}"
            config_map = await self._find(CONFIG_MAPS, part, namespace)
            if config_map is None:
                break
            found.append((part, base64.b64decode(config_map["binaryData"]["nodes"])))
        return found

    async def _claims(self, namespace: str, specs: list[Json]) -> frozenset[str]:
        if not any(_found(specs, "artifacts")):
            return frozenset()
        found = await self._find(PERSISTENT_VOLUME_CLAIMS, ARTIFACT_CLAIM, namespace)
        return frozenset({ARTIFACT_CLAIM} if found is not None else ())

    async def _capture(
        self, namespace: str, nodes: Mapping[str, NodeStatus], pods: Mapping[str, WorkflowPod]
    ) -> dict[str, CapturedOutputs]:
        """Read the outputs of pods that have ended from their logs."""
        wanted = [
            pod
            for id_, pod in pods.items()
            if pod.ended and pod.outputs and id_ in nodes and not nodes[id_].fulfilled
        ]
        found = await asyncio.gather(*(self._outputs(namespace, pod) for pod in wanted))
        return {pod.node_id: outputs for pod, outputs in zip(wanted, found, strict=True)}

    async def _outputs(self, namespace: str, pod: WorkflowPod) -> CapturedOutputs:
        declared = json.loads(pod.outputs)
        count = 1 + len(declared.get("parameters") or ()) + len(declared.get("artifacts") or ())
        name = pod.key.partition("/")[2]
        try:
            async with self._read:
                stream = await self._client.logs(
                    namespace, name, container=labels.MAIN, tail_lines=count * _LINES_PER_OUTPUT
                )
                text = b"".join([part async for part in stream])
        except StatusError as problem:
            return CapturedOutputs({}, f"the outputs cannot be read from the log: {problem.message}")
        log = capture.parse_log(text.decode(errors="replace"))
        strict = pod.status.phase == "Succeeded"
        return CapturedOutputs(*capture.outputs_of({"outputs": declared}, log, strict=strict))

    async def _objects(self, nodes: Mapping[str, NodeStatus]) -> dict[str, Json | None]:
        waiting = [node for node in nodes.values() if node.managed_object and not node.fulfilled]
        found = await asyncio.gather(*(self._object(node.managed_object or {}) for node in waiting))
        return {node.id: one for node, one in zip(waiting, found, strict=True)}

    async def _object(self, wanted: Json) -> Json | None:
        kind = self._lookup(wanted["apiVersion"], wanted["kind"])
        return None if kind is None else await self._find(kind, wanted["name"], wanted.get("namespace"))

    def _key_of_pod(self, pod: WorkflowPod) -> Iterable[str]:
        kind, name, _ = pod.owner
        return (f"{pod.key.partition('/')[0]}/{name}",) if kind == self._kind.kind else ()


def _passes(failure: Failure) -> bool:
    """Return whether a refusal may end by itself: a quota, or the pod of a deleted workflow of the same name."""
    assert isinstance(failure.action, Create)
    taken = failure.action.resource is PODS and "already exists" in failure.message
    return taken or "exceeded quota" in failure.message


def _found(values: Any, field: str) -> Iterable[Any]:
    """Yield the values of a field, at any depth."""
    if isinstance(values, dict):
        for name, value in values.items():
            if name == field and isinstance(value, dict | list):
                yield value
            yield from _found(value, field)
    elif isinstance(values, list):
        for value in values:
            yield from _found(value, field)


def _surroundings(config_maps: Mapping[str, Json | None], locks: LockTable) -> Surroundings:
    def config(name: str, key: str) -> str | None:
        return ((config_maps.get(name) or {}).get("data") or {}).get(key)

    def cache(name: str, key: str) -> CacheEntry | None:
        text = config(name, key)
        if text is None:
            return None
        try:
            entry = json.loads(text)
            created = parse_rfc3339(entry["creationTimestamp"])
        except (ValueError, KeyError, TypeError):
            return None
        return CacheEntry(entry.get("outputs") or {}, created)

    return Surroundings(config=config, cache=cache, locks=locks)
