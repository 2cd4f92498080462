"""Start estimates of pending groups, for explanations.

They are made for the first groups of a queue at once, and cached until the engine
receives a delta or decides something. Groups ahead that cannot run as they are do not
count. The behaviour of other queues is not predicted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from windlass.api.reasons import MAX_PLANNED_NODES
from windlass.engine.backfill.forecast import Forecast, Forecaster
from windlass.engine.groups.entries import GroupEntry
from windlass.engine.queueing.queue_position import QueuePositions
from windlass.engine.state.cluster_state import ClusterState
from windlass.engine.state.statement import Statement

DEPTH = 32
"""Maximum number of groups of a queue with an estimate."""
_SHOWN = 3


class PlannedStart(NamedTuple):
    """Estimated start of a group.

    ``seconds``: time until then; ``None`` if nothing is known.
    ``basis``: what this depends on.
    ``planned``: node → number of the group's pods that start there.
    """

    seconds: float | None
    basis: str
    planned: Mapping[str, int]


NO_ESTIMATE = PlannedStart(None, "", {})


class StartEstimator:
    """Cached start estimates by queue."""

    def __init__(self, state: ClusterState, forecaster: Forecaster, positions: QueuePositions) -> None:
        self._state = state
        self._forecaster = forecaster
        self._positions = positions
        self._stamp = -1
        self._forecasts: dict[str, dict[str, Forecast]] = {}

    def find(self, statement: Statement, group: GroupEntry, now: float) -> PlannedStart:
        """Return the estimated start of a group.

        :data:`NO_ESTIMATE` if nothing is known, or if a delta about pending groups has not
        been processed by a cycle yet.
        """
        state = self._state
        if not state.timed or group.queue is None or group.step is None:
            return NO_ESTIMATE
        if self._stamp != state.stamp:
            self._stamp = state.stamp
            self._forecasts.clear()
        queue = group.queue.name
        if queue not in self._forecasts:
            ahead = [state.groups[key] for key in self._positions.in_order(group.queue, now)]
            runnable = [group for group in ahead if group.step is not None][:DEPTH]
            is_current = state.dirty.keys().isdisjoint([group.key for group in runnable])
            self._forecasts[queue] = self._forecaster.plan(statement, runnable, now) if is_current else {}
        forecast = self._forecasts[queue].get(group.key)
        if forecast is None:
            return NO_ESTIMATE
        learned = {key: state.groups[key].spec.learned for key in forecast.after if key in state.groups}
        basis = _basis(forecast, {k: source for k, source in learned.items() if source})
        names = Counter(state.table.names[row] for _, row in forecast.placements)
        planned = dict(sorted(names.items())[:MAX_PLANNED_NODES])
        return PlannedStart(max(forecast.start - now, 0.0), basis, planned)


def _basis(forecast: Forecast, learned: Mapping[str, str]) -> str:
    """Return a clause like ``when ns/a and ns/b end, as their owners estimate``.

    ``learned``: group → the earlier runs from which its end was learned.
    """
    if not forecast.after:
        return "it fits now, and goes when its turn comes"
    shown = list(forecast.after[-_SHOWN:])
    further = len(forecast.after) - len(shown)
    shown += [f"{further} more"] if further else []
    names = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    is_single = len(forecast.after) == 1
    verb = "ends" if is_single else "end"
    if not learned:
        return f"when {names} {verb}, as {'its owner estimates' if is_single else 'their owners estimate'}"
    last = next(key for key in reversed(forecast.after) if key in learned)
    if is_single:
        return f"when {names} {verb}, as learned {learned[last]}"
    others = " and their owners estimate" if len(learned) < len(forecast.after) else ""
    return f"when {names} {verb}, as learned{others} (of {last} {learned[last]})"
