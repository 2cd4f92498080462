"""The node agent: this machine as a node, its pods as processes, and all simulated nodes.

What runs survives the agent: shims and sandboxes are processes of their own, and everything the agent has
to know again lies in its folder. :meth:`NodeAgent.run` first takes up what an earlier agent left, then
follows the server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from windlass.api import annotations
from windlass.api.resources import NODES, PODS, SERVICES
from windlass.client.client import Client
from windlass.client.informers import SharedInformers
from windlass.client.recorder import EventRecorder
from windlass.kits.clock import Clock
from windlass.kits.files import FileLock
from windlass.kits.rng import Random
from windlass.kits.state import StateFolder
from windlass.node import machine
from windlass.node.device_reporter import DeviceReporter, notes_decoder
from windlass.node.devices import discovery, mps, numa
from windlass.node.devices.allocations import DeviceAllocations, DeviceBusy
from windlass.node.devices.discovery import DiscoveryOptions, Inventory
from windlass.node.devices.health import FaultRecords
from windlass.node.devices.index_store import DeviceIndexStore
from windlass.node.devices.manager import DeviceManager, Rejected
from windlass.node.devices.mig_instances import MigInstanceFile, NvmlSlicer, SimulatedSlicer
from windlass.node.devices.monitor import DeviceMonitor, published_of
from windlass.node.devices.nvml import Nvml
from windlass.node.heartbeat import OwnNode
from windlass.node.lifecycle.events import PodEvent, PodEventKind
from windlass.node.lifecycle.state_machine import Impossible
from windlass.node.limits import find_limiter
from windlass.node.options import AgentOptions
from windlass.node.paths import NodePaths
from windlass.node.pods.context import PodsContext
from windlass.node.pods.pod_names import PodNames
from windlass.node.pods.record import PodDecoder, PodRecord
from windlass.node.pods.worker import PodWorker, read_pod_record
from windlass.node.runtime import helpers, log_reader, syscalls
from windlass.node.runtime.runner import ProcessRunner, Runner
from windlass.node.sandbox.hosts import NamedPod, NamedService, hostname_of
from windlass.node.sandbox.pod_network import NO_ISOLATION, Network, NetworkError, find_capabilities
from windlass.node.simulated import SimulatedNodes, decode_simulated

_log = logging.getLogger("windlass.node")
_CHORES_SECONDS = 60.0
_SWEEP_SECONDS = 2.0
_STOPPED_SLACK_SECONDS, _HURRIED_SLACK_SECONDS = 8.0, 3.0
_LOCK_TRIES, _LOCK_RETRY_SECONDS = 20, 0.05


class AgentRunning(Exception):
    """Another agent works on the same folder."""


class _ServiceMeta(msgspec.Struct):
    name: str
    namespace: str = ""


class _ServiceSpec(msgspec.Struct, rename="camel"):
    cluster_ip: str | None = msgspec.field(name="clusterIP", default=None)
    selector: dict[str, str] | None = None
    publish_not_ready_addresses: bool | None = None


class _ServiceWire(msgspec.Struct):
    metadata: _ServiceMeta
    spec: _ServiceSpec = msgspec.field(default_factory=_ServiceSpec)


_decode_service = msgspec.json.Decoder(_ServiceWire).decode


def decode_service(data: msgspec.Raw) -> NamedService:
    wire = _decode_service(data)
    return NamedService(
        wire.metadata.namespace,
        wire.metadata.name,
        wire.spec.selector or {},
        headless=wire.spec.cluster_ip in (None, "", "None"),
        publishes_unready=bool(wire.spec.publish_not_ready_addresses),
    )


class NodeAgent:
    """``runner`` stands in for processes in tests. ``run`` returns only by cancellation or failure."""

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
        self._paths = NodePaths(state.node)
        self._fork_server = helpers.ForkServer()
        self._runner = runner or ProcessRunner(self._fork_server)
        self._informers = SharedInformers(client, clock, rng)
        self._rng = rng
        self.workers: dict[str, PodWorker] = {}
        self.host: PodsContext | None = None
        self.node: OwnNode | None = None
        self.ready = asyncio.Event()
        """Set when what an earlier agent left has been taken up and the server is being followed."""
        self._stopping = False
        self._nvml: Nvml | None = None
        self._gone: set[asyncio.Task[None]] = set()

    # -- life ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until cancelled. Pods keep running, unless the option ``stop_pods`` says otherwise.

        Raises :class:`AgentRunning`, ``OSError`` for a folder that cannot be used.
        """
        self._paths.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = FileLock(self._paths.root / "lock")
        await self._take(lock)
        try:
            self._fork_server.open(self._paths.root)
            context = await self._set_up()
            self.host = context
            self._pods = self._informers.informer(PODS, decode=PodDecoder(context.node_name))
            services = self._informers.informer(SERVICES, decode=decode_service)
            nodes = self._informers.informer(NODES, decode=decode_simulated)
            services.add_handler(self._service, lambda _, new: self._service(new), self._service_gone)
            simulated = SimulatedNodes(
                self._client,
                self._clock,
                nodes,
                self._pods,
                start_seconds=self._options.simulated_start_seconds,
            )
            device_reporter = self._card_duty(context, self.node)
            self._take_up()
            self._pods.add_handler(self._saw_pod, lambda _, new: self._saw_pod(new), self._pod_gone)
            assert self.node is not None
            self.ready.set()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._informers.run(), name="informers")
                group.create_task(context.recorder.run(), name="events")
                group.create_task(self.node.run(), name="heartbeat")
                group.create_task(simulated.run(), name="simulated nodes")
                group.create_task(self._after_sync(), name="orphans")
                group.create_task(self._chores(), name="chores")
                group.create_task(self._sweep(), name="sweep")
                if device_reporter is not None:
                    group.create_task(device_reporter.run(), name="cards")
        finally:
            try:
                if self._options.stop_pods and not self._stopping and self.host is not None:
                    self._kill_all()
                for worker in tuple(self.workers.values()):
                    await worker.close()
                for task in tuple(self._gone):
                    task.cancel()
            finally:
                self._fork_server.close()
                if self._nvml is not None:
                    self._nvml.close()
                lock.release()

    async def _take(self, lock: FileLock) -> None:
        """A helper of an agent that has just died may hold its descriptors until its own exec is over."""
        for _ in range(_LOCK_TRIES):
            if lock.acquire():
                return
            await self._clock.sleep(_LOCK_RETRY_SECONDS)
        raise AgentRunning(f"another agent works on {self._paths.root}")

    async def stop_pods(self, grace_seconds: float) -> None:
        """End every pod's processes, tell the server, take the network down. :meth:`run` must be running."""
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
            _log.warning("some pods did not end, or the server did not take their status, in time")
        if self.host is not None:
            await self.host.cards.sweep()  # what is not removed now would be nobody's when the folder is gone
            await self.host.network.take_down()

    async def _set_up(self) -> PodsContext:
        options = self._options
        found = machine.find_machine(self._paths.root)
        name = options.node_name or found.hostname
        capabilities = NO_ISOLATION if options.isolation == "none" else await find_capabilities()
        network = Network(self._paths.root, capabilities, wanted_range=options.pod_range)
        try:
            await network.prepare()
        except NetworkError as error:
            _log.warning("pods get no network of their own: %s", error)
            capabilities = replace(NO_ISOLATION, refused={"all": str(error)})
            network = Network(self._paths.root, capabilities)
            await network.prepare()
        device_manager = self._find_cards(name)
        await self._watch.prime()
        inventory = device_manager.inventory
        limiter = find_limiter(self._paths.root, found.cores)
        capacity, allocatable = machine.resources(
            found, inventory, max_pods=options.max_pods, reserve=options.memory_reserve_bytes
        )
        isolated = (*capabilities.namespaces, *(["pid"] if capabilities.pid else []))
        words = {
            annotations.ISOLATION: ", ".join(isolated) or "none",
            annotations.LIMITS: limiter.words,
            annotations.OUTBOUND: f"{network.outbound.kind}: {network.outbound.note}",
        }
        published = published_of(device_manager)
        zones = numa.record_of(found.cores, options)
        words |= {**published.annotations, **numa.words(zones)}
        self.node = OwnNode(
            self._client,
            self._clock,
            name,
            found,
            labels=machine.labels(name, found, inventory),
            annotations=words,
            capacity=capacity,
            allocatable=allocatable,
        )
        self.node.change_devices(published.labels, published.aliases, published.amounts, published.conditions)
        return PodsContext(
            client=self._client,
            clock=self._clock,
            recorder=EventRecorder(self._client, "windlass-node", self._clock, self._rng, host=name),
            options=options,
            node_name=name,
            paths=self._paths,
            capabilities=capabilities,
            network=network,
            cards=device_manager,
            limiter=limiter,
            zones=zones,
            runner=self._runner,
            fork_server=self._fork_server,
            allocatable=allocatable,
            own_environment=dict(os.environ),
            host_address=found.address,
            rng=self._rng,
            names=PodNames(self._clock),
        )

    def _find_cards(self, name: str) -> DeviceManager:
        """The machine's devices, and who looks after them. NVML stays open as long as the agent lives."""
        options = self._options
        gpus, mig = discovery.split_option(options.gpus)
        made = MigInstanceFile(self._paths.slices)
        self._nvml = discovery.open_nvml() if gpus == discovery.AUTO else None
        device_manager = DeviceManager(Inventory(), DeviceAllocations(self._paths.ledger))
        memory = DeviceIndexStore(self._paths.card_memory, syscalls.boot_id())

        def wishes() -> DiscoveryOptions:
            return DiscoveryOptions(
                mig or discovery.MIG_AUTO,
                frozenset(made.made),
                may_carve=os.geteuid() == 0,
                refused=device_manager.refused,
                mps=device_manager.daemon.runs,
                numbers=memory.numbers,
            )

        device_manager.daemon = mps.find_daemon(os.environ)
        device_manager.inventory = discovery.discover(gpus, wishes(), machine=name, nvml=self._nvml)
        if device_manager.inventory.simulated:
            device_manager.slicer = SimulatedSlicer(made)
        elif self._nvml is not None:
            device_manager.slicer = NvmlSlicer(self._nvml, made)
        self._watch = DeviceMonitor(
            device_manager,
            self._clock,
            nvml=self._nvml,
            faults=FaultRecords(self._paths.faults, syscalls.boot_id()),
            wishes=wishes,
            environment=os.environ,
            period_seconds=options.card_period_seconds,
            memory=memory if self._nvml is not None else None,
        )
        return device_manager

    def _card_duty(self, context: PodsContext, node: OwnNode | None) -> DeviceReporter | None:
        """Who looks after the devices; None where there are none."""
        assert node is not None
        if not context.cards.inventory.cards:
            return None
        device_reporter = DeviceReporter(self._client, context, node, self._watch, self.workers)
        own = self._informers.informer(NODES, decode=notes_decoder(node.name))
        own.add_handler(device_reporter.noted, lambda _, new: device_reporter.noted(new), None)
        return device_reporter

    def _take_up(self) -> None:
        """Workers for all pods that an earlier agent left in the folder."""
        assert self.host is not None
        self._paths.pods.mkdir(exist_ok=True, mode=0o700)
        known = set()
        for folder in sorted(self._paths.pods.iterdir()):
            record = read_pod_record(folder)
            if record is None:
                shutil.rmtree(folder, ignore_errors=True)  # its pod was never begun
                continue
            worker = self._worker(record["pod"])
            known.add(worker.uid)
            worker.resume()
        if lost := self.host.cards.allocations.lost:
            self._take_cards_again(lost)
        self.host.cards.allocations.keep_only(known)

    def _take_cards_again(self, lost: str) -> None:
        _log.warning("%s: who holds which GPU is taken from the bindings of the pods that are here", lost)
        for worker in self.workers.values():
            try:
                worker.take_cards_again()
            except (Rejected, DeviceBusy) as error:
                _log.warning("pod %s does not get its GPUs again: %s", worker.machine.key, error)

    async def _after_sync(self) -> None:
        """Pods of ours whose object was removed while no agent looked."""
        await self._pods.wait_synced()
        present = {pod.uid for pod in self._pods.items.values()}
        for uid, worker in tuple(self.workers.items()):
            if uid not in present:
                worker.object_removed()

    async def _sweep(self) -> None:
        """Collect helpers that end after whoever waited for them has stopped waiting."""
        while True:
            helpers.sweep()
            await self._clock.sleep(_SWEEP_SECONDS)

    async def _chores(self) -> None:
        assert self.host is not None
        while True:
            self.host.names.expire()
            log_reader.prune(
                self._paths.logs,
                set(self.workers),
                now=self._clock.now(),
                max_age_seconds=self._options.log_retention_seconds,
                max_total_bytes=self._options.log_retention_bytes,
            )
            await self._clock.sleep(_CHORES_SECONDS)
            try:
                await self.host.network.ensure_box()
            except (NetworkError, OSError) as error:
                _log.warning("the network of the pods cannot be made again: %s", error)

    # -- what the server says ------------------------------------------------------------------

    def _saw_pod(self, record: PodRecord) -> None:
        try:
            self._pod(record)
        except Impossible as error:  # one pod must not take the agent down
            _log.error("%s", error)

    def _pod(self, record: PodRecord) -> None:
        assert self.host is not None
        if record.raw is None:
            self._other_pod(record)
            return
        worker = self.workers.get(record.uid)
        if worker is not None:
            worker.update(record.raw)
            return
        if self._stopping or (record.is_over and not record.deleted):
            return
        if not self._paths.pods.is_dir():
            return  # the state folder was removed: the supervisor is about to end this agent
        worker = self._worker(record.raw)
        self._reserve_siblings(record)
        lost = _ran_before(record.raw)
        if lost:
            worker.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            worker.resume(lost)
        elif record.is_over:
            worker.only_delete()
        else:
            worker.begin()
        if record.deleted and not record.is_over:
            worker.delete(record.grace_seconds)

    def _pod_gone(self, record: PodRecord) -> None:
        worker = self.workers.get(record.uid)
        if worker is not None:
            worker.object_removed()
        elif self.host is not None:
            self.host.network.release(record.uid)
            self.host.names.set_pod(record.uid, None)

    def _other_pod(self, record: PodRecord) -> None:
        """A pod of another node gives back the address that was kept for it here."""
        assert self.host is not None
        if (record.node or record.is_over) and record.uid not in self.workers:
            self.host.network.release(record.uid)
            self.host.names.set_pod(record.uid, None)

    def _reserve_siblings(self, record: PodRecord) -> None:
        """Addresses for the members of the gang that are not bound yet, so that their names resolve already."""
        assert self.host is not None
        if not record.group and not record.subdomain:
            return
        try:
            self.host.network.address(record.uid)  # its own before those of others
            for other in self._pods.items.values():
                same = (record.group and other.group == record.group) or (
                    record.subdomain and other.subdomain == record.subdomain
                )
                if same and other.namespace == record.namespace and not other.node and not other.is_over:
                    self.host.names.set_pod(other.uid, self._named(other))
        except NetworkError as error:
            _log.warning("not all members of the gang of %s have an address here: %s", record.key, error)

    def _named(self, record: PodRecord) -> NamedPod:
        assert self.host is not None
        return NamedPod(
            uid=record.uid,
            namespace=record.namespace,
            name=record.name,
            hostname=hostname_of(record.name, record.hostname),
            subdomain=record.subdomain,
            address=self.host.network.address(record.uid),
            labels=record.labels or {},
        )

    def _service(self, service: NamedService) -> None:
        assert self.host is not None
        self.host.names.services[f"{service.namespace}/{service.name}"] = service
        self.host.names.changed()

    def _service_gone(self, service: NamedService) -> None:
        assert self.host is not None
        self.host.names.services.pop(f"{service.namespace}/{service.name}", None)
        self.host.names.changed()

    # -- workers -------------------------------------------------------------------------------

    def _worker(self, pod: dict[str, Any]) -> PodWorker:
        assert self.host is not None
        worker = PodWorker(self.host, pod)
        self.workers[worker.uid] = worker
        task = asyncio.get_running_loop().create_task(self._until_gone(worker))
        self._gone.add(task)
        task.add_done_callback(self._gone.discard)
        return worker

    async def _until_gone(self, worker: PodWorker) -> None:
        await worker.gone.wait()
        self.workers.pop(worker.uid, None)
        await worker.close()

    def _kill_all(self) -> None:
        for worker in self.workers.values():
            worker.stop_now()


def _ran_before(pod: Mapping[str, Any]) -> dict[str, int]:
    """Containers that the server believes to run or to have run, of which this machine knows nothing."""
    status = pod.get("status") or {}
    if status.get("phase") not in ("Running", "Unknown"):
        return {}
    found = {}
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field) or ():
            state = container.get("state") or {}
            if "running" in state or "terminated" in state:
                found[container["name"]] = int(container.get("restartCount") or 0)
    return found
