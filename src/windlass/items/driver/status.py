"""Status of a batch, as ``GET /v1/status`` returns it."""

from __future__ import annotations

from typing import Any

from windlass.items.ledger.changes import ItemState
from windlass.items.ledger.core import Ledger
from windlass.items.places import PlaceError

MAX_GROUPS = 20
"""Maximum number of groups in a status: those with the most items left."""


def status_of(ledger: Ledger, started: float, now: float, written: bool) -> dict[str, Any]:
    """Return the status. ``started``: time at which workers could begin.

    ``written``: the outputs are complete.
    """
    table = ledger.table
    counts = table.counts
    rate = ledger.rate.per_second(now, started)
    left = table.open
    items = {
        "total": len(table),
        "done": counts[ItemState.DONE],
        "failed": counts[ItemState.DEAD] + table.failing,
        "deadLetter": counts[ItemState.DEAD],
        "inFlight": counts[ItemState.LEASED],
        "perSecond": round(rate, 2),
    }
    if left == 0:
        items["etaSeconds"] = 0
    elif rate > 0:
        items["etaSeconds"] = round(left / rate)
    status: dict[str, Any] = {
        "items": items,
        "groups": _groups(ledger),
        "groupCount": len(ledger.queues.groups),
        "workers": ledger.active_workers(now),
        "latency": {},
        "busySeconds": round(ledger.latencies.sum, 3),
        "finished": written,
    }
    for name, part in (("p50", 0.5), ("p95", 0.95)):
        value = ledger.latencies.quantile(part)
        if value is not None:
            status["latency"][name] = value
    if ledger.batch.outputs.quality is not None and (quality := _quality(ledger)):
        status["quality"] = quality
    trouble = None if written else ledger.trouble
    if last := trouble or (ledger.last_error if table.failing else None):
        status["lastError"] = {"reason": last[0], "message": last[1]}
    if ledger.failure is not None:
        status["failure"] = {"reason": ledger.failure[0], "message": ledger.failure[1]}
    return status


def tell_blocked(status: dict[str, Any], error: PlaceError) -> None:
    """Add why no row can be stored. Meanwhile there is no rate and no time that is left."""
    status["blocked"] = {"reason": error.reason, "message": str(error)}
    status["items"]["perSecond"] = 0.0
    status["items"].pop("etaSeconds", None)


def _quality(ledger: Ledger) -> dict[str, Any]:
    """Return the figures of the scores, and the number of finished rows without a score."""
    scores, found = ledger.scores, {}
    if scores.total:
        found = {"mean": round(scores.mean(), 2), "p10": scores.lowest(0.1), "below": scores.below}
        if ledger.branch >= 0:
            found["again"] = ledger.table.totals[ledger.branch]
    unscored = ledger.table.counts[ItemState.DONE] - scores.total
    return found | {"unscored": unscored} if unscored > 0 else found


def _groups(ledger: Ledger) -> list[dict[str, Any]]:
    table = ledger.table
    numbers = range(len(ledger.queues.groups))
    largest = sorted(numbers, key=lambda n: (-table.remaining[n], n))[:MAX_GROUPS]
    return [_group(ledger, number) for number in largest]


def all_groups(ledger: Ledger) -> list[dict[str, Any]]:
    """Return the counts of all groups, in the order of the input."""
    return [_group(ledger, number) for number in range(len(ledger.queues.groups))]


def _group(ledger: Ledger, number: int) -> dict[str, Any]:
    table = ledger.table
    return {
        "name": ledger.queues.groups[number].record.name,
        "total": table.totals[number],
        "done": table.totals[number] - table.remaining[number] - table.dead[number],
        "failed": table.dead[number],
        "remaining": table.remaining[number],
    }
