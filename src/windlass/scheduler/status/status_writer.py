"""Shows how PodGroups stand, why they wait, and all else that is written and is neither a bind nor an eviction.

What is shown is true but calm: a phase is written at once, mere counts once a second, reasons as :mod:`.waits` says, on
pods of a gang, which may be thousands, every ``pod_rewrite_seconds`` (:mod:`.podwords`). What the informers show is
compared first, so a restarted scheduler writes nothing again. What will have another end in a moment is not written at
all: a gang whose pods still come, one whose binds are under way.

Positions are shown too, and change whenever anything starts: those of the first of a queue are kept up to date, those
further back are of the time of writing.

Keys of the write queue: ``group NS/NAME``, ``foreign NS/NAME`` (:mod:`.disowning`), ``pod NS/NAME``, ``queue NAME``,
``share NAME`` (of a queue; both :mod:`.queuefigures`), ``hypernode NAME``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.api.reasons import Explanation
from windlass.client.client import Client
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.engine.decision import QueueUsage
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.groups import podgroup_status
from windlass.model.groups.member_counts import COMPLETED, INQUEUE, PENDING, RUNNING, Members
from windlass.model.groups.podgroups import PHASES_ADMITTED
from windlass.model.records import attained_service
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.status.cleanup_foreign import ForeignStatusCleanup
from windlass.scheduler.status.foreign_groups import ForeignGroups
from windlass.scheduler.status.kai_moments import Moments
from windlass.scheduler.status.pending_groups import PendingGroups
from windlass.scheduler.status.pod_status import PodStatuses
from windlass.scheduler.status.podgroup_status import PodGroupStatuses
from windlass.scheduler.status.queue_status import QueueStatuses
from windlass.scheduler.status.writer_context import (
    COUNTS_SECONDS,
    OWN_WRITE_SECONDS,
    Nodes,
    StatusWriterContext,
    record,
)
from windlass.scheduler.write_queue import WriteQueue
from windlass.spi.objects import AttainedService

BINDING_SECONDS = 30.0
"""For so long a gang whose binds are under way need not be told to be admitted: it is running in a moment."""
FIRST_SECONDS = 0.25
"""So long is looked whether pods come to a new group unasked."""
_WAIT_TO_BE_LET_IN = "batch.volcano.sh/"
"""Owners of groups who make pods only once the group is let in."""
KEPT_SECONDS, LOOK_SECONDS = 10.0, 0.5
"""So long at most is news kept in a rush, and so often is looked whether there still is one: the figures of a queue,
that a gang runs, how many of it. Jobs go by their pods, not by these; ten seconds late they are still true."""
NEWCOMERS_SECONDS = 0.5


@dataclass(slots=True)
class _Echo:
    status: podgroup_status.PodGroupStatus
    at: float


class StatusWriter:
    """All writing that is not binding and not evicting. ``explain(group)`` gives the detailed record; ``rush()`` says
    whether news has to wait (:mod:`.rush`). ``past(group)``: what one that shares time has behind it."""

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        options: SchedulerOptions,
        explain: Callable[[str], Explanation | None],
        *,
        clock: Clock,
        rng: Random,
        nodes: Nodes,
        past: Callable[[str], AttainedService | None],
        rush: Callable[[], bool] = lambda: False,
    ) -> None:
        self._queue = WriteQueue(
            self._write,
            clock=clock,
            rng=rng,
            concurrency=options.write_concurrency,
            outages=client.outages,
            later=self._later,
        )
        wish, drop = self._queue.wish, self._queue.drop
        statuses = PodGroupStatuses(client)
        self._context = StatusWriterContext(
            client, statuses, model, recorder, metrics, options, explain, clock, wish, drop, rush, nodes, past
        )
        self.waits = PendingGroups(self._context)
        self.pods = PodStatuses(self._context, self.waits)
        self._figures = QueueStatuses(self._context)
        self.foreign_cleanup = ForeignStatusCleanup(self._context)
        self._others = ForeignGroups(self._context)
        self._kept: dict[str, float] = {}
        """Keys of writes that wait for the end of a rush, since when."""
        self._new: dict[str, float] = {}
        """Groups that are let in and not told so, since when."""
        self._admitted: dict[str, bool] = {}
        self._blocked: set[str] = set()
        self._echoes: dict[str, _Echo] = {}
        self._failed: dict[str, str] = {}
        """Gangs that did not come to their minimum in time, with what is said of that."""
        self._pasts_told: dict[str, str] = {}
        """Group → what was wrong with what it attained, when that was looked at last."""
        self._transition = "0"
        self._topology_seen = 0
        self._problems_told: frozenset[tuple[str, str]] = frozenset()

    def adjust(self, options: SchedulerOptions) -> None:
        """Other times between writes, for what is written from now on."""
        self._context.options = options

    async def run(self) -> None:
        """Write until cancelled."""
        await self._queue.run()

    @property
    def idle(self) -> bool:
        return self._queue.idle

    @property
    def behind(self) -> bool:
        """Whether news is kept, or something is being written."""
        return bool(self._kept) or self._queue.writing

    # ------------------------------------------------------------------ what is to be shown

    def nodes(self) -> None:
        """Nodes came, left or changed."""
        self.waits.renew_all_near()

    def queue(self, usage: QueueUsage) -> None:
        """A queue's figures changed."""
        self.waits.renew_near(usage.queue)
        self._figures.note(usage)

    def queue_gone(self, name: str) -> None:
        self._figures.gone(name)
        self._kept.pop(f"queue {name}", None)
        self._kept.pop(f"share {name}", None)

    def cycle(self, number: int) -> None:
        """A new cycle: what conditions written from now on are stamped with."""
        self._transition = str(number)
        topology = self._context.model.topology
        if self._topology_seen != topology.version:
            self._topology_seen = topology.version
            for name, view in topology.hypernodes.items():
                if view.node_count != len(topology.nodes_of(name)):
                    self._queue.wish(f"hypernode {name}")
            self._tell_problems()

    def _tell_problems(self) -> None:
        """What contradicts itself among HyperNodes, once, as an event on each."""
        found = self._context.model.topology.hypernode_problems
        for name, words in found:
            view = self._context.model.topology.hypernodes.get(name)
            if view is not None and (name, words) not in self._problems_told:
                resource = resources.HYPERNODES
                ref = ObjectRef(resource.api_version, resource.kind, "", name, view.uid)
                self._context.recorder.event(ref, "Warning", "Contradiction", words)
        self._problems_told = frozenset(found)

    def group(
        self, key: str, admitted: bool, explanation: Explanation | None, blocked: bool, members: Members
    ) -> None:
        """How a group stands. ``blocked``: it does not hold its minimum and waits."""
        self._admitted[key] = admitted
        if blocked:
            self._blocked.add(key)
        else:
            self._blocked.discard(key)
        self.waits.explain(key, explanation)
        wait = self.waits.of(key)
        if wait is not None and wait.pods_code is not None and members.pending > wait.pods_number:
            self._queue.wish(f"group {key}", NEWCOMERS_SECONDS)
        if wait is not None and wait.told is not None and wait.whole != self._context.nodes.serves(key):
            self._queue.wish(f"group {key}")
        self._tell_past(key)
        view = self._context.model.groups.get(key)
        if view is None:
            self._others.look(key, members, waits=wait is not None)
            return
        hypernode = self._context.model.hypernode_of(key) if view.topology is not None else ""
        if hypernode and view.annotations.get(names.ALLOCATED_HYPERNODE) != hypernode:
            self._queue.wish(f"group {key}", COUNTS_SECONDS)
        # Conditions change only with the phase, or when something is told: that has its own wish.
        phase = self._phase(view, members)
        if phase != view.phase:
            self._queue.wish(f"group {key}", self._hush(view, members, phase))
            return
        self._new.pop(key, None)
        if (members.running, members.succeeded, members.failed) != (
            view.running,
            view.succeeded,
            view.failed,
        ):
            self._queue.wish(f"group {key}", COUNTS_SECONDS)

    def _tell_past(self, key: str) -> None:
        """What a group's object says that it attained before, and cannot be true: once, as an event on it."""
        found = self._context.model.object_of(key)
        if found is None or names.ATTAINED not in found[1].annotations:
            return
        resource, view = found
        wrong = attained_service.problem(view.annotations, view.created)
        if wrong and self._pasts_told.get(key) != wrong:
            ref = ObjectRef(resource.api_version, resource.kind, view.namespace, view.name, view.uid)
            message = f"{wrong}; it counts as if it had attained nothing before"
            self._context.recorder.event(ref, "Warning", "AttainedIgnored", message)
        self._pasts_told[key] = wrong

    def _hush(self, view: views.PodGroup, members: Members, phase: str) -> float:
        """For so many seconds yet need not be told that a group is let in, or runs no more: that is for those who make
        its pods only then. One whose pods come unasked is running in a moment, or told with the reason for which it
        is not."""
        if phase == view.phase or phase not in (PENDING, INQUEUE):
            return 0.0
        awaited = any(owner.api_version.startswith(_WAIT_TO_BE_LET_IN) for owner in view.owners)
        if awaited and (phase == INQUEUE or not members.total):
            return 0.0
        now, wait = self._context.clock.monotonic(), self.waits.of(view.key)
        since = self._new.setdefault(view.key, now)
        if any(pod.key in self._context.model.assumed for pod in self._context.model.pods_of(view.key)):
            return since + BINDING_SECONDS - now
        if wait is not None and members.total:
            return wait.due - now if wait.told is None else 0.0
        return since + FIRST_SECONDS - now

    def notes(self, key: str) -> dict[str, str | None]:
        """Annotations that are due on a group whose members are about to be bound."""
        view = self._context.model.groups.get(key)
        if view is None:
            return self._others.notes(key)
        found: dict[str, str | None] = {}
        if names.EXPLANATION in view.annotations:
            found[names.EXPLANATION] = None
        found.update(self._hypernode_note(view))
        found.update(self._context.past_note(key, view.annotations))
        return found

    def gang_failed(self, key: str, message: str) -> None:
        """The gang did not come to its minimum in time; its bound members are evicted."""
        found = self._context.model.object_of(key)
        if found is None:
            return
        resource, view = found
        if isinstance(view, views.PodGroup):
            self._failed[key] = message
            self._queue.wish(f"group {key}")
        ref = ObjectRef(resource.api_version, resource.kind, view.namespace, view.name, view.uid)
        self._context.recorder.event(ref, "Warning", podgroup_status.GANG_BIND_FAILED, message)

    def moments(self, found: Moments) -> None:
        """Moments that are to stand on groups of KAI."""
        self._others.moments(found)

    def gone(self, key: str) -> None:
        """The group and all its pods are gone."""
        self.waits.end(key)
        self._others.gone(key)
        self._failed.pop(key, None)
        self._pasts_told.pop(key, None)
        self._admitted.pop(key, None)
        self._echoes.pop(key, None)
        self._kept.pop(f"group {key}", None)
        self._new.pop(key, None)
        self._blocked.discard(key)
        self._queue.drop(f"group {key}")

    def _standing(self, view: views.PodGroup, members: Members) -> podgroup_status.PodGroupState:
        key = view.key
        wait = self.waits.of(key)
        admitted = self._admitted.get(key, False) or view.phase in PHASES_ADMITTED
        failed = self._failed.get(key, "")
        return podgroup_status.PodGroupState(
            members, admitted, key in self._blocked, wait.told if wait else None, failed
        )

    def _phase(self, view: views.PodGroup, members: Members) -> str:
        return podgroup_status.phase(view, self._standing(view, members))

    def _wanted(self, view: views.PodGroup) -> podgroup_status.PodGroupStatus:
        standing = self._standing(view, self._context.model.members(view.key))
        return podgroup_status.desired(view, standing, self._context.clock.now(), self._transition)

    # ------------------------------------------------------------------ writing

    async def _write(self, key: str) -> None:
        what, _, name = key.partition(" ")
        if what == "group":
            await self._write_group(name)
        elif what == "pod":
            await self.pods.write(name)
        elif what == "foreign":
            await self.foreign_cleanup.write(name)
        elif what == "share":
            await self._figures.write_share(name)
        elif what == "hypernode":
            await self._write_hypernode(name)
        else:
            await self._figures.write(name)

    async def _write_group(self, key: str) -> None:
        self.waits.put_off(key)
        view = self._context.model.groups.get(key)
        if view is not None and (rest := self._rest(view)) > 0:
            self._queue.wish(f"group {key}", rest)
            return
        told = self.waits.tell(key)
        self.pods.tell(key, told)
        if view is None:
            await self._others.write(key, told, key in self._blocked)
            return
        wanted = self._wanted(view)
        if self._needs_writing(view, wanted):
            await self._context.statuses.patch(view.name, view.namespace, wanted.patch())
            self._echoes[key] = _Echo(wanted, self._context.clock.monotonic())
            self._context.metrics.writes.labels("podgroup").inc()
            self._announce(view, told)
        if wanted.phase in (RUNNING, COMPLETED):
            self._failed.pop(key, None)
        notes = self._hypernode_note(view)
        if notes:
            self._context.metrics.writes.labels("hypernode").inc()
        await self._context.annotate(
            resources.POD_GROUPS,
            view.namespace,
            view.name,
            view.annotations,
            record(told),
            notes,
            self._context.past_note(key, view.annotations),
        )

    def _rest(self, view: views.PodGroup) -> float:
        """For so many seconds nothing is written on a group yet."""
        members = self._context.model.members(view.key)
        return self._hush(view, members, self._phase(view, members))

    def _hypernode_note(self, view: views.PodGroup) -> dict[str, str | None]:
        hypernode = self._context.model.hypernode_of(view.key) if view.topology is not None else ""
        if hypernode and view.annotations.get(names.ALLOCATED_HYPERNODE) != hypernode:
            return {names.ALLOCATED_HYPERNODE: hypernode}
        return {}

    async def _write_hypernode(self, name: str) -> None:
        """How many nodes it comes to."""
        topology = self._context.model.topology
        view = topology.hypernodes.get(name)
        wanted = len(topology.nodes_of(name))
        if view is None or view.node_count == wanted:
            return
        patch = {"status": {"nodeCount": wanted}}
        await self._context.client.patch(resources.HYPERNODES, name, patch, subresource="status")
        self._context.metrics.writes.labels("hypernode").inc()

    def _later(self, key: str) -> float:
        """For so many seconds a write waits for the end of a rush: it is news that nobody waits for."""
        if self._context.rush() and self._is_news(*key.split(" ", 1)):
            now = self._context.clock.monotonic()
            if now - self._kept.setdefault(key, now) < KEPT_SECONDS:
                return LOOK_SECONDS
        self._kept.pop(key, None)
        return 0.0

    def _is_news(self, what: str, key: str) -> bool:
        """Whether there is no more to say of a group than that it runs, and how many of it; of a pod, than that what
        was said is true no more."""
        if what == "pod":
            return self.pods.is_old(key)
        if what != "group":
            return what in ("queue", "share")
        view = self._context.model.groups.get(key)
        if view is None or key in self.waits or key in self._failed:
            return False
        return self._phase(view, self._context.model.members(key)) in (RUNNING, view.phase)

    def _needs_writing(self, view: views.PodGroup, wanted: podgroup_status.PodGroupStatus) -> bool:
        if wanted == podgroup_status.current(view):
            self._echoes.pop(view.key, None)
            return False
        echo = self._echoes.get(view.key)
        if echo is None or self._context.clock.monotonic() - echo.at > OWN_WRITE_SECONDS:
            return True
        same = (echo.status.phase, echo.status.running, echo.status.succeeded, echo.status.failed) == (
            wanted.phase,
            wanted.running,
            wanted.succeeded,
            wanted.failed,
        )
        return not (same and podgroup_status.same_words(echo.status.conditions, wanted.conditions))

    def _announce(self, view: views.PodGroup, told: Explanation | None) -> None:
        if told is not None and view.key in self._blocked:
            ref = ObjectRef(resources.POD_GROUPS.api_version, "PodGroup", view.namespace, view.name, view.uid)
            self._context.recorder.event(ref, "Warning", podgroup_status.UNSCHEDULABLE, told.message)
