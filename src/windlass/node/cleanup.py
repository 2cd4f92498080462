"""Ending what a killed agent left behind, without an agent and without a server.

``windlass down`` calls this after the control plane was killed rather than stopped. Shims are asked as the
agent asks them, so that they end their container and write its exit record; the next agent then reports
the truth. Nothing is touched that is not recorded with pid, start time and boot.
"""

from __future__ import annotations

import contextlib
import ipaddress
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from windlass.kits.clock import SystemClock
from windlass.kits.files import FileLock, unlink_if_exists, write_atomic
from windlass.kits.state import StateFolder
from windlass.node.devices import discovery
from windlass.node.devices.mig_instances import MigInstanceFile, NvmlSlicer
from windlass.node.paths import NodePaths, numbers
from windlass.node.runtime import attempt_files
from windlass.node.sandbox import egress, network_namespace, pod_network, sandbox

_SLACK_SECONDS = 3.0
_LOOK_SECONDS = 0.02


def end_all(state: StateFolder, grace_seconds: float) -> list[int]:
    """End every shim, sandbox and helper of the folder; the pids that were still there.

    Does nothing while an agent works on the folder: it looks after them itself.
    """
    root = state.node
    if not root.is_dir():
        return []
    lock = FileLock(root / "lock")
    if not lock.acquire():
        return []
    try:
        return _end_all(NodePaths(root), grace_seconds)
    finally:
        lock.release()


def _end_all(paths: NodePaths, grace_seconds: float) -> list[int]:
    shims = [(folder, record) for folder, record in _shims(paths) if attempt_files.is_running(record)]
    for folder, record in shims:
        with contextlib.suppress(OSError):  # a full disk: it has as long as we wait here
            write_atomic(folder / attempt_files.STOP, f"{grace_seconds:.3f}", durable=False)
        attempt_files.signal(record, signal.SIGTERM)
    _wait([record for _, record in shims], grace_seconds + _SLACK_SECONDS)
    ended = [record["pid"] for _, record in shims]
    for folder, record in shims:
        attempt_files.signal(record, signal.SIGKILL)
        attempt_files.signal(attempt_files.read(str(folder), attempt_files.PROCESS), signal.SIGKILL)
    for folder, name in _holders(paths):
        record = attempt_files.read(str(folder), name)
        unlink_if_exists(folder / name)  # it leaves by itself when its record is gone
        if record is not None and attempt_files.is_running(record):
            ended.append(record["pid"])
            _wait([record], _LOOK_SECONDS)
            attempt_files.signal(record, signal.SIGKILL)
            _wait([record], _SLACK_SECONDS)
    _end_translation(paths.root)
    _remove_slices(paths)
    return ended


def _remove_slices(paths: NodePaths) -> None:
    """Remove the MIG instances that the agent made, those that something runs in excepted."""
    made = MigInstanceFile(paths.slices)
    nvml = discovery.open_nvml() if made.made else None
    if nvml is not None:
        try:
            NvmlSlicer(nvml, made).remove(())
        finally:
            nvml.close()


def _end_translation(root: Path) -> None:
    """Take back the machine's NAT rules for the box, if there were any."""
    plan, spec = (
        attempt_files.read(str(root), pod_network.PLAN),
        attempt_files.read(str(root), network_namespace.SPEC),
    )
    if plan and spec and spec.get("uplink"):
        egress.remove_nat(ipaddress.IPv4Network(plan["range"]), spec["uplink"])


def _shims(paths: NodePaths) -> Iterator[tuple[Path, dict[str, Any]]]:
    for containers in _folders(paths.pods):
        for attempts in _folders(containers / "containers"):
            for number in numbers(attempts):
                folder = attempts / str(number)
                claim = attempt_files.read(str(folder), attempt_files.CLAIM)
                if claim is not None:
                    yield folder, claim


def _holders(paths: NodePaths) -> Iterator[tuple[Path, str]]:
    """Sandboxes first, then the way out, then the box that they all live in."""
    for pod in _folders(paths.pods):
        yield pod, sandbox.RECORD
    yield paths.root, egress.RECORD
    yield paths.root, network_namespace.RECORD


def _folders(parent: Path) -> list[Path]:
    try:
        return sorted(entry for entry in parent.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []


def _wait(found: list[dict[str, Any]], seconds: float) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    while any(attempt_files.is_running(record) for record in found) and clock.monotonic() < deadline:
        clock.pause(_LOOK_SECONDS)
