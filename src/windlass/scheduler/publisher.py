"""Shows why things wait, and how PodGroups and queues stand: conditions, annotations, phases, events.

What is shown is true but calm. A reason is written once a group has waited for ``quiet_seconds``, at once
when it is another reason, and with other words at most every ``rewrite_seconds``; on pods of a gang, which may be
thousands, every ``pod_rewrite_seconds``. A phase is written at once, mere counts once a second. What
the informers show is compared first, so a restarted scheduler writes nothing again. What will have another end in a
moment is not written at all: a gang whose pods still come, one whose binds are under way.

Positions are shown too, and change whenever anything starts: those of the first ``NEAR`` of a queue are
kept up to date, those further back are of the time of writing.

Keys of the write queue: ``group NS/NAME``, ``pod NS/NAME``, ``queue NAME``, ``share NAME`` (of a queue).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.api.quantities import from_units
from windlass.api.reasons import Explanation, Reason
from windlass.client.client import Client
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.engine.decision import QueueUsage
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.kits.timestamps import rfc3339
from windlass.model import podgroups, queues
from windlass.model.cluster import ClusterModel
from windlass.model.groups import KAI, PHASES_ADMITTED, is_implicit, kind_prefix, shown_key
from windlass.model.kubewords import pod_reason, with_summary
from windlass.model.members import Members
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.kai_moments import Moments
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.writes import WriteQueue

COUNTS_SECONDS = 1.0
BINDING_SECONDS = 30.0
"""For so long a gang whose binds are under way need not be told to be admitted: it is running in a moment."""
FIRST_SECONDS = 0.25
"""So long is looked whether pods come to a new group unasked."""
_WAIT_TO_BE_LET_IN = "batch.volcano.sh/"
"""Owners of groups who make pods only once the group is let in."""
RUNNING_SECONDS, LOOK_SECONDS = 10.0, 0.5
"""So long at most gives the news that a gang runs way to binds, and so often is looked whether there still are any: a
patch of a PodGroup costs the API server as much as three binds."""
GROWING_SECONDS = 5.0
"""For so long a gang whose pods keep coming is not told to lack some."""
NEWCOMERS_SECONDS = 0.5
SHARE_SECONDS = 2.0
NOMINATE_SECONDS = 0.25
NEAR = 50
NOTHING: Mapping[str, str | None] = {}
ECHO_SECONDS = 10.0
"""For so long a written status is not written again while the informers do not show it yet."""


@dataclass(slots=True)
class _Wait:
    """A waiting group. ``told`` is what is shown, with all details; ``basis`` the short form that it was
    made for; ``at`` the (monotonic) moment of its writing."""

    current: Explanation
    since: float
    due: float
    queue: str = ""
    basis: Explanation | None = None
    told: Explanation | None = None
    at: float = 0.0
    pods_code: Reason | None = None
    pods_reason: str = ""
    pods_number: int = 0
    """Of so many pods that wait it was told."""
    pods_message: str = ""
    pods_at: float = 0.0


@dataclass(slots=True)
class _Echo:
    status: podgroups.Status
    at: float


class Publisher:
    """All writing that is not binding and not evicting. ``explain(group)`` gives the detailed record; ``busy()`` says
    whether binds are under way."""

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
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._client = client
        self._busy = busy
        self._ran: dict[str, float] = {}
        """Groups that run and are not told to yet, since when."""
        self._new: dict[str, float] = {}
        """Groups that are let in and not told so, since when."""
        self._model = model
        self._recorder = recorder
        self._metrics = metrics
        self._options = options
        self._explain_fully = explain
        self._clock = clock
        self._near: dict[str, set[str]] = {}
        self._waits: dict[str, _Wait] = {}
        self._reasons: dict[str, int] = {}
        self._admitted: dict[str, bool] = {}
        self._blocked: set[str] = set()
        self._echoes: dict[str, _Echo] = {}
        self._usage: dict[str, QueueUsage] = {}
        self._moments: Moments = {}
        self._failed: dict[str, str] = {}
        """Gangs that did not come to their minimum in time, with what is said of that."""
        self._nominated: dict[str, str] = {}
        self._transition = "0"
        self._topology_seen = 0
        self._problems_told: frozenset[tuple[str, str]] = frozenset()
        self._queue = WriteQueue(self._write, clock=clock, rng=rng, concurrency=options.write_concurrency)

    def adjust(self, options: SchedulerOptions) -> None:
        """Other times between writes, for what is written from now on."""
        self._options = options

    async def run(self) -> None:
        """Write until cancelled."""
        await self._queue.run()

    @property
    def idle(self) -> bool:
        return self._queue.idle

    @property
    def reasons(self) -> Mapping[str, int]:
        """How many groups wait, by reason; a reason that nothing waits for any more stays with 0."""
        return self._reasons

    # ------------------------------------------------------------------ what is to be shown

    def cycle(self, number: int) -> None:
        """A new cycle: what conditions written from now on are stamped with."""
        self._transition = str(number)
        topology = self._model.topology
        if self._topology_seen != topology.version:
            self._topology_seen = topology.version
            for name, view in topology.hypernodes.items():
                if view.node_count != len(topology.nodes_of(name)):
                    self._queue.wish(f"hypernode {name}")
            self._tell_problems()

    def _tell_problems(self) -> None:
        """What contradicts itself among HyperNodes, once, as an event on each."""
        found = self._model.topology.hypernode_problems
        for name, words in found:
            view = self._model.topology.hypernodes.get(name)
            if view is not None and (name, words) not in self._problems_told:
                resource = resources.HYPERNODES
                ref = ObjectRef(resource.api_version, resource.kind, "", name, view.uid)
                self._recorder.event(ref, "Warning", "Contradiction", words)
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
        self._explain(key, explanation)
        wait = self._waits.get(key)
        if wait is not None and wait.pods_code is not None and members.pending > wait.pods_number:
            self._queue.wish(f"group {key}", NEWCOMERS_SECONDS)
        view = self._model.groups.get(key)
        if view is None:
            return
        hypernode = self._model.hypernode_of(key) if view.topology is not None else ""
        if hypernode and view.annotations.get(names.ALLOCATED_HYPERNODE) != hypernode:
            self._queue.wish(f"group {key}", COUNTS_SECONDS)
        # Conditions change only with the phase, or when something is told: that has its own wish.
        phase = self._phase(view, members)
        if phase == "Running" != view.phase and key not in self._waits and self._busy():
            self._ran.setdefault(key, self._clock.monotonic())
        else:
            self._ran.pop(key, None)
        if phase != view.phase:
            self._queue.wish(f"group {key}", self._hush(view, members) if phase == "Inqueue" else 0.0)
            return
        self._new.pop(key, None)
        if (members.running, members.succeeded, members.failed) != (
            view.running,
            view.succeeded,
            view.failed,
        ):
            self._queue.wish(f"group {key}", COUNTS_SECONDS)

    def _hush(self, view: views.PodGroup, members: Members) -> float:
        """For so many seconds yet need not be told that a group is let in: that is for those who make its pods only
        then. One whose pods come unasked is running in a moment, or told with the reason for which it is not."""
        if any(owner.api_version.startswith(_WAIT_TO_BE_LET_IN) for owner in view.owners):
            return 0.0
        now, wait = self._clock.monotonic(), self._waits.get(view.key)
        since = self._new.setdefault(view.key, now)
        if any(pod.key in self._model.assumed for pod in self._model.pods_of(view.key)):
            return since + BINDING_SECONDS - now
        if wait is not None and members.total:
            return wait.due - now if wait.told is None else 0.0
        return since + FIRST_SECONDS - now

    def waits(self, key: str) -> bool:
        """Whether a group is known to wait."""
        return key in self._waits

    def notes(self, key: str) -> dict[str, str | None]:
        """Annotations that are due on a group whose members are about to be bound."""
        view = self._model.groups.get(key)
        if view is None:
            return dict(self._moments.get(key, {}))
        found: dict[str, str | None] = {}
        if names.EXPLANATION in view.annotations:
            found[names.EXPLANATION] = None
        found.update(self._hypernode_note(view))
        return found

    def gang_failed(self, key: str, message: str) -> None:
        """The gang did not come to its minimum in time; its bound members are evicted."""
        view = self._model.groups.get(key)
        resource = resources.POD_GROUPS
        if view is None:
            kai = self._model.kai_groups.get(shown_key(key)) if kind_prefix(key) == KAI else None
            if kai is None:
                return
            resource = resources.KAI_POD_GROUPS
            ref = ObjectRef(resource.api_version, resource.kind, kai.namespace, kai.name, kai.uid)
        else:
            ref = ObjectRef(resource.api_version, resource.kind, view.namespace, view.name, view.uid)
            self._failed[key] = message
            self._queue.wish(f"group {key}")
        self._recorder.event(ref, "Warning", podgroups.GANG_BIND_FAILED, message)

    def nominate(self, task: str, node: str) -> None:
        """Room on a node is being vacated for a pod."""
        if self._nominated.get(task) != node:
            self._nominated[task] = node
            self._queue.wish(f"pod {task}", NOMINATE_SECONDS)

    @property
    def nominated(self) -> Mapping[str, str]:
        """Pod → the node on which room is being vacated for it."""
        return self._nominated

    def withdraw(self, task: str) -> None:
        """The pod is bound, or room is no longer kept for it."""
        if self._nominated.pop(task, None) is not None:
            self._queue.wish(f"pod {task}", NOMINATE_SECONDS)

    def review_pods(self) -> None:
        """Take back in a moment what somebody else has said of pods, unless it is said anew."""
        for key, pod in self._model.pods.items():
            if not self._model.manages(pod):
                continue
            if pod.node_name:
                self.bound(pod)
            elif pod.nominated_node:
                self._queue.wish(f"pod {key}", ECHO_SECONDS)

    def moments(self, found: Moments) -> None:
        """Moments that are to stand on groups of KAI."""
        for key, wanted in found.items():
            view = self._model.kai_groups.get(shown_key(key))
            if view is None:
                continue
            if any(view.annotations.get(name) != text for name, text in wanted.items()):
                self._moments.setdefault(key, {}).update(wanted)
                self._queue.wish(f"group {key}")

    def gone(self, key: str) -> None:
        """The group and all its pods are gone."""
        self._end(key)
        self._moments.pop(key, None)
        self._failed.pop(key, None)
        self._admitted.pop(key, None)
        self._echoes.pop(key, None)
        self._ran.pop(key, None)
        self._new.pop(key, None)
        self._blocked.discard(key)
        self._queue.drop(f"group {key}")

    def bound(self, pod: views.Pod) -> None:
        """A pod is on its node: what was said about its waiting is no longer true."""
        self._nominated.pop(pod.key, None)
        if names.EXPLANATION in pod.annotations:
            self._queue.wish(f"pod {pod.key}")

    def queue(self, usage: QueueUsage) -> None:
        """A queue's figures changed: and so, perhaps, who is how near to the front."""
        if self._options.beside:
            return  # the other scheduler still counts them
        for key in self._near.get(usage.queue, ()):
            self._renew(key)
        self._usage[usage.queue] = usage
        self._queue.wish(f"queue {usage.queue}", COUNTS_SECONDS)
        self._queue.wish(f"share {usage.queue}", SHARE_SECONDS)

    def queue_gone(self, name: str) -> None:
        self._usage.pop(name, None)
        self._queue.drop(f"queue {name}")
        self._queue.drop(f"share {name}")

    def _explain(self, key: str, explanation: Explanation | None) -> None:
        wait = self._waits.get(key)
        if explanation is None:
            if wait is not None:
                self._end(key)
                if wait.told is not None:
                    self._queue.wish(f"group {key}")
        elif wait is None:
            quiet, now = self._options.quiet_seconds, self._clock.monotonic()
            self._waits[key] = _Wait(explanation, now, now + quiet)
            self._count(explanation, 1)
            self._queue.wish(f"group {key}", quiet)
        elif explanation != wait.current:
            self._count(wait.current, -1)
            self._count(explanation, 1)
            wait.current = explanation
            if wait.told is not None:
                self._renew(key)
            elif explanation.code is Reason.WAITING_FOR_MEMBERS:
                quiet = self._clock.monotonic() + self._options.quiet_seconds
                wait.due = max(wait.due, min(quiet, wait.since + GROWING_SECONDS))

    def _renew(self, key: str) -> None:
        """Look again at what is shown of a group, when its time has come."""
        wait = self._waits[key]
        now = self._clock.monotonic()
        same = wait.told is not None and wait.told.code is wait.current.code
        calm = self._options.rewrite_seconds if same else self._options.quiet_seconds
        wait.due = max(now, wait.at + calm)
        wait.basis = None
        self._queue.wish(f"group {key}", wait.due - now)

    def _end(self, key: str) -> None:
        wait = self._waits.pop(key, None)
        if wait is not None:
            self._count(wait.current, -1)
            self._near.get(wait.queue, set()).discard(key)

    def _count(self, explanation: Explanation, change: int) -> None:
        code = str(explanation.code)
        self._reasons[code] = self._reasons.get(code, 0) + change

    def _tell(self, key: str) -> Explanation | None:
        """What may be shown of a group's waiting now."""
        wait = self._waits.get(key)
        if wait is None:
            return None
        now = self._clock.monotonic()
        if wait.basis is wait.current:
            return wait.told
        if now < wait.due:
            self._queue.wish(f"group {key}", wait.due - now)
            return wait.told
        wait.basis, wait.told, wait.at = wait.current, self._explain_fully(key) or wait.current, now
        self._near.get(wait.queue, set()).discard(key)
        if wait.told.position and wait.told.position <= NEAR:
            wait.queue = self._model.queue_of(key)
            self._near.setdefault(wait.queue, set()).add(key)
        return wait.told

    def _standing(self, view: views.PodGroup, members: Members) -> podgroups.Standing:
        key = view.key
        wait = self._waits.get(key)
        admitted = self._admitted.get(key, False) or view.phase in PHASES_ADMITTED
        failed = self._failed.get(key, "")
        return podgroups.Standing(
            members, admitted, key in self._blocked, wait.told if wait else None, failed
        )

    def _phase(self, view: views.PodGroup, members: Members) -> str:
        return podgroups.phase(view, self._standing(view, members))

    def _wanted(self, view: views.PodGroup) -> podgroups.Status:
        standing = self._standing(view, self._model.members(view.key))
        return podgroups.desired(view, standing, self._clock.now(), self._transition)

    # ------------------------------------------------------------------ writing

    async def _write(self, key: str) -> None:
        what, _, name = key.partition(" ")
        if what == "group":
            await self._write_group(name)
        elif what == "pod":
            await self._write_pod(name)
        elif what == "share":
            await self._write_share(name)
        elif what == "hypernode":
            await self._write_hypernode(name)
        else:
            await self._write_queue(name)

    async def _write_group(self, key: str) -> None:
        if self._gives_way(key):
            self._queue.wish(f"group {key}", LOOK_SECONDS)
            return
        view = self._model.groups.get(key)
        if view is not None and (rest := self._rest(view)) > 0:
            self._queue.wish(f"group {key}", rest)
            return
        told = self._tell(key)
        self._tell_pods(key, told)
        if view is None:
            await self._write_kai_group(key, told)
            return
        wanted = self._wanted(view)
        if self._needs_writing(view, wanted):
            await self._client.patch(
                resources.POD_GROUPS, view.name, wanted.patch(), view.namespace, subresource="status"
            )
            self._echoes[key] = _Echo(wanted, self._clock.monotonic())
            self._metrics.writes.labels("podgroup").inc()
            self._announce(view, told)
        if wanted.phase in ("Running", "Completed"):
            self._failed.pop(key, None)
        notes = self._hypernode_note(view)
        if notes:
            self._metrics.writes.labels("hypernode").inc()
        await self._annotate(
            resources.POD_GROUPS, view.namespace, view.name, view.annotations, _record(told), notes
        )

    def _rest(self, view: views.PodGroup) -> float:
        """For so many seconds nothing is written on a group yet."""
        members = self._model.members(view.key)
        return self._hush(view, members) if self._phase(view, members) == "Inqueue" != view.phase else 0.0

    def _hypernode_note(self, view: views.PodGroup) -> dict[str, str | None]:
        hypernode = self._model.hypernode_of(view.key) if view.topology is not None else ""
        if hypernode and view.annotations.get(names.ALLOCATED_HYPERNODE) != hypernode:
            return {names.ALLOCATED_HYPERNODE: hypernode}
        return {}

    async def _write_hypernode(self, name: str) -> None:
        """How many nodes it comes to."""
        topology = self._model.topology
        view = topology.hypernodes.get(name)
        wanted = len(topology.nodes_of(name))
        if view is None or view.node_count == wanted:
            return
        patch = {"status": {"nodeCount": wanted}}
        await self._client.patch(resources.HYPERNODES, name, patch, subresource="status")
        self._metrics.writes.labels("hypernode").inc()

    async def _write_kai_group(self, key: str, told: Explanation | None) -> None:
        """A group of KAI has no phase; its waiting is explained on it, and told by an event."""
        view = self._model.kai_groups.get(shown_key(key)) if kind_prefix(key) == KAI else None
        if view is None:
            return
        record = _record(told)
        if told is not None and key in self._blocked and view.annotations.get(names.EXPLANATION) != record:
            resource = resources.KAI_POD_GROUPS
            ref = ObjectRef(resource.api_version, resource.kind, view.namespace, view.name, view.uid)
            self._recorder.event(ref, "Warning", podgroups.UNSCHEDULABLE, told.message)
        moments = self._moments.pop(key, {})
        changed = {name: text for name, text in moments.items() if view.annotations.get(name) != text}
        if changed:
            patch = {"metadata": {"annotations": changed}}
            try:
                await self._client.patch(resources.KAI_POD_GROUPS, view.name, patch, view.namespace)
            except BaseException:
                self._moments[key] = {**moments, **self._moments.get(key, {})}
                raise
            self._metrics.writes.labels("moment").inc()
        await self._annotate(resources.KAI_POD_GROUPS, view.namespace, view.name, view.annotations, record)

    def _gives_way(self, key: str) -> bool:
        """Whether what there is to say of a group is only that it runs, and binds are under way."""
        since = self._ran.get(key)
        if since is None:
            return False
        if self._busy() and self._clock.monotonic() - since < RUNNING_SECONDS:
            return True
        del self._ran[key]
        return False

    def _needs_writing(self, view: views.PodGroup, wanted: podgroups.Status) -> bool:
        if wanted == podgroups.current(view):
            self._echoes.pop(view.key, None)
            return False
        echo = self._echoes.get(view.key)
        if echo is None or self._clock.monotonic() - echo.at > ECHO_SECONDS:
            return True
        same = (echo.status.phase, echo.status.running, echo.status.succeeded, echo.status.failed) == (
            wanted.phase,
            wanted.running,
            wanted.succeeded,
            wanted.failed,
        )
        return not (same and podgroups.same_words(echo.status.conditions, wanted.conditions))

    def _announce(self, view: views.PodGroup, told: Explanation | None) -> None:
        if told is not None and view.key in self._blocked:
            ref = ObjectRef(resources.POD_GROUPS.api_version, "PodGroup", view.namespace, view.name, view.uid)
            self._recorder.event(ref, "Warning", podgroups.UNSCHEDULABLE, told.message)

    def _tell_pods(self, key: str, told: Explanation | None) -> None:
        """Wish the writing of the group's waiting pods where their words are old."""
        if told is None:
            return
        wait = self._waits[key]
        now = self._clock.monotonic()
        calm = self._options.pod_rewrite_seconds
        reason = pod_reason(told)
        if told.code is wait.pods_code and reason == wait.pods_reason:
            self._tell_newcomers(key, wait)
            if told.message == wait.pods_message and now - wait.pods_at < calm:
                return
            if now - wait.pods_at < calm:
                self._queue.wish(f"group {key}", wait.pods_at + calm - now)
                return
        elif wait.pods_code is not None and reason != wait.pods_reason:
            # whether more nodes would help: what grows clusters must not see that go to and fro
            steady = wait.pods_at + self._options.rewrite_seconds
            if now < steady:
                self._queue.wish(f"group {key}", steady - now)
                return
        wait.pods_code, wait.pods_message, wait.pods_at = told.code, told.message, now
        wait.pods_reason, wait.pods_number = reason, self._model.members(key).pending
        for pod in self._waiting(key):
            self._queue.wish(f"pod {pod.key}")

    def _tell_newcomers(self, key: str, wait: _Wait) -> None:
        """Pods that came after the others were told: what grows clusters waits for their word, too."""
        number = self._model.members(key).pending
        if number > wait.pods_number:
            for pod in self._waiting(key):
                if not pod.waiting_reason:
                    self._queue.wish(f"pod {pod.key}")
        wait.pods_number = number

    def _waiting(self, key: str) -> Iterator[views.Pod]:
        for pod in self._model.pods_of(key):
            if not pod.node_name and not pod.finished and not pod.deleted and not pod.shape.gates:
                yield pod

    async def _write_pod(self, key: str) -> None:
        pod = self._model.pods.get(key)
        group = self._model.group_of(key)
        if pod is None or group is None:
            return
        wait = self._waits.get(group)
        waits = not (pod.node_name or pod.finished or pod.deleted or key in self._model.assumed)
        told = wait.told if wait is not None and waits else None
        await self._write_status(pod, told, self._nominated.get(key, "") if waits else pod.nominated_node)
        if is_implicit(group):
            await self._annotate(resources.PODS, pod.namespace, pod.name, pod.annotations, _record(told))

    async def _write_status(self, pod: views.Pod, told: Explanation | None, nominated: str) -> None:
        """That it waits and why, and where room is being made for it, in one patch."""
        status: dict[str, Any] = {}
        message = with_summary(told) if told is not None else ""
        reason = pod_reason(told) if told is not None else ""
        says = told is not None and not pod.shape.gates
        if says and (pod.waiting_reason, pod.waiting_message) != (reason, message):
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": reason,
                "message": message,
                "lastTransitionTime": rfc3339(self._clock.now()),
            }
            status["conditions"] = [condition]
        if nominated != pod.nominated_node:
            status["nominatedNodeName"] = nominated or None
        if not status:
            return
        patch = {"metadata": {"uid": pod.uid}, "status": status}
        await self._client.patch(
            resources.PODS, pod.name, patch, pod.namespace, kind="strategic", subresource="status"
        )
        self._metrics.writes.labels("pod" if "conditions" in status else "nomination").inc()
        if "conditions" in status:
            ref = ObjectRef("v1", "Pod", pod.namespace, pod.name, pod.uid)
            self._recorder.event(ref, "Warning", "FailedScheduling", message)

    async def _annotate(
        self,
        resource: resources.Resource,
        namespace: str,
        name: str,
        written: Mapping[str, str],
        record: str | None,
        more: Mapping[str, str | None] = NOTHING,
    ) -> None:
        """Write the explanation where it is another, and ``more`` annotations along with it."""
        change = dict(more)
        if written.get(names.EXPLANATION) != record:
            change[names.EXPLANATION] = record
            self._metrics.writes.labels("explanation").inc()
        if change:
            await self._client.patch(resource, name, {"metadata": {"annotations": change}}, namespace)

    async def _write_queue(self, name: str) -> None:
        usage = self._usage.get(name)
        view = self._model.queues.get(name)
        if usage is None or view is None:
            return
        wanted = {
            resource: from_units(resource, units) for resource, units in usage.allocated.items() if units
        }
        if wanted == view.allocated:
            return
        change: dict[str, str | None] = dict.fromkeys(view.allocated)
        change.update(wanted)
        await self._client.patch(
            resources.QUEUES, name, {"status": {"allocated": change}}, subresource="status"
        )
        self._metrics.writes.labels("queue").inc()

    async def _write_share(self, name: str) -> None:
        """The fair share and why it is what it is, on the queue itself: of either API."""
        usage = self._usage.get(name)
        kai = queues.is_kai(name)
        view = (self._model.kai_queues if kai else self._model.queues).get(queues.plain(name))
        if usage is None or view is None:
            return
        record = msgspec.json.encode(queues.share_record(usage), order="sorted").decode()
        if view.annotations.get(names.QUEUE_SHARE) == record:
            return
        resource = resources.KAI_QUEUES if kai else resources.QUEUES
        await self._client.patch(
            resource, view.name, {"metadata": {"annotations": {names.QUEUE_SHARE: record}}}
        )
        self._metrics.writes.labels("queue-share").inc()


def _record(told: Explanation | None) -> str | None:
    """The Explanation as one JSON text, the same for the same record."""
    return None if told is None else msgspec.json.encode(told.as_dict(), order="sorted").decode()
