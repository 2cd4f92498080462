"""Paths without resources, anonymous users, and error responses."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from server_in_process import MAPS, PODS, Api, config_map

from windlass.api.errors import WindlassError
from windlass.observe import metrics
from windlass.observe.endpoint import Endpoint
from windlass.observe.scheduling import SchedulerMetrics
from windlass.server.http.listeners import bind_unix
from windlass.server.request.users import ANONYMOUS, UserInfo
from windlass.store import errors
from windlass.store.store import Store

SELF_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SELF_RULES = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ALICE = UserInfo("alice", "7", ("dev", "system:authenticated"))


class TestHealth:
    @pytest.mark.parametrize("page", ["/healthz", "/livez", "/readyz", "/readyz/ping"])
    async def test_health_page_responds_ok(self, api: Api, page: str) -> None:
        answer = await api.get(page, user=ANONYMOUS)
        assert (answer.status, answer.body) == (200, b"ok")

    async def test_stopping(self, api: Api) -> None:
        api.server.stop()
        assert (await api.get("/readyz")).status == 500
        assert (await api.get("/livez")).status == 200

    async def test_a_store_that_failed(self, api: Api) -> None:
        await api.store.on_database(lambda db: db._connection.execute("DROP TABLE log_main"))
        told: list[WindlassError] = []
        api.store.on_failure = told.append
        answer = await api.post(MAPS, config_map("m"))
        assert (answer.status, answer.reason) == (500, "InternalError")
        assert errors.FAILED in answer.message
        assert len(told) == 1
        for page in ("/healthz", "/livez", "/readyz"):
            answer = await api.get(page)
            assert (answer.status, b"store failed" in answer.body) == (500, True)
        assert (await api.get(MAPS)).ok()["items"] == []


class TestPages:
    async def test_version(self, api: Api) -> None:
        found = (await api.get("/version")).ok()
        assert found["gitVersion"] == "v1.36.0+windlass"
        assert (found["major"], found["minor"]) == ("1", "36")

    async def test_metrics(self, api: Api) -> None:
        (await api.post(MAPS, config_map("m"))).ok(201)
        watch = await api.watch(MAPS)
        await watch.events()
        text = (await api.get("/metrics")).body.decode()
        assert 'apiserver_request_total{code="201",resource="configmaps",verb="CREATE"} 1.0' in text
        assert 'apiserver_request_duration_seconds_bucket{le="+Inf",verb="CREATE"}' in text
        assert 'windlass_store_objects{resource="configmaps"} 1.0' in text
        assert 'windlass_store_watches{resource="configmaps"} 1.0' in text
        assert "windlass_store_commits_total" in text
        await watch.close()

    async def test_metrics_of_the_scheduler_and_the_controllers(self, tmp_path: Path) -> None:
        registry = metrics.registry()
        SchedulerMetrics(registry).start_hits.set(0.75)
        endpoint = Endpoint(registry, lambda: "")
        path = tmp_path / "control.sock"
        async with Api(control=path) as api:
            silent = await api.get("/metrics/control")
            assert (silent.status, silent.body) == (503, b"the scheduler and the controllers do not answer\n")
            await endpoint.serve_on(bind_unix(path))
            answer = await api.get("/metrics/control")
            assert (answer.status, answer.headers["content-type"].split(";")[0]) == (200, "text/plain")
            assert b"windlass_scheduler_start_estimate_hit_ratio 0.75" in answer.body
            assert (await api.send("POST", "/metrics/control")).status == 405
            await endpoint.stop()
            assert (await api.get("/metrics/control")).status == 503
        async with Api() as alone:
            assert (await alone.get("/metrics/control")).status == 503

    async def test_discovery_and_openapi_are_there(self, api: Api) -> None:
        assert (await api.get("/api")).ok()["versions"] == ["v1"]
        assert (await api.get("/apis")).ok()["kind"] == "APIGroupList"
        assert "api/v1" in (await api.get("/openapi/v3")).ok()["paths"]

    @pytest.mark.parametrize(
        "path", ["/nope", "/apis/unknown.io/v1/things", "/apis/unknown.io", "/apis/unknown.io/v1", "/ui"]
    )
    async def test_unknown_page_is_not_found(self, api: Api, path: str) -> None:
        answer = await api.get(path)
        assert (answer.status, answer.body) == (404, b"404 page not found\n")

    @pytest.mark.parametrize(
        "path",
        [
            "/api/v1/unicorns",
            "/api/v2/pods",
            "/apis/policy/v9/poddisruptionbudgets",
            f"{PODS}/p/unicorn",
            f"{PODS}/p/status/more",
            "/api/v1/pods/p",
            "/api/v1/namespaces/default/nodes",
            "/api/v1/namespaces/default/nodes/n",
        ],
    )
    async def test_path_below_a_served_page(self, api: Api, path: str) -> None:
        answer = await api.get(path)
        assert (answer.status, answer.json["details"]) == (404, {})
        assert answer.message == "the server could not find the requested resource"

    @pytest.mark.parametrize(
        ("method", "path"),
        [
            ("PUT", PODS),
            ("POST", f"{PODS}/p"),
            ("POST", "/api/v1/pods"),
            ("DELETE", "/api/v1/pods"),
            ("DELETE", f"{PODS}/p/status"),
            ("GET", f"{PODS}/p/binding"),
            ("PATCH", PODS),
            ("TRACE", PODS),
            ("DELETE", "/version"),
            ("GET", SELF),
        ],
    )
    async def test_methods(self, api: Api, method: str, path: str) -> None:
        answer = await api.send(method, path)
        assert (answer.status, answer.reason) == (405, "MethodNotAllowed")

    async def test_every_response_has_its_headers(self, api: Api) -> None:
        for path in (MAPS, "/version", "/nope", "/api/v1/unicorns"):
            headers = (await api.get(path)).headers
            assert len(headers["audit-id"]) == 32
            assert headers["cache-control"] == "no-cache, private"


class TestUsers:
    @pytest.mark.parametrize("path", ["/version", "/metrics", "/metrics/control", "/api", "/nope"])
    async def test_anonymous_user_gets_403_on_pages(self, api: Api, path: str) -> None:
        answer = await api.get(path, user=ANONYMOUS)
        assert (answer.status, answer.json["details"]) == (403, {})
        assert answer.message == f'forbidden: User "system:anonymous" cannot get path "{path}"'

    async def test_rejections_name_the_verb(self, api: Api) -> None:
        answer = await api.get(f"{PODS}/x", user=ALICE)
        assert answer.status == 403
        assert answer.message == (
            'pods "x" is forbidden: User "alice" cannot get resource "pods" in API group "" '
            'in the namespace "default"'
        )
        assert answer.json["details"] == {"name": "x", "kind": "pods"}
        answer = await api.get("/apis/policy/v1/poddisruptionbudgets", user=ALICE, watch="1")
        assert answer.message == (
            'poddisruptionbudgets.policy is forbidden: User "alice" cannot watch resource '
            '"poddisruptionbudgets" in API group "policy" at the cluster scope'
        )
        answer = await api.post(f"{PODS}/x/binding", {}, user=ALICE)
        assert 'cannot create resource "pods/binding"' in answer.message
        assert (await api.delete(PODS, user=ALICE)).message.startswith("pods is forbidden: User")

    async def test_who_am_i(self, api: Api) -> None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        me = (await api.post(SELF, body)).ok(201)["status"]["userInfo"]
        assert me["username"] == "windlass-admin"
        assert "system:masters" in me["groups"]

    async def test_may_i(self, api: Api) -> None:
        spec = {"resourceAttributes": {"verb": "create", "resource": "pods"}}
        assert (await api.post(SELF_ACCESS, {"spec": spec})).ok(201)["status"] == {"allowed": True}
        assert (await api.post(SELF_ACCESS, {"spec": {}})).status == 422
        rules = (await api.post(SELF_RULES, {"spec": {"namespace": "default"}})).ok(201)["status"]
        assert rules["resourceRules"] == [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]


class TestFaults:
    async def test_a_defect_becomes_a_500_and_is_logged(
        self, api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def broken(self: Store, *_: object) -> None:
            raise KeyError("surprise")

        monkeypatch.setattr(Store, "get", broken)
        answer = await api.get(f"{MAPS}/m")
        assert (answer.status, answer.reason) == (500, "InternalError")
        assert "surprise" not in answer.message
        assert "surprise" in caplog.text

    async def test_cancelled_request_gets_no_response(self, api: Api) -> None:
        waiting = asyncio.ensure_future(api.get(MAPS, resourceVersion="99999"))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    async def test_cancelled_write_is_stored_completely(self, api: Api) -> None:
        writing = asyncio.ensure_future(api.post(MAPS, config_map("m")))
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await api.store.settled()
        assert (await api.get(f"{MAPS}/m")).status == 200
        (await api.post(MAPS, config_map("n"))).ok(201)
