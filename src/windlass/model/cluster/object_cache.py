"""What the model has been shown: the objects as they are, and what has changed since it was last asked.

Events only mark what they touch. Who translates the marked things is :mod:`windlass.model.cluster.delta_builder`.
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.devices.request_parser import annotation_words
from windlass.api.reasons import Reason
from windlass.engine.decision import DeviceShare
from windlass.model.autoscaling import provisioning
from windlass.model.cluster.ownership import Ownership
from windlass.model.devices.assignment import names_devices
from windlass.model.devices.dra_claims import DraClaims, Item
from windlass.model.devices.reserved_devices import NAMESPACE, NAMESPACE_KAI, DeviceReservationIndex
from windlass.model.groups import podgroups
from windlass.model.nodes.numa import NumaReports
from windlass.model.nodes.topology import TopologyIndex
from windlass.model.nodes.volume_binding import Item as StorageItem
from windlass.model.nodes.volume_binding import VolumeIndex
from windlass.model.pods.label_vocabulary import Vocabulary, selects_namespaces
from windlass.model.pods.task_needs import NeedsTable
from windlass.model.queues import engine_queue
from windlass.spi.objects import Group, HeldSlice

IMPLIED = (engine_queue.ROOT, engine_queue.DEFAULT)
_RESERVING = (NAMESPACE, NAMESPACE_KAI)


@dataclass(frozen=True, slots=True)
class Assumed:
    """A bind that was decided and is not yet seen. ``at``: when it was, Unix seconds; 0.0: nobody knows."""

    uid: str
    node: str
    devices: tuple[int, ...] = ()
    slices: tuple[HeldSlice, ...] = ()
    shares: tuple[DeviceShare, ...] = ()
    """The same cards, each with what of it was decided."""
    at: float = 0.0

    def shown_by(self, pod: views.Pod) -> bool:
        """Whether a pod is bound as was decided, with the same cards; else somebody else bound it first."""
        where = (pod.uid, pod.node_name) == (self.uid, self.node)
        return where and names_devices(pod.annotations, self.devices, self.slices)


def _provisioning(queue: views.QueueObject | views.KaiQueue | None) -> dict[str, str]:
    """What a queue says of how nodes are asked for."""
    words = (names.PROVISIONING_CLASS, names.PROVISIONING_PARAMETER)
    found = queue.annotations.items() if queue is not None else ()
    return {name: value for name, value in found if name.startswith(words)}


class ObjectCache:
    """Objects by key, and the marks on them."""

    def __init__(self) -> None:
        self.pods: dict[str, views.Pod] = {}
        self.nodes: dict[str, views.NodeObject] = {}
        self.queues: dict[str, views.QueueObject] = {}
        self.groups: dict[str, views.PodGroup] = {}
        self.kai_queues: dict[str, views.KaiQueue] = {}
        self.kai_groups: dict[str, views.KaiPodGroup] = {}
        self.native_groups: dict[str, views.NativeGroup] = {}
        self.coscheduling_groups: dict[str, views.CoschedulingGroup] = {}
        self.assumed: dict[str, Assumed] = {}
        self._decided: dict[str, tuple[str, float]] = {}
        """Pods that were bound as was decided here → which incarnation, and when that was decided; Unix seconds."""
        self.awaited: dict[str, dict[Reason, str]] = {}
        """Assumed pods that are not bound before something is there: what, in words."""
        self.classes = podgroups.Classes()
        self.storage = VolumeIndex()
        self.topology = TopologyIndex()
        self.zones = NumaReports()
        self._near_groups: dict[str, None] = {}
        """Groups whose pods say how near to one another they are to be."""
        self._namespaces: dict[str, views.Namespace] = {}
        self._namespace_labels: dict[str, dict[str, str]] = {}
        self._vocabulary = Vocabulary()
        self._needs = NeedsTable(self._vocabulary, self._namespace_labels)
        self._node_groups: dict[str, views.QueueAffinity] = {}
        self._claimers: dict[str, None] = {}
        """Pods that use claims."""
        self._users: dict[str, dict[str, None]] = {}
        """Claim for storage (by key) → the pods that name it."""
        self.claims = DraClaims(self.assumed)
        self._claim_pods: dict[str, None] = {}
        """Pods that name claims for devices."""
        self._kinds_stale: dict[str, None] = {}
        """Nodes whose cards claims have not been told of."""
        self._card_words: dict[str, tuple[tuple[str, str], ...]] = {}
        """Pods that ask for parts of cards or for cards of a kind, with the annotations that say so."""
        self.reserved = DeviceReservationIndex()
        self._quotas: dict[str, views.ResourceQuota] = {}
        self.requests: dict[str, dict[str, views.ProvisioningRequest]] = {}
        """Group → the requests for nodes that Windlass has made for it, by name."""
        self.serves_requests = False
        """Whether the cluster has such requests, and shows them."""
        self.ownership = Ownership(())
        """What keeps apart from another scheduler of the same name."""
        self._dirty_pods: dict[str, None] = {}
        self._dirty_groups: dict[str, None] = {}
        self._dirty_nodes: dict[str, None] = {}
        self._dirty_queues: dict[str, None] = dict.fromkeys(IMPLIED)
        self._dirty_quotas: dict[str, None] = {}
        self._members: dict[str, dict[str, None]] = {}
        self._sent_groups: dict[str, Group] = {}

    def upsert_pod(self, pod: views.Pod) -> None:
        old = self.pods.get(pod.key)
        self.pods[pod.key] = pod
        self._dirty_pods[pod.key] = None
        if self.ownership:
            self.ownership.note(pod)
        self._vocabulary.learn(pod.shape)
        if pod.claims:
            self._claimers[pod.key] = None
            for name in pod.claims:
                self._users.setdefault(f"{pod.namespace}/{name}", {})[pod.key] = None
        words = annotation_words(pod.annotations) if pod.annotations else ()
        if pod.shape.claims:
            self._claim_pods[pod.key] = None
            self.claims.use(pod)
            self._dirty_pods.update(self._sharers(pod))
            if old is None or old.node_name != pod.node_name or old.finished != pod.finished:
                self._dirty_nodes.update(dict.fromkeys(self.claims.nodes_of(pod)))
        known = pod.key in self._card_words
        if words or pod.shape.speaks_of_parts or pod.shape.claims:
            self._card_words[pod.key] = words
        elif known:
            del self._card_words[pod.key]
        if known or words or pod.shape.speaks_of_parts or pod.namespace in _RESERVING:
            self._dirty_pods.update(dict.fromkeys(self.reserved.note(old, pod)))

    def remove_pod(self, key: str) -> None:
        pod = self.pods.pop(key, None)
        if pod is not None:
            if self._claim_pods.pop(key, key) is None:
                self._dirty_pods.update(self._sharers(pod))
                self.claims.leave(pod)
                self._dirty_nodes.update(dict.fromkeys(self.claims.nodes_of(pod)))
            self._dirty_pods[key] = None
            self.ownership.forget(key)
            self._claimers.pop(key, None)
            for name in pod.claims:
                users = self._users.get(f"{pod.namespace}/{name}", {})
                users.pop(key, None)
                if not users:
                    self._users.pop(f"{pod.namespace}/{name}", None)
            if self._card_words.pop(key, None) is not None or pod.namespace in _RESERVING:
                self._dirty_pods.update(dict.fromkeys(self.reserved.note(pod, None)))

    def _sharers(self, pod: views.Pod) -> dict[str, None]:
        """The pods that share claims with a pod, and the pod."""
        return dict.fromkeys(self.claims.sharers(pod, self.pods, lambda other: True)[1])

    def upsert_node(self, node: views.NodeObject) -> None:
        known = self.nodes.get(node.name)
        if known is None or known.labels != node.labels:
            self.topology.nodes_changed()
        self.nodes[node.name] = node
        self._dirty_nodes[node.name] = None

    def remove_node(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self._dirty_nodes[name] = None
            self.topology.nodes_changed()

    def upsert_claim(self, item: Item) -> None:
        """A claim for devices, a template or a class of them, or the devices that a driver lists."""
        before = self.claims.claims.get(item.key) if isinstance(item, views.DeviceClaim) else None
        if self.claims.upsert(item):
            self._touch_claims(item)
            if before is not None:
                self._dirty_nodes.update(dict.fromkeys(before.nodes))

    def remove_claim(self, item: Item) -> None:
        if self.claims.remove(item):
            self._touch_claims(item)

    def _touch_claims(self, item: Item) -> None:
        if isinstance(item, views.ResourceSlice):
            self._dirty_nodes.update(dict.fromkeys(self.claims.inventory.nodes_of(item)))
        if isinstance(item, views.DeviceClaim):  # it says nothing about others' claims
            self._dirty_pods.update(dict.fromkeys(self.claims.users_of(item.key)))
            self._dirty_nodes.update(dict.fromkeys(item.nodes))
        else:
            self._dirty_pods.update(self._claim_pods)

    def upsert_topology(self, item: views.HyperNode | views.Topology) -> None:
        if self.topology.upsert(item):
            self._touch_topology()

    def remove_topology(self, item: views.HyperNode | views.Topology) -> None:
        if self.topology.remove(item):
            self._touch_topology()

    def upsert_zones(self, report: views.NodeTopology) -> None:
        """What is reported of the NUMA zones of a node."""
        if self.zones.upsert(report):
            self._dirty_nodes[report.name] = None

    def remove_zones(self, report: views.NodeTopology) -> None:
        if self.zones.remove(report):
            self._dirty_nodes[report.name] = None

    def _touch_topology(self) -> None:
        """All that ask how near to one another pods are."""
        self._dirty_groups.update((key, None) for key, group in self.groups.items() if _is_near(group))
        self._dirty_groups.update((kai_key(group), None) for group in self.kai_groups.values())
        for key in self._near_groups:
            self._dirty_groups[key] = None
            self._dirty_pods.update(dict.fromkeys(self._members.get(key, ())))

    def upsert_quota(self, quota: views.ResourceQuota) -> None:
        self._quotas[quota.key] = quota
        self._dirty_quotas[quota.key] = None

    def remove_quota(self, quota: views.ResourceQuota) -> None:
        if self._quotas.pop(quota.key, None) is not None:
            self._dirty_quotas[quota.key] = None

    def upsert_storage(self, item: StorageItem) -> None:
        """A claim, a volume, a class of them, what a node attaches, a driver, or what its pools hold."""
        if self.storage.upsert(item):
            self._touch_storage(item)

    def remove_storage(self, item: StorageItem) -> None:
        if self.storage.remove(item):
            self._touch_storage(item)

    def storage_is_served(self) -> None:
        """The server has claims and classes of them: from now on a claim that is not known does not exist."""
        if not self.storage.served:
            self.storage.serve()
            self._dirty_pods.update(self._claimers)

    def _touch_storage(self, item: StorageItem) -> None:
        if isinstance(item, views.CsiNode):
            self._dirty_nodes[item.name] = None
            return
        claims = self.storage.concerned(item)
        if claims is None:
            self._dirty_pods.update(self._claimers)
            return
        for key in claims:
            self._dirty_pods.update(self._users.get(key, {}))

    def upsert_queue(self, queue: views.QueueObject) -> None:
        self._note_node_groups(queue.name, queue.node_groups)
        self._note_class(self.queues.get(queue.name), queue)
        self.queues[queue.name] = queue
        self._dirty_queues[queue.name] = None

    def _note_class(
        self, old: views.QueueObject | views.KaiQueue | None, new: views.QueueObject | views.KaiQueue
    ) -> None:
        """How nodes are asked for may be another for every group of this queue and those below it."""
        if _provisioning(new) != _provisioning(old):
            self._dirty_groups.update(dict.fromkeys(self._members))

    def remove_queue(self, name: str) -> None:
        if self.queues.pop(name, None) is not None:
            self._dirty_queues[name] = None
            self._note_node_groups(name, None)

    def _note_node_groups(self, queue: str, found: views.QueueAffinity | None) -> None:
        """Keep which queues say something about groups of nodes: their pods' needs depend on it."""
        if self._node_groups.get(queue) == found:
            return
        if found is None:
            del self._node_groups[queue]
        else:
            self._node_groups[queue] = found
        self._dirty_pods.update(dict.fromkeys(self.pods))

    def upsert_group(self, group: views.PodGroup) -> None:
        if self.ownership and self._hide(group.key, group):
            self._drop_group(group.key)
            return
        if self.ownership and group.key not in self.groups:
            self._dirty_pods.update(dict.fromkeys(self.ownership.pods_of(group.key)))
        self.groups[group.key] = group
        self._dirty_groups[group.key] = None
        self._touch_sharers(group.key)

    def _hide(self, key: str, group: views.PodGroup | views.KaiPodGroup) -> bool:
        """Whether the group is another scheduler's. Pods of it that are placed here all the same hear of what stands in
        their way."""
        before = self.ownership.foreign.get(key)
        hides = self.ownership.hides(key, group)
        if self.ownership.foreign.get(key) != before and key in self._members:
            self._dirty_groups[key] = None
        return hides

    def remove_group(self, key: str) -> None:
        if self.ownership.foreign.pop(key, None) is not None and key in self._members:
            self._dirty_groups[key] = None
        self._drop_group(key)

    def _drop_group(self, key: str) -> None:
        if self.groups.pop(key, None) is not None:
            self._dirty_groups[key] = None
            self._dirty_pods.update(dict.fromkeys(self.ownership.pods_of(key)))

    def upsert_kai_queue(self, queue: views.KaiQueue) -> None:
        if not self.kai_queues:
            self._touch_kai_names()
        self._note_class(self.kai_queues.get(queue.name), queue)
        self.kai_queues[queue.name] = queue
        self._dirty_queues[engine_queue.KAI + queue.name] = None

    def remove_kai_queue(self, name: str) -> None:
        if self.kai_queues.pop(name, None) is not None:
            self._dirty_queues[engine_queue.KAI + name] = None
            if not self.kai_queues:
                self._touch_kai_names()

    def upsert_kai_group(self, group: views.KaiPodGroup) -> None:
        key = kai_key(group)
        if self.ownership and self._hide(key, group):
            self._drop_kai_group(group.key)
            return
        if self.ownership and group.key not in self.kai_groups:
            self._dirty_pods.update(dict.fromkeys(self.ownership.pods_of(key)))
        self.kai_groups[group.key] = group
        self._dirty_groups[key] = None
        self._touch_sharers(key)

    def _touch_sharers(self, group: str) -> None:
        """Whether pods of a gang that share claims can start together depends on its sub-groups."""
        if group in self._near_groups:
            self._dirty_pods.update(
                (key, None) for key in self._members.get(group, ()) if key in self._claim_pods
            )

    def remove_kai_group(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        hidden = f"{namespace}/{podgroups.KAI}{name}"
        if self.ownership.foreign.pop(hidden, None) is not None and hidden in self._members:
            self._dirty_groups[hidden] = None
        self._drop_kai_group(key)

    def _drop_kai_group(self, key: str) -> None:
        group = self.kai_groups.pop(key, None)
        if group is not None:
            self._dirty_groups[kai_key(group)] = None
            self._dirty_pods.update(dict.fromkeys(self.ownership.pods_of(kai_key(group))))

    def upsert_native_group(self, group: views.NativeGroup) -> None:
        self.native_groups[group.key] = group
        self._touch_native(group.key)

    def remove_native_group(self, key: str) -> None:
        if self.native_groups.pop(key, None) is not None:
            self._touch_native(key)

    def upsert_coscheduling_group(self, group: views.CoschedulingGroup) -> None:
        self.coscheduling_groups[group.key] = group
        self._touch_coscheduling(group)

    def remove_coscheduling_group(self, key: str) -> None:
        group = self.coscheduling_groups.pop(key, None)
        if group is not None:
            self._touch_coscheduling(group)

    def upsert_request(self, request: views.ProvisioningRequest) -> None:
        group = provisioning.group_of(request)
        if group:
            self.requests.setdefault(group, {})[request.name] = request
            self._dirty_groups[group] = None

    def remove_request(self, request: views.ProvisioningRequest) -> None:
        group = provisioning.group_of(request)
        if self.requests.get(group, {}).pop(request.name, None) is not None:
            self._dirty_groups[group] = None
            if not self.requests[group]:
                del self.requests[group]

    def upsert_class(self, priority_class: views.PriorityClass) -> None:
        if self.classes.upsert(priority_class):
            self._touch_classes()

    def remove_class(self, name: str) -> None:
        if self.classes.remove(name):
            self._touch_classes()

    def upsert_namespace(self, namespace: views.Namespace) -> None:
        old = self._namespaces.get(namespace.name)
        self._namespaces[namespace.name] = namespace
        labels = dict(namespace.labels)
        labels.setdefault("kubernetes.io/metadata.name", namespace.name)
        if self._namespace_labels.get(namespace.name) != labels:
            self._namespace_labels[namespace.name] = labels
            self._touch_namespace_selectors()
        if (old.annotations if old else {}) != namespace.annotations:
            prefix = f"{namespace.name}/"
            self._dirty_pods.update((key, None) for key in self.pods if key.startswith(prefix))
            for native in self.native_groups.values():
                if native.namespace == namespace.name:
                    self._touch_native(native.key)
            for group in self.coscheduling_groups.values():
                if group.namespace == namespace.name:
                    self._touch_coscheduling(group)

    def remove_namespace(self, name: str) -> None:
        if self._namespaces.pop(name, None) is not None:
            del self._namespace_labels[name]
            self._touch_namespace_selectors()

    def forget(self, key: str, uid: str) -> bool:
        """The bind has been seen, or will not come. Whether it was still assumed."""
        found = self.assumed.get(key)
        if found is None or found.uid != uid:
            return False
        del self.assumed[key]
        pod = self.pods.get(key)
        if pod is not None and (pod.uid, pod.node_name) == (uid, found.node):
            self._decided[key] = uid, found.at
        self.awaited.pop(key, None)
        if key in self._claim_pods:  # who carries what it shares may be another now
            self._dirty_pods.update(self._sharers(self.pods[key]))
        return True

    def _touch_classes(self) -> None:
        """All groups, and pods whose priority the server did not resolve."""
        self._dirty_groups.update(dict.fromkeys(self.groups))
        for key in self._sent_groups:
            if podgroups.kind_prefix(key) in (podgroups.KAI, podgroups.NATIVE, podgroups.COSCHEDULING):
                self._dirty_groups[key] = None
        self._dirty_pods.update((key, None) for key, pod in self.pods.items() if pod.priority is None)

    def _touch_native(self, key: str) -> None:
        """The groups of an object of Kubernetes' own API, and their pods."""
        namespace, _, name = key.partition("/")
        whole = f"{namespace}/{podgroups.NATIVE}{name}"
        for group in [whole, *(known for known in self._members if known.startswith(whole + ":"))]:
            self._dirty_groups[group] = None
            self._dirty_pods.update(dict.fromkeys(self._members.get(group, ())))

    def _touch_coscheduling(self, group: views.CoschedulingGroup) -> None:
        """A group of the coscheduling plug-in, and its pods: the queue that it names says by which rules they go."""
        key = coscheduling_key(group)
        self._dirty_groups[key] = None
        self._dirty_pods.update(dict.fromkeys(self._members.get(key, ())))

    def _touch_kai_names(self) -> None:
        """What may mean another queue now that KAI's queues come or go."""
        self._dirty_queues.update(dict.fromkeys(IMPLIED))
        self._dirty_nodes.update(dict.fromkeys(self.nodes))
        for key in self.native_groups:
            self._touch_native(key)
        for group in self.coscheduling_groups.values():
            self._touch_coscheduling(group)
        self._dirty_pods.update(
            (key, None) for key, pod in self.pods.items() if names.QUEUE_NAME_KAI in pod.labels
        )

    def _touch_namespace_selectors(self) -> None:
        self._needs.namespaces_changed()
        if self._vocabulary.active:
            self._dirty_pods.update(
                (key, None) for key, pod in self.pods.items() if selects_namespaces(pod.shape)
            )


def _is_near(group: views.PodGroup) -> bool:
    return group.topology is not None or any(policy.topology for policy in group.subgroup_policies)


def kai_key(group: views.KaiPodGroup) -> str:
    return f"{group.namespace}/{podgroups.KAI}{group.name}"


def coscheduling_key(group: views.CoschedulingGroup) -> str:
    return f"{group.namespace}/{podgroups.COSCHEDULING}{group.name}"
