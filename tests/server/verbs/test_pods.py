"""Binding, eviction and logs of pods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from server_in_process import PODS, Api, binding, pod

from windlass.server.log_source import LogMissing, LogOptions

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"


class TestBinding:
    async def test_binding_assigns_the_node(self, api: Api) -> None:
        made = (await api.post(PODS, pod("p", metadata={"labels": {"a": "1"}}))).ok(201)
        extra = {"annotations": {"windlass.dev/devices": "0,1"}, "labels": {"b": "2"}}
        answer = await api.post(f"{PODS}/p/binding", binding("p", "n1", uid=made["metadata"]["uid"], **extra))
        assert answer.ok(201) == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "code": 201,
        }
        now = (await api.get(f"{PODS}/p")).ok()
        assert now["spec"]["nodeName"] == "n1"
        assert now["metadata"]["annotations"] == {"windlass.dev/devices": "0,1"}
        assert now["metadata"]["labels"] == {"a": "1", "b": "2"}
        assert now["metadata"]["generation"] == 1
        (condition,) = [c for c in now["status"]["conditions"] if c["type"] == "PodScheduled"]
        assert condition["status"] == "True"
        assert condition["lastTransitionTime"] == "2026-01-01T12:00:00Z"

    async def test_binding_replaces_an_unschedulable_condition(self, api: Api) -> None:
        (await api.post(PODS, pod("p"))).ok(201)
        refusal = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
        (await api.patch(f"{PODS}/p/status", {"status": {"conditions": [refusal]}})).ok()
        api.clock.jump(60)
        (await api.post(f"{PODS}/p/binding", binding("p", "n1"))).ok(201)
        (condition,) = (await api.get(f"{PODS}/p")).ok()["status"]["conditions"]
        assert (condition["status"], condition["lastTransitionTime"]) == ("True", "2026-01-01T12:01:00Z")
        assert "reason" not in condition

    async def test_binding_through_the_collection(self, api: Api) -> None:
        (await api.post(PODS, pod("p"))).ok(201)
        (await api.post("/api/v1/namespaces/default/bindings", binding("p", "n1"))).ok(201)
        assert (await api.get(f"{PODS}/p")).ok()["spec"]["nodeName"] == "n1"
        assert (await api.get("/api/v1/namespaces/default/bindings")).status == 405

    async def test_pod_is_bound_only_once(self, api: Api) -> None:
        (await api.post(PODS, pod("p"))).ok(201)
        first, second = await asyncio.gather(
            api.post(f"{PODS}/p/binding", binding("p", "n1")),
            api.post(f"{PODS}/p/binding", binding("p", "n2")),
        )
        assert (first.status, second.status) == (201, 409)
        assert second.message == (
            'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'
        )
        assert second.json["details"] == {"name": "p", "kind": "pods/binding"}

    async def test_preconditions(self, api: Api) -> None:
        made = (await api.post(PODS, pod("p"))).ok(201)
        answer = await api.post(f"{PODS}/p/binding", binding("p", "n1", uid="other"))
        assert answer.status == 409
        assert "UID in precondition: other" in answer.message
        answer = await api.post(f"{PODS}/p/binding", binding("p", "n1", resourceVersion="1"))
        assert answer.status == 409
        right = made["metadata"]["resourceVersion"]
        (await api.post(f"{PODS}/p/binding", binding("p", "n1", resourceVersion=right))).ok(201)

    async def test_pods_that_cannot_be_bound(self, api: Api) -> None:
        (await api.post(PODS, pod("gated", spec={"schedulingGates": [{"name": "ex.io/g"}]}))).ok(201)
        answer = await api.post(f"{PODS}/gated/binding", binding("gated", "n1"))
        assert answer.status == 409
        assert "pod gated has non-empty .spec.schedulingGates" in answer.message
        (await api.post(PODS, pod("going", metadata={"finalizers": ["ex.io/f"]}))).ok(201)
        (await api.delete(f"{PODS}/going")).ok()
        answer = await api.post(f"{PODS}/going/binding", binding("going", "n1"))
        assert "pod going is being deleted, cannot be assigned to a host" in answer.message
        assert (await api.post(f"{PODS}/none/binding", binding("none", "n1"))).status == 404

    async def test_invalid_bindings_are_rejected(self, api: Api) -> None:
        (await api.post(PODS, pod("p"))).ok(201)
        assert (await api.post(f"{PODS}/p/binding", binding("q", "n1"))).status == 400
        assert (await api.post(f"{PODS}/p/binding", binding("p", ""))).status == 400
        assert (await api.post(f"{PODS}/p/binding", binding("p", "n1", namespace="x"))).status == 400
        odd = {**binding("p", "n1"), "target": {"kind": "Rack", "name": "r"}}
        assert (await api.post(f"{PODS}/p/binding", odd)).status == 400

    async def test_dry_run(self, api: Api) -> None:
        (await api.post(PODS, pod("p"))).ok(201)
        (await api.post(f"{PODS}/p/binding", binding("p", "n1"), dryRun="All")).ok(201)
        assert "nodeName" not in (await api.get(f"{PODS}/p")).ok()["spec"]


async def running(api: Api, name: str = "p", *, ready: bool = True, **members: Any) -> dict[str, Any]:
    (await api.post(PODS, pod(name, metadata={"labels": {"app": "x"}}, **members))).ok(201)
    (await api.post(f"{PODS}/{name}/binding", binding(name, "n1"))).ok(201)
    statuses = [{"name": "main", "state": {"running": {}}}]
    conditions = [{"type": "Ready", "status": str(ready)}]
    body = {"status": {"phase": "Running", "containerStatuses": statuses, "conditions": conditions}}
    return (await api.patch(f"{PODS}/{name}/status", body)).ok()


def eviction(name: str = "p", **options: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return {**body, "deleteOptions": options} if options else body


class TestEviction:
    async def test_evicted_pod_gets_the_disruption_condition(self, api: Api) -> None:
        await running(api)
        (await api.post(f"{PODS}/p/eviction", eviction())).ok(201)
        going = (await api.get(f"{PODS}/p")).ok()
        assert going["metadata"]["deletionGracePeriodSeconds"] == 30
        (condition,) = [c for c in going["status"]["conditions"] if c["type"] == "DisruptionTarget"]
        assert (condition["status"], condition["reason"]) == ("True", "EvictionByEvictionAPI")

    async def test_unscheduled_pod_is_removed_by_eviction(self, api: Api) -> None:
        (await api.post(PODS, pod("p"))).ok(201)
        (await api.post(f"{PODS}/p/eviction", eviction())).ok(201)
        assert (await api.get(f"{PODS}/p")).status == 404

    async def test_grace_and_dry_run(self, api: Api) -> None:
        await running(api)
        before = api.store.rv
        (await api.post(f"{PODS}/p/eviction", eviction(dryRun=["All"]))).ok(201)
        (await api.post(f"{PODS}/p/eviction", eviction(), dryRun="All")).ok(201)
        assert api.store.rv == before
        (await api.post(f"{PODS}/p/eviction", eviction(gracePeriodSeconds=3))).ok(201)
        assert (await api.get(f"{PODS}/p")).ok()["metadata"]["deletionGracePeriodSeconds"] == 3

    async def test_preconditions_leave_no_trace(self, api: Api) -> None:
        made = await running(api)
        answer = await api.post(f"{PODS}/p/eviction", eviction(preconditions={"uid": "other"}))
        assert answer.status == 409
        assert (await api.get(f"{PODS}/p")).ok() == made
        version = {"resourceVersion": made["metadata"]["resourceVersion"]}
        (await api.post(f"{PODS}/p/eviction", eviction(preconditions=version))).ok(201)

    async def test_name_in_body_and_url_must_agree(self, api: Api) -> None:
        await running(api)
        assert (await api.post(f"{PODS}/p/eviction", eviction("q"))).status == 400
        assert (await api.post(f"{PODS}/none/eviction", eviction("none"))).status == 404

    async def budget(
        self, api: Api, allowed: int, name: str = "b", observed: int = 1, healthy: int = 1, **spec: Any
    ) -> None:
        body = {
            "metadata": {"name": name},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}, **spec},
        }
        (await api.post(BUDGETS, body)).ok(201)
        status = {
            "observedGeneration": observed,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": 1,
            "expectedPods": 1,
        }
        (await api.patch(f"{BUDGETS}/{name}/status", {"status": status})).ok()

    async def test_budget_without_allowed_disruptions_rejects_eviction(self, api: Api) -> None:
        made = await running(api)
        await self.budget(api, 0)
        answer = await api.post(f"{PODS}/p/eviction", eviction())
        assert (answer.status, answer.reason) == (429, "TooManyRequests")
        assert answer.message == "Cannot evict pod as it would violate the pod's disruption budget."
        assert answer.json["details"]["causes"] == [
            {
                "reason": "DisruptionBudget",
                "message": "The disruption budget b needs 1 healthy pods and has 1 currently",
            }
        ]
        assert "retry-after" not in answer.headers
        assert (await api.get(f"{PODS}/p")).ok() == made

    async def test_eviction_uses_one_disruption_of_the_budget(self, api: Api) -> None:
        await running(api)
        await running(api, "q")
        await self.budget(api, 1)
        (await api.post(f"{PODS}/p/eviction", eviction())).ok(201)
        spent = (await api.get(f"{BUDGETS}/b")).ok()["status"]
        assert spent["disruptionsAllowed"] == 0
        assert list(spent["disruptedPods"]) == ["p"]
        assert (await api.post(f"{PODS}/q/eviction", eviction("q"))).status == 429

    async def test_budget_without_observed_status_rejects_evictions(self, api: Api) -> None:
        await running(api)
        await self.budget(api, 1, observed=0)
        answer = await api.post(f"{PODS}/p/eviction", eviction())
        assert answer.status == 429
        assert answer.headers["retry-after"] == "10"

    async def test_unready_pod_is_evicted_while_enough_pods_are_healthy(self, api: Api) -> None:
        await running(api, ready=False)
        await self.budget(api, 0, observed=0)
        (await api.post(f"{PODS}/p/eviction", eviction())).ok(201)
        assert "disruptedPods" not in (await api.get(f"{BUDGETS}/b")).ok()["status"]

    async def test_unready_pod_is_kept_while_too_few_pods_are_healthy(self, api: Api) -> None:
        await running(api, ready=False)
        await self.budget(api, 0, healthy=0)
        assert (await api.post(f"{PODS}/p/eviction", eviction())).status == 429

    async def test_budget_with_always_allow_permits_eviction_of_unready_pods(self, api: Api) -> None:
        await running(api, ready=False)
        await running(api, "q")
        await self.budget(api, 0, healthy=0, unhealthyPodEvictionPolicy="AlwaysAllow")
        (await api.post(f"{PODS}/p/eviction", eviction())).ok(201)
        assert (await api.post(f"{PODS}/q/eviction", eviction("q"))).status == 429

    async def test_budget_for_one_rejects_the_second_of_two_concurrent_evictions(self, api: Api) -> None:
        await running(api)
        await running(api, "q")
        await self.budget(api, 1)
        both = await asyncio.gather(*(api.post(f"{PODS}/{n}/eviction", eviction(n)) for n in "pq"))
        assert sorted(answer.status for answer in both) == [201, 429]

    async def test_pod_with_two_budgets_is_not_evicted(self, api: Api) -> None:
        await running(api)
        await self.budget(api, 1, "b")
        await self.budget(api, 1, "c")
        assert (await api.post(f"{PODS}/p/eviction", eviction())).status == 500

    async def test_finished_pod_needs_no_budget(self, api: Api) -> None:
        await running(api)
        await self.budget(api, 0)
        (await api.patch(f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})).ok()
        (await api.post(f"{PODS}/p/eviction", eviction())).ok(201)


class Logs:
    """A log source with one container's output."""

    def __init__(self) -> None:
        self.chunks = [b"one\n", b"two\n", b"three\n"]
        self.asked: list[LogOptions] = []
        self.closed = 0
        self.more: asyncio.Event | None = None

    async def open(self, pod: Mapping[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        self.asked.append(options)
        if options.previous:
            raise LogMissing("previous terminated container not found")
        try:
            for chunk in self.chunks:
                yield chunk
            if options.follow and self.more is not None:
                await self.more.wait()
                yield b"late\n"
        finally:
            self.closed += 1


@pytest.fixture
def logs() -> Logs:
    return Logs()


@pytest.fixture
async def api_with_logs(logs: Logs) -> AsyncIterator[Api]:
    async with Api(logs=logs) as opened:
        yield opened


class TestLogs:
    async def test_the_whole_log(self, api_with_logs: Api, logs: Logs) -> None:
        await running(api_with_logs)
        answer = await api_with_logs.get(f"{PODS}/p/log")
        assert (answer.status, answer.body) == (200, b"one\ntwo\nthree\n")
        assert answer.headers["content-type"].startswith("text/plain")
        assert logs.asked == [LogOptions("main")]
        assert logs.closed == 1

    async def test_options_reach_the_source(self, api_with_logs: Api, logs: Logs) -> None:
        await running(api_with_logs)
        await api_with_logs.get(f"{PODS}/p/log", tailLines=5, sinceSeconds=60, timestamps="true")
        await api_with_logs.get(f"{PODS}/p/log", sinceTime="2026-01-01T11:59:00Z", follow="true")
        assert logs.asked == [
            LogOptions("main", timestamps=True, tail_lines=5, since="2026-01-01T11:59:00.000000"),
            LogOptions("main", follow=True, since="2026-01-01T11:59:00"),
        ]

    @pytest.mark.parametrize(
        ("given", "since"),
        [
            ("2026-01-01T11:59:00.123456789Z", "2026-01-01T11:59:00.123456789"),
            ("2026-01-01T12:59:00.5+01:00", "2026-01-01T11:59:00.5"),
            ("2030-01-01T00:00:00Z", "2030-01-01T00:00:00"),
        ],
    )
    async def test_since_time_is_exact(self, api_with_logs: Api, logs: Logs, given: str, since: str) -> None:
        await running(api_with_logs)
        assert (await api_with_logs.get(f"{PODS}/p/log", sinceTime=given)).status == 200
        assert logs.asked == [LogOptions("main", since=since)]

    async def test_one_of_the_streams(self, api_with_logs: Api, logs: Logs) -> None:
        await running(api_with_logs)
        for name in ("Stderr", "Stdout", "All"):
            assert (await api_with_logs.get(f"{PODS}/p/log", stream=name)).status == 200
        assert [asked.stream for asked in logs.asked] == ["stderr", "stdout", ""]
        assert (await api_with_logs.get(f"{PODS}/p/log", stream="Both")).status == 422
        assert (await api_with_logs.get(f"{PODS}/p/log", stream="Stderr", tailLines=1)).status == 422

    async def test_any_number_of_seconds_is_taken(self, api_with_logs: Api) -> None:
        await running(api_with_logs)
        assert (await api_with_logs.get(f"{PODS}/p/log", sinceSeconds=2**62)).status == 200

    async def test_bytes_are_limited(self, api_with_logs: Api, logs: Logs) -> None:
        await running(api_with_logs)
        answer = await api_with_logs.get(f"{PODS}/p/log", limitBytes=6)
        assert answer.body == b"one\ntw"
        assert logs.closed == 1

    async def test_following_ends_with_the_container(self, api_with_logs: Api, logs: Logs) -> None:
        await running(api_with_logs)
        logs.more = asyncio.Event()
        reading = asyncio.ensure_future(api_with_logs.get(f"{PODS}/p/log", follow="true"))
        await asyncio.sleep(0.01)
        assert not reading.done()
        logs.more.set()
        assert (await reading).body.endswith(b"late\n")

    async def test_log_without_output_gets_an_immediate_response(
        self, api_with_logs: Api, logs: Logs
    ) -> None:
        from windlass.client.transport import Request
        from windlass.server.request.users import ADMIN

        await running(api_with_logs)
        logs.chunks, logs.more = [], asyncio.Event()
        asked = api_with_logs.server.handle(Request("GET", f"{PODS}/p/log", "follow=1"), ADMIN)
        answering = asyncio.ensure_future(asked)
        await api_with_logs.asleep()
        await api_with_logs.clock.advance(0.3)
        response = await answering
        assert response.stream is not None
        logs.more.set()
        assert await anext(response.stream) == b"late\n"
        await response.stream.aclose()
        assert logs.closed == 1

    async def test_the_server_stops(self, api_with_logs: Api, logs: Logs) -> None:
        await running(api_with_logs)
        logs.more = asyncio.Event()
        reading = asyncio.ensure_future(api_with_logs.get(f"{PODS}/p/log", follow="true"))
        await asyncio.sleep(0.01)
        api_with_logs.server.stop()
        assert (await reading).body == b"one\ntwo\nthree\n"
        assert logs.closed == 1

    async def test_container_of_the_log(self, api_with_logs: Api, logs: Logs) -> None:
        api = api_with_logs
        two = {
            "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}],
            "initContainers": [{"name": "first", "image": "i"}],
        }
        (await api.post(PODS, pod("p", spec=two))).ok(201)
        (await api.post(f"{PODS}/p/binding", binding("p", "n1"))).ok(201)
        answer = await api.get(f"{PODS}/p/log")
        assert (answer.status, answer.message) == (
            400,
            "a container name must be specified for pod p, choose one of: [a b] "
            "or one of the init containers: [first]",
        )
        answer = await api.get(f"{PODS}/p/log", container="z")
        assert answer.message == "container z is not valid for pod p"
        answer = await api.get(f"{PODS}/p/log", container="b")
        assert answer.message == 'container "b" in pod "p" is waiting to start: ContainerCreating'
        waiting = [{"name": "b", "state": {"waiting": {"reason": "PodInitializing"}}}]
        ended = [{"name": "first", "state": {"terminated": {"exitCode": 0}}}]
        status = {"containerStatuses": waiting, "initContainerStatuses": ended}
        (await api.patch(f"{PODS}/p/status", {"status": status})).ok()
        answer = await api.get(f"{PODS}/p/log", container="b")
        assert answer.message == 'container "b" in pod "p" is waiting to start: PodInitializing'
        assert (await api.get(f"{PODS}/p/log", container="first")).status == 200
        (await api.patch(f"{PODS}/p", {"metadata": {"annotations": {DEFAULT: "b"}}})).ok()
        assert 'container "b"' in (await api.get(f"{PODS}/p/log")).message

    async def test_missing_log_is_an_error(self, api_with_logs: Api) -> None:
        api = api_with_logs
        (await api.post(PODS, pod("early"))).ok(201)
        answer = await api.get(f"{PODS}/early/log")
        assert (answer.status, answer.body) == (204, b"")
        await running(api)
        answer = await api.get(f"{PODS}/p/log", previous="true")
        assert answer.message == 'previous terminated container "main" in pod "p" not found'
        last = [{"name": "main", "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}}]
        (await api.patch(f"{PODS}/p/status", {"status": {"containerStatuses": last}})).ok()
        answer = await api.get(f"{PODS}/p/log", previous="true")
        assert (answer.status, answer.message) == (400, "previous terminated container not found")
        assert (await api.get(f"{PODS}/none/log")).status == 404

    async def test_a_simulated_node_runs_no_process(self, api_with_logs: Api, logs: Logs) -> None:
        await running(api_with_logs)
        node = (await api_with_logs.get(f"{PODS}/p")).ok()["spec"]["nodeName"]
        labels = {"windlass.dev/simulated": "true"}
        await api_with_logs.post("/api/v1/nodes", {"metadata": {"name": node, "labels": labels}})
        answer = await api_with_logs.get(f"{PODS}/p/log")
        assert (answer.status, logs.asked) == (400, [])
        assert f'is on the simulated node "{node}": no process runs there' in answer.message

    @pytest.mark.parametrize(
        ("query", "status"),
        [
            ({"tailLines": "-1"}, 422),
            ({"sinceSeconds": "0"}, 422),
            ({"limitBytes": "0"}, 422),
            ({"sinceSeconds": "5", "sinceTime": "2026-01-01T00:00:00Z"}, 422),
            ({"sinceTime": "yesterday"}, 400),
            ({"tailLines": "many"}, 400),
        ],
    )
    async def test_options_are_checked(self, api_with_logs: Api, query: dict[str, str], status: int) -> None:
        await running(api_with_logs)
        assert (await api_with_logs.get(f"{PODS}/p/log", **query)).status == status

    async def test_log_without_a_source_is_unavailable(self, api: Api) -> None:
        await running(api)
        answer = await api.get(f"{PODS}/p/log")
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")


DEFAULT = "kubectl.kubernetes.io/default-container"


@pytest.mark.parametrize(
    ("what", "instead"),
    [
        ("proxy", "kubectl port-forward"),
        ("nosuch", "the server could not find the requested resource"),
    ],
)
async def test_unsupported_stream_subresources_name_an_alternative(api: Api, what: str, instead: str) -> None:
    (await api.post(PODS, pod("p"))).ok(201)
    for answer in (await api.get(f"{PODS}/p/{what}"), await api.post(f"{PODS}/p/{what}", {})):
        assert answer.status == 404
        assert instead in answer.message


class TestEphemeralContainers:
    URL = f"{PODS}/p/ephemeralcontainers"

    async def _patched(self, api: Api, *containers: dict[str, Any]) -> Any:
        body = {"spec": {"ephemeralContainers": list(containers)}}
        return await api.patch(self.URL, body, "strategic")

    async def test_containers_are_added_with_defaults_and_nothing_else_changes(self, api: Api) -> None:
        (await api.post(PODS, pod("p"))).ok(201)
        change = {
            "metadata": {"labels": {"a": "1"}},
            "spec": {"ephemeralContainers": [{"name": "d", "image": "x"}]},
        }
        made = (await api.patch(self.URL, change)).ok()
        (added,) = made["spec"]["ephemeralContainers"]
        assert added["terminationMessagePolicy"] == "File"
        assert "labels" not in made["metadata"]
        more = (await self._patched(api, {"name": "e", "image": "x", "targetContainerName": "main"})).ok()
        assert {one["name"] for one in more["spec"]["ephemeralContainers"]} == {"d", "e"}

    async def test_containers_are_neither_changed_nor_removed(self, api: Api) -> None:
        (await api.post(PODS, pod("p"))).ok(201)
        (await self._patched(api, {"name": "d", "image": "x"})).ok()
        changed = await self._patched(api, {"name": "d", "image": "y"})
        assert (changed.status, "may not be changed" in changed.message) == (422, True)
        stored = (await api.get(f"{PODS}/p")).ok()
        stored["spec"]["ephemeralContainers"] = []
        removed = await api.put(self.URL, stored)
        assert (removed.status, "may not be removed" in removed.message) == (422, True)

    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            ({"name": "main"}, 'ephemeralContainers[0].name: Duplicate value: "main"'),
            ({"targetContainerName": "no"}, 'targetContainerName: Not found: "no"'),
            ({"lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}, "lifecycle: Forbidden"),
            ({"resources": {"limits": {"cpu": "1"}}}, "resources: Forbidden"),
        ],
    )
    async def test_fields_are_checked(self, api: Api, fields: dict[str, Any], why: str) -> None:
        (await api.post(PODS, pod("p"))).ok(201)
        refused = await self._patched(api, {"name": "d", "image": "x", **fields})
        assert (refused.status, why in refused.message) == (422, True), refused.message

    async def test_pod_that_has_ended_gets_none(self, api: Api) -> None:
        (await api.post(PODS, pod("p"))).ok(201)
        (await api.patch(f"{PODS}/p/status", {"status": {"phase": "Failed"}})).ok()
        refused = await self._patched(api, {"name": "d", "image": "x"})
        assert (refused.status, "--copy-to" in refused.message) == (400, True)
