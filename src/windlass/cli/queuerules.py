"""Whether the limits of queues that would be different are such as a server takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api import quantities
from windlass.api.errors import FieldError, WindlassError
from windlass.api.validation import queue as rules
from windlass.api.validation.collector import Collector
from windlass.model.queues import shown
from windlass.spi.objects import Dialect, Queue, Resources


def check_limits(before: Mapping[str, Queue], after: Mapping[str, Queue]) -> None:
    """Raises :class:`WindlassError` on what is wrong with a queue, and was not before. What KAI's queues deserve is
    bound by nothing."""
    for name, queue in after.items():
        was = before.get(name)
        if queue == was or queue.dialect is Dialect.KAI:
            continue
        known = _problems(was) if was is not None else []
        wrong = [problem for problem in _problems(queue) if problem not in known]
        if wrong:
            raise WindlassError(
                "WL-QUEUE-422",
                f'queue "{shown(name, False)}" would not be valid',
                evidence="; ".join(f"{problem.field}: {problem.message}" for problem in wrong),
                remedies=("windlass queue ls", "windlass what-if --help"),
            )


def _problems(queue: Queue) -> list[FieldError]:
    found = Collector()
    spec = {
        "capability": _written(queue.capability),
        "deserved": _written(queue.deserved),
        "guarantee": {"resource": _written(queue.guarantee)},
    }
    rules.queue({"metadata": {"name": queue.name}, "spec": spec}, None, found)
    return found.errors


def _written(amounts: Resources) -> dict[str, Any]:
    return {name: quantities.from_units(name, units) for name, units in amounts.items()}
