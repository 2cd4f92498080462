"""``minResources`` of PodGroups under Volcano's action ``enqueue``, as ``windlass plan`` decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from coschedulingobjects import coscheduling_group
from kubeobjects import group, node, pod, queue

Run: TypeAlias = Any
Json: TypeAlias = dict[str, Any]
OVERCOMMIT = "[{name: overcommit}, {name: predicates}, {name: proportion}]"
CAPACITY = "[{name: capacity}, {name: predicates}]"
QUOTA_WORDS = {
    "count/pods": "2",
    "pods": "2",
    "requests.cpu": "2",
    "limits.cpu": "2",
    "requests.nvidia.com/gpu": "2",
    "limits.memory": "1Gi",
    "requests.ephemeral-storage": "1Gi",
    "persistentvolumeclaims": "1",
}


@pytest.fixture
def plan(windlass: Run, tmp_path: Path) -> Any:
    """Return the plan of the objects, with ``plugins`` in the second tier."""

    def run(*objects: Json, plugins: str = OVERCOMMIT) -> Json:
        (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(objects))
        first = "[{name: priority}, {name: gang}]"
        tiers = f"actions: enqueue, allocate, backfill\ntiers:\n- plugins: {first}\n- plugins: {plugins}\n"
        (tmp_path / "scheduler.conf").write_text(tiers)
        files = ("-f", str(tmp_path / "cluster.yaml"), "--config", str(tmp_path / "scheduler.conf"))
        done = windlass("plan", *files, "--until-stable", "--now", "2026-01-01T12:00:00Z", "-o", "json")
        assert done.code == 0, done.err
        return json.loads(done.out)

    return run


def member(name: str, of: str, cpu: str = "1", **more: Any) -> Json:
    return pod(name, scheduler="volcano", group=of, requests={"cpu": cpu}, **more)


def pair(of: str, cpu: str = "1") -> list[Json]:
    return [member(f"{of}-{at}", of, cpu) for at in range(2)]


def bound(found: Json) -> set[str]:
    return {bind["pod"] for bind in found["binds"]}


def waiting(found: Json, name: str) -> Json:
    (entry,) = [entry for entry in found["pending"] if entry["podGroup"] == name]
    return entry


CLUSTER = (node("n", gpus=4, cpu="8"), queue("q", capability={"cpu": "8"}))


@pytest.mark.parametrize("plugins", [OVERCOMMIT, CAPACITY, OVERCOMMIT.replace("w}", "w, factor: 1}")])
def test_quota_words_do_not_keep_a_group_out(plan: Any, plugins: str) -> None:
    asks = {"cpu": "2", "nvidia.com/gpu": "2", **QUOTA_WORDS}
    found = plan(*CLUSTER, group("g", 2, queue="q", minResources=asks), *pair("g"), plugins=plugins)
    assert bound(found) == {"g-0", "g-1"}


def test_the_missing_resource_is_named_not_the_quota_word(plan: Any) -> None:
    asks = {"count/pods": "2", "nvidia.com/gpu": "9", "requests.nvidia.com/gpu": "9"}
    found = plan(*CLUSTER, group("g", 2, queue="q", minResources=asks), *pair("g"))
    assert waiting(found, "g")["blockers"][0]["resource"] == "nvidia.com/gpu"
    assert "requests." not in waiting(found, "g")["message"]


@pytest.mark.parametrize("plugins", [OVERCOMMIT, CAPACITY])
@pytest.mark.parametrize("phase", ["Completed", "Running", "Unknown"])
def test_group_without_pods_that_has_run_reserves_nothing(plan: Any, plugins: str, phase: str) -> None:
    old = group("old", 1, queue="q", phase=phase, minResources={"cpu": "8"})
    ended = member("old-0", "old", "8", node="n", phase="Failed")
    new = (group("new", 2, queue="q", minResources={"cpu": "4"}), *pair("new", "2"))
    assert bound(plan(*CLUSTER, old, *new, plugins=plugins)) == {"new-0", "new-1"}
    assert bound(plan(*CLUSTER, old, ended, *new, plugins=plugins)) == {"new-0", "new-1"}


def test_finished_group_of_the_coscheduling_plugin_reserves_nothing(plan: Any) -> None:
    old = coscheduling_group("old", 1, phase="Finished", minResources={"cpu": "8"})
    new = (group("new", 2, queue="q", minResources={"cpu": "4"}), *pair("new", "2"))
    assert bound(plan(*CLUSTER, old, *new)) == {"new-0", "new-1"}


@pytest.mark.parametrize("phase", ["Inqueue", "Running"])
def test_group_with_pods_to_come_goes_on_reserving(plan: Any, phase: str) -> None:
    old = group("old", 2, queue="q", phase=phase, minResources={"cpu": "8"})
    gated = member("old-0", "old", "4", schedulingGates=[{"name": "later"}])
    new = (group("new", 2, queue="q", minResources={"cpu": "4"}), *pair("new", "2"))
    found = plan(*CLUSTER, old, gated, *new)
    assert not bound(found)
    assert (waiting(found, "new")["code"], waiting(found, "new")["waitingHelps"]) == (
        "WaitingForShare",
        "yes",
    )


@pytest.mark.parametrize(
    ("asks", "plugins", "code"),
    [
        ({"cpu": "100"}, OVERCOMMIT, "ExceedsCluster"),
        ({"example.com/fpga": "1"}, OVERCOMMIT, "ExceedsCluster"),
        ({"cpu": "1", "memory": "9000Gi", "nvidia.com/gpu": "5"}, OVERCOMMIT, "ExceedsCluster"),
        (
            {"nvidia.com/gpu": "9"},
            "[{name: overcommit, arguments: {overcommit-factor: 2.0}}]",
            "ExceedsCluster",
        ),
        ({"cpu": "9"}, CAPACITY, "ExceedsQueueLimit"),
        ({"nvidia.com/gpu": "5"}, CAPACITY, "ExceedsCluster"),
    ],
)
def test_min_resources_that_are_never_admitted_are_named_with_a_remedy(
    plan: Any, asks: Json, plugins: str, code: str
) -> None:
    """The remedy is followed: the group starts at once, next to another one."""
    gang = group("g", 2, queue="q", minResources=asks)
    others = (group("other", 2, queue="q"), *pair("other"))
    found = plan(*CLUSTER, gang, *pair("g"), *others, plugins=plugins)
    assert bound(found) == {"other-0", "other-1"}
    entry = waiting(found, "g")
    assert (entry["code"], entry["waitingHelps"]) == (code, "no")
    assert "spec.minResources" in entry["message"]
    (remedy,) = entry["remedies"]
    assert "kubectl patch podgroups.scheduling.volcano.sh g -n default --type merge" in remedy
    lower = json.loads(remedy.partition(" -p '")[2].removesuffix("'."))["spec"]["minResources"]
    left = {name: text for name, text in {**asks, **lower}.items() if text is not None}
    gang["spec"]["minResources"] = left
    assert bound(plan(*CLUSTER, gang, *pair("g"), *others, plugins=plugins)) >= {"g-0", "g-1"}


def test_min_resources_beyond_what_is_left_wait(plan: Any) -> None:
    old = group("old", 1, queue="q", phase="Running", minResources={"cpu": "6"})
    runs = member("old-0", "old", "6", node="n", phase="Running")
    found = plan(*CLUSTER, old, runs, group("g", 2, queue="q", minResources={"cpu": "8"}), *pair("g", "4"))
    assert waiting(found, "g")["waitingHelps"] == "yes"


def test_pods_that_exceed_the_cluster_themselves_get_no_advice_on_min_resources(plan: Any) -> None:
    found = plan(*CLUSTER, group("g", 2, queue="q", minResources={"cpu": "100"}), *pair("g", "50"))
    assert waiting(found, "g")["waitingHelps"] == "no"
    assert not any("minResources" in remedy for remedy in waiting(found, "g")["remedies"])
