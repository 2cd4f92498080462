"""What clients read before anything else: discovery in both forms, OpenAPI v3."""

from __future__ import annotations

from typing import Any

import pytest
from clusters import Cluster

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
ACCEPT = (
    f"{AGGREGATED},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)

SERVED = [
    ("", "v1", "pods", "Pod", True),
    ("", "v1", "nodes", "Node", False),
    ("", "v1", "namespaces", "Namespace", False),
    ("", "v1", "events", "Event", True),
    ("", "v1", "configmaps", "ConfigMap", True),
    ("", "v1", "secrets", "Secret", True),
    ("", "v1", "services", "Service", True),
    ("", "v1", "resourcequotas", "ResourceQuota", True),
    ("", "v1", "limitranges", "LimitRange", True),
    ("coordination.k8s.io", "v1", "leases", "Lease", True),
    ("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False),
    ("scheduling.volcano.sh", "v1beta1", "queues", "Queue", False),
    ("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", True),
    ("batch.volcano.sh", "v1alpha1", "jobs", "Job", True),
]


def aggregated(api: Cluster, path: str) -> list[dict[str, Any]]:
    answer = api.get(path, accept=ACCEPT)
    assert answer.headers["content-type"] == AGGREGATED
    assert answer.headers["vary"] == "Accept"
    body = answer.ok()
    assert (body["kind"], body["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    return body["items"]


def entry(api: Cluster, group: str, version: str, plural: str) -> dict[str, Any]:
    for item in aggregated(api, "/apis" if group else "/api"):
        if item.get("metadata", {}).get("name", "") != group:
            continue
        for found in item["versions"]:
            if found["version"] != version:
                continue
            assert found["freshness"] == "Current"
            return next(r for r in found["resources"] if r["resource"] == plural)
    raise AssertionError(f"{plural}.{version}.{group} is not in the aggregated discovery")


class TestAggregated:
    @pytest.mark.parametrize(("group", "version", "plural", "kind", "namespaced"), SERVED)
    def test_kinds(
        self, api: Cluster, group: str, version: str, plural: str, kind: str, namespaced: bool
    ) -> None:
        found = entry(api, group, version, plural)
        assert found["responseKind"]["kind"] == kind
        assert found["scope"] == ("Namespaced" if namespaced else "Cluster")
        assert found["singularResource"] == kind.lower()
        assert {"get", "list", "watch", "create", "update", "patch", "delete"} <= set(found["verbs"])

    def test_names_and_subresources(self, api: Cluster) -> None:
        pods = entry(api, "", "v1", "pods")
        assert pods["shortNames"] == ["po"]
        assert pods["categories"] == ["all"]
        subresources = {sub["subresource"]: sub for sub in pods["subresources"]}
        assert {"status", "binding", "log", "eviction"} <= set(subresources)
        assert subresources["eviction"]["responseKind"] == {
            "group": "policy",
            "version": "v1",
            "kind": "Eviction",
        }
        jobs = entry(api, "batch.volcano.sh", "v1alpha1", "jobs")
        assert "vcjob" in jobs["shortNames"]
        assert [sub["subresource"] for sub in jobs["subresources"]] == ["status"]


class TestLegacy:
    def test_versions(self, api: Cluster) -> None:
        body = api.get("/api").ok()
        assert (body["kind"], body["versions"]) == ("APIVersions", ["v1"])
        assert "serverAddressByClientCIDRs" in body

    def test_groups(self, api: Cluster) -> None:
        body = api.get("/apis").ok()
        assert (body["kind"], body["apiVersion"]) == ("APIGroupList", "v1")
        groups = {group["name"]: group for group in body["groups"]}
        assert {group for group, *_ in SERVED if group} <= set(groups)
        volcano = groups["scheduling.volcano.sh"]
        assert volcano["preferredVersion"] == {
            "groupVersion": "scheduling.volcano.sh/v1beta1",
            "version": "v1beta1",
        }
        one = api.get("/apis/scheduling.volcano.sh").ok()
        assert (one["kind"], one["name"]) == ("APIGroup", "scheduling.volcano.sh")

    @pytest.mark.parametrize(("group", "version", "plural", "kind", "namespaced"), SERVED)
    def test_kinds(
        self, api: Cluster, group: str, version: str, plural: str, kind: str, namespaced: bool
    ) -> None:
        body = api.get(f"/apis/{group}/{version}" if group else f"/api/{version}").ok()
        assert body["kind"] == "APIResourceList"
        assert body["groupVersion"] == (f"{group}/{version}" if group else version)
        resources = {resource["name"]: resource for resource in body["resources"]}
        found = resources[plural]
        assert (found["kind"], found["namespaced"], found["singularName"]) == (kind, namespaced, kind.lower())

    def test_eviction(self, api: Cluster) -> None:
        resources = {resource["name"]: resource for resource in api.get("/api/v1").ok()["resources"]}
        eviction = resources["pods/eviction"]
        assert (eviction["group"], eviction["version"], eviction["kind"]) == ("policy", "v1", "Eviction")
        assert resources["pods/log"]["verbs"] == ["get"]
        assert resources["pods/binding"]["verbs"] == ["create"]
        assert set(resources["pods/status"]["verbs"]) == {"get", "patch", "update"}

    def test_a_version_that_is_not_served(self, api: Cluster) -> None:
        assert api.get("/apis/scheduling.volcano.sh/v9").status == 404


class TestOpenApi:
    def document(self, api: Cluster, group_version: str) -> dict[str, Any]:
        paths = api.get("/openapi/v3").ok()["paths"]
        url = paths[group_version]["serverRelativeURL"]
        path, _, query = url.partition("?")
        assert query.startswith("hash=")
        answer = api.get(path, query)
        assert answer.headers["etag"].strip('"') == query.removeprefix("hash=")
        return answer.ok()

    def test_the_index_names_every_group_version(self, api: Cluster) -> None:
        paths = api.get("/openapi/v3").ok()["paths"]
        wanted = {f"apis/{group}/{version}" if group else f"api/{version}" for group, version, *_ in SERVED}
        assert wanted <= set(paths)

    @pytest.mark.parametrize(
        ("group_version", "path", "kind"),
        [
            ("api/v1", "/api/v1/namespaces/{namespace}/pods/{name}", ("", "v1", "Pod")),
            (
                "apis/batch.volcano.sh/v1alpha1",
                "/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs/{name}",
                ("batch.volcano.sh", "v1alpha1", "Job"),
            ),
        ],
    )
    def test_what_kubectl_needs_before_it_creates(
        self, api: Cluster, group_version: str, path: str, kind: tuple[str, str, str]
    ) -> None:
        patch = self.document(api, group_version)["paths"][path]["patch"]
        names = {parameter["name"] for parameter in patch["parameters"]}
        assert {"fieldValidation", "dryRun", "fieldManager", "force"} <= names
        group, version, name = kind
        assert patch["x-kubernetes-group-version-kind"] == {"group": group, "version": version, "kind": name}

    def test_merge_keys(self, api: Cluster) -> None:
        schemas = self.document(api, "api/v1")["components"]["schemas"]
        spec = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
        assert spec["containers"]["x-kubernetes-patch-merge-key"] == "name"
        assert spec["containers"]["x-kubernetes-patch-strategy"] == "merge"
        assert spec["containers"]["x-kubernetes-list-map-keys"] == ["name"]

    def test_kinds_of_schemas(self, api: Cluster) -> None:
        schemas = self.document(api, "apis/batch.volcano.sh/v1alpha1")["components"]["schemas"]
        kinds = [
            kind["kind"]
            for schema in schemas.values()
            for kind in schema.get("x-kubernetes-group-version-kind", ())
        ]
        assert "Job" in kinds
