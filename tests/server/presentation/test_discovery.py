"""Discovery in both forms, by the exact rules of content negotiation."""

from __future__ import annotations

import json
from typing import Any

import pytest

import windlass.server.apiserver  # noqa: F401  registers the kinds that are never stored
from windlass.api import resources
from windlass.api.errors import StatusError
from windlass.client.transport import Request, Response
from windlass.server.presentation import discovery

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"


def get(path: str, accept: str = "", **headers: str) -> Response:
    response = discovery.answer(Request("GET", path, headers={"accept": accept, **headers}))
    assert response is not None
    return response


def document(path: str, accept: str = "") -> Any:
    return json.loads(get(path, accept).body)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (f"{V2},{V2BETA1},application/json", V2),
        (f"{V2BETA1},application/json", V2BETA1),
        (f"application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList,{V2}", V2),
        ("application/json", "application/json"),
        ("*/*", "application/json"),
        ("", "application/json"),
        (f"application/json,{V2}", "application/json"),
    ],
)
@pytest.mark.parametrize("path", ["/api", "/apis"])
def test_first_supported_form_is_chosen(path: str, accept: str, content_type: str) -> None:
    response = get(path, accept)
    assert response.headers["content-type"] == content_type
    assert response.headers["vary"] == "Accept"


def test_unsupported_form_gets_406() -> None:
    for accept in ("text/html", "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList"):
        with pytest.raises(StatusError) as caught:
            get("/apis", accept)
        assert caught.value.code == 406


def test_aggregated_entries() -> None:
    items = document("/api", V2)["items"]
    assert [item["metadata"] for item in items] == [{}]
    (version,) = items[0]["versions"]
    assert (version["version"], version["freshness"]) == ("v1", "Current")
    found = {entry["resource"]: entry for entry in version["resources"]}
    pods = found["pods"]
    assert pods["responseKind"] == {"group": "", "version": "", "kind": "Pod"}
    assert (pods["scope"], pods["singularResource"]) == ("Namespaced", "pod")
    assert (pods["shortNames"], pods["categories"]) == (["po"], ["all"])
    below = {entry["subresource"]: entry for entry in pods["subresources"]}
    assert below["eviction"]["responseKind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    assert below["log"]["verbs"] == ["get"]
    assert found["nodes"]["scope"] == "Cluster"
    assert "deletecollection" not in found["namespaces"]["verbs"]


def test_custom_kinds_state_their_group() -> None:
    items = {item["metadata"]["name"]: item for item in document("/apis", V2)["items"]}
    (job,) = [r for r in items["batch.volcano.sh"]["versions"][0]["resources"] if r["resource"] == "jobs"]
    assert job["responseKind"] == {"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"}
    assert job["shortNames"] == ["vcjob", "vj", "vjob"]
    assert [v["version"] for v in items["batch.volcano.sh"]["versions"]] == ["v1alpha1", "v1beta1"]


def test_legacy_and_aggregated_discovery_agree() -> None:
    aggregated = {
        (item["metadata"].get("name", ""), version["version"], entry["resource"])
        for path in ("/api", "/apis")
        for item in document(path, V2)["items"]
        for version in item["versions"]
        for entry in version["resources"]
    }
    legacy = set()
    for group, versions in discovery.groups().items():
        for version in versions:
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            body = document(path)
            assert body["groupVersion"] == (f"{group}/{version}" if group else version)
            legacy |= {(group, version, r["name"]) for r in body["resources"] if "/" not in r["name"]}
    assert aggregated == legacy
    assert {(r.group, r.version, r.plural) for r in resources.ALL} <= legacy


def test_legacy_documents() -> None:
    root = document("/api")
    assert root["kind"] == "APIVersions"
    assert "apiVersion" not in root
    groups = document("/apis")
    assert groups["kind"] == "APIGroupList"
    assert all(group["name"] for group in groups["groups"])
    one = document("/apis/batch.volcano.sh")
    assert (one["kind"], one["preferredVersion"]["version"]) == ("APIGroup", "v1alpha1")
    core = {entry["name"]: entry for entry in document("/api/v1")["resources"]}
    assert core["pods/eviction"] == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }
    assert core["bindings"]["verbs"] == ["create"]
    assert core["nodes"]["namespaced"] is False


def test_other_paths_are_not_discovery() -> None:
    for path in ("/", "/version", "/apis/nope", "/apis/nope/v1", "/api/v1/pods"):
        assert discovery.answer(Request("GET", path)) is None
    assert discovery.answer(Request("POST", "/apis")) is None
    with pytest.raises(StatusError) as caught:
        get("/apis/policy/v9")
    assert (caught.value.code, caught.value.details) == (404, {})


def test_an_unchanged_document_is_not_sent_again() -> None:
    first = get("/apis", V2)
    again = get("/apis", V2, **{"if-none-match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert get("/apis", V2BETA1).headers["etag"] != first.headers["etag"]
