"""EndpointSlices and Endpoints of one Service, as kube-controller-manager writes them. Pure.

A Service with a selector gets slices of its pods and one Endpoints object. For a
Service without a selector, Endpoints that a user wrote are mirrored to slices. Names of
slices depend only on their content, so a repeated reconciliation creates no second one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.owner_references import owner_reference
from windlass.api.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES, Resource
from windlass.controllers.effects import (
    NOTHING,
    Action,
    Create,
    Delete,
    EffectPlan,
    Effects,
    EmitEvent,
    Update,
    reference,
)
from windlass.controllers.services.backends import BackendPod, grouped

Json = dict[str, Any]
SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
SLICE_MANAGER = "endpointslice-controller.k8s.io"
MIRROR_MANAGER = "endpointslicemirroring-controller.k8s.io"
SKIP_MIRROR = "endpointslice.kubernetes.io/skip-mirror"
HEADLESS = "service.kubernetes.io/headless"
ENDPOINTS_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
ENDPOINTS_MANAGER = "endpoint-controller"
MAX_PER_SLICE = 100
"""Maximum number of endpoints in one slice (``--max-endpoints-per-slice``)."""
MAX_ENDPOINTS = 1000
"""Maximum number of addresses in one Endpoints object."""
_RESERVED = (SERVICE_NAME, MANAGED_BY, HEADLESS, ENDPOINTS_MANAGED_BY)


@dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    """Observed surroundings of a Service: its pods, the slices with its name, and its Endpoints."""

    pods: tuple[BackendPod, ...]
    slices: tuple[Json, ...]
    endpoints: Json | None


def reconcile_service(name: str, service: Json | None, observed: ServiceSnapshot) -> Effects:
    """Reconcile the Service of this name; ``None``: it does not exist."""
    if service is None:
        return _without_service(observed)
    if service["metadata"].get("deletionTimestamp"):
        return NOTHING
    plan = EffectPlan(about=reference(SERVICES, service))
    spec = service["spec"]
    if spec.get("type") == "LoadBalancer":
        plan.event(_no_load_balancer(service))
    if spec.get("type") == "ExternalName":
        plan.stage(*_match_slices((), observed.slices, (SLICE_MANAGER, MIRROR_MANAGER)))
    elif spec.get("selector"):
        groups = grouped(service, observed.pods)
        plan.stage(*_match_slices(_slices(service, groups), observed.slices, (SLICE_MANAGER, MIRROR_MANAGER)))
        plan.stage(*_match_endpoints(_endpoints(service, groups), observed.endpoints))
    else:
        plan.stage(*_mirror(service, observed))
    return plan.done()


def _without_service(observed: ServiceSnapshot) -> Effects:
    """Delete generated Endpoints. Slices are deleted with their owner, by garbage collection."""
    found = observed.endpoints
    if found is None or not _is_generated(found):
        return NOTHING
    meta = found["metadata"]
    return Effects(stages=((Delete(ENDPOINTS, meta["name"], meta.get("namespace"), meta["uid"]),),))


def _is_generated(endpoints: Json) -> bool:
    return (endpoints["metadata"].get("labels") or {}).get(ENDPOINTS_MANAGED_BY) == ENDPOINTS_MANAGER


def _no_load_balancer(service: Json) -> EmitEvent:
    meta = service["metadata"]
    ports = [port["nodePort"] for port in service["spec"].get("ports") or () if port.get("nodePort")]
    reached = ", ".join(f"127.0.0.1:{port}" for port in ports)
    remedy = f"kubectl port-forward -n {meta['namespace']} service/{meta['name']}"
    message = (
        "no load balancer exists in single-node mode, so the external IP stays pending; "
        f"use {'the node port ' + reached if reached else remedy}"
    )
    return EmitEvent(reference(SERVICES, service), "Warning", "SyncLoadBalancerFailed", message, lasting=True)


# -- slices ------------------------------------------------------------------------------------


def _slices(service: Json, groups: Mapping[tuple[Any, ...], Sequence[BackendPod]]) -> list[Json]:
    labels = _labels(service, SLICE_MANAGER)
    owner = _owner(SERVICES, service)
    found = []
    for ports, pods in groups.items():
        records = [port.as_json() for port in ports]
        for start in range(0, len(pods), MAX_PER_SLICE):
            endpoints = [_endpoint(service, pod) for pod in pods[start : start + MAX_PER_SLICE]]
            found.append(_slice(service, labels, owner, records, endpoints, start))
    if not found:  # a placeholder, so that readers know that there are no endpoints
        found.append(_slice(service, labels, owner, [], [], 0))
    return found


def _slice(
    service: Json, labels: Json, owner: Json, ports: list[Json], endpoints: list[Json], number: int
) -> Json:
    meta = service["metadata"]
    seed = f"{meta['uid']} {labels[MANAGED_BY]} {sorted(map(str, ports))} {number}"
    suffix = hashlib.sha256(seed.encode()).hexdigest()[:5]
    return {
        "apiVersion": ENDPOINT_SLICES.api_version,
        "kind": ENDPOINT_SLICES.kind,
        "metadata": {
            "name": f"{meta['name'][:57]}-{suffix}",
            "generateName": f"{meta['name']}-",
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [owner],
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": ports,
    }


def _labels(service: Json, manager: str) -> Json:
    meta = service["metadata"]
    own = {key: text for key, text in (meta.get("labels") or {}).items() if key not in _RESERVED}
    if service["spec"].get("clusterIP") == "None":
        own[HEADLESS] = ""
    return {**own, SERVICE_NAME: meta["name"], MANAGED_BY: manager}


def _owner(resource: Resource, obj: Json) -> Json:
    return owner_reference(resource, obj["metadata"]["name"], obj["metadata"]["uid"])


def _endpoint(service: Json, pod: BackendPod) -> Json:
    published = bool(service["spec"].get("publishNotReadyAddresses"))
    found: Json = {
        "addresses": [pod.address],
        "conditions": {
            "ready": published or (pod.ready and not pod.terminating),
            "serving": pod.ready,
            "terminating": pod.terminating,
        },
        "nodeName": pod.node,
        "targetRef": _target(pod),
    }
    if _has_hostname(service, pod):
        found["hostname"] = pod.hostname
    return found


def _target(pod: BackendPod) -> Json:
    return {"kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}


def _has_hostname(service: Json, pod: BackendPod) -> bool:
    return bool(pod.hostname) and pod.subdomain == service["metadata"]["name"]


def _match_slices(wanted: Iterable[Json], present: Iterable[Json], managers: Sequence[str]) -> list[Action]:
    """Return the writes that make the managed slices those that are wanted."""
    managed = {
        obj["metadata"]["name"]: obj
        for obj in present
        if (obj["metadata"].get("labels") or {}).get(MANAGED_BY) in managers
    }
    actions: list[Action] = []
    for obj in wanted:
        known = managed.pop(obj["metadata"]["name"], None)
        if known is None:
            actions.append(Create(ENDPOINT_SLICES, obj))
        elif not _same_slice(known, obj):
            meta = {**known["metadata"], "labels": obj["metadata"]["labels"]}
            actions.append(Update(ENDPOINT_SLICES, {**obj, "metadata": meta}))
    for obj in managed.values():
        meta = obj["metadata"]
        actions.append(Delete(ENDPOINT_SLICES, meta["name"], meta["namespace"], meta["uid"]))
    return actions


def _same_slice(known: Json, wanted: Json) -> bool:
    return (
        (known["metadata"].get("labels") or {}) == wanted["metadata"]["labels"]
        and (known.get("endpoints") or []) == wanted["endpoints"]
        and (known.get("ports") or []) == wanted["ports"]
    )


# -- Endpoints ---------------------------------------------------------------------------------


def _endpoints(service: Json, groups: Mapping[tuple[Any, ...], Sequence[BackendPod]]) -> Json:
    meta = service["metadata"]
    labels = {key: text for key, text in (meta.get("labels") or {}).items() if key not in _RESERVED}
    if service["spec"].get("clusterIP") == "None":
        labels[HEADLESS] = ""
    subsets = [found for ports, pods in groups.items() if (found := _subset(service, ports, pods))]
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": {**labels, ENDPOINTS_MANAGED_BY: ENDPOINTS_MANAGER},
        },
        "subsets": subsets,
    }


def _subset(service: Json, ports: tuple[Any, ...], pods: Sequence[BackendPod]) -> Json:
    published = bool(service["spec"].get("publishNotReadyAddresses"))
    ready: list[Json] = []
    unready: list[Json] = []
    for pod in pods[:MAX_ENDPOINTS]:
        if pod.terminating and not published:
            continue
        address: Json = {"ip": pod.address, "nodeName": pod.node, "targetRef": _target(pod)}
        if _has_hostname(service, pod):
            address["hostname"] = pod.hostname
        (ready if published or pod.ready else unready).append(address)
    if not ready and not unready:
        return {}
    found: Json = {}
    if ready:
        found["addresses"] = ready
    if unready:
        found["notReadyAddresses"] = unready
    if ports:
        found["ports"] = [_endpoints_port(port.as_json()) for port in ports]
    return found


def _endpoints_port(port: Json) -> Json:
    return {key: value for key, value in port.items() if value != ""}


def _match_endpoints(wanted: Json, present: Json | None) -> list[Action]:
    if present is None:
        return [Create(ENDPOINTS, wanted)]
    same = (present["metadata"].get("labels") or {}) == wanted["metadata"]["labels"] and (
        present.get("subsets") or []
    ) == wanted["subsets"]
    if same:
        return []
    meta = {**present["metadata"], "labels": wanted["metadata"]["labels"]}
    return [Update(ENDPOINTS, {**wanted, "metadata": meta})]


# -- Endpoints without a selector --------------------------------------------------------------


def _mirror(service: Json, observed: ServiceSnapshot) -> list[Action]:
    """Mirror Endpoints that a user wrote. Slices that a user wrote stay as they are."""
    endpoints = observed.endpoints
    if endpoints is None or _is_generated(endpoints):
        return _match_slices((), observed.slices, (MIRROR_MANAGER,))
    if (endpoints["metadata"].get("labels") or {}).get(SKIP_MIRROR) == "true":
        return _match_slices((), observed.slices, (MIRROR_MANAGER,))
    labels, owner = _labels(service, MIRROR_MANAGER), _owner(ENDPOINTS, endpoints)
    found = []
    subsets: list[Json] = endpoints.get("subsets") or []
    for number, subset in enumerate(subsets):
        ports = [_slice_port(port) for port in subset.get("ports") or ()]
        records = [
            _mirrored(address, ready)
            for field, ready in (("addresses", True), ("notReadyAddresses", False))
            for address in subset.get(field) or ()
        ]
        found.append(_slice(service, labels, owner, ports, records[:MAX_ENDPOINTS], number))
    return _match_slices(found, observed.slices, (MIRROR_MANAGER,))


def _slice_port(port: Json) -> Json:
    return {"name": port.get("name") or "", "port": port["port"], "protocol": port.get("protocol") or "TCP"}


def _mirrored(address: Json, ready: bool) -> Json:
    found: Json = {"addresses": [address["ip"]], "conditions": {"ready": ready}}
    for field in ("hostname", "nodeName", "targetRef"):
        if address.get(field):
            found[field] = address[field]
    return found
