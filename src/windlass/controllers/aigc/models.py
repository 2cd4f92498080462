"""State of the models of AIGCJobs by the labels of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.api.fields.model_cache import READY_LABEL
from windlass.api.resources import NODES
from windlass.api.views import NodeObject, decode_node
from windlass.client.informers import Informer
from windlass.controllers.expectations import StoredObject
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.aigc.model_files import model_state, reference_of

Json = Mapping[str, Any]


class ModelStates:
    """States of the models of jobs, by labels of nodes, which clusters without ModelCaches have, too."""

    def __init__(self, informers: Informers, jobs: Informer[StoredObject]) -> None:
        self._jobs = jobs
        self._nodes: Informer[NodeObject] = informers.informer(NODES, decode=decode_node)

    def watches(self) -> tuple[WatchedCollection, ...]:
        return (WatchedCollection(self._nodes, self._jobs_with_model, _models_changed),)

    def of(self, spec: Json) -> str:
        """Return ``Ready``, ``Fetching`` or ``Absent``; empty for a job that preloads no model."""
        if reference_of(spec) is None:
            return ""
        return model_state(spec, (node.labels for node in self._nodes.items.values()))

    def _jobs_with_model(self, node: NodeObject) -> Iterable[str]:
        if not _labels(node):
            return []
        return [job.key for job in self._jobs.items.values() if b'"model"' in job.raw]


def _models_changed(old: NodeObject, new: NodeObject) -> bool:
    return _labels(old) != _labels(new)


def _labels(node: NodeObject) -> dict[str, str]:
    return {name: value for name, value in node.labels.items() if name.startswith(READY_LABEL)}
