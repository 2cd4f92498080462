"""Reconciler of RayServices: its caches, its snapshots, and its requests to Ray's dashboard and proxies."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from windlass.api.fields import ray
from windlass.api.fields.ray import HEAD
from windlass.api.resources import PODS, RAY_CLUSTERS, RAY_SERVICES, SERVICES
from windlass.api.views import Pod, decode_pod
from windlass.client.errors import Unreachable
from windlass.client.informers import Informer
from windlass.client.ray_dashboard import RayDashboard
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.ownership import ControlledBy
from windlass.controllers.ray.service_reconcile import (
    HeadPod,
    RayServiceSnapshot,
    ServeApplications,
    reconcile_ray_service,
)
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.ray.service import (
    RayService,
    read_ray_service,
    serve_applications,
    serve_service_of,
    served_cluster,
)
from windlass.kits.clock import Clock

Json = dict[str, Any]
_OWNED = ControlledBy(RAY_SERVICES)
log = logging.getLogger("windlass.controllers")


class RayServiceController:
    """RayServices. Keys are ``namespace/name``."""

    name = "rayservice"
    pause_seconds = 0.0

    def __init__(
        self, informers: Informers, clock: Clock, dashboard: Callable[[str], RayDashboard] = RayDashboard
    ) -> None:
        """``dashboard``: makes the client of a dashboard or proxy at ``http://host:port``."""
        self._clock, self._dashboard = clock, dashboard
        self._rays: Informer[StoredObject] = informers.informer(RAY_SERVICES, decode=decode_stored_object)
        self._clusters: Informer[StoredObject] = informers.informer(RAY_CLUSTERS, decode=decode_stored_object)
        self._services: Informer[StoredObject] = informers.informer(SERVICES, decode=decode_stored_object)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._clusters_of = RecordIndex(self._clusters, _OWNED.uids, lambda found: found.key)
        self._services_of = RecordIndex(self._services, _OWNED.uids, lambda found: found.key)
        self._pods_of = RecordIndex(self._pods, ControlledBy(RAY_CLUSTERS).pod_uids, lambda pod: pod.key)
        self._submitted: dict[str, str] = {}
        """Uid of a cluster → configuration that was submitted to it."""
        self._unused: dict[str, float] = {}
        """Uid of a cluster → time since which it is neither active nor pending."""
        self._clusters.add_handler(lambda _: None, lambda _old, _new: None, self._forget)

    def _forget(self, cluster: StoredObject) -> None:
        self._submitted.pop(cluster.uid, None)
        self._unused.pop(cluster.uid, None)

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._rays, lambda found: [found.key]),
            WatchedCollection(self._clusters, _OWNED.keys),
            WatchedCollection(self._services, _OWNED.keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._rays.items.get(key)
        if stored is None or stored.object["spec"].get("managedBy") not in (None, ray.OPERATOR):
            return NOTHING
        obj = stored.object
        namespace = key.partition("/")[0]
        clusters = {
            found.object["metadata"]["name"]: found for found in self._clusters_of.get(stored.uid).values()
        }
        services = {
            found.object["metadata"]["name"]: found.object
            for found in self._services_of.get(stored.uid).values()
        }
        names = (ray.head_service_name(obj["metadata"]["name"]), serve_service_of(obj))
        now = self._clock.now()
        observed = RayServiceSnapshot(
            clusters={name: found.object for name, found in clusters.items()},
            services=services,
            foreign=frozenset(
                name
                for name in names
                if f"{namespace}/{name}" in self._services.items and name not in services
            ),
            heads=await self._heads(obj, clusters.values()),
            serve=await self._serve(obj, {name: found.object for name, found in clusters.items()}),
            endpoints=self._endpoints(services.get(names[1]), clusters),
            unused=self._unused_since(obj, clusters, now),
            now=now,
        )
        return reconcile_ray_service(obj, observed)

    def _unused_since(self, obj: Json, clusters: dict[str, StoredObject], now: float) -> dict[str, float]:
        status = obj.get("status") or {}
        roles = ("activeServiceStatus", "pendingServiceStatus")
        used = {(status.get(role) or {}).get("rayClusterName") for role in roles}
        found: dict[str, float] = {}
        for name, cluster in clusters.items():
            if name in used:
                self._unused.pop(cluster.uid, None)
            else:
                found[name] = self._unused.setdefault(cluster.uid, now)
        return found

    def _endpoints(self, service: Json | None, clusters: dict[str, StoredObject]) -> int:
        """Return the number of ready pods that the Service for requests selects."""
        selector = ((service or {}).get("spec") or {}).get("selector") or {}
        cluster = clusters.get(selector.get(ray.CLUSTER) or "")
        if cluster is None:
            return 0
        pods = self._pods_of.get(cluster.uid).values()
        return sum(
            pod.ready and bool(pod.pod_ip) and pod.labels.get(ray.SERVE_LABEL) == "true" for pod in pods
        )

    async def _heads(self, obj: Json, clusters: Iterable[StoredObject]) -> dict[str, HeadPod]:
        try:
            service = read_ray_service(obj)
        except (ValueError, TypeError, KeyError, AttributeError):
            return {}
        found: dict[str, HeadPod] = {}
        for cluster in clusters:
            pods = self._pods_of.get(cluster.uid).values()
            head = next((pod for pod in pods if pod.labels.get(ray.NODE_TYPE) == HEAD), None)
            if head is None or head.deleting:
                continue
            found[cluster.object["metadata"]["name"]] = HeadPod(
                head.name,
                head.uid,
                head.labels.get(ray.SERVE_LABEL, ""),
                not service.exclude_head and bool(head.pod_ip) and await self._answers(head.pod_ip, service),
            )
        return found

    async def _answers(self, address: str, service: RayService) -> bool:
        async with self._dashboard(f"http://{address}:{service.serving_port}") as proxy:
            return await proxy.serve_proxy_answers()

    async def _serve(self, obj: Json, clusters: dict[str, Json]) -> ServeApplications | None:
        """Return the applications of the cluster that is to serve; submit them first if they are not there."""
        try:
            service = read_ray_service(obj)
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        status = obj.get("status") or {}
        active, pending = (
            clusters.get((status.get(f"{role}ServiceStatus") or {}).get("rayClusterName") or "")
            for role in ("active", "pending")
        )
        cluster = served_cluster(service, status, active, pending)
        address = _ready_head(cluster) if cluster is not None else ""
        if cluster is None or not address or service.suspend:
            return None
        name, uid = cluster["metadata"]["name"], cluster["metadata"]["uid"]
        try:
            async with self._dashboard(f"http://{address}:{ray.DASHBOARD_PORT}") as dashboard:
                found = await dashboard.serve_applications()
                if found and self._submitted.get(uid) == service.config:
                    return ServeApplications(name, found)
                await dashboard.deploy_applications(serve_applications(service.config))
        except Unreachable as problem:
            log.debug("rayservice: %s: the dashboard cannot be read: %s", name, problem)
            return ServeApplications(name, problem=str(problem))
        self._submitted[uid] = service.config
        return ServeApplications(name, found, submitted=True)


def _ready_head(cluster: Mapping[str, Any]) -> str:
    """Return the address of the head if it is ready; else an empty string."""
    status = cluster.get("status") or {}
    ready = any(
        one.get("type") == "HeadPodReady" and one.get("status") == "True"
        for one in status.get("conditions") or ()
    )
    return ((status.get("head") or {}).get("podIP") or "") if ready else ""
