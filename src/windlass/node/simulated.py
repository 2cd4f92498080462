"""Playing the nodes that have no machine behind them: their pods take time and nothing else.

One agent plays any number of nodes labelled ``windlass.dev/simulated=true``. What is due is in one heap; a
few writers carry it out, so that thousands of pods do not start thousands of requests at once.
A pod runs after a short delay; it ends after ``windlass.dev/run-seconds`` with
``windlass.dev/exit-code``, or when it is deleted. Nothing is kept on disk: after a restart the times count
from what the server knows.
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

from windlass.api import annotations
from windlass.api.errors import StatusError
from windlass.api.resources import NODES, PODS
from windlass.api.simulated_node import node_conditions
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.informers import Informer
from windlass.client.responses import is_another
from windlass.kits.clock import Clock
from windlass.kits.timestamps import rfc3339
from windlass.node.heartbeat import LEASE_SECONDS, renew_lease
from windlass.node.pods.record import PodRecord

_WRITERS = 4
_STOP_SECONDS = 0.1
"""How long a simulated pod takes to end when it is deleted (never longer than its grace)."""
_RETRY_SECONDS = 1.0
LEASE_PERIOD_SECONDS = 25.0
"""Below the 40 s after which a silent node counts as lost; spread over the nodes."""
_TICK_SECONDS = 0.5
_ADDRESSES = ipaddress.IPv4Network("100.64.0.0/10")

_log = logging.getLogger("windlass.node")


class _NodeMeta(msgspec.Struct, gc=False):
    name: str
    uid: str = ""
    labels: dict[str, str] | None = None


class _Condition(msgspec.Struct, gc=False):
    type: str = ""


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
    has_conditions: bool


_decode_node = msgspec.json.Decoder(_NodeWire).decode


def decode_simulated(data: msgspec.Raw) -> SimulatedNode | None:
    """The informer's decoder: None for every node with a machine behind it."""
    wire = _decode_node(data)
    if (wire.metadata.labels or {}).get(annotations.SIMULATED) != "true":
        return None
    ready = any(condition.type == "Ready" for condition in wire.status.conditions or ())
    return SimulatedNode(wire.metadata.name, wire.metadata.uid, ready)


class Act(StrEnum):
    RUN = "run"
    FINISH = "finish"
    DELETE = "delete"


class SimulatedNodes:
    """Give it the two informers, then :meth:`run`."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        nodes: Informer[SimulatedNode],
        pods: Informer[PodRecord],
        *,
        start_seconds: float,
    ) -> None:
        self._client = client
        self._clock = clock
        self._nodes = nodes
        self._pods = pods
        self._start_seconds = start_seconds
        self._heap: list[tuple[float, int, str, str, Act]] = []
        self._order = itertools.count()
        self._changed = asyncio.Event()
        self._ready: deque[tuple[str, str, Act]] = deque()
        self._writable = asyncio.Semaphore(0)
        self._began: dict[str, float] = {}
        """uid → Unix time at which the pod began to run, for what is still running."""
        self._addresses = itertools.count(1)
        self._held: dict[str, str] = {}
        """uid → address of the pods that run or are about to; a restart of the agent finds them."""
        self._taken: set[str] = set()
        """Those addresses."""
        self._refresh: deque[str] = deque()
        self._fresh: set[str] = set()
        """Nodes that have just been seen, whose pods are still to be looked for."""
        nodes.add_handler(self._node_added, None, None)
        pods.add_handler(self._pod_added, self._pod_changed, self._pod_removed)

    @property
    def count(self) -> int:
        return len(self._nodes.items)

    # -- what is seen --------------------------------------------------------------------------

    def _node_added(self, node: SimulatedNode) -> None:
        self._refresh.append(node.name)
        if not self._fresh:  # one look through the pods for all nodes that come together
            asyncio.get_running_loop().call_soon(self._look_for_pods)
        self._fresh.add(node.name)

    def _look_for_pods(self) -> None:
        fresh, self._fresh = self._fresh, set()
        for pod in list(self._pods.items.values()):
            if pod.node in fresh:
                self._consider(pod)

    def _pod_added(self, pod: PodRecord) -> None:
        self._note_address(pod)
        self._consider(pod)

    def _note_address(self, pod: PodRecord) -> None:
        if pod.is_over:
            self._free(pod.uid)
        elif pod.address:
            self._hold(pod.uid, pod.address)

    def _hold(self, uid: str, address: str) -> None:
        self._free(uid)
        self._held[uid] = address
        self._taken.add(address)

    def _free(self, uid: str) -> None:
        self._taken.discard(self._held.pop(uid, ""))

    def _address(self, uid: str) -> str:
        """The pod's, also if it could not be told to the server at first; else one that no other pod has."""
        usable = _ADDRESSES.num_addresses - 2
        while uid not in self._held:
            if len(self._taken) == usable:
                raise RuntimeError("every address for simulated pods is held")
            place = next(self._addresses) % usable + 1
            address = str(_ADDRESSES.network_address + place)
            if address not in self._taken:
                self._hold(uid, address)
        return self._held[uid]

    def _pod_changed(self, old: PodRecord, new: PodRecord) -> None:
        self._note_address(new)
        if (old.node, old.deleted, old.phase) != (new.node, new.deleted, new.phase):
            self._consider(new)

    def _pod_removed(self, pod: PodRecord) -> None:
        self._began.pop(pod.uid, None)
        self._free(pod.uid)

    def _consider(self, pod: PodRecord) -> None:
        if not pod.node or pod.node not in self._nodes.items:
            return
        if pod.deleted:
            grace = 30.0 if pod.grace_seconds is None else float(pod.grace_seconds)
            self._plan(min(grace, _STOP_SECONDS), pod, Act.DELETE)
        elif pod.is_over:
            self._began.pop(pod.uid, None)
        elif pod.phase == "Pending":
            self._plan(self._start_seconds, pod, Act.RUN)
        elif pod.uid not in self._began:
            self._began[pod.uid] = pod.started_at or self._clock.now()  # it ran before we came
            self._plan_end(pod)

    def _plan(self, after: float, pod: PodRecord, act: Act) -> None:
        due = self._clock.monotonic() + after
        heapq.heappush(self._heap, (due, next(self._order), pod.key, pod.uid, act))
        self._changed.set()

    def _plan_end(self, pod: PodRecord) -> None:
        if pod.run_seconds is not None:
            left = self._began[pod.uid] + pod.run_seconds - self._clock.now()
            self._plan(max(0.0, left), pod, Act.FINISH)

    # -- what is done --------------------------------------------------------------------------

    async def run(self) -> None:
        """Play until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._alarm(), name="simulated pods")
            group.create_task(self._keep_nodes(), name="simulated nodes")
            for number in range(_WRITERS):
                group.create_task(self._write(), name=f"simulated writer {number}")

    async def _alarm(self) -> None:
        """Hand over what is due; one timer for all."""
        while True:
            self._changed.clear()
            now = self._clock.monotonic()
            while self._heap and self._heap[0][0] <= now:
                _, _, key, uid, act = heapq.heappop(self._heap)
                self._ready.append((key, uid, act))
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
            key, uid, act = self._ready.popleft()
            pod = self._pods.items.get(key)
            if pod is None or pod.uid != uid:
                continue
            try:
                await self._perform(pod, act)
            except (StatusError, Unreachable) as error:
                refused = isinstance(error, StatusError)
                if refused and (error.code in (404, 422) or is_another(error)):
                    continue  # gone, or another pod of that name: the informer will tell
                _log.warning("simulated pod %s: %s", key, error)
                self._plan(_RETRY_SECONDS, pod, act)

    async def _perform(self, pod: PodRecord, act: Act) -> None:
        if act is Act.DELETE:
            await self._client.delete(PODS, pod.name, pod.namespace, grace_seconds=0, uid=pod.uid)
            return
        if pod.deleted or pod.is_over:
            return
        now = self._clock.now()
        if act is Act.RUN:
            if pod.phase != "Pending":
                return
            change = running_status(pod.containers, now, self._address(pod.uid))
            self._began[pod.uid] = now
        else:
            began = self._began.get(pod.uid, now)
            change = ended_status(pod.containers, began, now, pod.exit_code)
        await self._client.patch(
            PODS,
            pod.name,
            {"metadata": {"uid": pod.uid}, "status": change},
            pod.namespace,
            kind="strategic",
            subresource="status",
        )
        if act is Act.RUN:
            self._plan_end(pod)

    # -- nodes ---------------------------------------------------------------------------------

    async def _keep_nodes(self) -> None:
        """Renew the Lease of every node once a period, evenly spread; make new nodes ready at once."""
        ring: deque[str] = deque()
        owed = 0.0
        while True:
            for _ in range(len(self._refresh)):
                name = self._refresh.popleft()
                node = self._nodes.items.get(name)
                if node is None:
                    continue
                if await self._attend(self._greet(node), name):
                    ring.append(name)
                else:
                    self._refresh.append(name)
            owed += len(ring) * _TICK_SECONDS / LEASE_PERIOD_SECONDS
            for _ in range(min(int(owed), len(ring))):
                owed -= 1.0
                name = ring.popleft()
                if name not in self._nodes.items:
                    continue
                ring.append(name)
                await self._attend(renew_lease(self._client, name, self._clock.now(), LEASE_SECONDS), name)
            await self._clock.sleep(_TICK_SECONDS)

    async def _attend(self, work: Coroutine[Any, Any, None], name: str) -> bool:
        """Return whether the server took it."""
        try:
            await work
        except (StatusError, Unreachable) as error:
            _log.warning("simulated node %s: %s", name, error)
            return False
        return True

    async def _greet(self, node: SimulatedNode) -> None:
        if not node.has_conditions:
            conditions = node_conditions(rfc3339(self._clock.now()))
            await self._client.patch(
                NODES, node.name, {"status": {"conditions": conditions}}, subresource="status"
            )
        await renew_lease(self._client, node.name, self._clock.now(), LEASE_SECONDS)


def running_status(containers: tuple[str, ...], now: float, address: str) -> dict[str, Any]:
    """All containers run and are ready."""
    moment = rfc3339(now)
    return {
        "phase": "Running",
        "startTime": moment,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": _conditions(moment, "True", ""),
        "containerStatuses": [
            {
                "name": name,
                "image": "",
                "imageID": "",
                "ready": True,
                "started": True,
                "restartCount": 0,
                "state": {"running": {"startedAt": moment}},
                "lastState": {},
            }
            for name in containers
        ],
    }


def ended_status(containers: tuple[str, ...], began: float, now: float, code: int) -> dict[str, Any]:
    """All containers ended, with ``code``."""
    moment = rfc3339(now)
    reason = "Completed" if code == 0 else "Error"
    return {
        "phase": "Succeeded" if code == 0 else "Failed",
        "conditions": _conditions(moment, "False", "PodCompleted" if code == 0 else "PodFailed"),
        "containerStatuses": [
            {
                "name": name,
                "image": "",
                "imageID": "",
                "ready": False,
                "started": False,
                "restartCount": 0,
                "state": {
                    "terminated": {
                        "exitCode": code,
                        "reason": reason,
                        "startedAt": rfc3339(began),
                        "finishedAt": moment,
                    }
                },
                "lastState": {},
            }
            for name in containers
        ],
    }


def _conditions(moment: str, ready: str, reason: str) -> list[dict[str, str]]:
    found = [{"type": "Initialized", "status": "True", "lastTransitionTime": moment}]
    for kind in ("Ready", "ContainersReady"):
        record = {"type": kind, "status": ready, "lastTransitionTime": moment}
        if reason:
            record["reason"] = reason
        found.append(record)
    return found
