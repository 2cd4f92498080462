"""Model of an AIGCJob: nodes that fetch it ahead, and how workers find it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windlass.jobs.aigc.model_files import ModelNode, add_model, caches_to_create, is_ready, reference_of

SOURCE = "https://models.example/tiny.gguf"


def spec(**model: Any) -> dict[str, Any]:
    return {"model": {"name": "tiny", "source": SOURCE, **model}}


def node(name: str, gpus: int = 4, *, ready: bool = True, **labels: str) -> ModelNode:
    return ModelNode(name, labels, gpus, ready)


def chosen(
    given: dict[str, Any], workers: int, *nodes: ModelNode, gpus: int = 1, having: Any = ()
) -> list[str]:
    caches = [{"metadata": {"name": name}} for name in having]
    return [each["spec"]["nodeName"] for each in caches_to_create(given, workers, gpus, nodes, caches)]


def test_as_many_nodes_as_workers_fetch_the_model_those_with_most_gpus_first() -> None:
    nodes = [node("a", 1), node("b", 8), node("c", 4), node("closed", 8, ready=False), node("cpu", 0)]
    assert chosen(spec(), 2, *nodes) == ["b", "c"]
    assert chosen(spec(preload={"nodes": {"min": 3}}), 1, *nodes) == ["b", "c", "a"]
    assert chosen(spec(), 9, *nodes, gpus=4) == ["b", "c"]


def test_a_node_that_has_the_model_counts_and_is_not_asked_again() -> None:
    key = reference_of(spec()).key  # type: ignore[union-attr]
    assert chosen(spec(), 1, node("a"), node("b", 8), having=[f"a.{key}"]) == []
    assert chosen(spec(), 2, node("a"), node("b", 8), having=[f"a.{key}"]) == ["b"]


@pytest.mark.parametrize("selector", [{"zone": "x"}, {"matchLabels": {"zone": "x"}}])
def test_a_selector_chooses_nodes(selector: dict[str, Any]) -> None:
    given = spec(preload={"nodes": {"selector": selector}})
    assert chosen(given, 5, node("a", zone="x"), node("b", zone="y")) == ["a"]


@pytest.mark.parametrize(
    "given",
    [
        {"model": {"name": "only-a-name"}},
        spec(preload={"strategy": "None"}),
        spec(preload={"strategy": "PVC"}),
        spec(preload={"when": "OnFirstUse"}),
    ],
)
def test_nothing_is_fetched_ahead(given: dict[str, Any]) -> None:
    assert chosen(given, 5, node("a")) == []
    assert is_ready(given, []) is None


def test_a_short_source_names_the_hub() -> None:
    found = reference_of({"model": {"name": "org/tiny", "source": "hf", "revision": "v1"}})
    assert found is not None
    assert (found.source, found.revision) == ("hf://org/tiny", "v1")


def test_a_worker_prefers_nodes_with_the_model_and_keeps_its_own_wishes() -> None:
    mine = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    body: dict[str, Any] = {
        "containers": [{"name": "w", "env": [{"name": "A", "value": "1"}]}, {"name": "side"}],
        "affinity": mine,
    }
    add_model(
        spec(sharing={"mode": "SharedMemory", "sizeLimit": "1Gi"}, preload={"pin": True}), body, "/models"
    )
    affinity = body["affinity"]["nodeAffinity"]
    assert affinity["requiredDuringSchedulingIgnoredDuringExecution"] == {"nodeSelectorTerms": []}
    (preferred,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    (wanted,) = preferred["preference"]["matchExpressions"]
    key = reference_of(spec()).key  # type: ignore[union-attr]
    assert (wanted["key"], wanted["values"]) == (f"model.kurator.dev/{key}", ["ready"])
    environment = {each["name"]: each["value"] for each in body["containers"][0]["env"]}
    assert json.loads(environment["WINDLASS_MODEL"]) == {
        "name": "tiny",
        "source": SOURCE,
        "revision": "",
        "sha256": "",
        "pin": True,
        "memory": 1 << 30,
    }
    assert [each["hostPath"]["path"] for each in body["volumes"]] == ["/models", "/dev/shm/windlass-models"]
    assert body["containers"][1] == {"name": "side"}


def test_a_model_without_a_source_changes_nothing() -> None:
    body = {"containers": [{"name": "w"}]}
    add_model({"model": {"name": "gpt"}}, body, "/models")
    assert body == {"containers": [{"name": "w"}]}
