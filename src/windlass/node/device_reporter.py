"""Between the watch over the devices and the server: the node's words, events, evictions, what people declare."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from windlass.api import annotations
from windlass.api.errors import StatusError
from windlass.api.resources import NODES, PODS
from windlass.client.client import Client
from windlass.client.errors import Unreachable
from windlass.client.recorder import ObjectRef
from windlass.client.responses import is_another
from windlass.kits.timestamps import parse_rfc3339, rfc3339
from windlass.node.devices.monitor import DeviceMonitor, PublishedDevices
from windlass.node.devices.usage_audit import UsageFinding
from windlass.node.heartbeat import OwnNode
from windlass.node.lifecycle.events import Note
from windlass.node.pods.context import PodsContext
from windlass.node.pods.worker import PodWorker

REASON = "DeviceUnhealthy"
"""Of an eviction, in the pod's condition ``DisruptionTarget`` and in its event."""
_RETRY_SECONDS = 2.0
_log = logging.getLogger("windlass.node")


class DeviceReporter:
    """One per agent that has devices."""

    def __init__(
        self,
        client: Client,
        context: PodsContext,
        node: OwnNode,
        watch: DeviceMonitor,
        workers: Mapping[str, PodWorker],
    ) -> None:
        self._client = client
        self._context = context
        self._node = node
        self._watch = watch
        self._workers = workers
        self._tasks: set[asyncio.Task[None]] = set()
        self._declared: list[str] = []
        self._heard = asyncio.Event()
        watch.publish, watch.report = self._publish, self._report
        watch.say, watch.evict = self._say, self._evict
        watch.pods = lambda: {
            uid: worker.pod for uid, worker in self._workers.items() if not worker.machine.is_over
        }

    async def run(self) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch.run(), name="watch over the GPUs")
                group.create_task(self._hear_people(), name="GPUs declared well")
        finally:
            for task in tuple(self._tasks):
                task.cancel()

    # -- telling -------------------------------------------------------------------------------

    def _publish(self, told: PublishedDevices) -> None:
        self._node.change_devices(told.labels, told.aliases, told.amounts, told.conditions)
        self._node.change(dict(told.annotations))

    def _ref(self) -> ObjectRef:
        return ObjectRef("v1", "Node", "", self._node.name, self._node.uid or self._node.name)

    def _say(self, warning: bool, reason: str, message: str) -> None:
        self._context.recorder.event(self._ref(), "Warning" if warning else "Normal", reason, message)

    def _report(self, finding: UsageFinding) -> None:
        worker = self._workers.get(finding.pod)
        if worker is not None:
            self._context.note(worker.pod, Note("Warning", finding.reason, finding.message))
        self._say(True, finding.reason, finding.message)

    # -- moving work away ----------------------------------------------------------------------

    def _evict(self, uid: str, why: str) -> None:
        worker = self._workers.get(uid)
        if worker is not None:
            task = asyncio.get_running_loop().create_task(self._delete(worker.pod, why))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _delete(self, pod: Mapping[str, Any], why: str) -> None:
        """As Kubernetes' taint manager does: the condition ``DisruptionTarget``, then a graceful deletion."""
        metadata = pod["metadata"]
        name, namespace, uid = metadata["name"], metadata["namespace"], metadata["uid"]
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": REASON,
            "message": why,
            "lastTransitionTime": rfc3339(self._context.clock.now()),
        }
        change = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        self._context.note(pod, Note("Warning", REASON, f"Evicted: {why}"))
        while True:
            try:
                await self._client.patch(
                    PODS, name, change, namespace, kind="strategic", subresource="status"
                )
                await self._client.delete(PODS, name, namespace, uid=uid)
                return
            except Unreachable as error:
                _log.warning("pod %s/%s cannot be evicted yet: %s", namespace, name, error)
            except StatusError as error:
                if error.code in (404, 422) or is_another(error):
                    return  # gone, or another of that name
                _log.warning("pod %s/%s cannot be evicted yet: %s", namespace, name, error)
            await self._context.clock.sleep(_RETRY_SECONDS)

    # -- what people declare -------------------------------------------------------------------

    def noted(self, notes: NodeNotes) -> None:
        """The own node's annotations, whenever they change."""
        text = notes.annotations.get(annotations.CLEAR_BAD_DEVICES, "")
        if text:
            self._declared.append(text)
            self._heard.set()

    async def _hear_people(self) -> None:
        """Carry out what somebody declares by annotation, and take the annotation off again."""
        while True:
            await self._heard.wait()
            self._heard.clear()
            while self._declared:
                text = self._declared.pop(0)
                for index, until in declared_well(text):
                    self._watch.clear(index, until)
                await self._take_off(text)

    async def _take_off(self, text: str) -> None:
        """The annotation, if it says this still: another word that came meanwhile is not taken off unheard."""
        path = "/metadata/annotations/" + annotations.CLEAR_BAD_DEVICES.replace("/", "~1")
        change = [{"op": "test", "path": path, "value": text}, {"op": "remove", "path": path}]
        while not self._declared:
            try:
                await self._client.patch(NODES, self._node.name, change, kind="json")
                return
            except Unreachable as error:
                _log.warning("annotation %s stays on the node: %s", annotations.CLEAR_BAD_DEVICES, error)
            except StatusError as error:
                if error.code in (404, 422):
                    return  # it says something else, or nothing any more
                _log.warning("annotation %s stays on the node: %s", annotations.CLEAR_BAD_DEVICES, error)
            await self._context.clock.sleep(_RETRY_SECONDS)


def declared_well(text: str) -> list[tuple[int, float]]:
    """``0,3@2026-01-01T00:00:00Z;1@…`` → the devices' indices and until when their faults are forgiven."""
    found: list[tuple[int, float]] = []
    for clause in filter(str.strip, text.split(";")):
        words, _, moment = clause.partition("@")
        try:
            until = parse_rfc3339(moment.strip())
            found += [(int(word), until) for word in words.split(",") if word.strip()]
        except ValueError as error:
            _log.warning("annotation %s is %r: %s", annotations.CLEAR_BAD_DEVICES, clause, error)
    return found


class NodeNotes(msgspec.Struct, frozen=True, gc=False):
    """The annotations of the own node, as they are on the server."""

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


def notes_decoder(name: str) -> Callable[[msgspec.Raw], NodeNotes | None]:
    """An informer's decoder that keeps the node of this name alone."""

    def decode(data: msgspec.Raw) -> NodeNotes | None:
        meta = _decode(data).metadata
        return NodeNotes(meta.name, meta.annotations or {}) if meta.name == name else None

    return decode
