"""Node agent: this machine as a node, its pods as processes, and all simulated nodes.

Pods survive the agent. Shims and sandboxes are processes of their own, and the agent's
directory has everything that it needs after a restart. :meth:`NodeAgent.run` first resumes
the pods of an earlier agent, then follows the server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windlass.api import annotations as annotation_names
from windlass.api.resources import ENDPOINT_SLICES, JOB_SETS, NODES, PODS, SERVICES
from windlass.client.client import Client
from windlass.client.informers import SharedInformers
from windlass.client.recorder import EventRecorder
from windlass.kits.clock import Clock
from windlass.kits.files import FileLock
from windlass.kits.rng import Random
from windlass.kits.state import StateFolder
from windlass.node import machine, static_cpus
from windlass.node.device_reporter import DeviceReporter, node_annotations_decoder
from windlass.node.devices import discovery, mps, mps_control, numa
from windlass.node.devices.allocations import DeviceAllocations, DeviceBusy
from windlass.node.devices.device_plugins import DevicePlugins
from windlass.node.devices.discovery import DiscoveryOptions, Inventory
from windlass.node.devices.health import FaultRecords
from windlass.node.devices.index_store import DeviceIndexStore
from windlass.node.devices.manager import DeviceManager, Rejected
from windlass.node.devices.mig_instances import MigInstanceFile, NvmlSlicer, SimulatedSlicer
from windlass.node.devices.monitor import DeviceMonitor, published_of
from windlass.node.devices.mps_control import MpsControl
from windlass.node.devices.nvml import Nvml
from windlass.node.heartbeat import OwnNode
from windlass.node.lifecycle.events import PodEvent, PodEventKind
from windlass.node.lifecycle.state_machine import ImpossibleTransition
from windlass.node.mirror_pods import MirrorPods
from windlass.node.models import Models
from windlass.node.options import AgentOptions
from windlass.node.paths import NodePaths
from windlass.node.pods.launcher import NodeFacts
from windlass.node.pods.pod_events import PodEvents
from windlass.node.pods.pod_names import PodNames
from windlass.node.pods.pod_record import read_pod_record
from windlass.node.pods.record import PodDecoder, PodRecord
from windlass.node.pods.worker import PodWorker
from windlass.node.pods.worker_factory import PodWorkerFactory
from windlass.node.provisioner import Provisioner
from windlass.node.restart_barriers import RestartBarriers, decode_barrier
from windlass.node.runtime import helpers, log_reader, syscalls
from windlass.node.runtime.runner import ProcessRunner, Runner
from windlass.node.runtime.threads import in_thread
from windlass.node.sandbox import connect
from windlass.node.sandbox.hosts import NamedPod, hostname_of
from windlass.node.sandbox.pod_network import NO_ISOLATION, Network, NetworkError, find_capabilities
from windlass.node.services.names import ServiceNames
from windlass.node.services.proxies import ServiceProxies
from windlass.node.services.tables import decode_endpoint_slice, decode_node_service
from windlass.node.simulated_nodes.nodes import SimulatedNodes, decode_simulated
from windlass.node.streams.listener import StreamListener, StreamPod
from windlass.node.usage import ContainerPlace, UsageMeter

_log = logging.getLogger("windlass.node")
_MAINTENANCE_SECONDS = 60.0
_REAP_SECONDS = 2.0
_STOPPED_SLACK_SECONDS, _HURRIED_SLACK_SECONDS = 25.0, 3.0
_CONNECT_SECONDS = 5.0
_LOCK_TRIES, _LOCK_RETRY_SECONDS = 20, 0.05


class AgentRunning(Exception):
    """Another agent uses the same directory."""


class NodeAgent:
    """Agent of one node. Tests pass a ``runner`` that starts no processes.

    :meth:`run` returns only by cancellation or failure. ``ready`` is set when the pods of an
    earlier agent are resumed and the server is being followed.
    """

    def __init__(
        self,
        client: Client,
        *,
        state: StateFolder,
        clock: Clock,
        rng: Random,
        options: AgentOptions | None = None,
        runner: Runner | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._options = options or AgentOptions()
        self._state = state
        self._paths = NodePaths(state.node)
        self._fork_server = helpers.ForkServer()
        self._runner = runner or ProcessRunner(self._fork_server)
        self._informers = SharedInformers(client, clock, rng)
        self._rng = rng
        self.workers: dict[str, PodWorker] = {}
        self.network: Network
        self.recorder: EventRecorder
        self.names = PodNames(clock)
        self.proxies: ServiceProxies
        self._devices: DeviceManager
        self._worker_factory: PodWorkerFactory | None = None
        self.node: OwnNode | None = None
        self._simulated: SimulatedNodes
        self.ready = asyncio.Event()
        self._stopping = False
        self._nvml: Nvml | None = None
        self._mps_control: MpsControl | None = None
        self._plugins = DevicePlugins(self._paths.root / "device-plugins", clock)
        self._ending: set[asyncio.Task[None]] = set()

    # -- life ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until cancelled. Pods keep running unless the option ``stop_pods`` is set.

        Raises :class:`AgentRunning`, and ``OSError`` if the directory cannot be used.
        """
        self._paths.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = FileLock(self._paths.root / "lock")
        await self._acquire(lock)
        try:
            self._fork_server.open(self._paths.root)
            node = await self._set_up()
            self._pods = self._informers.informer(PODS, decode=PodDecoder(node.name))
            service_names = self._set_up_services()
            storage = self._storage()
            self._simulated = simulated = self._simulated_nodes(self._restart_barriers())
            mirror_pods = MirrorPods.of_state(
                self._client, self._clock, self._rng, node, self._pods, self._state
            )
            device_reporter = self._device_reporter(node)
            self._resume_pods()
            self._pods.add_handler(self._on_pod, lambda _, new: self._on_pod(new), self._on_pod_deleted)
            self.ready.set()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._informers.run(), name="informers")
                group.create_task(self.recorder.run(), name="events")
                group.create_task(node.run(), name="heartbeat")
                group.create_task(simulated.run(), name="simulated nodes")
                group.create_task(mirror_pods.run(), name="mirror pods")
                group.create_task(self._remove_orphans(), name="orphans")
                group.create_task(self._maintain(), name="maintenance")
                group.create_task(self._reap_helpers(), name="reaper")
                group.create_task(self._plugins.run(), name="device plugins")
                group.create_task(self._stream_listener().run(), name="streams")
                group.create_task(self.proxies.run(), name="service proxies")
                group.create_task(service_names.run(), name="external names")
                for name, keeper in storage.items():
                    group.create_task(keeper.run(), name=name)
                if device_reporter is not None:
                    group.create_task(device_reporter.run(), name="devices")
        finally:
            try:
                if self._options.stop_pods and not self._stopping:
                    self._kill_all()
                for worker in tuple(self.workers.values()):
                    await worker.close()
                for task in tuple(self._ending):
                    task.cancel()
            finally:
                self._fork_server.close()
                if self._nvml is not None:
                    self._nvml.close()
                lock.release()

    def _storage(self) -> dict[str, Provisioner | Models]:
        """Return the keepers of what lies on this machine, by the names of their tasks."""
        parts = (self._client, self._informers, self.recorder, self._clock, self._rng)
        return {
            "volumes": Provisioner(*parts, self._paths.claims),
            "models": Models(*parts, self._paths.models, serves=self._keeps_models_of),
        }

    def _keeps_models_of(self, node: str) -> bool:
        """Return whether the models of a node lie on this machine: its own, and simulated ones."""
        assert self.node is not None
        return self._options.models and (node == self.node.name or self._simulated.has(node))

    def _restart_barriers(self) -> RestartBarriers:
        """Create the barriers of pods that restart in place, for the workers too."""
        barriers = RestartBarriers(self._informers.informer(JOB_SETS, decode=decode_barrier))
        assert self._worker_factory is not None
        self._worker_factory.barriers = barriers
        return barriers

    def _simulated_nodes(self, barriers: RestartBarriers) -> SimulatedNodes:
        return SimulatedNodes(
            self._client,
            self._clock,
            self._informers.informer(NODES, decode=decode_simulated),
            self._pods,
            start_seconds=self._options.simulated_start_seconds,
            barriers=barriers,
            connect=self._connect_to_pod,
        )

    async def _connect_to_pod(self, key: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a port of a pod of this node (``namespace/name``). Raises ``OSError``."""
        address = next((one.machine.address for one in self.workers.values() if one.machine.key == key), "")
        if not address:
            raise ConnectionError(f"pod {key} does not run on this machine")
        if "net" in self.network.capabilities.namespaces:
            socket = await connect.connect(self._paths.root, address, port, _CONNECT_SECONDS)
            return await asyncio.open_connection(sock=socket)
        return await asyncio.open_connection(address, port)

    def _stream_listener(self) -> StreamListener:
        path = self._state.node_socket
        meter = UsageMeter(self._clock)
        return StreamListener(
            path,
            self._paths.root,
            self._fork_server,
            self._stream_pod,
            lambda: meter.usage(self._running_containers()),
        )

    def _running_containers(self) -> list[ContainerPlace]:
        return [
            ContainerPlace(uid, name, container.attempt, self._paths.attempt(uid, name, container.attempt))
            for uid, worker in self.workers.items()
            for name, container in worker.machine.containers.items()
        ]

    def _stream_pod(self, which: str) -> StreamPod | None:
        form, _, identity = which.partition("/")
        if form == "uid":
            worker = self.workers.get(identity)
        else:
            named = (found for found in self.workers.values() if found.machine.key == identity)
            worker = next(named, None) or self._worker_of_host(identity)
        if worker is None:
            return None
        return StreamPod(
            directory=worker.directory,
            main=worker.pod["spec"]["containers"][0]["name"],
            attempts={name: container.attempt for name, container in worker.machine.containers.items()},
            address=worker.machine.address,
            network="net" in self.network.capabilities.namespaces
            and not worker.pod["spec"].get("hostNetwork"),
        )

    def _worker_of_host(self, identity: str) -> PodWorker | None:
        """Return the newest pod with a host name of its own, as those of indexed Jobs have; ``NAMESPACE/HOST``."""
        namespace, _, host = identity.partition("/")
        found = [
            worker
            for worker in self.workers.values()
            if worker.pod["metadata"]["namespace"] == namespace and worker.pod["spec"].get("hostname") == host
        ]
        return max(found, key=lambda worker: worker.pod["metadata"]["creationTimestamp"], default=None)

    async def _acquire(self, lock: FileLock) -> None:
        """Acquire the lock of the directory. Raises :class:`AgentRunning`.

        It retries: a helper of an agent that has just died may hold the lock until its exec.
        """
        for _ in range(_LOCK_TRIES):
            if lock.acquire():
                return
            await self._clock.sleep(_LOCK_RETRY_SECONDS)
        raise AgentRunning(f"another agent uses {self._paths.root}")

    async def stop_pods(self, grace_seconds: float) -> None:
        """End all pods, publish their status and remove the network. :meth:`run` must be running."""
        self._stopping = True
        now = self._clock.now()
        for worker in tuple(self.workers.values()):
            if not worker.machine.is_over:
                message = "Pod was terminated in response to imminent node shutdown."
                worker.send(
                    PodEvent(
                        PodEventKind.EVICT,
                        now,
                        reason="Terminated",
                        message=message,
                        grace_seconds=grace_seconds,
                    )
                )
        try:
            slack = _STOPPED_SLACK_SECONDS if grace_seconds else _HURRIED_SLACK_SECONDS
            async with asyncio.timeout(grace_seconds + slack):
                for worker in tuple(self.workers.values()):
                    await worker.ended.wait()
                    await worker.publisher.settled()
        except TimeoutError:
            _log.warning("some pods did not end or were not published within the timeout")
        if self._worker_factory is not None:
            if self._mps_control is not None:
                await in_thread(self._mps_control.stop)
            await self.proxies.take_down()
            await self._devices.sweep()  # without the directory, nothing would remove the instances later
            await self.network.take_down()

    async def _set_up(self) -> OwnNode:
        """Create the network, the devices, the Node and the worker factory."""
        options = self._options
        this_machine = machine.find_machine(self._paths.root)
        name = options.node_name or this_machine.hostname
        self.network = network = await self._prepare_network()
        capabilities = network.capabilities
        self.recorder = EventRecorder(self._client, "windlass-node", self._clock, self._rng, host=name)
        self._discover_devices(name)
        await self._device_monitor.prime()
        inventory = self._devices.inventory
        limiter = static_cpus.limiter_of(self._paths.root, this_machine.cores, options)
        capacity, allocatable = machine.resources(
            this_machine,
            inventory,
            max_pods=options.max_pods,
            reserve=options.memory_reserve_bytes,
            reserved=options.reserved,
        )
        isolated = (*capabilities.namespaces, *(["pid"] if capabilities.pid else []))
        published = published_of(self._devices)
        numa_nodes = numa.record_of(this_machine.cores, options)
        self.node = OwnNode(
            self._client,
            self._clock,
            name,
            this_machine,
            labels=machine.labels(name, this_machine, inventory),
            annotations={
                annotation_names.ISOLATION: ", ".join(isolated) or "none",
                annotation_names.LIMITS: limiter.description,
                annotation_names.OUTBOUND: f"{network.outbound.kind}: {network.outbound.note}",
                **published.annotations,
                **numa.node_annotations(numa_nodes),
            },
            capacity=capacity,
            allocatable=allocatable,
        )
        self.node.change_devices(published)
        self._plugins.publish = self.node.change_plugins
        self._worker_factory = PodWorkerFactory(
            client=self._client,
            clock=self._clock,
            rng=self._rng,
            options=options,
            paths=self._paths,
            node=NodeFacts(
                name, this_machine.address, allocatable, dict(os.environ), self._state.node_socket
            ),
            network=network,
            names=self.names,
            devices=self._devices,
            limiter=limiter,
            numa_nodes=numa_nodes,
            runner=self._runner,
            fork_server=self._fork_server,
            events=PodEvents(self.recorder),
            plugins=self._plugins,
        )
        return self.node

    def _set_up_services(self) -> ServiceNames:
        """Create the proxies of Services. Return their names, which are kept up to date."""
        services = self._informers.informer(SERVICES, decode=decode_node_service)
        slices = self._informers.informer(ENDPOINT_SLICES, decode=decode_endpoint_slice)
        self.proxies = ServiceProxies(
            self._paths.root, self.network, self._clock, self.recorder, services, slices
        )
        assert self._worker_factory is not None
        self._worker_factory.services = self.proxies
        return ServiceNames(self.names, self.proxies, self._clock, services)

    async def _prepare_network(self) -> Network:
        """Return the pod network. If it cannot be created, pods share the machine's network."""
        options = self._options
        capabilities = NO_ISOLATION if options.isolation == "none" else await find_capabilities()
        network = Network(self._paths.root, capabilities, wanted_range=options.pod_range)
        try:
            await network.prepare()
        except NetworkError as error:
            _log.warning("pods share the machine's network: %s", error)
            capabilities = replace(NO_ISOLATION, refused={"all": str(error)})
            network = Network(self._paths.root, capabilities)
            await network.prepare()
        return network

    def _discover_devices(self, name: str) -> None:
        """Discover the node's devices and create their monitor. NVML stays open while the agent runs."""
        options = self._options
        devices = DeviceManager(Inventory(), DeviceAllocations(self._paths.device_allocations))
        self._devices = devices
        gpus, mig = discovery.split_option(mps_control.split_option(options.gpus)[0])
        mig_instances = MigInstanceFile(self._paths.mig_instances)
        self._nvml = discovery.open_nvml() if gpus == discovery.AUTO else None
        index_store = DeviceIndexStore(self._paths.device_indices, syscalls.boot_id())

        def discovery_options() -> DiscoveryOptions:
            return DiscoveryOptions(
                mig or discovery.MIG_AUTO,
                frozenset(mig_instances.instances),
                may_create=os.geteuid() == 0,
                refused=devices.refused,
                mps=devices.daemon.runs,
                indices=index_store.indices,
            )

        control = self._mps_control = mps_control.control_of(self._paths.root, options.gpus, os.environ)
        environment = control.environment if control is not None else os.environ
        devices.runs_mps = control is not None
        devices.daemon = mps.find_daemon(environment)
        devices.inventory = discovery.discover(gpus, discovery_options(), machine=name, nvml=self._nvml)
        if devices.inventory.simulated:
            devices.slicer = SimulatedSlicer(mig_instances)
        elif self._nvml is not None:
            devices.slicer = NvmlSlicer(self._nvml, mig_instances)
        self._device_monitor = DeviceMonitor(
            devices,
            self._clock,
            nvml=self._nvml,
            faults=FaultRecords(self._paths.faults, syscalls.boot_id()),
            options=discovery_options,
            environment=environment,
            mps_control=control,
            period_seconds=options.device_period_seconds,
            index_store=index_store if self._nvml is not None else None,
        )

    def _device_reporter(self, node: OwnNode) -> DeviceReporter | None:
        """Return the reporter of the node's devices, or None if it has none."""
        if not self._devices.inventory.devices:
            return None
        reporter = DeviceReporter(
            self._client, self._clock, self.recorder, node, self._device_monitor, self.workers
        )
        own = self._informers.informer(NODES, decode=node_annotations_decoder(node.name))
        own.add_handler(reporter.on_annotations, lambda _, new: reporter.on_annotations(new), None)
        return reporter

    def _resume_pods(self) -> None:
        """Resume all pods that an earlier agent left in the directory."""
        self._paths.pods.mkdir(exist_ok=True, mode=0o700)
        resumed = set()
        for directory in sorted(self._paths.pods.iterdir()):
            record = read_pod_record(directory)
            if record is None:
                shutil.rmtree(directory, ignore_errors=True)  # its pod was never started
                continue
            worker = self._create_worker(record["pod"])
            resumed.add(worker.uid)
            worker.resume()
        if lost := self._devices.allocations.lost:
            self._restore_devices(lost)
        self._devices.allocations.retain(resumed)

    def _restore_devices(self, lost: str) -> None:
        _log.warning("%s: restoring GPU allocations from the bindings of the pods on this node", lost)
        for worker in self.workers.values():
            try:
                worker.restore_devices()
            except (Rejected, DeviceBusy) as error:
                _log.warning("pod %s: its GPUs were not restored: %s", worker.machine.key, error)

    async def _remove_orphans(self) -> None:
        """End the pods that lost their object while no agent was running."""
        await self._pods.wait_synced()
        present = {pod.uid for pod in self._pods.items.values()}
        for uid, worker in tuple(self.workers.items()):
            if uid not in present:
                worker.object_removed()

    async def _reap_helpers(self) -> None:
        """Reap helpers that ended after their caller had stopped waiting for them."""
        while True:
            helpers.reap_all()
            await self._clock.sleep(_REAP_SECONDS)

    async def _maintain(self) -> None:
        """Expire names and logs, and restore the pod network."""
        while True:
            self.names.expire()
            log_reader.prune(
                self._paths.logs,
                set(self.workers),
                now=self._clock.now(),
                max_age_seconds=self._options.log_retention_seconds,
                max_total_bytes=self._options.log_retention_bytes,
            )
            await self._clock.sleep(_MAINTENANCE_SECONDS)
            try:
                await self.network.ensure_namespace()
            except (NetworkError, OSError) as error:
                _log.warning("the pod network was not restored, retrying: %s", error)

    # -- changes on the server -----------------------------------------------------------------

    def _on_pod(self, record: PodRecord) -> None:
        try:
            self._sync_pod(record)
        except ImpossibleTransition as error:  # one pod must not take the agent down
            _log.error("%s", error)

    def _sync_pod(self, record: PodRecord) -> None:
        if record.is_mirror:
            return
        if record.raw is None:
            self._release_foreign_pod(record)
            return
        worker = self.workers.get(record.uid)
        if worker is not None:
            worker.update(record.raw)
            return
        if self._stopping or (record.is_over and not record.deleted):
            return
        if not self._paths.pods.is_dir():
            return  # the state directory was removed: the supervisor is about to end this agent
        worker = self._create_worker(record.raw)
        self._reserve_gang_names(record)
        lost = _lost_containers(record.raw)
        if lost:
            worker.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            worker.resume(lost)
        elif record.is_over:
            worker.only_delete()
        else:
            worker.begin()
        if record.deleted and not record.is_over:
            worker.delete(record.grace_seconds)

    def _on_pod_deleted(self, record: PodRecord) -> None:
        worker = self.workers.get(record.uid)
        if worker is not None:
            worker.object_removed()
        else:
            self.network.release(record.uid)
            self.names.set_pod(record.uid, None)

    def _release_foreign_pod(self, record: PodRecord) -> None:
        """Release the address that was reserved for a pod that runs on another node or has ended."""
        if (record.node or record.is_over) and record.uid not in self.workers:
            self.network.release(record.uid)
            self.names.set_pod(record.uid, None)

    def _reserve_gang_names(self, record: PodRecord) -> None:
        """Reserve addresses for the unbound members of the gang, so that their names already resolve."""
        if not record.group and not record.subdomain:
            return
        try:
            self.network.address(record.uid)  # its own address comes first
            for other in self._pods.items.values():
                same_gang = (record.group and other.group == record.group) or (
                    record.subdomain and other.subdomain == record.subdomain
                )
                if same_gang and other.namespace == record.namespace and not other.node and not other.is_over:
                    self.names.set_pod(other.uid, self._named_pod(other))
        except NetworkError as error:
            _log.warning("pod %s: some names of its gang do not resolve yet: %s", record.key, error)

    def _named_pod(self, record: PodRecord) -> NamedPod:
        return NamedPod(
            uid=record.uid,
            namespace=record.namespace,
            name=record.name,
            hostname=hostname_of(record.name, record.hostname),
            subdomain=record.subdomain,
            address=self.network.address(record.uid),
            labels=record.labels or {},
        )

    # -- workers -------------------------------------------------------------------------------

    def _create_worker(self, pod: dict[str, Any]) -> PodWorker:
        assert self._worker_factory is not None
        worker = self._worker_factory.create(pod)
        self.workers[worker.uid] = worker
        task = asyncio.get_running_loop().create_task(self._until_gone(worker))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return worker

    async def _until_gone(self, worker: PodWorker) -> None:
        await worker.gone.wait()
        self.workers.pop(worker.uid, None)
        await worker.close()

    def _kill_all(self) -> None:
        for worker in self.workers.values():
            worker.stop_now()


def _lost_containers(pod: Mapping[str, Any]) -> dict[str, int]:
    """Return container → attempt, of containers that run only according to the server.

    This node has no record of them.
    """
    status = pod.get("status") or {}
    if status.get("phase") not in ("Running", "Unknown"):
        return {}
    lost = {}
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field) or ():
            state = container.get("state") or {}
            if "running" in state or "terminated" in state:
                lost[container["name"]] = int(container.get("restartCount") or 0)
    return lost
