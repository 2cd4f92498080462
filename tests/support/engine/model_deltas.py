"""A model, and what it tells the engine."""

from __future__ import annotations

from typing import Any

from windlass.engine import deltas
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.snapshot import EVERY_SCHEDULER, load
from windlass.spi.objects import Group, Queue, Task

NOW = 1_767_268_800.0  # 2026-01-01T12:00:00Z


def model_of(*objects: dict[str, Any], **options: Any) -> ClusterModel:
    model = ClusterModel(EVERY_SCHEDULER, **options)
    assert load(model, ((str(at), obj) for at, obj in enumerate(objects)), strict=True) == {}
    return model


class Sent:
    """What a model tells the engine."""

    def __init__(self, model: ClusterModel, now: float = NOW) -> None:
        self.queues: dict[str, Queue] = {}
        self.groups: dict[str, Group] = {}
        self.tasks: dict[str, Task] = {}
        self.take(model, now)

    def take(self, model: ClusterModel, now: float = NOW) -> None:
        for delta in model.take(now):
            match delta:
                case deltas.QueueUpserted(found):
                    self.queues[found.name] = found
                case deltas.QueueRemoved(name):
                    del self.queues[name]
                case deltas.GroupUpserted(found):
                    self.groups[found.key] = found
                case deltas.GroupRemoved(key):
                    del self.groups[key]
                case deltas.TaskUpserted(found):
                    self.tasks[found.key] = found
                case deltas.TaskRemoved(key):
                    del self.tasks[key]
