"""Every experiment by its number."""

from __future__ import annotations

from collections.abc import Mapping

from windlass_lab.experiments import (
    autoscaling,
    fragmentation_over_time,
    image_generation,
    item_workers,
    large_gangs,
    node_failures,
    packing,
    pooling,
    queue_shares,
    queueing,
    submission_delay,
    thousand_gpus,
)
from windlass_lab.experiments.claim import Experiment, ExperimentResult
from windlass_lab.experiments.lab import Lab

_ROOMS = (
    *(pooling, queueing, packing, large_gangs, image_generation, node_failures, queue_shares, autoscaling),
    *(submission_delay, item_workers, fragmentation_over_time, thousand_gpus),
)
EXPERIMENTS: Mapping[str, Experiment] = {
    tried.id: tried
    for tried in sorted((one for room in _ROOMS for one in room.EXPERIMENTS), key=lambda one: int(one.id[1:]))
}


def attempt(tried: Experiment, lab: Lab, missing: tuple[str, ...] = ()) -> ExperimentResult:
    """Make an experiment; with traces that are not there, say so. Raises
    :class:`~windlass.sim.traces.rows.TraceError`."""
    if missing:
        return ExperimentResult(tried, None, missing)
    begun = lab.clock.monotonic()
    answer = tried.try_(lab)
    return ExperimentResult(tried, answer, seconds=lab.clock.monotonic() - begun)
