"""Heartbeat of this node: the Node object, its status and its Lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from windlass.api.annotations import MIG_MODE
from windlass.api.errors import StatusError
from windlass.api.resources import LEASE_NAMESPACE, LEASES, NAMESPACES, NODES
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.kits.clock import Clock
from windlass.kits.tasks import sleep_or_wake
from windlass.kits.timestamps import rfc3339_micro
from windlass.node import machine as machines
from windlass.node.devices.monitor import PublishedDevices
from windlass.node.machine import Machine

LEASE_SECONDS = 40
PERIOD_SECONDS = 10.0
STATUS_PERIOD_SECONDS = 300.0
"""Maximum interval in seconds between status updates (as in the kubelet)."""
_FIRST_WAIT_SECONDS = 0.1
_DEVICE_GROUPS = ("nvidia.com", "amd.com", "habana.ai", "huawei.com")
"""Domains of the labels that the agent owns on its node."""

_log = logging.getLogger("windlass.node")


class OwnNode:
    """Node object of this machine."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        name: str,
        machine: Machine,
        *,
        labels: dict[str, str],
        annotations: dict[str, str],
        capacity: dict[str, str],
        allocatable: dict[str, str],
    ) -> None:
        self._client = client
        self._clock = clock
        self.name = name
        self._machine = machine
        self._labels = labels
        self.annotations = annotations
        self._capacity = capacity
        self._allocatable = allocatable
        self._plugin_capacity: dict[str, str] = {}
        self._plugin_allocatable: dict[str, str] = {}
        """Resources of device plugins."""
        self._conditions: tuple[Mapping[str, str], ...] = ()
        self._aliases: Mapping[str, str] = {}
        self._device_labels = {key for key in labels if _is_device_label(key)}
        self._devices = {name for name in capacity if "/" in name}
        self._changed = True
        """True if a change is not on the server yet.

        It is cleared before the state is read, so that changes during a write are not lost."""
        self._written_at = 0.0
        self._wake = asyncio.Event()
        self.uid = ""

    @property
    def address(self) -> str:
        return self._machine.address

    @property
    def labels(self) -> Mapping[str, str]:
        return self._labels

    @property
    def capacity(self) -> Mapping[str, str]:
        return self._capacity

    def change(self, annotations: dict[str, str]) -> None:
        """Change annotations of the node and write them at once. An empty one is removed."""
        if any(self.annotations.get(key) != text for key, text in annotations.items()):
            self.annotations |= annotations
            self._write_soon()

    def change_devices(self, devices: PublishedDevices) -> None:
        """Change the devices of the node, or their state, and write them at once."""
        before = (self._labels, self._aliases, self._capacity, self._allocatable, self._conditions)
        other_labels = {key: text for key, text in self._labels.items() if key not in self._device_labels}
        self._labels = {**other_labels, **devices.labels}
        self._device_labels = set(devices.labels)
        self._aliases = dict(devices.aliases)
        self._capacity = self._with_devices(self._capacity, devices.capacity)
        self._allocatable = self._with_devices(self._allocatable, devices.allocatable)
        self._devices = set(devices.capacity)
        self._conditions = tuple(devices.conditions)
        if before != (self._labels, self._aliases, self._capacity, self._allocatable, self._conditions):
            self._write_soon()

    def change_plugins(self, capacity: Mapping[str, int], allocatable: Mapping[str, int]) -> None:
        """Change the resources of device plugins and write them at once."""
        before = self._plugin_capacity, self._plugin_allocatable
        self._plugin_capacity = {name: str(number) for name, number in capacity.items()}
        self._plugin_allocatable = {name: str(number) for name, number in allocatable.items()}
        if before != (self._plugin_capacity, self._plugin_allocatable):
            self._write_soon()

    def _with_devices(self, amounts: Mapping[str, str], devices: Mapping[str, int]) -> dict[str, str]:
        """Return resources with these numbers of devices in place of the present ones."""
        others = {name: text for name, text in amounts.items() if name not in self._devices}
        return {**others, **{name: str(number) for name, number in devices.items()}}

    def _write_soon(self) -> None:
        self._changed = True
        self._wake.set()

    async def run(self) -> None:
        """Register the node, then send heartbeats until cancelled. Failures are retried."""
        wait = _FIRST_WAIT_SECONDS
        while True:
            try:
                await self.beat()
                wait = PERIOD_SECONDS
            except (StatusError, Unreachable) as error:
                _log.warning("node %s: the heartbeat failed, retrying: %s", self.name, error)
                wait = min(max(wait * 2, _FIRST_WAIT_SECONDS), PERIOD_SECONDS)
                await self._clock.sleep(wait)
                continue
            await self._sleep(wait)

    async def _sleep(self, seconds: float) -> None:
        """Wait until the next heartbeat is due or something has changed."""
        await sleep_or_wake(self._clock, seconds, self._wake)
        self._wake.clear()

    async def beat(self) -> None:
        """Send one heartbeat. Raises ``StatusError`` and ``Unreachable``."""
        monotonic = self._clock.monotonic()
        if self._changed or monotonic - self._written_at >= STATUS_PERIOD_SECONDS:
            self._changed = False
            try:
                await self._register()
            except BaseException:
                self._changed = True
                raise
            self._written_at = monotonic
        if not await renew_lease(self._client, self.name, self.uid, self._clock.now()):
            _log.warning("node %s was deleted and is registered again", self.name)
            self._write_soon()

    async def _register(self) -> None:
        present = {key: text for key, text in self.annotations.items() if text}
        metadata = {"labels": {**self._aliases, **self._labels}, "annotations": present}
        try:
            node = await self._client.get(NODES, self.name)
        except StatusError as error:
            if error.code != 404:
                raise
            new_node = {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": self.name, **metadata},
                "spec": {},
            }
            node = await self._client.create(NODES, new_node)
        self.uid = node["metadata"]["uid"]
        labels = node["metadata"].get("labels") or {}
        aliases = {key: text for key, text in self._aliases.items() if key not in labels}
        wanted = {**aliases, **self._labels, **_stale_labels(labels, self._labels)}
        annotations = {key: text or None for key, text in self.annotations.items()}
        change = {"metadata": {"labels": wanted, "annotations": annotations}}
        if not _contains(node["metadata"], change["metadata"]):
            await self._client.patch(NODES, self.name, change)
        before = node.get("status") or {}
        status = machines.node_status(
            self.name,
            self._machine,
            {**self._plugin_capacity, **self._capacity},
            {**self._plugin_allocatable, **self._allocatable},
            now=self._clock.now(),
            before=before.get("conditions") or (),
            more=self._conditions,
        )
        # Merge patch: resources that no longer exist (other GPUs, another option) must be removed.
        for kind in ("capacity", "allocatable"):
            removed = dict.fromkeys(set(before.get(kind) or {}) - set(status[kind]))
            status[kind] = {**status[kind], **removed}
        await self._client.patch(NODES, self.name, {"status": status}, subresource="status")


def _stale_labels(labels: dict[str, str], wanted: dict[str, str]) -> dict[str, None]:
    """Return the GPU labels of an earlier start that no longer hold, with null values."""
    return {key: None for key in labels if _is_device_label(key) and key not in wanted}


def _is_device_label(key: str) -> bool:
    return key.partition("/")[0] in _DEVICE_GROUPS or key == MIG_MODE


def _contains(metadata: dict[str, Any], change: dict[str, dict[str, Any]]) -> bool:
    for field, entries in change.items():
        present = metadata.get(field) or {}
        if any(present.get(key) != text for key, text in entries.items()):
            return False
    return True


async def renew_lease(client: Client, name: str, uid: str, now: float) -> bool:
    """Renew the Lease of the node with this uid. Create it and its namespace if they are missing.

    The node owns its Lease, as with a kubelet, so the garbage collector removes the Lease of a deleted
    node. Return False if the node no longer exists; then no Lease is created.
    """
    spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": rfc3339_micro(now)}
    owner = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": name, "uid": uid}
    metadata = {"ownerReferences": [owner]}
    try:
        await client.patch(LEASES, name, {"metadata": metadata, "spec": spec}, LEASE_NAMESPACE)
        return True
    except StatusError as error:
        if error.code != 404:
            raise
    node = await client.find(NODES, name)
    if node is None or node["metadata"]["uid"] != uid:
        return False
    lease = {"metadata": {"name": name, "namespace": LEASE_NAMESPACE, **metadata}, "spec": spec}
    try:
        await client.create(LEASES, lease, LEASE_NAMESPACE)
    except StatusError as error:
        if error.code == 409:
            return True  # another heartbeat has created it
        if error.code != 404:
            raise
        await client.create(NAMESPACES, {"metadata": {"name": LEASE_NAMESPACE}})
        await client.create(LEASES, lease, LEASE_NAMESPACE)
    return True
