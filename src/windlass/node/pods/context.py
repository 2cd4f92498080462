"""What all pods of this machine share: devices, network, names, the way to the server.

One :class:`PodsContext` per agent; pod workers ask it and never one another.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
from windlass.node.runtime.helpers import ForkServer
from windlass.node.runtime.mounts import Mount
from windlass.node.runtime.runner import Runner
from windlass.node.sandbox.hosts import Directory, NamedPod, NamedService, name_switch
from windlass.node.sandbox.pod_network import Capabilities, Network

_FETCHED = {"ConfigMap": CONFIG_MAPS, "Secret": SECRETS}
_COALESCE_SECONDS = 0.004
_RETIRED_SECONDS = 60.0
"""How long the name of a pod that has ended still resolves, as it would from a DNS cache: a rank that starts a
moment later than a short-lived peer ends must not die of an unknown name."""


_MACHINE_HOSTS = Path("/etc/hosts")


@dataclass(frozen=True, slots=True)
class HostsFile:
    """Where a pod's hosts file lies, what its manifest adds, and whether the machine's own stands in it, too."""

    path: Path
    aliases: list[Mapping[str, Any]]
    machine: bool = False


@dataclass(slots=True)
class PodsContext:
    """``names``: every pod that has an address here, also reserved ones, by uid."""

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
    names: dict[str, NamedPod] = field(default_factory=dict)
    services: dict[str, NamedService] = field(default_factory=dict)
    hosts_files: dict[str, HostsFile] = field(default_factory=dict)
    """Pods whose hosts file is kept up to date: uid → file and the pod's hostAliases."""
    directory: Directory = field(default_factory=lambda: Directory((), ()))
    zones: NumaNodeRecord = field(default_factory=NumaNodeRecord)
    """The machine's NUMA zones, and the policy by which pods are kept to them."""
    _flushing: asyncio.Task[None] | None = None
    _retired: dict[str, float] = field(default_factory=dict)
    """Pods that have ended and whose names still resolve: uid → since when."""

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

    # -- names ---------------------------------------------------------------------------------

    def rename(self, uid: str, named: NamedPod | None) -> None:
        """A pod's name, address or readiness changed; None: it is gone."""
        if named is None:
            self._retired.pop(uid, None)
            if self.names.pop(uid, None) is None:
                return
        elif self.names.get(uid) == named:
            return
        else:
            self._replace_retired(named)
            self.names[uid] = named
        self.names_changed()

    def retire_name(self, uid: str) -> None:
        """The pod has ended: no service leads to it any more, its own names do for a little longer."""
        named = self.names.get(uid)
        if named is not None:
            self._retired[uid] = self.clock.monotonic()
            self.names[uid] = replace(named, ready=False, over=True)
            self.names_changed()

    def forget_retired_names(self) -> None:
        """Drop the names whose time is over. Called now and then."""
        oldest = self.clock.monotonic() - _RETIRED_SECONDS
        for uid in [uid for uid, since in self._retired.items() if since <= oldest]:
            self.rename(uid, None)

    def _replace_retired(self, named: NamedPod) -> None:
        """A pod made anew under the same name takes it over at once."""
        for uid in tuple(self._retired):
            old = self.names[uid]
            if old.namespace == named.namespace and (
                old.name == named.name or (old.hostname, old.subdomain) == (named.hostname, named.subdomain)
            ):
                del self._retired[uid], self.names[uid]

    def names_changed(self) -> None:
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.ensure_future(self._flush_soon())

    async def names_settled(self) -> None:
        """Until every hosts file tells what is known now."""
        if self._flushing is not None:
            await asyncio.shield(self._flushing)

    async def _flush_soon(self) -> None:
        await asyncio.sleep(_COALESCE_SECONDS)
        self.directory = Directory(self.names.values(), self.services.values())
        for uid in tuple(self.hosts_files):
            self.write_hosts(uid)

    def write_hosts(self, uid: str) -> None:
        """Rewrite the pod's hosts file in place: it is bind-mounted, so the file must stay the same one."""
        file = self.hosts_files[uid]
        named = self.names.get(uid)
        if named is None:
            return
        text = self.directory.hosts(named, file.aliases, _machine_hosts() if file.machine else "").encode()
        descriptor = os.open(file.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.pread(descriptor, len(text) + 1, 0) != text:
                os.pwrite(descriptor, text, 0)
                os.ftruncate(descriptor, len(text))
        finally:
            os.close(descriptor)

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


def _machine_hosts() -> str:
    try:
        return _MACHINE_HOSTS.read_text(errors="replace")
    except OSError:
        return ""
