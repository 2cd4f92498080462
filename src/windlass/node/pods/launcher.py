"""Launcher of the containers of one pod.

It combines volumes, environment, devices, limits and system files in the launch spec of an
attempt, and the runner starts the process. It does not know the pod's state machine: a start
succeeds, or it raises an error that the worker (:mod:`windlass.node.pods.worker`) turns into
an event.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from windlass.api import annotations as annotation_names
from windlass.api.errors import StatusError
from windlass.api.resources import (
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    SECRETS,
)
from windlass.api.views.storage import SELECTED_NODE
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.node.devices import container_devices
from windlass.node.devices.allocations import DeviceBusy
from windlass.node.devices.manager import Rejected
from windlass.node.devices.mig_instances import SliceBusy, SliceRefused
from windlass.node.lifecycle.events import Instruction, RecordEvent, StartContainer
from windlass.node.options import AgentOptions
from windlass.node.paths import NodePaths, attempt_numbers
from windlass.node.pods import launch_spec
from windlass.node.pods.checkpoints import with_hook
from windlass.node.pods.environment import ContainerConfigError, Lookup, PodFacts, Reference
from windlass.node.pods.environment import references as environment_references
from windlass.node.pods.files import remote_shell, simulated_tools, volumes
from windlass.node.pods.files.ray import ray_mounts
from windlass.node.pods.files.system import system_files
from windlass.node.pods.notices import notices, shadowed_directory_notice
from windlass.node.pods.pod_events import PodEvents
from windlass.node.pods.pod_names import PodNames
from windlass.node.pods.pod_resources import PodResources
from windlass.node.pods.pod_sandbox import PodSandbox
from windlass.node.pods.pod_tasks import PodTasks
from windlass.node.pods.progress_reports import progress_environment
from windlass.node.runtime import attempt_files, mounts
from windlass.node.runtime.runner import AttemptSpec, Handle, Runner
from windlass.node.sandbox.hosts import hostname_of
from windlass.node.sandbox.pod_network import Network
from windlass.node.services.environment import service_environment
from windlass.node.services.proxies import ServiceProxies

_log = logging.getLogger("windlass.node")
_BINDING_TRIES, _BINDING_SECONDS = 30, 0.1
"""Maximum number of reads of a claim that waits for this pod, and interval between two in seconds."""
_REFERENCED = {
    "ConfigMap": CONFIG_MAPS,
    "Secret": SECRETS,
    "PersistentVolumeClaim": PERSISTENT_VOLUME_CLAIMS,
}


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts of the node that containers can see.

    ``environment`` is the agent's own, of which containers inherit a few variables.
    ``socket``: on which the agent serves streams into its pods.
    """

    name: str
    address: str
    allocatable: Mapping[str, str]
    environment: Mapping[str, str]
    socket: Path = Path()


def hostname_in(pod: Mapping[str, Any], node_name: str) -> str:
    """Return the hostname inside the pod. On the host network it is the node's name."""
    if pod["spec"].get("hostNetwork"):
        return node_name
    return hostname_of(pod["metadata"]["name"], pod["spec"].get("hostname") or "")


class ContainerLauncher:
    """Launcher of one pod's containers. The worker keeps ``pod`` and ``address`` up to date."""

    def __init__(
        self,
        pod: dict[str, Any],
        *,
        client: Client,
        runner: Runner,
        resources: PodResources,
        sandbox: PodSandbox,
        network: Network,
        names: PodNames,
        node: NodeFacts,
        options: AgentOptions,
        paths: NodePaths,
        events: PodEvents,
        tasks: PodTasks,
        services: ServiceProxies | None = None,
    ) -> None:
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.address = ""
        self.resources = resources
        self.sandbox = sandbox
        self.client = client
        self._runner = runner
        self._network = network
        self._names = names
        self._node = node
        self._options = options
        self._paths = paths
        self._directory = paths.pod(self.uid)
        self._events = events
        self._tasks = tasks
        self._services = services
        self._volumes: dict[str, volumes.PodVolume] = {}
        self._placeholders: set[str] = set()
        self._shares_reported = False

    @property
    def host_network(self) -> bool:
        return bool(self.pod["spec"].get("hostNetwork"))

    @property
    def resolves_names(self) -> bool:
        """True if the pod's hosts file has the names of pods and services.

        On the host network this depends on ``dnsPolicy``, as in Kubernetes.
        """
        return not self.host_network or self.pod["spec"].get("dnsPolicy") == "ClusterFirstWithHostNet"

    @property
    def hostname(self) -> str:
        return hostname_in(self.pod, self._node.name)

    def container(self, name: str) -> Mapping[str, Any]:
        """Return the manifest of the container ``name`` of any group, with its checkpoint hook."""
        spec = self.pod["spec"]
        groups = ("initContainers", "containers", "ephemeralContainers")
        every = [container for group in groups for container in spec.get(group) or ()]
        return with_hook(self.pod, next(c for c in every if c["name"] == name))

    def notices(self) -> list[RecordEvent]:
        """Return events about everything that this node does differently from the manifest."""
        return notices(self.pod, self._options.images, self._network.capabilities, own_uid=os.geteuid())

    def ephemeral_notices(self, instructions: Sequence[Instruction]) -> list[RecordEvent]:
        """Return :meth:`notices` for the containers that ``instructions`` start."""
        names = [one.container for one in instructions if isinstance(one, StartContainer)]
        spec = {**self.pod["spec"], "initContainers": (), "containers": [self.container(n) for n in names]}
        pod = {**self.pod, "spec": spec}
        return notices(pod, self._options.images, self._network.capabilities, own_uid=os.geteuid())

    def _facts(self) -> PodFacts:
        return PodFacts(self.pod, self.address, self._node.address, self._node.allocatable)

    async def _lookup(self, references: list[Reference]) -> Lookup:
        """Fetch the referenced objects that exist. Raises ``Unreachable`` and ``StatusError``."""
        namespace = self.pod["metadata"]["namespace"]
        objects: dict[tuple[str, str], dict[str, Any]] = {}
        for reference in references:
            key = (reference.kind, reference.name)
            if key in objects or not reference.name or "/" in reference.name:
                continue
            try:
                obj = await self.client.get(_REFERENCED[reference.kind], reference.name, namespace)
            except StatusError as error:
                if error.code == 404:
                    continue
                raise
            objects[key] = {**obj, "kind": reference.kind}
            if reference.kind == "PersistentVolumeClaim":
                objects[key][volumes.CLAIM_VOLUME] = await self._volume_of(obj)
        return lambda kind, name: objects.get((kind, name))

    async def _volume_of(self, claim: dict[str, Any]) -> dict[str, Any] | None:
        """Return the volume of a claim. One that is provisioned for this pod is waited for a moment."""
        meta = claim["metadata"]
        for _ in range(_BINDING_TRIES):
            if name := claim["spec"].get("volumeName"):
                return await self.client.find(PERSISTENT_VOLUMES, name)
            if SELECTED_NODE not in (meta.get("annotations") or {}):
                return None
            await asyncio.sleep(_BINDING_SECONDS)
            claim = await self.client.get(PERSISTENT_VOLUME_CLAIMS, meta["name"], meta["namespace"])
        return None

    async def prepare_volumes(self) -> None:
        """Create the pod's volumes and write their files.

        Raises :class:`ContainerConfigError` and the errors of the client and the file system.
        """
        lookup = await self._lookup(volumes.references(self.pod["spec"]))
        layout = volumes.layout(
            self._facts(),
            lookup,
            volumes.VolumeRoots(self._directory, self._paths.claims, self._options.images),
        )
        volumes.materialise(layout)
        self._volumes = {volume.name: volume for volume in layout}

    async def prepare_sandbox(self) -> Mapping[str, Any] | None:
        """Return the record of the pod's sandbox, created if it does not exist."""
        return await self.sandbox.ensure(self._volumes.values())

    def adopt(self, name: str, attempt: int) -> Handle | None:
        """Return a handle of the attempt if a shim has claimed it."""
        return self._runner.adopt(self._paths.attempt(self.uid, name, attempt))

    async def launch(self, name: str, attempt: int) -> Handle:
        """Start one attempt, or adopt it if it is already running.

        Raises :class:`ContainerConfigError` if the manifest references a missing object,
        ``NetworkError`` and ``OSError`` if this machine refuses a step, ``Unreachable`` and
        ``StatusError`` if the server does.
        """
        container = self.container(name)
        directory = self._paths.attempt(self.uid, name, attempt)
        if not self._directory.is_dir():
            raise FileNotFoundError(f"the pod's directory {self._directory} was removed")
        directory.mkdir(parents=True, exist_ok=True)
        adopted = self._runner.adopt(directory)
        if adopted is not None:
            return adopted  # an earlier agent's shim claimed it meanwhile
        log = self._paths.container_logs(self.pod["metadata"], name) / f"{attempt}.log"
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._volumes and self.pod["spec"].get("volumes"):
            await self.prepare_volumes()  # resumed: existing files stay
        lookup = await self._lookup(environment_references(container))
        setting = self._with_tools(await self._setting(lookup), container, directory)
        limits = self.resources.apply_limits(container, self.pod["metadata"].get("annotations") or {})
        plugin_environment = await self.resources.plugin_environment(container)
        progress = await progress_environment(
            self.pod,
            self.client,
            self._paths,
            by_name=self._network.capabilities.network and self.resolves_names,
        )
        spec = launch_spec.launch_spec_of(container, attempt, setting, limits, log)
        if target := container.get("targetContainerName"):
            spec.record.update(self._target(target))
        self._report_launch(container, spec)
        if remote_shell.is_wanted(self.pod):
            argv = remote_shell.without_server(spec.record["argv"], self._paths.root)
            if argv is not None:
                spec.record["argv"] = argv
                self._report_stand_in(container)
        record = {
            **spec.record,
            "env": {**progress, **spec.record["env"], **plugin_environment},
            "log_max_bytes": self._options.log_max_bytes,
            "log_files": self._options.log_files,
        }
        return await self._runner.start(AttemptSpec(directory, record))

    def _target(self, name: str) -> dict[str, Any]:
        """Return what of the container ``name`` an ephemeral container shares: its processes.

        Raises :class:`ContainerConfigError` unless it is running.
        """
        known = attempt_numbers(self._paths.attempts(self.uid, name))
        directory = str(self._paths.attempt(self.uid, name, known[-1])) if known else ""
        process = attempt_files.read(directory, attempt_files.PROCESS)
        spec = attempt_files.read(directory, attempt_files.SPEC)
        if process is None or spec is None or not attempt_files.is_running(process):
            raise ContainerConfigError(
                f"the target container {name} is not running", "CreateContainerConfigError"
            )
        if not spec.get("pid_namespace"):
            return {"pid_namespace": False}  # it has no processes of its own: all are visible
        return {"target": {name: process[name] for name in ("pid", "start_time")}}

    async def _setting(self, lookup: Lookup) -> launch_spec.PodSetting:
        spec, capabilities = self.pod["spec"], self._network.capabilities
        sandbox = await self.prepare_sandbox()
        devices = await self._devices()
        system: list[mounts.Mount] = []
        if capabilities.mounts:
            system = system_files(
                self._directory,
                self.hostname,
                self._network.outbound.nameserver,
                own_network=not self.host_network,
                resolves_names=self.resolves_names,
            )
            system += await ray_mounts(self.pod, self.client, self._paths)
            own_memory = "ipc" in capabilities.namespaces and not spec.get("hostIPC")
            if own_memory and not self._uses_mps(devices):
                system.append(mounts.Mount(str(self._directory / "shm"), "/dev/shm", optional=True))
        return launch_spec.PodSetting(
            facts=self._facts(),
            lookup=lookup,
            directory=self._directory,
            volumes=self._volumes,
            hostname=self.hostname,
            capabilities=capabilities,
            devices=container_devices.distribute(self.pod, devices),
            images=self._options.images,
            own_environment=self._node.environment,
            system_files=system,
            names=self._names.directory.table(self.pod["metadata"]["namespace"]),
            sandbox=sandbox,
            device_kinds=self.resources.device_kinds,
            mps_daemon=self.resources.mps_daemon,
            service_environment=self._service_environment(),
        )

    def _service_environment(self) -> dict[str, str]:
        if self._services is None:
            return {}
        services = self._services
        if self.host_network:
            services.serve_machine()
        return service_environment(
            services.services.values(),
            self.pod["metadata"]["namespace"],
            services.machine_addresses if self.host_network else services.addresses,
            links=self.pod["spec"].get("enableServiceLinks") is not False,
        )

    def _with_tools(
        self, setting: launch_spec.PodSetting, container: Mapping[str, Any], directory: Path
    ) -> launch_spec.PodSetting:
        """Add programs of the agent to the pod's PATH: for simulated devices and for a remote shell."""
        tools: list[Path] = []
        environment: dict[str, str] = {}
        if self.resources.has_simulated_devices:
            devices = setting.devices.get(container["name"], ())
            environment |= simulated_tools.record_gpus(directory / "gpus.json", self.pod, devices)
            tools.append(simulated_tools.install(self._paths.root))
        if remote_shell.is_wanted(self.pod):
            namespace = self.pod["metadata"]["namespace"]
            environment |= remote_shell.environment(self._node.socket, namespace)
            tools.append(remote_shell.install(self._paths.root))
        return replace(setting, tools=tools, tool_environment=environment)

    async def _devices(self) -> list[container_devices.VisibleDevice]:
        """Return the pod's devices.

        If the allocation file has lost them, they are allocated again from the binding.
        Raises :class:`ContainerConfigError` if a device is not available now.
        """
        try:
            self.resources.allocate_devices(self.pod)
            devices = await self.resources.visible_devices()
        except (Rejected, DeviceBusy, LookupError, SliceBusy, SliceRefused) as error:
            raise ContainerConfigError(str(error), "DeviceNotReady") from error
        self._report_shares(devices)
        return devices

    def _uses_mps(self, devices: list[container_devices.VisibleDevice]) -> bool:
        """Return whether the pod is an MPS client and so needs the machine's ``/dev/shm``.

        MPS clients share memory with their server.
        """
        shared = container_devices.shared(devices)
        return bool(shared) and container_devices.enforced(devices, self.resources.mps_daemon)

    def _report_shares(self, devices: list[container_devices.VisibleDevice]) -> None:
        """Record one event that says whether the pod's device shares are enforced."""
        shared = container_devices.shared(devices)
        if not shared or self._shares_reported:
            return
        self._shares_reported = True
        shares = "; ".join(container_devices.description(device) for device in shared)
        daemon = self.resources.mps_daemon
        if container_devices.enforced(devices, daemon):
            event = RecordEvent("Normal", "DeviceShareEnforced", f"MPS limits the pod to {shares}")
            self._events.record(self.pod, event)
            return
        why = daemon.problem or "the GPUs are not served by an MPS control daemon"
        text = f"has {shares}: accounted, but not enforced on this machine, because {why}"
        self._events.record(self.pod, RecordEvent("Warning", "DeviceShareNotEnforced", text))

    def _report_launch(self, container: Mapping[str, Any], spec: launch_spec.LaunchSpec) -> None:
        name = container["name"]
        if spec.placeholder and name not in self._placeholders:
            self._placeholders.add(name)
            text = (
                f"container {name} has no command and its image is not run here: a placeholder runs instead"
            )
            self._events.record(self.pod, RecordEvent("Warning", "Placeholder", text))
            self._tasks.spawn(self._mark_placeholders())
        if spec.record["mount_namespace"]:
            wanted = [mounts.Mount(**record) for record in spec.record["mounts"]]
            shadowed = mounts.shadows(wanted, mounts.MachineFileSystem())
            used = [
                os.path.realpath(spec.record["cwd"]),
                os.path.realpath(spec.record["env"].get("HOME", "/")),
            ]
            if event := shadowed_directory_notice(shadowed, used):
                self._events.record(self.pod, event)

    def _report_stand_in(self, container: Mapping[str, Any]) -> None:
        text = (
            f"container {container['name']} starts a server of SSH that this machine lacks: ssh of the job's pods "
            "enters it through the node agent instead"
        )
        self._events.record(self.pod, RecordEvent("Normal", "RemoteShell", text))

    async def _mark_placeholders(self) -> None:
        metadata = self.pod["metadata"]
        change = {
            "metadata": {
                "uid": self.uid,
                "annotations": {annotation_names.PLACEHOLDER: ",".join(sorted(self._placeholders))},
            }
        }
        try:
            await self.client.patch(PODS, metadata["name"], change, metadata["namespace"])
        except (StatusError, Unreachable) as error:
            key = f"{metadata['namespace']}/{metadata['name']}"
            _log.warning("pod %s: the placeholder annotation was not written: %s", key, error)
