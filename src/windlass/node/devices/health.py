"""Which devices must get nothing new: fatal errors (XID), uncorrectable memory errors, devices that are gone.

Two kinds of findings. What can be asked at any time (memory errors since the driver was loaded, a row remapping
that failed, a device that does not answer) holds as long as it is so. An XID is said once: it is kept in
``health.json`` until the machine is rebooted or somebody clears the device.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from windlass.kits.files import write_atomic
from windlass.node.devices.nvml import Nvml, text

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Errors of the program, after which the device is well; those that NVIDIA's device plug-in leaves out too:
graphics engine exception, memory page fault, stopped processing, preemptive cleanup, video processor
exception, context switch timeout."""
_WAIT_MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class Xid:
    """A fatal error that the driver told. ``at``: Unix seconds."""

    card: str
    code: int
    at: float


class FaultRecords:
    """XIDs that were heard, by device. Those of an earlier boot count no more."""

    def __init__(self, path: Path, boot: str) -> None:
        self._path = path
        self._boot = boot
        self._xids: tuple[Xid, ...] = ()
        with contextlib.suppress(FileNotFoundError, ValueError):
            record = json.loads(path.read_bytes())
            if record.get("boot") == boot:
                self._xids = tuple(Xid(**entry) for entry in record.get("xids", ()))

    @property
    def xids(self) -> tuple[Xid, ...]:
        return self._xids

    def add(self, xid: Xid) -> bool:
        """False for one that is known of that device already."""
        if any((known.card, known.code) == (xid.card, xid.code) for known in self._xids):
            return False
        self._write((*self._xids, xid))
        return True

    def clear(self, card: str, until: float) -> bool:
        """Forget what a device said up to then; whether there was anything."""
        kept = tuple(xid for xid in self._xids if xid.card != card or xid.at > until)
        if len(kept) == len(self._xids):
            return False
        self._write(kept)
        return True

    def reasons(self) -> dict[str, str]:
        """Device → ``XID 79`` or ``XID 48, XID 79``."""
        found: dict[str, list[int]] = {}
        for xid in self._xids:
            found.setdefault(xid.card, []).append(xid.code)
        return {card: ", ".join(f"XID {code}" for code in sorted(codes)) for card, codes in found.items()}

    def _write(self, xids: tuple[Xid, ...]) -> None:
        record = {"boot": self._boot, "xids": [asdict(xid) for xid in xids]}
        write_atomic(self._path, json.dumps(record))
        self._xids = xids


def asked(nvml: Nvml, cards: Iterable[str]) -> dict[str, str]:
    """What is wrong with each of these devices (by UUID) now; those that are well are not in it. Blocks."""
    return {card: reason for card in cards if (reason := _ask(nvml, card))}


def _ask(nvml: Nvml, card: str) -> str:
    lib = nvml.library
    try:
        handle = lib.nvmlDeviceGetHandleByUUID(card)
        nvml.unknown(lambda: lib.nvmlDeviceGetMemoryInfo(handle), None)
        remapped = nvml.unknown(lambda: tuple(lib.nvmlDeviceGetRemappedRows(handle)), (0, 0, 0, 0))
        errors = nvml.unknown(
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
        return f"it does not answer: {error}"
    if remapped[3]:
        return "a failing memory row could not be remapped"
    if errors:
        return f"{errors} uncorrectable ECC error{'s' if errors > 1 else ''} since the driver was loaded"
    return ""


class XidListener:
    """The driver's event set. Every call blocks, at most a second."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._lib = nvml.library
        self._set: Any = None

    def open(self, cards: Sequence[str]) -> list[str]:
        """Listen to these devices; those that cannot be listened to. Raises the library's error."""
        lib = self._lib
        self._set = lib.nvmlEventSetCreate()
        deaf = []
        wanted = lib.nvmlEventTypeXidCriticalError | lib.nvmlEventTypeDoubleBitEccError
        for card in cards:
            try:
                handle = lib.nvmlDeviceGetHandleByUUID(card)
                kinds = lib.nvmlDeviceGetSupportedEventTypes(handle) & wanted
                lib.nvmlDeviceRegisterEvents(handle, kinds, self._set)
            except self._nvml.error:
                deaf.append(card)
        return deaf

    def close(self) -> None:
        if self._set is not None:
            events, self._set = self._set, None
            with contextlib.suppress(self._nvml.error):
                self._lib.nvmlEventSetFree(events)

    def wait(self) -> tuple[str, int] | None:
        """(device's UUID, XID) of the next error that is not a program's; None after a second without one.

        The UUID is empty where the driver does not say of which device it spoke: all may be meant. XID 0 stands
        for a double-bit ECC error. Raises the library's error for anything but a timeout.
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
            code = 48  # what the driver logs for it
        else:
            return None
        try:
            return text(lib.nvmlDeviceGetUUID(event.device)), code
        except self._nvml.error:
            return "", code


def reasons(now: Mapping[str, str], heard: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """Device → why it is not well, of both kinds of findings."""
    found = {}
    for card in known:
        words = [words for words in (heard.get(card, ""), now.get(card, "")) if words]
        if words:
            found[card] = "; ".join(words)
    return found
