"""The agent's side of a pod's sandbox (:mod:`windlass.node.sandbox.sandbox` is the process that holds it)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from windlass.kits.files import unlink_if_exists
from windlass.node.pods.volumes import PodVolume
from windlass.node.runtime import attempt_files
from windlass.node.runtime.helpers import ForkServer, read_to_end, wait_exit
from windlass.node.sandbox import sandbox
from windlass.node.sandbox.pod_network import Network


class PodSandbox:
    """Namespaces of one pod: made when they are first needed, found again after a restart of the agent."""

    def __init__(
        self,
        network: Network,
        fork_server: ForkServer,
        uid: str,
        folder: Path,
        spec: Mapping[str, Any],
        hostname: str,
    ) -> None:
        self._network = network
        self._fork_server = fork_server
        self._uid = uid
        self._folder = folder
        self._spec = spec
        self._hostname = hostname
        self._lock = asyncio.Lock()
        self._held: dict[str, Any] | None = None
        """The holder as last seen, to end it also when the folder was removed."""

    @property
    def namespaces(self) -> list[str]:
        """What the pod has of its own: what the machine permits, less what the manifest opts out of."""
        allowed = self._network.capabilities.namespaces
        names = [name for name in ("net", "uts", "ipc", "mnt") if name in allowed]
        if self._spec.get("hostNetwork"):
            names = [name for name in names if name not in ("net", "uts")]
        if self._spec.get("hostIPC"):
            names = [name for name in names if name != "ipc"]
        return names

    async def ensure(self, volumes: Iterable[PodVolume]) -> dict[str, Any] | None:
        """The running holder's record; None where pods have nothing of their own. Raises ``OSError``."""
        names = self.namespaces
        if not names:
            return None
        async with self._lock:
            record = attempt_files.read(str(self._folder), sandbox.RECORD)
            if not attempt_files.is_running(record):
                record = await self._make(names, volumes)
            self._held = record
            return record

    async def _make(self, names: list[str], volumes: Iterable[PodVolume]) -> dict[str, Any]:
        holder = await self._network.ensure_box()
        box = None
        if holder is not None:
            box = {key: holder[key] for key in ("pid", "start_time", "user_namespace")}
        spec = {
            "box": box,
            "namespaces": names,
            "hostname": self._hostname,
            "cable": self._cable() if "net" in names else None,
            "tmpfs": self._tmpfs(volumes) if "mnt" in names else [],
        }
        attempt_files.write(str(self._folder), sandbox.SPEC, spec, durable=False)
        unlink_if_exists(self._folder / sandbox.RECORD)
        errors = self._folder / "sandbox.err"
        pid, reader = self._fork_server.start_helper(
            "windlass.node.sandbox.sandbox", str(self._folder), errors=errors
        )
        started = attempt_files.identity(pid)["start_time"]
        said = await read_to_end(reader)
        record = attempt_files.read(str(self._folder), sandbox.RECORD)
        if not said.startswith(b"s") or record is None:
            await wait_exit(pid, started)
            words = said[1:].decode(errors="replace") or errors.read_text(errors="replace").strip()[-300:]
            raise OSError(words or "the sandbox did not come up")
        return record

    def _tmpfs(self, volumes: Iterable[PodVolume]) -> list[dict[str, Any]]:
        shared = self._folder / "shm"
        shared.mkdir(exist_ok=True)
        memory = [v for v in volumes if v.memory]
        return [
            {"path": str(shared), "size_bytes": 0},
            *({"path": volume.source, "size_bytes": volume.size_bytes} for volume in memory),
        ]

    def _cable(self) -> dict[str, Any]:
        address = self._network.address(self._uid)
        third, fourth = address.split(".")[2:]
        return {
            "outside": f"pod{third}.{fourth}",
            "address": address,
            "prefix": self._network.prefix,
            "gateway": self._network.gateway,
        }

    async def end(self) -> None:
        """Kill the holder; with the last process of the pod its namespaces go."""
        record = attempt_files.read(str(self._folder), sandbox.RECORD) or self._held
        unlink_if_exists(self._folder / sandbox.RECORD)
        if record is not None and attempt_files.signal(record, signal.SIGKILL):
            await wait_exit(record["pid"], record["start_time"])
