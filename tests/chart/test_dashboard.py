"""The dashboard of the chart: Grafana's sidecar finds it, and its panels ask for what is told."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "chart"))
import dashboard  # noqa: E402
import render  # noqa: E402

needs_helm = pytest.mark.skipif(
    render.helm() is None, reason="no helm: build it with tools/kubernetes/build.sh"
)


def expressions() -> list[str]:
    """As Grafana fills them in."""
    found = [one for panel in dashboard.PANELS for one in panel.series]
    return [one.replace("$__rate_interval", "5m").replace("$queue", ".*") for one in found]


def test_the_chart_has_the_dashboard_that_is_described() -> None:
    assert render.stale({render.DASHBOARD: dashboard.text()}) == [], "run: make chart"


@pytest.mark.real
@needs_helm
def test_it_is_there_where_it_is_asked_for() -> None:
    assert "windlass-dashboard" not in {obj["metadata"]["name"] for obj in render.template()}
    (found,) = render.template(
        *("--set", "metrics.dashboard.enabled=true,metrics.dashboard.labels.folder=gpu"),
        *("--show-only", "templates/dashboard.yaml"),
    )
    assert found["metadata"]["labels"].items() >= {("grafana_dashboard", "1"), ("folder", "gpu")}
    document = json.loads(found["data"]["windlass.json"])
    assert document == json.loads(dashboard.text())
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in document["panels"]]
    assert len(set(places)) == len(places) == len(dashboard.PANELS)


def test_it_asks_for_names_that_are_told() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    told = set(re.findall(r"^\| `(windlass_\w+)`", page, re.MULTILINE))
    asked = {name for one in expressions() for name in re.findall(r"windlass_\w+", one)}
    assert len(asked) > 8
    assert {name.removesuffix("_bucket") for name in asked} <= told


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: apt-get install prometheus")
def test_prometheus_understands_every_panel(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": one} for number, one in enumerate(expressions())]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", "rules.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
