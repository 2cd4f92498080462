"""Reporter of the device monitor: annotations, events, evictions, and requests to clear faults."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api.errors import StatusError
from windlass.api.resources import NODES, PODS
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.client.responses import is_another
from windlass.kits.clock import Clock
from windlass.kits.timestamps import parse_rfc3339, rfc3339
from windlass.node.devices.monitor import DeviceMonitor, PublishedDevices
from windlass.node.devices.usage_audit import UsageFinding
from windlass.node.heartbeat import OwnNode
from windlass.node.lifecycle.events import RecordEvent
from windlass.node.pods.pod_events import PodEvents
from windlass.node.pods.worker import PodWorker

REASON = "DeviceUnhealthy"
"""Reason of an eviction, in the pod's condition ``DisruptionTarget`` and in its event."""
_RETRY_SECONDS = 2.0
_log = logging.getLogger("windlass.node")


class DeviceReporter:
    """Connects the device monitor with the server. An agent without devices has none."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        recorder: EventRecorder,
        node: OwnNode,
        monitor: DeviceMonitor,
        workers: Mapping[str, PodWorker],
    ) -> None:
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._pod_events = PodEvents(recorder)
        self._node = node
        self._monitor = monitor
        self._workers = workers
        self._tasks: set[asyncio.Task[None]] = set()
        self._clear_requests: list[str] = []
        self._requested = asyncio.Event()
        monitor.publish, monitor.report = self._publish, self._report
        monitor.record_event, monitor.evict = self._record_event, self._evict
        monitor.pods = lambda: {
            uid: worker.pod for uid, worker in self._workers.items() if not worker.machine.is_over
        }

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._monitor.run(), name="device monitor")
                group.create_task(self._clear_faults(), name="clear GPU faults")
        finally:
            for task in tuple(self._tasks):
                task.cancel()

    # -- publication ---------------------------------------------------------------------------

    def _publish(self, state: PublishedDevices) -> None:
        self._node.change_devices(state)
        self._node.change(dict(state.annotations))

    def _ref(self) -> ObjectRef:
        return ObjectRef("v1", "Node", "", self._node.name, self._node.uid or self._node.name)

    def _record_event(self, warning: bool, reason: str, message: str) -> None:
        self._recorder.event(self._ref(), "Warning" if warning else "Normal", reason, message)

    def _report(self, finding: UsageFinding) -> None:
        worker = self._workers.get(finding.pod)
        if worker is not None:
            self._pod_events.record(worker.pod, RecordEvent("Warning", finding.reason, finding.message))
        self._record_event(True, finding.reason, finding.message)

    # -- evictions ----------------------------------------------------------------------------

    def _evict(self, uid: str, why: str) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            task = asyncio.get_running_loop().create_task(self._delete(worker.pod, why))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _delete(self, pod: Mapping[str, Any], why: str) -> None:
        """Evict a pod as Kubernetes' taint manager does.

        It sets the condition ``DisruptionTarget``, then deletes the pod gracefully.
        """
        metadata = pod["metadata"]
        name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": REASON,
            "message": why,
            "lastTransitionTime": rfc3339(self._clock.now()),
        }
        change = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        self._pod_events.record(pod, RecordEvent("Warning", REASON, f"Evicted: {why}"))
        while True:
            try:
                await self._client.patch(
                    PODS, name, change, namespace, kind="strategic", subresource="status"
                )
                await self._client.delete(PODS, name, namespace, uid=uid)
                return
            except Unreachable as error:
                _log.warning("pod %s/%s was not evicted, retrying: %s", namespace, name, error)
            except StatusError as error:
                if error.code in (404, 422) or is_another(error):
                    return  # deleted, or another pod of that name
                _log.warning("pod %s/%s was not evicted, retrying: %s", namespace, name, error)
            await self._clock.sleep(_RETRY_SECONDS)

    # -- clear requests -----------------------------------------------------------------------

    def on_annotations(self, node: NodeAnnotations) -> None:
        """Process a change of the annotations of this node."""
        text = node.annotations.get(names.CLEAR_BAD_DEVICES, "")
        if text:
            self._clear_requests.append(text)
            self._requested.set()

    async def _clear_faults(self) -> None:
        """Execute clear requests, which users make by annotation, and remove the annotation."""
        while True:
            await self._requested.wait()
            self._requested.clear()
            while self._clear_requests:
                text = self._clear_requests.pop(0)
                for index, until in parse_clear_request(text):
                    self._monitor.clear(index, until)
                await self._remove_annotation(text)

    async def _remove_annotation(self, text: str) -> None:
        """Remove the annotation unless it has changed: a new request must not be lost."""
        path = "/metadata/annotations/" + names.CLEAR_BAD_DEVICES.replace("/", "~1")
        change = [{"op": "test", "path": path, "value": text}, {"op": "remove", "path": path}]
        while not self._clear_requests:
            try:
                await self._client.patch(NODES, self._node.name, change, kind="json")
                return
            except Unreachable as error:
                _log.warning("annotation %s was not removed, retrying: %s", names.CLEAR_BAD_DEVICES, error)
            except StatusError as error:
                if error.code in (404, 422):
                    return  # changed or removed meanwhile
                _log.warning("annotation %s was not removed, retrying: %s", names.CLEAR_BAD_DEVICES, error)
            await self._clock.sleep(_RETRY_SECONDS)


def parse_clear_request(text: str) -> list[tuple[int, float]]:
    """Return index and time up to which its faults are cleared, of ``0,3@2026-01-01T00:00:00Z;1@…``."""
    requests: list[tuple[int, float]] = []
    for clause in filter(str.strip, text.split(";")):
        indices, _, time = clause.partition("@")
        try:
            until = parse_rfc3339(time.strip())
            requests += [(int(index), until) for index in indices.split(",") if index.strip()]
        except ValueError as error:
            _log.warning(
                "ignoring an invalid request in annotation %s: %r: %s",
                names.CLEAR_BAD_DEVICES,
                clause,
                error,
            )
    return requests


class NodeAnnotations(msgspec.Struct, frozen=True, gc=False):
    """Annotations of a node as on the server."""

    name: str
    annotations: Mapping[str, str]

    @property
    def key(self) -> str:
        return self.name


class _Meta(msgspec.Struct, gc=False):
    name: str
    annotations: dict[str, str] | None = None


class _Wire(msgspec.Struct, gc=False):
    metadata: _Meta


_decode = msgspec.json.Decoder(_Wire).decode


def node_annotations_decoder(name: str) -> Callable[[msgspec.Raw], NodeAnnotations | None]:
    """Return a decoder for informers that ignores all nodes but ``name``."""

    def decode(data: msgspec.Raw) -> NodeAnnotations | None:
        meta = _decode(data).metadata
        return NodeAnnotations(meta.name, meta.annotations or {}) if meta.name == name else None

    return decode
