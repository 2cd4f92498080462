"""The shapes of `make bench-live`, and their figures as one table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

PLAN: tuple[Mapping[str, Any], ...] = (
    {"nodes": 1000, "jobs": 100, "gang": 20},
    {"nodes": 1000, "jobs": 5000, "gang": 1, "rounds": 0},
    {"nodes": 5000, "jobs": 250, "gang": 20},
    {"nodes": 5000, "jobs": 5000, "gang": 1, "restart": 150_000},
)
_NAMES = {
    "none": "the server alone",
    "kube": "kube-scheduler",
    "windlass": "Windlass",
    "together": "Windlass, one process",
}
_HEAD: tuple[str, ...] = (
    "| nodes | pods | | all bound after | pods/s | p50 / p99 s | CPU s | MiB | Scheduled events | all told after |",
    "| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
)


def table(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines of Markdown."""
    lines = list(_HEAD)
    for run in found:
        shape = f"| {run['nodes']} | {run['jobs']} x {run['gang']} |"
        lines += [f"{shape} {_NAMES[name]} {_row(run[name])}" for name in _NAMES if name in run]
    for run in found:
        lines += _words(run)
    return lines


def _row(one: Mapping[str, Any]) -> str:
    start = f"| {one['seconds']:.1f} s | {one['pods_per_second']} |"
    if "cpu_seconds" not in one:
        return f"{start} (create {one['creates_per_second']}/s, bind {one['binds_per_second']}/s) | | | | |"
    waits = f"{one['create_to_bind_p50_seconds']:.2f} / {one['create_to_bind_p99_seconds']:.2f}"
    spent = f"{one['cpu_seconds']:.1f} | {one['peak_mib']:.0f}"
    return f"{start} {waits} | {spent} | {one['scheduled_events']} | {one['all_told_seconds']:.1f} s |"


def _words(run: Mapping[str, Any]) -> list[str]:
    """Return the values that do not fit a column."""
    own = run.get("windlass") or {}
    shape = f"{run['nodes']} nodes, {run['jobs']} x {run['gang']}"
    lines = []
    rates = own.get("once_pods_exist")
    if rates:
        shown = ", ".join(
            f"{one['binds_per_second']}/s against {one['blind_binds_per_second']}/s"
            for one in rates["rounds"]
        )
        lines += [
            "",
            f"{shape}: binds once pods exist, against blind ones: {shown}; ratio {rates['ratio']:.2f} in the "
            f"median, {rates['ratio_over_all']:.2f} over all.",
        ]
    again = own.get("restart")
    if again:
        lines += [
            "",
            f"{shape}: started with {again['pods']} bound pods, the first bind after "
            f"{again['seconds_to_first_bind']:.1f} s ({again['cpu_seconds']:.1f} s CPU, {again['peak_mib']:.0f} MiB).",
        ]
    return lines
