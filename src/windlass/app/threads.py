"""Threads of the supervisor that talk to the server: waiting for readiness, and posting events.

They never touch the processes; results come back through a callback that wakes the supervisor.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import EVENTS, LEASE_NAMESPACE, LEASES, NODES, QUEUES
from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection
from windlass.client.retries import RetryPolicy
from windlass.client.transport import Request
from windlass.kits import rng as chance
from windlass.kits.clock import SystemClock
from windlass.kits.state import StateFolder
from windlass.kits.timestamps import parse_rfc3339, rfc3339

_POLL_SECONDS = 0.01
_RETRY_SECONDS = 1.0


def connect(state: StateFolder) -> BlockingClient:
    return BlockingClient(Connection(unix_socket=str(state.socket)), retries=RetryPolicy(attempts=1))


class Readiness(threading.Thread):
    """Thread that waits until the control plane is ready.

    Ready means: the server responds, the queue ``default`` exists, and the node is
    ready by an agent started after ``began`` (monotonic clock).
    """

    def __init__(
        self, state: StateFolder, node: str, clock: SystemClock, began: float, wake: Callable[[], None]
    ) -> None:
        super().__init__(name="readiness", daemon=True)
        self._began = began
        self._state = state
        self._node = node
        self._clock = clock
        self._wake = wake
        self.done = False
        self.waits_for = "the server"
        self.took: list[str] = []
        """Parts and the seconds until they were ready, for the log."""

    def run(self) -> None:
        client = connect(self._state)
        begin = self._clock.monotonic()
        steps: tuple[tuple[str, Callable[[BlockingClient], bool]], ...] = (
            ("the server", _server_ready),
            ("the queues", _queue_exists),
            (f"node {self._node}", self._node_ready),
        )
        for name, check in steps:
            self.waits_for = name
            while not self._holds(check, client):
                self._clock.pause(_POLL_SECONDS)
            self.took.append(f"{name} {self._clock.monotonic() - begin:.2f} s")
        self.done = True
        client.close()
        self._wake()

    def _node_ready(self, client: BlockingClient) -> bool:
        since = self._clock.now() - (self._clock.monotonic() - self._began)
        return node_ready(client, self._node, since=since)

    @staticmethod
    def _holds(check: Callable[[BlockingClient], bool], client: BlockingClient) -> bool:
        try:
            return check(client)
        except (StatusError, WindlassError):
            return False


def node_ready(client: BlockingClient, name: str, *, since: float) -> bool:
    """Return whether the node is ready and its agent reported after ``since`` (Unix seconds).

    The agent renews its lease once it has reported the devices and capacity of the
    node. The condition Ready alone is not enough: the node of an earlier start has it,
    too, with the capacity of that time.
    """
    lease = client.get(LEASES, name, LEASE_NAMESPACE)
    if parse_rfc3339(lease["spec"]["renewTime"]) < since:
        return False
    conditions = (client.get(NODES, name).get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _server_ready(client: BlockingClient) -> bool:
    client.call(Request("GET", "/readyz"))
    return True


def _queue_exists(client: BlockingClient) -> bool:
    client.get(QUEUES, "default")
    return True


@dataclass(frozen=True, slots=True)
class Notice:
    """Message about the control plane, posted as an event on the node."""

    reason: str
    message: str
    at: float


class EventPoster(threading.Thread):
    """Thread that posts notices as events on the machine's node; keeps them until the
    server responds."""

    def __init__(self, state: StateFolder, node: str, clock: SystemClock) -> None:
        super().__init__(name="courier", daemon=True)
        self._state = state
        self._node = node
        self._clock = clock
        self._rng = chance.system()
        self._notices: queue.SimpleQueue[Notice] = queue.SimpleQueue()

    def post(self, reason: str, message: str) -> None:
        self._notices.put(Notice(reason, message, self._clock.now()))

    def run(self) -> None:
        client = connect(self._state)
        while True:
            notice = self._notices.get()
            while not self._deliver(client, notice):
                self._clock.pause(_RETRY_SECONDS)

    def _deliver(self, client: BlockingClient, notice: Notice) -> bool:
        try:
            client.create(EVENTS, self._event(notice), "default")
        except StatusError as error:
            return error.code < 500 and error.code != 429
        except WindlassError:
            return False
        return True

    def _event(self, notice: Notice) -> dict[str, object]:
        when = rfc3339(notice.at)
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{self._node}.{chance.name_suffix(self._rng, 16)}",
                "namespace": "default",
            },
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node},
            "type": "Warning",
            "reason": notice.reason,
            "message": notice.message,
            "source": {"component": "windlass-supervisor", "host": self._node},
            "reportingComponent": "windlass-supervisor",
            "reportingInstance": self._node,
            "firstTimestamp": when,
            "lastTimestamp": when,
            "count": 1,
        }
