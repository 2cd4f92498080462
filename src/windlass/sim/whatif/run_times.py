"""Sampled run times of a cluster's work, from stated values, earlier runs or limits.

A run time that the owner states is used as it is. Otherwise it is drawn from the earlier runs of
:class:`~windlass.predict.history.History` that are longer than the time already run. Work that has outlived all of them
is assumed to run for as long again, repeatedly. Without earlier runs, the end is drawn uniformly from the time left
until the limit that ends the work by force, since jobs use any part of their limit (A. Mu'alem and D. Feitelson,
*Utilization, Predictability, Workloads, and User Runtime Estimates*, TPDS 2001). Work without a limit has no known end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from windlass.kits.rng import seeded
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.run_time_traits import predicted_group, shape_of, traits_of
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
        """Return the stated run time, or the median of earlier runs; ``None`` if unknown."""
        if group.run_estimate is not None and not group.learned:
            return group.run_estimate
        found = self.history.predict(self._traits(group))
        return found.quantiles[0.5] if found is not None else self.unknown

    def predicted_group(self, group: Group) -> Group:
        """The group as the scheduler tells its engine of it."""
        return predicted_group(group, self.history, self.shapes.get(group.key, ""))

    def _traits(self, group: Group) -> Traits:
        return traits_of(group, self.shapes.get(group.key, ""))

    def draw(self, group: Group, seed: str, elapsed: float = 0.0, limit: float | None = None) -> float | None:
        """Return a sampled total run time in seconds, above ``elapsed`` and at most ``limit`` (end by force).

        Equal seeds give equal quantiles for all work with the same earlier runs. ``None``: runs for ever.
        """
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
    for pod in model.objects.pods.values():
        key = model.groups.group_of(pod.key)
        group = model.group_sent(key) if key is not None else None
        if pod.phase != "Succeeded" or group is None or not pod.started or not pod.ended:
            continue
        if pod.ended > pod.started:
            seconds = work_seconds(group, pod.started, pod.ended)
            history.observe(CompletedRun(group.uid or group.key, traits_of(group, shape_of(pod)), seconds))
            count += 1
    return count
