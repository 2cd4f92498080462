"""Amounts that mean "no limit", fractions of devices and digits of other scripts, as ``windlass plan`` reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from kaiobjects import kai_pod, kai_queue
from kubeobjects import group, node, pod, queue

Run: TypeAlias = Any
Json: TypeAlias = dict[str, Any]
MOST = "9223372036854775807"


@pytest.fixture
def plan(windlass: Run, tmp_path: Path) -> Any:
    """Run the command on the objects, without a configuration."""

    def run(*objects: Json) -> Any:
        (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(objects, allow_unicode=True))
        arguments = ("--until-stable", "--now", "2026-01-01T12:00:00Z", "-o", "json")
        return windlass("plan", "-f", str(tmp_path / "cluster.yaml"), *arguments)

    return run


def document(done: Any) -> Json:
    assert done.code == 0, done.err
    return json.loads(done.out)


def bound(done: Any) -> list[str]:
    return [bind["pod"] for bind in document(done)["binds"]]


@pytest.mark.parametrize("amount", ["8E", MOST, f"{MOST}0m", "1e30"])
def test_limits_that_mean_none_do_not_stop_the_plan(plan: Any, amount: str) -> None:
    amounts = {"cpu": amount, "memory": amount, "nvidia.com/gpu": amount, "pods": amount}
    huge = queue("huge", weight=1, capability=amounts, deserved=amounts)
    other = queue("other", weight=1, capability=amounts, deserved=amounts)
    gang = group("a", 1, queue="huge")
    assert bound(plan(node("n"), huge, other, gang, pod("a-0", group="a", requests={"cpu": "1"}))) == ["a-0"]


def test_limits_of_kai_queues_that_mean_none(plan: Any) -> None:
    most = {"quota": int(MOST), "limit": int(MOST), "overQuotaWeight": 1}
    resources = {"cpu": most, "gpu": most, "memory": most}
    queues = (kai_queue("top", resources=resources), kai_queue("deep", parent="top", resources=resources))
    assert bound(plan(node("n"), *queues, kai_pod("p", queue="deep", requests={"cpu": "1"}))) == ["p"]


def test_resource_quota_that_means_no_limit(plan: Any) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"}}
    quota["spec"] = {"hard": {"requests.cpu": "8E", "requests.memory": MOST, "pods": "1e30"}}
    assert bound(plan(node("n"), quota, pod("p", requests={"cpu": "1"}))) == ["p"]
    quota["spec"] = {"hard": {"requests.cpu": "plenty"}}
    done = plan(node("n"), quota, pod("p", requests={"cpu": "1"}))
    assert done.code == 65
    assert "ResourceQuota) default/q: spec.hard[requests.cpu]: 'plenty' is not a quantity" in done.err


@pytest.mark.parametrize(
    "resource", ["cpu", "memory", "ephemeral-storage", "nvidia.com/gpu", "example.com/x"]
)
def test_requests_without_measure_exceed_every_node(plan: Any, resource: str) -> None:
    amounts = {"allocatable": {"cpu": "64", "memory": "512Gi", "ephemeral-storage": "1Ti", "pods": "110"}}
    amounts["allocatable"] |= {"nvidia.com/gpu": "8", "example.com/x": "8"}
    mad = pod("mad", requests={resource: "8E"})
    mad["spec"]["containers"] *= 3
    found = document(plan({**node("n"), "status": amounts}, mad, pod("sane", requests={"cpu": "1"})))
    assert [bind["pod"] for bind in found["binds"]] == ["sane"]
    (entry,) = found["pending"]
    assert (entry["code"], entry["waitingHelps"]) == ("ExceedsEveryNode", "no")
    assert "needs more than 10000" in entry["message"]


def test_sums_of_requests_without_measure_do_not_overflow(plan: Any) -> None:
    running = [pod(f"r{at}", node="n", phase="Running", requests={"memory": "8E"}) for at in range(4)]
    waiting = [pod("small", requests={"memory": "1Gi"}), pod("other", requests={"cpu": "1"})]
    assert bound(plan(node("n"), *running, *waiting)) == ["other"]
    endless = [node(f"n{at}", memory="8E", cpu=MOST) for at in range(40)]
    assert bound(plan(*endless, *waiting, pod("mad", requests={"memory": "8E"}))) == ["other", "small"]


@pytest.mark.parametrize("amount", ["0.5", "500m", "15e-1"])
@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "example.com/fpga"])
@pytest.mark.parametrize("which", ["limits", "requests"])
def test_fractions_of_extended_resources_are_refused(
    plan: Any, amount: str, resource: str, which: str
) -> None:
    bad = pod("x")
    bad["spec"]["containers"][0]["resources"] = {"limits": {resource: "1"}, which: {resource: amount}}
    done = plan(node("n"), bad)
    assert done.code == 65
    assert f"(v1/Pod) default/x: spec.containers[0].resources.{which}[{resource}]" in done.err
    assert "must be an integer" in done.err


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (pod("x", requests={"nvidia.com/gpu": "٢"}), "default/x: spec.containers[0].resources.requests"),
        (pod("x", requests={"memory": "１Gi"}), "default/x: spec.containers[0].resources.requests[memory]"),
        (node("x", cpu="٤"), "x: status.allocatable[cpu]"),
        (queue("x", capability={"cpu": "٤"}), "x: spec.capability[cpu]"),
        (group("x", 1, minResources={"cpu": "٤"}), "default/x: spec.minResources[cpu]"),
    ],
)
def test_digits_of_other_scripts_are_refused(plan: Any, bad: Json, field: str) -> None:
    done = plan(node("n"), bad)
    assert done.code == 65
    assert field in done.err
    assert "is not a quantity" in done.err
