"""Answers to open questions about inputs of ``windlass plan``; docs/guides/plan.md states them."""

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


@pytest.fixture
def plan(windlass: Run, tmp_path: Path) -> Any:
    """Return the plan of the objects, and what was written to standard error."""

    def run(*objects: Json) -> tuple[Json, str]:
        (tmp_path / "cluster.yaml").write_text(yaml.safe_dump_all(objects, allow_unicode=True))
        arguments = ("--until-stable", "--now", "2026-01-01T12:00:00Z", "-o", "json")
        done = windlass("plan", "-f", str(tmp_path / "cluster.yaml"), *arguments)
        assert done.code == 0, done.err
        return json.loads(done.out), done.err

    return run


def bound(found: Json) -> set[str]:
    return {bind["pod"] for bind in found["binds"]}


def test_last_of_two_equally_named_objects_counts_with_a_warning(plan: Any) -> None:
    found, told = plan(node("n", cpu="1"), node("n", cpu="16"), pod("p", requests={"cpu": "8"}))
    assert bound(found) == {"p"}
    assert "document 2 (v1/Node) n replaces" in told
    assert "document 1: the last one counts" in told
    found, told = plan(node("n", cpu="16"), node("n", cpu="1"), pod("p", requests={"cpu": "8"}))
    assert not bound(found)


def test_same_object_twice_is_not_told(plan: Any) -> None:
    found, told = plan(node("n"), pod("p"), node("n"), pod("p"), pod("p", namespace="other"))
    assert len(found["binds"]) == 2
    assert told == ""


def test_pod_that_occurs_twice_counts_once_in_a_quota(plan: Any) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"}}
    quota["spec"] = {"hard": {"requests.cpu": "3"}}
    runs = pod("r", node="n", phase="Running", requests={"cpu": "2"})
    found, _ = plan(node("n"), quota, quota, runs, runs, pod("p", requests={"cpu": "1"}))
    assert bound(found) == {"p"}


def test_queues_in_a_ring_run_with_a_warning_in_both_apis(plan: Any) -> None:
    volcano = (queue("a", parent="b"), queue("b", parent="a"), queue("self", parent="self"))
    kai = (kai_queue("x", parent="y"), kai_queue("y", parent="z"), kai_queue("z", parent="x"))
    gang = (group("g", 1, queue="a"), pod("g-0", group="g"), kai_pod("k", queue="x"))
    found, told = plan(node("n"), *volcano, *kai, *gang)
    assert bound(found) == {"g-0", "k"}
    assert "the parents of Queue b form a ring (b → a → b)" in told
    assert "Queue self is its own parent" in told
    assert "the parents of Queue z form a ring (z → x → y → z)" in told
    _, told = plan(node("n"), queue("a", parent="b"), queue("b"), *gang[:2])
    assert told == ""


@pytest.mark.parametrize("status", [{}, {"allocatable": {}}, {"conditions": []}])
def test_node_without_amounts_holds_no_pod(plan: Any, status: Json) -> None:
    found, _ = plan({**node("bare"), "status": status}, pod("p", requests={}))
    assert not bound(found)
    (entry,) = found["pending"]
    assert entry["waitingHelps"] == "no"
    assert entry["remedies"] == ["Set status.allocatable.pods: no node reports how many pods it may hold."]
    found, _ = plan({**node("paper"), "status": {"allocatable": {"cpu": "1"}}}, pod("p", requests={}))
    assert bound(found) == {"p"}


def test_direction_and_control_characters_are_shown_as_escapes(windlass: Run, tmp_path: Path) -> None:
    """In tables, remedies, warnings and errors. JSON holds the text as it is."""
    turned = "v\u202egpj\x9b"
    selecting = pod("p", requests={}, nodeSelector={"k": turned})
    strange = {"apiVersion": "example.com/v1", "kind": f"X{turned}", "metadata": {"name": "x"}}
    file = tmp_path / "cluster.yaml"
    file.write_text(json.dumps([node("n"), selecting, strange]))
    done = windlass("plan", "-f", str(file))
    assert done.code == 0
    assert r"(k=v\u202egpj\x9b)" in done.out
    assert r"Xv\u202egpj\x9b" in done.err
    assert (done.out + done.err).replace("\n", "").isprintable()
    found = json.loads(windlass("plan", "-f", str(file), "-o", "json").out)
    assert turned in found["pending"][0]["message"]
    file.write_text(json.dumps([{**node(turned), "spec": {"unschedulable": "maybe"}}]))
    done = windlass("plan", "-f", str(file))
    assert done.code == 65
    assert done.err.replace("\n", "").isprintable()


def test_container_with_a_claim_that_its_pod_lacks_is_misconfigured(plan: Any) -> None:
    bad = pod("bad", requests={})
    bad["spec"]["containers"][0]["resources"] = {"claims": [{"name": "zz"}]}
    other = pod("init", requests={}, resourceClaims=[{"name": "a", "resourceClaimName": "a"}])
    init = {"name": "i", "image": "x", "resources": {"claims": [{"name": "a"}, {"name": "b"}]}}
    other["spec"]["initContainers"] = [init]
    found, _ = plan(node("n"), bad, other, pod("good", requests={}))
    assert bound(found) == {"good"}
    told = {entry["podGroup"]: (entry["code"], entry["message"]) for entry in found["pending"]}
    assert {code for code, _ in told.values()} == {"Misconfigured"}
    assert 'spec.containers[0].resources.claims[0].name: Not found: "zz"' in told["bad"][1]
    assert 'spec.initContainers[0].resources.claims[1].name: Not found: "b"' in told["init"][1]


def test_quota_of_limits_of_device_memory_is_told_to_have_no_effect(plan: Any) -> None:
    """A quota of requests counts in its stead."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "default"}}
    quota["spec"] = {"hard": {"limits.nvidia.com/gpumem": "24000"}}
    asks = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "16000"}
    gpu = {**node("n", gpus=2), "metadata": {"name": "n", "labels": {"nvidia.com/gpu.memory": "40000"}}}
    pods = (pod("a", requests=asks), pod("b", requests=asks))
    found, told = plan(gpu, quota, *pods)
    assert bound(found) == {"a", "b"}
    assert "ResourceQuota default/q: spec.hard[limits.nvidia.com/gpumem] limits nothing" in told
    quota["spec"] = {"hard": {"requests.nvidia.com/gpumem": "24000"}}
    found, told = plan(gpu, quota, *pods)
    assert bound(found) == {"a"}
    assert (found["pending"][0]["code"], told) == ("NamespaceQuota", "")
