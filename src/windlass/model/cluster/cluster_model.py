"""Model of the cluster: typed views in, engine deltas out. Pure.

It consists of the objects (:class:`.object_cache.ObjectCache`), their groups
(:class:`.group_index.GroupIndex`), decided binds
(:class:`.assumed_binds.AssumedBinds`), optional features
(:mod:`windlass.model.contributors`) and the translation
(:class:`.delta_builder.DeltaBuilder`).

Events only mark what they touch. :meth:`ClusterModel.take` translates each marked
object once, however often it was marked. It returns a delta only for what differs for
the engine, so status updates of pods cost nothing. A decided bind stays assumed until
the pod shows it, so that a late event about the unbound pod does not undo it.
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
    """The model's components, and the translation as a whole.

    ``scheduler_names``: scheduler names of the pods that are placed. All other pods
        only occupy their nodes.
    ``wait_for_group``: scheduler names of bare pods that wait until a controller has
        given them a PodGroup.
    ``wait_for_owner``: the same for pods that another operator created
        (:mod:`windlass.jobs.owners`).
    ``tiers``: true if a configuration states the policies of Volcano's queues, also for
        pods of scheduler ``windlass``.
    ``exclusive``: rules for pods that share no device with one another
        (:mod:`windlass.model.pods.device_exclusion`).
    ``other_schedulers``: schedulers that serve some of the scheduler names too
        (:mod:`windlass.model.cluster.ownership`).
    ``foreign_queue``: queue of pods that other schedulers placed. There they can be
        evicted for work of higher priority. ``""``: they are never evicted.
    """

    def __init__(
        self,
        scheduler_names: Collection[str],
        *,
        wait_for_group: Collection[str] = frozenset(),
        wait_for_owner: Collection[str] = frozenset(),
        tiers: bool = False,
        exclusive: Rules = (),
        other_schedulers: Collection[OtherScheduler] = (),
        foreign_queue: str = "",
    ) -> None:
        marks, sent, membership = DirtyMarks(), SentState(), Membership()
        contributors = Contributors()
        objects = ObjectCache(marks, sent, membership, contributors, Ownership(other_schedulers))
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
            wait_for_owner=wait_for_owner,
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
        """Apply a configuration. :meth:`resend` has to follow."""
        self._tasks.tiers = tiers
        self._tasks.foreign_queue = foreign_queue
        self.features.requests.exclusive = exclusive

    def read_labels(self, keys: Iterable[str], *, images: bool = False) -> None:
        """Include these pod labels, and container images if ``images``, as policies read them."""
        self._deltas.read_labels(keys, images=images)

    def reserve_devices(self, *, cdi: bool) -> None:
        """From now on, share devices of device plugins only while a reservation holds them."""
        self.features.requests.reserve(self.objects.nodes, cdi=cdi)

    def open_devices(self, node: str, problem: str) -> None:
        """Set why no further device of a node can be reserved for sharing; ``""``: it can."""
        self.features.requests.open_devices(self.objects.nodes, node, problem)

    def withhold(self, pods: dict[str, Explanation]) -> None:
        """In a dry run: hide these pods from the engine, as they would not have been created."""
        self._tasks.withheld = pods

    # ------------------------------------------------------------------ deltas

    def take(self, now: float = 0.0, most: int | None = None) -> list[deltas.Delta]:
        """Return the deltas since the last call (:meth:`.delta_builder.DeltaBuilder.take`)."""
        return self._deltas.take(now, most)

    def resend(self) -> None:
        """Forget what was sent: the next :meth:`take` returns the whole state, for another engine."""
        self._deltas.resend()

    def resume(self, binds: Iterable[Bind], changes: list[deltas.Delta]) -> list[deltas.Delta]:
        """Assume binds that another scheduler had decided.

        Return ``changes`` as the engine has to receive them then, with assumed tasks
        for these binds.
        """
        decided = {bind.task: bind for bind in binds}
        for bind in decided.values():
            self.binds.assume(bind)
        known = [change for change in changes if not _is_of(change, decided)]
        assumed, sent = self.binds.assumed, self._sent.tasks
        tasks = [sent[key] for key in decided if key in sent]
        return known + [deltas.TaskUpserted(as_assumed(task, assumed[task.key], None)) for task in tasks]

    @property
    def marked_pods(self) -> int:
        """Number of pods that the next :meth:`take` translates."""
        return len(self.marks.pods)

    @property
    def label_version(self) -> int:
        """Version of the labels that placement depends on.

        All pods are translated again when it grows.
        """
        return self.objects.vocabulary.version

    def sent_deltas(self) -> list[deltas.Delta]:
        """Return deltas of the state that the engine holds, without groups and pods."""
        return self._deltas.sent_deltas()

    def sent_groups(self) -> dict[str, Group]:
        """Return the groups that the engine holds, by key."""
        return dict(self._sent.groups)

    def sent_tasks(self) -> dict[str, Task]:
        """Return the tasks that the engine holds, by key, with decided binds as assumed."""
        return self._deltas.sent_tasks()

    def time_was_set(self) -> None:
        """Prepare for a next :meth:`take` with an earlier time than the last."""
        self._deltas.time_was_set()

    def next_change(self) -> float | None:
        """Return the Unix second at which time alone changes something."""
        return self._deltas.next_change()

    def take_changed(self) -> list[str]:
        """Return the groups with changed members, fields or own explanation since the last call."""
        return self._deltas.take_changed()

    def show_all(self) -> None:
        """Have all groups count as changed."""
        self._deltas.show_all()

    # ------------------------------------------------------------------ pods

    def manages(self, pod: views.Pod) -> bool:
        """Return whether this scheduler places the pod."""
        return self._tasks.manages(pod)

    def protect(self, pod: str, until: float) -> None:
        """Do not evict a pod before a time (Unix seconds), as its eviction was refused."""
        self._tasks.protect(pod, until)

    def budgets_of(self, key: str) -> tuple[str, ...]:
        """Return the PodDisruptionBudgets that protect a pod."""
        pod = self.objects.pods.get(key)
        return self.features.budgets.of(pod) if pod is not None else ()

    # ------------------------------------------------------------------ groups

    def explanation(self, group: str) -> Explanation | None:
        """Return why the model holds a group back; ``None`` if the engine knows the reason."""
        return self._errors.explanation(group)

    def completed(self, group: str, explanation: Explanation) -> Explanation:
        """Return the engine's explanation with what the engine does not know."""
        return self._errors.completed(group, explanation)

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
        """Return a group as it was last sent to the engine."""
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
        """Return the display names of the engine's keys."""
        return DisplayNames(self.objects.both_apis(), self.objects.queues, self.groups.pods_of)


def _is_of(change: deltas.Delta, tasks: Collection[str]) -> bool:
    return isinstance(change, deltas.TaskUpserted) and change.task.key in tasks
