"""Kubernetes events about the pods of this node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.node.lifecycle.events import RecordEvent


class PodEvents:
    """Records events about pods through the node's event recorder."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def record(self, pod: Mapping[str, Any], event: RecordEvent) -> None:
        metadata = pod["metadata"]
        ref = ObjectRef("v1", "Pod", metadata["namespace"], metadata["name"], metadata["uid"])
        self._recorder.event(ref, event.type, event.reason, event.message)
