"""The model: typed views in, engine deltas out. Pure; remembers what it has told the engine.

Its parts: the objects (:class:`.object_cache.ObjectCache`), their groups
(:class:`.group_index.GroupIndex`), decided binds (:class:`.assumed_binds.AssumedBinds`), optional features
(:mod:`windlass.model.contributors`) and the translation (:class:`.delta_builder.DeltaBuilder`). Events only
mark what they touch; :meth:`ClusterModel.take` translates what was touched, once, however often it was. A
delta is given only for what differs for the engine: status updates of pods cost nothing. A decided bind
stays assumed until the pod shows it, so that a late event about the unbound pod does not undo it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from windlass.api import views
from windlass.api.reasons import Explanation
from windlass.engine import deltas
from windlass.engine.decision import Bind
from windlass.model.autoscaling.provisioning_settings import ProvisioningSettings
from windlass.model.cluster.assumed_binds import AssumedBinds
from windlass.model.cluster.bind_writes import BindWrites
from windlass.model.cluster.delta_builder import DeltaBuilder
from windlass.model.cluster.display_names import DisplayNames
from windlass.model.cluster.group_builder import GroupBuilder
from windlass.model.cluster.group_errors import GroupErrors
from windlass.model.cluster.group_index import GroupIndex
from windlass.model.cluster.marks import DirtyMarks, Membership, SentState
from windlass.model.cluster.object_cache import ObjectCache
from windlass.model.cluster.ownership import OtherScheduler, Ownership
from windlass.model.cluster.task_builder import TaskBuilder, as_assumed
from windlass.model.contributors import features
from windlass.model.contributors.registry import Contributors
from windlass.model.pods.device_exclusion import Rules
from windlass.spi.objects import Group, Task


class ClusterModel:
    """The parts of the model, and the translation as a whole.

    ``scheduler_names``: the pods that are placed; all others only occupy their nodes.
    ``wait_for_group``: scheduler names whose bare pods wait until a controller has given them a PodGroup.
    ``tiers``: a configuration states the policies of Volcano's queues, also for pods of scheduler
    ``windlass``. ``exclusive``: which pods share no device with one another
    (:mod:`windlass.model.pods.device_exclusion`). ``beside``: schedulers that serve some of the scheduler
    names too (:mod:`windlass.model.cluster.ownership`). ``foreign_queue``: queue of pods that other
    schedulers placed, in which they can be evicted for work of higher priority; ``""``: they are not.
    """

    def __init__(
        self,
        scheduler_names: Collection[str],
        *,
        wait_for_group: Collection[str] = frozenset(),
        tiers: bool = False,
        exclusive: Rules = (),
        beside: Collection[OtherScheduler] = (),
        foreign_queue: str = "",
    ) -> None:
        marks, sent, membership = DirtyMarks(), SentState(), Membership()
        contributors = Contributors()
        objects = ObjectCache(marks, sent, membership, contributors, Ownership(beside))
        index = GroupIndex(objects, marks, membership)
        binds = AssumedBinds(marks, membership, objects.pods)
        builder = GroupBuilder(objects, index, sent, contributors)
        parts = features.register(contributors, marks, sent, objects, index, builder, binds, exclusive)
        tasks = TaskBuilder(
            objects,
            index,
            builder,
            binds,
            marks,
            sent,
            contributors,
            parts,
            scheduler_names=scheduler_names,
            wait_for_group=wait_for_group,
        )
        self.marks = marks
        self.objects = objects
        self.groups = index
        self.binds = binds
        self.features = parts
        self.writes = BindWrites(objects, binds, sent, parts, tasks.manages)
        self.provisioning = ProvisioningSettings(objects, index, self.queue_of)
        self._sent = sent
        self._builder = builder
        self._tasks = tasks
        self._deltas = DeltaBuilder(objects, index, builder, tasks, binds, marks, sent, contributors, parts)
        self._errors = GroupErrors(objects, index, builder, tasks, binds, parts)
        self.configure(tiers=tiers, exclusive=exclusive, foreign_queue=foreign_queue)

    # ------------------------------------------------------------------ settings

    def configure(self, *, tiers: bool, exclusive: Rules = (), foreign_queue: str = "") -> None:
        """Set what a configuration says; :meth:`resend` has to follow."""
        self._tasks.tiers = tiers
        self._tasks.foreign_queue = foreign_queue
        self.features.requests.exclusive = exclusive

    def read_labels(self, keys: Iterable[str], *, images: bool = False) -> None:
        """Tell of these labels of pods, and of container images or not: policies read them."""
        self._deltas.read_labels(keys, images=images)

    def reserve_devices(self, *, cdi: bool) -> None:
        """From now on, devices that device plugins allocate are shared only while they are held for it."""
        self.features.requests.reserve(self.objects.nodes, cdi=cdi)

    def open_devices(self, node: str, problem: str) -> None:
        """Set why no further device of a node can be held for sharing; ``""``: it can."""
        self.features.requests.open_devices(self.objects.nodes, node, problem)

    def withhold(self, pods: dict[str, Explanation]) -> None:
        """In a dry run: hide these pods from the engine, as they would not have been created."""
        self._tasks.withheld = pods

    # ------------------------------------------------------------------ what the engine is told

    def take(self, now: float = 0.0, most: int | None = None) -> list[deltas.Delta]:
        """Return the deltas since the last call (:meth:`.delta_builder.DeltaBuilder.take`)."""
        return self._deltas.take(now, most)

    def resend(self) -> None:
        """Forget what was told: the next :meth:`take` gives the whole state, for another engine."""
        self._deltas.resend()

    def resume(self, binds: Iterable[Bind], changes: list[deltas.Delta]) -> list[deltas.Delta]:
        """Assume binds that another scheduler had decided.

        Return ``changes`` as the engine has to be told then, whether they or earlier ones told of the pods.
        """
        found = {bind.task: bind for bind in binds}
        for bind in found.values():
            self.binds.assume(bind)
        known = [change for change in changes if not _is_of(change, found)]
        assumed, sent = self.binds.assumed, self._sent.tasks
        tasks = [sent[key] for key in found if key in sent]
        return known + [deltas.TaskUpserted(as_assumed(task, assumed[task.key], None)) for task in tasks]

    @property
    def untold(self) -> int:
        """Number of pods that the next :meth:`take` translates."""
        return len(self.marks.pods)

    @property
    def label_version(self) -> int:
        """Grows with the labels that placement depends on: all pods are then translated again."""
        return self.objects.vocabulary.version

    def told(self) -> list[deltas.Delta]:
        """Return what was told so far and holds, but for groups and pods."""
        return self._deltas.told()

    def told_groups(self) -> dict[str, Group]:
        """Return the groups that were told, by key."""
        return dict(self._sent.groups)

    def told_tasks(self) -> dict[str, Task]:
        """Return the pods that were told, by key, assumed ones where they are assumed to be."""
        return self._deltas.told_tasks()

    def time_was_set(self) -> None:
        """The next :meth:`take` may be of an earlier time than the last."""
        self._deltas.time_was_set()

    def next_change(self) -> float | None:
        """Return the Unix second at which time alone changes something."""
        return self._deltas.next_change()

    def take_changed(self) -> list[str]:
        """Return the groups whose members, fields or own explanation have changed since the last call."""
        return self._deltas.take_changed()

    def show_all(self) -> None:
        """Have all groups count as changed."""
        self._deltas.show_all()

    # ------------------------------------------------------------------ pods

    def manages(self, pod: views.Pod) -> bool:
        """Return whether this scheduler places the pod."""
        return self._tasks.manages(pod)

    def protect(self, pod: str, until: float) -> None:
        """Do not evict a pod whose eviction was refused before a time (Unix seconds)."""
        self._tasks.protect(pod, until)

    def budgets_of(self, key: str) -> tuple[str, ...]:
        """Return the PodDisruptionBudgets that protect a pod."""
        pod = self.objects.pods.get(key)
        return self.features.budgets.of(pod) if pod is not None else ()

    # ------------------------------------------------------------------ groups

    def explanation(self, group: str) -> Explanation | None:
        """Return why the model holds a group back; ``None`` if the engine knows the reason."""
        return self._errors.explanation(group)

    def completed(self, group: str, told: Explanation) -> Explanation:
        """Return the engine's explanation with what the engine does not know."""
        return self._errors.completed(group, told)

    def blocked(self, group: str) -> bool:
        """Return whether the group lacks its minimum; binds under way count unless they wait for something."""
        return self._errors.blocked(group)

    def queue_of(self, group: str) -> str:
        """Return the queue of a group that the engine knows; ``""`` for another."""
        sent = self._sent.groups.get(group)
        return sent.queue if sent is not None else ""

    def queue_named(self, group: str) -> str:
        """Return the queue that a group names, whether the engine knows the group or not."""
        return self._builder.queue_named(group)

    def group_sent(self, group: str) -> Group | None:
        """Return a group as the engine was told of it."""
        return self._sent.groups.get(group)

    def hypernode_of(self, group: str) -> str:
        """Return the HyperNode of the lowest tier that holds all placed pods of a group; ``""``: none does."""
        nodes = set()
        for pod in self.groups.pods_of(group):
            if pod.finished or pod.deleted:
                continue
            assumed = self.binds.assumed.get(pod.key)
            node = pod.node_name or (assumed.node if assumed is not None else "")
            if node:
                nodes.add(node)
        return self.features.topology.index.tightest(nodes)

    def display_names(self) -> DisplayNames:
        """Return how the engine's keys are called in texts."""
        return DisplayNames(self.objects.both_apis(), self.objects.queues)


def _is_of(change: deltas.Delta, tasks: Collection[str]) -> bool:
    return isinstance(change, deltas.TaskUpserted) and change.task.key in tasks
