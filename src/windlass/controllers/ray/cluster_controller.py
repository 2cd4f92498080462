"""Reconciler of RayClusters: its caches and its snapshots."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.api.fields import ray
from windlass.api.fields.ray import HEAD, HEAD_GROUP, head_service_name
from windlass.api.resources import POD_GROUPS, PODS, PRIORITY_CLASSES, RAY_CLUSTERS, SERVICES
from windlass.api.views import Pod, PriorityClass, decode_pod, decode_priority_class
from windlass.client.informers import Informer
from windlass.controllers.effects import NOTHING, Effects
from windlass.controllers.expectations import RecordIndex, StoredObject, decode_stored_object
from windlass.controllers.ownership import ControlledBy, pods_of
from windlass.controllers.ray.cluster_reconcile import RayClusterSnapshot, reconcile_cluster
from windlass.controllers.replacement_delays import ReplacementDelays
from windlass.controllers.runner import Informers, WatchedCollection
from windlass.jobs.members import job_pods
from windlass.kits.clock import Clock

_OWNED = ControlledBy(RAY_CLUSTERS)
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 10.0, 300.0
"""Delays before a pod that fails again is replaced, as those of a node between two restarts."""


class RayClusterController:
    """RayClusters. Keys are ``namespace/name``."""

    name = "raycluster"
    pause_seconds = 0.0

    def __init__(self, informers: Informers, clock: Clock, scheduler: str, *, roles: bool = False) -> None:
        """``scheduler``: default scheduler of pods. ``roles``: the server has role-based access."""
        self._clock, self._scheduler, self._roles = clock, scheduler, roles
        self._delays = ReplacementDelays(FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS)
        self._clusters: Informer[StoredObject] = informers.informer(RAY_CLUSTERS, decode=decode_stored_object)
        self._pods: Informer[Pod] = informers.informer(PODS, decode=decode_pod)
        self._groups: Informer[StoredObject] = informers.informer(POD_GROUPS, decode=decode_stored_object)
        self._services: Informer[StoredObject] = informers.informer(SERVICES, decode=decode_stored_object)
        self._classes: Informer[PriorityClass] = informers.informer(
            PRIORITY_CLASSES, decode=decode_priority_class
        )
        self._pods_of = RecordIndex(self._pods, _OWNED.pod_uids, lambda pod: pod.key, pods_of(RAY_CLUSTERS))

    def watches(self) -> Iterable[WatchedCollection]:
        return (
            WatchedCollection(self._clusters, lambda found: [found.key]),
            WatchedCollection(self._pods, _OWNED.pod_keys, route=pods_of(RAY_CLUSTERS)),
            WatchedCollection(self._groups, _OWNED.keys),
            WatchedCollection(self._services, _OWNED.keys),
        )

    def initial_keys(self) -> Iterable[str]:
        return ()

    async def reconcile(self, key: str) -> Effects:
        stored = self._clusters.items.get(key)
        if stored is None or stored.object["spec"].get("managedBy") not in (None, ray.OPERATOR):
            self._delays.forget(key)
            return NOTHING
        namespace, _, name = key.partition("/")
        pods = list(self._pods_of.get(stored.uid).values())
        group = self._groups.items.get(key)
        service = self._services.items.get(f"{namespace}/{head_service_name(name)}")
        observed = RayClusterSnapshot(
            pods=job_pods(pods, ray.GROUP, "", _roles(pods), {}),
            addresses={pod.name: pod.pod_ip for pod in pods},
            group=group.object if group is not None else None,
            service=service.object if service is not None else None,
            priorities={name: found.value for name, found in self._classes.items.items()},
            now=self._clock.now(),
            scheduler=self._scheduler,
            roles=self._roles,
            not_before=self._delays.not_before(key),
        )
        effects = reconcile_cluster(stored.object, observed)
        replaced = {action.name for action in effects.deletes if action.resource == PODS}
        for pod in observed.pods:
            if pod.name in replaced and pod.failed and not pod.disrupted:
                self._delays.note(key, pod.name, observed.now)
        return effects


def _roles(pods: Iterable[Pod]) -> dict[str, str]:
    """Return label of the group → role: ``head``, or the group itself."""
    groups = {pod.labels.get(ray.GROUP, "") for pod in pods}
    return {group: HEAD if group == HEAD_GROUP else group for group in groups}
