"""OpenAPI v3 as kubectl needs it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

import windlass.server.apiserver  # noqa: F401  registers the kinds that are never stored
from windlass.client.transport import Request, Response
from windlass.server.presentation import discovery, openapi

CORE = "io.k8s.api.core.v1."


def get(url: str, **headers: str) -> Response:
    parts = urlsplit(url)
    response = openapi.answer(Request("GET", parts.path, parts.query, headers))
    assert response is not None
    return response


def index() -> dict[str, str]:
    paths = json.loads(get("/openapi/v3").body)["paths"]
    return {name: entry["serverRelativeURL"] for name, entry in paths.items()}


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    return {name: json.loads(get(url).body) for name, url in index().items()}


def test_the_index_names_every_group_and_version() -> None:
    expected = {
        f"apis/{group}/{version}" if group else f"api/{version}"
        for group, versions in discovery.groups().items()
        for version in versions
    }
    assert index().keys() == expected
    assert get("/openapi/v3").headers["content-type"].startswith("text/plain")


def test_hashes_make_documents_cacheable() -> None:
    url = index()["api/v1"]
    response = get(url)
    digest = urlsplit(url).query.removeprefix("hash=")
    assert response.headers["etag"] == f'"{digest}"'
    assert response.headers["cache-control"] == "public, immutable"
    assert get(url, **{"if-none-match": f'"{digest}"'}).status == 304
    wrong = get("/openapi/v3/api/v1?hash=OLD")
    assert (wrong.status, wrong.headers["location"]) == (301, url)
    plain = get("/openapi/v3/api/v1")
    assert plain.status == 200
    assert "cache-control" not in plain.headers
    packed = get(url, **{"accept-encoding": "gzip, deflate"})
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == plain.body


def test_other_paths() -> None:
    assert get("/openapi/v3/apis/nope/v1").status == 404
    assert openapi.answer(Request("GET", "/openapi/v4")) is None


def test_version_2_refers_to_version_3() -> None:
    """kubectl needs a document, to answer `no matches for kind` for kinds that are not served."""
    assert json.loads(get("/openapi/v2").body)["swagger"] == "2.0"
    packed = get("/openapi/v2", accept="application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
    assert packed.headers["content-type"] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert packed.body.startswith(b"\x0a\x032.0\x12")
    assert b"/openapi/v3" in packed.body


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "$ref" and isinstance(item, str):  # a CustomResourceDefinition has a field of this name
                yield item
            else:
                yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def test_every_reference_resolves(documents: dict[str, Any]) -> None:
    for name, document in documents.items():
        schemas = document["components"]["schemas"]
        for reference in set(_references(document)):
            assert reference.removeprefix("#/components/schemas/") in schemas, (name, reference)


def test_every_kind_can_be_patched_with_field_validation(documents: dict[str, Any]) -> None:
    """kubectl looks for exactly this before it creates or applies anything."""
    for group, versions in discovery.groups().items():
        for version in versions:
            name = f"apis/{group}/{version}" if group else f"api/{version}"
            for resource in discovery.of_version(group, version):
                if "patch" not in resource.verbs:
                    continue
                gvk = {"group": group, "version": version, "kind": resource.kind}
                patches = [
                    path["patch"]
                    for path in documents[name]["paths"].values()
                    if path.get("patch", {}).get("x-kubernetes-group-version-kind") == gvk
                ]
                assert patches, resource
                for patch in patches:
                    assert "fieldValidation" in {p["name"] for p in patch["parameters"]}
                    media = set(patch["requestBody"]["content"])
                    assert ("application/strategic-merge-patch+json" in media) != resource.custom


def test_schemas_contain_merge_keys(documents: dict[str, Any]) -> None:
    schemas = documents["api/v1"]["components"]["schemas"]
    pod = schemas[f"{CORE}Pod"]
    assert pod["x-kubernetes-group-version-kind"] == [{"group": "", "kind": "Pod", "version": "v1"}]
    containers = schemas[f"{CORE}PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert containers["x-kubernetes-list-type"] == "map"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["items"]["allOf"] == [{"$ref": f"#/components/schemas/{CORE}Container"}]
    assert schemas[f"{CORE}PodSpec"]["required"] == ["containers"]
    assert "description" not in pod
    assert f"{CORE}PodList" in schemas


def test_own_kinds_are_described(documents: dict[str, Any]) -> None:
    schemas = documents["apis/scheduling.volcano.sh/v1beta1"]["components"]["schemas"]
    queue = schemas["sh.volcano.scheduling.v1beta1.Queue"]
    assert queue["description"]
    weight = queue["properties"]["spec"]["properties"]["weight"]
    assert (weight["minimum"], weight["maximum"], weight["default"]) == (1, 65535, 1)
    assert weight["description"]
    jobs = documents["apis/batch.volcano.sh/v1alpha1"]["components"]["schemas"]
    task = jobs["sh.volcano.batch.v1alpha1.Job"]["properties"]["spec"]["properties"]["tasks"]["items"]
    assert task["properties"]["template"]["allOf"] == [
        {"$ref": f"#/components/schemas/{CORE}PodTemplateSpec"}
    ]
    assert f"{CORE}Container" in jobs  # so that explain goes all the way down
