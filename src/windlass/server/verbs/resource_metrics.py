"""Kinds of ``metrics.k8s.io/v1beta1``, computed by the node agent at each request (``kubectl top``).

Pods and nodes without a process, such as simulated ones, have no figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.api.annotations import BOX
from windlass.api.errors import bad_request, not_found
from windlass.api.resources import NODES, PODS, Resource
from windlass.api.selectors import Selector, SelectorError, parse_labels
from windlass.client.transport import Response
from windlass.kits.timestamps import rfc3339
from windlass.server.core import Call, ServerCore, decoded
from windlass.server.presentation import responses
from windlass.server.verbs.pod_streams import source_of
from windlass.store.filters import StoreFilter

_READ = ("get", "list")
NODE_METRICS = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", False, verbs=_READ)
POD_METRICS = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", verbs=_READ)
KINDS = (NODE_METRICS, POD_METRICS)


async def read_metrics(core: ServerCore, call: Call) -> Response:
    """Handle GET of metrics. Raises StatusError."""
    target = call.target
    usage = await source_of(core).usage()
    try:
        selector = parse_labels(call.params.get("labelSelector", ""))
    except SelectorError as error:
        raise bad_request(f"unable to parse labelSelector: {error}")
    items = _nodes(core, usage) if target.resource is NODE_METRICS else _pods(core, usage, target.namespace)
    if not target.name:
        found = [item for item in items if _matches(item, selector)]
        listed = {"kind": target.resource.list_kind, "apiVersion": target.resource.api_version}
        return responses.json(200, {**listed, "metadata": {}, "items": found}, call.form)
    for item in items:
        if item["metadata"]["name"] == target.name:
            return responses.json(200, item, call.form)
    raise not_found(target.resource, target.name)


def _matches(item: Mapping[str, Any], selector: Selector) -> bool:
    return selector.matches(item["metadata"].get("labels"))


def _item(resource: Resource, obj: Mapping[str, Any], usage: Mapping[str, Any]) -> dict[str, Any]:
    metadata = obj["metadata"]
    kept = ("name", "namespace", "labels", "creationTimestamp")
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {name: metadata[name] for name in kept if metadata.get(name)},
        "timestamp": rfc3339(usage["at"]),
        "window": f"{usage['window']:.3f}s",
    }


def _amounts(figures: Mapping[str, int]) -> dict[str, str]:
    return {"cpu": f"{figures['cpu']}n", "memory": f"{figures['memory'] // 1024}Ki"}


def _nodes(core: ServerCore, usage: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for entry in core.store.select(NODES.qualified):
        node = decoded(NODES, entry)
        if (node["metadata"].get("labels") or {}).get(BOX) == "true":
            yield {**_item(NODE_METRICS, node, usage), "usage": _amounts(usage["node"])}


def _pods(core: ServerCore, usage: Mapping[str, Any], namespace: str) -> Iterator[dict[str, Any]]:
    for entry in core.store.select(PODS.qualified, StoreFilter(namespace=namespace or None)):
        pod = decoded(PODS, entry)
        containers = usage["pods"].get(pod["metadata"].get("uid"))
        if containers:
            listed = [{"name": name, "usage": _amounts(one)} for name, one in sorted(containers.items())]
            yield {**_item(POD_METRICS, pod, usage), "containers": listed}
