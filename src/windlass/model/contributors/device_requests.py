"""Requests for shares of devices, or for devices of a kind, beside the limits of a pod's containers."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.devices.annotations_read import annotation_words, is_device_annotation
from windlass.api.errors import FieldError
from windlass.model.cluster.marks import DirtyMarks
from windlass.model.contributors.claim_sharing import ClaimSharing
from windlass.model.contributors.device_claims import DeviceClaims
from windlass.model.contributors.registry import Contributor, Place
from windlass.model.devices import device_needs, reserved_devices
from windlass.model.devices.reserved_devices import NAMESPACE, NAMESPACE_KAI, DeviceReservationIndex
from windlass.model.pods import device_exclusion
from windlass.spi.objects import Dialect, Needs


class DeviceRequests(Contributor):
    """The pods that request shares of devices, and the devices that are held for sharing.

    ``exclusive``: the pods that share no device with one another (:mod:`windlass.model.pods.device_exclusion`).
    """

    pod_traits = ("shape.speaks_of_parts", "shape.claims")
    namespaces = (NAMESPACE, NAMESPACE_KAI)

    def __init__(
        self,
        marks: DirtyMarks,
        claims: DeviceClaims,
        sharing: ClaimSharing,
        exclusive: device_exclusion.Rules,
    ) -> None:
        self._marks = marks
        self._claims = claims
        self._sharing = sharing
        self.exclusive = exclusive
        self.pods: dict[str, tuple[tuple[str, str], ...]] = {}
        """Pods that request shares of devices or devices of a kind, with the annotations that do so."""
        self.reserved = DeviceReservationIndex()

    def mark_all(self) -> None:
        """Mark all pods that request shares."""
        self._marks.mark_pods(self.pods)

    def reserve(self, nodes: Iterable[str], *, cdi: bool) -> None:
        """From now on, devices that device plugins allocate are shared only while they are held for it."""
        self.reserved.enabled, self.reserved.cdi = True, cdi
        self._marks.mark_nodes(nodes)
        self.mark_all()

    def open_devices(self, nodes: Container[str], node: str, problem: str) -> None:
        """Set why no further device of a node can be held for sharing; ``""``: it can."""
        if problem:
            self.reserved.refusing[node] = problem
        else:
            self.reserved.refusing.pop(node, None)
        if node in nodes:
            self._marks.nodes[node] = None

    def held_needs(
        self, pod: views.Pod, needs: Needs, problems: tuple[FieldError, ...], *, waiting: bool
    ) -> tuple[Needs, tuple[FieldError, ...]]:
        """Return the needs of a pod that needs devices, and its problems, as far as held devices change them."""
        reserved = self.reserved
        if reserved.on_kai_reservation(pod):
            return reserved_devices.without_devices(needs), problems
        if waiting and reserved.enabled and (fault := reserved_devices.fault(pod)):
            return reserved_devices.on_share_nodes(needs), (*problems, fault) if reserved.strict else problems
        return needs, problems

    # ------------------------------------------------------------------ as a contributor

    def reads_pod(self, annotation: str) -> bool:
        """Return whether the annotation is about devices."""
        return is_device_annotation(annotation)

    def pod_shown(self, old: views.Pod | None, pod: views.Pod) -> None:
        """Keep what the pod requests, and which held devices it uses."""
        words = annotation_words(pod.annotations) if pod.annotations else ()
        shares, known = pod.shape.speaks_of_parts, pod.key in self.pods
        if words or shares or pod.shape.claims:
            self.pods[pod.key] = words
        elif known:
            del self.pods[pod.key]
        if known or words or shares or pod.namespace in self.namespaces:
            self._marks.mark_pods(self.reserved.note(old, pod))

    def pod_removed(self, pod: views.Pod) -> None:
        """Forget what the pod requested."""
        if self.pods.pop(pod.key, None) is not None or pod.namespace in self.namespaces:
            self._marks.mark_pods(self.reserved.note(pod, None))

    def add_extras(self, pod: views.Pod, place: Place, extras: dict[str, Any]) -> None:
        """Add what the pod says of devices beside its containers' limits."""
        words = self.pods.get(pod.key)
        if words is None:
            return
        kai, claims = place.dialect is Dialect.KAI, pod.shape.claims
        carries, avoids = device_exclusion.of_pod(pod, self.exclusive)
        named = pod.containers if any(name in device_needs.CONTAINER_ANNOTATIONS for name, _ in words) else ()
        asked, pinned = device_needs.NO_CLAIMS, ""
        if claims:
            together = self._sharing.starting_with(pod, place.group)
            asked, pinned = self._claims.needs_of(pod, together)
        if words or kai or carries or avoids or claims:
            mates = place.group if names.VGPU_SPREAD_VOLCANO in pod.annotations else ""
            extras["cards"] = device_needs.DeviceRequestContext(
                words, kai, mates, asked, named, pinned, carries=carries, avoids=avoids
            )
