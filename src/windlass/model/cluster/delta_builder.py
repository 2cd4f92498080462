"""From what was shown to the engine's deltas: each thing that was touched is translated once, and only told where it
is another one for the engine than before. Pure.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from math import inf

from msgspec.structs import replace as altered

from windlass.api import annotations as names
from windlass.api import views
from windlass.api.devices.numa_annotations import POLICY_VOLCANO
from windlass.api.devices.request import WHOLE
from windlass.api.errors import FieldError
from windlass.api.quantities import is_device
from windlass.api.reasons import Explanation
from windlass.engine import deltas
from windlass.model.cluster import engine_node
from windlass.model.cluster.disruption_budgets import BudgetIndex
from windlass.model.cluster.group_index import GroupIndex, dialect_of
from windlass.model.cluster.object_cache import IMPLIED, Assumed, coscheduling_key, kai_key
from windlass.model.cluster.ownership import OtherScheduler, Ownership
from windlass.model.devices import device_needs, node_devices, reserved_devices
from windlass.model.devices.device_facts import DeviceIndex
from windlass.model.groups import claim_sharing, member_counts, podgroups, task_topology, topology_constraint
from windlass.model.nodes import numa
from windlass.model.pods import device_exclusion, engine_task
from windlass.model.pods.task_needs import Extras, NeedsTable, scoring_of
from windlass.model.queues import engine_queue
from windlass.model.queues.resource_quota import quota_of
from windlass.spi.devices import DeviceMode
from windlass.spi.objects import Dialect, Group, Node, Queue, RolePreferences, Task, TaskState

_PRUNE_AT_LEAST = 1024
OF_NODES = ("DaemonSet", "Node")
"""Who makes pods that belong to their node: they would come back there at once."""


class DeltaBuilder(GroupIndex):
    """Remembers what it has told the engine.

    ``scheduler_names``: whose pods are placed; all others only hold room where they are bound.
    ``wait_for_group``: scheduler names whose bare pods wait until a controller has given them a PodGroup.
    ``tiers``: a configuration says the policies of Volcano's queues, also for pods of scheduler ``windlass``.
    """

    def __init__(
        self,
        scheduler_names: Collection[str],
        *,
        wait_for_group: Collection[str] = frozenset(),
        tiers: bool = False,
        exclusive: device_exclusion.Rules = (),
        beside: Collection[OtherScheduler] = (),
        foreign_queue: str = "",
    ) -> None:
        """``exclusive``: which pods share no card with one another (:mod:`windlass.model.pods.device_exclusion`).
        ``foreign_queue``: pods that other schedulers placed count in it, and can be asked to go for work of higher
        priority there; ``""``: they only hold room.

        ``beside``: who serves some of the scheduler names too (:mod:`windlass.model.cluster.ownership`)."""
        super().__init__()
        self.ownership = Ownership(beside)
        self.withheld: Mapping[str, Explanation] = {}
        """In a dry run: pods that would not have been created, with the reason; the engine sees none of them."""
        self._scheduler_names = frozenset(scheduler_names)
        self._wait_for_group = frozenset(wait_for_group)
        self._tiers = tiers
        self._exclusive = exclusive
        self._foreign_queue = foreign_queue
        self._now = 0.0
        self._ends: list[tuple[float, str]] = []
        self._prune_at = _PRUNE_AT_LEAST
        self._seen_vocabulary = 0
        self._reads_images = False
        self._dirty_members: dict[str, None] = {}
        """Groups of which something depends on their pods, and whose pods changed."""
        self._otherwise_ruled: dict[str, None] = {}
        """Pods of groups whose queue is now of another dialect."""
        self._changed: dict[str, None] = {}
        self._faults: dict[str, tuple[FieldError, ...]] = {}
        self._flawed: dict[str, None] = {}
        """Groups of which a pod contradicts itself, or did."""
        self._sent_tasks: dict[str, Task] = {}
        self._sent_nodes: dict[str, Node] = {}
        self._sent_queues: dict[str, Queue] = {}
        self._cards = DeviceIndex()
        self._budgets = BudgetIndex()
        self._spared: dict[str, float] = {}
        """Pod → until when it is not to be asked to go."""

    def manages(self, pod: views.Pod) -> bool:
        """Whether this scheduler places the pod."""
        served = pod.scheduler_name in self._scheduler_names
        return served and (not self.ownership or self.ownership.lets(pod, self._defined))

    def resend(self) -> None:
        """Forget what was told: the next :meth:`take` gives the whole state, for another engine."""
        for sent in (self._sent_tasks, self._sent_groups, self._sent_nodes, self._sent_queues):
            sent.clear()
        self._cards.clear()
        self._budgets.resend()
        self._needs = NeedsTable(self._vocabulary, self._namespace_labels)
        self._needs.images = self._reads_images
        self._dirty_nodes = dict.fromkeys(self.nodes)
        self._dirty_quotas = dict.fromkeys(self._quotas)
        self._dirty_queues = dict.fromkeys(
            [*IMPLIED, *self.queues, *(engine_queue.KAI + q for q in self.kai_queues)]
        )
        self._dirty_groups = dict.fromkeys(self._members)
        self._dirty_groups.update(dict.fromkeys(self.groups))
        self._dirty_groups.update(dict.fromkeys(self.foreign_keys()))
        self._dirty_pods = dict.fromkeys(self.pods)

    def foreign_keys(self) -> Iterator[str]:
        """The groups of other APIs than Volcano's that keep what is said of them."""
        yield from map(kai_key, self.kai_groups.values())
        yield from map(coscheduling_key, self.coscheduling_groups.values())

    def configure(
        self, *, tiers: bool, exclusive: device_exclusion.Rules = (), foreign_queue: str = ""
    ) -> None:
        """What a configuration says, as at the beginning; to be followed by :meth:`resend`."""
        self._tiers = tiers
        self._foreign_queue = foreign_queue
        self._exclusive = exclusive

    def read_labels(self, keys: Iterable[str], *, images: bool = False) -> None:
        """Policies look at these labels of pods, and at container images or not: they are told of them from the
        next :meth:`take` on."""
        self._vocabulary.read(keys)
        if images != self._reads_images:
            self._reads_images = self._needs.images = images
            self._dirty_nodes.update(dict.fromkeys(self.nodes))
            self._dirty_pods.update(dict.fromkeys(self.pods))

    @property
    def untold(self) -> int:
        """How many pods are to be looked at in the next :meth:`take`."""
        return len(self._dirty_pods)

    @property
    def words(self) -> int:
        """Grows with the labels that placement depends on: all pods are then looked at again."""
        return self._vocabulary.version

    def take(self, now: float = 0.0, most: int | None = None) -> list[deltas.Delta]:
        """The deltas since the last call, in an order in which names mostly exist before they are named.

        ``now``: Unix seconds, for what time alone changes; 0.0: nothing is ever stuck in its termination. ``most``:
        of so many pods; those of the others come with the next calls.
        """
        self._now = now
        while self._ends and self._ends[0][0] <= now:
            self._dirty_pods[heapq.heappop(self._ends)[1]] = None
        if self._seen_vocabulary != self._vocabulary.version:
            self._seen_vocabulary = self._vocabulary.version
            self._dirty_pods.update(dict.fromkeys(self.pods))
        if self._budgets.reselected:
            namespaces, self._budgets.reselected = self._budgets.reselected, set()
            self._dirty_pods.update((k, None) for k, pod in self.pods.items() if pod.namespace in namespaces)
        out: list[deltas.Delta] = []
        moved, retiered = self.topology.settle(self.nodes)
        self._dirty_nodes.update((name, None) for name in moved if name in self.nodes)
        if retiered:
            self._touch_topology()
        for name in self._swap("_dirty_nodes"):
            self._translate_node(name, out)
        for name in self._swap("_dirty_queues"):
            self._translate_queue(name, out)
        if self._cards.changed:
            self._learn_cards()
        if self._claim_pods and self._kinds_stale:
            self._tell_kinds()
        for key in self._swap("_dirty_quotas"):
            quota = quota_of(self._quotas[key]) if key in self._quotas else None
            out.append(deltas.NamespaceQuotaUpserted(quota) if quota else deltas.NamespaceQuotaRemoved(key))
        for key in self._swap("_dirty_groups"):
            self._translate_group(key, out)
        for key in self._due_pods(most):
            self._translate_pod(key, out)
        out += self._budgets.take()
        for key in self._swap("_dirty_members") | self._swap("_dirty_groups"):  # as their pods are now
            self._translate_group(key, out)
        for key in self._swap("_otherwise_ruled"):
            self._translate_pod(key, out)
        if len(self._needs) > self._prune_at:
            self._needs.retain({id(pod.shape) for pod in self.pods.values()})
            self._prune_at = max(_PRUNE_AT_LEAST, 2 * len(self._needs))
        return out

    def told(self) -> list[deltas.Delta]:
        """What was told so far and holds, but for groups and pods."""
        out: list[deltas.Delta] = [deltas.NodeUpserted(node) for node in self._sent_nodes.values()]
        out += [deltas.QueueUpserted(queue) for queue in self._sent_queues.values()]
        quotas = [quota for view in self._quotas.values() if (quota := quota_of(view)) is not None]
        out += [deltas.NamespaceQuotaUpserted(quota) for quota in quotas]
        out += [deltas.BudgetUpserted(key, allowed) for key, allowed in self._budgets.allowed()]
        return out

    def told_groups(self) -> dict[str, Group]:
        """The groups that were told, by key."""
        return dict(self._sent_groups)

    def told_tasks(self) -> dict[str, Task]:
        """The pods that were told, by key, assumed ones where they are assumed to be."""
        found = dict(self._sent_tasks)
        for key, assumed in self.assumed.items():
            task = found.get(key)
            if task is not None and task.state is TaskState.PENDING and assumed.uid == task.uid:
                found[key] = as_assumed(task, assumed, None)
        return found

    def _due_pods(self, most: int | None) -> Iterable[str]:
        if most is None or len(self._dirty_pods) <= most:
            return self._swap("_dirty_pods")
        due = list(islice(self._dirty_pods, most))
        for key in due:
            del self._dirty_pods[key]
        return due

    def _swap(self, attribute: str) -> dict[str, None]:
        dirty: dict[str, None] = getattr(self, attribute)
        if dirty:
            setattr(self, attribute, {})
        return dirty

    def _translate_node(self, name: str, out: list[deltas.Delta]) -> None:
        view = self.nodes.get(name)
        if view is None:
            if self._sent_nodes.pop(name, None) is not None:
                if self.reserved.note_node(name, plugin=False, devices=()):
                    self._dirty_pods.update(dict.fromkeys(self._card_words))
                self._cards.forget(name)
                self._kinds_stale[name] = None
                out.append(deltas.NodeRemoved(name))
            return
        attachable, hypernodes = self.storage.limits.get(name), self.topology.labels_of(name)
        zones = numa.numa_zones_of(view, self.zones.of(name))
        listed = self.claims.cards_of(name, self.claims.apart(name, self.pods))
        node = engine_node.node_of(
            view,
            attachable,
            hypernodes,
            kai=bool(self.kai_queues),
            zones=zones,
            listed=listed,
            images=self._reads_images,
        )
        plugin = node_devices.by_plugin(view)
        if self.reserved.note_node(name, plugin=plugin, devices=node.devices):
            self._dirty_pods.update(dict.fromkeys(self._card_words))
        if plugin and self.reserved.enabled:
            labels = {**node.labels, reserved_devices.BY_PLUGIN: ""}
            node = replace(node, labels=labels, devices=self.reserved.open_cards(name, node.devices))
        if self._sent_nodes.get(name) != node:
            self._sent_nodes[name] = node
            self._cards.note(view, node)
            self._kinds_stale[name] = None
            if zones is not None and not self._needs.zoned:
                self._needs.learn_zones()
                self._dirty_pods.update(dict.fromkeys(self.pods))
            out.append(deltas.NodeUpserted(node))

    def _learn_cards(self) -> None:
        """Count parts of cards anew where the cluster's cards, or what queues count, have changed."""
        facts = self._cards.facts(self._sent_queues.values())
        if facts != self._needs.facts:
            self._needs.learn_cards(facts)
            self._dirty_pods.update(dict.fromkeys(self._card_words))

    def _translate_queue(self, name: str, out: list[deltas.Delta]) -> None:
        queue: Queue | None = None
        if engine_queue.is_kai(name):
            kai = self.kai_queues.get(engine_queue.plain(name))
            queue = None if kai is None else engine_queue.kai_queue_of(kai)
        elif (view := self.queues.get(name)) is not None:
            queue = engine_queue.queue_of(view)
        elif self._implied(name):
            queue = engine_queue.implied(name)
        if queue is None:
            if self._sent_queues.pop(name, None) is not None:
                out.append(deltas.QueueRemoved(name))
        elif self._sent_queues.get(name) != queue:
            self._sent_queues[name] = queue
            self._cards.changed = True
            out.append(deltas.QueueUpserted(queue))
        if name not in IMPLIED:
            for implied in IMPLIED:
                self._translate_queue(implied, out)

    def _implied(self, name: str) -> bool:
        """Whether ``root`` or ``default`` is there without an object: ``default`` while nobody has made
        a queue; neither in a cluster that has queues of KAI alone."""
        if self.kai_queues and not self.queues:
            return False
        return name == engine_queue.ROOT or (
            name == engine_queue.DEFAULT and not any(known != engine_queue.ROOT for known in self.queues)
        )

    def _translate_group(self, key: str, out: list[deltas.Delta]) -> None:
        self._changed[key] = None
        view = self.groups.get(key)
        if self._node_groups or (view is not None and task_topology.speaks(view.annotations)):
            self._dirty_pods.update(self._members.get(key, {}))
        group = self._group(key)
        if group is not None:
            if key in self._flawed and self._lacks_sound_pods(group):
                group = altered(group, held=True)
            if podgroups.kind_prefix(key) in podgroups.BY_PODS:
                before = self._sent_groups.get(key)
                if before is None or before.dialect is not group.dialect:
                    self._otherwise_ruled.update(self._members.get(key, {}))
            self._send_group(group, out)
        elif self._sent_groups.pop(key, None) is not None:
            out.append(deltas.GroupRemoved(key))

    def _lacks_sound_pods(self, group: Group) -> bool:
        """Whether pods of the group contradict themselves, and too few others are there for its minimum."""
        pods = list(self.pods_of(group.key))
        sound = member_counts.count(pod for pod in pods if pod.key not in self._faults)
        there = sound.pending + sound.bound + sound.running + sound.succeeded
        return there < group.min_member and any(pod.key in self._faults for pod in pods)

    def _send_group(self, group: Group, out: list[deltas.Delta]) -> None:
        if self._sent_groups.get(group.key) != group:
            self._sent_groups[group.key] = group
            out.append(deltas.GroupUpserted(group))

    def _translate_pod(self, key: str, out: list[deltas.Delta]) -> None:
        pod = self.pods.get(key)
        sent = self._sent_tasks.get(key)
        if sent is not None and (pod is None or pod.uid != sent.uid):
            self._retract(key, sent, out)
            sent = None
        if pod is None:
            self._leave_group(key, out)
            self._forget_other(key)
            self._faults.pop(key, None)
            self._spared.pop(key, None)
            self.assumed.pop(key, None)
            self._decided.pop(key, None)
            self.awaited.pop(key, None)
            return
        if not self.manages(pod):
            self._note_other(pod)
            lent = self._lent_to(pod)
            if not lent:
                self._leave_group(key, out)
            task = self._foreign(pod) if not lent else self._lent(pod, lent, out)
        else:
            self._forget_other(key)
            task = self._managed(pod, out)
        if task is None:
            if sent is not None:
                self._retract(key, sent, out)
            self._retract_group(podgroups.group_key(pod), out)
            return
        if self._spared.get(key, inf) <= self._now:
            del self._spared[key]
        if key in self._spared or (pod.shape.claims and self._lends(pod)):
            task = altered(task, preemptible=False)
        if task != sent:
            self._sent_tasks[key] = task
            out.append(deltas.TaskUpserted(task))

    def _lends(self, pod: views.Pod) -> bool:
        """Whether its devices would not come free without it, as pods of other groups use them, too."""
        group = self._group_of.get(pod.key)
        return self.claims.lends(
            pod, self.pods, lambda other: group is None or self._group_of.get(other.key) != group
        )

    def _foreign(self, pod: views.Pod) -> Task | None:
        if (
            not pod.node_name and pod.shape.claims
        ):  # allocated claims: its scheduler has decided, and binds it soon
            pod = altered(pod, node_name=next(self.claims.nodes_of(pod), ""))
        if not pod.node_name or pod.finished:
            return None
        self._note_end(pod)
        translated = self._needs.of(pod, extras=self._extras(pod, "", Dialect.WINDLASS))
        node = self.nodes.get(pod.node_name)
        needs = translated.needs
        if reserved_devices.reserved_index(pod) is not None:
            needs = reserved_devices.held_open(needs)
        elif self.reserved.rides(pod):
            needs = reserved_devices.riding(needs)
        task = engine_task.task_of(pod, engine_task.FOREIGN, needs, self.classes, now=self._now, node=node)
        return self._as_claimed(pod, task)

    def _as_claimed(self, pod: views.Pod, task: Task) -> Task:
        """With its devices in the order of its needs, where claims alone say what it has: an index may be that of
        devices of several drivers."""
        if not pod.node_name or not pod.shape.claims or pod.shape.devices:
            return task
        held = self.claims.held(pod, self.pods)
        plain = sum(units >= WHOLE and is_device(name) for name, units in pod.shape.request.items())
        told = bool(held) and not (plain and task.devices)
        return altered(task, devices=tuple(one.index for one in held)) if told else task

    def _lent_to(self, pod: views.Pod) -> str:
        """The queue that a pod of another scheduler counts in, so that it may have to make room for work of higher
        priority there; ``""`` for none: nobody may touch it."""
        owner = pod.controller
        bound_to_node = owner is not None and owner.kind in OF_NODES
        reserves = pod.namespace in (reserved_devices.NAMESPACE, reserved_devices.NAMESPACE_KAI)
        if not pod.node_name or pod.finished or bound_to_node or reserves or engine_task.is_critical(pod):
            return ""
        return self._foreign_queue

    def _lent(self, pod: views.Pod, queue: str, out: list[deltas.Delta]) -> Task | None:
        task = self._foreign(pod)
        alone = podgroups.implicit_group(pod, self.classes)
        group = altered(alone, key=podgroups.implicit_key(pod), queue=queue, guest=True, annotations={})
        if task is None:
            return None
        self._group_of[pod.key] = group.key
        self._members.setdefault(group.key, {})[pod.key] = None
        self._send_group(group, out)
        return altered(task, group=group.key, budgets=self._budgets.of(pod))

    def _note_end(self, pod: views.Pod) -> None:
        """Look at a terminating pod again when its termination counts as stuck."""
        moment = engine_task.stuck_from(pod) if pod.node_name else None
        if moment is not None and moment > self._now:
            heapq.heappush(self._ends, (moment, pod.key))

    def _managed(self, pod: views.Pod, out: list[deltas.Delta]) -> Task | None:
        """The task, or None where the engine must not see the pod (yet, or any more)."""
        key = podgroups.group_key(pod)
        if self._group_of.get(pod.key) != key:
            self._leave_group(pod.key, out)
            self._group_of[pod.key] = key
            self._members.setdefault(key, {})[pod.key] = None
            self._note_whose(key)
        self._changed[key] = None
        if topology_constraint.speaks(pod.annotations) or claim_sharing.shares(pod):
            self._near_groups[key] = None
        self._note_members(key)
        self._note_end(pod)
        alone = self._implicit_group(pod) if podgroups.is_implicit(key) else None
        dialect = self._queue_dialect(pod, key) if alone is None else dialect_of(alone.queue)
        translated = self._needs.of(pod, self._placement(pod, dialect), self._extras(pod, key, dialect))
        waiting = not pod.node_name and not pod.finished
        problems = (*pod.problems, *translated.problems)
        needs = translated.needs
        if needs.devices and self.reserved.rides(pod):
            needs = reserved_devices.riding(needs)
        elif needs.devices and waiting and self.reserved.enabled and (fault := reserved_devices.fault(pod)):
            problems = (*problems, fault) if self.reserved.strict else problems
            needs = reserved_devices.kept_off(needs)
        if problems and waiting:
            self._faults[pod.key] = problems
            if alone is None:
                self._flawed[key] = self._dirty_members[key] = None
            return None
        if self._faults.pop(pod.key, None) is not None:
            self._note_members(key)
        if waiting and (pod.deleted or pod.key in self.withheld or self._awaits_group(pod)):
            return None
        if alone is not None:
            self._send_group(alone, out)
        task = engine_task.task_of(
            pod,
            key,
            needs,
            self.classes,
            now=self._now,
            dialect=dialect,
            subgroup=self._part_of(pod, key),
            node=self.nodes.get(pod.node_name),
            budgets=self._budgets.of(pod),
            decided=self._decided_at(pod),
        )
        assumed = self.assumed.get(pod.key)
        if assumed is not None and waiting and assumed.uid == pod.uid:
            return as_assumed(task, assumed, self._sent_tasks.get(pod.key))
        return self._as_claimed(pod, task)

    def _decided_at(self, pod: views.Pod) -> float:
        """When it was decided here where the pod is; 0.0 where nobody knows."""
        uid, moment = self._decided.get(pod.key, ("", 0.0))
        return moment if uid == pod.uid else 0.0

    def _part_of(self, pod: views.Pod, group: str) -> str:
        """The part of a gang that a pod is in; ``""`` for none."""
        claim, _ = self._sharing(pod, group) if pod.shape.claims else ("", {})
        return claim_sharing.part_of(claim) if claim else self._own_part(pod, group)

    def _starting_with(self, pod: views.Pod, group: str) -> Collection[str]:
        """The pods that a pod starts with, on one node, because they share claims."""
        mates = self._sharing(pod, group)[1] if group else {}
        return (
            mates
            if pod.key in self.assumed or not claim_sharing.started(mates.values(), self.assumed)
            else ()
        )

    def _extras(self, pod: views.Pod, group: str, dialect: Dialect) -> Extras | None:
        """What a pod needs beside what its spec says. ``dialect``: that of its queue."""
        context = self._card_context(pod, group, dialect) if pod.key in self._card_words else None
        wishes = self._role_wishes(pod, group)
        plain = not pod.annotations and not pod.claims and not self._node_groups
        if plain and context is None and wishes is None:
            return None
        volumes = self.storage.needs_of(pod.namespace, pod.claims) if pod.claims else ()
        zone = podgroups.revocable_zone(pod.annotations)
        node_groups = None
        if group and self._node_groups:
            node_groups = engine_queue.node_groups_of(self.queue_named(group), self.queues)
        scoring = scoring_of(pod.annotations)
        policy = pod.annotations.get(POLICY_VOLCANO, "")
        said = (node_groups, scoring, context, wishes)
        if not (volumes or zone or policy) and all(each is None for each in said):
            return None
        return Extras(volumes, node_groups, zone, scoring, context, policy, wishes)

    def _role_wishes(self, pod: views.Pod, group: str) -> RolePreferences | None:
        view = self.groups.get(group)
        if view is None or not task_topology.speaks(view.annotations):
            return None
        return task_topology.role_preferences(view.annotations, group, podgroups.role_of(pod))

    def _card_context(
        self, pod: views.Pod, group: str, dialect: Dialect
    ) -> device_needs.DeviceRequestContext | None:
        """What a pod that speaks of parts of cards says beside its containers' limits."""
        words = self._card_words[pod.key]
        mates = group if names.VGPU_SPREAD_VOLCANO in pod.annotations else ""
        kai = dialect is Dialect.KAI
        carries, avoids = device_exclusion.of_pod(pod, self._exclusive)
        named = pod.containers if any(name in device_needs.CONTAINER_WORDS for name, _ in words) else ()
        asked, pinned = device_needs.NO_CLAIMS, ""
        if pod.shape.claims:
            asked, pinned = self.claims.asked(pod, self.pods, self._starting_with(pod, group))
        if not (words or kai or carries or avoids or pod.shape.claims):
            return None
        return device_needs.DeviceRequestContext(
            words, kai, mates, asked, named, pinned, carries=carries, avoids=avoids
        )

    def _tell_kinds(self) -> None:
        """Claims choose among the cards that nodes tell of; nobody else needs them by kind. A kubelet gives cards to
        claims by a driver alone, which lists them."""
        changed = False
        for name in self._swap("_kinds_stale"):
            node, view = self._sent_nodes.get(name), self.nodes.get(name)
            driven = (view is not None and view.kubelet) or self.claims.cards_of(name)
            told = () if node is None or driven else node.devices
            plain = (one for one in told if one.mode is not DeviceMode.SLICED)
            changed = self.claims.learn(name, plain) or changed
        if changed:
            self._dirty_pods.update(self._claim_pods)

    def _placement(self, pod: views.Pod, dialect: Dialect) -> Dialect:
        """Whose placement rules hold for the pod."""
        own = pod.scheduler_name == names.SCHEDULER_NAMES[0]
        return Dialect.WINDLASS if own and not (self._tiers and dialect is Dialect.VOLCANO) else dialect

    def _awaits_group(self, pod: views.Pod) -> bool:
        return pod.scheduler_name in self._wait_for_group and not podgroups.has_object(
            podgroups.group_key(pod)
        )

    def _note_members(self, group: str) -> None:
        """A group has other pods, or pods in another state: what is said of it may depend on that."""
        view = self.groups.get(group)
        if view is None:
            depends = not podgroups.is_implicit(group)
        else:
            depends = bool(view.subgroup_policies) or self.classes.is_gone(view.priority_class)
        speaks = group in self._near_groups or group in self._flawed
        if depends or (speaks and not podgroups.is_implicit(group)):
            self._dirty_members[group] = None

    def _retract(self, key: str, sent: Task, out: list[deltas.Delta]) -> None:
        del self._sent_tasks[key]
        out.append(deltas.TaskRemoved(key, sent.uid))

    def _leave_group(self, key: str, out: list[deltas.Delta]) -> None:
        group = self._group_of.pop(key, None)
        if group is None:
            return
        self._changed[group] = None
        mates = self._members[group]
        del mates[key]
        self._note_members(group)
        if not mates:
            del self._members[group]
            self._note_whose(group)
            self._near_groups.pop(group, None)
            self._flawed.pop(group, None)
            self._retract_group(group, out)

    def _retract_group(self, group: str, out: list[deltas.Delta]) -> None:
        """Take back the group of one of a pod that the engine sees no more."""
        if not self._defined(group) and self._sent_groups.pop(group, None) is not None:
            out.append(deltas.GroupRemoved(group))

    def time_was_set(self) -> None:
        """The next :meth:`take` may be of an earlier moment than the last: whose end was reckoned with is looked at
        again."""
        self._dirty_pods.update((key, None) for key, pod in self.pods.items() if pod.deleted)

    def next_change(self) -> float | None:
        """The Unix second at which time alone changes something (a termination counts as stuck), if any."""
        return self._ends[0][0] if self._ends else None

    def take_changed(self) -> list[str]:
        """Groups whose members, fields or own explanation changed since the last call."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def show_all(self) -> None:
        """All groups count as changed: whoever takes over looks what stands on each."""
        self._changed.update(dict.fromkeys(self._members))
        self._changed.update(dict.fromkeys(self.groups))
        self._changed.update(dict.fromkeys(self.foreign_keys()))


def as_assumed(task: Task, assumed: Assumed, sent: Task | None) -> Task:
    """The task as the engine holds it; what was sent before the decision, if nothing else changed."""
    if sent is not None and task == sent:
        return sent
    return altered(
        task, state=TaskState.ASSUMED, node=assumed.node, devices=assumed.devices, slices=assumed.slices
    )
