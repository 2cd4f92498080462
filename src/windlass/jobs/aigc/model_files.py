"""Model of an AIGCJob: where it comes from, which nodes fetch it ahead, how workers find it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from windlass.api import aigc_fields as fields
from windlass.api.model_cache_fields import READY, READY_LABEL, cache_name, model_cache
from windlass.api.quantities import QuantityError, parse
from windlass.modelcache.folder import ModelReference

Json = Mapping[str, Any]
MEMORY_FOLDER = "/dev/shm/windlass-models"


@dataclass(frozen=True, slots=True)
class ModelNode:
    """Node as a place for a model. ``gpus``: whole GPUs that it has."""

    name: str
    labels: Mapping[str, str]
    gpus: int
    ready: bool


def reference_of(spec: Json) -> ModelReference | None:
    """Return the model of a job if its files have a source.

    ``source: hf`` means ``hf://<name>``. A model without a source is only a name.
    """
    model = fields.part(spec, "model")
    name, source = str(model.get("name") or ""), str(model.get("source") or "")
    if source == "hf":
        source = f"hf://{name}"
    if not name or not source:
        return None
    checksum = str(fields.part(model, "preload").get("sha256") or "")
    return ModelReference(name, source, str(model.get("revision") or ""), checksum)


def is_preloaded(spec: Json) -> bool:
    """Return whether nodes fetch the model before a worker needs it."""
    preload = fields.part(fields.part(spec, "model"), "preload")
    strategy = str(preload.get("strategy") or fields.HOST_PATH)
    return (
        reference_of(spec) is not None
        and strategy == fields.HOST_PATH
        and preload.get("when", "Eager") != fields.ON_FIRST_USE
    )


def caches_to_create(
    spec: Json, workers: int, gpus: int, nodes: Iterable[ModelNode], caches: Iterable[Json]
) -> list[dict[str, Any]]:
    """Return the ModelCaches that are missing.

    As many nodes as there are workers, at least ``preload.nodes.min``, fetch the model: first
    those that have it or fetch it, then those with the most GPUs. ``gpus``: of a worker.
    """
    model = reference_of(spec)
    if model is None or not is_preloaded(spec):
        return []
    preload = fields.part(fields.part(spec, "model"), "preload")
    asked = fields.part(preload, "nodes")
    selector = fields.part(asked, "selector")
    selector = fields.part(selector, "matchLabels") or selector
    having = {cache["metadata"]["name"] for cache in caches}
    fitting = [
        node
        for node in nodes
        if node.ready
        and node.gpus >= gpus
        and all(node.labels.get(key) == value for key, value in selector.items())
    ]
    fitting.sort(key=lambda node: (cache_name(node.name, model.key) not in having, -node.gpus, node.name))
    chosen = fitting[: max(1, workers, int(asked.get("min") or 0))]
    return [
        model_cache(node.name, model.key, asdict(model), pin=bool(preload.get("pin")))
        for node in chosen
        if cache_name(node.name, model.key) not in having
    ]


def add_model(spec: Json, body: dict[str, Any], folder: str) -> None:
    """Let a worker find the model: mounts, environment, and a preference for nodes that have it.

    ``folder``: folder of models on the nodes.
    """
    model = reference_of(spec)
    if model is None:
        return
    given = fields.part(spec, "model")
    asked = {**asdict(model), "pin": bool(fields.part(given, "preload").get("pin"))}
    mounts = [("windlass-models", folder)]
    environment = [{"name": "WINDLASS_MODELS", "value": folder}]
    sharing = fields.part(given, "sharing")
    if sharing.get("mode") == fields.SHARED_MEMORY:
        asked["memory"] = memory_limit(sharing)
        mounts.append(("windlass-model-memory", MEMORY_FOLDER))
        environment.append({"name": "WINDLASS_MODEL_MEMORY", "value": MEMORY_FOLDER})
    environment.append({"name": "WINDLASS_MODEL", "value": json.dumps(asked)})
    body["volumes"] = [*(body.get("volumes") or ()), *(_volume(name, path) for name, path in mounts)]
    first, *others = body["containers"]
    first = dict(first)
    first["env"] = [*(first.get("env") or ()), *environment]
    first["volumeMounts"] = [
        *(first.get("volumeMounts") or ()),
        *({"name": name, "mountPath": path} for name, path in mounts),
    ]
    body["containers"] = [first, *others]
    body["affinity"] = _preferring(body.get("affinity") or {}, READY_LABEL + model.key)


def memory_limit(sharing: Json) -> int:
    """Return ``sharing.sizeLimit`` in bytes; 0: no limit."""
    try:
        return int(parse(str(sharing["sizeLimit"])))
    except (KeyError, QuantityError):
        return 0


def is_ready(spec: Json, caches: Sequence[Json]) -> bool | None:
    """Return whether a node has the model; ``None`` if the job preloads none."""
    model = reference_of(spec)
    if model is None or not is_preloaded(spec):
        return None
    names = [cache for cache in caches if cache["metadata"]["name"].endswith(f".{model.key}")]
    return any(fields.part(cache, "status").get("state") == READY for cache in names)


def _volume(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}


def _preferring(affinity: Json, label: str) -> dict[str, Any]:
    """Return the affinity with a preference for nodes with a label. It never keeps a pod waiting."""
    node = dict(fields.part(affinity, "nodeAffinity"))
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    term = {"matchExpressions": [{"key": label, "operator": "In", "values": ["ready"]}]}
    node[name] = [*(node.get(name) or ()), {"weight": 100, "preference": term}]
    return {**affinity, "nodeAffinity": node}
