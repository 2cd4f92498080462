"""Volcano Jobs and the objects around them, against the embedded server and a real kube-apiserver.

The reconcilers run as they do in production. Scheduler and node agent are played by the test, which writes
the phases of groups and pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from clusters import Cluster

from windlass.api import annotations as names
from windlass.api.errors import StatusError
from windlass.api.resources import (
    COMMANDS,
    CONFIG_MAPS,
    NAMESPACES,
    POD_GROUPS,
    PODS,
    QUEUES,
    RESOURCE_QUOTAS,
    SERVICES,
    VOLCANO_JOBS,
    VOLCANO_JOBS_V1BETA1,
    Resource,
)
from windlass.client.client import Client
from windlass.client.http import HttpTransport
from windlass.controllers.manager import ControllerManager
from windlass.kits import rng as randomness
from windlass.kits.clock import SystemClock
from windlass.kits.timestamps import rfc3339

Json = dict[str, Any]
pytestmark = pytest.mark.timeout(400)


@dataclass
class Scene:
    """A namespace of the test's own on a running cluster with running reconcilers."""

    client: Client
    namespace: str
    embedded: bool

    async def until(self, check: Callable[[], Awaitable[Any]], seconds: float = 90.0) -> Any:
        """What ``check`` answers when it is true; the test fails when that takes too long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not (answer := await check()):
            assert loop.time() < deadline, f"still {answer!r} after {seconds} s"
            await asyncio.sleep(0.05)
        return answer

    async def clear(self) -> None:
        """Delete jobs and pods, which schedulers of other tests on this server would place."""
        for resource in (VOLCANO_JOBS, POD_GROUPS, PODS):
            for found in (await self.client.list(resource, self.namespace)).items:
                with suppress(StatusError):
                    await self.client.delete(
                        resource, found["metadata"]["name"], self.namespace, grace_seconds=0
                    )

    async def job(self, name: str = "train") -> Json:
        return await self.client.get(VOLCANO_JOBS, name, self.namespace)

    async def submit(self, *tasks: Json, name: str = "train", **spec: Any) -> Json:
        manifest = {
            "metadata": {"name": name},
            "spec": {"schedulerName": "volcano", "queue": "default", "tasks": list(tasks), **spec},
        }
        return await self.client.create(VOLCANO_JOBS, manifest, self.namespace)

    async def phase(self, wanted: str, name: str = "train") -> Json:
        async def reached() -> Json | None:
            job = await self.job(name)
            return job if job.get("status", {}).get("state", {}).get("phase") == wanted else None

        return await self.until(reached)

    async def group(self, job: Json) -> Json:
        name = f"{job['metadata']['name']}-{job['metadata']['uid']}"
        return await self.until(lambda: self.client.find(POD_GROUPS, name, self.namespace))

    async def admit(self, group: Json, phase: str = "Inqueue") -> None:
        """As the scheduler does."""
        name = group["metadata"]["name"]
        change = {"status": {"phase": phase}}
        await self.client.patch(POD_GROUPS, name, change, self.namespace, subresource="status")

    async def pods(self) -> dict[str, Json]:
        found = await self.client.list(PODS, self.namespace)
        return {pod["metadata"]["name"]: pod for pod in found.items}

    async def exactly(self, *wanted: str) -> dict[str, Json]:
        """The pods, as soon as they are just these and none is on its way out."""

        async def there() -> tuple[dict[str, Json]] | None:
            pods = await self.pods()
            leaving = any(pod["metadata"].get("deletionTimestamp") for pod in pods.values())
            return (pods,) if not leaving and sorted(pods) == sorted(wanted) else None

        return (await self.until(there))[0]

    async def set_pod(self, name: str, phase: str, exit_code: int | None = None) -> None:
        """As the node agent does."""
        status: Json = {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if phase == "Running" else "False"}],
        }
        if exit_code is not None:
            terminated = {"exitCode": exit_code, "finishedAt": "2026-01-01T12:00:00Z", "reason": "Done"}
            status["containerStatuses"] = [
                {
                    "name": "main",
                    "state": {"terminated": terminated},
                    "ready": False,
                    "restartCount": 0,
                    "image": "",
                    "imageID": "",
                }
            ]
        await self.client.patch(
            PODS, name, {"status": status}, self.namespace, kind="merge", subresource="status"
        )

    async def gone(self, resource: Resource, name: str) -> None:
        async def absent() -> bool:
            return await self.client.find(resource, name, self.namespace) is None

        await self.until(absent)

    async def command(self, action: str, resource: Resource, name: str) -> None:
        target = {"apiVersion": resource.api_version, "kind": resource.kind, "name": name}
        manifest = {
            "metadata": {"generateName": "do-"},
            "action": action,
            "target": {**target, "uid": ""},
        }
        await self.client.create(COMMANDS, manifest, self.namespace)


@pytest.fixture
async def scene(cluster: Cluster) -> AsyncIterator[Scene]:
    """The embedded server's process runs the reconcilers itself; on a real cluster the test does."""
    clock, rng = SystemClock(), randomness.system()
    embedded = cluster.name == "embedded"
    async with (
        Client(HttpTransport(cluster.connection), clock=clock, rng=rng) as client,
        Client(
            HttpTransport(cluster.connection), user_agent="windlass-controllers", clock=clock, rng=rng
        ) as own,
    ):
        namespace = cluster.new_namespace("jobs")
        work: asyncio.Future[None] | None = None
        if not embedded:
            manager = ControllerManager(own, clock=clock, rng=rng, embedded=False)
            work = asyncio.ensure_future(manager.run())
        made = Scene(client, namespace, embedded)
        try:
            yield made
        finally:
            await made.clear()
            if work is not None:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
        assert work is None or work.cancelled(), "the manager ended by itself"


def task(name: str = "worker", replicas: int = 2, **more: Any) -> Json:
    containers = [{"name": "main", "image": "python", "command": ["sleep", "1"]}]
    containers[0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}  # type: ignore[assignment]
    spec = {"restartPolicy": "Never", "containers": containers, "terminationGracePeriodSeconds": 0}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


async def test_a_gang_from_submission_to_its_deletion(scene: Scene) -> None:
    job = await scene.submit(
        task("master", 1),
        task("worker", 3),
        minAvailable=4,
        ttlSecondsAfterFinished=1,
        plugins={"pytorch": [], "env": []},
    )
    held = {"metadata": {"finalizers": ["tests.windlass.dev/held"]}}  # until it was seen completed
    await scene.client.patch(VOLCANO_JOBS, "train", held, scene.namespace)
    group = await scene.group(job)
    assert group["spec"]["minMember"] == 4
    assert group["spec"]["minTaskMember"] == {"master": 1, "worker": 3}
    assert group["spec"]["minResources"] == {"nvidia.com/gpu": "4"}
    await scene.phase("Pending")
    assert await scene.pods() == {}
    await scene.admit(group)
    everyone = ("train-master-0", "train-worker-0", "train-worker-1", "train-worker-2")
    pods = await scene.exactly(*everyone)
    worker = pods["train-worker-1"]
    assert worker["metadata"]["annotations"][names.GROUP_NAME] == group["metadata"]["name"]
    assert worker["metadata"]["labels"][names.TASK_INDEX] == "1"
    env = {entry["name"]: entry.get("value") for entry in worker["spec"]["containers"][0]["env"]}
    assert env["MASTER_ADDR"] == "train-master-0.train"
    assert (env["RANK"], env["WORLD_SIZE"], env["VC_TASK_INDEX"]) == ("2", "4", "1")
    service = await scene.client.get(SERVICES, "train", scene.namespace)
    assert service["spec"]["clusterIP"] == "None"
    hosts = await scene.client.get(CONFIG_MAPS, "train-svc", scene.namespace)
    assert hosts["data"]["VC_MASTER_HOSTS"] == "train-master-0.train"
    for name in everyone:
        await scene.set_pod(name, "Running")
    running = await scene.phase("Running")
    assert running["status"]["running"] == 4
    for name in everyone:
        await scene.set_pod(name, "Succeeded", 0)
    done = await scene.phase("Completed")
    assert done["status"]["succeeded"] == 4
    assert [c["status"] for c in done["status"]["conditions"]] == ["Pending", "Running", "Completed"]
    # Its time to live is over; everything that it owned goes with it.
    await scene.client.patch(VOLCANO_JOBS, "train", {"metadata": {"finalizers": None}}, scene.namespace)
    await scene.gone(VOLCANO_JOBS, "train")
    await scene.exactly()
    await scene.gone(POD_GROUPS, group["metadata"]["name"])


async def test_a_failed_rank_restarts_the_gang_once(scene: Scene) -> None:
    job = await scene.submit(
        task("worker", 3), minAvailable=3, policies=[{"event": "PodFailed", "action": "RestartJob"}]
    )
    everyone = [f"train-worker-{index}" for index in range(3)]
    first = await scene.group(job)
    await scene.admit(first)
    old = await scene.exactly(*everyone)
    for name in everyone:
        await scene.set_pod(name, "Running")
    await scene.phase("Running")
    await scene.set_pod("train-worker-1", "Failed", 137)

    async def second_group() -> Json | None:
        group = await scene.client.find(POD_GROUPS, first["metadata"]["name"], scene.namespace)
        return group if group and group["metadata"]["uid"] != first["metadata"]["uid"] else None

    await scene.admit(await scene.until(second_group))
    new = await scene.exactly(*everyone)
    assert all(new[name]["metadata"]["uid"] != old[name]["metadata"]["uid"] for name in everyone)
    assert {pod["metadata"]["annotations"][names.JOB_VERSION] for pod in new.values()} == {"1"}
    for name in everyone:
        await scene.set_pod(name, "Running")
    again = await scene.phase("Running")
    assert (again["status"]["version"], again["status"]["retryCount"]) == (1, 1)
    for name in everyone:
        await scene.set_pod(name, "Succeeded", 0)
    await scene.phase("Completed")


async def test_what_a_suspended_job_attained_is_told_on_its_next_group(scene: Scene) -> None:
    job = await scene.submit(
        task("worker", 2), minAvailable=2, policies=[{"event": "PodEvicted", "action": "RestartJob"}]
    )
    everyone = ["train-worker-0", "train-worker-1"]
    first = (await scene.group(job))["metadata"]
    await scene.admit({"metadata": first})
    await scene.exactly(*everyone)
    for name in everyone:
        await scene.set_pod(name, "Running")
    await scene.phase("Running")
    attained = {
        names.ATTAINED: "0s",
        names.ATTAINED_AT: rfc3339(SystemClock().now()),
        names.SUSPENSIONS: "1",
    }
    # as the scheduler suspends
    await scene.client.patch(
        POD_GROUPS, first["name"], {"metadata": {"annotations": attained}}, scene.namespace
    )
    for name in everyone:
        with suppress(StatusError):  # the policy may have deleted the second pod meanwhile
            await scene.client.delete(PODS, name, scene.namespace, grace_seconds=0)

    async def second_group() -> Json | None:
        group = await scene.client.find(POD_GROUPS, first["name"], scene.namespace)
        return group["metadata"] if group and group["metadata"]["uid"] != first["uid"] else None

    second = await scene.until(second_group)
    wanted = attained | {names.ATTAINED_SINCE: first["creationTimestamp"]}
    assert {name: second["annotations"].get(name) for name in wanted} == wanted


async def test_without_a_policy_a_failed_rank_fails_the_job(scene: Scene) -> None:
    await scene.admit(await scene.group(await scene.submit(task("worker", 2), minAvailable=2)))
    await scene.exactly("train-worker-0", "train-worker-1")
    await scene.set_pod("train-worker-0", "Failed", 1)
    await scene.set_pod("train-worker-1", "Succeeded", 0)
    failed = await scene.phase("Failed")
    assert failed["status"]["state"]["message"] == "task worker: 1 of 2 pods succeeded, 2 are needed"


async def test_abort_and_resume_by_command(scene: Scene) -> None:
    group = await scene.group(await scene.submit(task("worker", 2)))
    await scene.admit(group)
    await scene.exactly("train-worker-0", "train-worker-1")
    await scene.command("AbortJob", VOLCANO_JOBS, "train")
    await scene.phase("Aborted")
    assert await scene.pods() == {}
    await scene.gone(POD_GROUPS, group["metadata"]["name"])
    await scene.command("ResumeJob", VOLCANO_JOBS, "train")
    resumed = await scene.phase("Pending")
    assert resumed["status"]["retryCount"] == 1
    await scene.admit(await scene.group(resumed))
    await scene.exactly("train-worker-0", "train-worker-1")
    assert (await scene.client.list(COMMANDS, scene.namespace)).items == []


async def test_deleting_a_job_takes_all_that_it_owns(scene: Scene) -> None:
    group = await scene.group(await scene.submit(task("worker", 2), plugins={"svc": []}))
    await scene.admit(group)
    await scene.exactly("train-worker-0", "train-worker-1")
    await scene.client.delete(VOLCANO_JOBS, "train", scene.namespace)
    await scene.exactly()
    for resource, name in (
        (POD_GROUPS, group["metadata"]["name"]),
        (SERVICES, "train"),
        (CONFIG_MAPS, "train-svc"),
        (VOLCANO_JOBS, "train"),
    ):
        await scene.gone(resource, name)


async def test_the_older_name_of_the_api_is_the_same_job(scene: Scene) -> None:
    manifest = {"metadata": {"name": "old"}, "spec": {"minAvailable": 1, "tasks": [task("worker", 1)]}}
    created = await scene.client.create(VOLCANO_JOBS_V1BETA1, manifest, scene.namespace)
    await scene.admit(await scene.group(created))
    await scene.exactly("old-worker-0")


async def test_scaling(scene: Scene) -> None:
    group = await scene.group(await scene.submit(task("worker", 2), minAvailable=1))
    await scene.admit(group)
    await scene.exactly("train-worker-0", "train-worker-1")
    for replicas in (3, 1):
        tasks = (await scene.job())["spec"]["tasks"]
        tasks[0].update(replicas=replicas, minAvailable=1)
        await scene.client.patch(VOLCANO_JOBS, "train", {"spec": {"tasks": tasks}}, scene.namespace)
        await scene.exactly(*[f"train-worker-{index}" for index in range(replicas)])
    job = await scene.job()
    assert job["status"].get("retryCount", 0) == 0


async def test_a_bare_pod_gets_a_group_that_goes_with_it(scene: Scene) -> None:
    pod = {
        "metadata": {"name": "solo"},
        "spec": {
            "schedulerName": "volcano",
            "containers": [{"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "4"}}}],
        },
    }
    created = await scene.client.create(PODS, pod, scene.namespace)
    name = f"podgroup-{created['metadata']['uid']}"
    group = await scene.until(lambda: scene.client.find(POD_GROUPS, name, scene.namespace))
    assert group["spec"]["minMember"] == 1
    assert group["spec"]["minResources"]["nvidia.com/gpu"] == "4"

    async def told() -> bool:
        found = await scene.client.get(PODS, "solo", scene.namespace)
        return (found["metadata"].get("annotations") or {}).get(names.GROUP_NAME) == name

    await scene.until(told)
    await scene.client.delete(PODS, "solo", scene.namespace, grace_seconds=0)
    await scene.gone(POD_GROUPS, name)


async def test_queues_close_and_open_by_command(scene: Scene) -> None:
    for required in ("root", "default"):
        found = await scene.until(lambda name=required: scene.client.find(QUEUES, name))
        assert found["spec"]["weight"] == 1
    queue = f"q-{scene.namespace}"
    await scene.client.create(QUEUES, {"metadata": {"name": queue}, "spec": {"weight": 1}})

    async def is_in(state: str) -> Json | None:
        found = await scene.client.get(QUEUES, queue)
        return found if found.get("status", {}).get("state") == state else None

    opened = await scene.until(lambda: is_in("Open"))
    assert opened["spec"]["parent"] == "root"
    group = {"metadata": {"name": "g"}, "spec": {"minMember": 1, "queue": queue}}
    await scene.client.create(POD_GROUPS, group, scene.namespace)

    async def counted() -> bool:
        found = await scene.client.get(QUEUES, queue)
        return found["status"].get("pending") == 1

    await scene.until(counted)
    await scene.command("CloseQueue", QUEUES, queue)
    await scene.until(lambda: is_in("Closing"))
    await scene.client.delete(POD_GROUPS, "g", scene.namespace)
    await scene.until(lambda: is_in("Closed"))
    await scene.command("OpenQueue", QUEUES, queue)
    await scene.until(lambda: is_in("Open"))
    await scene.client.delete(QUEUES, queue)


async def test_a_namespace_takes_its_content_with_it(scene: Scene) -> None:
    await scene.group(await scene.submit(task("worker", 2), plugins={"svc": []}))
    await scene.client.delete(NAMESPACES, scene.namespace)

    async def absent() -> bool:
        return await scene.client.find(NAMESPACES, scene.namespace) is None

    await scene.until(absent, 180)
    assert (await scene.client.list(VOLCANO_JOBS, scene.namespace)).items == []


async def test_what_a_quota_says_is_used(scene: Scene) -> None:
    hard = {"requests.nvidia.com/gpu": "8", "limits.nvidia.com/gpu": "8", "pods": "10"}
    quota = {"metadata": {"name": "q"}, "spec": {"hard": hard}}
    await scene.client.create(RESOURCE_QUOTAS, quota, scene.namespace)

    async def used(gpus: str, pods: str) -> bool:
        found = (await scene.client.get(RESOURCE_QUOTAS, "q", scene.namespace)).get("status", {})
        taken = found.get("used") or {}
        return (taken.get("requests.nvidia.com/gpu"), taken.get("pods")) == (gpus, pods)

    await scene.until(lambda: used("0", "0"))
    group = await scene.group(await scene.submit(task("worker", 2)))
    await scene.admit(group)
    await scene.exactly("train-worker-0", "train-worker-1")
    await scene.until(lambda: used("2", "2"))
    found = await scene.client.get(RESOURCE_QUOTAS, "q", scene.namespace)
    assert found["status"]["hard"] == hard
    assert "limits.nvidia.com/gpu" not in found["status"]["used"]
    await scene.client.delete(VOLCANO_JOBS, "train", scene.namespace)
    await scene.until(lambda: used("0", "0"))
