"""Gangs of the coscheduling plug-in on the command line: one job each in ``ps``, told and planned by their name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from coschedulingobjects import coscheduling_group, member
from fakecluster import FakeCluster
from kubeobjects import node, pod

from windlass.api.reasons import Explanation, Reason
from windlass.api.resources import COSCHEDULING_POD_GROUPS, NODES, PODS, QUEUES, Resource

Run: TypeAlias = Any
"""Of the fixture ``windlass``."""
TEAM = {"scheduling.volcano.sh/queue-name": "team"}
KINDS: dict[str, Resource] = {"PodGroup": COSCHEDULING_POD_GROUPS, "Pod": PODS, "Node": NODES}


def add(cluster: FakeCluster, *objects: dict[str, Any]) -> None:
    for obj in objects:
        cluster.add(KINDS[obj["kind"]], obj)


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster()
    for name in ("default", "team"):
        made.add(QUEUES, {"metadata": {"name": name}, "spec": {}, "status": {"state": "Open"}})
    told = Explanation(Reason.INSUFFICIENT_RESOURCES, "2 pods need 8 GPUs each; 0 nodes have them")
    notes = {"windlass.dev/explanation": json.dumps(told.as_dict())}
    add(
        made,
        node("n1", gpus=8),
        coscheduling_group("train", 2),
        *[member(f"train-{i}", "train", annotations=TEAM, node="n1") for i in range(2)],
        coscheduling_group("waits", 2, annotations=notes),
        *[member(f"waits-{i}", "waits", annotations=TEAM) for i in range(2)],
        pod("alone"),
    )
    return made


def test_a_gang_is_one_line_in_the_queue_of_its_pods(windlass: Run) -> None:
    items = {item["name"]: item for item in json.loads(windlass("ps", "-o", "json").out)["items"]}
    assert sorted(items) == ["alone", "train", "waits"]
    train, waits = items["train"], items["waits"]
    assert (train["state"], train["queue"], train["gpus"], train["nodes"]) == (
        "Running",
        "team",
        2,
        {"n1": 2},
    )
    assert (waits["state"], waits["queue"], waits["gpus"]) == ("Pending", "team", 2)
    assert waits["explanation"]["code"] == "InsufficientResources"


def test_explain_says_why_it_waits(windlass: Run) -> None:
    done = windlass("explain", "waits")
    assert done.code == 0, done.err
    assert "2 pods need 8 GPUs each" in done.out


def test_its_own_word_for_the_queue_goes_first(windlass: Run, cluster: FakeCluster) -> None:
    add(cluster, coscheduling_group("own", 1, annotations={"scheduling.volcano.sh/queue-name": "default"}))
    add(cluster, member("own-0", "own", annotations=TEAM))
    items = {item["name"]: item for item in json.loads(windlass("ps", "-o", "json").out)["items"]}
    assert items["own"]["queue"] == "default"


def test_one_whose_pods_are_gone_is_what_its_status_says(windlass: Run, cluster: FakeCluster) -> None:
    for phase in ("Finished", "Failed", "Running"):
        add(cluster, {**coscheduling_group(f"was-{phase.lower()}", 1), "status": {"phase": phase}})
    items = {item["name"]: item for item in json.loads(windlass("ps", "-a", "-o", "json").out)["items"]}
    states = {name: items[f"was-{name}"]["state"] for name in ("finished", "failed", "running")}
    assert states == {"finished": "Completed", "failed": "Failed", "running": "Pending"}


def test_a_gang_whose_object_a_user_may_not_see_is_told_by_its_pods(
    windlass: Run, cluster: FakeCluster
) -> None:
    cluster.hidden.add(COSCHEDULING_POD_GROUPS)
    items = json.loads(windlass("ps", "-o", "json").out)["items"]
    kinds = {item["name"]: item["kind"] for item in items}
    assert kinds == {"train": "Gang", "waits": "Gang", "alone": "Pod"}


def test_a_plan_places_it_whole_or_not_at_all(windlass: Run, tmp_path: Path) -> None:
    objects = [
        node("n1", gpus=3),
        coscheduling_group("fits", 2, needs={"nvidia.com/gpu": 2}),
        *[member(f"fits-{i}", "fits") for i in range(2)],
        coscheduling_group("large", 2),
        *[member(f"large-{i}", "large") for i in range(2)],
        member("lost-0", "lost"),
    ]
    dump = tmp_path / "c.yaml"
    dump.write_text(yaml.safe_dump_all(objects))
    plan = json.loads(windlass("plan", "--now", "2026-01-01T12:00:00Z", "-o", "json", "-f", str(dump)).out)
    assert [bind["pod"] for bind in plan["binds"]] == ["fits-0", "fits-1"]
    pending = {one["podGroup"]: one["code"] for one in plan["pending"]}
    assert pending == {"large": "InsufficientResources", "lost": "WaitingForMembers"}


def test_a_plan_of_a_cluster_reads_them_there(windlass: Run, cluster: FakeCluster) -> None:
    plan = json.loads(windlass("plan", "-o", "json").out)
    assert [bind["pod"] for bind in plan["binds"]] == ["alone", "waits-0", "waits-1"]
