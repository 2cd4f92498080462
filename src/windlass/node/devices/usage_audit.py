"""Audit of device usage: which processes use devices that were not allocated to them.

A process belongs to a pod if its environment has the mark of an attempt
(:data:`windlass.node.runtime.attempt_files.ATTEMPT_MARK`). All others are foreign, except the
MPS server.
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
"""Tolerance in MiB before a share counts as exceeded: contexts need memory of their own."""


@dataclass(frozen=True, slots=True)
class DeviceProcess:
    """Process on a device (``device``: its key in the allocations).

    ``pod``: its uid, or ``""`` for a foreign process. ``memory_mib``: −1 if the driver does not
    report it. ``instance``: its MIG GPU instance, or −1.
    """

    device: str
    pid: int
    pod: str
    name: str
    memory_mib: int
    instance: int = -1


@dataclass(frozen=True, slots=True)
class UsageFinding:
    """Use of a device without or beyond an allocation.

    ``pod``: uid of the using pod, or ``""`` for a foreign process. ``reason``: of the event.
    """

    device: str
    pod: str
    reason: str
    message: str


def processes(nvml: Nvml, devices: Mapping[str, DeviceRecord]) -> list[DeviceProcess]:
    """Return all compute processes on these devices (by key). Blocks."""
    lib = nvml.library
    listed: list[DeviceProcess] = []
    for key, device in devices.items():
        seen: set[int] = set()
        for query in (lib.nvmlDeviceGetComputeRunningProcesses, lib.nvmlDeviceGetMPSComputeRunningProcesses):
            try:
                running = nvml.optional(
                    lambda query=query, device=device: query(lib.nvmlDeviceGetHandleByUUID(device.uuid)), []
                )
            except nvml.error:
                continue  # the device is lost, which its health reports
            for process in running:
                pid = int(process.pid)
                if pid in seen:
                    continue
                seen.add(pid)
                used = process.usedGpuMemory
                instance = getattr(process, "gpuInstanceId", None)
                listed.append(
                    DeviceProcess(
                        key,
                        pid,
                        pod_of(pid),
                        name_of(pid),
                        -1 if used is None else int(used) // _MIB,
                        -1 if instance is None or int(instance) == 0xFFFFFFFF else int(instance),
                    )
                )
    return listed


def pod_of(pid: int) -> str:
    """Return the uid of the process's pod. Empty if it has none or has ended."""
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
    """Return the uses without or beyond an allocation. Pure.

    A foreign process on a device that no pod has is not reported.
    """
    holders: dict[str, list[Held]] = {}
    for each in held:
        holders.setdefault(each.hold.device, []).append(each)
    findings: dict[tuple[str, str, str], UsageFinding] = {}
    memory: dict[tuple[str, str], int] = {}
    for use in uses:
        own = [each for each in holders.get(use.device, ()) if each.uid == use.pod]
        if own:
            memory[use.device, use.pod] = memory.get((use.device, use.pod), 0) + max(0, use.memory_mib)
            continue
        finding = _foreign_use(use, holders.get(use.device, []))
        if finding is not None:
            findings.setdefault((finding.device, finding.pod, finding.reason), finding)
    for (device, pod), mib in memory.items():
        shares = [each.hold for each in holders[device] if each.uid == pod]
        limit = sum(share.memory_mib for share in shares)
        bounded = shares and all(share.memory_mib and not share.profile for share in shares)
        if bounded and mib > limit + _SLACK_MIB:
            message = f"uses {mib} MiB of GPU {device}, but its share is {limit} MiB"
            findings[device, pod, "DeviceShareExceeded"] = UsageFinding(
                device, pod, "DeviceShareExceeded", message
            )
    return [findings[key] for key in sorted(findings)]


def rounded_use(
    uses: Iterable[DeviceProcess],
    held: Iterable[Held],
    indices: Mapping[str, str],
    before: Mapping[str, Mapping[str, int]],
) -> dict[str, dict[str, int]]:
    """Return the memory in MiB of each pod on each device that it shares, by index. Pure.

    ``indices``: key of a device → its index. ``before``: the last result. A value close
    to the last one is kept, so that the node is not written at each check.
    """
    memory: dict[tuple[str, str], int] = {}
    for use in uses:
        memory[use.device, use.pod] = memory.get((use.device, use.pod), 0) + max(0, use.memory_mib)
    found: dict[str, dict[str, int]] = {}
    for each in held:
        index = indices.get(each.hold.device)
        if index is None or each.hold.profile or not (each.hold.milli or each.hold.memory_mib):
            continue
        used, last = memory.get((each.hold.device, each.uid), 0), before.get(index, {}).get(each.pod)
        close = last is not None and abs(used - last) < _SLACK_MIB and bool(used) == bool(last)
        found.setdefault(index, {})[each.pod] = last if close and last is not None else used
    return found


def _foreign_use(use: DeviceProcess, holders: list[Held]) -> UsageFinding | None:
    if use.name.startswith(_MPS_SERVER):
        return None
    process = f"process {use.pid} ({use.name or 'unknown'})"
    if use.pod:
        message = f"{process} uses GPU {use.device}, which is not allocated to this pod"
        return UsageFinding(use.device, use.pod, "DeviceNotGiven", message)
    if not holders:
        return None
    pods = ", ".join(sorted({each.pod for each in holders}))
    message = f"{process} belongs to no pod and uses GPU {use.device}, which is allocated to {pods}"
    return UsageFinding(use.device, "", "ForeignProcess", message)
