"""Model of an AIGCJob: nodes that fetch it ahead, and how workers find it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from windlass.jobs.aigc.model_files import ModelNode, add_model, caches_to_create, model_state, reference_of
from windlass.modelcache.shared import memory_of

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
    assert model_state(given, [{}]) == ""


def test_state_of_a_model_follows_from_the_labels_of_nodes() -> None:
    label = f"model.kurator.dev/{reference_of(spec()).key}"  # type: ignore[union-attr]
    nodes = [{"other": "ready"}, {label: "fetching"}, {label: "ready"}]
    assert [model_state(spec(), nodes[:count]) for count in (1, 2, 3)] == ["Absent", "Fetching", "Ready"]


@pytest.mark.parametrize(
    ("size", "weights"), [(None, (100, 60)), (100, (100, 60)), (0.7, (10, 6)), (0.001, (1, 1))]
)
def test_a_small_model_matters_less_and_a_node_that_fetches_less_than_one_that_has_it(
    size: float | None, weights: tuple[int, int]
) -> None:
    body: dict[str, Any] = {"containers": [{"name": "w"}]}
    add_model(spec() if size is None else spec(sizeGiB=size), body, "/models")
    terms = body["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    values = [term["preference"]["matchExpressions"][0]["values"] for term in terms]
    assert (values, tuple(term["weight"] for term in terms)) == ([["ready"], ["fetching"]], weights)


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
    preferred, _ = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
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
    assert [each["hostPath"]["path"] for each in body["volumes"]] == ["/models", memory_of("/models")]
    assert body["containers"][1] == {"name": "side"}


def test_models_on_volumes_are_mounted_and_fetched_by_no_node() -> None:
    cases = {
        "pvc://models/tiny/v1": (
            {"persistentVolumeClaim": {"claimName": "models", "readOnly": True}},
            "/tiny/v1",
        ),
        "oci://registry/tiny:1": (
            {"image": {"reference": "registry/tiny:1", "pullPolicy": "IfNotPresent"}},
            "/weights",
        ),
    }
    for source, (volume, path) in cases.items():
        given = {"model": {"name": "tiny", "source": source}}
        if source.startswith("oci"):
            given["model"]["preload"] = {"strategy": "Image", "path": "/weights/"}  # type: ignore[assignment]
        body: dict[str, Any] = {"containers": [{"name": "w"}]}
        add_model(given, body, "/models")
        assert body["volumes"] == [{"name": "windlass-model", **volume}]
        (container,) = body["containers"]
        assert container["env"] == [
            {"name": "WINDLASS_MODEL_PATH", "value": f"/var/lib/windlass/model{path}"}
        ]
        assert container["volumeMounts"][0]["readOnly"] is True
        assert (reference_of(given), chosen(given, 1, node("a"))) == (None, [])


def test_a_claim_keeps_what_the_first_worker_fetches() -> None:
    body: dict[str, Any] = {"containers": [{"name": "w"}]}
    given = spec(preload={"strategy": "PVC", "claimName": "cache"})
    add_model(given, body, "/models")
    assert body["volumes"] == [{"name": "windlass-models", "persistentVolumeClaim": {"claimName": "cache"}}]
    environment = {each["name"]: each["value"] for each in body["containers"][0]["env"]}
    assert environment["WINDLASS_MODELS"] == body["containers"][0]["volumeMounts"][0]["mountPath"]
    assert "affinity" not in body
    assert chosen(given, 1, node("a")) == []


def test_workers_with_a_server_find_one_another() -> None:
    body: dict[str, Any] = {"containers": [{"name": "w"}]}
    add_model(
        {"model": {"name": "gpt", "sharing": {"mode": "Server", "command": ["serve"]}}}, body, "/models"
    )
    (volume,), (container,) = body["volumes"], body["containers"]
    memory = memory_of("/models")
    assert volume["hostPath"]["path"] == container["volumeMounts"][0]["mountPath"] == memory
    folder, address = container["env"]
    assert (folder["name"], folder["value"]) == ("WINDLASS_MODEL_SERVERS", memory)
    assert address["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert "affinity" not in body


def test_boxes_on_one_machine_share_no_memory_and_no_servers() -> None:
    places = set()
    for mode in ("SharedMemory", "Server"):
        for folder in ("/home/a/models", "/home/b/models"):
            body: dict[str, Any] = {"containers": [{"name": "w"}]}
            add_model(spec(sharing={"mode": mode, "command": ["serve"]}), body, folder)
            places |= {(mode, one["hostPath"]["path"]) for one in body["volumes"]} - {(mode, folder)}
    assert len(places) == 4


def test_a_model_without_a_source_changes_nothing() -> None:
    body = {"containers": [{"name": "w"}]}
    add_model({"model": {"name": "gpt"}}, body, "/models")
    assert body == {"containers": [{"name": "w"}]}
