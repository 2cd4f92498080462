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
from windlass.scheduler.components import Crew
from windlass.scheduler.observability.group_counters import plain_action
from windlass.scheduler.observability.lifecycle import PARTS
from windlass.scheduler.status.kai_moments import moments_of

log = logs.get("scheduler")
SLOW_CYCLE_SECONDS = 0.5


class Showing:
    """``engine()`` is the one in force. ``refused``: group → why what it needs was not evicted. ``said``: what the
    engine said last of each group."""

    def __init__(self, crew: Crew, engine: Callable[[], Engine], refused: dict[str, str]) -> None:
        self._crew = crew
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
        crew = self._crew
        told = crew.model.explanation(group)
        if told is None:
            try:
                told = self._engine().explain(group, crew.time())
            except KeyError:
                return None
            told = None if told is None else crew.model.completed(group, told)
        if told is not None:
            told = crew.nodes.told(group, crew.starts.told(group, told))
        if told is not None and group in self._refused:
            told = replace(told, extra={**told.extra, "no eviction": self._refused[group]})
        return None if told is None else crew.model.readable().explanation(told)

    def decision(self, decision: Decision) -> None:
        crew = self._crew
        crew.publisher.cycle(decision.cycle)
        changed = dict.fromkeys(crew.model.take_changed())
        for status in decision.groups:
            changed[status.group] = None
            if status.explanation is None and self._is_plain(status.group):
                self.said.pop(status.group, None)
            else:
                self.said[status.group] = status
        crew.milestones.decided(decision, self._engine().passes, crew.time())
        now = crew.clock.monotonic()
        for key in changed:
            self.group(key, now)
        self._nominate(decision)
        nodes = self._engine().world.table.shape
        if nodes != self._nodes:
            self._nodes = nodes
            crew.publisher.nodes()
        crew.publisher.moments(moments_of(decision, crew.model, crew.time()))
        for usage in decision.queues:
            crew.publisher.queue(usage)
            crew.metrics.queue(
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
        pods, tasks = self._crew.publisher.pods, self._engine().world.tasks
        for nomination in decision.nominations:
            pods.nominate(nomination.task, nomination.node)
        for task in list(pods.nominated) if pods.nominated else ():
            entry = tasks.get(task)
            if entry is None or entry.promised < 0:
                pods.withdraw(task)

    def group(self, key: str, now: float) -> None:
        crew = self._crew
        model = crew.model
        if not model.known(key):
            self.said.pop(key, None)
            self._refused.pop(key, None)
            crew.gangs.forget(key)
            crew.starts.forget(key)
            crew.milestones.gone(key)
            crew.publisher.gone(key)
            crew.nodes.note(key)
            crew.publisher.disowning.look(key)
            if crew.journeys is not None:
                crew.journeys.gone(key, crew.time())
            return
        said = self.said.get(key)
        explanation = model.explanation(key)
        if explanation is None and said is not None and said.explanation is not None:
            explanation = model.completed(key, said.explanation)
        if explanation is not None:
            explanation = crew.nodes.told(key, crew.starts.told(key, explanation))
            explanation = model.readable().explanation(explanation)
        elif key not in crew.publisher.waits and self._is_plain(key):
            return
        blocked = explanation is not None and model.blocked(key)
        members = model.members(key)
        admitted = said is not None and said.admitted
        crew.publisher.group(key, admitted, explanation, blocked, members)
        if crew.journeys is not None:
            crew.journeys.group(key, admitted, explanation, members, crew.time())
        if not is_implicit(key):
            crew.nodes.note(key)
            crew.milestones.group(key, admitted, members, crew.time())
            self._watch_gang(key, members, now)

    def _is_plain(self, key: str) -> bool:
        """Whether there is nothing to say of a group that does not wait: a pod alone has no phase and no minimum. In
        a large cluster that has just been read there may be a hundred thousand of them."""
        return self._crew.journeys is None and is_implicit(key)

    def _watch_gang(self, key: str, members: Members, now: float) -> None:
        crew = self._crew
        view, sent = crew.model.groups.get(key), crew.model.group_sent(key)
        minimum = view.min_member if view is not None else sent.min_member if sent is not None else 0
        if view is not None:
            started = was_whole(view) or (crew.gangs.was_whole(key) and not crew.gangs.watches(key))
        else:  # nobody writes a phase on it
            started = (
                members.scheduled < minimum
                and not crew.gangs.watches(key)
                and (
                    crew.gangs.was_whole(key)
                    or crew.model.started_before(key, crew.time() - crew.options().gang_seconds)
                )
            )
        crew.gangs.observe(key, started, minimum, members, now)

    def queue_gone(self, name: str) -> None:
        self._crew.publisher.queue_gone(name)
        self._crew.metrics.queue_gone(name)

    def measure(self, decision: Decision, changes: int, moments: Sequence[float]) -> None:
        """``moments``: its begin and the ends of its parts."""
        crew = self._crew
        metrics = crew.metrics
        seconds = moments[-1] - moments[0]
        metrics.cycle_seconds.observe(seconds)
        self._measure_parts(moments)
        crew.milestones.cycle(any(metrics.reasons.values()), seconds)
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
        metrics.waiting(crew.publisher.waits.reasons)
        metrics.assumed.set(len(crew.model.assumed))
        metrics.bind_limit.set(crew.binder.limit.limit)

    def _measure_parts(self, moments: Sequence[float]) -> None:
        metrics = self._crew.metrics
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
