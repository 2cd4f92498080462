"""Job kinds of other projects on a real API server: Windlass operates them while their operator does not run.

Scheduler and kubelet are played by the test, which writes the phases of groups and pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from clusters import Cluster
from realkube import CRDS, RealKube

from windlass.api.resources import (
    DEPLOYMENTS,
    JOB_FLOWS,
    JOB_TEMPLATES,
    POD_GROUPS,
    PODS,
    PYTORCH_JOBS,
    SECRETS,
    VOLCANO_CRON_JOBS,
    VOLCANO_JOBS,
)
from windlass.client.client import Client
from windlass.client.http import HttpTransport
from windlass.controllers.manager import ControllerManager
from windlass.kits import rng as randomness
from windlass.kits.clock import SystemClock

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]
Json = dict[str, Any]


async def until(check: Callable[[], Awaitable[Any]], seconds: float = 90.0) -> Any:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not (answer := await check()):
        assert loop.time() < deadline, f"still {answer!r} after {seconds} s"
        await asyncio.sleep(0.05)
    return answer


@pytest.fixture
async def manager(real_kube: RealKube) -> AsyncIterator[tuple[ControllerManager, Client, str]]:
    cluster = Cluster.of_real(real_kube)
    for family in ("kubeflow", "volcano"):
        real_kube.install_crds(CRDS / family)
    clock, rng = SystemClock(), randomness.system()
    async with (
        Client(HttpTransport(cluster.connection), clock=clock, rng=rng) as client,
        Client(
            HttpTransport(cluster.connection), user_agent="windlass-controllers", clock=clock, rng=rng
        ) as own,
    ):
        made = ControllerManager(own, clock=clock, rng=rng, embedded=False)
        work = asyncio.ensure_future(made.run())
        try:
            yield made, client, cluster.new_namespace("kinds")
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            cluster.close()
        assert work.cancelled(), "the manager ended by itself"


def job(name: str) -> Json:
    container = {"name": "pytorch", "image": "python", "command": ["true"]}
    role = {"replicas": 1, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}
    return {
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": {"Master": role, "Worker": {**role, "replicas": 2}}},
    }


def operator() -> Json:
    """Return a Deployment like that of Kubeflow's training operator; its pods never start here."""
    labels = {"control-plane": "kubeflow-training-operator"}
    container = {"name": "training-operator", "image": "kubeflow/training-operator:v1-855e096"}
    return {
        "metadata": {"name": "training-operator"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def test_windlass_operates_kubeflow_kinds_until_their_operator_is_installed(
    manager: tuple[ControllerManager, Client, str],
) -> None:
    made, client, namespace = manager
    assert made.job_kinds is not None
    kinds = made.job_kinds

    async def reason() -> str | None:
        return kinds.reasons.get("kubeflow")

    await until(lambda: operated(kinds.reasons))
    await client.create(PYTORCH_JOBS, job("first"), namespace)
    group = await until(lambda: client.find(POD_GROUPS, "first", namespace))
    assert group["spec"]["minMember"] == 3
    await client.patch(POD_GROUPS, "first", {"status": {"phase": "Inqueue"}}, namespace, subresource="status")

    async def pods() -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in (await client.list(PODS, namespace)).items)

    async def whole() -> bool:
        return await pods() == ["first-master-0", "first-worker-0", "first-worker-1"]

    await until(whole)
    for name in await pods():
        status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await client.patch(PODS, name, status, namespace, kind="merge", subresource="status")

    async def running() -> bool:
        found = (await client.get(PYTORCH_JOBS, "first", namespace)).get("status") or {}
        return any(
            one["type"] == "Running" and one["status"] == "True" for one in found.get("conditions") or ()
        )

    await until(running)

    await client.create(DEPLOYMENTS, operator(), namespace)

    async def left() -> bool:
        return await reason() == f"Deployment {namespace}/training-operator operates it"

    await until(left)
    await client.create(PYTORCH_JOBS, job("second"), namespace)
    with pytest.raises(AssertionError, match="still None"):
        await until(lambda: client.find(POD_GROUPS, "second", namespace), seconds=1)
    await client.delete(DEPLOYMENTS, "training-operator", namespace)
    await until(lambda: client.find(POD_GROUPS, "second", namespace))


async def operated(reasons: Any) -> bool:
    return reasons.get("kubeflow") == ""


async def test_windlass_operates_the_kinds_that_create_volcano_jobs(
    manager: tuple[ControllerManager, Client, str],
) -> None:
    made, client, namespace = manager
    assert made.job_kinds is not None
    reasons = made.job_kinds

    async def operated() -> bool:
        return reasons.reasons.get("volcano") == ""

    await until(operated)
    container = {"name": "c", "image": "i"}
    task = {"name": "t", "replicas": 1, "template": {"spec": {"containers": [container]}}}
    spec: Json = {"tasks": [task], "plugins": {"ssh": []}}
    for name in ("a", "b"):
        await client.create(JOB_TEMPLATES, {"metadata": {"name": name}, "spec": spec}, namespace)
    patch = {"jobSpec": {"tasks": [{"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}]}}
    flows = [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}, "patch": patch}]
    await client.create(JOB_FLOWS, {"metadata": {"name": "f"}, "spec": {"flows": flows}}, namespace)
    await until(lambda: client.find(SECRETS, "f-a-ssh", namespace))
    for name in ("a", "b"):
        job = await until(lambda name=name: client.find(VOLCANO_JOBS, f"f-{name}", namespace))
        assert job["metadata"]["labels"]["volcano.sh/createdByJobFlow"] == f"{namespace}.f"
        await _complete(client, namespace, f"f-{name}")
    assert job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"] == "j"

    async def succeeded() -> bool:
        status = (await client.get(JOB_FLOWS, "f", namespace)).get("status") or {}
        return status.get("state", {}).get("phase") == "Succeed"

    await until(succeeded)
    cron = {"schedule": "@every 1s", "jobTemplate": {"spec": {"tasks": [task]}}}
    await client.create(VOLCANO_CRON_JOBS, {"metadata": {"name": "tick"}, "spec": cron}, namespace)

    async def created() -> bool:
        jobs = (await client.list(VOLCANO_JOBS, namespace)).items
        return any(job["metadata"]["name"].startswith("tick-") for job in jobs)

    await until(created)
    await client.delete(VOLCANO_CRON_JOBS, "tick", namespace)


async def _complete(client: Client, namespace: str, name: str) -> None:
    """Play scheduler and kubelet for a job of one pod."""
    uid = (await client.get(VOLCANO_JOBS, name, namespace))["metadata"]["uid"]
    group = f"{name}-{uid}"
    await until(lambda: client.find(POD_GROUPS, group, namespace))
    await client.patch(POD_GROUPS, group, {"status": {"phase": "Inqueue"}}, namespace, subresource="status")
    pod = f"{name}-t-0"
    await until(lambda: client.find(PODS, pod, namespace))
    for phase in ("Running", "Succeeded"):
        change = {"status": {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}}
        await client.patch(PODS, pod, change, namespace, kind="merge", subresource="status")

    async def completed() -> bool:
        status = (await client.get(VOLCANO_JOBS, name, namespace)).get("status") or {}
        return status.get("state", {}).get("phase") == "Completed"

    await until(completed)
