"""Status of Volcano's PodGroups: phase, counts, conditions, explanation.

A phase is written at once, mere counts once a second. A phase that will change in a
moment is not written: that of a gang with pods still to arrive, or with binds in
progress.

Keys of the writes are ``group NS/NAME``.
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.api.reasons import Explanation
from windlass.client.recorder import EventRecorder, ObjectRef
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.groups import podgroup_status
from windlass.model.groups.member_counts import COMPLETED, INQUEUE, PENDING, RUNNING, Members
from windlass.model.groups.podgroups import PHASES_ADMITTED
from windlass.observe.scheduling import SchedulerMetrics
from windlass.scheduler.status.explanation_writer import (
    COUNTS_SECONDS,
    OWN_WRITE_SECONDS,
    ExplanationWriter,
    encode_explanation,
)
from windlass.scheduler.status.hypernode_status import HyperNodeStatuses
from windlass.scheduler.status.pending_groups import PendingGroups
from windlass.scheduler.status.podgroup_status import PodGroupStatuses
from windlass.scheduler.write_queue import Enqueue

BINDING_SECONDS = 30.0
"""Maximum delay in seconds of the phase of a gang that is being bound."""
FIRST_SECONDS = 0.25
"""Time in seconds for which pods of a new group are awaited before its phase is written."""
_WAIT_FOR_ADMISSION = "batch.volcano.sh/"
"""API group of owners that create pods only after the group is admitted."""


@dataclass(frozen=True, slots=True)
class _WrittenStatus:
    status: podgroup_status.PodGroupStatus
    at: float


class VolcanoGroups:
    """Writes the status of Volcano's PodGroups.

    ``begin_cycle`` sets the number that conditions are stamped with.
    """

    def __init__(
        self,
        model: ClusterModel,
        recorder: EventRecorder,
        metrics: SchedulerMetrics,
        pending: PendingGroups,
        hypernodes: HyperNodeStatuses,
        statuses: PodGroupStatuses,
        explanations: ExplanationWriter,
        enqueue: Enqueue,
        *,
        clock: Clock,
    ) -> None:
        self._model = model
        self._recorder = recorder
        self._metrics = metrics
        self._pending = pending
        self._hypernodes = hypernodes
        self._statuses = statuses
        self._explanations = explanations
        self._enqueue = enqueue
        self._clock = clock
        self._admitted: dict[str, bool] = {}
        self._blocked: set[str] = set()
        self._failed: dict[str, str] = {}
        """Gang that did not reach its minimum in time → message."""
        self._first_seen: dict[str, float] = {}
        """Group with an unwritten admission → monotonic time at which that was first due."""
        self._written: dict[str, _WrittenStatus] = {}
        self._transition = "0"

    # ------------------------------------------------------------------ what is to be written

    def begin_cycle(self, number: int) -> None:
        """Stamp conditions with the number of this cycle from now on."""
        self._transition = str(number)

    def record(self, key: str, admitted: bool, blocked: bool) -> None:
        """Record the state of a group of any API.

        ``blocked``: below its minimum and waiting.
        """
        self._admitted[key] = admitted
        if blocked:
            self._blocked.add(key)
        else:
            self._blocked.discard(key)

    def is_blocked(self, key: str) -> bool:
        """Return whether a group is below its minimum and waiting."""
        return key in self._blocked

    def record_failure(self, key: str, message: str) -> None:
        """Record that a gang did not reach its minimum in time."""
        self._failed[key] = message
        self._enqueue(f"group {key}")

    def update(self, view: views.PodGroup, members: Members) -> None:
        """Enqueue a group with an outdated status.

        Conditions change only with the phase, or with an explanation. The latter has a
        write of its own.
        """
        key = view.key
        if self._hypernodes.annotation(view):
            self._enqueue(f"group {key}", COUNTS_SECONDS)
        phase = self._phase(view, members)
        if phase != view.phase:
            self._enqueue(f"group {key}", self._delay(view, members, phase))
            return
        self._first_seen.pop(key, None)
        counts = (members.running, members.succeeded, members.failed)
        if counts != (view.running, view.succeeded, view.failed):
            self._enqueue(f"group {key}", COUNTS_SECONDS)

    def delay(self, view: views.PodGroup) -> float:
        """Return the seconds for which nothing is to be written on a group."""
        members = self._model.groups.members(view.key)
        return self._delay(view, members, self._phase(view, members))

    def _delay(self, view: views.PodGroup, members: Members, phase: str) -> float:
        """Return the seconds for which a changed phase need not be written.

        This concerns admission, and the loss of a phase after admission. Only owners
        that create pods after admission wait for them. Other groups are running in a
        moment, or are reported with the reason why they are not.
        """
        if phase == view.phase or phase not in (PENDING, INQUEUE):
            return 0.0
        awaited = any(owner.api_version.startswith(_WAIT_FOR_ADMISSION) for owner in view.owners)
        if awaited and (phase == INQUEUE or not members.total):
            return 0.0
        now, pending = self._clock.monotonic(), self._pending.get(view.key)
        since = self._first_seen.setdefault(view.key, now)
        if any(pod.key in self._model.binds.assumed for pod in self._model.groups.pods_of(view.key)):
            return since + BINDING_SECONDS - now
        if pending is not None and members.total:
            return pending.due - now if pending.reported is None else 0.0
        return since + FIRST_SECONDS - now

    def may_wait(self, key: str) -> bool:
        """Return whether a write only reports that a group runs, or its counts."""
        view = self._model.objects.groups.get(key)
        if view is None or key in self._pending or key in self._failed:
            return False
        return self._phase(view, self._model.groups.members(key)) in (RUNNING, view.phase)

    def due_annotations(self, view: views.PodGroup) -> dict[str, str | None]:
        """Return the annotations due on a group before its members are bound."""
        changes: dict[str, str | None] = {}
        if names.EXPLANATION in view.annotations:
            changes[names.EXPLANATION] = None
        changes.update(self._hypernodes.annotation(view))
        changes.update(self._explanations.attained_service(view.key, view.annotations))
        return changes

    def remove(self, key: str) -> None:
        """Forget a group that no longer exists, nor any of its pods."""
        self._failed.pop(key, None)
        self._admitted.pop(key, None)
        self._written.pop(key, None)
        self._first_seen.pop(key, None)
        self._blocked.discard(key)

    # ------------------------------------------------------------------ writing

    async def write(self, view: views.PodGroup, explanation: Explanation | None) -> None:
        """Write the status of one group. ``explanation``: why it waits."""
        key = view.key
        wanted = self._wanted(view)
        if self._needs_write(view, wanted):
            await self._statuses.patch(view.name, view.namespace, wanted.patch())
            self._written[key] = _WrittenStatus(wanted, self._clock.monotonic())
            self._metrics.writes.labels("podgroup").inc()
            self._record_event(view, explanation)
        if wanted.phase in (RUNNING, COMPLETED):
            self._failed.pop(key, None)
        hypernode = self._hypernodes.annotation(view)
        if hypernode:
            self._metrics.writes.labels("hypernode").inc()
        await self._explanations.write(
            resources.POD_GROUPS,
            view.namespace,
            view.name,
            view.annotations,
            encode_explanation(explanation),
            hypernode,
            self._explanations.attained_service(key, view.annotations),
        )

    def _state(self, view: views.PodGroup, members: Members) -> podgroup_status.PodGroupState:
        key = view.key
        pending = self._pending.get(key)
        admitted = self._admitted.get(key, False) or view.phase in PHASES_ADMITTED
        reported = pending.reported if pending else None
        return podgroup_status.PodGroupState(
            members, admitted, key in self._blocked, reported, self._failed.get(key, "")
        )

    def _phase(self, view: views.PodGroup, members: Members) -> str:
        return podgroup_status.phase(view, self._state(view, members))

    def _wanted(self, view: views.PodGroup) -> podgroup_status.PodGroupStatus:
        state = self._state(view, self._model.groups.members(view.key))
        return podgroup_status.desired(view, state, self._clock.now(), self._transition)

    def _needs_write(self, view: views.PodGroup, wanted: podgroup_status.PodGroupStatus) -> bool:
        if wanted == podgroup_status.current(view):
            self._written.pop(view.key, None)
            return False
        written = self._written.get(view.key)
        if written is None or self._clock.monotonic() - written.at > OWN_WRITE_SECONDS:
            return True
        before = written.status
        same = (before.phase, before.running, before.succeeded, before.failed) == (
            wanted.phase,
            wanted.running,
            wanted.succeeded,
            wanted.failed,
        )
        return not (same and podgroup_status.same_text(before.conditions, wanted.conditions))

    def _record_event(self, view: views.PodGroup, explanation: Explanation | None) -> None:
        if explanation is not None and view.key in self._blocked:
            ref = ObjectRef(resources.POD_GROUPS.api_version, "PodGroup", view.namespace, view.name, view.uid)
            self._recorder.event(ref, "Warning", podgroup_status.UNSCHEDULABLE, explanation.message)
