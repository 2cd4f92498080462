"""What has to stand on a group's object before its first pod is asked to go.

Who is suspended for others has there what he attained and how often he was (:mod:`windlass.model.pasts`): a scheduler
that takes over counts from it. It is one patch, of the values as they are, so it does not matter how often it is
written; of a group without an object nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from windlass.engine.actions.timeshare import ACTION as SUSPENSION
from windlass.engine.decision import Eviction
from windlass.model import pasts
from windlass.model.cluster import ClusterModel
from windlass.scheduler.binder import Write
from windlass.scheduler.evictor import Order, order_for
from windlass.spi.objects import Past


class Leaving:
    """``past(group)``: what the group has behind it."""

    def __init__(self, model: ClusterModel, past: Callable[[str], Past | None]) -> None:
        self._model = model
        self._past = past

    def of(self, evictions: Iterable[Eviction]) -> Iterator[tuple[list[Order], Write | None]]:
        """The orders group by group, each with what goes before them."""
        found: dict[str, list[Eviction]] = {}
        for eviction in evictions:
            found.setdefault(eviction.group, []).append(eviction)
        for group, mates in found.items():
            yield list(map(order_for, mates)), self._write(group, mates)

    def _write(self, group: str, evictions: list[Eviction]) -> Write | None:
        past = self._past(group) if evictions[0].action == SUSPENSION else None
        found = self._model.object_of(group)
        if past is None or found is None:
            return None
        resource, view = found
        body = {"metadata": {"uid": view.uid, "annotations": pasts.written(past)}}
        return Write(resource, view.namespace, view.name, body, vital=False)
