"""Reconciler that lets nodes fetch the models of waiting AIGCJobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.api import aigc_fields as fields
from windlass.api.resources import AIGC_JOBS, MODEL_CACHES, NODES
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Create, EffectPlan, Effects, EmitEvent, reference
from windlass.controllers.expectations import StoredObject, decode_stored_object
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.aigc.job import read_aigc_job
from windlass.jobs.aigc.model_files import ModelNode, caches_to_create, is_preloaded

_ENDED = ("Succeeded", "Failed")


class ModelPreloadController:
    """AIGCJobs with a model that has a source. Keys are ``namespace/name``."""

    name = "modelpreload"
    pause_seconds = 0.0

    def __init__(self, informers: Informers) -> None:
        self._jobs: Informer[StoredObject] = informers.informer(AIGC_JOBS, decode=decode_stored_object)
        self._nodes: Informer[StoredObject] = informers.informer(NODES, decode=decode_stored_object)
        self._caches: Informer[StoredObject] = informers.informer(MODEL_CACHES, decode=decode_stored_object)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._jobs, lambda job: [job.key] if _preloads(job.object) else []),
            WatchedCollection(self._caches, lambda _: ()),
            WatchedCollection(self._nodes, lambda _: ()),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._jobs.items.get(key)
        if stored is None or not _preloads(stored.object):
            return NOTHING
        job = read_aigc_job(stored.object)
        nodes = [_facts(node.object) for node in self._nodes.items.values()]
        caches = [cache.object for cache in self._caches.items.values()]
        missing = caches_to_create(job.spec, job.worker.replicas, job.gpus, nodes, caches)
        plan = EffectPlan(about=reference(AIGC_JOBS, stored.object))
        about = reference(AIGC_JOBS, stored.object)
        plan.stage(*(Create(MODEL_CACHES, body, _event(about, body)) for body in missing))
        return plan.done()


def _event(about: Any, body: dict[str, Any]) -> EmitEvent:
    node, model = body["spec"]["nodeName"], body["spec"]["model"]["name"]
    return EmitEvent(about, "Normal", "Preloading", f"node {node} fetches model {model}")


def _preloads(obj: dict[str, Any]) -> bool:
    phase = fields.part(obj, "status").get("phase")
    return (
        phase not in _ENDED
        and not obj["metadata"].get("deletionTimestamp")
        and is_preloaded(fields.part(obj, "spec"))
    )


def _facts(node: dict[str, Any]) -> ModelNode:
    status = fields.part(node, "status")
    amount = str(fields.part(status, "allocatable").get(fields.GPU) or "0")
    conditions = status.get("conditions") or ()
    ready = any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
    closed = bool(fields.part(node, "spec").get("unschedulable"))
    labels = node["metadata"].get("labels") or {}
    return ModelNode(
        node["metadata"]["name"], labels, int(amount) if amount.isdecimal() else 0, ready and not closed
    )
