"""Writes before and with a binding: annotations, claims, volumes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from windlass.api import views
from windlass.engine.decision import Bind
from windlass.model.cluster.assumed_binds import AssumedBinds
from windlass.model.cluster.marks import SentState
from windlass.model.cluster.object_cache import ObjectCache
from windlass.model.contributors.features import Features
from windlass.model.devices import assignment
from windlass.model.devices.dra_claims import ClaimWrite, writes_for
from windlass.model.nodes import numa
from windlass.model.nodes.volume_binding import StorageWrite
from windlass.spi.objects import Dialect


class BindWrites:
    """Writes of binds. ``manages``: whether this scheduler places a pod."""

    def __init__(
        self,
        objects: ObjectCache,
        binds: AssumedBinds,
        sent: SentState,
        features: Features,
        manages: Callable[[views.Pod], bool],
    ) -> None:
        self._objects = objects
        self._binds = binds
        self._sent = sent
        self._features = features
        self._manages = manages

    def annotations(self, bind: Bind, now: float) -> dict[str, str]:
        """Return the annotations that go with a binding: the devices of the pod, and its NUMA zones."""
        objects, features = self._objects, self._features
        if not bind.devices:
            carried = features.claims.index.carried_annotations(
                bind.task, objects.pods, self._decided_devices
            )
            return {**carried, **numa.annotations_of(bind.zones)}
        group = self._sent.groups.get(bind.group)
        dialect = group.dialect if group is not None else Dialect.VOLCANO
        pod = objects.pods.get(bind.task)
        written = assignment.annotations_of(bind, pod, objects.nodes.get(bind.node), dialect, now)
        return written | features.requests.reserved.annotations_of(bind, pod)

    def _decided_devices(self, pod: str) -> dict[str, str]:
        """Return the annotations for the devices of a pod with a binding in flight."""
        assumed = self._binds.assumed.get(pod)
        return assignment.own_annotations(assumed.shares) if assumed is not None else {}

    def storage_writes(self, pod: str, node: str) -> list[StorageWrite]:
        """Return the writes about the volumes of a pod before it is bound to a node."""
        view, place = self._objects.pods.get(pod), self._sent.nodes.get(node)
        if view is None or place is None or not view.claims:
            return []
        return self._features.volumes.index.writes_for(view.namespace, view.claims, place)

    def claim_writes(self, bind: Bind, now: float, together: Collection[str] = ()) -> list[ClaimWrite]:
        """Return the writes about the claims of a pod before it is bound. ``now``: Unix seconds.

        ``together``: pods that start with it. The claims that they share are written
            for them, too. Raises
            :class:`~windlass.model.devices.dra_claims.ClaimsChanged`.
        """
        pods = self._objects.pods
        pod = pods.get(bind.task)
        if pod is None or not pod.shape.claims:
            return []
        claims = self._features.claims.index
        return writes_for(claims, pod, bind, pods, now, self._manages, together)

    def sharers(self, binds: Iterable[Bind]) -> dict[str, None]:
        """Return the pods among a gang's binds that share a claim that no pod has yet."""
        pods, claims = self._objects.pods, self._features.claims.index
        users: dict[str, list[str]] = {}
        for bind in binds:
            pod = pods.get(bind.task)
            for reference in pod.shape.claims if pod is not None else ():
                if reference.claim:
                    users.setdefault(f"{bind.task.partition('/')[0]}/{reference.claim}", []).append(bind.task)
        shared = [
            tasks
            for claim, tasks in users.items()
            if len(tasks) > 1
            and (carrier := claims.carrier_of(claim, pods)) is not None
            and carrier.key in tasks
        ]
        return dict.fromkeys(task for tasks in shared for task in tasks)
