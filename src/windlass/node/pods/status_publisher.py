"""Writing a pod's status to the server, and deleting its object at the end."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.resources import PODS
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.responses import is_another
from windlass.kits.clock import Clock
from windlass.node.lifecycle.state_machine import PodMachine
from windlass.node.lifecycle.status import stamp_conditions, status
from windlass.node.lifecycle.transitions import PodStep

_RETRY_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
_log = logging.getLogger("windlass.node")


class StatusPublisher:
    """Follows one pod's machine: call :meth:`changed` after every event.

    ``removed`` is set when the server has the object no more (or another of the same name).
    """

    def __init__(
        self, client: Client, clock: Clock, pod: dict[str, Any], machine: PodMachine, host_address: str
    ) -> None:
        self._client = client
        self._clock = clock
        self._metadata = pod["metadata"]
        self._machine = machine
        self._host_address = host_address
        self._conditions: list[dict[str, Any]] = list((pod.get("status") or {}).get("conditions") or [])
        self._published: dict[str, Any] | None = None
        self._dirty = asyncio.Event()
        self._unknown: set[str] = set()
        self._adopted = False
        self._delete = False
        self.removed = asyncio.Event()

    def changed(self) -> None:
        self._dirty.set()

    def learn(self, container: str) -> None:
        """How this container of an earlier agent stands is not known yet: the server knows better till then."""
        self._adopted = True
        self._unknown.add(container)

    def learned(self, container: str) -> None:
        self._unknown.discard(container)
        self._dirty.set()

    @property
    def _held(self) -> bool:
        """A pod that an earlier agent reported as ended must not seem to run again, not even for a moment."""
        return bool(self._unknown) or (self._adopted and self._machine.step is PodStep.TEARDOWN)

    def delete(self) -> None:
        """Delete the object for good, once its last status is written and no process is left."""
        self._delete = True
        self._dirty.set()

    def nothing_to_tell(self) -> None:
        """The status on the server is right as it is."""
        self._published = self._status()

    def _status(self) -> dict[str, Any]:
        return status(self._machine, self._host_address)

    async def settled(self) -> None:
        """Until the server has been told what is true now."""
        while not self.removed.is_set() and self._published != self._status():
            await asyncio.sleep(0.02)

    async def run(self) -> None:
        """Write whenever something changed, until the object is gone."""
        failures = 0
        while not self.removed.is_set():
            await self._dirty.wait()
            self._dirty.clear()
            if self._held:
                continue  # what ends this says that something changed
            try:
                await self._publish()
                failures = 0
            except (StatusError, Unreachable) as error:
                _log.warning("pod %s: its status cannot be written: %s", self._machine.key, error)
                wait = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
                failures += 1
                await self._clock.sleep(wait)
                self._dirty.set()

    async def _publish(self) -> None:
        name, namespace = self._metadata["name"], self._metadata["namespace"]
        wanted = self._status()
        if wanted != self._published:
            if self._adopted and self._published is None:
                self._conditions = await self._told_before()
            conditions = stamp_conditions(self._clock.now(), wanted["conditions"], self._conditions)
            change = {
                "metadata": {"uid": self._metadata["uid"]},
                "status": {**wanted, "conditions": conditions},
            }
            try:
                await self._client.patch(
                    PODS, name, change, namespace, kind="strategic", subresource="status"
                )
            except StatusError as error:
                if error.code not in (404, 409, 422) or await self._is_there():
                    raise
                self.removed.set()
                return
            self._published, self._conditions = wanted, conditions
        if self._delete and self._machine.step is PodStep.ENDED:
            await self._delete_object()

    async def _told_before(self) -> list[dict[str, Any]]:
        """The conditions that an earlier agent wrote: since when they hold is known there alone."""
        found = await self._client.find(PODS, self._metadata["name"], self._metadata["namespace"])
        if found is None or found["metadata"]["uid"] != self._metadata["uid"]:
            return []
        return list((found.get("status") or {}).get("conditions") or [])

    async def _is_there(self) -> bool:
        try:
            found = await self._client.get(PODS, self._metadata["name"], self._metadata["namespace"])
        except StatusError as error:
            if error.code == 404:
                return False
            raise
        return found["metadata"]["uid"] == self._metadata["uid"]

    async def _delete_object(self) -> None:
        uid = self._metadata["uid"]
        try:
            await self._client.delete(
                PODS, self._metadata["name"], self._metadata["namespace"], grace_seconds=0, uid=uid
            )
        except StatusError as error:
            if error.code != 404 and not is_another(error):
                raise
        # With finalizers the object stays on for a while; there is nothing more to do for it here.
        self.removed.set()
