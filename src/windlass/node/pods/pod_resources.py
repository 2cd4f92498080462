"""Node resources of one pod: devices, network address, CPU and memory limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from windlass.api.devices.numa_annotations import NumaNodeRecord
from windlass.node.devices import numa
from windlass.node.devices.container_devices import VisibleDevice
from windlass.node.devices.device_plugins import DevicePlugins, DevicesUnavailable
from windlass.node.devices.manager import DeviceManager
from windlass.node.devices.mps import Daemon
from windlass.node.limits import ContainerLimits, Enforcement, Limiter, limits_of
from windlass.node.pods.environment import ContainerConfigError
from windlass.node.sandbox.pod_network import Network
from windlass.node.static_cpus import NotEnoughCpus


class PodResources:
    """Node resources of one pod.

    ``key`` is the pod's ``namespace/name``. ``host_address`` is the node's own address.
    ``numa_nodes`` has the node's NUMA policy, which restricts a pod to some CPUs.
    ``exclusive_cpus``: container → number of CPUs that it gets for itself.
    """

    def __init__(
        self,
        uid: str,
        key: str,
        *,
        devices: DeviceManager,
        limiter: Limiter,
        network: Network,
        host_address: str,
        numa_nodes: NumaNodeRecord,
        exclusive_cpus: Mapping[str, int] | None = None,
        plugins: DevicePlugins | None = None,
    ) -> None:
        self._uid = uid
        self._key = key
        self._devices = devices
        self._limiter = limiter
        self._network = network
        self._host_address = host_address
        self._numa_nodes = numa_nodes
        self._exclusive_cpus = exclusive_cpus or {}
        self._plugins = plugins

    # -- devices -------------------------------------------------------------------------------

    @property
    def device_kinds(self) -> Sequence[str]:
        """Resource names of the node's devices."""
        return self._devices.inventory.kinds

    @property
    def has_simulated_devices(self) -> bool:
        return self._devices.inventory.simulated

    @property
    def mps_daemon(self) -> Daemon:
        return self._devices.daemon

    async def admit_devices(self, pod: Mapping[str, Any]) -> None:
        """Allocate the devices that the binding names and create their MIG instances.

        Raises :class:`~windlass.node.devices.manager.Rejected`, ``DeviceBusy`` and ``SliceBusy``.
        """
        await self._devices.admit(self._uid, self._key, pod)

    def allocate_devices(self, pod: Mapping[str, Any]) -> None:
        """Allocate the devices that the binding names, unless the pod has devices already.

        Raises :class:`~windlass.node.devices.manager.Rejected` and ``DeviceBusy``.
        """
        self._devices.allocate(self._uid, self._key, pod)

    async def visible_devices(self) -> list[VisibleDevice]:
        """Return the allocated devices with their identifiers.

        Raises ``SliceBusy``, ``SliceRefused`` and ``LookupError``.
        """
        return await self._devices.visible_devices(self._uid)

    async def plugin_environment(self, container: Mapping[str, Any]) -> dict[str, str]:
        """Return the variables of device plugins for a container.

        Raises :class:`ContainerConfigError` while its devices are not available.
        """
        if self._plugins is None:
            return {}
        try:
            return await self._plugins.allocate(self._uid, container)
        except DevicesUnavailable as error:
            raise ContainerConfigError(str(error), "DeviceNotReady") from error

    def plugin_devices_of(self, container: str) -> list[dict[str, Any]]:
        """Return the status of a container's devices of device plugins."""
        return self._plugins.status_of(self._uid, container) if self._plugins is not None else []

    # -- address -------------------------------------------------------------------------------

    def address(self, *, host_network: bool) -> str:
        """Return the pod's address. A pod on the host network has the node's address."""
        if not host_network:
            return self._network.address(self._uid)
        if self._network.capabilities.network and self._network.uplink:
            return self._network.host_address
        return self._host_address

    def adopt_address(self, address: str) -> None:
        """Retain the address of a pod that an earlier agent started."""
        self._network.adopt(self._uid, address)

    # -- limits --------------------------------------------------------------------------------

    def apply_limits(self, container: Mapping[str, Any], annotations: Mapping[str, str]) -> Enforcement:
        """Return the limits of a container.

        Raises :class:`ContainerConfigError` while too few CPUs are free for a container
        that needs its own.
        """
        cores = numa.cores_for(annotations, self._numa_nodes)
        try:
            return self._limiter.apply(self._uid, container["name"], self._limits_of(container), cores)
        except NotEnoughCpus as error:
            raise ContainerConfigError(str(error)) from error

    def _limits_of(self, container: Mapping[str, Any]) -> ContainerLimits:
        exclusive = self._exclusive_cpus.get(container["name"], 0)
        return replace(limits_of(container), exclusive_cpus=exclusive)

    def adopt_limits(self, container: Mapping[str, Any], affinity: Sequence[int]) -> None:
        """Count the CPUs of a container that an earlier agent started."""
        self._limiter.adopt(self._uid, container["name"], affinity, self._limits_of(container))

    def cpus_of(self, container: str) -> tuple[int, ...]:
        """Return the CPUs that a running container may use; empty for all of the node."""
        return self._limiter.cpus_of(self._uid, container)

    def release(self) -> None:
        """Release devices, limits and address. No process of the pod is left."""
        self._devices.release(self._uid)
        if self._plugins is not None:
            self._plugins.release(self._uid)
        self._limiter.release(self._uid)
        self._network.release(self._uid)
