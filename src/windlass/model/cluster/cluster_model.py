"""The model: typed views in, engine deltas out. Pure; remembers what it has told the engine.

Three layers: what was shown (:mod:`.observed`), whose group and queue it is (:mod:`.grouping`), what the engine is
told of it (:mod:`.translation`); on top of them the questions that a scheduler asks. Events only mark what they
touch; :meth:`ClusterModel.take` translates what was touched, once, however often it was. A delta is given only for
what really changed for the engine: status updates of pods cost nothing. A decided bind stays assumed here until the
pod shows it (see ``assume_bind``), so that a late event about the still unbound pod does not undo it.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.api.errors import FieldError
from windlass.api.reasons import Explanation, Reason
from windlass.engine import deltas
from windlass.engine.decision import Bind
from windlass.model.autoscaling.provisioning_objects import OwningGroup
from windlass.model.cluster import object_errors
from windlass.model.cluster.delta_builder import DeltaBuilder, as_assumed
from windlass.model.cluster.display_names import DisplayNames
from windlass.model.cluster.object_cache import Assumed
from windlass.model.cluster.ownership import KAI, ForeignGroup
from windlass.model.devices import assignment
from windlass.model.devices.dra_claims import ClaimWrite, writes_for
from windlass.model.groups import member_counts, podgroups
from windlass.model.nodes import numa
from windlass.model.nodes.volume_binding import StorageWrite
from windlass.model.queues import engine_queue
from windlass.spi.objects import Dialect, Group, HeldSlice

WrittenGroup = views.PodGroup | views.KaiPodGroup | views.CoschedulingGroup


class ClusterModel(DeltaBuilder):
    """The model as its users see it: events in (:class:`Observed`), deltas out (:class:`DeltaBuilder`), decided binds
    assumed, and questions about groups and pods."""

    def upsert_budget(self, budget: views.PodDisruptionBudget) -> None:
        self._budgets.upsert(budget)

    def remove_budget(self, budget: views.PodDisruptionBudget) -> None:
        self._budgets.remove(budget)

    def blocked(self, group: str) -> bool:
        """Whether the group lacks its minimum, binds under way counted as done unless they wait for something."""
        view = self.groups.get(group)
        if view is not None:
            pods = [pod for pod in self.pods_of(group) if pod.key not in self.awaited]
            return not member_counts.is_ready(view.min_member, pods, self.assumed)
        if self.awaited and any(key in self.awaited for key in self._members.get(group, ())):
            return True
        return any(not pod.node_name and pod.key not in self.assumed for pod in self.pods_of(group))

    def explanation(self, group: str) -> Explanation | None:
        """What the translation itself holds against a group; ``None`` if the engine has the word."""
        found: dict[str, tuple[FieldError, ...]] = {}
        if problems := self._group_problems(group):
            kind = "PodGroup" if podgroups.has_object(group) else "pod group"
            found[f"{kind} {podgroups.shown_key(group)}"] = problems
        for key in self._members.get(group, ()):
            if key in self._faults:
                found[f"pod {key}"] = self._faults[key]
        if found:
            return object_errors.misconfigured(podgroups.shown_key(group), found)
        if self.awaited:
            waiting = [self.awaited[key] for key in self._members.get(group, ()) if key in self.awaited]
            if waiting:
                return object_errors.awaited(podgroups.shown_key(group), waiting)
        if self.withheld:
            told = [self.withheld[key] for key in self._members.get(group, ()) if key in self.withheld]
            if told:
                return told[0]
        if not self._defined(group) and self._members.get(group):
            pending = [pod for pod in self.pods_of(group) if not pod.node_name and not pod.finished]
            foreign = self.ownership.foreign.get(group)
            if pending and foreign is not None:
                return self._not_handed_over(group, foreign, len(pending))
            if pending and not podgroups.is_implicit(group):
                return object_errors.group_missing(group, len(pending))
            if pending and self._awaits_group(pending[0]):
                return object_errors.group_awaited(pending[0].key)
        return None

    def _not_handed_over(self, group: str, foreign: ForeignGroup, pods: int) -> Explanation:
        kai = foreign.kind == KAI
        known = self.kai_queues.get(foreign.queue) if kai else self.queues.get(foreign.queue)
        marked = known is not None and known.annotations.get(names.ADOPTED) == "true"
        return object_errors.not_migrated(group, foreign, pods, marked=marked)

    def completed(self, group: str, told: Explanation) -> Explanation:
        """What the engine says of a group that waits, and what it does not know of: cards that could be shared, but
        cannot be held for the moment."""
        refusing = self.reserved.refusing
        asks = refusing and any(key in self._card_words for key in self._members.get(group, ()))
        return object_errors.devices_rejected(told, refusing) if asks else told

    def storage_writes(self, pod: str, node: str) -> list[StorageWrite]:
        """What has to be written about the claims of a pod before it is bound to a node."""
        view, place = self.pods.get(pod), self._sent_nodes.get(node)
        if view is None or place is None or not view.claims:
            return []
        return self.storage.writes_for(view.namespace, view.claims, place)

    def assume_bind(self, bind: Bind, now: float = 0.0) -> None:
        """A bind was decided, with its cards. The engine knows it already. ``now``: Unix seconds; 0.0: nobody knows
        when."""
        held = tuple(
            HeldSlice(share.index, share.profile, share.start) for share in bind.devices if share.start >= 0
        )
        indices = tuple(share.index for share in bind.devices)
        self.assumed[bind.task] = Assumed(bind.uid, bind.node, indices, held, bind.devices, now)

    def resume(self, binds: Iterable[Bind], changes: list[deltas.Delta]) -> list[deltas.Delta]:
        """Binds that somebody else had decided, assumed from now on: ``changes`` as the engine has to be told then,
        whether they tell of their pods for the first time or earlier ones did."""
        found = {bind.task: bind for bind in binds}
        for bind in found.values():
            self.assume_bind(bind)
        known = [change for change in changes if not _is_of(change, found)]
        tasks = [self._sent_tasks[key] for key in found if key in self._sent_tasks]
        return known + [deltas.TaskUpserted(as_assumed(task, self.assumed[task.key], None)) for task in tasks]

    def spare(self, key: str, until: float) -> None:
        """A pod that was not let go is not asked again before a moment (Unix seconds)."""
        if key in self.pods:
            self._spared[key] = until
            self._dirty_pods[key] = None
            heapq.heappush(self._ends, (until, key))

    def budgets_of(self, key: str) -> tuple[str, ...]:
        """The PodDisruptionBudgets that protect a pod."""
        pod = self.pods.get(key)
        return self._budgets.of(pod) if pod is not None else ()

    def started_before(self, group: str, moment: float) -> bool:
        """Whether a pod of the group has run since before a moment (Unix seconds)."""
        return any(pod.phase == "Running" and 0 < pod.started < moment for pod in self.pods_of(group))

    def binding_words(self, bind: Bind, now: float) -> dict[str, str]:
        """The annotations that go with a pod's binding: which cards it gets, and from which NUMA zones."""
        if not bind.devices:
            carried = self.claims.carried_words(bind.task, self.pods, self._decided_words)
            return {**carried, **numa.words(bind.zones)}
        group = self._sent_groups.get(bind.group)
        dialect = group.dialect if group is not None else Dialect.VOLCANO
        pod = self.pods.get(bind.task)
        words = assignment.annotations_of(bind, pod, self.nodes.get(bind.node), dialect, now)
        return words | self.reserved.words(bind, pod)

    def _decided_words(self, pod: str) -> dict[str, str]:
        """The cards that were decided for a pod whose binding is on its way."""
        assumed = self.assumed.get(pod)
        return assignment.own_annotations(assumed.shares) if assumed is not None else {}

    def reserve_cards(self, *, cdi: bool) -> None:
        """From now on cards that device plug-ins hand out are shared only while they are held for it."""
        self.reserved.enabled, self.reserved.cdi = True, cdi
        self._dirty_nodes.update(dict.fromkeys(self.nodes))
        self._dirty_pods.update(dict.fromkeys(self._card_words))

    def awaits(self, pod: str, reason: Reason, what: str) -> None:
        """What has to be there before a pod that has its place is bound (``RESERVING_DEVICE``, ``AWAITING_VOLUME``,
        ``AWAITING_DEVICE``, ``AWAITING_NODE_LOCK``); ``""``: nothing of that kind any more."""
        waiting = self.awaited.get(pod, {})
        if waiting.get(reason, "") == what:
            return
        others = {code: text for code, text in waiting.items() if code is not reason}
        if what:
            others[reason] = what
        if others:
            self.awaited[pod] = others
        else:
            del self.awaited[pod]
        if (group := self._group_of.get(pod)) is not None:
            self._changed[group] = None

    def open_cards(self, node: str, problem: str) -> None:
        """Whether further cards of a node can be held for sharing: why not, for the moment, or ``""``."""
        if problem:
            self.reserved.refusing[node] = problem
        else:
            self.reserved.refusing.pop(node, None)
        if node in self.nodes:
            self._dirty_nodes[node] = None

    def hypernode_of(self, group: str) -> str:
        """The HyperNode of the lowest tier that all placed pods of a group are in; ``""`` if there is none."""
        found = set()
        for pod in self.pods_of(group):
            if pod.finished or pod.deleted:
                continue
            assumed = self.assumed.get(pod.key)
            node = pod.node_name or (assumed.node if assumed is not None else "")
            if node:
                found.add(node)
        return self.topology.tightest(found)

    def queue_of(self, group: str) -> str:
        """The queue of a group that the engine knows; ``""`` of another."""
        sent = self._sent_groups.get(group)
        return sent.queue if sent is not None else ""

    def group_sent(self, group: str) -> Group | None:
        """A group as the engine knows it, but for what others add."""
        return self._sent_groups.get(group)

    def provisioning_class(self, group: str) -> str | None:
        """By which class nodes are asked for, as the group's queue says, or the nearest one above it that says so;
        ``None`` where none does."""
        view = self._asking_queue(group)
        return None if view is None else view.annotations[names.PROVISIONING_CLASS].strip()

    def provisioning_parameters(self, group: str) -> dict[str, str]:
        """What that queue hands to the class, and the group itself, which wins."""
        found: dict[str, str] = {}
        written = self.object_of(group)
        for view in (self._asking_queue(group), written[1] if written is not None else None):
            for name, value in view.annotations.items() if view is not None else ():
                if name.startswith(names.PROVISIONING_PARAMETER):
                    found[name.removeprefix(names.PROVISIONING_PARAMETER)] = value
        return found

    def _asking_queue(self, group: str) -> views.QueueObject | views.KaiQueue | None:
        """The nearest queue that says by which class."""
        seen: set[str] = set()
        name = self.queue_of(group)
        while name not in seen:
            seen.add(name)
            kai = name.startswith(engine_queue.KAI)
            view = self.kai_queues.get(name.removeprefix(engine_queue.KAI)) if kai else self.queues.get(name)
            if view is not None and names.PROVISIONING_CLASS in view.annotations:
                return view
            above = view.parent if view is not None else ""
            name = f"{engine_queue.KAI}{above}" if kai and above else above or engine_queue.ROOT
        return None

    def owner_of_requests(self, group: str) -> OwningGroup | None:
        """The object in whose name nodes are asked for; ``None`` of a group that has none."""
        found = self.object_of(group)
        if found is None or found[1].deleted:
            return None
        resource, view = found
        return OwningGroup(resource, view.namespace, view.name, view.uid)

    def object_of(self, group: str) -> tuple[resources.Resource, WrittenGroup] | None:
        """The object of a group on which is written what is said of it; ``None`` of a group that has none (on
        those of Kubernetes' own API stands a condition alone)."""
        kind = podgroups.kind_prefix(group)
        view: WrittenGroup | None
        if kind == podgroups.KAI:
            resource, view = resources.KAI_POD_GROUPS, self.kai_groups.get(podgroups.shown_key(group))
        elif kind == podgroups.COSCHEDULING:
            resource, view = resources.COSCHEDULING_POD_GROUPS, self._coscheduling(group)
        else:
            resource, view = resources.POD_GROUPS, self.groups.get(group)
        return None if view is None else (resource, view)

    def native_of(self, group: str) -> views.NativeGroup | None:
        """The PodGroup of Kubernetes' own API that a group is; ``None`` of any other."""
        if podgroups.kind_prefix(group) != podgroups.NATIVE:
            return None
        return self.native_groups.get(podgroups.shown_key(group))

    def readable(self) -> DisplayNames:
        """How the engine's keys are called in texts."""
        return DisplayNames(self.both_apis(), self.queues)

    def claim_writes(self, bind: Bind, now: float, together: Collection[str] = ()) -> list[ClaimWrite]:
        """What has to be written about the claims of a pod before it is bound. ``now``: Unix seconds.

        ``together``: the pods that begin with it, for which the claims that it shares with them are written, too.
        Raises :class:`~windlass.model.devices.dra_claims.ClaimsChanged`."""
        pod = self.pods.get(bind.task)
        if pod is None or not pod.shape.claims:
            return []
        return writes_for(self.claims, pod, bind, self.pods, now, self.manages, together)

    def sharers(self, binds: Iterable[Bind]) -> dict[str, None]:
        """The pods among those of a gang's binds that share with others among them a claim that none has yet."""
        users: dict[str, list[str]] = {}
        for bind in binds:
            pod = self.pods.get(bind.task)
            for reference in pod.shape.claims if pod is not None else ():
                if reference.claim:
                    users.setdefault(f"{bind.task.partition('/')[0]}/{reference.claim}", []).append(bind.task)
        shared = [
            tasks
            for claim, tasks in users.items()
            if len(tasks) > 1
            and (carrier := self.claims.carrier_of(claim, self.pods)) is not None
            and carrier.key in tasks
        ]
        return dict.fromkeys(task for tasks in shared for task in tasks)


def _is_of(change: deltas.Delta, tasks: Collection[str]) -> bool:
    return isinstance(change, deltas.TaskUpserted) and change.task.key in tasks
