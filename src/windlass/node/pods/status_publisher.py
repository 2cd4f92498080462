"""Publisher of a pod's status. At the end it deletes the object."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.nodes.cpu_sets import cpu_status
from windlass.api.resources import PODS
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.responses import is_another
from windlass.kits.clock import Clock
from windlass.node.lifecycle.state_machine import PodMachine
from windlass.node.lifecycle.status import PENDING, stamp_conditions, status
from windlass.node.lifecycle.transitions import PodStep

_RETRY_SECONDS = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
_START_SECONDS = 0.5
"""Maximum time in seconds for which the first status waits for the start of the containers."""
_STARTING = {"ContainerCreating", "PodInitializing"}
"""Reasons of containers that wait for nothing but their start."""
_log = logging.getLogger("windlass.node")


class StatusPublisher:
    """Publisher of one pod's status. Call :meth:`changed` after every event of its machine.

    ``removed`` is set when the server no longer has the object, or has another of the same name.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        pod: dict[str, Any],
        machine: PodMachine,
        host_address: str,
        cpus_of: Callable[[str], Sequence[int]] = lambda _: (),
        plugin_devices_of: Callable[[str], list[dict[str, Any]]] = lambda _: [],
    ) -> None:
        self._client = client
        self._clock = clock
        self._metadata = pod["metadata"]
        self._machine = machine
        self._host_address = host_address
        self._cpus_of = cpus_of
        self._plugin_devices_of = plugin_devices_of
        self._conditions: list[dict[str, Any]] = list((pod.get("status") or {}).get("conditions") or [])
        self._published: dict[str, Any] | None = None
        self._dirty = asyncio.Event()
        self._unconfirmed: set[str] = set()
        self._adopted = False
        self._delete = False
        self.removed = asyncio.Event()

    def changed(self) -> None:
        self._dirty.set()

    def expect(self, container: str) -> None:
        """Publish nothing until :meth:`confirm`: the state of this adopted container is unknown.

        Until then the status on the server is more accurate.
        """
        self._adopted = True
        self._unconfirmed.add(container)

    def confirm(self, container: str) -> None:
        """Report that the state of an adopted container is known."""
        self._unconfirmed.discard(container)
        self._dirty.set()

    @property
    def _on_hold(self) -> bool:
        """Return whether publishing waits.

        A pod that an earlier agent reported as ended must never be published as running.
        """
        return bool(self._unconfirmed) or (self._adopted and self._machine.step is PodStep.TEARDOWN)

    def delete(self) -> None:
        """Delete the object once its last status is written and no process is left."""
        self._delete = True
        self._dirty.set()

    def mark_published(self) -> None:
        """Treat the status on the server as current."""
        self._published = self._status()

    def _status(self) -> dict[str, Any]:
        record = status(self._machine, self._host_address)
        for container in record["containerStatuses"]:
            if "running" not in container["state"]:
                continue
            cpus = self._cpus_of(container["name"])
            listed = [*([cpu_status(cpus)] if cpus else []), *self._plugin_devices_of(container["name"])]
            if listed:
                container["allocatedResourcesStatus"] = listed
        return record

    async def settled(self) -> None:
        """Wait until the server has the current status."""
        while not self.removed.is_set() and self._published != self._status():
            await asyncio.sleep(0.02)

    async def run(self) -> None:
        """Write the status after each change until the object is removed."""
        failures = 0
        while not self.removed.is_set():
            await self._dirty.wait()
            if self._published is None:
                await self._await_start()
            self._dirty.clear()
            if self._on_hold:
                continue  # the end of the wait is a change again
            try:
                await self._publish()
                failures = 0
            except (StatusError, Unreachable) as error:
                _log.warning("pod %s: the status was not written, retrying: %s", self._machine.key, error)
                wait = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
                failures += 1
                await self._clock.sleep(wait)
                self._dirty.set()

    async def _await_start(self) -> None:
        """Wait a moment for the start of the containers, so that it is in the first status.

        A status that only says that a pod starts costs as much as its end, and a short pod has
        often ended by then. Everything that keeps a pod from its start is published at once.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                while self._is_starting():
                    self._dirty.clear()
                    await self._dirty.wait()

    def _is_starting(self) -> bool:
        if self._delete or self._adopted or self.removed.is_set():
            return False
        record = status(self._machine, self._host_address)
        states = [*record["containerStatuses"], *record.get("initContainerStatuses", ())]
        waiting = [one["state"]["waiting"] for one in states if "waiting" in one["state"]]
        plain = all(one.get("reason") in _STARTING and "message" not in one for one in waiting)
        return record["phase"] == PENDING and plain and not self._machine.failure_reason

    async def _publish(self) -> None:
        name, namespace = self._metadata["name"], self._metadata["namespace"]
        wanted = self._status()
        if wanted != self._published:
            if self._adopted and self._published is None:
                self._conditions = await self._published_conditions()
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
                if error.code not in (404, 409, 422) or await self._exists():
                    raise
                self.removed.set()
                return
            self._published, self._conditions = wanted, conditions
        if not self._delete or self._machine.step is not PodStep.ENDED:
            return
        if wanted == self._status():
            await self._delete_object()
        else:  # The pod ended during the request. Finalizers may keep it, so it needs its last phase.
            self._dirty.set()

    async def _published_conditions(self) -> list[dict[str, Any]]:
        """Return the conditions that an earlier agent wrote: only they have the transition times."""
        obj = await self._client.find(PODS, self._metadata["name"], self._metadata["namespace"])
        if obj is None or obj["metadata"]["uid"] != self._metadata["uid"]:
            return []
        return list((obj.get("status") or {}).get("conditions") or [])

    async def _exists(self) -> bool:
        try:
            obj = await self._client.get(PODS, self._metadata["name"], self._metadata["namespace"])
        except StatusError as error:
            if error.code == 404:
                return False
            raise
        return obj["metadata"]["uid"] == self._metadata["uid"]

    async def _delete_object(self) -> None:
        uid = self._metadata["uid"]
        try:
            await self._client.delete(
                PODS, self._metadata["name"], self._metadata["namespace"], grace_seconds=0, uid=uid
            )
        except StatusError as error:
            if error.code != 404 and not is_another(error):
                raise
        # With finalizers the object stays for a while, but the agent has nothing left to do.
        self.removed.set()
