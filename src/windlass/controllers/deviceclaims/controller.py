"""Reconciler of ResourceClaims.

Keys are ``pod:NAMESPACE/NAME``, ``claim:NAMESPACE/NAME`` and ``class:``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.api.resources import (
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)
from windlass.api.views import Pod, decode_pod
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.deviceclaims.reconcile import (
    GPU_CLASS,
    reconcile_claim,
    reconcile_class,
    reconcile_pod,
)
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import NamespaceView, RecordIndex
from windlass.controllers.runner import Informers, WatchedCollection

Json = dict[str, Any]
_CLASS = "class:"


class DeviceClaimController:
    name = "deviceclaims"
    pause_seconds = 0.0

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._claims: Informer[Json] = informers.informer(RESOURCE_CLAIMS)
        self._templates: Informer[Json] = informers.informer(RESOURCE_CLAIM_TEMPLATES)
        self._classes: Informer[Json] = informers.informer(DEVICE_CLASSES)
        self._users = RecordIndex(self._pods, _claims_of, _pod_key)
        self._by_uid = RecordIndex(self._pods, lambda pod: (pod.uid,), _pod_key)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._pods, self._of_pod),
            WatchedCollection(self._claims, self._of_claim),
            WatchedCollection(self._templates, self._of_template),
            WatchedCollection(self._classes, lambda found: [_CLASS] if _name(found) == GPU_CLASS else []),
        )

    def initial_keys(self) -> Iterable[str]:
        return (_CLASS,)

    async def reconcile(self, key: str) -> Effects:
        kind, _, place = key.partition(":")
        if kind == "class":
            return reconcile_class(GPU_CLASS in self._classes.items)
        namespace, _, name = place.partition("/")
        if kind == "claim":
            claim = self._claims.items.get(place)
            return reconcile_claim(claim, self._running(claim)) if claim is not None else NOTHING
        if place not in self._pods.items:
            return NOTHING
        pod = await self._client.find(PODS, name, namespace)  # the cache does not hold whole pods
        if pod is None:
            return NOTHING
        return reconcile_pod(
            pod, NamespaceView(self._templates.items, namespace), NamespaceView(self._claims.items, namespace)
        )

    def _running(self, claim: Json) -> dict[str, bool]:
        """Return for each existing pod that the claim is reserved for whether it is unfinished.

        Keys are UIDs. Pods that do not exist are absent.
        """
        reserved = (claim.get("status") or {}).get("reservedFor") or ()
        users = (pod for one in reserved for pod in self._by_uid.get(one.get("uid", "")).values())
        return {pod.uid: not pod.finished for pod in users}

    def _of_pod(self, pod: Pod) -> Iterable[str]:
        if pod.shape.claims:
            yield f"pod:{pod.key}"
            for claim in _claims_of(pod):
                yield f"claim:{claim}"

    def _of_claim(self, claim: Json) -> Iterable[str]:
        place = f"{claim['metadata']['namespace']}/{_name(claim)}"
        yield f"claim:{place}"
        for pod in self._users.get(place):
            yield f"pod:{pod}"

    def _of_template(self, template: Json) -> Iterable[str]:
        prefix = f"{template['metadata']['namespace']}/"
        for key, pod in self._pods.items.items():
            if key.startswith(prefix) and any(one.template == _name(template) for one in pod.shape.claims):
                yield f"pod:{key}"


def _name(obj: Json) -> str:
    return obj["metadata"]["name"]


def _claims_of(pod: Pod) -> Iterable[str]:
    """The claims that a pod uses, by key."""
    claim_names = dict(pod.claim_names)
    for one in pod.shape.claims:
        name = one.claim or claim_names.get(one.name, "")
        if name:
            yield f"{pod.namespace}/{name}"


def _pod_key(pod: Pod) -> str:
    return pod.key
