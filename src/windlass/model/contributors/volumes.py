"""PersistentVolumeClaims: the pods that use each of them, and the volumes that a pod needs."""

from __future__ import annotations

from typing import Any

from windlass.api import views
from windlass.model.cluster.marks import DirtyMarks
from windlass.model.contributors.registry import Contributor, Place
from windlass.model.nodes.volume_binding import Item, VolumeIndex


class VolumeClaims(Contributor):
    """Storage objects, and the pods that have to be translated again when one of them changes."""

    pod_traits = ("claims",)

    def __init__(self, marks: DirtyMarks) -> None:
        self._marks = marks
        self.index = VolumeIndex()
        self._pods: dict[str, None] = {}
        """Pods that use claims."""
        self.users: dict[str, dict[str, None]] = {}
        """Claim (by key) → pods that name it."""

    def upsert(self, item: Item) -> None:
        """Enter a claim, a volume, a StorageClass, a CSINode, a driver, or the capacity of a storage pool."""
        if self.index.upsert(item):
            self._mark(item)

    def remove(self, item: Item) -> None:
        """Remove a storage object."""
        if self.index.remove(item):
            self._mark(item)

    def set_served(self) -> None:
        """From now on, treat an unknown claim as missing, as the server has claims and classes."""
        if not self.index.served:
            self.index.serve()
            self._marks.pods.update(self._pods)

    def _mark(self, item: Item) -> None:
        if isinstance(item, views.CsiNode):
            self._marks.nodes[item.name] = None
            return
        claims = self.index.concerned(item)
        if claims is None:
            self._marks.pods.update(self._pods)
            return
        for key in claims:
            self._marks.pods.update(self.users.get(key, {}))

    # ------------------------------------------------------------------ as a contributor

    def pod_shown(self, old: views.Pod | None, pod: views.Pod) -> None:
        """Record the claims that the pod names."""
        if pod.claims:
            self._pods[pod.key] = None
            for name in pod.claims:
                self.users.setdefault(f"{pod.namespace}/{name}", {})[pod.key] = None

    def pod_removed(self, pod: views.Pod) -> None:
        """Forget the claims that the pod named."""
        self._pods.pop(pod.key, None)
        for name in pod.claims:
            claim = f"{pod.namespace}/{name}"
            users = self.users.get(claim, {})
            users.pop(pod.key, None)
            if not users:
                self.users.pop(claim, None)

    def add_extras(self, pod: views.Pod, place: Place, extras: dict[str, Any]) -> None:
        """Add the volumes that the pod needs."""
        if pod.claims and (volumes := self.index.needs_of(pod.namespace, pod.claims)):
            extras["volumes"] = volumes
