"""Goals of each benchmark, as rows of one table.

A ratio of 1 or more means that the goal is reached, whether larger or smaller values
are better.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

Found = Mapping[str, Any]


class Goal(NamedTuple):
    """One figure of one benchmark. ``goal``: ``None`` where a figure is shown and nothing is asked of it."""

    module: str
    what: str
    unit: str
    goal: float | None
    more_is_better: bool
    read: Callable[[Found], float]


GOALS: tuple[Goal, ...] = (
    Goal("install", "installed size beyond NumPy", "MB", 40, False, lambda f: f["megabytes"]["value"]),
    Goal("install", "packages beyond NumPy", "", 20, False, lambda f: f["packages"]["value"]),
    Goal("cold_start", "windlass run, cold", "s", 2.0, False, lambda f: f["run_cold"]["seconds"]),
    Goal("cold_start", "windlass run, warm", "s", 0.4, False, lambda f: f["run_warm"]["seconds"]),
    Goal("cold_start", "windlass --version", "s", 0.08, False, lambda f: f["version"]["seconds"]),
    Goal("exec_round_trip", "exec in a running pod", "s", 0.1, False, lambda f: f["seconds"]),
    Goal(
        "store_wire",
        "durable writes, 1 connection",
        "/s",
        None,
        True,
        lambda f: f["figures"]["writes"]["unix_1"]["per_s"],
    ),
    Goal(
        "store_wire",
        "durable writes, 8 connections",
        "/s",
        None,
        True,
        lambda f: f["figures"]["writes"]["unix_8"]["per_s"],
    ),
    Goal(
        "store_wire",
        "durable writes, 32 connections",
        "/s",
        5_000,
        True,
        lambda f: f["figures"]["writes"]["unix_32"]["per_s"],
    ),
    Goal(
        "store_wire",
        "the same over TLS",
        "/s",
        None,
        True,
        lambda f: f["figures"]["writes"]["tls_32"]["per_s"],
    ),
    Goal(
        "store_wire",
        "watch events to 10 watchers",
        "/s",
        50_000,
        True,
        lambda f: f["figures"]["watch_10"]["events_per_s"],
    ),
    Goal("informer_sync", "list of 100 000 pods", "s", 10, False, lambda f: f["figures"]["list"]["s"]),
    Goal(
        "informer_sync",
        "informer sync of 100 000 pods",
        "s",
        10,
        False,
        lambda f: f["figures"]["sync"]["s"],
    ),
    Goal(
        "informer_sync",
        "memory per pod in an informer",
        "KiB",
        2.0,
        False,
        lambda f: f["figures"]["sync"]["kib_per_pod"],
    ),
    Goal("end_to_end", "pods from create to bound", "/s", 1_500, True, lambda f: f["pods_per_second"]),
    Goal("end_to_end", "GET meanwhile, p99", "ms", 20, False, lambda f: f["get_p99_ms"]),
    Goal(
        "end_to_end",
        "server CPU per pod",
        "us",
        None,
        False,
        lambda f: 1e6 * f["processes"]["server"]["cpu_seconds"] / f["pods"],
    ),
    *(
        Goal(
            "months",
            f"simulated jobs, {policy}",
            "ms CPU a job",
            10_000 / 46_673,
            False,
            lambda f, policy=policy: f["policies"][policy]["milliseconds_a_job"],
        )
        for policy in ("fifo-backfill", "easy", "windlass")
    ),
)


def table(results: Iterable[tuple[str, Found]]) -> list[str]:
    """Lines of Markdown: for each figure the median of its runs, their range, the goal and the ratio."""
    by_module: dict[str, list[Found]] = {}
    for module, found in results:
        by_module.setdefault(module, []).append(found)
    lines = [
        "| Figure | Measured | Range | Goal | Ratio |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [_line(goal, by_module[goal.module]) for goal in GOALS if goal.module in by_module]
    return lines


def _line(goal: Goal, runs: Sequence[Found]) -> str:
    values = [float(goal.read(found)) for found in runs]
    span = f"{shown(min(values))} to {shown(max(values))}" if len(values) > 1 else ""
    measured, asked, ratio = cells(statistics.median(values), goal.unit, goal.goal, goal.more_is_better)
    return f"| {goal.what} | {measured} | {span} | {asked} | {ratio} |"


def cells(value: float, unit: str, goal: float | None, more_is_better: bool) -> tuple[str, str, str]:
    """The figure, the goal and the ratio as a table shows them; the last two are empty without a goal."""
    unit = f" {unit}" if unit and not unit.startswith("/") else unit
    measured = f"{shown(value)}{unit}"
    if goal is None:
        return measured, "", ""
    part = value / goal if more_is_better else goal / max(value, 1e-9)
    return measured, f"{'≥' if more_is_better else '≤'} {shown(goal)}{unit}", f"{part:.2f}"


def shown(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.3g}"
