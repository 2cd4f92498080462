"""Status of one stage, as ``GET /v1/status`` returns it."""

from __future__ import annotations

from typing import Any

from windlass.items.ledger.changes import ItemState
from windlass.items.ledger.core import Ledger
from windlass.items.spec import StageSpec
from windlass.items.stages.sizes import MeasuredSizes


def stage_status(
    stage: StageSpec, ledger: Ledger, foreign: int | None, started: float, now: float
) -> dict[str, Any]:
    """Return the status of a stage.

    ``foreign``: number of items of its table that other stages gave up; ``None`` for the last
    stage: its table has all of them.
    """
    counts = ledger.table.counts
    sizes = ledger.sizes
    seconds = sizes.mean() if isinstance(sizes, MeasuredSizes) else sizes.estimate(-1)
    dead = counts[ItemState.DEAD] - foreign if foreign is not None else 0
    return {
        "name": stage.name,
        "kind": stage.kind,
        "done": counts[ItemState.DONE],
        "failed": dead,
        "waiting": counts[ItemState.PENDING],
        "held": counts[ItemState.HELD],
        "inFlight": counts[ItemState.LEASED],
        "perSecond": round(ledger.rate.per_second(now, started), 2),
        "secondsPerItem": round(seconds, 6),
        "busySeconds": round(ledger.latencies.sum, 3),
        "workers": ledger.active_workers(now),
        "finished": ledger.table.open == 0,
    }
