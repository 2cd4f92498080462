"""Reconciler of node health, which observes heartbeats.

Keys are ``node:NAME`` and ``pod:NAMESPACE/NAME``.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from windlass.api.resources import LEASE_NAMESPACE, LEASES, NODES, PODS
from windlass.api.views import NodeObject, Pod, decode_node, decode_pod
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import BareObject, RecordIndex
from windlass.controllers.nodehealth.reconcile import (
    GRACE_SECONDS,
    NodeSnapshot,
    PodSnapshot,
    reconcile_node,
    reconcile_pod,
)
from windlass.controllers.nodehealth.taints import are_current
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.kits.clock import Clock

READY = "True"


class _LeaseSpec(msgspec.Struct, rename="camel", gc=False):
    renew_time: str | None = None


class Lease(BareObject, gc=False):
    """Lease of a node, renewed every few seconds by its agent."""

    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


_lease = msgspec.json.Decoder(Lease)


def decode_lease(raw: msgspec.Raw) -> Lease | None:
    """Decode a node's lease. Leases of leader elections are not cached."""
    lease = _lease.decode(raw)
    return lease if lease.metadata.namespace == LEASE_NAMESPACE else None


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    last_heartbeat_time: str | None = None


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Reporter(BareObject, gc=False):
    status: _Status = msgspec.field(default_factory=_Status)


class Heartbeat(msgspec.Struct, frozen=True):
    """Last heartbeat of a node. Two are equal if the node has not reported since."""

    name: str
    uid: str
    resource_version: str
    stamp: str
    ready: str

    @property
    def key(self) -> str:
        return self.name


_reporter = msgspec.json.Decoder(_Reporter)


def decode_heartbeat(raw: msgspec.Raw) -> Heartbeat:
    node = _reporter.decode(raw)
    ready = next((c for c in node.status.conditions or () if c.type == "Ready"), _Condition())
    return Heartbeat(
        node.metadata.name,
        node.metadata.uid,
        node.metadata.resource_version,
        f"{ready.last_heartbeat_time or ''} {ready.status}",
        ready.status,
    )


class NodeHealthController:
    name = "nodehealth"
    pause_seconds = 0.0

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._beats: Informer[Heartbeat] = informers.informer(NODES, decode=decode_heartbeat)
        self._nodes: Informer[NodeObject] = informers.informer(NODES, decode=decode_node)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._leases: Informer[Lease] = informers.informer(LEASES, decode=decode_lease)
        self._pods_on = RecordIndex(
            self._pods, lambda pod: (pod.node_name,) if pod.node_name else (), _pod_key
        )
        self._last_heartbeats: dict[str, tuple[tuple[str, str], float]] = {}
        self._missing: dict[str, float] = {}
        """Missing nodes with bound pods → time of the first observation (monotonic seconds)."""
        self._ready: set[str] = set()
        self._beats.add_handler(self._added, lambda _, new: self._update_ready(new), self._forget)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._beats, self._keys_of_node, _heartbeat_changed),
            WatchedCollection(self._nodes, self._keys_on_node, _taints_changed),
            WatchedCollection(self._leases, lambda lease: [f"node:{lease.metadata.name}"]),
            WatchedCollection(self._pods, self._keys_of_pod, _placement_changed),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    # Ready nodes, updated by their heartbeats.

    def _added(self, beat: Heartbeat) -> None:
        self._missing.pop(beat.name, None)
        self._update_ready(beat)

    def _update_ready(self, beat: Heartbeat) -> None:
        if beat.ready == READY:
            self._ready.add(beat.name)
        else:
            self._ready.discard(beat.name)

    def _forget(self, beat: Heartbeat) -> None:
        self._ready.discard(beat.name)
        self._last_heartbeats.pop(beat.name, None)

    def _keys_of_node(self, beat: Heartbeat) -> Iterable[str]:
        yield f"node:{beat.name}"
        if len(self._ready) <= 1:  # the taints of the other nodes depend on the first or last ready node
            yield from (f"node:{name}" for name in self._beats.items)

    def _keys_on_node(self, node: NodeObject) -> Iterable[str]:
        if node.name in self._nodes.items and not any(t.effect == "NoExecute" for t in node.taints):
            return []
        return [f"pod:{key}" for key in self._pods_on.get(node.name)]

    def _keys_of_pod(self, pod: Pod) -> Iterable[str]:
        if not pod.node_name:
            return ()
        node = self._nodes.items.get(pod.node_name)
        if node is not None and not any(taint.effect == "NoExecute" for taint in node.taints):
            return ()
        return (f"pod:{pod.key}",)

    async def reconcile(self, key: str) -> Effects:
        kind, _, identity = key.partition(":")
        return await (self._reconcile_pod(identity) if kind == "pod" else self._reconcile_node(identity))

    async def _reconcile_node(self, name: str) -> Effects:
        beat, view = self._beats.items.get(name), self._nodes.items.get(name)
        if beat is None or view is None:
            return NOTHING
        stale = self._stale_seconds(beat)
        others = self._another_is_ready(name)
        ready = "Unknown" if stale >= GRACE_SECONDS else beat.ready
        if ready == beat.ready and are_current(view.taints, ready, execute=others):
            return NOTHING if stale >= GRACE_SECONDS else Effects(requeue_after=GRACE_SECONDS - stale)
        node = await self._client.find(NODES, name)  # the caches do not hold whole nodes
        if node is None or node["metadata"]["uid"] != beat.uid:
            return NOTHING
        return reconcile_node(node, NodeSnapshot(stale, others, self._clock.now()))

    def _another_is_ready(self, name: str) -> bool:
        now = self._clock.monotonic()
        return any(
            other != name and now - self._last_heartbeats.get(other, ((), now))[1] < GRACE_SECONDS
            for other in self._ready
        )

    def _stale_seconds(self, beat: Heartbeat) -> float:
        lease = self._leases.items.get(f"{LEASE_NAMESPACE}/{beat.name}")
        renewed = (lease.spec.renew_time or "") if lease is not None else ""
        observed = (beat.uid + beat.stamp, renewed)
        now = self._clock.monotonic()
        before = self._last_heartbeats.get(beat.name)
        if before is None or (before[0] != observed and beat.ready != "Unknown") or before[0][1] != renewed:
            self._last_heartbeats[beat.name] = (observed, now)
            return 0.0
        return now - before[1]

    async def _reconcile_pod(self, key: str) -> Effects:
        pod = self._pods.items.get(key)
        if pod is None or not pod.node_name:
            return NOTHING
        node = self._nodes.items.get(pod.node_name)
        if node is not None:
            return reconcile_pod(pod, PodSnapshot(node, 0.0, self._clock.now()))
        missing = self._missing_seconds(pod.node_name)
        effects = reconcile_pod(pod, PodSnapshot(None, missing, self._clock.now()))
        if effects.stages and await self._client.find(NODES, pod.node_name) is not None:
            return NOTHING
        return effects

    def _missing_seconds(self, name: str) -> float:
        """Return the time (seconds) that a node has been observed to be missing."""
        now = self._clock.monotonic()
        if name not in self._missing:  # rare: also drop nodes without bound pods
            self._missing = {node: at for node, at in self._missing.items() if self._pods_on.get(node)}
            self._missing[name] = now
        return now - self._missing[name]


def _pod_key(pod: Pod) -> str:
    return pod.key


def _heartbeat_changed(old: Heartbeat, new: Heartbeat) -> bool:
    return old.stamp != new.stamp or old.uid != new.uid


def _taints_changed(old: NodeObject, new: NodeObject) -> bool:
    return old.taints != new.taints


def _placement_changed(old: Pod, new: Pod) -> bool:
    return (old.node_name, old.uid, old.deleted) != (new.node_name, new.uid, new.deleted)
