"""Reconciler of nodes with a notice. Keys are ``node:NAME`` and ``pod:NAMESPACE/NAME``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.api import annotations as names
from windlass.api.resources import NODES, POD_GROUPS, PODS
from windlass.api.views import Pod, decode_pod
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex
from windlass.controllers.metrics import ControllerMetrics
from windlass.controllers.nodenotices import reconcile
from windlass.controllers.nodenotices.notices import NodeNotice, NoticeKind, decode_notice
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock


class NodeNoticeController:
    name = "nodenotices"
    pause_seconds = 0.0

    def __init__(
        self, client: Client, informers: Informers, clock: Clock, metrics: ControllerMetrics
    ) -> None:
        self._client = client
        self._clock = clock
        self._metrics = metrics
        self._notices: Informer[NodeNotice] = informers.informer(NODES, decode=decode_notice)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._pods_on = RecordIndex(
            self._pods, lambda pod: (pod.node_name,) if pod.node_name else (), lambda pod: pod.key
        )
        self._manifests: dict[str, dict[str, Any]] = {}
        """Bare pods that are evicted, to be created again."""
        self._counted: dict[str, str] = {}
        """Pod → uid that is counted as interrupted."""

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._notices, self._keys_of_node, _notice_changed),
            WatchedCollection(self._pods, self._keys_of_pod, _pod_changed),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    def _keys_of_node(self, notice: NodeNotice) -> Iterable[str]:
        if notice.kind is None and not notice.taints:
            return
        yield f"node:{notice.name}"
        if notice.kind is not None:
            yield from (f"pod:{key}" for key in self._pods_on.get(notice.name))

    def _keys_of_pod(self, pod: Pod) -> Iterable[str]:
        notice = self._notices.items.get(pod.node_name) if pod.node_name else None
        noticed = notice is not None and notice.kind is not None
        if noticed or pod.key in self._manifests or names.REQUEUED in pod.annotations:
            return (f"pod:{pod.key}",)
        return ()

    async def reconcile(self, key: str) -> Effects:
        kind, _, identity = key.partition(":")
        return await (self._reconcile_pod(identity) if kind == "pod" else self._reconcile_node(identity))

    async def _reconcile_node(self, name: str) -> Effects:
        notice = self._notices.items.get(name)
        if notice is None or notice.taints == notice.wanted_taints:
            return NOTHING
        node = await self._client.find(NODES, name)  # the caches do not hold whole nodes
        if node is None or node["metadata"]["uid"] != notice.uid:
            return NOTHING
        return reconcile.reconcile_node(node, notice)

    async def _reconcile_pod(self, key: str) -> Effects:
        pod = self._pods.items.get(key)
        if pod is None:
            return await self._create_again(key)
        if pod.deleted:
            if names.REQUEUED in pod.annotations and key not in self._manifests:
                await self._remember(pod, "")  # an earlier process evicted it
            return NOTHING
        notice = self._notices.items.get(pod.node_name) if pod.node_name else None
        if notice is None or not reconcile.must_leave(pod, notice):
            return NOTHING
        if pod.controller is None and not await self._remember(pod, str(notice.kind)):
            return NOTHING
        if notice.kind is NoticeKind.SPOT and self._counted.get(key) != pod.uid:
            self._counted[key] = pod.uid
            self._metrics.spot_interruptions.inc()
        return reconcile.evict(pod, await self._group_of(pod), notice, self._clock.now())

    async def _remember(self, pod: Pod, reason: str) -> bool:
        """Keep the manifest of a bare pod, marked with the reason. Return whether it still exists."""
        manifest = await self._client.find(PODS, pod.name, pod.namespace)
        if manifest is None or manifest["metadata"]["uid"] != pod.uid:
            return False
        if reconcile.is_recreated(manifest):
            if reason:
                manifest["metadata"].setdefault("annotations", {})[names.REQUEUED] = reason
            self._manifests[pod.key] = manifest
        return True

    async def _group_of(self, pod: Pod) -> dict[str, Any] | None:
        name = pod.annotations.get(names.GROUP_NAME) or pod.annotations.get(names.GROUP_NAME_VOLCANO)
        return await self._client.find(POD_GROUPS, name, pod.namespace) if name else None

    async def _create_again(self, key: str) -> Effects:
        self._counted.pop(key, None)
        manifest = self._manifests.get(key)
        if manifest is None:
            return NOTHING
        present = await self._client.find(
            PODS, manifest["metadata"]["name"], manifest["metadata"]["namespace"]
        )
        if present is not None:
            if present["metadata"]["uid"] != manifest["metadata"]["uid"]:
                del self._manifests[key]  # created again, here or by a user
            return NOTHING
        return reconcile.successor(manifest, self._clock.now())


def _notice_changed(old: NodeNotice, new: NodeNotice) -> bool:
    return (old.kind, old.deadline, old.taints, old.uid) != (new.kind, new.deadline, new.taints, new.uid)


def _pod_changed(old: Pod, new: Pod) -> bool:
    return (old.node_name, old.uid, old.deleted, old.phase) != (
        new.node_name,
        new.uid,
        new.deleted,
        new.phase,
    )
