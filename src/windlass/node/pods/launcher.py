"""Starts the containers of one pod: what they stand on, what they are told, the process itself.

Volumes, environment, devices, limits and system files come together in the blueprint of one attempt, which
the runner carries out. Nothing here knows of the pod's state machine: a start succeeds, or raises what the
worker (:mod:`windlass.node.pods.worker`) turns into an event.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from windlass.api import annotations
from windlass.api.errors import StatusError
from windlass.api.resources import PODS
from windlass.client.errors import Unreachable
from windlass.node.devices import container_devices, numa
from windlass.node.devices.allocations import DeviceBusy
from windlass.node.devices.manager import Rejected
from windlass.node.devices.mig_instances import SliceBusy, SliceRefused
from windlass.node.lifecycle.events import Note
from windlass.node.limits import limits_of
from windlass.node.pods import launch_spec, volumes
from windlass.node.pods.context import PodsContext
from windlass.node.pods.environment import ContainerConfigError, Lookup, PodFacts
from windlass.node.pods.environment import references as environment_references
from windlass.node.pods.notices import lost_files_note
from windlass.node.pods.pod_sandbox import PodSandbox
from windlass.node.runtime import mounts
from windlass.node.runtime.runner import AttemptSpec, Handle
from windlass.node.sandbox.hosts import hostname_of

_log = logging.getLogger("windlass.node")


class ContainerLauncher:
    """Of one pod. ``pod`` and ``address`` are kept up to date by the worker.

    ``spawn`` runs a coroutine beside, for what nobody has to wait for.
    """

    def __init__(
        self,
        context: PodsContext,
        pod: dict[str, Any],
        folder: Path,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self.context = context
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.folder = folder
        self.address = ""
        self.sandbox = PodSandbox(
            context.network, context.fork_server, self.uid, folder, pod["spec"], self.hostname
        )
        self._spawn = spawn
        self._volumes: dict[str, volumes.PodVolume] = {}
        self._placeholders: set[str] = set()
        self._told_shares = False

    @property
    def host_network(self) -> bool:
        return bool(self.pod["spec"].get("hostNetwork"))

    @property
    def named(self) -> bool:
        """True if it knows the names of pods and services: on the machine's network as in Kubernetes, by its
        ``dnsPolicy``."""
        return not self.host_network or self.pod["spec"].get("dnsPolicy") == "ClusterFirstWithHostNet"

    @property
    def hostname(self) -> str:
        if self.host_network:
            return self.context.node_name
        return hostname_of(self.pod["metadata"]["name"], self.pod["spec"].get("hostname") or "")

    def container(self, name: str) -> Mapping[str, Any]:
        """The container's part of the manifest, be it an init container or not."""
        spec = self.pod["spec"]
        every = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        return next(c for c in every if c["name"] == name)

    def _facts(self) -> PodFacts:
        return PodFacts(self.pod, self.address, self.context.host_address, self.context.allocatable)

    async def _lookup(self, container: Mapping[str, Any] | None) -> Lookup:
        wanted = (
            volumes.references(self.pod["spec"]) if container is None else environment_references(container)
        )
        found = await self.context.fetch(self.pod["metadata"]["namespace"], wanted)
        return lambda kind, name: found.get((kind, name))

    async def prepare_volumes(self) -> None:
        """Raises :class:`ContainerConfigError` and what the client and the file system raise."""
        lookup = await self._lookup(None)
        places = volumes.Places(self.folder, self.context.paths.claims)
        laid_out = volumes.layout(self._facts(), lookup, places)
        volumes.materialise(laid_out)
        self._volumes = {volume.name: volume for volume in laid_out}

    async def prepare_sandbox(self) -> Mapping[str, Any] | None:
        """What the containers join, with the volumes of the pod in it; made if it is not there."""
        return await self.sandbox.ensure(self._volumes.values())

    async def launch(self, name: str, attempt: int) -> Handle:
        """Start one attempt, or take over the one that runs.

        Raises :class:`ContainerConfigError` when the manifest names what is not there, ``NetworkError`` and
        ``OSError`` when this machine refuses, ``Unreachable`` and ``StatusError`` when the server does.
        """
        context, container = self.context, self.container(name)
        folder = context.paths.attempt(self.uid, name, attempt)
        if not self.folder.is_dir():
            raise FileNotFoundError(f"the pod's folder {self.folder} was removed")
        (folder / "root").mkdir(parents=True, exist_ok=True)
        adopted = context.runner.adopt(folder)
        if adopted is not None:
            return adopted  # an earlier agent's shim claimed it meanwhile
        log = context.paths.container_logs(self.pod["metadata"], name) / f"{attempt}.log"
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._volumes and self.pod["spec"].get("volumes"):
            await self.prepare_volumes()  # resumed: what is there stays
        lookup = await self._lookup(container)
        setting = await self._setting(lookup)
        within = numa.cores_for(self.pod["metadata"].get("annotations") or {}, context.zones)
        limits = context.limiter.apply(self.uid, name, limits_of(container), within)
        plan = launch_spec.launch_spec_of(container, attempt, setting, limits, log)
        self._tell_about(container, plan)
        record = {
            **plan.record,
            "log_max_bytes": context.options.log_max_bytes,
            "log_files": context.options.log_files,
        }
        return await context.runner.start(AttemptSpec(folder, record))

    async def _setting(self, lookup: Lookup) -> launch_spec.PodSetting:
        context, spec = self.context, self.pod["spec"]
        box = await self.prepare_sandbox()
        own_network = not self.host_network
        chosen = await self._given()
        system: list[mounts.Mount] = []
        if context.capabilities.mounts:
            system = context.system_files(self.folder, self.hostname, own_network, self.named)
            own_memory = "ipc" in context.capabilities.namespaces and not spec.get("hostIPC")
            if own_memory and not self._meets_daemon(chosen):
                system.append(mounts.Mount(str(self.folder / "shm"), "/dev/shm", optional=True))
        return launch_spec.PodSetting(
            facts=self._facts(),
            lookup=lookup,
            folder=self.folder,
            volumes=self._volumes,
            hostname=self.hostname,
            capabilities=context.capabilities,
            devices=container_devices.share_out(self.pod, chosen),
            images=context.options.images,
            own_environment=context.own_environment,
            system_files=system,
            names=context.names.directory.table(self.pod["metadata"]["namespace"]),
            sandbox=box,
            device_kinds=context.cards.inventory.kinds,
            daemon=context.cards.daemon,
        )

    async def _given(self) -> list[container_devices.VisibleDevice]:
        """The pod's devices; of a pod of which the ledger does not know them any more (see there) they are taken anew.
        Raises :class:`ContainerConfigError` where one of them is not to be had now."""
        metadata = self.pod["metadata"]
        try:
            self.context.cards.take(self.uid, f"{metadata['namespace']}/{metadata['name']}", self.pod)
            found = await self.context.cards.given(self.uid)
        except (Rejected, DeviceBusy, LookupError, SliceBusy, SliceRefused) as error:
            raise ContainerConfigError(str(error), "DeviceNotReady") from error
        self._tell_shares(found)
        return found

    def _meets_daemon(self, given: list[container_devices.VisibleDevice]) -> bool:
        """Clients of MPS and its server share memory: such a pod has the machine's ``/dev/shm``."""
        shared = container_devices.shared(given)
        return bool(shared) and container_devices.enforced(given, self.context.cards.daemon)

    def _tell_shares(self, given: list[container_devices.VisibleDevice]) -> None:
        """Say once how the pod is held to its shares."""
        shared = container_devices.shared(given)
        if not shared or self._told_shares:
            return
        self._told_shares = True
        has = "; ".join(container_devices.words(each) for each in shared)
        if container_devices.enforced(given, self.context.cards.daemon):
            self.context.note(self.pod, Note("Normal", "DeviceShareEnforced", f"MPS holds the pod to {has}"))
            return
        why = self.context.cards.daemon.problem or "the GPUs are not served by an MPS control daemon"
        text = f"has {has}: accounted, but not enforced on this machine, because {why}"
        self.context.note(self.pod, Note("Warning", "DeviceShareNotEnforced", text))

    def _tell_about(self, container: Mapping[str, Any], plan: launch_spec.LaunchSpec) -> None:
        name = container["name"]
        if plan.placeholder and name not in self._placeholders:
            self._placeholders.add(name)
            text = (
                f"container {name} names no command and its image is not run here: a placeholder runs instead"
            )
            self.context.note(self.pod, Note("Warning", "Placeholder", text))
            self._spawn(self._mark_placeholders())
        if plan.record["mount_namespace"]:
            wanted = [mounts.Mount(**record) for record in plan.record["mounts"]]
            covered = mounts.shadows(wanted, mounts.MachineFileSystem())
            used = [
                os.path.realpath(plan.record["cwd"]),
                os.path.realpath(plan.record["env"].get("HOME", "/")),
            ]
            if note := lost_files_note(covered, used):
                self.context.note(self.pod, note)

    async def _mark_placeholders(self) -> None:
        metadata = self.pod["metadata"]
        change = {
            "metadata": {
                "uid": self.uid,
                "annotations": {annotations.PLACEHOLDER: ",".join(sorted(self._placeholders))},
            }
        }
        try:
            await self.context.client.patch(PODS, metadata["name"], change, metadata["namespace"])
        except (StatusError, Unreachable) as error:
            key = f"{metadata['namespace']}/{metadata['name']}"
            _log.warning("pod %s: cannot mark its placeholder: %s", key, error)
