"""Reconciler of the number of workers: its caches, its snapshots, and its calls of users' classes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

from windlass.api.fields import aigc
from windlass.api.resources import AIGC_JOBS, CONFIG_MAPS, NODES, PODS, QUEUES, SECRETS
from windlass.api.views import NodeObject, Pod, QueueObject, decode_node, decode_pod, decode_queue
from windlass.client.batch_driver import BatchDriver, DriverUnreachable
from windlass.client.client import Client
from windlass.client.informers import Informer
from windlass.controllers.aigc.controller import DriverOf
from windlass.controllers.aigc_scaling.inputs import WorkerOnNode, measure, pending_jobs, whole
from windlass.controllers.aigc_scaling.quota import workers_within
from windlass.controllers.aigc_scaling.reconcile import (
    LOADING,
    SILENT,
    SOON_SECONDS,
    STARTING,
    ScalingSnapshot,
    due_in,
    reconcile_scaling,
    replicas_of,
)
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.ownership import ControlledBy
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.aigc.autoscale import Autoscale, ScalerPlugin, autoscale_of, scales
from windlass.jobs.aigc.job import AigcJob, read_aigc_job
from windlass.jobs.aigc.pods import driver_among, token_of
from windlass.jobs.gang import pod_request
from windlass.kits.clock import Clock
from windlass.scaling.measurement import Measurement, values_of
from windlass.scaling.recommendation import Recommendation

Json = dict[str, Any]
_OWNED = ControlledBy(AIGC_JOBS)
_INACTIVE = ("Succeeded", "Failed", "Suspended", "Terminating")
PEEK = "/v1/status?peek=true"
"""Path of the status. The driver does not end after this read: the controller of the job needs its last one."""
log = logging.getLogger("windlass.controllers")


class AigcScalingController:
    """AIGCJobs with ``spec.autoscale``. Keys are ``namespace/name``."""

    name = "aigcscaling"
    pause_seconds = 0.0

    def __init__(self, client: Client, informers: Informers, clock: Clock, driver_of: DriverOf) -> None:
        self._client, self._clock, self._driver_of = client, clock, driver_of
        self._jobs: Informer[StoredObject] = informers.informer(AIGC_JOBS, decode=decode_stored_object)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._nodes: Informer[NodeObject] = informers.informer(NODES, decode=decode_node)
        self._queues: Informer[QueueObject] = informers.informer(QUEUES, decode=decode_queue)
        self._pods_of = RecordIndex(self._pods, _OWNED.pod_uids, lambda pod: pod.key)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._jobs, lambda job: [job.key] if _scales(job.object) else []),
            WatchedCollection(self._pods, lambda _: ()),
            WatchedCollection(self._nodes, lambda _: ()),
            WatchedCollection(self._queues, lambda _: ()),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._jobs.items.get(key)
        if stored is None or not _scales(stored.object):
            return NOTHING
        obj, now = stored.object, self._clock.now()
        left = due_in(obj, now)
        if left > 0:
            return Effects(requeue_after=left)
        try:
            job = read_aigc_job(obj)
            scale = autoscale_of(obj["spec"])
        except (ValueError, TypeError, KeyError, AttributeError):
            return NOTHING  # the controller of the job reports it
        pods = self._pods_of.get(stored.uid).values()
        driver = driver_among(pods)
        if scale is None or driver is None:
            return Effects(requeue_after=SOON_SECONDS)
        if driver.phase in ("Succeeded", "Failed"):
            return Effects(requeue_after=SOON_SECONDS)  # the job ends, or begins again with a new driver
        link, problem = await self._link(job, driver)
        batch, problem = await _status(link, problem)
        roles = {role.key for role in job.workers}
        workers = [self._worker(pod, job) for pod in pods if pod.labels.get(aigc.ROLE) in roles]
        queried = await _queried(scale, link, problem, now)
        measured = measure(obj, workers, job.gpus, batch, problem, self._pending(obj, job), now, queried)
        replicas = replicas_of(obj)
        measured.append(Measurement("workers", float(replicas.current), "status", now))
        quota, words = self._within_quota(job, workers)
        observed = ScalingSnapshot(
            workers=workers,
            measurements=measured,
            custom=await self._custom(obj, scale, link, problem, measured),
            quota=quota,
            quota_words=words,
            finished=bool((batch or {}).get("finished")),
            now=self._clock.now(),
        )
        return reconcile_scaling(obj, scale, observed)

    def _within_quota(self, job: AigcJob, workers: Iterable[WorkerOnNode]) -> tuple[int | None, str]:
        """Return the workers for which the queue has quota. Those of stages differ: admission holds them back."""
        if job.plan is not None:
            return None, ""
        request = pod_request(job.worker.pod_spec)
        return workers_within(
            self._queues.items,
            job.definition.gang.queue,
            {name: amount * job.shards for name, amount in request.items()},
            whole(one for one in workers if one.node),
        )

    def _worker(self, pod: Pod, job: AigcJob) -> WorkerOnNode:
        node = self._nodes.items.get(pod.node_name)
        return WorkerOnNode(
            name=pod.name,
            namespace=pod.namespace,
            running=pod.phase == "Running",
            node=pod.node_name if pod.phase not in ("Succeeded", "Failed") else "",
            annotations=pod.annotations,
            labels=node.labels if node is not None else {},
            notes=node.annotations if node is not None else {},
            worker=pod.labels.get(aigc.INDEX, ""),
            shards=job.shards,
        )

    def _pending(self, obj: Json, job: AigcJob) -> int:
        jobs = (stored.object for stored in self._jobs.items.values())
        return pending_jobs(jobs, obj["metadata"].get("uid") or "", job.definition.gang.queue)

    async def _link(self, job: AigcJob, driver: Pod) -> tuple[BatchDriver | None, str]:
        """Return the connection to the driver, or why there is none."""
        if driver.phase != "Running":
            return None, STARTING
        secret = await self._client.find(SECRETS, job.objects_name, job.definition.namespace)
        try:
            token = token_of(secret or {})
        except ValueError:
            return None, f"the Secret {job.objects_name} has no token"
        return self._driver_of(driver.namespace, driver.name, driver.pod_ip, job.port, token), ""

    async def _custom(
        self, obj: Json, scale: Autoscale, link: BatchDriver | None, problem: str, measured: list[Measurement]
    ) -> Recommendation | None:
        """Ask the class of a user, which runs in the pod of the driver."""
        if scale.plugin is None:
            return None
        replicas = replicas_of(obj)
        where = scale.plugin.shown

        def unchanged(why: str) -> Recommendation:
            return Recommendation(where, replicas.current, f"{where}: {why}", why)

        if link is None:
            return unchanged(problem)
        plugin, problem = await self._plugin(obj, scale.plugin)
        if problem:
            return unchanged(problem)
        body = {
            "plugin": plugin,
            "metrics": values_of(measured),
            "replicas": {
                "current": replicas.current,
                "minimum": replicas.minimum,
                "maximum": replicas.maximum,
            },
        }
        try:
            answer = await asyncio.to_thread(link.post, "/v1/scaling", body)
        except DriverUnreachable as error:
            return unchanged(f"{SILENT}: {error}")
        if answer.get("loading"):
            return unchanged(LOADING)
        if "source" not in answer:
            return unchanged(str(answer.get("error") or "the answer of the driver has no number"))
        return Recommendation(
            str(answer["source"]),
            int(answer["replicas"]),
            str(answer["arithmetic"]),
            str(answer.get("error") or ""),
            tuple(answer.get("reads") or ()),
        )

    async def _plugin(self, obj: Json, plugin: ScalerPlugin) -> tuple[dict[str, str], str]:
        """Return where the class is, for the driver; or why its text cannot be read."""
        found = {"name": plugin.shown, "reference": plugin.reference, "source": plugin.source}
        found["class"] = plugin.class_name
        if plugin.config_map:
            namespace = obj["metadata"].get("namespace") or "default"
            config = await self._client.find(CONFIG_MAPS, plugin.config_map, namespace)
            data = (config or {}).get("data") or {}
            if config is None:
                return found, f"there is no ConfigMap {plugin.config_map} in namespace {namespace}"
            if plugin.key not in data:
                keys = ", ".join(sorted(data)) or "none"
                return found, f"ConfigMap {plugin.config_map} has no key {plugin.key}; its keys: {keys}"
            found["source"] = str(data[plugin.key])
        return {name: text for name, text in found.items() if text}, ""


async def _status(link: BatchDriver | None, problem: str) -> tuple[Json | None, str]:
    """Return the status of the driver, or why there is none."""
    if link is None:
        return None, problem
    try:
        return await asyncio.to_thread(link.get, PEEK), ""
    except DriverUnreachable as error:
        log.debug("aigcscaling: the driver cannot be read: %s", error)
        return None, f"{SILENT}: {error}"


async def _queried(scale: Autoscale, link: BatchDriver | None, problem: str, now: float) -> list[Measurement]:
    """Return the metrics of Prometheus, which the driver asks."""
    if not scale.queries:
        return []
    answer: Json = {}
    if link is not None:
        body = {"address": scale.prometheus, "queries": dict(scale.queries)}
        try:
            answer = await asyncio.to_thread(link.post, "/v1/metrics", body)
        except DriverUnreachable as error:
            problem = f"{SILENT}: {error}"
    found = []
    for name in scale.queries:
        one = answer.get(name) or {"problem": problem or "the driver did not query it"}
        value, at = one.get("value"), float(one.get("at") or now)
        found.append(Measurement(name, value, scale.prometheus, at, str(one.get("problem") or "")))
    return found


def _scales(obj: Json) -> bool:
    status = aigc.part(obj, "status")
    return (
        scales(aigc.part(obj, "spec"))
        and status.get("phase") not in _INACTIVE
        and not obj["metadata"].get("deletionTimestamp")
        and not aigc.part(aigc.part(obj, "spec"), "policy").get("suspend")
    )
