"""Cleanup after a killed agent, without an agent and without a server.

``windlass down`` calls it if the control plane was killed rather than stopped. Shims are stopped as
the agent stops them: they end their container and write its exit record, which the next agent
reports. Only processes that are recorded with pid, start time and boot are touched.
"""

from __future__ import annotations

import contextlib
import ipaddress
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from windlass.kits.clock import SystemClock
from windlass.kits.files import FileLock, unlink_if_exists, write_atomic
from windlass.kits.state import StateFolder
from windlass.modelcache.shared import memory_of
from windlass.node.devices import discovery, mps_control
from windlass.node.devices.mig_instances import MigInstanceFile, NvmlSlicer
from windlass.node.paths import NodePaths, attempt_numbers
from windlass.node.runtime import attempt_files
from windlass.node.sandbox import egress, network_namespace, pod_network, sandbox
from windlass.node.services.proxy import service_proxies

_SLACK_SECONDS = 3.0
_POLL_SECONDS = 0.02


def end_all(state: StateFolder, grace_seconds: float) -> list[int]:
    """End every shim, sandbox and helper of the directory. Return the pids that were still running.

    It does nothing while an agent uses the directory.
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
    shims = [(directory, record) for directory, record in _shims(paths) if attempt_files.is_running(record)]
    for directory, record in shims:
        with contextlib.suppress(OSError):  # a full disk: the wait below is its grace period
            write_atomic(directory / attempt_files.STOP, f"{grace_seconds:.3f}", durable=False)
        attempt_files.signal(record, signal.SIGTERM)
    _wait([record for _, record in shims], grace_seconds + _SLACK_SECONDS)
    ended = [record["pid"] for _, record in shims]
    for directory, record in shims:
        attempt_files.signal(record, signal.SIGKILL)
        attempt_files.kill_leftovers(str(directory))
    _wait([record for _, record in shims], _SLACK_SECONDS)
    for directory, name in _holders(paths):
        record = attempt_files.read(str(directory), name)
        unlink_if_exists(directory / name)  # it ends by itself without its record
        if record is not None and attempt_files.is_running(record):
            ended.append(record["pid"])
            _wait([record], _POLL_SECONDS)
            attempt_files.signal(record, signal.SIGKILL)
            _wait([record], _SLACK_SECONDS)
    ended += mps_control.stop_recorded(paths.root)
    _remove_nat(paths.root)
    _remove_mig_instances(paths)
    # Workers that were killed leave their models in memory.
    shutil.rmtree(memory_of(paths.models), ignore_errors=True)
    return ended


def _remove_mig_instances(paths: NodePaths) -> None:
    """Remove the agent's MIG instances, except those in use."""
    records = MigInstanceFile(paths.mig_instances)
    nvml = discovery.open_nvml() if records.instances else None
    if nvml is not None:
        try:
            NvmlSlicer(nvml, records).remove(())
        finally:
            nvml.close()


def _remove_nat(root: Path) -> None:
    """Remove the NAT rules of the pod network, if there are any."""
    plan, spec = (
        attempt_files.read(str(root), pod_network.PLAN),
        attempt_files.read(str(root), network_namespace.SPEC),
    )
    if plan and spec and spec.get("uplink"):
        egress.remove_nat(ipaddress.IPv4Network(plan["range"]), spec["uplink"])


def _shims(paths: NodePaths) -> Iterator[tuple[Path, dict[str, Any]]]:
    for containers in _directories(paths.pods):
        for attempts in _directories(containers / "containers"):
            for number in attempt_numbers(attempts):
                directory = attempts / str(number)
                claim = attempt_files.read(str(directory), attempt_files.CLAIM)
                if claim is not None:
                    yield directory, claim


def _holders(paths: NodePaths) -> Iterator[tuple[Path, str]]:
    """Yield the holders: sandboxes first, then the helpers of the network, then the pod network."""
    for pod in _directories(paths.pods):
        yield pod, sandbox.RECORD
    yield from service_proxies(paths.root)
    yield paths.root, egress.RECORD
    yield paths.root, network_namespace.RECORD


def _directories(parent: Path) -> list[Path]:
    try:
        return sorted(entry for entry in parent.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []


def _wait(records: list[dict[str, Any]], seconds: float) -> None:
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    while any(attempt_files.is_running(record) for record in records) and clock.monotonic() < deadline:
        clock.pause(_POLL_SECONDS)
