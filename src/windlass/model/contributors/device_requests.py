"""Requests for device shares or devices of a kind, in addition to container limits."""

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
    """Pods that request device shares, and the devices that are reserved for sharing.

    ``exclusive``: the pods that share no device with one another
        (:mod:`windlass.model.pods.device_exclusion`).
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
        """Pods that request device shares or devices of a kind, with the annotations that do so."""
        self.reserved = DeviceReservationIndex()

    def mark_all(self) -> None:
        """Mark all pods that request shares."""
        self._marks.mark_pods(self.pods)

    def reserve(self, nodes: Iterable[str], *, cdi: bool) -> None:
        """From now on, share devices of device plugins only while a reservation holds them."""
        self.reserved.enabled, self.reserved.cdi = True, cdi
        self._marks.mark_nodes(nodes)
        self.mark_all()

    def open_devices(self, nodes: Container[str], node: str, problem: str) -> None:
        """Set why no further device of a node can be reserved for sharing; ``""``: it can."""
        if problem:
            self.reserved.refusing[node] = problem
        else:
            self.reserved.refusing.pop(node, None)
        if node in nodes:
            self._marks.nodes[node] = None

    def held_needs(
        self, pod: views.Pod, needs: Needs, problems: tuple[FieldError, ...], *, waiting: bool
    ) -> tuple[Needs, tuple[FieldError, ...]]:
        """Return the device needs of a pod and its problems, adjusted to reserved devices."""
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
        """Record the pod's requests, and the reserved devices that it uses."""
        annotations = annotation_words(pod.annotations) if pod.annotations else ()
        shares, known = pod.shape.speaks_of_parts, pod.key in self.pods
        if annotations or shares or pod.shape.claims:
            self.pods[pod.key] = annotations
        elif known:
            del self.pods[pod.key]
        if known or annotations or shares or pod.namespace in self.namespaces:
            self._marks.mark_pods(self.reserved.note(old, pod))

    def pod_removed(self, pod: views.Pod) -> None:
        """Forget the pod's requests."""
        if self.pods.pop(pod.key, None) is not None or pod.namespace in self.namespaces:
            self._marks.mark_pods(self.reserved.note(pod, None))

    def add_extras(self, pod: views.Pod, place: Place, extras: dict[str, Any]) -> None:
        """Add the pod's device requests other than its containers' limits."""
        annotations = self.pods.get(pod.key)
        if annotations is None:
            return
        kai, claims = place.dialect is Dialect.KAI, pod.shape.claims
        carries, avoids = device_exclusion.of_pod(pod, self.exclusive)
        named = (
            pod.containers
            if any(name in device_needs.CONTAINER_ANNOTATIONS for name, _ in annotations)
            else ()
        )
        needs, pinned = device_needs.NO_CLAIMS, ""
        if claims:
            together = self._sharing.starting_with(pod, place.group)
            needs, pinned = self._claims.needs_of(pod, together)
        if annotations or kai or carries or avoids or claims:
            mates = place.group if names.VGPU_SPREAD_VOLCANO in pod.annotations else ""
            extras["devices"] = device_needs.DeviceRequestContext(
                annotations, kai, mates, needs, named, pinned, carries=carries, avoids=avoids
            )
