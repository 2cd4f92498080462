"""What is shown of decisions: why groups wait, how they and their queues stand, and the figures of a cycle.

The writing itself is the publisher's; here is decided what it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from windlass.api.reasons import Explanation
from windlass.engine.decision import Decision, GroupStatus
from windlass.engine.engine import Engine
from windlass.model.groups.member_counts import Members
from windlass.model.groups.podgroup_status import was_whole
from windlass.model.groups.podgroups import is_implicit
from windlass.observe import logs
from windlass.scheduler.components import SchedulerComponents
from windlass.scheduler.observability.group_counters import plain_action
from windlass.scheduler.observability.lifecycle import PARTS
from windlass.scheduler.status.kai_moments import moments_of

log = logs.get("scheduler")
SLOW_CYCLE_SECONDS = 0.5


class DecisionReporter:
    """``engine()`` is the one in force. ``refused``: group → why what it needs was not evicted. ``said``: what the
    engine said last of each group."""

    def __init__(
        self, components: SchedulerComponents, engine: Callable[[], Engine], refused: dict[str, str]
    ) -> None:
        self._components = components
        self._engine = engine
        self._refused = refused
        self.said: dict[str, GroupStatus] = {}
        self._nodes = 0
        """As of which shape of the table of nodes the others have been told."""

    def waiting(self) -> list[str]:
        """Groups that are told why they wait."""
        return [key for key, said in self.said.items() if said.explanation is not None]

    def explain(self, group: str) -> Explanation | None:
        """Why a group waits, in full, as things stand; None if nothing of it waits."""
        components = self._components
        told = components.model.explanation(group)
        if told is None:
            try:
                told = self._engine().explain(group, components.time())
            except KeyError:
                return None
            told = None if told is None else components.model.completed(group, told)
        if told is not None:
            told = components.nodes.told(group, components.starts.told(group, told))
        if told is not None and group in self._refused:
            told = replace(told, extra={**told.extra, "no eviction": self._refused[group]})
        return None if told is None else components.model.readable().explanation(told)

    def decision(self, decision: Decision) -> None:
        components = self._components
        components.status_writer.cycle(decision.cycle)
        changed = dict.fromkeys(components.model.take_changed())
        for status in decision.groups:
            changed[status.group] = None
            if status.explanation is None and self._is_plain(status.group):
                self.said.pop(status.group, None)
            else:
                self.said[status.group] = status
        components.group_counters.decided(decision, self._engine().passes, components.time())
        now = components.clock.monotonic()
        for key in changed:
            self.group(key, now)
        self._nominate(decision)
        nodes = self._engine().state.table.shape
        if nodes != self._nodes:
            self._nodes = nodes
            components.status_writer.nodes()
        components.status_writer.moments(moments_of(decision, components.model, components.time()))
        for usage in decision.queues:
            components.status_writer.queue(usage)
            components.metrics.queue(
                usage.queue,
                {
                    "allocated": usage.allocated,
                    "requested": usage.requested,
                    "deserved": usage.deserved,
                    "guarantee": usage.guarantee,
                    "capability": usage.capability,
                    "fair_share": usage.fair_share,
                },
            )

    def _nominate(self, decision: Decision) -> None:
        pods, tasks = self._components.status_writer.pods, self._engine().state.tasks
        for nomination in decision.nominations:
            pods.nominate(nomination.task, nomination.node)
        for task in list(pods.nominated) if pods.nominated else ():
            entry = tasks.get(task)
            if entry is None or entry.promised < 0:
                pods.withdraw(task)

    def group(self, key: str, now: float) -> None:
        components = self._components
        model = components.model
        if not model.known(key):
            self.said.pop(key, None)
            self._refused.pop(key, None)
            components.gangs.forget(key)
            components.starts.forget(key)
            components.group_counters.gone(key)
            components.status_writer.gone(key)
            components.nodes.note(key)
            components.status_writer.foreign_cleanup.look(key)
            if components.traces is not None:
                components.traces.gone(key, components.time())
            return
        said = self.said.get(key)
        explanation = model.explanation(key)
        if explanation is None and said is not None and said.explanation is not None:
            explanation = model.completed(key, said.explanation)
        if explanation is not None:
            explanation = components.nodes.told(key, components.starts.told(key, explanation))
            explanation = model.readable().explanation(explanation)
        elif key not in components.status_writer.waits and self._is_plain(key):
            return
        blocked = explanation is not None and model.blocked(key)
        members = model.members(key)
        admitted = said is not None and said.admitted
        components.status_writer.group(key, admitted, explanation, blocked, members)
        if components.traces is not None:
            components.traces.group(key, admitted, explanation, members, components.time())
        if not is_implicit(key):
            components.nodes.note(key)
            components.group_counters.group(key, admitted, members, components.time())
            self._watch_gang(key, members, now)

    def _is_plain(self, key: str) -> bool:
        """Whether there is nothing to say of a group that does not wait: a pod alone has no phase and no minimum. In
        a large cluster that has just been read there may be a hundred thousand of them."""
        return self._components.traces is None and is_implicit(key)

    def _watch_gang(self, key: str, members: Members, now: float) -> None:
        components = self._components
        view, sent = components.model.groups.get(key), components.model.group_sent(key)
        minimum = view.min_member if view is not None else sent.min_member if sent is not None else 0
        if view is not None:
            started = was_whole(view) or (
                components.gangs.was_whole(key) and not components.gangs.watches(key)
            )
        else:  # nobody writes a phase on it
            started = (
                members.scheduled < minimum
                and not components.gangs.watches(key)
                and (
                    components.gangs.was_whole(key)
                    or components.model.started_before(
                        key, components.time() - components.options().gang_seconds
                    )
                )
            )
        components.gangs.observe(key, started, minimum, members, now)

    def queue_gone(self, name: str) -> None:
        self._components.status_writer.queue_gone(name)
        self._components.metrics.queue_gone(name)

    def measure(self, decision: Decision, changes: int, moments: Sequence[float]) -> None:
        """``moments``: its begin and the ends of its parts."""
        components = self._components
        metrics = components.metrics
        seconds = moments[-1] - moments[0]
        metrics.cycle_seconds.observe(seconds)
        self._measure_parts(moments)
        components.group_counters.cycle(any(metrics.reasons.values()), seconds)
        if seconds > SLOW_CYCLE_SECONDS:
            log.warning("slow cycle", seconds=round(seconds, 3), deltas=changes, binds=len(decision.binds))
        metrics.deltas.inc(changes)
        for kind, decided in (
            ("bind", decision.binds),
            ("eviction", decision.evictions),
            ("nomination", decision.nominations),
        ):
            if decided:
                metrics.decisions.labels(kind).inc(len(decided))
        metrics.waiting(components.status_writer.waits.reasons)
        metrics.assumed.set(len(components.model.assumed))
        metrics.bind_limit.set(components.binder.limit.limit)

    def _measure_parts(self, moments: Sequence[float]) -> None:
        metrics = self._components.metrics
        last = {"cycle": moments[-1] - moments[0]}
        for part, begun, ended in zip(PARTS, moments, moments[1:], strict=False):
            last[part] = ended - begun
            metrics.part_seconds.add(ended - begun, part)
        spent: dict[str, float] = {}
        for one in self._engine().passes:
            name = plain_action(one.action)
            spent[name] = spent.get(name, 0.0) + one.seconds
        for name, seconds in spent.items():
            metrics.action_seconds.add(seconds, name)
        metrics.last_cycle, metrics.last_actions = last, spent
