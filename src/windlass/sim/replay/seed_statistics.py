"""The figures of one policy over several seeds: their means, and how far the runs lie apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from windlass.sim.replay.metrics import Metrics

SEED, SEEDS, SPREAD = "seed", "seeds", "spread"
DIGITS = 4


def over_seeds(runs: Sequence[Metrics]) -> Metrics:
    """Return the mean metrics of runs of one policy that differ by their seed (metric :data:`SEED`).

    ``seeds`` lists the seeds; ``spread`` has the sample standard deviation (n - 1) of every metric, in the same form.
    A metric that is ``None`` in some run has neither. Unfinished jobs are those of the first run that has any. A
    single run is returned unchanged. Raises ``ValueError`` for no run.
    """
    if not runs:
        raise ValueError("no run has no mean")
    if len(runs) == 1:
        return runs[0]
    figures = [run.figures for run in runs]
    told = {
        "policy": runs[0].policy,
        **_each(figures, _mean),
        SEEDS: [one[SEED] for one in figures],
        SPREAD: _each(figures, lambda values: round(stdev(values), DIGITS)),
    }
    return Metrics(runs[0].policy, told, next((run.left for run in runs if run.left), ()))


def _mean(values: Sequence[float]) -> float:
    """Return the mean; equal integers stay that integer, such as the number of jobs."""
    return values[0] if min(values) == max(values) else round(fmean(values), DIGITS)


def _each(figures: Sequence[Mapping[str, Any]], what: Callable[[Sequence[float]], float]) -> dict[str, Any]:
    """The same of every number, wherever it stands, but of the seeds."""
    found: dict[str, Any] = {}
    for name, first in figures[0].items():
        values = [one[name] for one in figures]
        if isinstance(first, dict):
            found[name] = _each(values, what)
        elif not isinstance(first, str) and name != SEED:
            found[name] = None if None in values else what(values)
    return found
