"""A RayJob, RayCluster or RayService in a :class:`fakeapi.FakeApi`, reconciled step by step.

The test plays scheduler, kubelet, the Job controller and Ray's dashboard.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fakeapi import Crash, FakeApi, Words

from windlass.api.fields import ray
from windlass.api.resources import (
    BATCH_JOBS,
    POD_GROUPS,
    PODS,
    RAY_CLUSTERS,
    RAY_JOBS,
    RAY_SERVICES,
    Resource,
)
from windlass.client.ray_dashboard import RayJobInfo
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.ray.cluster_controller import RayClusterController
from windlass.controllers.ray.job_controller import RayJobController
from windlass.controllers.ray.service_controller import RayServiceController
from windlass.kits.clock import FakeClock

Json = dict[str, Any]


def group_template(image: str = "rayproject/ray:2.52.0", **container: Any) -> Json:
    main = {"name": "ray", "image": image, "resources": {"limits": {"cpu": "1500m", "memory": "2Gi"}}}
    return {"spec": {"containers": [{**main, **container}]}}


def cluster_spec(workers: int = 2, **more: Any) -> Json:
    group = {"groupName": "small", "replicas": workers, "minReplicas": 0, "maxReplicas": 5}
    return {
        "headGroupSpec": {"rayStartParams": {}, "template": group_template()},
        "workerGroupSpecs": [{**group, "rayStartParams": {}, "template": group_template()}],
        **more,
    }


def ray_cluster(workers: int = 2, labels: Json | None = None, **more: Any) -> Json:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "c", "namespace": "default", "labels": labels or {}},
        "spec": cluster_spec(workers, **more),
    }


def ray_job(**spec: Any) -> Json:
    given = {"entrypoint": "python a.py", "rayClusterSpec": cluster_spec(1), **spec}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            "name": "j",
            "namespace": "default",
            "annotations": {"kubectl.kubernetes.io/x": "y", "a": "b"},
        },
        "spec": {key: value for key, value in given.items() if value is not None},
    }


SERVE_CONFIG = """
applications:
- name: fruit
  import_path: fruit:app
"""


def ray_service(config: str = SERVE_CONFIG, **spec: Any) -> Json:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": "s", "namespace": "default", "labels": {"team": "a"}},
        "spec": {"serveConfigV2": config, "rayClusterConfig": cluster_spec(1), **spec},
    }


class FakeDashboard:
    """Ray's dashboard: submission id → job; and its Serve applications with the proxies of the heads."""

    def __init__(self) -> None:
        self.applications: dict[str, Json] = {}
        self.deployed: list[Json] = []
        self.proxies_answer = True
        self.jobs: dict[str, RayJobInfo] = {}
        self.submitted: list[Json] = []
        self.addresses: set[str] = set()

    def __call__(self, address: str) -> FakeDashboard:
        self.addresses.add(address)
        return self

    async def __aenter__(self) -> FakeDashboard:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def job(self, job_id: str) -> RayJobInfo | None:
        return self.jobs.get(job_id)

    async def submit(self, job: Json) -> None:
        self.submitted.append(job)
        self.jobs[job["submission_id"]] = RayJobInfo("PENDING", "queued")

    async def serve_applications(self) -> dict[str, Json]:
        return self.applications

    async def deploy_applications(self, config: Json) -> None:
        self.deployed.append(config)
        for application in config.get("applications") or ():
            self.applications.setdefault(application["name"], {"status": "DEPLOYING"})

    async def serve_proxy_answers(self) -> bool:
        return self.proxies_answer


_KINDS: dict[str, Resource] = {kind.kind: kind for kind in (RAY_CLUSTERS, RAY_JOBS, RAY_SERVICES)}


class RayWorld:
    """One object of Ray, the controllers of Ray, and everything else around them."""

    def __init__(self, manifest: Json) -> None:
        self.api = FakeApi(FakeClock())
        self.words = Words()
        self.dashboard = FakeDashboard()
        self.restart()
        self.api.put(_KINDS[manifest["kind"]], manifest)

    def restart(self) -> None:
        """The process died; a new one starts from what is stored."""
        self.api.crash_after = None
        api: Any = self.api
        self.clusters = RayClusterController(api, self.api.clock, "windlass", roles=True)
        self.jobs = RayJobController(api, self.api.clock, self.dashboard)  # type: ignore[arg-type]
        self.services = RayServiceController(api, self.api.clock, self.dashboard)  # type: ignore[arg-type]
        self.executor = EffectExecutor(api)

    def reconcile(self) -> int:
        """Reconcile everything once; return the number of writes."""

        async def once() -> int:
            writes = 0
            for controller, kind in (
                (self.services, RAY_SERVICES),
                (self.jobs, RAY_JOBS),
                (self.clusters, RAY_CLUSTERS),
            ):
                for key in list(self.api.stored.get(kind, {})):
                    effects = await controller.reconcile(key)
                    for event in effects.events:
                        self.words.event(event.about, event.type, event.reason, event.message)
                    writes += len((await self.executor.perform(effects)).written)
            return writes

        return asyncio.run(once())

    def settle(self) -> None:
        """Reconcile until nothing is written any more, with groups admitted and deleted pods gone."""
        for _ in range(60):
            for group in self.api.objects(POD_GROUPS):
                if not group.get("status"):
                    key = f"{group['metadata']['namespace']}/{group['metadata']['name']}"
                    self.api.change(POD_GROUPS, key, status={"phase": "Inqueue"})
            self.collect()
            if not self.reconcile():
                return
        raise AssertionError("it doesn't come to rest")

    def collect(self) -> None:
        """Finish deletions and collect what lost its owner."""
        self.api.finish_deletions()
        uids = {obj["metadata"]["uid"] for kind in self.api.stored for obj in self.api.objects(kind)}
        for kind in list(self.api.stored):
            for obj in self.api.objects(kind):
                owners = obj["metadata"].get("ownerReferences") or ()
                if any(owner["uid"] not in uids for owner in owners):
                    self.api.remove(kind, f"{obj['metadata']['namespace']}/{obj['metadata']['name']}")

    # What tests look at and play.

    def pods(self, kind: str = "") -> list[str]:
        return sorted(
            pod["metadata"]["name"]
            for pod in self.api.objects(PODS)
            if not kind or pod["metadata"]["labels"].get(ray.NODE_TYPE) == kind
        )

    def run(self, *names: str) -> None:
        """Let pods run and be ready; all without a name."""
        for name in names or self.pods():
            status = {
                "phase": "Running",
                "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            self.api.change(PODS, f"default/{name}", status=status)

    def fail(self, name: str) -> None:
        self.api.change(PODS, f"default/{name}", status={"phase": "Failed", "reason": "Evicted"})

    def end_submitter(self, kind: str = "Complete") -> None:
        self.api.change(BATCH_JOBS, "default/j", status={"conditions": [{"type": kind, "status": "True"}]})

    def tell(self, status: str, message: str = "") -> None:
        """Let the dashboard show a state of the present submission."""
        self.dashboard.jobs[self.job_status["jobId"]] = RayJobInfo(status, message, 1_767_268_800.0)

    def serve(self, *states: str) -> None:
        """Let the dashboard show applications in states; the first one is called ``fruit``."""
        names = ("fruit", "math")
        self.dashboard.applications = {
            name: {"status": state} for name, state in zip(names, states, strict=False)
        }

    def respecify(self, **cluster: Any) -> None:
        """Change the cluster of the RayService, as its user does."""
        (found,) = self.api.objects(RAY_SERVICES)
        spec = {**found["spec"]["rayClusterConfig"], **cluster}
        generation = found["metadata"]["generation"] + 1
        self.api.change(
            RAY_SERVICES, "default/s", spec={"rayClusterConfig": spec}, metadata={"generation": generation}
        )

    @property
    def service_status(self) -> Json:
        (found,) = self.api.objects(RAY_SERVICES)
        return found.get("status") or {}

    @property
    def cluster_status(self) -> Json:
        return self.api.objects(RAY_CLUSTERS)[0]["status"]

    @property
    def job_status(self) -> Json:
        (found,) = self.api.objects(RAY_JOBS)
        return found.get("status") or {}

    @property
    def state(self) -> str:
        return self.job_status.get("jobDeploymentStatus", "")


__all__ = ["Crash", "RayWorld", "cluster_spec", "group_template", "ray_cluster", "ray_job", "ray_service"]
