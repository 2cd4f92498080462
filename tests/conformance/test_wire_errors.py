"""What is refused before an object is touched: paths, methods, bodies, users, unknown fields."""

from __future__ import annotations

import pytest
from clusters import Cluster, config_map, pod, status_of

from windlass.client.blocking import BlockingClient
from windlass.client.connection import Connection
from windlass.client.transport import Request

NOT_SERVED = "the server could not find the requested resource"
NOT_ALLOWED = "the server does not allow this method on the requested resource"


class TestPaths:
    @pytest.mark.parametrize("path", ["/apis/nope.example.com/v1/things", "/nothing/here"])
    def test_a_group_that_is_not_served(self, api: Cluster, path: str) -> None:
        answer = api.get(path)
        assert (answer.status, answer.body) == (404, b"404 page not found\n")

    @pytest.mark.parametrize(
        "path",
        [
            "/api/v1/namespaces/default/unicorns",
            "/apis/scheduling.volcano.sh/v1beta1/unicorns",
        ],
    )
    def test_a_resource_that_is_not_served(self, api: Cluster, path: str) -> None:
        answer = api.get(path)
        if answer.headers["content-type"].startswith("text/plain"):
            assert answer.body == b"404 page not found\n"
            return
        assert (answer.status, answer.json) == (404, status_of(404, "NotFound", NOT_SERVED, {}))

    def test_a_subresource_that_is_not_served(self, api: Cluster, pods: str) -> None:
        api.post(pods, pod("p")).ok(201)
        answer = api.get(f"{pods}/p/unicorn")
        assert (answer.status, answer.json) == (404, status_of(404, "NotFound", NOT_SERVED, {}))

    @pytest.mark.parametrize(
        ("method", "path"),
        [("PUT", "/api/v1/pods"), ("POST", "/api/v1/namespaces/default/pods/p"), ("DELETE", "/version")],
    )
    def test_methods(self, api: Cluster, method: str, path: str) -> None:
        answer = api.send(method, path, {})
        assert answer.status == 405
        if path != "/version":
            assert answer.json == status_of(405, "MethodNotAllowed", NOT_ALLOWED, {})

    def test_a_namespaced_kind_is_not_created_without_a_namespace(self, api: Cluster) -> None:
        assert api.post("/api/v1/pods", pod("p")).status == 405


class TestBodies:
    def test_broken_json(self, api: Cluster, maps: str) -> None:
        answer = api.post(maps, b'{"metadata":')
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")

    def test_a_wrong_type(self, api: Cluster, pods: str) -> None:
        body = pod("p")
        body["spec"]["containers"] = "none"
        answer = api.post(pods, body)
        message = (
            'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal string into Go struct '
            "field PodSpec.spec.containers of type []v1.Container"
        )
        assert (answer.status, answer.json) == (400, status_of(400, "BadRequest", message))

    def test_another_kind(self, api: Cluster, maps: str) -> None:
        answer = api.post(maps, pod("p"))
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")

    def test_another_namespace(self, api: Cluster, maps: str) -> None:
        answer = api.post(maps, config_map("a", namespace="other"))
        message = "the namespace of the provided object does not match the namespace sent on the request"
        assert (answer.status, answer.json) == (400, status_of(400, "BadRequest", message))

    def test_an_unknown_media_type(self, api: Cluster, maps: str) -> None:
        answer = api.post(maps, b"x", content="text/plain")
        assert (answer.status, answer.json["reason"]) == (415, "UnsupportedMediaType")
        assert answer.json["message"].startswith(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json, application/yaml"
        )

    def test_too_large(self, api: Cluster, maps: str) -> None:
        answer = api.post(maps, config_map("a", {"k": "x" * (3 << 20)}))
        message = "Request entity too large: limit is 3145728"
        assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
        assert answer.json["message"] == message

    def test_custom_kinds_need_their_kind(self, api: Cluster, ns: str) -> None:
        path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{ns}/podgroups"
        answer = api.post(path, {"metadata": {"name": "g"}, "spec": {"minMember": 1}})
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
        assert "Object 'Kind' is missing" in answer.json["message"]
        other = {
            "apiVersion": "scheduling.volcano.sh/v2",
            "kind": "PodGroup",
            "metadata": {"name": "g"},
        }
        answer = api.post(path, other)
        assert answer.status == 400
        assert answer.json["message"] == (
            "the API version in the data (scheduling.volcano.sh/v2) does not match "
            "the expected API version (scheduling.volcano.sh/v1beta1)"
        )


class TestFieldValidation:
    def body(self) -> dict:
        body = pod("p")
        body["spec"]["nonsense"] = 1
        body["spec"]["containers"][0]["Image"] = "x"
        return body

    def test_strict(self, api: Cluster, pods: str) -> None:
        answer = api.post(pods, self.body(), "fieldValidation=Strict")
        message = (
            'Pod in version "v1" cannot be handled as a Pod: strict decoding error: '
            'unknown field "spec.containers[0].Image", unknown field "spec.nonsense"'
        )
        assert (answer.status, answer.json) == (400, status_of(400, "BadRequest", message))

    def test_duplicates(self, api: Cluster, maps: str) -> None:
        body = b'{"metadata":{"name":"a"},"data":{"k":"1"},"data":{"k":"2"}}'
        answer = api.post(maps, body, "fieldValidation=Strict")
        assert answer.status == 400
        assert 'strict decoding error: duplicate field "data"' in answer.json["message"]

    @pytest.mark.parametrize("query", ["fieldValidation=Warn", ""])
    def test_warn_is_the_default(self, api: Cluster, pods: str, query: str) -> None:
        answer = api.post(pods, self.body(), query)
        assert "nonsense" not in answer.ok(201)["spec"]
        warning = answer.headers["warning"]
        assert '299 - "unknown field \\"spec.nonsense\\""' in warning
        assert '299 - "unknown field \\"spec.containers[0].Image\\""' in warning

    def test_ignore(self, api: Cluster, pods: str) -> None:
        answer = api.post(pods, self.body(), "fieldValidation=Ignore")
        assert "nonsense" not in answer.ok(201)["spec"]
        assert "warning" not in answer.headers

    def test_another_word(self, api: Cluster, pods: str) -> None:
        answer = api.post(pods, self.body(), "fieldValidation=Perhaps")
        assert (answer.status, answer.json["reason"]) == (422, "Invalid")
        assert answer.json["details"]["kind"] == "CreateOptions"

    def test_patches(self, api: Cluster, pods: str) -> None:
        api.post(pods, pod("p")).ok(201)
        answer = api.patch(f"{pods}/p", {"spec": {"nonsense": 1}}, query="fieldValidation=Strict")
        assert (answer.status, answer.json["reason"]) == (422, "Invalid")
        (cause,) = answer.json["details"]["causes"]
        assert cause["field"] == "patch"
        assert 'strict decoding error: unknown field "spec.nonsense"' in cause["message"]
        answer = api.patch(f"{pods}/p", {"spec": {"nonsense": 1}})
        assert answer.status == 200
        assert '299 - "unknown field \\"spec.nonsense\\""' in answer.headers["warning"]

    def test_custom_kinds(self, api: Cluster, ns: str) -> None:
        path = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{ns}/podgroups"
        body = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g"},
            "spec": {"minMember": 1, "nonsense": 1},
        }
        answer = api.post(path, body, "fieldValidation=Strict")
        assert answer.status == 400
        assert 'strict decoding error: unknown field "spec.nonsense"' in answer.json["message"]
        answer = api.post(path, body)
        assert "nonsense" not in answer.ok(201)["spec"]
        assert '299 - "unknown field \\"spec.nonsense\\""' in answer.headers["warning"]


class TestUsers:
    def as_(self, connection: Connection, path: str) -> tuple[int, dict]:
        with BlockingClient(connection) as client:
            response = client.request(Request("GET", path, "", {"accept": "application/json"}))
        import json

        return response.status, json.loads(response.body)

    def test_a_bad_token(self, api: Cluster) -> None:
        stranger = Connection(api.connection.server, ca_data=api.connection.ca_data, token="wrong")
        status, body = self.as_(stranger, "/api/v1/pods")
        assert (status, body) == (401, status_of(401, "Unauthorized", "Unauthorized"))

    def test_no_token(self, api: Cluster) -> None:
        nobody = Connection(api.connection.server, ca_data=api.connection.ca_data)
        status, body = self.as_(nobody, "/api/v1/namespaces/default/pods/x")
        message = (
            'pods "x" is forbidden: User "system:anonymous" cannot get resource "pods" in API group "" '
            'in the namespace "default"'
        )
        expected = status_of(403, "Forbidden", message, {"name": "x", "kind": "pods"})
        assert (status, body) == (403, expected)
        status, body = self.as_(nobody, "/metrics")
        message = 'forbidden: User "system:anonymous" cannot get path "/metrics"'
        assert (status, body) == (403, status_of(403, "Forbidden", message, {}))
        status, body = self.as_(nobody, "/api/v1/nodes")
        message = (
            'nodes is forbidden: User "system:anonymous" cannot list resource "nodes" in API group "" '
            "at the cluster scope"
        )
        assert (status, body) == (403, status_of(403, "Forbidden", message, {"kind": "nodes"}))

    @pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
    def test_health_is_open(self, api: Cluster, path: str) -> None:
        nobody = Connection(api.connection.server, ca_data=api.connection.ca_data)
        with BlockingClient(nobody) as client:
            response = client.request(Request("GET", path))
        assert (response.status, response.body) == (200, b"ok")

    def test_version(self, api: Cluster) -> None:
        version = api.get("/version").ok()
        assert version["gitVersion"].startswith("v1.")
        assert version["major"] == "1"
        assert version["minor"].isdecimal()

    def test_metrics(self, api: Cluster) -> None:
        answer = api.get("/metrics", accept="text/plain")
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert b"apiserver_request_total" in answer.body
