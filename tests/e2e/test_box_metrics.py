"""What the scheduler of one box publishes: its figures under every name, and how often foretold starts came true."""

from __future__ import annotations

import json
import re
from typing import Any

from box import Box
from prometheus_client.parser import text_string_to_metric_families

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


def test_a_box_tells_under_the_names_of_the_field_what_runs_on_it() -> None:
    """A job holds a whole card, another one half of the second; a third waits."""
    with Box("--gpus", "simulated:2xA100-40GB") as box:
        gpus = {"cluster_queue": "default", "cohort": "root", "flavor": "", "resource": "nvidia.com/gpu"}

        def apply(*items: object) -> None:
            box.windlass(
                "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
            )

        def scene(waits: int = 1) -> dict[tuple[str, frozenset[tuple[str, str]]], float] | None:
            with box.client() as client:
                answer = client.request(Request("GET", "/metrics/control"))
            assert answer.status == 200, answer.body
            text = answer.body.decode()
            types = re.findall(r"^# TYPE (\S+) ", text, re.M)
            assert len(set(types)) == len(types)
            values = {
                (sample.name, frozenset(sample.labels.items())): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
            queue = frozenset({("cluster_queue", "default")})
            running = values.get(("kueue_ready_wait_time_seconds_count", queue))
            waiting = values.get(("volcano_unschedule_job_count", frozenset()))
            asked = values.get(("kueue_cluster_queue_resource_pending", frozenset(gpus.items())), 0)
            return (
                values if (running, waiting, asked) == (2, waits, waits) else None
            )  # told at different times

        group, shared = sleeper("half")
        shared["metadata"]["annotations"]["gpu-fraction"] = "0.5"
        shared["spec"]["containers"][0]["resources"] = {}
        apply(*sleeper("whole"), group, shared)
        box.wait_for(
            "two jobs run", lambda: scene(waits=0)
        )  # else the third may have been before one of them
        apply(*sleeper("late"))
        found = box.wait_for("two jobs run and one waits", scene)
        assert found is not None

        def value(name: str, **labels: str) -> float:
            return found[name, frozenset(labels.items())]

        assert value("kueue_cluster_queue_resource_usage", **gpus) == 1.5
        assert value("kueue_admitted_workloads_total", cluster_queue="default") >= 2
        assert value("yunikorn_scheduler_application_total", state="running") == 2
        assert value("scheduler_pending_pods", queue="unschedulable") == 1
        assert value("scheduler_pod_scheduling_sli_duration_seconds_count") == 2
        assert value("volcano_queue_pod_group_running_count", queue_name="default") == 2
        assert value("volcano_e2e_job_scheduling_latency_milliseconds_count") == 2
        assert value("kai_queue_allocated_gpus", queue_name="default", queue_metadata_name="default") == 1.5
        assert value("yunikorn_scheduler_node", state="active") == 1
        cores = sorted(number for (name, _), number in found.items() if name == "GPUDeviceCoreAllocated")
        assert cores == [50, 100]
        memory = [number for (name, _), number in found.items() if name == "hami_gpu_memory_allocated_bytes"]
        assert sorted(memory) == [20 << 30, 40 << 30]
