"""Demand forecast of ``windlass sim run --forecast-from``: error, wait and overcommitment.

It is compared with the last value as forecast. Both plan capacity one step ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windlass.api.errors import WindlassError
from windlass.cli import tables
from windlass.predict import demand
from windlass.sim import demand_scaling
from windlass.sim.jobs import TraceJob

LEARNED, LAST = "learned", "last value"


def forecast_record(
    fitted_to: Sequence[TraceJob], jobs: Sequence[TraceJob], gpus: float, name: str
) -> dict[str, Any]:
    """Return errors and waits of both forecasts on ``jobs``. Raises :class:`WindlassError`.

    ``fitted_to``: jobs of another trace. ``gpus``: those of the cluster, at most.
    """
    past = demand_scaling.demand(fitted_to)
    try:
        model = demand.fit(past)
    except ValueError as error:
        raise WindlassError(
            "WL-USE-400",
            f"no forecast can be learned from {name}: {error}",
            remedies=("windlass sim generate --days 7 > past.csv   (a trace of a week)",),
        ) from None
    series = demand_scaling.demand(jobs)
    record: dict[str, Any] = {"fittedTo": name, "stepSeconds": demand.STEP_SECONDS, "forecasts": {}}
    mean = sum(series) / max(len(series), 1)
    for kind, used in ((LEARNED, model), (LAST, None)):
        said = demand.forecasts(used, series)
        margin = demand_scaling.margin_of(demand.forecasts(used, past), past)
        played = demand_scaling.play(jobs, said, gpus, margin)
        error = demand.mean_error(said, series)
        record["forecasts"][kind] = {
            "errorGpus": round(error, 3),
            "errorPercent": round(100 * error / mean, 2) if mean else None,
            "overcommitPercent": round(100 / margin, 1),
            "waitSeconds": round(played.wait_seconds, 1),
            "capacityGpuHours": round(played.gpu_hours, 1),
        }
    return record


def as_text(record: dict[str, Any]) -> str:
    """Return the comparison as a table."""
    kinds = record["forecasts"]
    lines = (
        ("mean error, GPUs", "errorGpus", ""),
        ("mean error, part of demand", "errorPercent", "%"),
        ("expected use of capacity", "overcommitPercent", "%"),
        ("mean wait", "waitSeconds", "s"),
        ("capacity, GPU-hours", "capacityGpuHours", ""),
    )
    rows = [[title, *(f"{one[key]:,}{unit}" for one in kinds.values())] for title, key, unit in lines]
    table = tables.render(["DEMAND FORECAST", *map(str.upper, kinds)], rows, right=frozenset((1, 2)))
    return f"\nfitted to {record['fittedTo']}; capacity follows the forecast\n{table}"
