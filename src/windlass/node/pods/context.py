"""What all pods of this machine share: devices, network, names, the way to the server.

One :class:`PodsContext` per agent; pod workers ask it and never one another.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.api.devices.numa_annotations import NumaNodeRecord
from windlass.api.errors import StatusError
from windlass.api.resources import CONFIG_MAPS, SECRETS
from windlass.client.client import Client
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.node.devices.manager import DeviceManager
from windlass.node.lifecycle.events import Note
from windlass.node.limits import Limiter
from windlass.node.options import AgentOptions
from windlass.node.paths import NodePaths
from windlass.node.pods.environment import Reference
from windlass.node.pods.pod_names import PodNames
from windlass.node.runtime.helpers import ForkServer
from windlass.node.runtime.mounts import Mount
from windlass.node.runtime.runner import Runner
from windlass.node.sandbox.hosts import name_switch
from windlass.node.sandbox.pod_network import Capabilities, Network

_FETCHED = {"ConfigMap": CONFIG_MAPS, "Secret": SECRETS}


@dataclass(slots=True)
class PodsContext:
    """Objects that the pods of this node share."""

    client: Client
    clock: Clock
    recorder: EventRecorder
    options: AgentOptions
    node_name: str
    paths: NodePaths
    capabilities: Capabilities
    network: Network
    cards: DeviceManager
    limiter: Limiter
    runner: Runner
    fork_server: ForkServer
    allocatable: Mapping[str, str]
    own_environment: Mapping[str, str]
    host_address: str
    rng: Random
    names: PodNames
    zones: NumaNodeRecord = field(default_factory=NumaNodeRecord)
    """The machine's NUMA zones, and the policy by which pods are kept to them."""

    def note(self, pod: Mapping[str, Any], note: Note) -> None:
        metadata = pod["metadata"]
        ref = ObjectRef("v1", "Pod", metadata["namespace"], metadata["name"], metadata["uid"])
        self.recorder.event(ref, note.type, note.reason, note.message)

    async def fetch(self, namespace: str, wanted: list[Reference]) -> dict[tuple[str, str], dict[str, Any]]:
        """The ConfigMaps and Secrets that exist of those named. Raises ``Unreachable``, ``StatusError``."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for reference in wanted:
            key = (reference.kind, reference.name)
            if key in found or not reference.name:
                continue
            try:
                obj = await self.client.get(_FETCHED[reference.kind], reference.name, namespace)
            except StatusError as error:
                if error.code == 404:
                    continue
                raise
            found[key] = {**obj, "kind": reference.kind}
        return found

    @property
    def machine_address(self) -> str:
        """Where pods find what listens in the machine's own network."""
        network = self.network
        return network.host_address if network.capabilities.network and network.uplink else self.host_address

    def system_files(self, folder: Path, hostname: str, own_network: bool, named: bool) -> list[Mount]:
        """The generated files of ``/etc`` that every container of a pod sees instead of the machine's. ``named``: it
        knows the names of pods and services."""
        files = self._files_of_names(folder) if named else []
        if not own_network:
            return files
        (folder / "hostname").write_text(hostname + "\n")
        files.append(Mount(str(folder / "hostname"), "/etc/hostname", optional=True))
        if self.network.outbound.nameserver:
            resolver = folder / "resolv.conf"
            resolver.write_text(f"nameserver {self.network.outbound.nameserver}\n")
            files.append(Mount(str(resolver), "/etc/resolv.conf", optional=True))
        return files

    def _files_of_names(self, folder: Path) -> list[Mount]:
        files = [Mount(str(folder / "hosts"), "/etc/hosts", optional=True)]
        switch = folder / "nsswitch.conf"
        try:
            switch.write_text(name_switch(Path("/etc/nsswitch.conf").read_text()))
        except FileNotFoundError:
            switch.write_text(name_switch(""))
        files.append(Mount(str(switch), "/etc/nsswitch.conf", optional=True))
        if os.path.isdir("/run/nscd"):  # its cache knows only the machine's own hosts file
            (folder / "empty").mkdir(exist_ok=True)
            files.append(Mount(str(folder / "empty"), "/run/nscd", optional=True))
        return files
