"""Sandbox of a pod, as the agent manages it.

The process that holds the namespaces is :mod:`windlass.node.sandbox.sandbox`.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from windlass.kits.files import unlink_if_exists
from windlass.node.pods.files.volumes import PodVolume
from windlass.node.runtime import attempt_files
from windlass.node.runtime.helpers import ForkServer, read_to_end, wait_exit
from windlass.node.sandbox import sandbox
from windlass.node.sandbox.pod_network import Network


class PodSandbox:
    """Namespaces of one pod.

    They are created when they are first needed, and found again after a restart of the agent.
    """

    def __init__(
        self,
        network: Network,
        fork_server: ForkServer,
        uid: str,
        directory: Path,
        spec: Mapping[str, Any],
        hostname: str,
    ) -> None:
        self._network = network
        self._fork_server = fork_server
        self._uid = uid
        self._directory = directory
        self._spec = spec
        self._hostname = hostname
        self._lock = asyncio.Lock()
        self._holder: dict[str, Any] | None = None
        """Last record of the holder. It allows to end the holder after the directory was removed."""

    @property
    def namespaces(self) -> list[str]:
        """Namespaces of the pod: those that the machine permits and the manifest does not opt out of."""
        allowed = self._network.capabilities.namespaces
        names = [name for name in ("net", "uts", "ipc", "mnt") if name in allowed]
        if self._spec.get("hostNetwork"):
            names = [name for name in names if name not in ("net", "uts")]
        if self._spec.get("hostIPC"):
            names = [name for name in names if name != "ipc"]
        return names

    async def ensure(self, volumes: Iterable[PodVolume]) -> dict[str, Any] | None:
        """Return the record of the running holder, or None if pods have no namespaces.

        Raises ``OSError``.
        """
        names = self.namespaces
        if not names:
            return None
        async with self._lock:
            record = attempt_files.read(str(self._directory), sandbox.RECORD)
            if not attempt_files.is_running(record):
                record = await self._create(names, volumes)
            self._holder = record
            return record

    async def _create(self, names: list[str], volumes: Iterable[PodVolume]) -> dict[str, Any]:
        network_holder = await self._network.ensure_namespace()
        box = None
        if network_holder is not None:
            box = {key: network_holder[key] for key in ("pid", "start_time", "user_namespace")}
        spec = {
            "directory": str(self._directory),
            "box": box,
            "namespaces": names,
            "hostname": self._hostname,
            "veth": self._veth() if "net" in names else None,
            "tmpfs": self._tmpfs(volumes) if "mnt" in names else [],
        }
        unlink_if_exists(self._directory / sandbox.RECORD)
        errors = self._directory / "sandbox.err"
        pid, reader = self._fork_server.start_helper(
            "windlass.node.sandbox.sandbox", json.dumps(spec), errors=errors
        )
        started = attempt_files.identity(pid)["start_time"]
        response = await read_to_end(reader)
        record = attempt_files.read(str(self._directory), sandbox.RECORD)
        if not response.startswith(b"s") or record is None:
            await wait_exit(pid, started)
            why = response[1:].decode(errors="replace") or _text(errors).strip()[-300:]
            raise OSError(why or "the sandbox process ended without an error message")
        return record

    def _tmpfs(self, volumes: Iterable[PodVolume]) -> list[dict[str, Any]]:
        shared = self._directory / "shm"
        shared.mkdir(exist_ok=True)
        memory = [v for v in volumes if v.memory]
        return [
            {"path": str(shared), "size_bytes": 0},
            *({"path": volume.source, "size_bytes": volume.size_bytes} for volume in memory),
        ]

    def _veth(self) -> dict[str, Any]:
        address = self._network.address(self._uid)
        third, fourth = address.split(".")[2:]
        return {
            "outside": f"pod{third}.{fourth}",
            "address": address,
            "prefix": self._network.prefix,
            "gateway": self._network.gateway,
        }

    async def end(self) -> None:
        """Kill the holder. Its namespaces end with the last process of the pod."""
        record = attempt_files.read(str(self._directory), sandbox.RECORD) or self._holder
        if record is not None and attempt_files.signal(record, signal.SIGKILL):
            await wait_exit(record["pid"], record["start_time"])


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except FileNotFoundError:
        return ""
