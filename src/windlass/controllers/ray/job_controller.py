"""Reconciler of RayJobs: its caches, its snapshots, and its looks at Ray's dashboard."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from windlass.api.fields import ray
from windlass.api.resources import BATCH_JOBS, RAY_CLUSTERS, RAY_JOBS
from windlass.client.errors import Unreachable
from windlass.client.informers import Informer
from windlass.client.ray_dashboard import RayDashboard, RayJobInfo
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import StoredObject, decode_stored_object
from windlass.controllers.ownership import ControlledBy
from windlass.controllers.ray.job_reconcile import RayJobSnapshot, reconcile_ray_job
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.ray.job import RUNNING, RayJob, read_ray_job
from windlass.kits.clock import Clock

Json = dict[str, Any]
_OWNED = ControlledBy(RAY_JOBS)
log = logging.getLogger("windlass.controllers")


class RayJobController:
    """RayJobs. Keys are ``namespace/name``."""

    name = "rayjob"
    pause_seconds = 0.0

    def __init__(
        self, informers: Informers, clock: Clock, dashboard: Callable[[str], RayDashboard] = RayDashboard
    ) -> None:
        """``dashboard``: makes the client of a dashboard at ``http://host:port``."""
        self._clock, self._dashboard = clock, dashboard
        self._rays: Informer[StoredObject] = informers.informer(RAY_JOBS, decode=decode_stored_object)
        self._clusters: Informer[StoredObject] = informers.informer(RAY_CLUSTERS, decode=decode_stored_object)
        self._jobs: Informer[StoredObject] = informers.informer(BATCH_JOBS, decode=decode_stored_object)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._rays, lambda found: [found.key]),
            WatchedCollection(self._clusters, _OWNED.keys),
            WatchedCollection(self._jobs, _OWNED.keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._rays.items.get(key)
        if stored is None or stored.object["spec"].get("managedBy") not in (None, ray.OPERATOR):
            return NOTHING
        namespace, _, name = key.partition("/")
        status = stored.object.get("status") or {}
        cluster = self._clusters.items.get(f"{namespace}/{status.get('rayClusterName')}")
        submitter = self._jobs.items.get(f"{namespace}/{name}")
        observed = RayJobSnapshot(
            cluster=cluster.object if cluster is not None else None,
            submitter=submitter.object if submitter is not None and key in _OWNED.keys(submitter) else None,
            info=await self._look(stored.object, cluster)
            if status.get("jobDeploymentStatus") == RUNNING
            else None,
            now=self._clock.now(),
        )
        return reconcile_ray_job(stored.object, observed)

    async def _look(self, obj: Json, cluster: StoredObject | None) -> RayJobInfo | None:
        """Return the job as the dashboard shows it; in ``HTTPMode`` submit it there first."""
        head = ((cluster.object.get("status") or {}).get("head") or {}) if cluster is not None else {}
        if not head.get("podIP"):
            return None
        job_id = obj["status"].get("jobId") or ""
        try:
            job = read_ray_job(obj)
            async with self._dashboard(f"http://{head['podIP']}:{ray.DASHBOARD_PORT}") as dashboard:
                info = await dashboard.job(job_id)
                if info is None and job.mode == ray.HTTP_MODE:
                    await dashboard.submit(_submission(job, job_id))
                    info = await dashboard.job(job_id)
                return info
        except (Unreachable, ValueError) as problem:
            log.debug("rayjob: %s: the dashboard cannot be read: %s", job_id, problem)
            return None


def _submission(job: RayJob, job_id: str) -> Json:
    """Return the body of a submission in ``HTTPMode``."""
    import json

    body: Json = {"entrypoint": job.entrypoint, "submission_id": job_id}
    if job.runtime_env:
        body["runtime_env"] = json.loads(job.runtime_env)
    if job.spec.get("metadata"):
        body["metadata"] = job.spec["metadata"]
    for key, field in (
        ("entrypoint_num_cpus", "entrypointNumCpus"),
        ("entrypoint_num_gpus", "entrypointNumGpus"),
    ):
        if job.spec.get(field):
            body[key] = float(job.spec[field])
    if job.spec.get("entrypointResources"):
        body["entrypoint_resources"] = json.loads(job.spec["entrypointResources"])
    return body
