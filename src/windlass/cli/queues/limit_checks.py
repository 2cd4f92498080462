"""Validation of queues with changed limits, by the rules of the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import quantities
from windlass.api.errors import FieldError, WindlassError
from windlass.api.queues.tree import (
    ROOT,
    QueueSpecs,
    against_children,
    against_parent,
    root_changes,
)
from windlass.api.validation.collector import Collector
from windlass.api.validation.scheduling import queue as rules
from windlass.model.queues.engine_queue import shown
from windlass.spi.objects import Dialect, Queue, Resources


def check_limits(before: Mapping[str, Queue], after: Mapping[str, Queue]) -> None:
    """Raise :class:`WindlassError` for a problem of a queue that it did not have before.

    A queue is checked alone, then against its parent and children. Queues of KAI have
    no such rules.
    """
    then, now = _tree(before), _tree(after)
    for name, queue in after.items():
        was = before.get(name)
        if queue == was or queue.dialect is Dialect.KAI:
            continue
        known = _problems(then, name) if was is not None else []
        wrong = [problem for problem in _problems(now, name) if problem not in known]
        if name == ROOT:
            wrong += root_changes(then.specs.get(name, {}), now.specs[name])
        if wrong:
            raise WindlassError(
                "WL-QUEUE-422",
                f'queue "{shown(name, False)}" would not be valid',
                evidence="; ".join(f"{problem.field}: {problem.message}" for problem in wrong),
                remedies=("windlass queue ls", "windlass what-if --help"),
            )


def _tree(queues: Mapping[str, Queue]) -> QueueSpecs:
    return QueueSpecs(
        {name: _spec(queue) for name, queue in queues.items() if queue.dialect is not Dialect.KAI}
    )


def _spec(queue: Queue) -> dict[str, Any]:
    return {
        "parent": queue.parent,
        "capability": _as_quantities(queue.capability),
        "deserved": _as_quantities(queue.deserved),
        "guarantee": {"resource": _as_quantities(queue.guarantee)},
    }


def _problems(tree: QueueSpecs, name: str) -> list[FieldError]:
    """Return the problems of the queue alone; if there are none, those with parent and children."""
    collector = Collector()
    rules.queue({"metadata": {"name": name}, "spec": tree.specs[name]}, None, collector)
    if collector.errors or name == ROOT:
        return collector.errors
    return [*against_parent(tree, name), *against_children(tree, name)]


def _as_quantities(amounts: Resources) -> dict[str, Any]:
    return {name: quantities.from_units(name, units) for name, units in amounts.items()}
