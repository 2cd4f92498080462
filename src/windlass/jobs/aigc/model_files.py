"""Model of an AIGCJob: where it comes from, which nodes fetch it ahead, how workers find it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from windlass.api.fields import aigc
from windlass.api.fields.model_cache import (
    ABSENT,
    FETCHING,
    FETCHING_VALUE,
    READY,
    READY_LABEL,
    READY_VALUE,
    cache_name,
    model_cache,
)
from windlass.api.quantities import QuantityError, parse
from windlass.jobs.aigc.model_volumes import CACHE, cache_claim, mount_model, volume_of
from windlass.modelcache.folder import ModelReference
from windlass.modelcache.shared import memory_of

Json = Mapping[str, Any]
READY_SCORE, FETCHING_SCORE = 100, 60
"""Weights of the preferences for nodes that have a model and for nodes that fetch it."""
NETWORK_GIB_PER_SECOND = 0.116
"""Rate of a transfer (GiB/s) by which a model is judged: 1 Gbit/s."""
MAX_LOCALITY_WAIT_SECONDS = 60.0
"""Maximum time that locality may cost a job (seconds)."""


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
    model = aigc.part(spec, "model")
    name, source = str(model.get("name") or ""), str(model.get("source") or "")
    if source == "hf":
        source = f"hf://{name}"
    if not name or not source or volume_of(spec) is not None:
        return None
    checksum = str(aigc.part(model, "preload").get("sha256") or "")
    return ModelReference(name, source, str(model.get("revision") or ""), checksum)


def is_preloaded(spec: Json) -> bool:
    """Return whether nodes fetch the model before a worker needs it."""
    preload = aigc.part(aigc.part(spec, "model"), "preload")
    strategy = str(preload.get("strategy") or aigc.HOST_PATH)
    return (
        reference_of(spec) is not None
        and strategy == aigc.HOST_PATH
        and preload.get("when", "Eager") != aigc.ON_FIRST_USE
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
    preload = aigc.part(aigc.part(spec, "model"), "preload")
    asked = aigc.part(preload, "nodes")
    selector = aigc.part(asked, "selector")
    selector = aigc.part(selector, "matchLabels") or selector
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
    _share_server(spec, body, memory_of(folder))
    volume = volume_of(spec)
    if volume is not None:
        mount_model(body, volume)
        return
    model = reference_of(spec)
    if model is None:
        return
    given = aigc.part(spec, "model")
    asked: dict[str, Any] = {**asdict(model), "pin": bool(aigc.part(given, "preload").get("pin"))}
    mounts = [("windlass-models", folder)]
    environment = [{"name": "WINDLASS_MODELS", "value": folder}]
    sharing = aigc.part(given, "sharing")
    if sharing.get("mode") == aigc.SHARED_MEMORY:
        asked["memory"] = memory_limit(sharing)
        mounts.append(("windlass-model-memory", memory_of(folder)))
        environment.append({"name": "WINDLASS_MODEL_MEMORY", "value": memory_of(folder)})
    environment.append({"name": "WINDLASS_MODEL", "value": json.dumps(asked)})
    if claim := cache_claim(spec):
        mounts[0] = ("windlass-models", CACHE)
        environment[0]["value"] = CACHE
        _give(body, mounts, environment)
        body["volumes"] = [
            {"name": one["name"], "persistentVolumeClaim": {"claimName": claim}}
            if one["name"] == "windlass-models"
            else one
            for one in body["volumes"]
        ]
        return  # all nodes are equally near
    _give(body, mounts, environment)
    body["affinity"] = _preferring(body.get("affinity") or {}, READY_LABEL + model.key, locality(spec))


def _share_server(spec: Json, body: dict[str, Any], memory: str) -> None:
    """Let the workers of a node find one another's inference server (``sharing.mode: Server``)."""
    if aigc.part(aigc.part(spec, "model"), "sharing").get("mode") != aigc.SERVER:
        return
    address = {"name": "WINDLASS_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    place = {"name": "WINDLASS_MODEL_SERVERS", "value": memory}
    _give(body, [("windlass-model-servers", memory)], [place, address])


def _give(body: dict[str, Any], mounts: list[tuple[str, str]], environment: list[dict[str, Any]]) -> None:
    """Add folders of the node and variables to the first container."""
    body["volumes"] = [*(body.get("volumes") or ()), *(_volume(name, path) for name, path in mounts)]
    first, *others = body["containers"]
    first = dict(first)
    first["env"] = [*(first.get("env") or ()), *environment]
    first["volumeMounts"] = [
        *(first.get("volumeMounts") or ()),
        *({"name": name, "mountPath": path} for name, path in mounts),
    ]
    body["containers"] = [first, *others]


def memory_limit(sharing: Json) -> int:
    """Return ``sharing.sizeLimit`` in bytes; 0: no limit."""
    try:
        return int(parse(str(sharing["sizeLimit"])))
    except (KeyError, QuantityError):
        return 0


def model_state(spec: Json, labels: Iterable[Mapping[str, str]]) -> str:
    """Return ``Ready``, ``Fetching`` or ``Absent``, by the labels of the nodes; empty if none is preloaded."""
    model = reference_of(spec)
    if model is None or not is_preloaded(spec):
        return ""
    found = {one.get(READY_LABEL + model.key) for one in labels}
    if READY_VALUE in found:
        return READY
    return FETCHING if FETCHING_VALUE in found else ABSENT


def _volume(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}


def locality(spec: Json) -> float:
    """Return how much a node with the model matters, from 0 to 1.

    It is the time that the transfer takes, as a part of the time that locality may cost a job.
    A model of unknown size counts fully.
    """
    model = aigc.part(spec, "model")
    size = model.get("sizeGiB")
    if not isinstance(size, int | float) or isinstance(size, bool) or size <= 0:
        return 1.0
    return min(1.0, size / NETWORK_GIB_PER_SECOND / MAX_LOCALITY_WAIT_SECONDS)


def _preferring(affinity: Json, label: str, importance: float) -> dict[str, Any]:
    """Return the affinity with preferences for nodes that have the model, or fetch it.

    A preference never keeps a pod waiting: so locality delays no job at all.
    """
    node = dict(aigc.part(affinity, "nodeAffinity"))
    name = "preferredDuringSchedulingIgnoredDuringExecution"
    terms = [
        {
            "weight": max(1, round(score * importance)),
            "preference": {"matchExpressions": [{"key": label, "operator": "In", "values": [value]}]},
        }
        for value, score in ((READY_VALUE, READY_SCORE), (FETCHING_VALUE, FETCHING_SCORE))
    ]
    node[name] = [*(node.get(name) or ()), *terms]
    return {**affinity, "nodeAffinity": node}
