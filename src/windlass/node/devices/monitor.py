"""Looking after the devices: health, who uses them, MPS, slices of pods that are gone; telling it, moving work away.

A look every few seconds, and at once when the driver tells an XID. What is found goes into the node's record of
its devices (:mod:`windlass.api.devices.node_annotation`), two conditions of the Node, and events. Pods on a device that
went bad are evicted after their grace, so that their controllers start them elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec.structs import replace as altered

from windlass.api import annotations
from windlass.api.devices import node_annotation
from windlass.api.devices.node_annotation import DeviceRecord
from windlass.kits.clock import Clock
from windlass.kits.tasks import sleep_or_wake
from windlass.kits.timestamps import rfc3339_micro
from windlass.node.devices import labels, mps, usage_audit
from windlass.node.devices.allocations import Held
from windlass.node.devices.discovery import DiscoveryOptions, Inventory, inventory, key_of
from windlass.node.devices.health import FaultRecords, Xid, XidListener, asked, reasons
from windlass.node.devices.index_store import DeviceIndexStore
from windlass.node.devices.manager import DeviceManager
from windlass.node.devices.nvml import Nvml
from windlass.node.devices.usage_audit import DeviceProcess, UsageFinding
from windlass.node.runtime.threads import in_thread

HEALTHY, AS_GIVEN = "GPUsHealthy", "GPUsUsedAsGiven"
"""Types of the Node's conditions."""
DEFAULT_GRACE_SECONDS = 30.0
FOREVER = "forever"
_log = logging.getLogger("windlass.node")


@dataclass(frozen=True, slots=True)
class DriverState:
    """What one look at the driver showed. ``found`` None: the devices are as they were."""

    found: Inventory | None
    wrong: Mapping[str, str]
    uses: tuple[DeviceProcess, ...]
    daemon: mps.Daemon


@dataclass(frozen=True, slots=True)
class PublishedDevices:
    """What is published: labels (those of ``aliases`` only where the node has none), annotations, amounts."""

    labels: Mapping[str, str]
    aliases: Mapping[str, str]
    annotations: Mapping[str, str]
    amounts: Mapping[str, int]
    conditions: tuple[Mapping[str, str], ...]


def published_of(device_manager: DeviceManager, findings: Sequence[UsageFinding] = ()) -> PublishedDevices:
    """The node's words about its devices. Pure."""
    found = device_manager.inventory
    notes = [found.note] if found.note else []
    if device_manager.daemon.runs and any(card.mps for card in found.cards):
        notes.append(f"shares are enforced by MPS ({device_manager.daemon.directory})")
    words = {
        annotations.DEVICES_NOTE: "; ".join(notes),
        **annotations.both(
            annotations.NODE_DEVICES, node_annotation.write(found.cards) if found.cards else ""
        ),
    }
    sick = [card for card in found.cards if not card.healthy]
    health = _condition(
        HEALTHY,
        not sick,
        "CardsHealthy" if not sick else "CardUnhealthy",
        "all GPUs are well" if not sick else "; ".join(f"GPU {card.index}: {card.reason}" for card in sick),
    )
    used = _condition(
        AS_GIVEN,
        not findings,
        "NothingElse" if not findings else findings[0].reason,
        "no process uses a GPU that it was not given"
        if not findings
        else "; ".join(finding.message for finding in findings),
    )
    return PublishedDevices(
        found.labels,
        labels.aliases(found.cards),
        words,
        found.amounts,
        (health, used) if found.cards else (),
    )


def _condition(kind: str, good: bool, reason: str, message: str) -> dict[str, str]:
    return {"type": kind, "status": "True" if good else "False", "reason": reason, "message": message}


class DeviceMonitor:
    """One per agent. ``publish`` takes what is to be told; ``report`` a finding; ``evict`` a pod's uid and why."""

    def __init__(
        self,
        device_manager: DeviceManager,
        clock: Clock,
        *,
        nvml: Nvml | None,
        faults: FaultRecords,
        wishes: Callable[[], DiscoveryOptions],
        environment: Mapping[str, str],
        period_seconds: float,
        memory: DeviceIndexStore | None = None,
    ) -> None:
        self._device_manager = device_manager
        self._clock = clock
        self._nvml = nvml
        self._faults = faults
        self._wishes = wishes
        self._environment = environment
        self._period = period_seconds
        self._memory = memory
        self._wake = asyncio.Event()
        self._sick_since: dict[str, float] = {}
        self._evicted: set[str] = set()
        self._reported: set[tuple[str, str, str, str]] = set()
        self.publish: Callable[[PublishedDevices], None] = lambda _: None
        self.report: Callable[[UsageFinding], None] = lambda _: None
        self.say: Callable[[bool, str, str], None] = lambda _warning, _reason, _message: None
        self.evict: Callable[[str, str], None] = lambda _uid, _why: None
        self.pods: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
        """uid → pod, of those on this machine."""
        self._findings: tuple[UsageFinding, ...] = ()
        self._primed = False
        device_manager.on_change(self.tell)
        device_manager.released = self.wake

    # -- life ----------------------------------------------------------------------------------

    async def prime(self) -> None:
        """Know of faults before anything is told of the devices."""
        if self._device_manager.inventory.cards:
            await self._list()

    async def _list(self) -> tuple[DeviceProcess, ...]:
        """Bring what is known up to date; the processes on the devices."""
        async with (
            self._device_manager.carving
        ):  # an instance that is being made would seem to be somebody else's
            seen = await in_thread(self._ask)
            self._take(seen)
        return seen.uses

    async def run(self) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._nvml is not None and self._device_manager.inventory.cards:
                group.create_task(self._listen(), name="XIDs")
            while True:
                await self.look()
                await self._until_due()

    async def _until_due(self) -> None:
        """A period, or less: until an XID, or until the next pod has to go."""
        due = self._next_eviction()
        wait = self._period if due is None else min(self._period, max(0.05, due - self._clock.monotonic()))
        await sleep_or_wake(self._clock, wait, self._wake)
        self._wake.clear()

    def wake(self) -> None:
        """Look at once."""
        self._wake.set()

    async def _listen(self) -> None:
        """Hear XIDs; a driver that goes away is listened to again when it is back."""
        assert self._nvml is not None
        while True:
            listener = XidListener(self._nvml)
            parents = self._device_manager.inventory.parents
            known = sorted(
                {
                    parents.get(card.uuid, card.uuid)
                    for card in self._device_manager.inventory.cards
                    if card.uuid
                }
            )
            try:
                deaf = await in_thread(listener.open, known)
                if deaf:
                    _log.warning("the driver tells no errors of %s", ", ".join(deaf))
                while True:
                    heard = await in_thread(listener.wait)
                    if heard is not None:
                        self.heard(*heard)
            except self._nvml.error as error:
                _log.warning("the driver's errors cannot be heard: %s", error)
            finally:
                listener.close()
            await self._clock.sleep(self._period)

    def heard(self, card: str, code: int) -> None:
        """An XID of a device; of all of them where the driver does not say of which."""
        for uuid in [card] if card else [known.uuid for known in self._device_manager.inventory.cards]:
            if self._faults.add(Xid(uuid, code, self._clock.now())):
                _log.warning("GPU %s: XID %d", uuid, code)
        self.wake()

    def clear(self, index: int, until: float) -> None:
        """Somebody says that the device is well: what it said up to then counts no more."""
        for card in self._device_manager.inventory.cards:
            if card.index != index:
                continue
            uuid = self._device_manager.inventory.parents.get(card.uuid, card.uuid)
            if self._faults.clear(uuid, until):
                self.say(False, "GPUCleared", f"GPU {index} was declared well")
                self.wake()
            left = self._faults.reasons().get(uuid)
            if left:
                said = (
                    f"GPU {index} told {left} after {rfc3339_micro(until)}, up to when it was declared well"
                )
                self.say(True, "GPUNotCleared", said)

    # -- looking -------------------------------------------------------------------------------

    async def look(self) -> None:
        """Look once, tell what changed, evict what is due."""
        pods = self.pods()
        await self._device_manager.sweep()
        uses = await self._list()
        held = self._device_manager.allocations.held
        self._findings = tuple(usage_audit.audit(uses, held))
        for finding in self._findings:
            mark = (finding.device, finding.pod, finding.reason, finding.message)
            if mark not in self._reported:
                self.report(finding)
        self._reported = {(f.device, f.pod, f.reason, f.message) for f in self._findings}
        self.tell()
        self._evict_due(held, pods)

    def tell(self) -> None:
        self.publish(published_of(self._device_manager, self._findings))

    def _ask(self) -> DriverState:
        """Everything that blocks; in a thread."""
        daemon = mps.find_daemon(self._environment)
        nvml = self._nvml
        if nvml is None:
            return DriverState(None, {}, (), daemon)
        wishes = self._wishes()
        now = self._device_manager.inventory
        numbers = {} if now.parents else {card.uuid: card.index for card in now.cards if card.uuid}
        wishes = replace(wishes, mps=mps.may_connect(daemon), numbers={**wishes.numbers, **numbers})
        try:
            found = inventory(nvml, wishes)
        except nvml.error as error:
            _log.warning("the driver refuses to list its GPUs: %s", error)
            found = self._ask_anew(nvml, wishes)
        parents = self._device_manager.inventory.parents
        known = {
            parents.get(card.uuid, card.uuid) for card in self._device_manager.inventory.cards if card.uuid
        }
        wrong = asked(nvml, sorted(known))
        well = {
            name: card
            for name, card in self._device_manager.by_key.items()
            if card.uuid and card.uuid not in parents
        }
        uses = usage_audit.processes(nvml, {n: c for n, c in well.items() if c.uuid not in wrong})
        return DriverState(found, wrong, tuple(uses), daemon)

    def _ask_anew(self, nvml: Nvml, wishes: DiscoveryOptions) -> Inventory | None:
        """After the driver was loaded anew, NVML has to be opened anew."""
        try:
            nvml.reopen()
            return inventory(nvml, wishes)
        except nvml.error:
            return None

    def _take(self, seen: DriverState) -> None:
        """Bring what is known up to date."""
        device_manager = self._device_manager
        if device_manager.daemon != seen.daemon and device_manager.inventory.cards:
            _log.info("MPS: %s", seen.daemon.directory or seen.daemon.problem)
        device_manager.daemon = seen.daemon
        before = device_manager.inventory
        expected = self._memory.expected if self._memory is not None and not self._primed else ()
        self._primed = True
        found = before if seen.found is None or not seen.found.cards else seen.found
        heard = self._faults.reasons()
        parents = {**before.parents, **found.parents}
        own = [parents.get(card.uuid, card.uuid) for card in (*before.cards, *found.cards)]
        sick = reasons(seen.wrong, heard, own)
        known = (*expected, *before.cards)
        device_manager.inventory = replace(found, cards=_merged(known, found.cards, sick, parents))
        if self._memory is not None and not parents:
            self._memory.keep(device_manager.inventory.cards)
        self._tell_health(before.cards, device_manager.inventory.cards)

    def _tell_health(self, before: Sequence[DeviceRecord], now: Sequence[DeviceRecord]) -> None:
        known = {key_of(card): card.healthy for card in before}
        for card in now:
            name = key_of(card)
            if card.healthy:
                self._sick_since.pop(name, None)
                if known.get(name) is False:
                    self.say(False, "GPUHealthy", f"GPU {card.index} ({card.model}) is well again")
                continue
            self._sick_since.setdefault(name, self._clock.monotonic())
            if known.get(name) is not False:
                self.say(True, "GPUUnhealthy", f"GPU {card.index} ({card.model}): {card.reason}")

    # -- moving work away ----------------------------------------------------------------------

    def _due(self, held: Held, pods: Mapping[str, Mapping[str, Any]]) -> float | None:
        """When the pod has to leave its device (monotonic seconds); None: never."""
        since = self._sick_since.get(held.claim.device)
        pod = pods.get(held.uid)
        if since is None or pod is None or held.uid in self._evicted:
            return None
        grace = grace_of(pod)
        return None if grace is None else since + grace

    def _next_eviction(self) -> float | None:
        pods = self.pods()
        due = [self._due(held, pods) for held in self._device_manager.allocations.held]
        return min((moment for moment in due if moment is not None), default=None)

    def _evict_due(self, held: Sequence[Held], pods: Mapping[str, Mapping[str, Any]]) -> None:
        self._evicted &= set(pods)
        now = self._clock.monotonic()
        by_key = self._device_manager.by_key
        for each in held:
            due = self._due(each, pods)
            card = by_key.get(each.claim.device)
            if due is not None and due <= now and card is not None and each.uid not in self._evicted:
                self._evicted.add(each.uid)
                self.evict(each.uid, f"GPU {card.index} of this node is not healthy: {card.reason}")


def grace_of(pod: Mapping[str, Any]) -> float | None:
    """How long the pod stays on a device that went bad, in seconds; None: for ever. What cannot be read counts
    as nothing said."""
    text = str((pod["metadata"].get("annotations") or {}).get(annotations.BAD_DEVICE_SECONDS, "")).strip()
    if text == FOREVER:
        return None
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 9 else DEFAULT_GRACE_SECONDS


def _merged(
    before: Sequence[DeviceRecord],
    now: Sequence[DeviceRecord],
    sick: Mapping[str, str],
    parents: Mapping[str, str],
) -> tuple[DeviceRecord, ...]:
    """The devices as they are now, with their health; one that answers no more is told by what was known of it."""
    known = {key_of(card): card for card in before}
    found: list[DeviceRecord] = []
    for card in now:
        if not card.uuid:
            old = known.get(key_of(card))
            card = altered(old, healthy=False, reason=card.reason) if old is not None else card
        reason = sick.get(parents.get(card.uuid, card.uuid), "")
        if reason or (card.uuid and card.healthy):
            card = altered(card, healthy=not reason, reason=reason)
        found.append(card)
    present = {key_of(card) for card in now}
    for name, card in known.items():
        if name not in present:
            reason = sick.get(card.uuid) or "it has fallen off the bus"
            found.append(altered(card, healthy=False, reason=reason))
    return tuple(sorted(found, key=lambda card: (card.resource, card.index)))
