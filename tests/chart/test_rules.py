"""The alerts of the chart: Prometheus takes them, they look at names that are told, and fire when they should."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "chart"))
import render  # noqa: E402

needs_helm = pytest.mark.skipif(
    render.helm() is None, reason="no helm: build it with tools/kubernetes/build.sh"
)
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool: apt-get install prometheus"
)
HERE = 'namespace="windlass-system"'
GPUS = f'{HERE},queue="q",resource="nvidia.com/gpu"'
FIRING: dict[str, dict[str, str]] = {
    "WindlassNoLeader": {f"windlass_scheduler_leader{{{HERE}}}": "0x200"},
    "WindlassTwoLeaders": {
        f'windlass_scheduler_leader{{{HERE},pod="a"}}': "1x200",
        f'windlass_scheduler_leader{{{HERE},pod="b"}}': "1x200",
    },
    "WindlassNotDeciding": {
        f'windlass_scheduler_pending_groups{{{HERE},reason="PendingEvaluation"}}': "1x200"
    },
    "WindlassBindsStuck": {
        f"windlass_scheduler_assumed_pods{{{HERE}}}": "3x200",
        f'windlass_scheduler_pods_bound_total{{{HERE},result="bound"}}': "70x200",
    },
    "WindlassBindErrors": {
        f'windlass_scheduler_pods_bound_total{{{HERE},result="bound"}}': "0+9x200",
        f'windlass_scheduler_pods_bound_total{{{HERE},result="failed"}}': "0+1x200",
    },
    "WindlassControllerErrors": {
        f'windlass_controller_failures_total{{{HERE},controller="queue",kind="refused"}}': "0+60x200"
    },
    "WindlassOvercommitted": {
        f'windlass_scheduler_bind_conflicts_total{{{HERE},kind="overcommitted"}}': "0x170 1x30"
    },
    "WindlassGangsIncomplete": {
        f'windlass_scheduler_evictions_total{{{HERE},reason="GangBindFailed",result="done"}}': "0x170 4x30"
    },
    "WindlassQueueStarves": {
        f'windlass_scheduler_queue_oldest_wait_seconds{{{HERE},queue="q"}}': "21000+60x200",
        f'windlass_scheduler_queue_resource{{{GPUS},state="fair_share"}}': "8x200",
    },
    "WindlassFragmented": {
        f'windlass_scheduler_pending_groups{{{HERE},reason="DevicesFragmented"}}': "1x200"
    },
    "WindlassMisconfigured": {
        f'windlass_scheduler_pending_groups{{{HERE},reason="ExceedsCluster"}}': "1x200"
    },
    "WindlassSlowCycles": {
        f'windlass_scheduler_cycle_duration_seconds_bucket{{{HERE},le="2.0"}}': "0+1x200",
        f'windlass_scheduler_cycle_duration_seconds_bucket{{{HERE},le="5.0"}}': "0+10x200",
        f'windlass_scheduler_cycle_duration_seconds_bucket{{{HERE},le="+Inf"}}': "0+10x200",
    },
    "WindlassClockOff": {f"windlass_scheduler_clock_ahead_seconds{{{HERE}}}": "-7200x200"},
    "WindlassSettingsRefused": {f"windlass_settings_last_reload_successful{{{HERE}}}": "0x200"},
}
"""Alert → series that make it fire within three hours, minute by minute."""
CALM = {
    f"windlass_scheduler_leader{{{HERE}}}": "1x200",
    f'windlass_scheduler_pending_groups{{{HERE},reason="PendingEvaluation"}}': "0 1 0x198",
    f"windlass_scheduler_assumed_pods{{{HERE}}}": "3x200",
    f'windlass_scheduler_pods_bound_total{{{HERE},result="bound"}}': "0+60x200",
    f'windlass_scheduler_pods_bound_total{{{HERE},result="failed"}}': "0+1x200",
    f'windlass_controller_failures_total{{{HERE},controller="queue",kind="conflict"}}': "0+60x200",
    f'windlass_scheduler_bind_conflicts_total{{{HERE},kind="elsewhere"}}': "0+1x200",
    f'windlass_scheduler_evictions_total{{{HERE},reason="PreemptionByScheduler",result="done"}}': "0+1x200",
    f'windlass_scheduler_queue_oldest_wait_seconds{{{HERE},queue="q"}}': "90000x200",
    f'windlass_scheduler_queue_resource{{{GPUS},state="fair_share"}}': "8x200",
    f'windlass_scheduler_queue_resource{{{GPUS},state="allocated"}}': "8x200",
    f'windlass_scheduler_cycle_duration_seconds_bucket{{{HERE},le="0.5"}}': "0+10x200",
    f'windlass_scheduler_cycle_duration_seconds_bucket{{{HERE},le="+Inf"}}': "0+10x200",
    f"windlass_scheduler_clock_ahead_seconds{{{HERE}}}": "0x200",
    f"windlass_settings_last_reload_successful{{{HERE}}}": "1x200",
}
"""Working cluster without alerts: a long wait in a queue that holds its share,
conflicts, few failures."""


def rules() -> dict[str, Any]:
    (rule,) = render.template("--set", "metrics.rules.enabled=true", "--show-only", "templates/rules.yaml")
    assert rule["kind"] == "PrometheusRule"
    return rule["spec"]


def promtool(folder: Path, *arguments: str, spec: dict[str, Any] | None = None) -> None:
    (folder / "rules.yaml").write_text(yaml.safe_dump(spec or rules()))
    done = subprocess.run(
        ["promtool", *arguments], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real
@needs_helm
def test_there_are_none_unless_they_are_asked_for() -> None:
    assert "PrometheusRule" not in {obj["kind"] for obj in render.template()}
    asked = ("--set", "metrics.rules.enabled=true,metrics.rules.labels.release=prometheus")
    (rule,) = [obj for obj in render.template(*asked) if obj["kind"] == "PrometheusRule"]
    assert rule["metadata"]["labels"]["release"] == "prometheus"


@pytest.mark.real
@needs_helm
def test_they_look_at_names_that_are_told() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    told = set(re.findall(r"^\| `(windlass_\w+)`", page, re.MULTILINE))
    every = {
        name for rule in rules()["groups"][0]["rules"] for name in re.findall(r"windlass_\w+", rule["expr"])
    }
    assert len(every) > 10
    assert {name.removesuffix("_bucket") for name in every} <= told


@pytest.mark.real
@needs_helm
def test_the_page_has_every_alert() -> None:
    page = (ROOT / "docs" / "operations" / "metrics.md").read_text()
    named = set(re.findall(r"^\| `(Windlass\w+)`", page, re.MULTILINE))
    assert named == {rule["alert"] for rule in rules()["groups"][0]["rules"]}


@pytest.mark.real
@needs_helm
@needs_promtool
def test_each_fires_when_it_should_and_none_in_a_calm_cluster(tmp_path: Path) -> None:
    spec = rules()
    alerts = {rule["alert"]: rule for rule in spec["groups"][0]["rules"]}
    assert FIRING.keys() == alerts.keys()
    tests = [_played(name, series, fires=True) for name, series in FIRING.items()]
    tests += [_played(name, CALM, fires=False) for name in alerts]
    for test in tests:
        for case in test["alert_rule_test"]:
            for expected in case["exp_alerts"]:
                rule = alerts[case["alertname"]]
                words = {
                    key: _filled(text, expected["exp_labels"]) for key, text in rule["annotations"].items()
                }
                expected.update(
                    exp_labels={**rule["labels"], **expected["exp_labels"]}, exp_annotations=words
                )
    (tmp_path / "tests.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    promtool(tmp_path, "check", "rules", "rules.yaml", spec=spec)
    promtool(tmp_path, "test", "rules", "tests.yaml", spec=spec)


def _filled(text: str, labels: dict[str, str]) -> str:
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda found: labels[found[1]], text)


def _played(name: str, series: dict[str, str], *, fires: bool) -> dict[str, Any]:
    labels = {
        "WindlassQueueStarves": {"queue": "q"},
        "WindlassControllerErrors": {"controller": "queue"},
        "WindlassFragmented": {"reason": "DevicesFragmented"},
        "WindlassMisconfigured": {"reason": "ExceedsCluster"},
    }.get(name, {})
    return {
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "alert_rule_test": [
            {"eval_time": "3h", "alertname": name, "exp_alerts": [{"exp_labels": labels}] if fires else []}
        ],
    }
