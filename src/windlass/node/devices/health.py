"""Health of devices: fatal errors (XIDs), uncorrectable memory errors, lost devices.

There are two kinds of faults. Some can be queried at any time: memory errors since the driver
was loaded, a failed row remapping, a device that does not respond. They hold as long as the query
reports them. An XID is reported once. It is stored in ``health.json`` until the machine is
rebooted or a user clears the device.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.kits.files import write_atomic
from windlass.node.devices.nvml import Nvml, text

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs of application errors, after which the device is healthy.

NVIDIA's device plugin ignores the same: graphics engine exception, memory page fault, stopped
processing, preemptive cleanup, video processor exception, context switch timeout.
"""
_WAIT_MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class Xid:
    """Fatal error that the driver reported. ``at``: Unix seconds."""

    device: str
    code: int
    at: float


class FaultRecords:
    """Stored XIDs of this boot."""

    def __init__(self, path: Path, boot: str) -> None:
        self._path = path
        self._boot = boot
        self._xids: tuple[Xid, ...] = ()
        with contextlib.suppress(FileNotFoundError, ValueError):
            record = json.loads(path.read_bytes())
            if record.get("boot") == boot:
                self._xids = tuple(
                    Xid(entry["card"], entry["code"], entry["at"]) for entry in record.get("xids", ())
                )

    @property
    def xids(self) -> tuple[Xid, ...]:
        return self._xids

    def add(self, xid: Xid) -> bool:
        """Store an XID. Return False if it is already known of that device."""
        if any((known.device, known.code) == (xid.device, xid.code) for known in self._xids):
            return False
        self._write((*self._xids, xid))
        return True

    def clear(self, device: str, until: float) -> bool:
        """Remove the XIDs of a device up to ``until`` (Unix seconds). Return whether there were any."""
        retained = tuple(xid for xid in self._xids if xid.device != device or xid.at > until)
        if len(retained) == len(self._xids):
            return False
        self._write(retained)
        return True

    def reasons(self) -> dict[str, str]:
        """Return device → ``XID 79`` or ``XID 48, XID 79``."""
        codes: dict[str, list[int]] = {}
        for xid in self._xids:
            codes.setdefault(xid.device, []).append(xid.code)
        return {
            device: ", ".join(f"XID {code}" for code in sorted(listed)) for device, listed in codes.items()
        }

    def _write(self, xids: tuple[Xid, ...]) -> None:
        record = {
            "boot": self._boot,
            "xids": [{"card": xid.device, "code": xid.code, "at": xid.at} for xid in xids],
        }
        write_atomic(self._path, json.dumps(record))
        self._xids = xids


def find_faults(nvml: Nvml, devices: Iterable[str]) -> dict[str, str]:
    """Return device → its current fault, by UUID. Healthy devices are left out. Blocks."""
    return {device: fault for device in devices if (fault := _find_fault(nvml, device))}


def _find_fault(nvml: Nvml, device: str) -> str:
    lib = nvml.library
    try:
        handle = lib.nvmlDeviceGetHandleByUUID(device)
        nvml.optional(lambda: lib.nvmlDeviceGetMemoryInfo(handle), None)
        remapped = nvml.optional(lambda: tuple(lib.nvmlDeviceGetRemappedRows(handle)), (0, 0, 0, 0))
        errors = nvml.optional(
            lambda: int(
                lib.nvmlDeviceGetTotalEccErrors(
                    handle, lib.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, lib.NVML_VOLATILE_ECC
                )
            ),
            0,
        )
    except nvml.error as error:
        code = nvml.code(error)
        if code in (lib.NVML_ERROR_GPU_IS_LOST, lib.NVML_ERROR_NOT_FOUND):
            return "it has fallen off the bus"
        if code == lib.NVML_ERROR_RESET_REQUIRED:
            return "it needs a reset"
        return f"it does not respond: {error}"
    if remapped[3]:
        return "a failing memory row could not be remapped"
    if errors:
        return f"{errors} uncorrectable ECC error{'s' if errors > 1 else ''} since the driver was loaded"
    return ""


class XidListener:
    """Listener for XIDs. Every call blocks for at most a second."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._lib = nvml.library
        self._set: Any = None

    def open(self, devices: Sequence[str]) -> list[str]:
        """Listen to these devices. Return those that do not support it.

        Raises the library's error.
        """
        lib = self._lib
        self._set = lib.nvmlEventSetCreate()
        unsupported = []
        wanted = lib.nvmlEventTypeXidCriticalError | lib.nvmlEventTypeDoubleBitEccError
        for device in devices:
            try:
                handle = lib.nvmlDeviceGetHandleByUUID(device)
                kinds = lib.nvmlDeviceGetSupportedEventTypes(handle) & wanted
                lib.nvmlDeviceRegisterEvents(handle, kinds, self._set)
            except self._nvml.error:
                unsupported.append(device)
        return unsupported

    def close(self) -> None:
        if self._set is not None:
            events, self._set = self._set, None
            with contextlib.suppress(self._nvml.error):
                self._lib.nvmlEventSetFree(events)

    def wait(self) -> tuple[str, int] | None:
        """Return UUID and XID of the next error, or None after a second without one.

        Application errors are skipped. The UUID is empty if the driver does not name the device: then
        all may be affected. A double-bit ECC error counts as XID 48. Raises the library's error
        for anything but a timeout.
        """
        lib = self._lib
        try:
            event = lib.nvmlEventSetWait_v2(self._set, _WAIT_MILLISECONDS)
        except self._nvml.error as error:
            if self._nvml.code(error) == lib.NVML_ERROR_TIMEOUT:
                return None
            raise
        kind = int(event.eventType)
        if kind == lib.nvmlEventTypeXidCriticalError:
            code = int(event.eventData)
            if code in APPLICATION_XIDS:
                return None
        elif kind == lib.nvmlEventTypeDoubleBitEccError:
            code = 48  # the XID that the driver logs for it
        else:
            return None
        try:
            return text(lib.nvmlDeviceGetUUID(event.device)), code
        except self._nvml.error:
            return "", code


def merge_faults(
    current: Mapping[str, str], xids: Mapping[str, str], devices: Iterable[str]
) -> dict[str, str]:
    """Return device → its faults of both kinds."""
    merged = {}
    for device in devices:
        faults = [fault for fault in (xids.get(device, ""), current.get(device, "")) if fault]
        if faults:
            merged[device] = "; ".join(faults)
    return merged
