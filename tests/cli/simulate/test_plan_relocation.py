"""``windlass plan``: which pods are relocated for pending work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import node

GPU = "nvidia.com/gpu"
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "job", "controller": True}
CONTROLLED = {"ownerReferences": [JOB]}
HELPER = {"ownerReferences": [{**JOB, "controller": False}]}
PINNED = {**CONTROLLED, "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}


def evicted(windlass: Any, path: Path, *pods: dict[str, Any], actions: str = "") -> list[str]:
    """Return the evicted pods of a plan: a pod needs two GPUs of one node, and each has one."""
    queues = [kai_queue("top"), kai_queue("team", "top", gpus=2), kai_queue("ours", "top", gpus=2)]
    claimer = kai_pod("claimer", queue="ours", requests={GPU: 2})
    dump = path / "cluster.yaml"
    dump.write_text(yaml.safe_dump_all([node("n1", gpus=2), node("n2", gpus=2), *queues, *pods, claimer]))
    config = path / "scheduler.conf"
    config.write_text(yaml.safe_dump({"actions": actions or "allocate, consolidation, reclaim, preempt"}))
    done = windlass("plan", "-f", str(dump), "--config", str(config), "--until-stable", "-o", "json")
    assert done.code == 0, done.err
    return [eviction["pod"] for eviction in json.loads(done.out)["evictions"]]


def held(name: str, on: str, metadata: dict[str, Any] | None = None, group: str = "") -> dict[str, Any]:
    pod = kai_pod(name, group, "team", node=on, phase="Running", requests={GPU: 1})
    notes = {**pod["metadata"].get("annotations", {}), **(metadata or {}).get("annotations", {})}
    return {**pod, "metadata": {**pod["metadata"], **(metadata or {}), "annotations": notes}}


@pytest.mark.parametrize("actions", ["", "allocate, reclaim", "allocate, preempt, reclaim"])
@pytest.mark.parametrize("staying", [None, HELPER, PINNED])
def test_pods_that_would_not_come_back_or_are_marked_stay(
    windlass: Any, tmp_path: Path, staying: dict[str, Any] | None, actions: str
) -> None:
    one, other = held("one", "n1", staying), held("other", "n2", staying)
    assert evicted(windlass, tmp_path, one, other, actions=actions) == []
    assert evicted(windlass, tmp_path, held("one", "n1", CONTROLLED), other, actions=actions) == ["one"]
    assert evicted(windlass, tmp_path, one, held("other", "n2", CONTROLLED), actions=actions) == ["other"]


def test_pods_of_a_hand_written_kai_group_count_as_controlled(windlass: Any, tmp_path: Path) -> None:
    gang = kai_group("gang", 2, "team")
    pods = [held("one", "n1", group="gang"), held("other", "n2", group="gang")]
    assert evicted(windlass, tmp_path, gang, *pods) == []  # as an API server returned them
    for pod in pods:
        del pod["metadata"]["resourceVersion"]
    assert len(evicted(windlass, tmp_path, gang, *pods)) == 1
    pods[0]["metadata"].update(CONTROLLED)  # the file states owners
    assert evicted(windlass, tmp_path, gang, *pods) == []
    pods[1]["metadata"].update(CONTROLLED)
    assert len(evicted(windlass, tmp_path, gang, *pods)) == 1
