"""What the scheduler of one box publishes: its figures under every name, and how often foretold starts came true."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from clusters import eventually
from prometheus_client.parser import text_string_to_metric_families
from single_node import Box

from windlass.api.annotations import EXPLANATION
from windlass.client.transport import Request


def told(box: Box, name: str, labels: str = "") -> float:
    with box.client() as client:
        answer = client.request(Request("GET", "/metrics/control"))
    assert answer.status == 200, answer.body
    found = re.search(rf"^windlass_scheduler_{name}{re.escape(labels)} (.+)$", answer.body.decode(), re.M)
    return float(found[1]) if found else 0.0


def holder(name: str, go: Path) -> list[dict[str, Any]]:
    """A group of one pod, which runs until ``go`` is there; its owner says that it runs for a minute."""
    card = {"nvidia.com/gpu": "1"}
    command = ["sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done"]
    return [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": name, "annotations": {"windlass.dev/run-estimate": "60s"}},
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


def test_a_box_tells_how_often_estimated_starts_came_true(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with Box("--gpus", "simulated:1") as box:
        assert told(box, "leader") == 1.0
        items = [*holder("first", go), *holder("second", go)]
        box.windlass(
            "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        )

        def started() -> float:
            words = ("within", "early", "late")
            return sum(told(box, "start_estimates_total", f'{{result="{word}"}}') for word in words)

        def estimated() -> bool:
            """Of what comes from simulated courses; at first it is told what the other one's owner says."""
            notes = [group["metadata"].get("annotations", {}) for group in box.items("podgroups")]
            return any("simulated course" in note.get(EXPLANATION, "") for note in notes)

        box.wait_for("the one that waits is told when it will start", estimated)
        go.touch()
        box.wait_for("its start is held against that", started)
        hits = told(box, "start_estimates_total", '{result="within"}')
        assert told(box, "start_estimate_hit_ratio") == hits / started()


Sample = tuple[str, frozenset[tuple[str, str]]]
"""A metric's name and its labels."""
QUEUE = {"cluster_queue": "default"}
GPUS = {"cluster_queue": "default", "cohort": "root", "flavor": "", "resource": "nvidia.com/gpu"}
TWO_RUN = {
    ("kueue_ready_wait_time_seconds_count", frozenset(QUEUE.items())): 2,
    ("kueue_cluster_queue_resource_usage", frozenset(GPUS.items())): 1.5,
    ("yunikorn_scheduler_application_total", frozenset({("state", "running")})): 2,
    ("scheduler_pod_scheduling_sli_duration_seconds_count", frozenset()): 2,
    ("volcano_queue_pod_group_running_count", frozenset({("queue_name", "default")})): 2,
    ("volcano_e2e_job_scheduling_latency_milliseconds_count", frozenset()): 2,
    (
        "kai_queue_allocated_gpus",
        frozenset({("queue_name", "default"), ("queue_metadata_name", "default")}),
    ): 1.5,
    ("yunikorn_scheduler_node", frozenset({("state", "active")})): 1,
}
ONE_WAITS = {
    ("volcano_unschedule_job_count", frozenset()): 1,
    ("kueue_cluster_queue_resource_pending", frozenset(GPUS.items())): 1,
    ("scheduler_pending_pods", frozenset({("queue", "unschedulable")})): 1,
}
GIB = 1 << 30


def samples(box: Box) -> dict[Sample, float]:
    with box.client() as client:
        answer = client.request(Request("GET", "/metrics/control"))
    assert answer.status == 200, answer.body
    text = answer.body.decode()
    types = re.findall(r"^# TYPE (\S+) ", text, re.M)
    assert len(set(types)) == len(types)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def tells(box: Box, wanted: dict[Sample, float]) -> bool:
    """Whether just these figures are told; each is told at a time of its own. Raises with what is told instead."""
    found = samples(box)
    assert {sample: found.get(sample) for sample in wanted} == wanted
    assert found.get(("kueue_admitted_workloads_total", frozenset(QUEUE.items())), 0) >= 2
    parts = [number for (name, _), number in found.items() if name == "GPUDeviceCoreAllocated"]
    assert sorted(parts) == [50, 100]
    memory = [number for (name, _), number in found.items() if name == "hami_gpu_memory_allocated_bytes"]
    assert sorted(memory) == [20 * GIB, 40 * GIB]
    return True


def test_a_box_tells_under_the_names_of_the_field_what_runs_on_it(tmp_path: Path) -> None:
    """A job holds a whole card, another one half of the second; a third waits."""
    never = tmp_path / "never"
    with Box("--gpus", "simulated:2xA100-40GB") as box:

        def apply(*items: object) -> None:
            box.windlass(
                "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
            )

        group, shared = holder("half", never)
        shared["metadata"]["annotations"]["gpu-fraction"] = "0.5"
        shared["spec"]["containers"][0]["resources"] = {}
        apply(*holder("whole", never), group, shared)
        eventually(lambda: tells(box, TWO_RUN))  # else the third may come before one of them
        apply(*holder("late", never))
        eventually(lambda: tells(box, {**TWO_RUN, **ONE_WAITS}))
