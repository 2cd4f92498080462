"""The Grafana dashboard of the chart: its panels, in few words, and the document that Grafana reads.

Written by ``tools/chart/render.py`` into ``deploy/helm/windlass/dashboards/windlass.json``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 12, 8
GPU = 'resource="nvidia.com/gpu"'


@dataclass(frozen=True, slots=True)
class Panel:
    """``series``: expression → legend. ``unit``: Grafana's name of one."""

    title: str
    words: str
    unit: str
    series: dict[str, str]
    stacked: bool = False


def _queue(state: str) -> str:
    return f'max by (queue) (windlass_scheduler_queue_resource{{{GPU}, state="{state}", queue=~"$queue"}})'


def _quantile(part: float, name: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({part}, sum by ({labels}) (rate({name}_bucket[$__rate_interval])))"


def _rate(name: str, by: str, labels: str = "") -> str:
    return f"sum by ({by}) (rate({name}{labels}[$__rate_interval]))"


PANELS = (
    Panel("GPUs held", "By queue.", "short", {_queue("allocated"): "{{queue}}"}, stacked=True),
    Panel(
        "GPUs held of the fair share",
        "Above 1: borrowed. Below 1 with work waiting: see the oldest wait.",
        "percentunit",
        {f"{_queue('allocated')} / {_queue('fair_share')}": "{{queue}}"},
    ),
    Panel(
        "Groups that wait, by reason",
        "windlass help REASON says what a reason means.",
        "short",
        {"max by (reason) (windlass_scheduler_pending_groups) > 0": "{{reason}}"},
        stacked=True,
    ),
    Panel(
        "Oldest wait",
        "Of groups that waiting may help, by queue.",
        "s",
        {'max by (queue) (windlass_scheduler_queue_oldest_wait_seconds{queue=~"$queue"}) > 0': "{{queue}}"},
    ),
    Panel(
        "From a pod's creation to its binding",
        "Of those that were bound.",
        "s",
        {
            _quantile(0.5, "windlass_scheduler_pod_scheduling_duration_seconds"): "half of them",
            _quantile(0.99, "windlass_scheduler_pod_scheduling_duration_seconds"): "99 of 100",
        },
    ),
    Panel(
        "Pods bound",
        "By outcome: bound, gone, failed.",
        "cps",
        {_rate("windlass_scheduler_pods_bound_total", "result"): "{{result}}"},
    ),
    Panel(
        "Pods evicted",
        "By reason and outcome.",
        "cps",
        {_rate("windlass_scheduler_evictions_total", "reason, result"): "{{reason}} {{result}}"},
    ),
    Panel(
        "Parts of a cycle, 99 of 100",
        "Reading what has changed, deciding, showing, carrying out.",
        "s",
        {_quantile(0.99, "windlass_scheduler_cycle_part_duration_seconds", "part"): "{{part}}"},
    ),
    Panel(
        "Actions of a cycle, 99 of 100",
        "Of the part that decides.",
        "s",
        {_quantile(0.99, "windlass_scheduler_action_duration_seconds", "action"): "{{action}}"},
    ),
    Panel(
        "Starts foretold",
        "The part of estimated starts that came in the band that was told first.",
        "percentunit",
        {"max(windlass_scheduler_start_estimate_hit_ratio)": "within"},
    ),
    Panel(
        "Controllers: looks that failed",
        "By controller and kind; conflicts are tried again and are no fault.",
        "cps",
        {_rate("windlass_controller_failures_total", "controller, kind"): "{{controller}} {{kind}}"},
    ),
    Panel(
        "CPU and memory",
        "Of each process: cores; GiB.",
        "short",
        {
            'rate(process_cpu_seconds_total{job=~"windlass.*"}[$__rate_interval])': "{{pod}} cores",
            'process_resident_memory_bytes{job=~"windlass.*"} / 2^30': "{{pod}} GiB",
        },
    ),
)


def text() -> str:
    """The document."""
    return json.dumps(_document(), indent=2, ensure_ascii=False) + "\n"


def _document() -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "uid": "windlass",
        "title": "Windlass",
        "tags": ["windlass", "gpu", "scheduling"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
                {
                    "name": "queue",
                    "type": "query",
                    "label": "Queue",
                    "datasource": source,
                    "query": "label_values(windlass_scheduler_queue_resource, queue)",
                    "refresh": 2,
                    "multi": True,
                    "includeAll": True,
                    "allValue": ".*",
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": list(_panels(source)),
    }


def _panels(source: dict[str, str]) -> Iterator[dict[str, Any]]:
    for number, panel in enumerate(PANELS):
        yield {
            "id": number + 1,
            "type": "timeseries",
            "title": panel.title,
            "description": panel.words,
            "datasource": source,
            "gridPos": {"h": HEIGHT, "w": WIDTH, "x": WIDTH * (number % 2), "y": HEIGHT * (number // 2)},
            "fieldConfig": {
                "defaults": {
                    "unit": panel.unit,
                    "min": 0,
                    "custom": {
                        "fillOpacity": 20 if panel.stacked else 0,
                        "stacking": {"mode": "normal" if panel.stacked else "none"},
                    },
                },
                "overrides": [],
            },
            "options": {
                "legend": {"displayMode": "list", "placement": "bottom"},
                "tooltip": {"mode": "multi"},
            },
            "targets": [
                {
                    "refId": chr(ord("A") + at),
                    "datasource": source,
                    "expr": expression,
                    "legendFormat": legend,
                }
                for at, (expression, legend) in enumerate(panel.series.items())
            ],
        }
