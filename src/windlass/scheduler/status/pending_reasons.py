"""Timing of reported reasons: when a pending group's explanation is written, and rewritten.

A reason is first reported after the group has waited for ``quiet_seconds``, and then
rewritten at most every ``rewrite_seconds``. Positions are rewritten within
:data:`REORDER_SECONDS` after a change of a group's queue or priority. A gang is not
reported to lack members for up to :data:`GROWING_SECONDS` while it has no pods yet, while
pods keep arriving, and while they should under backpressure.
"""

from __future__ import annotations

from collections.abc import Callable

from windlass.api.reasons import Explanation, Reason
from windlass.kits.clock import Clock
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.scheduler.options import LiveOptions
from windlass.scheduler.status.pending_groups import PendingGroup, PendingGroups
from windlass.scheduler.write_queue import Enqueue

GROWING_SECONDS = 5.0
"""Maximum time in seconds for which a gang without pods, or with arriving pods, is not reported."""
MAX_POSITIONS = 50
"""Maximum position in a queue that is kept up to date."""
MAX_AT_ONCE = 20
"""Maximum number of kept groups of a queue that are renewed whenever a group arrives or leaves."""
REORDER_SECONDS = 0.5
"""Minimum interval in seconds between reports of a group's changed position."""
MAX_WITHOUT_POSITION = 100
"""Maximum number of groups without a position, of all queues, that are kept up to date."""


class PendingReasons:
    """Decides when the reason of a pending group is written.

    ``explain(group)`` returns the detailed explanation. ``under_pressure()``: whether
    other writes have to wait (:mod:`windlass.scheduler.backpressure`). Writes are
    enqueued with keys ``group NS/NAME``.
    """

    def __init__(
        self,
        groups: PendingGroups,
        model: ClusterModel,
        options: LiveOptions,
        enqueue: Enqueue,
        explain: Callable[[str], Explanation | None],
        under_pressure: Callable[[], bool],
        *,
        clock: Clock,
    ) -> None:
        self._groups = groups
        self._model = model
        self._options = options
        self._enqueue = enqueue
        self._explain = explain
        self._under_pressure = under_pressure
        self._clock = clock
        self._first: dict[str, set[str]] = {}
        """Queue → its first groups. Their positions are kept up to date."""
        self._without_position: set[str] = set()
        """Some of the groups without a position: no group's end would help them."""

    def update(self, key: str, explanation: Explanation | None) -> None:
        """Take in why a group waits. ``None``: it does not."""
        group = self._groups.get(key)
        if explanation is None:
            if group is not None:
                self.remove(key)
                if group.reported is not None:
                    self._enqueue(f"group {key}")
        elif group is None:
            now = self._clock.monotonic()
            group = PendingGroup(explanation, now, now)
            self._groups.add(key, group)
            self._await_members(key, group)
        elif explanation != group.current:
            was_growing = group.current.code is Reason.WAITING_FOR_MEMBERS
            self._groups.explain(key, explanation)
            if group.reported is not None:
                self.renew(key)
            elif was_growing or explanation.code is Reason.WAITING_FOR_MEMBERS:
                self._await_members(key, group)

        if group is not None and explanation is not None:
            self._check_order(key, group)

    def _await_members(self, key: str, group: PendingGroup) -> None:
        """Set when a group is first reported: later while its pods are being created."""
        now = self._clock.monotonic()
        group.due = now + self._options.current.quiet_seconds
        if group.current.code is Reason.WAITING_FOR_MEMBERS:
            latest = group.since + GROWING_SECONDS
            group.due = min(group.due, latest) if self._model.groups.members(key).total else latest
        self._enqueue(f"group {key}", group.due - now)

    def _check_order(self, key: str, group: PendingGroup) -> None:
        """Report positions again after a change of a group's queue or priority."""
        spec = self._model.group_sent(key)
        order = ("", 0) if spec is None else (spec.queue, spec.priority)
        before, group.order = group.order, order
        if before in (order, ("", 0)):
            return
        for other in {key, *self._first.get(before[0], ()), *self._first.get(order[0], ())}:
            self._renew_position(other)

    def _reorder_behind(self, group: PendingGroup) -> None:
        """Report the positions behind a group again that has arrived or left."""
        kept, reported = self._first.get(group.queue, ()), group.reported
        if reported is None or not reported.position or len(kept) > MAX_AT_ONCE:
            return
        for key in kept:
            other = self._groups.get(key)
            shown = other.reported if other is not None and other is not group else None
            if shown is not None and shown.position >= reported.position:
                self._renew_position(key)

    def _renew_position(self, key: str) -> None:
        group = self._groups.get(key)
        if group is not None and group.reported is not None:
            self.renew(key, REORDER_SECONDS)

    def put_off(self, key: str) -> None:
        """Postpone the first report of a gang with late pods under backpressure."""
        group, now = self._groups.get(key), self._clock.monotonic()
        if group is None or group.reported is not None:
            return
        if group.current.code is not Reason.WAITING_FOR_MEMBERS:
            return
        if group.due <= now and self._under_pressure():
            group.due = min(now + self._options.current.quiet_seconds, group.since + GROWING_SECONDS)

    def renew_queue(self, queue: str) -> None:
        """Renew the first groups of a queue after its usage has changed."""
        for key in self._first.get(queue, ()):
            self.renew(key)

    def renew_all(self) -> None:
        """Renew the kept groups of all queues, since nodes have changed."""
        for keys in (*self._first.values(), self._without_position):
            for key in keys:
                self.renew(key, self._options.current.pod_rewrite_seconds)

    def renew(self, key: str, interval: float = 0.0) -> None:
        """Explain a group again, ``interval`` seconds after its last report.

        Without ``interval`` the options decide: sooner if the reason is another one.
        """
        group = self._groups.get(key)
        assert group is not None
        now, options = self._clock.monotonic(), self._options.current
        if not interval:
            same = group.reported is not None and group.reported.code is group.current.code
            interval = options.rewrite_seconds if same else options.quiet_seconds
        due = max(now, group.reported_at + interval)
        group.due = due if group.basis is not None else max(now, min(due, group.due))
        group.basis = None
        self._enqueue(f"group {key}", group.due - now)

    def remove(self, key: str) -> None:
        """Forget a group that is no longer pending."""
        group = self._groups.remove(key)
        if group is not None:
            self._unlist(key, group)
            self._reorder_behind(group)

    def report(self, key: str) -> Explanation | None:
        """Return the explanation that may be shown now."""
        group = self._groups.get(key)
        if group is None:
            return None
        now = self._clock.monotonic()
        if group.basis is group.current:
            return group.reported
        if now < group.due:
            self._enqueue(f"group {key}", group.due - now)
            return group.reported
        is_again = group.reported is not None
        group.basis, group.reported_at = group.current, now
        group.reported = explanation = self._explain(key) or group.current
        self._unlist(key, group)
        if not explanation.position and len(self._without_position) < MAX_WITHOUT_POSITION:
            self._without_position.add(key)
        if explanation.position and explanation.position <= MAX_POSITIONS:
            group.queue = self._model.queue_of(key)
            self._first.setdefault(group.queue, set()).add(key)
            if not is_again:
                self._reorder_behind(group)
        return explanation

    def _unlist(self, key: str, group: PendingGroup) -> None:
        self._first.get(group.queue, set()).discard(key)
        self._without_position.discard(key)
