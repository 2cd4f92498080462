"""Factory of the pod workers of one node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from windlass.api.devices.numa_annotations import NumaNodeRecord
from windlass.client.client import Client
from windlass.client.rendezvous import rendezvous_of
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.node.devices.device_plugins import DevicePlugins
from windlass.node.devices.manager import DeviceManager
from windlass.node.lifecycle.state_machine import machine_of
from windlass.node.limits import Limiter
from windlass.node.options import AgentOptions
from windlass.node.paths import NodePaths
from windlass.node.pods.in_place import InPlaceRestarts
from windlass.node.pods.launcher import ContainerLauncher, NodeFacts, hostname_in
from windlass.node.pods.pod_events import PodEvents
from windlass.node.pods.pod_names import PodNames
from windlass.node.pods.pod_resources import PodResources
from windlass.node.pods.pod_sandbox import PodSandbox
from windlass.node.pods.pod_tasks import PodTasks
from windlass.node.pods.rendezvous import RendezvousAnnouncer
from windlass.node.pods.status_publisher import StatusPublisher
from windlass.node.pods.worker import PodWorker
from windlass.node.probes.handlers import Actions
from windlass.node.restart_barriers import RestartBarriers
from windlass.node.runtime.helpers import ForkServer
from windlass.node.runtime.runner import Runner
from windlass.node.sandbox.pod_network import Network
from windlass.node.services.proxies import ServiceProxies
from windlass.node.static_cpus import exclusive_counts


@dataclass(slots=True)
class PodWorkerFactory:
    """Factory of pod workers. It gives each part of a worker the components that the part uses."""

    client: Client
    clock: Clock
    rng: Random
    options: AgentOptions
    paths: NodePaths
    node: NodeFacts
    network: Network
    names: PodNames
    devices: DeviceManager
    limiter: Limiter
    numa_nodes: NumaNodeRecord
    runner: Runner
    fork_server: ForkServer
    events: PodEvents
    plugins: DevicePlugins | None = None
    services: ServiceProxies | None = None
    barriers: RestartBarriers | None = None

    def create(self, pod: dict[str, Any]) -> PodWorker:
        """Return the worker of ``pod``. It works from now on and needs a running event loop."""
        machine = machine_of(pod)
        tasks = PodTasks(machine)
        launcher = self._launcher(pod, machine.key, tasks)
        actions = Actions(
            self.network,
            self.clock,
            attempt=lambda name: self.paths.attempt(machine.uid, name, machine.containers[name].attempt),
            address=lambda: machine.address,
        )
        worker = PodWorker(
            pod,
            machine,
            launcher=launcher,
            publisher=StatusPublisher(
                self.client,
                self.clock,
                pod,
                machine,
                self.node.address,
                launcher.resources.cpus_of,
                launcher.resources.plugin_devices_of,
            ),
            actions=actions,
            names=self.names,
            paths=self.paths,
            events=self.events,
            tasks=tasks,
            clock=self.clock,
            rng=self.rng,
        )
        rendezvous = rendezvous_of(pod["metadata"].get("annotations") or {})
        if rendezvous is not None:
            announcer = RendezvousAnnouncer(
                self.network,
                self.clock,
                rendezvous,
                pod=lambda: worker.pod,
                address=lambda: "" if machine.is_over else machine.address,
            )
            tasks.spawn(announcer.run())
        if machine.job_set and self.barriers is not None:
            tasks.spawn(InPlaceRestarts(worker, self.barriers, self.client, self.clock).run())
        return worker

    def _launcher(self, pod: dict[str, Any], key: str, tasks: PodTasks) -> ContainerLauncher:
        uid = pod["metadata"]["uid"]
        resources = PodResources(
            uid,
            key,
            devices=self.devices,
            limiter=self.limiter,
            network=self.network,
            host_address=self.node.address,
            numa_nodes=self.numa_nodes,
            exclusive_cpus=exclusive_counts(pod) if self.options.static_cpus else {},
            plugins=self.plugins,
        )
        return ContainerLauncher(
            pod,
            client=self.client,
            runner=self.runner,
            resources=resources,
            sandbox=PodSandbox(
                self.network,
                self.fork_server,
                uid,
                self.paths.pod(uid),
                pod["spec"],
                hostname_in(pod, self.node.name),
            ),
            network=self.network,
            names=self.names,
            node=self.node,
            options=self.options,
            paths=self.paths,
            events=self.events,
            tasks=tasks,
            services=self.services,
        )
