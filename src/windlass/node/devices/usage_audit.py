"""After the fact: which processes really use which device, and whether they were given it.

A process belongs to a pod by the mark that every process of an attempt carries in its environment
(:data:`windlass.node.runtime.attempt_files.ATTEMPT_MARK`). The rest is foreign, but for MPS' own server.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from windlass.api.devices.node_annotation import DeviceRecord
from windlass.node.devices.allocations import Held
from windlass.node.devices.nvml import Nvml
from windlass.node.runtime.attempt_files import ATTEMPT_MARK

_MIB = 2**20
_MPS_SERVER = "nvidia-cuda-mps"
_SLACK_MIB = 64
"""What a context's own bookkeeping may differ by before a share counts as exceeded."""


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """A process on a device (``device``: its name in the ledger). ``pod``: its uid, ``""`` for a foreign one.

    ``memory_mib`` −1: the driver does not tell. ``instance``: the MIG GPU instance it runs in, −1 without.
    """

    device: str
    pid: int
    pod: str
    name: str
    memory_mib: int
    instance: int = -1


@dataclass(frozen=True, slots=True)
class UsageFinding:
    """Something is used otherwise than it was given. ``pod``: the uid of the pod that does it, ``""`` for a
    process from outside; ``reason`` is an event's."""

    device: str
    pod: str
    reason: str
    message: str


def processes(nvml: Nvml, cards: Mapping[str, DeviceRecord]) -> list[DeviceProcess]:
    """All compute processes on these devices (by name in the ledger). Blocks."""
    lib = nvml.library
    found: list[DeviceProcess] = []
    for device, card in cards.items():
        seen: set[int] = set()
        for ask in (lib.nvmlDeviceGetComputeRunningProcesses, lib.nvmlDeviceGetMPSComputeRunningProcesses):
            try:
                listed = nvml.unknown(
                    lambda ask=ask, card=card: ask(lib.nvmlDeviceGetHandleByUUID(card.uuid)), []
                )
            except nvml.error:
                continue  # the device is lost: its health says so
            for process in listed:
                pid = int(process.pid)
                if pid in seen:
                    continue
                seen.add(pid)
                used = process.usedGpuMemory
                instance = getattr(process, "gpuInstanceId", None)
                found.append(
                    DeviceProcess(
                        device,
                        pid,
                        pod_of(pid),
                        name_of(pid),
                        -1 if used is None else int(used) // _MIB,
                        -1 if instance is None or int(instance) == 0xFFFFFFFF else int(instance),
                    )
                )
    return found


def pod_of(pid: int) -> str:
    """The uid of the pod that a process belongs to; ``""`` for one that is none's, or has ended."""
    prefix = f"{ATTEMPT_MARK}=".encode()
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    for entry in entries:
        if entry.startswith(prefix):
            return os.fsdecode(entry[len(prefix) :]).split("/", 1)[0]
    return ""


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def audit(uses: Iterable[DeviceProcess], held: Iterable[Held]) -> list[UsageFinding]:
    """What is used otherwise than it was given. Pure.

    A process of the machine on a device that no pod has is nobody's business here.
    """
    holders: dict[str, list[Held]] = {}
    for each in held:
        holders.setdefault(each.claim.device, []).append(each)
    found: dict[tuple[str, str, str], UsageFinding] = {}
    memory: dict[tuple[str, str], int] = {}
    for use in uses:
        own = [each for each in holders.get(use.device, ()) if each.uid == use.pod]
        if own:
            memory[use.device, use.pod] = memory.get((use.device, use.pod), 0) + max(0, use.memory_mib)
            continue
        finding = _stranger(use, holders.get(use.device, []))
        if finding is not None:
            found.setdefault((finding.device, finding.pod, finding.reason), finding)
    for (device, pod), mib in memory.items():
        shares = [e.claim for e in holders[device] if e.uid == pod]
        limit = sum(claim.memory_mib for claim in shares)
        bounded = shares and all(claim.memory_mib and not claim.profile for claim in shares)
        if bounded and mib > limit + _SLACK_MIB:
            words = f"uses {mib} MiB of device {device}, of which it has {limit} MiB"
            found[device, pod, "DeviceShareExceeded"] = UsageFinding(
                device, pod, "DeviceShareExceeded", words
            )
    return [found[key] for key in sorted(found)]


def _stranger(use: DeviceProcess, holders: list[Held]) -> UsageFinding | None:
    if use.name.startswith(_MPS_SERVER):
        return None
    what = f"process {use.pid} ({use.name or 'unknown'})"
    if use.pod:
        words = f"{what} uses device {use.device}, which this pod was not given"
        return UsageFinding(use.device, use.pod, "DeviceNotGiven", words)
    if not holders:
        return None
    pods = ", ".join(sorted({each.pod for each in holders}))
    words = f"{what} is of no pod and uses device {use.device}, which {pods} was given"
    return UsageFinding(use.device, "", "ForeignProcess", words)
