"""How long the work of a cluster may run: drawn at random, by what its owner says or what earlier runs took.

What its owner says of it is taken at his word. Else a run is drawn from the earlier runs that
:class:`~windlass.predict.history.History` goes by, of those that are longer than it has run already. What has
outlived all of that is taken to run on for as long again, and again. Of what is known by neither a limit after which it
is ended by force says how long it runs at most: its end is drawn from all that is left until then, each moment as
likely as the next, since of the time that jobs may run they use any part (A. Mu'alem and D. Feitelson, *Utilization,
Predictability, Workloads, and User Runtime Estimates*, TPDS 2001). Of what has no limit either nobody knows an end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windlass.kits.rng import seeded
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.run_time_traits import foretold, shape_of, traits_of
from windlass.plugins.timeshare.suspension_cost import work_seconds
from windlass.predict.history import History
from windlass.predict.model import CompletedRun, Traits
from windlass.spi.objects import Group


@dataclass(frozen=True, slots=True)
class SampledRunTimes:
    """``history``: what is known of earlier runs. ``unknown``: seconds that work runs of which nothing is known;
    ``None``: for ever. ``shapes``: group → what its pods ask for
    (:func:`~windlass.model.cluster.run_time_traits.shape_in`)."""

    history: History
    unknown: float | None = None
    shapes: Mapping[str, str] = field(default_factory=dict)

    def expected(self, group: Group) -> float | None:
        """As its owner says, or as half of the earlier runs at most; ``None``: nobody knows."""
        if group.run_estimate is not None and not group.learned:
            return group.run_estimate
        found = self.history.predict(self._traits(group))
        return found.quantiles[0.5] if found is not None else self.unknown

    def foretold(self, group: Group) -> Group:
        """The group as the scheduler tells its engine of it."""
        return foretold(group, self.history, self.shapes.get(group.key, ""))

    def _traits(self, group: Group) -> Traits:
        return traits_of(group, self.shapes.get(group.key, ""))

    def draw(self, group: Group, seed: str, elapsed: float = 0.0, limit: float | None = None) -> float | None:
        """How long it runs in all, in seconds, more than ``elapsed``; at most ``limit`` (when it is ended by
        force). Equal seeds draw the like of all that have the same runs behind them. ``None``: for ever."""
        seconds = self._drawn(group, seed, elapsed)
        if limit is None:
            return seconds
        if seconds is None:
            return elapsed + max(0.0, limit - elapsed) * _chance(group, seed)
        return max(elapsed, min(seconds, limit))

    def _drawn(self, group: Group, seed: str, elapsed: float) -> float | None:
        if group.run_estimate is not None and not group.learned:
            return _outlive([group.run_estimate], elapsed)
        runs = self.history.similar(self._traits(group))
        if runs:
            longer = [seconds for seconds in runs if seconds > elapsed]
            if not longer:
                return _outlive(runs, elapsed)
            return longer[int(_chance(group, seed) * len(longer))]
        return None if self.unknown is None else _outlive([self.unknown], elapsed)


def _chance(group: Group, seed: str) -> float:
    """From 0 to below 1."""
    return seeded(f"{seed} {group.key}").random()


def _outlive(runs: Sequence[float], elapsed: float) -> float:
    seconds = max(runs[-1], 1.0)
    while seconds <= elapsed:
        seconds *= 2
    return seconds


def learn(history: History, model: ClusterModel) -> int:
    """Take in what has ended well among the pods of a model; how many there were."""
    count = 0
    for pod in model.pods.values():
        key = model.group_of(pod.key)
        group = model.group_sent(key) if key is not None else None
        if pod.phase != "Succeeded" or group is None or not pod.started or not pod.ended:
            continue
        if pod.ended > pod.started:
            seconds = work_seconds(group, pod.started, pod.ended)
            history.observe(CompletedRun(group.uid or group.key, traits_of(group, shape_of(pod)), seconds))
            count += 1
    return count
