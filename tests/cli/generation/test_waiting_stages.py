"""Stages that wait in ``windlass explain``, and their GPUs in ``windlass ps``."""

from __future__ import annotations

import json
from typing import Any

from windlass.api import annotations as names
from windlass.api.resources import AIGC_JOBS, POD_GROUPS, PODS


def add_job(cluster: Any, bind: str, **describe: Any) -> None:
    """Add a job with the stages prepare (CPU, runs) and describe (one GPU, two workers)."""
    stages = [
        {"name": "prepare", "kind": "cpu", "command": ["true"]},
        {"name": "describe", "kind": "gpu", "command": ["true"], "parallelism": 2},
    ]
    status = {
        "phase": "Preprocessing",
        "items": {"total": 200, "done": 0},
        "stages": [
            {"name": "prepare", "kind": "cpu", "phase": "Running", "desired": 1},
            {"name": "describe", "kind": "gpu", **describe},
        ],
    }
    cluster.add(
        AIGC_JOBS,
        {
            "apiVersion": "kurator.dev/v1alpha1",
            "kind": "AIGCJob",
            "metadata": {"name": "films", "namespace": "default", "uid": "u-films"},
            "spec": {"progressive": {"gpuBind": bind}, "stages": stages},
            "status": status,
        },
    )
    add_pod(cluster, "prepare", node="gpu1")


def add_pod(cluster: Any, stage: str, node: str = "") -> None:
    labels = {"aigc.kurator.dev/job-name": "films", "aigc.kurator.dev/stage": stage}
    metadata = {"name": f"films-{stage}-0", "namespace": "default", "uid": f"u-{stage}", "labels": labels}
    gated = {"type": "PodScheduled", "status": "False", "message": "non-empty scheduling gates"}
    limits = {"nvidia.com/gpu": "1"} if not node else {}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]} | (
        {"nodeName": node} if node else {"schedulingGates": [{"name": "aigc.kurator.dev/gpu-bind"}]}
    )
    status = {"phase": "Running"} if node else {"phase": "Pending", "conditions": [gated]}
    cluster.add(PODS, {"metadata": metadata, "spec": spec, "status": status})


def gpus(windlass: Any) -> str:
    return json.loads(windlass("ps", "-o", "json").out)["items"][0]["gpusAsked"]


def test_reserved_stage_is_explained_by_its_reservation(cluster, windlass):
    add_job(cluster, "Reserve", phase="Reserved", desired=2, expectedAt="2026-01-01T00:05:00Z")
    add_pod(cluster, "describe")
    message = "Its capacity is reserved from 00:05:00 UTC on gpu1, lent to default/short until then."
    said = {"code": "EarliestStart", "message": message}
    group = {"name": "films-describe", "namespace": "default", "uid": "u-group"}
    group["annotations"] = {names.EXPLANATION: json.dumps(said)}
    cluster.add(POD_GROUPS, {"metadata": group, "spec": {"minMember": 2}, "status": {"phase": "Inqueue"}})
    explained = windlass("explain", "films").out
    told = " ".join(explained.split())
    assert "describe is Reserved. It holds no GPU. 2 GPUs are expected to be needed at 2026" in told
    assert "reserved from 00:05:00 UTC on gpu1, lent to short until then." in told, told
    assert "more: windlass explain films-describe" in told
    assert "non-empty scheduling gates" not in told
    record = json.loads(windlass("explain", "films", "-o", "json").out)
    assert record["waitingStages"][0]["podGroup"] == "films-describe"
    assert gpus(windlass) == "-"  # nothing is bound
    assert "Reserve" in windlass("explain", "films-describe").out.title()


def test_stage_that_binds_late_says_what_it_waits_for(cluster, windlass):
    add_job(cluster, "Late", phase="Waiting", desired=0, waiting=12)
    told = " ".join(windlass("explain", "films").out.split())
    reason = (
        "It asks for no GPU now. It asks for 2 GPUs once 64 rows wait for it (spec.progressive.startWhen), "
        "or once stage prepare has ended. Now 12 wait."
    )
    assert f"describe is Waiting. {reason}" in told
    alone = windlass("explain", "films-describe")
    assert (alone.code, reason in " ".join(alone.out.split())) == (0, True), alone.out
    assert "films-describe (stage describe of AIGCJob films): Waiting" in alone.out
    assert json.loads(windlass("explain", "films-describe", "-o", "json").out)["phase"] == "Waiting"
    assert windlass("explain", "films-other").code != 0
    assert gpus(windlass) == "-"


def test_stage_that_asks_for_gpus_and_stage_without_reservation(cluster, windlass):
    add_job(cluster, "Late", phase="WaitingForGPU", desired=2)
    assert "describe is WaitingForGPU. It asks for 2 GPUs." in " ".join(
        windlass("explain", "films").out.split()
    )
    assert gpus(windlass) == "2"
