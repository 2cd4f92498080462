"""ResourceClaims (DRA): the pods that name them, and the devices that pods hold by them."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from msgspec.structs import replace as altered

from windlass.api import views
from windlass.api.devices.request import WHOLE
from windlass.api.quantities import is_device
from windlass.model.cluster.marks import DirtyMarks, Membership, SentState
from windlass.model.contributors.registry import Contributor
from windlass.model.devices.device_needs import ClaimedDevices
from windlass.model.devices.dra_claims import AssumedClaims, DraClaims, Item
from windlass.spi.devices import DeviceMode
from windlass.spi.objects import Task


class DeviceClaims(Contributor):
    """Claims, and the pods and nodes that have to be translated again when one of them changes."""

    pod_traits = ("shape.claims",)

    def __init__(
        self,
        marks: DirtyMarks,
        sent: SentState,
        membership: Membership,
        pods: Mapping[str, views.Pod],
        assumed: Mapping[str, AssumedClaims],
    ) -> None:
        self._marks = marks
        self._sent = sent
        self._membership = membership
        self._pods = pods
        self.index = DraClaims(assumed)
        self.pods: dict[str, None] = {}
        """Pods that name claims."""
        self.stale_nodes: dict[str, None] = {}
        """Nodes with devices that the claims do not know yet."""

    def upsert(self, item: Item) -> None:
        """Enter a ResourceClaim, a ResourceClaimTemplate, a DeviceClass or a ResourceSlice."""
        before = self.index.claims.get(item.key) if isinstance(item, views.DeviceClaim) else None
        if self.index.upsert(item):
            self._mark(item)
            if before is not None:
                self._marks.mark_nodes(before.nodes)

    def remove(self, item: Item) -> None:
        """Remove one of them."""
        if self.index.remove(item):
            self._mark(item)

    def _mark(self, item: Item) -> None:
        if isinstance(item, views.ResourceSlice):
            self._marks.mark_nodes(self.index.inventory.nodes_of(item))
        if isinstance(item, views.DeviceClaim):  # other claims are not affected
            self._marks.mark_pods(self.index.users_of(item.key))
            self._marks.mark_nodes(item.nodes)
        else:
            self._marks.pods.update(self.pods)

    def bind_forgotten(self, key: str) -> None:
        """Mark the pods that share claims with a pod when its bind is no longer assumed.

        Another pod may carry the claims then.
        """
        if key in self.pods:
            self._mark_sharers(self._pods[key])

    def learn_devices(self, nodes: Mapping[str, views.NodeObject]) -> None:
        """Pass the devices of stale nodes to the claims, which select among them.

        On a node with a kubelet only a driver allocates devices to claims, and that
        driver lists them itself.
        """
        stale, self.stale_nodes = self.stale_nodes, {}
        changed = False
        for name in stale:
            node, view = self._sent.nodes.get(name), nodes.get(name)
            driven = (view is not None and view.kubelet) or self.index.listed_devices(name)
            devices = () if node is None or driven else node.devices
            plain = (device for device in devices if device.mode is not DeviceMode.SLICED)
            changed = self.index.learn(name, plain) or changed
        if changed:
            self._marks.pods.update(self.pods)

    def needs_of(self, pod: views.Pod, together: Container[str]) -> tuple[ClaimedDevices, str]:
        """Return the needs of a pod's claims, and the node that they pin it to (``""``: none).

        ``together``: the pods with which it starts on one node.
        """
        return self.index.needs_of(pod, self._pods, together)

    def sharers(self, pod: views.Pod, among: Callable[[views.Pod], bool]) -> tuple[str, dict[str, views.Pod]]:
        """Return the first claim that a pod shares, and all pods that share claims with it.

        The pod itself is included.

        ``among``: whether another pod counts.
        """
        return self.index.sharers(pod, self._pods, among)

    def _mark_sharers(self, pod: views.Pod) -> None:
        self._marks.mark_pods(self.sharers(pod, lambda _: True)[1])

    # ------------------------------------------------------------------ as a contributor

    def pod_shown(self, old: views.Pod | None, pod: views.Pod) -> None:
        """Mark the pods that share claims with the pod, and the nodes of its claims."""
        if not pod.shape.claims:
            return
        self.pods[pod.key] = None
        self.index.use(pod)
        self._mark_sharers(pod)
        if old is None or old.node_name != pod.node_name or old.finished != pod.finished:
            self._marks.mark_nodes(self.index.nodes_of(pod))

    def pod_removed(self, pod: views.Pod) -> None:
        """Mark the same for a deleted pod."""
        if self.pods.pop(pod.key, pod.key) is None:
            self._mark_sharers(pod)
            self.index.leave(pod)
            self._marks.mark_nodes(self.index.nodes_of(pod))

    def adjusted(self, pod: views.Pod, task: Task) -> Task:
        """Return the task with the devices of its claims; protected while other groups use them, too."""
        if not pod.shape.claims:
            return task
        task = self._with_devices(pod, task)
        return altered(task, preemptible=False) if self._keeps_in_use(pod) else task

    def _with_devices(self, pod: views.Pod, task: Task) -> Task:
        """Return the task with its devices in the order of its needs, if only claims name them.

        An index can belong to devices of several drivers.
        """
        if not pod.node_name or pod.shape.devices:
            return task
        held = self.index.held(pod, self._pods)
        plain = sum(units >= WHOLE and is_device(name) for name, units in pod.shape.request.items())
        if not held or (plain and task.devices):
            return task
        return altered(task, devices=tuple(device.index for device in held))

    def _keeps_in_use(self, pod: views.Pod) -> bool:
        """Return whether pods of other groups would keep its devices in use after its eviction."""
        group_of = self._membership.group_of
        group = group_of.get(pod.key)
        return self.index.keeps_in_use(
            pod, self._pods, lambda other: group is None or group_of.get(other.key) != group
        )
