"""What the scheduler of one box publishes: how often the starts that it foretold came true."""

from __future__ import annotations

import json
import re
from typing import Any

from box import Box

from windlass.client.transport import Request

SECONDS = 40
"""How long the first one holds the only card: longer than it takes until starts are estimated (15 s)."""


def told(box: Box, name: str, labels: str = "") -> float:
    with box.client() as client:
        answer = client.request(Request("GET", "/metrics/control"))
    assert answer.status == 200, answer.body
    found = re.search(rf"^windlass_scheduler_{name}{re.escape(labels)} (.+)$", answer.body.decode(), re.M)
    return float(found[1]) if found else 0.0


def sleeper(name: str) -> list[dict[str, Any]]:
    """A group of one pod, with the owner's word on how long it runs."""
    card = {"nvidia.com/gpu": "1"}
    command = ["sleep", str(SECONDS)]
    return [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "annotations": {"windlass.dev/run-estimate": f"{SECONDS}s"}},
            "spec": {"minMember": 1},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": {"scheduling.k8s.io/group-name": name}},
            "spec": {
                "schedulerName": "windlass",
                "restartPolicy": "Never",
                "containers": [{"name": "main", "command": command, "resources": {"limits": card}}],
            },
        },
    ]


def test_a_box_tells_how_often_estimated_starts_came_true() -> None:
    with Box("--gpus", "simulated:1") as box:
        assert told(box, "leader") == 1.0
        items = [*sleeper("first"), *sleeper("second")]
        box.windlass(
            "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        )

        def started() -> float:
            words = ("within", "early", "late")
            return sum(told(box, "start_estimates_total", f'{{result="{word}"}}') for word in words)

        box.wait_for("the start of the second one is held against its estimate", started)
        hits = told(box, "start_estimates_total", '{result="within"}')
        assert told(box, "start_estimate_hit_ratio") == hits / started()
