"""Simulated nodes: their pods take time, but run nothing.

One agent simulates any number of nodes labelled ``windlass.dev/simulated=true``. Due actions are in
one heap, and a few writers execute them, so that thousands of pods do not start thousands of
requests at once. A pod runs after a short delay. It ends after ``windlass.dev/run-seconds`` with
``windlass.dev/exit-code``, or when it is deleted. Nothing is stored on disk: after a restart the
times count from the state on the server.
"""

from __future__ import annotations

import asyncio
import heapq
import ipaddress
import itertools
import logging
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.errors import StatusError
from windlass.api.fields.jobset import IN_PLACE_ATTEMPT
from windlass.api.nodes.simulated import node_conditions
from windlass.api.resources import NODES, PODS
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.informers import Informer
from windlass.client.responses import is_another
from windlass.kits.clock import Clock
from windlass.kits.timestamps import rfc3339
from windlass.node.heartbeat import renew_lease
from windlass.node.pods.record import ContainerDevices, PodRecord
from windlass.node.restart_barriers import Barrier, RestartBarriers
from windlass.node.simulated_nodes.restarts import SimulatedRestarts, of_run
from windlass.node.simulated_nodes.units import SimulatedUnits, allocated_status
from windlass.node.simulated_nodes.workers import Connect, SimulatedWorkers

_WRITERS = 32
_STOP_SECONDS = 0.1
"""Maximum time in seconds until a deleted pod ends. Its grace period may be shorter."""
_RETRY_SECONDS = 1.0
LEASE_PERIOD_SECONDS = 25.0
"""Interval in seconds between Lease renewals of a node. A node is lost after 40 s."""
_TICK_SECONDS = 0.5
_ADDRESSES = ipaddress.IPv4Network("100.64.0.0/10")

_log = logging.getLogger("windlass.node")


class _NodeMeta(msgspec.Struct, gc=False):
    name: str
    uid: str = ""
    labels: dict[str, str] | None = None


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""


class _NodeStatus(msgspec.Struct, gc=False):
    conditions: list[_Condition] | None = None
    capacity: dict[str, Any] | None = None


class _NodeWire(msgspec.Struct, gc=False):
    metadata: _NodeMeta
    status: _NodeStatus = msgspec.field(default_factory=_NodeStatus)


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    name: str
    uid: str
    reported: bool
    """True if the node has a Ready condition other than Unknown, which the node health controller writes."""


_decode_node = msgspec.json.Decoder(_NodeWire).decode


def decode_simulated(data: msgspec.Raw) -> SimulatedNode | None:
    """Decode a simulated node. Return None for real nodes."""
    wire = _decode_node(data)
    if (wire.metadata.labels or {}).get(names.SIMULATED) != "true":
        return None
    conditions = wire.status.conditions or ()
    reported = any(found.type == "Ready" and found.status != "Unknown" for found in conditions)
    return SimulatedNode(wire.metadata.name, wire.metadata.uid, reported)


class PodAction(StrEnum):
    RUN = "run"
    FINISH = "finish"
    DELETE = "delete"
    JOIN = "join"
    """Wait for the other pods of the JobSet."""
    RESTART = "restart"
    """Stop the containers, and wait for the other pods of the JobSet."""


class SimulatedNodes:
    """Simulates all nodes of its two informers. Call :meth:`run`."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        nodes: Informer[SimulatedNode],
        pods: Informer[PodRecord],
        *,
        start_seconds: float,
        barriers: RestartBarriers,
        connect: Connect | None = None,
    ) -> None:
        """``connect``: connects to drivers of AIGCJobs; without it, their workers process nothing."""
        self._client = client
        self._clock = clock
        self._nodes = nodes
        self._pods = pods
        self._start_seconds = start_seconds
        self._heap: list[tuple[float, int, str, str, PodAction]] = []
        self._order = itertools.count()
        self._changed = asyncio.Event()
        self._ready: deque[tuple[str, str, PodAction]] = deque()
        self._writable = asyncio.Semaphore(0)
        self._started_at: dict[str, float] = {}
        """uid → Unix time of the start of each running pod."""
        self._addresses = itertools.count(1)
        self._addresses_by_uid: dict[str, str] = {}
        """uid → address of the pods that run or start soon. A restarted agent restores it."""
        self._units = SimulatedUnits()
        self._taken: set[str] = set()
        """Addresses in use."""
        self._refresh: deque[str] = deque()
        self._new_nodes: set[str] = set()
        """New nodes with pods that are still to be processed."""
        self._restarts = SimulatedRestarts(barriers)
        self._workers = SimulatedWorkers(client, clock, connect, self._finish) if connect else None
        barriers.add_listener(self._barrier_changed)
        nodes.add_handler(self._node_added, self._node_changed, None)
        pods.add_handler(self._pod_added, self._pod_changed, self._pod_removed)

    @property
    def count(self) -> int:
        return len(self._nodes.items)

    def has(self, name: str) -> bool:
        return name in self._nodes.items

    # -- informer events ----------------------------------------------------------------------

    def _node_added(self, node: SimulatedNode) -> None:
        self._refresh.append(node.name)
        if not self._new_nodes:  # one pass over the pods for all nodes that arrive together
            asyncio.get_running_loop().call_soon(self._process_new_nodes)
        self._new_nodes.add(node.name)

    def _node_changed(self, old: SimulatedNode, new: SimulatedNode) -> None:
        if old.uid != new.uid or (old.reported and not new.reported):
            self._refresh.append(new.name)

    def _process_new_nodes(self) -> None:
        new_nodes, self._new_nodes = self._new_nodes, set()
        for pod in list(self._pods.items.values()):
            if pod.node in new_nodes:
                self._consider(pod)

    def _pod_added(self, pod: PodRecord) -> None:
        self._update_address(pod)
        self._consider(pod)

    def _update_address(self, pod: PodRecord) -> None:
        if pod.is_over:
            self._release(pod.uid)
            self._units.release(pod.uid)
        elif pod.address:
            self._reserve(pod.uid, pod.address)
            self._units.restore(pod)

    def _reserve(self, uid: str, address: str) -> None:
        self._release(uid)
        self._addresses_by_uid[uid] = address
        self._taken.add(address)

    def _release(self, uid: str) -> None:
        self._taken.discard(self._addresses_by_uid.pop(uid, ""))

    def _address(self, uid: str) -> str:
        """Return the address of the pod, or reserve a free one."""
        usable = _ADDRESSES.num_addresses - 2
        while uid not in self._addresses_by_uid:
            if len(self._taken) == usable:
                raise RuntimeError("all addresses for simulated pods are in use")
            offset = next(self._addresses) % usable + 1
            address = str(_ADDRESSES.network_address + offset)
            if address not in self._taken:
                self._reserve(uid, address)
        return self._addresses_by_uid[uid]

    def _pod_changed(self, old: PodRecord, new: PodRecord) -> None:
        self._update_address(new)
        if (old.node, old.deleted, old.phase) != (new.node, new.deleted, new.phase):
            self._consider(new)

    def _finish(self, pod: PodRecord) -> None:
        self._perform_soon(pod, PodAction.FINISH)

    def _pod_removed(self, pod: PodRecord) -> None:
        self._stop_worker(pod)
        self._started_at.pop(pod.uid, None)
        self._release(pod.uid)
        self._units.release(pod.uid)
        self._restarts.forget(pod)

    def _barrier_changed(self, barrier: Barrier) -> None:
        for key in self._restarts.keys(barrier):
            pod = self._pods.items.get(key)
            if pod is not None:
                self._meet(pod)

    def _meet(self, pod: PodRecord) -> None:
        """Start or restart the pod if its JobSet has decided so."""
        if self._restarts.must_restart(pod):
            self._perform_soon(pod, PodAction.RESTART)
        elif self._restarts.may_run(pod):
            self._perform_soon(pod, PodAction.RUN)

    def _perform_soon(self, pod: PodRecord, action: PodAction) -> None:
        self._ready.append((pod.key, pod.uid, action))
        self._writable.release()

    def _consider(self, pod: PodRecord) -> None:
        if not pod.node or pod.node not in self._nodes.items:
            return
        if pod.deleted:
            self._stop_worker(pod)
            grace = 30.0 if pod.grace_seconds is None else float(pod.grace_seconds)
            self._schedule(min(grace, _STOP_SECONDS), pod, PodAction.DELETE)
        elif pod.is_over:
            self._stop_worker(pod)
            self._started_at.pop(pod.uid, None)
            self._restarts.forget(pod)
        elif pod.phase == "Pending" and pod.in_place is not None:
            self._restarts.restore(pod)
            if self._restarts.waits(pod):
                self._meet(pod)
            else:
                self._schedule(self._start_seconds, pod, PodAction.JOIN)
        elif pod.phase == "Pending":
            self._schedule(self._start_seconds, pod, PodAction.RUN)
        elif pod.uid not in self._started_at:
            self._started_at[pod.uid] = (
                pod.started_at or self._clock.now()
            )  # it ran before this agent started
            self._restarts.restore(pod)
            if not self._restarts.waits(pod):
                self._schedule_end(pod)
            self._meet(pod)

    def _schedule(self, after: float, pod: PodRecord, action: PodAction) -> None:
        due = self._clock.monotonic() + after
        heapq.heappush(self._heap, (due, next(self._order), pod.key, pod.uid, action))
        self._changed.set()

    def _stop_worker(self, pod: PodRecord) -> None:
        if self._workers is not None:
            self._workers.stop(pod.uid)

    def _schedule_end(self, pod: PodRecord) -> None:
        """Schedule the declared end of a pod that runs, and start the work of a worker."""
        if self._workers is not None:
            self._workers.start(pod)
        if pod.run_seconds:
            left = self._end_of(pod) - self._clock.now()
            self._schedule(max(0.0, left), pod, PodAction.FINISH)

    def _end_of(self, pod: PodRecord) -> float:
        seconds = of_run(pod.run_seconds, self._restarts.restarts(pod), 0.0)
        return self._started_at.get(pod.uid, self._clock.now()) + seconds

    # -- actions ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Simulate until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._run_timer(), name="simulated pods")
                group.create_task(self._renew_leases(), name="simulated nodes")
                for number in range(_WRITERS):
                    group.create_task(self._write(), name=f"simulated writer {number}")
        finally:
            if self._workers is not None:
                self._workers.close()

    async def _run_timer(self) -> None:
        """Pass due actions to the writers. One timer serves all."""
        while True:
            self._changed.clear()
            now = self._clock.monotonic()
            while self._heap and self._heap[0][0] <= now:
                _, _, key, uid, action = heapq.heappop(self._heap)
                self._ready.append((key, uid, action))
                self._writable.release()
            sleep = self._clock.sleep(self._heap[0][0] - now) if self._heap else None
            waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(self._changed.wait())]
            if sleep is not None:
                waits.append(asyncio.ensure_future(sleep))
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    async def _write(self) -> None:
        while True:
            await self._writable.acquire()
            key, uid, action = self._ready.popleft()
            pod = self._pods.items.get(key)
            if pod is None or pod.uid != uid:
                continue
            try:
                await self._perform(pod, action)
            except (StatusError, Unreachable) as error:
                refused = isinstance(error, StatusError)
                if refused and (error.code in (404, 422) or is_another(error)):
                    continue  # deleted, or another pod of that name: the informer will report it
                _log.warning("simulated pod %s: a request failed, retrying: %s", key, error)
                self._schedule(_RETRY_SECONDS, pod, action)

    async def _perform(self, pod: PodRecord, action: PodAction) -> None:
        if action is PodAction.DELETE:
            await self._client.delete(PODS, pod.name, pod.namespace, grace_seconds=0, uid=pod.uid)
            return
        if pod.deleted or pod.is_over:
            return
        now, restarts = self._clock.now(), self._restarts.restarts(pod)
        if action is PodAction.RUN:
            if pod.phase != "Pending" and not self._restarts.may_run(pod):
                return
            devices = self._units.allocate(pod)
            change = running_status(pod.containers, now, self._address(pod.uid), devices, restarts)
            self._started_at[pod.uid] = now
            with self._restarts.starting(pod):
                await self._patch_status(pod, {}, change)
            self._schedule_end(pod)
            self._meet(pod)
        elif action is PodAction.JOIN:
            await self._join(pod, 0)
        elif action is PodAction.RESTART:
            if self._restarts.must_restart(pod):
                await self._join(pod, 143)
        elif pod.in_place is None or (
            not self._restarts.waits(pod) and now >= self._end_of(pod) - _TICK_SECONDS
        ):
            code = of_run(pod.exit_codes, restarts, 0)
            if pod.in_place is not None and code != 0:
                await self._join(pod, code)
            else:
                started_at = self._started_at.get(pod.uid, now)
                await self._patch_status(
                    pod, {}, ended_status(pod.containers, started_at, now, code, restarts)
                )

    async def _join(self, pod: PodRecord, code: int) -> None:
        """Report the restart attempt of a pod. ``code``: how its containers ended; 0 before their start."""
        attempt = self._restarts.next_attempt(pod)
        if attempt is None:
            self._schedule(_RETRY_SECONDS, pod, PodAction.RESTART if code else PodAction.JOIN)
            return
        notes, now = {IN_PLACE_ATTEMPT: str(attempt)}, self._clock.now()
        with self._restarts.joining(pod, attempt, restarted=code != 0):
            if code:
                started_at = self._started_at.get(pod.uid, now)
                restarts = self._restarts.restarts(pod)
                await self._patch_status(
                    pod, notes, restarting_status(pod.containers, started_at, now, code, restarts)
                )
            else:
                change = {"metadata": {"uid": pod.uid, "annotations": notes}}
                await self._client.patch(PODS, pod.name, change, pod.namespace)
        self._meet(pod)

    async def _patch_status(self, pod: PodRecord, notes: dict[str, str], change: dict[str, Any]) -> None:
        metadata = {"uid": pod.uid, **({"annotations": notes} if notes else {})}
        await self._client.patch(
            PODS,
            pod.name,
            {"metadata": metadata, "status": change},
            pod.namespace,
            kind="strategic",
            subresource="status",
        )

    # -- nodes ---------------------------------------------------------------------------------

    async def _renew_leases(self) -> None:
        """Renew the Lease of every node once per interval, evenly spread. Make new nodes ready at once."""
        ring: dict[str, None] = {}  # in the order of the renewals
        owed = 0.0
        while True:
            for _ in range(len(self._refresh)):
                name = self._refresh.popleft()
                node = self._nodes.items.get(name)
                if node is None:
                    continue
                if await self._try(self._register(node), name):
                    ring[name] = None
                else:
                    self._refresh.append(name)
            owed += len(ring) * _TICK_SECONDS / LEASE_PERIOD_SECONDS
            for _ in range(min(int(owed), len(ring))):
                owed -= 1.0
                name = next(iter(ring))
                del ring[name]
                node = self._nodes.items.get(name)
                if node is None:
                    continue
                ring[name] = None
                await self._try(renew_lease(self._client, name, node.uid, self._clock.now()), name)
            await self._clock.sleep(_TICK_SECONDS)

    async def _try(self, work: Coroutine[Any, Any, object], name: str) -> bool:
        """Execute a request for a node. Return whether it succeeded."""
        try:
            await work
        except (StatusError, Unreachable) as error:
            _log.warning("simulated node %s: a request failed: %s", name, error)
            return False
        return True

    async def _register(self, node: SimulatedNode) -> None:
        if not node.reported:
            conditions = node_conditions(rfc3339(self._clock.now()))
            await self._client.patch(
                NODES, node.name, {"status": {"conditions": conditions}}, subresource="status"
            )
        await renew_lease(self._client, node.name, node.uid, self._clock.now())


def running_status(
    containers: tuple[str, ...],
    now: float,
    address: str,
    devices: ContainerDevices = (),
    restarts: int = 0,
) -> dict[str, Any]:
    """Return the status of a running pod. All containers are ready, and were restarted ``restarts`` times."""
    time = rfc3339(now)
    return {
        "phase": "Running",
        "startTime": time,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": _conditions(time, "True", ""),
        "containerStatuses": [
            {
                "name": name,
                "image": "",
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": restarts,
                "state": {"running": {"startedAt": time}, **({"waiting": None} if restarts else {})},
                **({} if restarts else {"lastState": {}}),
                **({"allocatedResourcesStatus": units} if (units := allocated_status(devices, name)) else {}),
            }
            for name in containers
        ],
    }


def restarting_status(
    containers: tuple[str, ...], started_at: float, now: float, code: int, restarts: int
) -> dict[str, Any]:
    """Return the status of a pod of which all containers ended with ``code`` and wait for their next start."""
    time = rfc3339(now)
    waiting = {"reason": "RestartBarrier", "message": "waiting for the other pods of the JobSet"}
    ended = {
        "exitCode": code,
        "reason": "Error",
        "startedAt": rfc3339(started_at),
        "finishedAt": time,
    }
    return {
        "phase": "Running",
        "conditions": _conditions(time, "False", "ContainersNotReady"),
        "containerStatuses": [
            {
                "name": name,
                "image": "",
                "imageID": "",
                "ready": False,
                "started": False,
                "restartCount": restarts,
                "state": {"waiting": waiting, "running": None},
                "lastState": {"terminated": ended},
            }
            for name in containers
        ],
    }


def ended_status(
    containers: tuple[str, ...], started_at: float, now: float, code: int, restarts: int = 0
) -> dict[str, Any]:
    """Return the status of an ended pod. All containers have ``code``."""
    time = rfc3339(now)
    reason = "Completed" if code == 0 else "Error"
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "conditions": _conditions(time, "False", "PodCompleted" if code == 0 else "PodFailed"),
        "containerStatuses": [
            {
                "name": name,
                "image": "",
                "imageID": "",
                "ready": False,
                "started": False,
                "restartCount": restarts,
                "state": {
                    "terminated": {
                        "exitCode": code,
                        "reason": reason,
                        "startedAt": rfc3339(started_at),
                        "finishedAt": time,
                    }
                },
                "lastState": {},
            }
            for name in containers
        ],
    }


def _conditions(time: str, ready: str, reason: str) -> list[dict[str, str]]:
    conditions = [{"type": "Initialized", "status": "True", "lastTransitionTime": time}]
    for kind in ("Ready", "ContainersReady"):
        record = {"type": kind, "status": ready, "lastTransitionTime": time}
        if reason:
            record["reason"] = reason
        conditions.append(record)
    return conditions
