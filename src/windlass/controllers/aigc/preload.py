"""Reconciler that lets nodes fetch the models of waiting AIGCJobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.api.annotations import MODEL_AGENT
from windlass.api.fields import aigc
from windlass.api.quantities import scale
from windlass.api.resources import AIGC_JOBS, MODEL_CACHES, NODES
from windlass.api.views import NodeObject, decode_node
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

    def __init__(self, informers: Informers, *, agents: bool = False) -> None:
        """``agents``: only nodes with an agent for models fetch them, as in a cluster."""
        self._agents = agents
        self._jobs: Informer[StoredObject] = informers.informer(AIGC_JOBS, decode=decode_stored_object)
        self._nodes: Informer[NodeObject] = informers.informer(NODES, decode=decode_node)
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
        nodes = [
            _place(node)
            for node in self._nodes.items.values()
            if not self._agents or node.labels.get(MODEL_AGENT) == "true"
        ]
        caches = [cache.object for cache in self._caches.items.values()]
        role = job.definition.role(job.model_role) or job.worker
        gpus = job.gpus_of_role(role.name)
        missing = caches_to_create(job.spec, role.replicas, gpus, nodes, caches)
        about = reference(AIGC_JOBS, stored.object)
        plan = EffectPlan(about=about)
        plan.stage(*(Create(MODEL_CACHES, body, _event(about, body)) for body in missing))
        return plan.done()


def _event(about: Any, body: dict[str, Any]) -> EmitEvent:
    node, model = body["spec"]["nodeName"], body["spec"]["model"]["name"]
    return EmitEvent(about, "Normal", "Preloading", f"node {node} fetches model {model}")


def _preloads(obj: dict[str, Any]) -> bool:
    phase = aigc.part(obj, "status").get("phase")
    return (
        phase not in _ENDED
        and not obj["metadata"].get("deletionTimestamp")
        and is_preloaded(aigc.part(obj, "spec"))
    )


def _place(node: NodeObject) -> ModelNode:
    gpus = node.allocatable.get(aigc.GPU, 0) // scale(aigc.GPU)
    return ModelNode(node.name, node.labels, gpus, node.ready == "True" and not node.unschedulable)
