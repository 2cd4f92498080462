"""Monitor of the node's devices: health, users, MPS, and MIG instances of ended pods.

It checks the devices periodically, and at once when the driver reports an XID. Results go to the
node's device annotation (:mod:`windlass.api.devices.node_annotation`), two conditions of the Node,
and events. Pods on an unhealthy device are evicted after their grace period, so that their
controllers recreate them elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import replace as altered

from windlass.api import annotations as names
from windlass.api.devices import node_annotation
from windlass.api.devices.node_annotation import DeviceRecord
from windlass.kits.clock import Clock
from windlass.kits.tasks import sleep_or_wake
from windlass.kits.timestamps import rfc3339_micro
from windlass.node.devices import discovery, labels, mps, usage_audit
from windlass.node.devices.allocations import Held
from windlass.node.devices.discovery import DiscoveryOptions, Inventory, key_of
from windlass.node.devices.health import FaultRecords, Xid, XidListener, find_faults, merge_faults
from windlass.node.devices.index_store import DeviceIndexStore
from windlass.node.devices.manager import DeviceManager
from windlass.node.devices.mps_control import MpsControl
from windlass.node.devices.nvml import Nvml
from windlass.node.devices.usage_audit import DeviceProcess, UsageFinding
from windlass.node.devices.utilization import read_utilization, utilization_note
from windlass.node.runtime.threads import in_thread

HEALTHY, AS_GIVEN = "GPUsHealthy", "GPUsUsedAsGiven"
"""Types of the Node's conditions."""
DEFAULT_GRACE_SECONDS = 30.0
FOREVER = "forever"
_log = logging.getLogger("windlass.node")


@dataclass(frozen=True, slots=True)
class DriverState:
    """State of the driver at one check. ``inventory`` is None if the devices could not be listed."""

    inventory: Inventory | None
    faults: Mapping[str, str]
    processes: tuple[DeviceProcess, ...]
    daemon: mps.Daemon
    utilization: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PublishedDevices:
    """Published state of the devices: labels, annotations, resources and conditions.

    ``aliases``: labels that are written only if the node lacks them.
    ``capacity``: all devices, by resource. ``allocatable``: the healthy ones.
    """

    labels: Mapping[str, str]
    aliases: Mapping[str, str]
    annotations: Mapping[str, str]
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    conditions: tuple[Mapping[str, str], ...]


def published_of(
    device_manager: DeviceManager,
    findings: Sequence[UsageFinding] = (),
    use: str = "",
    utilization: str = "",
) -> PublishedDevices:
    """Return the published state of the devices. Pure.

    ``use``, ``utilization``: measured memory and utilisation of the pods' devices (JSON).
    """
    inventory = device_manager.inventory
    notes = [inventory.note] if inventory.note else []
    daemon = device_manager.daemon
    if daemon.runs and any(device.mps for device in inventory.devices):
        notes.append(f"shares are enforced by MPS ({daemon.directory})")
    node_annotations = {
        names.DEVICES_NOTE: "; ".join(notes),
        names.DEVICE_USE: use,
        names.DEVICE_UTILIZATION: utilization,
        names.MPS_DAEMON: _mps_note(daemon, started=device_manager.runs_mps),
        **labels.summary_annotations(inventory.devices),
        **names.both(
            names.NODE_DEVICES, node_annotation.write(inventory.devices) if inventory.devices else ""
        ),
    }
    unhealthy = [device for device in inventory.devices if not device.healthy]
    health = _condition(
        HEALTHY,
        not unhealthy,
        "CardsHealthy" if not unhealthy else "CardUnhealthy",
        "all GPUs are healthy"
        if not unhealthy
        else "; ".join(f"GPU {device.index}: {device.reason}" for device in unhealthy),
    )
    used = _condition(
        AS_GIVEN,
        not findings,
        "NothingElse" if not findings else findings[0].reason,
        "no process uses a GPU that is not allocated to it"
        if not findings
        else "; ".join(finding.message for finding in findings),
    )
    return PublishedDevices(
        inventory.labels,
        labels.aliases(inventory.devices),
        node_annotations,
        inventory.resources,
        inventory.allocatable,
        (health, used) if inventory.devices else (),
    )


def _mps_note(daemon: mps.Daemon, *, started: bool) -> str:
    """Return the state of the MPS daemon for the node's annotation; empty if there is nothing to report."""
    if not daemon.runs and not started:
        return ""
    record = {"running": daemon.runs, "pipeDirectory": daemon.directory, "logDirectory": daemon.log_directory}
    record |= {"managed": started, "problem": daemon.problem}
    return json.dumps(record, separators=(",", ":"))


def _condition(kind: str, good: bool, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": "True" if good else "False", "reason": reason, "message": message}


class DeviceMonitor:
    """Monitor of the node's devices.

    Callbacks: ``publish`` takes the published state, ``report`` a finding of the audit,
    ``record_event`` an event (warning, reason, message), ``evict`` the uid of a pod and the reason.
    ``pods`` returns uid → pod of the pods on this node.
    """

    def __init__(
        self,
        device_manager: DeviceManager,
        clock: Clock,
        *,
        nvml: Nvml | None,
        faults: FaultRecords,
        options: Callable[[], DiscoveryOptions],
        environment: Mapping[str, str],
        period_seconds: float,
        index_store: DeviceIndexStore | None = None,
        mps_control: MpsControl | None = None,
    ) -> None:
        self._device_manager = device_manager
        self._clock = clock
        self._nvml = nvml
        self._faults = faults
        self._options = options
        self._environment = environment
        self._mps_control = mps_control
        self._period = period_seconds
        self._index_store = index_store
        self._wake = asyncio.Event()
        self._unhealthy_since: dict[str, float] = {}
        self._evicted: set[str] = set()
        self._reported: set[tuple[str, str, str, str]] = set()
        self.publish: Callable[[PublishedDevices], None] = lambda _: None
        self.report: Callable[[UsageFinding], None] = lambda _: None
        self.record_event: Callable[[bool, str, str], None] = lambda _warning, _reason, _message: None
        self.evict: Callable[[str, str], None] = lambda _uid, _why: None
        self.pods: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
        self._findings: tuple[UsageFinding, ...] = ()
        self._use: dict[str, dict[str, int]] = {}
        """Published memory in MiB of each pod on each device, by index."""
        self._read: Mapping[str, int] = {}
        self._utilization = ""
        self._primed = False
        device_manager.on_change(self.publish_state)
        device_manager.on_release = self.wake

    # -- life ----------------------------------------------------------------------------------

    async def prime(self) -> None:
        """Read the faults before anything is published."""
        if self._device_manager.inventory.devices:
            await self._refresh()

    async def _refresh(self) -> tuple[DeviceProcess, ...]:
        """Refresh the device state. Return the processes on the devices."""
        # The lock keeps an instance that is being created from counting as foreign.
        async with self._device_manager.mig_lock:
            state = await in_thread(self._read_driver)
            self._apply(state)
        self._read = state.utilization
        return state.processes

    async def run(self) -> None:
        """Check the devices until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._nvml is not None and self._device_manager.inventory.devices:
                group.create_task(self._listen_for_xids(), name="XIDs")
            while True:
                await self.check()
                await self._until_due()

    async def _until_due(self) -> None:
        """Wait for one period, or until an XID or the next eviction."""
        due = self._next_eviction()
        wait = self._period if due is None else min(self._period, max(0.05, due - self._clock.monotonic()))
        await sleep_or_wake(self._clock, wait, self._wake)
        self._wake.clear()

    def wake(self) -> None:
        """Check the devices at once."""
        self._wake.set()

    async def _listen_for_xids(self) -> None:
        """Listen for XIDs. After a failure it listens again when the driver is back."""
        assert self._nvml is not None
        while True:
            listener = XidListener(self._nvml)
            known = sorted(self._gpu_uuids())
            try:
                unsupported = await in_thread(listener.open, known)
                if unsupported:
                    _log.warning("the driver reports no XIDs of %s", ", ".join(unsupported))
                while True:
                    event = await in_thread(listener.wait)
                    if event is not None:
                        self.on_xid(*event)
            except self._nvml.error as error:
                _log.warning("listening for XIDs failed, retrying: %s", error)
            finally:
                listener.close()
            await self._clock.sleep(self._period)

    def _gpu_uuids(self) -> set[str]:
        """Return the UUIDs of the GPUs; for a slice that counts as a device, that of its GPU."""
        inventory = self._device_manager.inventory
        return {
            inventory.parents.get(device.uuid, device.uuid) for device in inventory.devices if device.uuid
        }

    def on_xid(self, device: str, code: int) -> None:
        """Store an XID. Without a device it counts for all devices."""
        for uuid in [device] if device else [known.uuid for known in self._device_manager.inventory.devices]:
            if self._faults.add(Xid(uuid, code, self._clock.now())):
                _log.warning("GPU %s: XID %d", uuid, code)
        self.wake()

    def clear(self, index: int, until: float) -> None:
        """Clear the faults of a device up to ``until`` (Unix seconds), as a user requested."""
        for device in self._device_manager.inventory.devices:
            if device.index != index:
                continue
            uuid = self._device_manager.inventory.parents.get(device.uuid, device.uuid)
            if self._faults.clear(uuid, until):
                self.record_event(False, "GPUCleared", f"the faults of GPU {index} were cleared")
                self.wake()
            left = self._faults.reasons().get(uuid)
            if left:
                message = (
                    f"GPU {index} reported {left} after {rfc3339_micro(until)}; only earlier faults "
                    "were cleared"
                )
                self.record_event(True, "GPUNotCleared", message)

    # -- check -------------------------------------------------------------------------------

    async def check(self) -> None:
        """Check the devices once: publish changes and evict pods at the end of their grace period."""
        pods = self.pods()
        await self._device_manager.sweep()
        processes = await self._refresh()
        held = self._device_manager.allocations.held
        self._findings = tuple(usage_audit.audit(processes, held))
        if self._nvml is not None:
            indices = {key: str(device.index) for key, device in self._device_manager.by_key.items()}
            self._use = usage_audit.rounded_use(processes, held, indices, self._use)
            self._utilization = utilization_note(self._read, held, self._clock.now(), self._utilization)
        for finding in self._findings:
            mark = (finding.device, finding.pod, finding.reason, finding.message)
            if mark not in self._reported:
                self.report(finding)
        self._reported = {(f.device, f.pod, f.reason, f.message) for f in self._findings}
        self.publish_state()
        self._evict_due(held, pods)

    def publish_state(self) -> None:
        use = json.dumps(self._use, separators=(",", ":")) if self._use else ""
        self.publish(published_of(self._device_manager, self._findings, use, self._utilization))

    def _read_driver(self) -> DriverState:
        """Read the state of the driver. Blocks, so it runs in a thread."""
        control = self._mps_control
        daemon = control.ensure() if control is not None else mps.find_daemon(self._environment)
        nvml = self._nvml
        if nvml is None:
            return DriverState(None, {}, (), daemon, {})
        options = self._options()
        known = self._device_manager.inventory
        indices = (
            {} if known.parents else {device.uuid: device.index for device in known.devices if device.uuid}
        )
        options = replace(options, mps=mps.may_connect(daemon), indices={**options.indices, **indices})
        try:
            current = discovery.inventory(nvml, options)
        except nvml.error as error:
            _log.warning("the driver refuses to list its GPUs: %s", error)
            current = self._list_after_reopen(nvml, options)
        faults = find_faults(nvml, sorted(self._gpu_uuids()))
        healthy = {
            key: device
            for key, device in self._device_manager.by_key.items()
            if device.uuid and device.uuid not in known.parents and device.uuid not in faults
        }
        processes = tuple(usage_audit.processes(nvml, healthy))
        return DriverState(current, faults, processes, daemon, read_utilization(nvml, healthy))

    def _list_after_reopen(self, nvml: Nvml, options: DiscoveryOptions) -> Inventory | None:
        """Open NVML again, which is necessary after the driver was reloaded, and list the devices."""
        try:
            nvml.reopen()
            return discovery.inventory(nvml, options)
        except nvml.error:
            return None

    def _apply(self, state: DriverState) -> None:
        """Update the devices with the state of the driver."""
        device_manager, store = self._device_manager, self._index_store
        if device_manager.daemon != state.daemon and device_manager.inventory.devices:
            _log.info("MPS: %s", state.daemon.directory or state.daemon.problem)
        device_manager.daemon = state.daemon
        before = device_manager.inventory
        expected = store.expected if store is not None and not self._primed else ()
        self._primed = True
        listed = before if state.inventory is None or not state.inventory.devices else state.inventory
        parents = {**before.parents, **listed.parents}
        gpus = [parents.get(device.uuid, device.uuid) for device in (*before.devices, *listed.devices)]
        faults = merge_faults(state.faults, self._faults.reasons(), gpus)
        merged = _merge((*expected, *before.devices), listed.devices, faults, parents)
        device_manager.inventory = replace(listed, devices=merged)
        if store is not None and not parents:
            store.write(merged)
        self._record_health_events(before.devices, merged)

    def _record_health_events(self, before: Sequence[DeviceRecord], now: Sequence[DeviceRecord]) -> None:
        known = {key_of(device): device.healthy for device in before}
        for device in now:
            key, name = key_of(device), f"GPU {device.index} ({device.model})"
            if device.healthy:
                self._unhealthy_since.pop(key, None)
                if known.get(key) is False:
                    self.record_event(False, "GPUHealthy", f"{name} is healthy again")
                continue
            self._unhealthy_since.setdefault(key, self._clock.monotonic())
            if known.get(key) is not False:
                self.record_event(True, "GPUUnhealthy", f"{name}: {device.reason}")

    # -- evictions ----------------------------------------------------------------------------

    def _due(self, held: Held, pods: Mapping[str, Mapping[str, Any]]) -> float | None:
        """Return when the pod is evicted from its device (monotonic seconds), or None for never."""
        since = self._unhealthy_since.get(held.hold.device)
        pod = pods.get(held.uid)
        if since is None or pod is None or held.uid in self._evicted:
            return None
        grace = grace_of(pod)
        return None if grace is None else since + grace

    def _next_eviction(self) -> float | None:
        pods = self.pods()
        due = [self._due(held, pods) for held in self._device_manager.allocations.held]
        return min((each for each in due if each is not None), default=None)

    def _evict_due(self, held: Sequence[Held], pods: Mapping[str, Mapping[str, Any]]) -> None:
        self._evicted &= set(pods)
        now = self._clock.monotonic()
        by_key = self._device_manager.by_key
        for each in held:
            due = self._due(each, pods)
            device = by_key.get(each.hold.device)
            if due is not None and due <= now and device is not None and each.uid not in self._evicted:
                self._evicted.add(each.uid)
                self.evict(each.uid, f"GPU {device.index} of this node is not healthy: {device.reason}")


def grace_of(pod: Mapping[str, Any]) -> float | None:
    """Return how long the pod may stay on an unhealthy device, in seconds. None: without limit.

    An invalid annotation counts as absent.
    """
    text = str((pod["metadata"].get("annotations") or {}).get(names.BAD_DEVICE_SECONDS, "")).strip()
    if text == FOREVER:
        return None
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 9 else DEFAULT_GRACE_SECONDS


def _merge(
    before: Sequence[DeviceRecord],
    now: Sequence[DeviceRecord],
    faults: Mapping[str, str],
    parents: Mapping[str, str],
) -> tuple[DeviceRecord, ...]:
    """Return the current devices with their health.

    A device that no longer responds has the record that was last known.
    """
    known = {key_of(device): device for device in before}
    merged: list[DeviceRecord] = []
    for device in now:
        if not device.uuid:
            old = known.get(key_of(device))
            device = altered(old, healthy=False, reason=device.reason) if old is not None else device
        reason = faults.get(parents.get(device.uuid, device.uuid), "")
        if reason or (device.uuid and device.healthy):
            device = altered(device, healthy=not reason, reason=reason)
        merged.append(device)
    present = {key_of(device) for device in now}
    for key, device in known.items():
        if key not in present:
            reason = faults.get(device.uuid) or "it has fallen off the bus"
            merged.append(altered(device, healthy=False, reason=reason))
    return tuple(sorted(merged, key=lambda device: (device.resource, device.index)))
