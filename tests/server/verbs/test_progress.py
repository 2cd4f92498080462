"""Reports of progress: a token that is bound to a pod reports for the job of that pod, and for nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from server_in_process import Api

from windlass.api import annotations as names
from windlass.api.resources import BATCH_JOBS, JOB_SETS, PODS, PYTORCH_JOBS, SERVICE_ACCOUNTS, TRAIN_JOBS
from windlass.server.auth.pod_tokens import PodTokens

Json = dict[str, Any]
AUDIENCE = "trainer.kubeflow.org"
REPORT = {"trainerStatus": {"progressPercentage": 42, "lastUpdatedTime": "2026-03-01T00:00:00Z"}}
CONTAINERS = [{"name": "node", "image": "i", "command": ["true"]}]
RUNTIME = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "mine"},
    "spec": {
        "template": {
            "spec": {
                "replicatedJobs": [
                    {"name": "node", "template": {"spec": {"template": {"spec": {"containers": CONTAINERS}}}}}
                ]
            }
        }
    },
}


class Reports:
    """A TrainJob with its JobSet, its Job and a pod, and a PyTorchJob with a pod."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.tokens = PodTokens("secret", api.clock)
        api.server.core.tokens = self.tokens

    async def create(self, resource: Any, name: str, spec: Json, owner: Json | None = None) -> Json:
        metadata: Json = {"name": name}
        if owner is not None:
            metadata["ownerReferences"] = [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": owner["metadata"]["name"],
                    "uid": owner["metadata"]["uid"],
                    "controller": True,
                }
            ]
        obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}
        answer = await self.api.post(resource.path("default"), obj)
        return answer.ok(201)

    async def start(self) -> Reports:
        (await self.api.post("/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes", RUNTIME)).ok(201)
        pod = {"containers": CONTAINERS}
        job = {"template": {"spec": {**pod, "restartPolicy": "Never"}}}
        train = await self.create(TRAIN_JOBS, "t", {"runtimeRef": {"name": "mine"}})
        sets = await self.create(
            JOB_SETS, "t", {"replicatedJobs": [{"name": "node", "template": {"spec": job}}]}, train
        )
        batch = await self.create(BATCH_JOBS, "t-node-0", job, sets)
        await self.create(PODS, "p", pod, batch)
        containers = [{"name": "pytorch", "image": "i"}]
        worker = {"template": {"spec": {"containers": containers}}}
        torch = await self.create(PYTORCH_JOBS, "torch", {"pytorchReplicaSpecs": {"Worker": worker}})
        await self.create(PODS, "w", pod, torch)
        return self

    async def token(self, pod: str, audience: str = AUDIENCE, **reference: str) -> str:
        bound = {"kind": "Pod", "apiVersion": "v1", "name": pod, **reference}
        spec: Json = {"audiences": [audience], "expirationSeconds": 600}
        if pod:
            spec["boundObjectRef"] = bound
        body = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec}
        answer = await self.api.post(SERVICE_ACCOUNTS.path("default", "default", "token"), body)
        return answer.ok(201)["status"]["token"]

    async def report(
        self, token: str, resource: Any = TRAIN_JOBS, name: str = "t", body: Any = REPORT
    ) -> Any:
        user = self.tokens.user(token)
        assert user is not None
        return await self.api.post(resource.path("default", name, "status"), body, user=user)

    async def stored(self, resource: Any, name: str) -> Json:
        return (await self.api.get(resource.path("default", name))).ok(200)


async def test_report_of_a_pod_is_kept_by_its_outermost_job(api: Api):
    reports = await Reports(api).start()
    token = await reports.token("p")
    for resource, name in ((TRAIN_JOBS, "t"), (BATCH_JOBS, "t-node-0")):
        answer = await reports.report(token, resource, name)
        assert answer.ok(200) == REPORT
    status = (await reports.stored(TRAIN_JOBS, "t"))["status"]
    assert status["trainerStatus"] == REPORT["trainerStatus"]
    job = await reports.stored(BATCH_JOBS, "t-node-0")
    assert names.PROGRESS not in (job["metadata"].get("annotations") or {})
    (await reports.report(await reports.token("w"), PYTORCH_JOBS, "torch")).ok(200)
    torch = await reports.stored(PYTORCH_JOBS, "torch")
    assert json.loads(torch["metadata"]["annotations"][names.PROGRESS]) == REPORT["trainerStatus"]


async def test_audience_of_kubeflows_release_is_accepted(api: Api):
    reports = await Reports(api).start()
    audience = f"{AUDIENCE}/v1alpha1/namespaces/default/trainjobs/t/status"
    (await reports.report(await reports.token("p", audience))).ok(200)


@pytest.mark.parametrize(
    ("pod", "audience", "words"),
    [
        ("w", AUDIENCE, "does not belong to the job"),
        ("p", "somewhere.else", "not for the audience"),
        ("", AUDIENCE, 'cannot create resource "trainjobs/status"'),
    ],
)
async def test_other_tokens_are_refused(api: Api, pod: str, audience: str, words: str):
    reports = await Reports(api).start()
    answer = await reports.report(await reports.token(pod, audience))
    assert answer.status == 403
    assert words in json.loads(answer.body)["message"]


async def test_token_gives_no_other_right_and_ends_with_its_pod_and_its_time(api: Api):
    reports = await Reports(api).start()
    token = await reports.token("p")
    user = reports.tokens.user(token)
    assert user is not None
    for path in (PODS.path("default"), TRAIN_JOBS.path("default", "t")):
        assert (await api.get(path, user=user)).status == 403
    assert (await api.post(PODS.path("default", "p", "status"), REPORT, user=user)).status == 405
    (await api.send("DELETE", PODS.path("default", "p"), gracePeriodSeconds=0)).ok(200)
    assert (await reports.report(token)).status == 403
    assert reports.tokens.user(token + "x") is None
    assert PodTokens("another", api.clock).user(token) is None
    api.clock.jump(601)
    assert reports.tokens.user(token) is None


async def test_wrong_reports_and_too_many_of_them_are_refused(api: Api):
    reports = await Reports(api).start()
    token = await reports.token("p")
    wrong = {"trainerStatus": {"progressPercentage": 101}}
    answer = await reports.report(token, body=wrong)
    assert answer.status == 422
    assert "trainerStatus.progressPercentage" in json.loads(answer.body)["message"]
    assert (await reports.report(token, body=b"{")).status == 400
    assert (await reports.report(token, name="missing")).status == 404
    statuses = [(await reports.report(token, body={})).status for _ in range(30)]
    assert statuses.count(200) == 18
    assert statuses[-1] == 429
    api.clock.jump(1)
    assert (await reports.report(token, body={})).status == 200


async def test_token_is_bound_to_a_pod_that_exists(api: Api):
    await Reports(api).start()
    for reference, status in (({"uid": "other"}, 422), ({"name": "missing"}, 404), ({"kind": "Secret"}, 422)):
        bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", **reference}
        spec = {"audiences": [AUDIENCE], "boundObjectRef": bound}
        body = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec}
        answer = await api.post(SERVICE_ACCOUNTS.path("default", "default", "token"), body)
        assert answer.status == status, reference
