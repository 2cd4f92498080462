"""Every experiment by its number."""

from __future__ import annotations

from collections.abc import Mapping

from windlass.sim.claims import (
    autoscaling,
    failing,
    generation,
    packs,
    pooling,
    queueing,
    shares,
    urgent,
)
from windlass.sim.claims.claim import Experiment, Result
from windlass.sim.claims.lab import Lab

_ROOMS = (pooling, queueing, packs, urgent, generation, failing, shares, autoscaling)
EXPERIMENTS: Mapping[str, Experiment] = {
    tried.id: tried
    for tried in sorted((one for room in _ROOMS for one in room.EXPERIMENTS), key=lambda one: int(one.id[1:]))
}


def attempt(tried: Experiment, lab: Lab, missing: tuple[str, ...] = ()) -> Result:
    """Make an experiment; with traces that are not there, say so. Raises
    :class:`~windlass.sim.traces.rows.TraceError`."""
    if missing:
        return Result(tried, None, missing)
    begun = lab.clock.monotonic()
    answer = tried.try_(lab)
    return Result(tried, answer, seconds=lab.clock.monotonic() - begun)
