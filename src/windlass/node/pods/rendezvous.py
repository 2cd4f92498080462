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
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from windlass.api import annotations as names
from windlass.client import torch_store
from windlass.client.torch_store import TorchStore
from windlass.jobs.rendezvous.announce import announce, read_world
from windlass.jobs.rendezvous.state import (
    NO_STATE,
    StateError,
    address_field_of,
    decode_state,
    encode_state,
)
from windlass.kits.clock import Clock
from windlass.node.sandbox.pod_network import Network

_log = logging.getLogger("windlass.node")
POLL_SECONDS = 0.25
"""Interval between looks at the state of a rendezvous."""
CONNECT_SECONDS = 1.0
"""Timeout of a connection, and the interval between the first attempts."""
MAX_CONNECT_SECONDS = 5.0
"""Maximum interval between attempts to connect."""


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """Port and run id of a c10d rendezvous."""

    port: int
    run_id: str = ""


def rendezvous_of(pod: Mapping[str, Any]) -> Rendezvous | None:
    """Return the rendezvous that the pod holds by its annotation."""
    text = (pod["metadata"].get("annotations") or {}).get(names.RENDEZVOUS) or ""
    port, _, run_id = text.partition("/")
    if not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:
        return None
    return Rendezvous(int(port), run_id)


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
            except (OSError, ValueError) as error:
                _log.debug("rendezvous of %s: %s", self._pod()["metadata"]["name"], error)
            finally:
                if store is not None:
                    store.close()
            await self._clock.sleep(pause)
            pause = min(MAX_CONNECT_SECONDS, pause * 1.1)

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = await self._network.connect(
            self._address(), self._rendezvous.port, timeout_seconds=CONNECT_SECONDS
        )
        connection.setblocking(False)
        return await asyncio.open_connection(sock=connection)

    async def _follow(self, store: TorchStore) -> None:
        key = torch_store.state_key(self._rendezvous.run_id)
        while True:
            if not await self._tell(store, key):
                await self._clock.sleep(POLL_SECONDS)

    async def _tell(self, store: TorchStore, key: str) -> bool:
        """Announce the world once. Return whether the state was changed."""
        text = (self._pod()["metadata"].get("annotations") or {}).get(names.WORLD) or ""
        world = frozenset[int]()
        with suppress(ValueError):
            world = read_world(text)
        value = await store.get(key) if world else None
        if value is None or value == NO_STATE:
            return False
        try:
            stored = torch_store.from_value(value)
            announcement = announce(decode_state(stored), world)
        except StateError as error:
            if str(error) != self._told:
                self._told = str(error)
                _log.warning("rendezvous of %s: %s", self._pod()["metadata"]["name"], error)
            return False
        if announcement.state is None:
            return False
        desired = torch_store.to_value(encode_state(announcement.state, address_field_of(stored)))
        done = await store.compare_set(key, value, desired) == desired
        if done:
            name = self._pod()["metadata"]["name"]
            _log.info("rendezvous of %s for workers %s: %s", name, text, announcement.words)
        return done
