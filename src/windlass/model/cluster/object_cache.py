"""Objects of the cluster by key, and marks on what has to be translated again.

Events only mark what they touch; :mod:`windlass.model.cluster.delta_builder` translates it.
"""

from __future__ import annotations

from windlass.api import annotations as names
from windlass.api import views
from windlass.model.autoscaling import provisioning
from windlass.model.cluster.marks import IMPLIED, DirtyMarks, Membership, SentState
from windlass.model.cluster.ownership import Ownership
from windlass.model.contributors.registry import Contributors
from windlass.model.groups import podgroups
from windlass.model.nodes.numa import NumaReports
from windlass.model.pods.label_vocabulary import Vocabulary, selects_namespaces
from windlass.model.pods.task_needs import NeedsTable
from windlass.model.queues import engine_queue

_KINDS_OF_OTHER_APIS = (podgroups.KAI, podgroups.NATIVE, podgroups.COSCHEDULING)


class ObjectCache:
    """Pods, nodes, queues, PodGroups and the objects that they refer to.

    ``ownership``: owners of groups under scheduler names that several schedulers serve.
    """

    def __init__(
        self,
        marks: DirtyMarks,
        sent: SentState,
        membership: Membership,
        contributors: Contributors,
        ownership: Ownership,
    ) -> None:
        self._marks = marks
        self._sent = sent
        self._members = membership.pods
        self._contributors = contributors
        self.ownership = ownership
        self.pods: dict[str, views.Pod] = {}
        self.nodes: dict[str, views.NodeObject] = {}
        self.queues: dict[str, views.QueueObject] = {}
        self.groups: dict[str, views.PodGroup] = {}
        self.kai_queues: dict[str, views.KaiQueue] = {}
        self.kai_groups: dict[str, views.KaiPodGroup] = {}
        self.native_groups: dict[str, views.NativeGroup] = {}
        self.coscheduling_groups: dict[str, views.CoschedulingGroup] = {}
        self.namespaces: dict[str, views.Namespace] = {}
        self.quotas: dict[str, views.ResourceQuota] = {}
        self.requests: dict[str, dict[str, views.ProvisioningRequest]] = {}
        """Group → the ProvisioningRequests that Windlass has made for it, by name."""
        self.owners_known = False
        """True if a pod named an owner, so that pods without owners have none."""
        self.classes = podgroups.Classes()
        self._namespace_labels: dict[str, dict[str, str]] = {}
        self.vocabulary = Vocabulary()
        self.needs = NeedsTable(self.vocabulary, self._namespace_labels)
        self.numa = NumaReports()

    # ------------------------------------------------------------------ pods and nodes

    def upsert_pod(self, pod: views.Pod) -> None:
        """Enter a pod that is new or has changed."""
        key, marks = pod.key, self._marks
        old = self.pods.get(key)
        self.pods[key] = pod
        marks.pods[key] = None
        self.owners_known = self.owners_known or bool(pod.owners)
        if self.ownership.active:
            self.ownership.note(pod)
        shape = pod.shape
        if shape.affinity is not None or shape.spread:
            self.vocabulary.learn(shape)
        self._contributors.show_pod(old, pod)

    def remove_pod(self, key: str) -> None:
        """Remove a pod."""
        pod = self.pods.pop(key, None)
        if pod is not None:
            self._marks.pods[key] = None
            self.ownership.forget(key)
            self._contributors.remove_pod(pod)

    def upsert_node(self, node: views.NodeObject) -> None:
        """Enter a node that is new or has changed."""
        known = self.nodes.get(node.name)
        if known is None or known.labels != node.labels:
            self._relabelled()
        self.nodes[node.name] = node
        self._marks.nodes[node.name] = None

    def remove_node(self, name: str) -> None:
        """Remove a node."""
        if self.nodes.pop(name, None) is not None:
            self._marks.nodes[name] = None
            self._relabelled()

    def _relabelled(self) -> None:
        for contributor in self._contributors.of_nodes:
            contributor.nodes_relabelled()

    def upsert_numa_report(self, report: views.NodeTopology) -> None:
        """Enter a report on the NUMA zones of a node."""
        if self.numa.upsert(report):
            self._marks.nodes[report.name] = None

    def remove_numa_report(self, report: views.NodeTopology) -> None:
        """Remove a report on the NUMA zones of a node."""
        if self.numa.remove(report):
            self._marks.nodes[report.name] = None

    # ------------------------------------------------------------------ queues

    def upsert_queue(self, queue: views.QueueObject) -> None:
        """Enter a queue of Volcano."""
        self._show_queue(queue.name, queue)
        self._mark_provisioning(self.queues.get(queue.name), queue)
        self.queues[queue.name] = queue
        self._marks.queues[queue.name] = None

    def remove_queue(self, name: str) -> None:
        """Remove a queue of Volcano."""
        if self.queues.pop(name, None) is not None:
            self._marks.queues[name] = None
            self._show_queue(name, None)

    def upsert_kai_queue(self, queue: views.KaiQueue) -> None:
        """Enter a queue of KAI."""
        if not self.kai_queues:
            self._mark_kai_names()
        self._mark_provisioning(self.kai_queues.get(queue.name), queue)
        self.kai_queues[queue.name] = queue
        self._marks.queues[engine_queue.KAI + queue.name] = None

    def remove_kai_queue(self, name: str) -> None:
        """Remove a queue of KAI."""
        if self.kai_queues.pop(name, None) is not None:
            self._marks.queues[engine_queue.KAI + name] = None
            if not self.kai_queues:
                self._mark_kai_names()

    def both_apis(self) -> bool:
        """Return whether the cluster has queues of both APIs, so that a name needs its API."""
        return bool(self.kai_queues) and any(name not in IMPLIED for name in self.queues)

    def _mark_provisioning(
        self, old: views.QueueObject | views.KaiQueue | None, new: views.QueueObject | views.KaiQueue
    ) -> None:
        """Mark all groups if a queue's provisioning changes: it may be above the queue of any group."""
        if _provisioning(new) != _provisioning(old):
            self._marks.mark_groups(self._members)

    def _show_queue(self, name: str, queue: views.QueueObject | None) -> None:
        for contributor in self._contributors.of_queues:
            contributor.queue_shown(name, queue)

    def _mark_kai_names(self) -> None:
        """Mark objects with a queue that depends on whether KAI has any queue."""
        marks = self._marks
        marks.queues.update(dict.fromkeys(IMPLIED))
        marks.mark_nodes(self.nodes)
        for key in self.native_groups:
            self._mark_native(key)
        for group in self.coscheduling_groups.values():
            self._mark_coscheduling(group)
        marks.mark_pods(key for key, pod in self.pods.items() if names.QUEUE_NAME_KAI in pod.labels)

    # ------------------------------------------------------------------ groups

    def upsert_group(self, group: views.PodGroup) -> None:
        """Enter a PodGroup of Volcano, unless it belongs to another scheduler."""
        key, ownership = group.key, self.ownership
        if ownership.active:
            if self._hides(key, group):
                self._drop_group(key)
                return
            if key not in self.groups:
                self._marks.mark_pods(ownership.pods_of(key))
        self.groups[key] = group
        self._marks.groups[key] = None
        self._contributors.show_group(key, group)

    def remove_group(self, key: str) -> None:
        """Remove a PodGroup of Volcano."""
        self._reveal(key)
        self._drop_group(key)

    def _drop_group(self, key: str) -> None:
        if self.groups.pop(key, None) is not None:
            self._marks.groups[key] = None
            self._marks.mark_pods(self.ownership.pods_of(key))
            self._contributors.remove_group(key)

    def upsert_kai_group(self, group: views.KaiPodGroup) -> None:
        """Enter a PodGroup of KAI, unless it belongs to another scheduler."""
        key, ownership = podgroups.kai_key(group), self.ownership
        if ownership.active:
            if self._hides(key, group):
                self._drop_kai_group(group.key)
                return
            if group.key not in self.kai_groups:
                self._marks.mark_pods(ownership.pods_of(key))
        self.kai_groups[group.key] = group
        self._marks.groups[key] = None
        self._contributors.show_group(key, group)

    def remove_kai_group(self, key: str) -> None:
        """Remove a PodGroup of KAI; ``key``: ``namespace/name``."""
        namespace, _, name = key.partition("/")
        self._reveal(f"{namespace}/{podgroups.KAI}{name}")
        self._drop_kai_group(key)

    def _drop_kai_group(self, name: str) -> None:
        group = self.kai_groups.pop(name, None)
        if group is not None:
            key = podgroups.kai_key(group)
            self._marks.groups[key] = None
            self._marks.mark_pods(self.ownership.pods_of(key))
            self._contributors.remove_group(key)

    def _hides(self, key: str, group: views.PodGroup | views.KaiPodGroup) -> bool:
        """Return whether the group belongs to another scheduler.

        Its pods that name this scheduler nevertheless are then explained again.
        """
        foreign = self.ownership.foreign
        before = foreign.get(key)
        hides = self.ownership.record_group(key, group)
        if foreign.get(key) != before and key in self._members:
            self._marks.groups[key] = None
        return hides

    def _reveal(self, key: str) -> None:
        """Forget the ownership of a deleted group object."""
        if self.ownership.foreign.pop(key, None) is not None and key in self._members:
            self._marks.groups[key] = None

    def upsert_native_group(self, group: views.NativeGroup) -> None:
        """Enter a PodGroup of Kubernetes' own API."""
        self.native_groups[group.key] = group
        self._mark_native(group.key)

    def remove_native_group(self, key: str) -> None:
        """Remove a PodGroup of Kubernetes' own API."""
        if self.native_groups.pop(key, None) is not None:
            self._mark_native(key)

    def _mark_native(self, key: str) -> None:
        """Mark the groups of such an object, and their pods."""
        namespace, _, name = key.partition("/")
        whole = f"{namespace}/{podgroups.NATIVE}{name}"
        for group in [whole, *(known for known in self._members if known.startswith(whole + ":"))]:
            self._marks.groups[group] = None
            self._marks.mark_pods(self._members.get(group, ()))

    def upsert_coscheduling_group(self, group: views.CoschedulingGroup) -> None:
        """Enter a PodGroup of the coscheduling plugin."""
        self.coscheduling_groups[group.key] = group
        self._mark_coscheduling(group)

    def remove_coscheduling_group(self, key: str) -> None:
        """Remove a PodGroup of the coscheduling plugin."""
        group = self.coscheduling_groups.pop(key, None)
        if group is not None:
            self._mark_coscheduling(group)

    def _mark_coscheduling(self, group: views.CoschedulingGroup) -> None:
        """Mark such a group and its pods: its queue determines the rules for their placement."""
        key = podgroups.coscheduling_key(group)
        self._marks.groups[key] = None
        self._marks.mark_pods(self._members.get(key, ()))

    def upsert_request(self, request: views.ProvisioningRequest) -> None:
        """Enter a ProvisioningRequest."""
        group = provisioning.group_of(request)
        if group:
            self.requests.setdefault(group, {})[request.name] = request
            self._marks.groups[group] = None

    def remove_request(self, request: views.ProvisioningRequest) -> None:
        """Remove a ProvisioningRequest."""
        group = provisioning.group_of(request)
        if self.requests.get(group, {}).pop(request.name, None) is not None:
            self._marks.groups[group] = None
            if not self.requests[group]:
                del self.requests[group]

    # ------------------------------------------------------------------ priorities, namespaces, quotas

    def upsert_class(self, priority_class: views.PriorityClass) -> None:
        """Enter a PriorityClass."""
        protected = self.classes.protects(priority_class.name)
        if self.classes.upsert(priority_class):
            self._mark_priorities()
            if protected is not priority_class.protected:
                self._mark_pods_of_class(priority_class.name)

    def remove_class(self, name: str) -> None:
        """Remove a PriorityClass."""
        protected = self.classes.protects(name)
        if self.classes.remove(name):
            self._mark_priorities()
            if protected:
                self._mark_pods_of_class(name)

    def _mark_pods_of_class(self, name: str) -> None:
        """Mark the pods of a class after a change of its protection from eviction."""
        self._marks.mark_pods(
            key for key, pod in self.pods.items() if pod.priority_class == name or not pod.priority_class
        )

    def _mark_priorities(self) -> None:
        """Mark all groups, and pods with a priority that the server did not resolve."""
        marks = self._marks
        marks.mark_groups(self.groups)
        marks.mark_groups(
            key for key in self._sent.groups if podgroups.kind_prefix(key) in _KINDS_OF_OTHER_APIS
        )
        marks.mark_pods(key for key, pod in self.pods.items() if pod.priority is None)

    def upsert_namespace(self, namespace: views.Namespace) -> None:
        """Enter a namespace.

        Selectors read its labels. Its annotations can name the queue of its pods.
        """
        old = self.namespaces.get(namespace.name)
        self.namespaces[namespace.name] = namespace
        labels = dict(namespace.labels)
        labels.setdefault("kubernetes.io/metadata.name", namespace.name)
        if self._namespace_labels.get(namespace.name) != labels:
            self._namespace_labels[namespace.name] = labels
            self._mark_namespace_selectors()
        if (old.annotations if old else {}) != namespace.annotations:
            prefix = f"{namespace.name}/"
            self._marks.mark_pods(key for key in self.pods if key.startswith(prefix))
            for native in self.native_groups.values():
                if native.namespace == namespace.name:
                    self._mark_native(native.key)
            for group in self.coscheduling_groups.values():
                if group.namespace == namespace.name:
                    self._mark_coscheduling(group)

    def remove_namespace(self, name: str) -> None:
        """Remove a namespace."""
        if self.namespaces.pop(name, None) is not None:
            del self._namespace_labels[name]
            self._mark_namespace_selectors()

    def _mark_namespace_selectors(self) -> None:
        self.needs.namespaces_changed()
        if self.vocabulary.active:
            self._marks.mark_pods(key for key, pod in self.pods.items() if selects_namespaces(pod.shape))

    def upsert_quota(self, quota: views.ResourceQuota) -> None:
        """Enter a ResourceQuota."""
        self.quotas[quota.key] = quota
        self._marks.quotas[quota.key] = None

    def remove_quota(self, quota: views.ResourceQuota) -> None:
        """Remove a ResourceQuota."""
        if self.quotas.pop(quota.key, None) is not None:
            self._marks.quotas[quota.key] = None


def _provisioning(queue: views.QueueObject | views.KaiQueue | None) -> dict[str, str]:
    """Return the annotations of a queue about provisioning."""
    prefixes = (names.PROVISIONING_CLASS, names.PROVISIONING_PARAMETER)
    annotations = queue.annotations.items() if queue is not None else ()
    return {name: text for name, text in annotations if name.startswith(prefixes)}
