"""Protobuf request bodies (as kubectl sends them for some kinds), JSON answers."""

from __future__ import annotations

import base64

import protobuf_bodies as proto
import pytest
from clusters import Answer, Cluster


def post(api: Cluster, path: str, body: bytes) -> Answer:
    return api.post(
        path, body, "fieldManager=kubectl-create&fieldValidation=Strict", content=proto.CONTENT_TYPE
    )


class TestBodies:
    def test_namespace(self, api: Cluster, ns: str) -> None:
        made = post(api, "/api/v1/namespaces", proto.namespace(f"{ns}-pb", {"team": "a"})).ok(201)
        assert (made["kind"], made["apiVersion"]) == ("Namespace", "v1")
        assert made["metadata"]["labels"] == {"team": "a", "kubernetes.io/metadata.name": f"{ns}-pb"}

    def test_config_map(self, api: Cluster, maps: str) -> None:
        made = post(api, maps, proto.config_map("a", {"k": "ü\n", "empty": ""})).ok(201)
        assert made["data"] == {"k": "ü\n", "empty": ""}

    def test_secret(self, api: Cluster, ns: str) -> None:
        made = post(api, f"/api/v1/namespaces/{ns}/secrets", proto.secret("s", {"k": b"\x00\xff"})).ok(201)
        assert base64.b64decode(made["data"]["k"]) == b"\x00\xff"
        assert made["type"] == "Opaque"

    def test_priority_class(self, api: Cluster, ns: str) -> None:
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        made = post(api, path, proto.priority_class(f"{ns}-high", 70000, "words")).ok(201)
        assert (made["value"], made["description"]) == (70000, "words")
        api.delete(f"{path}/{ns}-high").ok()

    def test_resource_quota(self, api: Cluster, ns: str) -> None:
        path = f"/api/v1/namespaces/{ns}/resourcequotas"
        made = post(api, path, proto.resource_quota("q", {"requests.nvidia.com/gpu": "8", "pods": "10"})).ok(
            201
        )
        assert made["spec"]["hard"] == {"requests.nvidia.com/gpu": "8", "pods": "10"}

    def test_may_i(self, api: Cluster, ns: str) -> None:
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        made = post(api, path, proto.access_review("create", "pods", ns)).ok(201)
        assert made["status"]["allowed"] is True

    @pytest.mark.parametrize("body", [b"", b"k8s\x00\xff\xff\xff", b"no envelope", b"{}"])
    def test_broken(self, api: Cluster, maps: str, body: bytes) -> None:
        answer = post(api, maps, body)
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
