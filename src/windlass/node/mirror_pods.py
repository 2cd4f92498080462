"""Mirror pods of the control plane's processes, kept up to date by the node agent.

As a kubelet does for static pods, the agent creates the pods, writes their status,
creates them again if they are deleted, and removes those that nothing on its node
backs. The supervisor's record tells pids, start times and restarts.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from windlass.api.errors import StatusError
from windlass.api.resources import NAMESPACES, PODS
from windlass.client.client import Client
from windlass.client.connection import Connection
from windlass.client.errors import Unreachable
from windlass.client.http import HttpTransport
from windlass.client.informers import Informer
from windlass.client.retries import RetryPolicy
from windlass.client.transport import Request
from windlass.kits.clock import Clock
from windlass.kits.processes import is_alive
from windlass.kits.rng import Random
from windlass.kits.state import StateFolder
from windlass.kits.timestamps import rfc3339
from windlass.node.heartbeat import OwnNode
from windlass.node.mirrored_parts import (
    CONTROL,
    PARTS,
    SERVER,
    MirroredPart,
    NodeState,
    ProcessState,
    is_current,
    mirror_pod,
    status,
)
from windlass.node.pods.record import PodRecord

_PERIOD_SECONDS, _FIRST_PERIOD_SECONDS = 5.0, 0.2
_FIRST_ROUNDS = 50
"""Rounds with the short interval after a start, until all parts are ready."""

_AGENT = "windlass-node"

_log = logging.getLogger("windlass.node")


class MirrorPods:
    """Mirror pods on this node.

    ``read_record``: returns the supervisor's record, None without one.
    ``problem_of``: returns why a process (by its role) is not ready; empty if it is.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        node: OwnNode,
        pods: Informer[PodRecord],
        read_record: Callable[[], Mapping[str, Any] | None],
        problem_of: Callable[[str], Awaitable[str]],
    ) -> None:
        self._client = client
        self._clock = clock
        self._node = node
        self._pods = pods
        self._read_record = read_record
        self._problem_of = problem_of

    @classmethod
    def of_state(
        cls,
        client: Client,
        clock: Clock,
        rng: Random,
        node: OwnNode,
        pods: Informer[PodRecord],
        state: StateFolder,
    ) -> MirrorPods:
        """Return the mirror pods of the control plane in a state directory."""
        connection = Connection(unix_socket=str(state.control_socket))
        retries = RetryPolicy(attempts=1)
        control = Client(HttpTransport(connection), user_agent=_AGENT, clock=clock, rng=rng, retries=retries)

        async def problem_of(role: str) -> str:
            asked = {CONTROL: control, SERVER: client}.get(role)
            return await _problem(asked) if asked is not None else ""

        return cls(client, clock, node, pods, state.read_supervisor, problem_of)

    async def run(self) -> None:
        """Keep the pods up to date until cancelled. Failures are retried."""
        await self._pods.wait_synced()
        first_rounds = _FIRST_ROUNDS
        while True:
            settled = False
            try:
                settled = await self.sync()
            except (StatusError, Unreachable) as error:
                _log.warning("the mirror pods were not written, retrying: %s", error)
            first_rounds = 0 if settled else max(0, first_rounds - 1)
            await self._clock.sleep(_FIRST_PERIOD_SECONDS if first_rounds else _PERIOD_SECONDS)

    async def sync(self) -> bool:
        """Write what has changed. Return whether all parts have a pod and are ready."""
        record = self._read_record()
        processes = (record or {}).get("processes") or {}
        node = NodeState(self._node.labels, self._node.capacity)
        parts = [part for part in PARTS if part.process in processes and part.present(node)]
        if not self._node.uid:
            return False
        states = {role: await self._state(role, entry) for role, entry in processes.items()}
        present = {r.key: r.raw for r in self._pods.items.values() if r.is_mirror and r.raw is not None}
        settled = bool(parts)
        for part in parts:
            wanted = mirror_pod(part, self._node.name, self._node.uid)
            pod = present.pop(f"{part.namespace}/{wanted['metadata']['name']}", None)
            settled &= await self._sync_part(part, wanted, pod, states[part.process])
        for pod in present.values():
            await self._delete(pod)
        return settled

    async def _sync_part(
        self, part: MirroredPart, wanted: dict[str, Any], pod: dict[str, Any] | None, state: ProcessState
    ) -> bool:
        """Bring the pod of a part up to date. Return whether it exists and is ready."""
        if pod is not None and not is_current(pod, wanted):
            await self._delete(pod)
            pod = None
        if pod is None:
            pod = await self._create(wanted)
        return pod is not None and await self._write_status(part, pod, state)

    async def _state(self, role: str, entry: Mapping[str, Any]) -> ProcessState:
        pid = entry.get("pid") or 0
        if pid and not is_alive(pid, entry.get("startTicks")):
            pid = 0
        return ProcessState(
            pid,
            entry.get("started") or "",
            int(entry.get("restarts") or 0),
            entry.get("lastExit") or {},
            await self._problem_of(role) if pid else "",
        )

    async def _create(self, pod: dict[str, Any]) -> dict[str, Any] | None:
        """Create a pod, with its namespace if that is missing.

        None: not possible yet, since the pod or its namespace is still being deleted.
        """
        namespace = pod["metadata"]["namespace"]
        try:
            return await self._client.create(PODS, pod, namespace)
        except StatusError as error:
            if error.code in (403, 409):
                return None
            if error.code != 404:
                raise
        await self._client.create(NAMESPACES, {"metadata": {"name": namespace}})
        return await self._client.create(PODS, pod, namespace)

    async def _write_status(self, part: MirroredPart, pod: dict[str, Any], state: ProcessState) -> bool:
        """Write the status if it changed. Return whether the part is ready."""
        before = pod.get("status") or {}
        wanted = status(part, state, self._node.address, before, rfc3339(self._clock.now()))
        if any(before.get(key) != value for key, value in wanted.items()):
            metadata = pod["metadata"]
            change = {"metadata": {"uid": metadata["uid"]}, "status": wanted}
            try:
                await self._client.patch(
                    PODS, metadata["name"], change, metadata["namespace"], subresource="status"
                )
            except StatusError as error:
                if error.code not in (404, 409, 422):  # deleted or replaced meanwhile
                    raise
                return False
        return bool(wanted["containerStatuses"][0]["ready"])

    async def _delete(self, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        try:
            await self._client.delete(
                PODS, metadata["name"], metadata["namespace"], grace_seconds=0, uid=metadata["uid"]
            )
        except StatusError as error:
            if error.code not in (404, 409):
                raise


async def _problem(client: Client) -> str:
    """Return why a process is not ready, by its ``/readyz``; empty if it is."""
    try:
        await client.call(Request("GET", "/readyz"))
    except (StatusError, Unreachable) as error:
        return str(error) or "it does not respond"
    return ""
