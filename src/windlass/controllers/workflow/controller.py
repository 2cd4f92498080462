"""Reconciler of workflows: its caches, the logs and objects that it reads, and its locks."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

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
from windlass.client.informers import Informer, key_of
from windlass.controllers.apply_effects import QUOTA, Failure
from windlass.controllers.custom_kinds import FollowedKinds, kinds_of
from windlass.controllers.effects import NOTHING, Create, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.controllers.workflow import capture, checkpoints, first_wave, labels
from windlass.controllers.workflow.decoded import DecodedNodes
from windlass.controllers.workflow.kinds import artifacts, http
from windlass.controllers.workflow.kinds.plugin import SUFFIX
from windlass.controllers.workflow.observe import WorkflowPod, decode_workflow_pod, differs, needs_pod
from windlass.controllers.workflow.pods import ARTIFACT_CLAIM
from windlass.controllers.workflow.reconcile import QUOTA_SECONDS, reconcile_workflow
from windlass.controllers.workflow.snapshot import CapturedOutputs, WorkflowSnapshot
from windlass.controllers.workflow.storage import read_nodes
from windlass.kits.clock import Clock
from windlass.kits.timestamps import parse_rfc3339
from windlass.workflow import artifact_gc
from windlass.workflow.locks import LockTable, locks_of
from windlass.workflow.node import NodeStatus, pod_name
from windlass.workflow.run import CacheEntry, Surroundings
from windlass.workflow.specification import template_scope
from windlass.workflow.templates import holder_scopes

Json = dict[str, Any]
READERS = 8
"""Maximum number of logs and objects that are read concurrently."""
LARGE_BYTES = 96 * 1024
"""Size (bytes) from which on a workflow is reconciled less often."""
BYTES_PER_SECOND, MAX_REST_SECONDS = 256 * 1024, 2.0
"""Rate at which a large workflow is written, and the maximum of the interval between two reconciliations of it."""
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
        scheduler: str = "",
    ) -> None:
        """``templates``: the server has WorkflowTemplates. ``scheduler``: of pods that name none."""
        self.name = kind.kind.lower()
        self._kind, self._client, self._clock, self._locks = kind, client, clock, locks
        self._scheduler = scheduler
        self._workflows: Informer[StoredObject] = informers.informer(kind, decode=decode_stored_object)
        self._templates: list[Informer[StoredObject]] = [
            informers.informer(found, decode=decode_stored_object)
            for found in ((WORKFLOW_TEMPLATES, CLUSTER_WORKFLOW_TEMPLATES) if templates else ())
        ]
        self._pods: Informer[WorkflowPod] = informers.informer(PODS, decode=decode_workflow_pod)
        self._pods_of = RecordIndex(self._pods, lambda pod: (pod.owner[2],), lambda pod: pod.key)
        self._kinds = FollowedKinds(informers)
        self._refused: dict[str, dict[str, str]] = {}
        self._over_quota: dict[str, tuple[float, dict[str, str]]] = {}
        self._decoded = DecodedNodes()
        self._looked: dict[str, float] = {}
        self._read = asyncio.Semaphore(READERS)
        self._knows_locks = False

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._workflows, lambda found: [found.key]),
            WatchedCollection(self._pods, self._key_of_pod, differs),
            *(WatchedCollection(informer, lambda _: ()) for informer in self._templates),
            WatchedCollection(self._kinds.informer, lambda _: ()),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    def note_failures(self, key: str, failures: Sequence[Failure]) -> None:
        """Note which pods and objects the server refuses: their nodes become errors, or wait for a quota."""
        for failure in failures:
            if not failure.refused or not isinstance(failure.action, Create):
                continue
            metadata = failure.action.object["metadata"]
            node = (metadata.get("annotations") or {}).get(labels.NODE_ID)
            if node and QUOTA in failure.message:
                _, others = self._over_quota.get(key, (0.0, {}))
                end = self._clock.monotonic() + QUOTA_SECONDS
                self._over_quota[key] = (end, {**others, node: failure.message})
            elif node and not self._passes(failure):
                self._refused.setdefault(key, {})[node] = failure.message
        if not failures:
            self._refused.pop(key, None)

    def _rest(self, key: str, stored: StoredObject) -> float:
        """Return the seconds for which a large workflow is left alone: each look at it writes all of it."""
        size = len(stored.raw)
        if size < LARGE_BYTES or labels.COMMAND.encode() in stored.raw:
            self._looked.pop(key, None)
            return 0.0
        now = self._clock.monotonic()
        rest = self._looked.get(key, 0.0) + min(MAX_REST_SECONDS, size / BYTES_PER_SECOND) - now
        if rest <= 0 or key not in self._looked:
            self._looked[key] = now
            return 0.0
        return rest

    def _passes(self, failure: Failure) -> bool:
        """Return whether a refusal may end by itself: by the pod of a deleted workflow of the same name and kind."""
        assert isinstance(failure.action, Create)
        metadata = failure.action.object["metadata"]
        present = self._pods.items.get(key_of(metadata.get("namespace") or "", metadata["name"]))
        return (
            failure.action.resource is PODS
            and "already exists" in failure.message
            and present is not None
            and present.owner[0] == self._kind.kind
        )

    async def reconcile(self, key: str) -> Effects:
        stored = self._workflows.items.get(key)
        if stored is None:
            self._refused.pop(key, None)
            self._over_quota.pop(key, None)
            self._decoded.forget(key)
            self._looked.pop(key, None)
            self._locks.forget(key)
            return NOTHING
        rest = self._rest(key, stored)
        if rest > 0:
            return Effects((), (), rest, None)
        self._learn_locks()
        workflow = stored.object
        workflow.setdefault("apiVersion", self._kind.api_version)
        workflow.setdefault("kind", self._kind.kind)
        snapshot = await self._observe(key, stored, workflow)
        effects = reconcile_workflow(self._kind, workflow, snapshot)
        self._decoded.note(key, workflow, effects, snapshot.nodes)
        return effects

    async def _observe(self, key: str, stored: StoredObject, workflow: Json) -> WorkflowSnapshot:
        namespace = key.partition("/")[0]
        status: Json = workflow.get("status") or {}
        commanded = labels.COMMAND in (workflow["metadata"].get("annotations") or {})
        ended = bool(status.get("finishedAt")) and not commanded
        chunks: list[tuple[str, bytes]] = []
        nodes: dict[str, NodeStatus] = {}
        spec = workflow.get("spec") or {}
        held = labels.ARTIFACT_GC in (workflow["metadata"].get("finalizers") or ())
        if not ended or held or spec.get("podGC") or artifact_gc.wanted(spec):
            chunks = await self._chunks(namespace, workflow["metadata"]["name"], status)
            nodes = self._decoded.take(key, workflow) or read_nodes(status, [data for _, data in chunks])
        pods = {
            pod.node_id: pod
            for pod in self._pods_of.get(stored.uid).values()
            if not (pod.deleted and pod.ended)  # the pod of an earlier run of the node
        }
        templates = self._referred(namespace, workflow.get("spec") or {})
        snapshot = WorkflowSnapshot(
            nodes=nodes,
            pods=pods if ended else pods | await self._late_pods(stored, nodes, pods),
            now=self._clock.now(),
            templates=templates,
            lookup=self._lookup,
            refused=self._refused.get(key, {}),
            chunks=tuple(name for name, _ in chunks),
            scheduler=self._scheduler,
            reused=await self._reused(namespace, workflow) if commanded else {},
        )
        if ended:
            return snapshot
        specs = [
            workflow.get("spec") or {},
            status.get("storedWorkflowTemplateSpec") or {},
            *templates.values(),
        ]
        config_maps = await self._config_maps(namespace, specs)
        self._set_limits(namespace, specs, config_maps)
        together = first_wave.begins(workflow, templates)  # its pods begin at one look, over the quota or not
        tried_again_at, over_quota = self._over_quota.get(key, (0.0, {}))
        if self._clock.monotonic() >= tried_again_at and not together:
            self._over_quota.pop(key, None)
            over_quota = {}
        # Under a used-up quota, to create a pod again that exists is "exceeded quota" too, not "already exists".
        tried = pods if together else over_quota
        created = frozenset(id_ for id_ in tried if id_ in pods and not pods[id_].deleted)
        waiting = {id_: why for id_, why in over_quota.items() if id_ not in created}
        held = frozenset() if together else waiting.keys()
        return replace(
            snapshot,
            captured=await self._capture(namespace, nodes, pods),
            objects=await self._objects(nodes),
            surroundings=replace(_surroundings(config_maps, self._locks), held=held),
            over_quota=waiting,
            created=created,
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
        names |= {
            f"{plugin}{SUFFIX}" for one in _found(specs, "plugin") if isinstance(one, dict) for plugin in one
        }
        wanted = sorted(name for name in names if name and "{{" not in name)
        found = await asyncio.gather(*(self._find(CONFIG_MAPS, name, namespace) for name in wanted))
        return dict(zip(wanted, found, strict=True))

    async def _find(self, kind: Resource, name: str, namespace: str | None) -> Json | None:
        async with self._read:
            return await self._client.find(kind, name, namespace)

    async def _late_pods(
        self, workflow: StoredObject, nodes: Mapping[str, NodeStatus], pods: Mapping[str, WorkflowPod]
    ) -> dict[str, WorkflowPod]:
        """Read the pods that the cache does not show: it may be far behind that of workflows."""
        namespace, _, name = workflow.key.partition("/")
        missing = [node for node in nodes.values() if node.id not in pods and needs_pod(node)]
        found = await asyncio.gather(*(self._find(PODS, pod_name(name, node), namespace) for node in missing))
        late = (decode_workflow_pod(msgspec.json.encode(pod)) for pod in found if pod is not None)
        return {
            pod.node_id: pod
            for pod in late
            if pod is not None and pod.owner[2] == workflow.uid and not (pod.deleted and pod.ended)
        }

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

    async def _reused(self, namespace: str, workflow: Json) -> dict[str, NodeStatus]:
        """Return the nodes of the workflow that a request names, to take over its results."""
        try:
            request = json.loads(workflow["metadata"]["annotations"][labels.COMMAND])
        except ValueError:
            return {}
        name = request.get("of") if isinstance(request, dict) else None
        found = await self._find(self._kind, str(name), namespace) if name else None
        status: Json = (found or {}).get("status") or {}
        return read_nodes(status, [data for _, data in await self._chunks(namespace, str(name), status)])

    async def _claims(self, namespace: str, specs: list[Json]) -> frozenset[str]:
        resumes = any(map(checkpoints.resumes, _with_retries(specs)))
        if not resumes and not any(_found(specs, "artifacts")):
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
            message = f"the outputs cannot be read from the log: {problem.message}"
            return CapturedOutputs({}, message, unreadable=problem.code >= 500)
        log = capture.parse_log(text.decode(errors="replace"))
        strict = pod.status.phase == "Succeeded"
        found, problem = capture.outputs_of({"outputs": declared}, log, strict=strict)
        found, failure = http.judged(declared, found)
        found, wrong = artifacts.transformed(declared, found)
        problem = problem or wrong
        return CapturedOutputs(found, problem, failure=failure)

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


def _with_retries(specs: list[Json]) -> Iterable[Json]:
    return ({"retryStrategy": found} for found in _found(specs, "retryStrategy"))


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
