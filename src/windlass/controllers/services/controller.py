"""Reconciler of the EndpointSlices and Endpoints of Services. Keys are ``namespace/name``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from windlass.api.resources import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES
from windlass.api.selectors import selects
from windlass.client.informers import Informer
from windlass.controllers.effects import Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.controllers.services.backends import BackendPod, decode_backend_pod
from windlass.controllers.services.reconcile import SERVICE_NAME, ServiceSnapshot, reconcile_service

Json = dict[str, Any]


class EndpointsController:
    """Services of all namespaces."""

    name = "endpointslice"
    pause_seconds = 0.1
    """Pods of a large job get ready one by one, and each write holds all of them."""

    def __init__(self, informers: Informers) -> None:
        self._services: Informer[StoredObject] = informers.informer(SERVICES, decode=decode_stored_object)
        self._pods: Informer[BackendPod] = informers.informer(PODS, decode=decode_backend_pod)
        self._slices: Informer[StoredObject] = informers.informer(
            ENDPOINT_SLICES, decode=decode_stored_object
        )
        self._endpoints: Informer[StoredObject] = informers.informer(ENDPOINTS, decode=decode_stored_object)
        self._pods_in = RecordIndex(self._pods, lambda pod: (pod.namespace,), lambda pod: pod.key)
        self._slices_of = RecordIndex(self._slices, _service_keys, lambda found: found.key)
        self._selectors: dict[str, dict[str, dict[str, str]]] = {}
        """Namespace → key of each Service with a selector → the selector."""
        self._services.add_handler(self._learn, lambda _, new: self._learn(new), self._forget)

    def _learn(self, service: StoredObject) -> None:
        selector = service.object["spec"].get("selector") or {}
        known = self._selectors.setdefault(service.key.partition("/")[0], {})
        if selector:
            known[service.key] = selector
        else:
            known.pop(service.key, None)

    def _forget(self, service: StoredObject) -> None:
        self._selectors.get(service.key.partition("/")[0], {}).pop(service.key, None)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._services, lambda service: [service.key]),
            WatchedCollection(self._pods, self._pod_keys, _matters),
            WatchedCollection(self._slices, _service_keys),
            WatchedCollection(self._endpoints, lambda endpoints: [endpoints.key]),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        namespace, _, name = key.partition("/")
        service = self._services.items.get(key)
        endpoints = self._endpoints.items.get(key)
        observed = ServiceSnapshot(
            pods=tuple(self._pods_in.get(namespace).values()) if service is not None else (),
            slices=tuple(found.object for found in self._slices_of.get(key).values()),
            endpoints=endpoints.object if endpoints is not None else None,
        )
        return reconcile_service(name, service.object if service is not None else None, observed)

    def _pod_keys(self, pod: BackendPod) -> Iterable[str]:
        known = self._selectors.get(pod.namespace)
        if not known:
            return ()
        return [key for key, selector in known.items() if selects(selector, pod.labels)]


def _matters(old: BackendPod, new: BackendPod) -> bool:
    return old != new


class _Meta(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    metadata: _Meta


_labelled = msgspec.json.Decoder(_Labelled)


def _service_keys(found: StoredObject) -> Iterable[str]:
    name = (_labelled.decode(found.raw).metadata.labels or {}).get(SERVICE_NAME)
    return (f"{found.key.partition('/')[0]}/{name}",) if name else ()
