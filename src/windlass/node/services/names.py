"""Names of Services in the hosts files of this node's pods."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from windlass.client.informers import Informer
from windlass.kits.clock import Clock
from windlass.node.pods.pod_names import PodNames
from windlass.node.sandbox.hosts import NamedService
from windlass.node.services.proxies import ServiceProxies
from windlass.node.services.tables import NodeService, ready_addresses

_LOOKUP_SECONDS = 30.0
"""Interval between look-ups of external names, in seconds."""


class ServiceNames:
    """Keeps ``names.services`` in step with Services, EndpointSlices and external names."""

    def __init__(
        self, names: PodNames, proxies: ServiceProxies, clock: Clock, services: Informer[NodeService]
    ) -> None:
        self._names = names
        self._proxies = proxies
        self._clock = clock
        self._external: dict[str, tuple[str, ...]] = {}
        """External name → its addresses."""
        self._looked_up = asyncio.Event()
        services.add_handler(self._set, lambda _, new: self._set(new), self._drop)
        proxies.on_slices = self._slices_changed

    def _slices_changed(self, key: str) -> None:
        service = self._proxies.services.get(key)
        if service is not None and service.headless and not service.selector:
            self._set(service)

    def _set(self, service: NodeService) -> None:
        written: tuple[tuple[str, str], ...] = ()
        if service.external_name:
            written = tuple((address, "") for address in self._external.get(service.external_name, ()))
            if service.external_name not in self._external:
                self._looked_up.set()
        elif service.headless and not service.selector:
            slices = self._proxies.slices_of.get(service.key, {}).values()
            written = tuple((one.address, one.hostname) for one in ready_addresses(slices))
        named = NamedService(
            service.namespace,
            service.name,
            service.selector,
            address=self._proxies.addresses.address(service.cluster_address),
            machine_address=self._proxies.machine_addresses.address(service.cluster_address),
            publishes_unready=service.publishes_unready,
            written=written,
            alias=service.external_name,
        )
        if self._names.services.get(service.key) != named:
            self._names.services[service.key] = named
            self._names.changed()

    def _drop(self, service: NodeService) -> None:
        self._names.services.pop(service.key, None)
        self._names.changed()

    async def run(self) -> None:
        """Look external names up with the machine's resolver: new ones at once, all again later."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout(_LOOKUP_SECONDS):
                    await self._looked_up.wait()
            except TimeoutError:
                pass
            self._looked_up.clear()
            services = [one for one in self._proxies.services.values() if one.external_name]
            for service in services:
                if service.external_name.endswith((".svc", ".svc.cluster.local")):
                    self._external[service.external_name] = ()
                    continue
                try:
                    found: list[Any] = await loop.getaddrinfo(
                        service.external_name, None, family=socket.AF_INET, type=socket.SOCK_STREAM
                    )
                except OSError:
                    found = []
                addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
                self._external[service.external_name] = addresses
                self._set(service)
