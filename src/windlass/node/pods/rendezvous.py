"""Announcement of the world of an elastic job to the ``torchrun`` rendezvous in a pod of this node.

The controller of the job writes on the pod which workers have a node. This module
connects to the TCPStore that the pod's ``torchrun`` serves and edits the state of the
rendezvous, so that each round has exactly these workers
(:mod:`windlass.jobs.rendezvous.announce`). ``torchrun`` itself is unmodified. Without
this module its own time-outs apply.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from windlass.api import annotations as names
from windlass.client import torch_store
from windlass.client.rendezvous import Rendezvous, announce_once, world_of
from windlass.client.torch_store import TorchStore
from windlass.jobs.rendezvous.state import RendezvousStateError
from windlass.kits.clock import Clock
from windlass.node.sandbox.pod_network import Network

_log = logging.getLogger("windlass.node")
POLL_SECONDS = 0.25
"""Interval between looks at the state of a rendezvous."""
CONNECT_SECONDS = 1.0
"""Timeout of a connection, and the interval between the first attempts."""
MAX_CONNECT_SECONDS = 5.0
"""Maximum interval between attempts to connect."""


class RendezvousAnnouncer:
    """Announcer of one pod. ``pod`` and ``address`` return the current state of the pod."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        rendezvous: Rendezvous,
        pod: Callable[[], Mapping[str, Any]],
        address: Callable[[], str],
    ) -> None:
        self._network, self._clock, self._rendezvous = network, clock, rendezvous
        self._pod, self._address = pod, address
        self._told = ""

    async def run(self) -> None:
        """Announce every change of the world until cancelled.

        ``address`` is empty while the pod has no process.
        """
        pause = CONNECT_SECONDS
        while True:
            store = None
            try:
                if self._address():
                    store = await torch_store.connect(self._dial)
                    pause = CONNECT_SECONDS
                    await self._follow(store)
            except RendezvousStateError as error:
                self._report(str(error))
            except (OSError, ValueError) as error:
                _log.debug("rendezvous of %s: %s", self._name, error)
            finally:
                if store is not None:
                    store.close()
            await self._clock.sleep(pause)
            pause = min(MAX_CONNECT_SECONDS, pause * 1.1)

    @property
    def _name(self) -> str:
        return self._pod()["metadata"]["name"]

    def _report(self, text: str) -> None:
        """Log a state that cannot be read, once."""
        if text != self._told:
            self._told = text
            _log.warning("rendezvous of %s: %s", self._name, text)

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = await self._network.connect(
            self._address(), self._rendezvous.port, timeout_seconds=CONNECT_SECONDS
        )
        connection.setblocking(False)
        return await asyncio.open_connection(sock=connection)

    async def _follow(self, store: TorchStore) -> None:
        while True:
            annotations = self._pod()["metadata"].get("annotations") or {}
            result = await announce_once(store, self._rendezvous, world_of(annotations))
            if result.words:
                world = annotations.get(names.WORLD)
                _log.info("rendezvous of %s for workers %s: %s", self._name, world, result.words)
            else:
                await self._clock.sleep(POLL_SECONDS)
