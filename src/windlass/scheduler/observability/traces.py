"""Traces of scheduling: each cycle that decided something, and the lifecycle of each job.

A job's trace is identified by its group's uid. Its root span ``job`` lasts from the
group's creation to its end, and is exported at the end. Below it are its stages, each
exported when it is over:

* ``queued``: submitted, and not admitted by its queue (reasons for waiting as events)
* ``admitted``: admitted, and below its minimum
* ``bound``: its minimum is on nodes, and fewer pods run
* ``running``: its minimum runs
* ``bind``: one pod's binding
* ``evicted``: one pod's eviction, linked to the job of the preemptor

A stage that begins again (after an eviction, or a failed start) is another span. A
cycle's span ``cycle`` is a trace of its own, with the phases ``take``, ``decide``,
``show`` and ``carry out`` below it, and links to the jobs it decided on.

Nothing here waits, fails or imports a tracing library. A restarted scheduler continues
the same traces. The stage that it finds begins for it when it is first seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from windlass.api.reasons import Explanation
from windlass.engine.decision import Bind, Decision, Eviction
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.groups.member_counts import Members
from windlass.model.groups.podgroups import shown_key
from windlass.observe.tracing import Exporter, Link, Span, SpanEvent, Value, root_id, trace_id
from windlass.scheduler.observability.lifecycle import (
    ADMITTED,
    ENDED,
    PHASES,
    QUEUED,
    begins_queued,
    identity,
    stage_of,
)

MAX_EVENTS = 64
"""Maximum number of events of one stage. Later ones are only counted."""


@dataclass(slots=True)
class _JobTrace:
    uid: str
    trace: int
    root: int
    submitted: float
    stage: str
    since: float
    attributes: dict[str, Value]
    events: list[SpanEvent] = field(default_factory=list)
    dropped: int = 0
    code: str = ""

    def add(self, event: SpanEvent) -> None:
        if len(self.events) < MAX_EVENTS:
            self.events.append(event)
        else:
            self.dropped += 1


class SchedulingTraces:
    """Exports traces of groups and cycles (a ``SchedulingObserver``).

    Times are Unix seconds.
    """

    def __init__(self, exporter: Exporter, model: ClusterModel) -> None:
        self._exporter = exporter
        self._model = model
        self._jobs: dict[str, _JobTrace] = {}
        self._ended: dict[str, str] = {}

    # ------------------------------------------------------------------ jobs

    def group_updated(
        self, key: str, admitted: bool, explanation: Explanation | None, members: Members, now: float
    ) -> None:
        """Take in the state of a group. Nothing is exported twice."""
        group = identity(self._model, key)
        if group is None:
            return
        uid, created, minimum = group
        job = self._jobs.get(key)
        if job is not None and job.uid != uid:  # another object of the same name
            self.group_removed(key, now)
            job = None
        stage = stage_of(admitted, minimum, members)
        if job is None:
            if stage == ENDED or self._ended.get(key) == uid:
                return
            job = self._jobs[key] = self._begin(key, uid, created or now, stage, minimum, now)
        elif stage != job.stage:
            self._end_stage(job, now)
            job.stage, job.since = stage, now
        self._add_reason(job, explanation, now)
        if stage == ENDED:
            outcome = "Failed" if members.failed else "Succeeded"
            self._ended[key] = uid
            self._end(key, now, outcome)

    def group_removed(self, key: str, now: float) -> None:
        self._ended.pop(key, None)
        if key in self._jobs:
            self._end_stage(self._jobs[key], now)
            self._end(key, now, "Deleted")

    def bind_finished(self, bind: Bind, seconds: float, now: float, fault: str = "") -> None:
        job = self._jobs.get(bind.group)
        if job is None:
            return
        attributes: dict[str, Value] = {**job.attributes, "k8s.node.name": bind.node}
        attributes["k8s.pod.name"] = bind.task.partition("/")[2]
        attributes["k8s.pod.uid"] = bind.uid
        if bind.devices:
            attributes["windlass.devices"] = [f"{share.resource}/{share.index}" for share in bind.devices]
        self._export(job, "bind", now - seconds, now, attributes, fault=fault)

    def _evicted(self, eviction: Eviction, now: float) -> None:
        """Export the eviction of one pod."""
        job = self._jobs.get(eviction.group)
        if job is None:
            return
        attributes: dict[str, Value] = {
            **job.attributes,
            "k8s.pod.name": eviction.task.partition("/")[2],
            "k8s.pod.uid": eviction.uid,
            "k8s.node.name": eviction.node,
            "windlass.action": eviction.action,
        }
        links = []
        if eviction.preemptor:
            attributes["windlass.claimer"] = shown_key(eviction.preemptor)
            preemptor = self._jobs.get(eviction.preemptor)
            if preemptor is not None:
                links.append(Link(preemptor.trace, {"windlass.relation": "claimer"}))
        self._export(job, "evicted", now, now, attributes, links=links)

    # ------------------------------------------------------------------ cycles

    def cycle_finished(self, decision: Decision, changes: int, times: tuple[float, ...]) -> None:
        """Export a cycle, unless it decided nothing."""
        if not (decision.binds or decision.evictions or decision.nominations or decision.groups):
            return
        attributes: dict[str, Value] = {
            "windlass.cycle": decision.cycle,
            "windlass.deltas": changes,
            "windlass.binds": len(decision.binds),
            "windlass.evictions": len(decision.evictions),
            "windlass.nominations": len(decision.nominations),
            "windlass.groups": len(decision.groups),
        }
        trace = trace_id(f"{id(self)} {decision.cycle} {times[0]!r}")
        root = root_id(trace)
        for name, start, end in zip(PHASES, times, times[1:], strict=False):
            self._exporter.export(Span(name, start, end, trace, parent=root))
        links = self._links(decision)
        self._exporter.export(
            Span("cycle", times[0], times[-1], trace, root, attributes=attributes, links=links)
        )
        for eviction in decision.evictions:
            self._evicted(eviction, times[-1])

    def _links(self, decision: Decision) -> list[Link]:
        """Return links to the jobs decided on, with the decision and why a job waits."""
        verdicts: dict[str, dict[str, Value]] = {}
        for status in decision.groups:
            explanation = status.explanation
            verdict = "wait" if explanation is not None else "admit" if status.admitted else "none"
            verdicts[status.group] = {"windlass.decision": verdict}
            if explanation is not None:
                verdicts[status.group]["windlass.reason"] = str(explanation.code)
        for eviction in decision.evictions:
            verdicts[eviction.group] = {"windlass.decision": "evict", "windlass.action": eviction.action}
        counts: dict[str, int] = {}
        for bind in decision.binds:
            counts[bind.group] = counts.get(bind.group, 0) + 1
        for group, number in counts.items():
            verdict_of = verdicts.get(group, {})
            verdicts[group] = {**verdict_of, "windlass.decision": "bind", "windlass.binds": number}
        links = []
        for group, attributes in verdicts.items():
            trace = self._trace(group)
            if trace:
                attributes["windlass.group"] = shown_key(group)
                links.append(Link(trace, attributes))
        return links

    # ------------------------------------------------------------------ inside

    def _trace(self, key: str) -> int:
        job = self._jobs.get(key)
        if job is not None:
            return job.trace
        group = identity(self._model, key)
        return trace_id(group.uid) if group is not None else 0

    def _begin(self, key: str, uid: str, created: float, stage: str, minimum: int, now: float) -> _JobTrace:
        namespace, _, name = shown_key(key).partition("/")
        attributes: dict[str, Value] = {
            "k8s.namespace.name": namespace,
            "windlass.group": name,
            "windlass.group.uid": uid,
            "windlass.queue": self._model.queue_named(key),
            "windlass.gang.minimum": minimum,
        }
        trace = trace_id(uid)
        job = _JobTrace(uid, trace, root_id(trace), created, stage, now, attributes)
        if begins_queued(stage, self._model.objects.groups.get(key)):
            job.stage, job.since = QUEUED, created
            if stage == ADMITTED:  # in the cycle that saw it first
                self._end_stage(job, now)
                job.stage, job.since = ADMITTED, now
        return job

    def _add_reason(self, job: _JobTrace, explanation: Explanation | None, now: float) -> None:
        """Add a changed reason for waiting as an event."""
        code = str(explanation.code) if explanation is not None else ""
        if code != job.code:
            job.code = code
            if explanation is not None:
                attributes = {"windlass.reason": code, "windlass.message": explanation.message}
                job.add(SpanEvent("waits", now, attributes))

    def _end_stage(self, job: _JobTrace, now: float) -> None:
        attributes = dict(job.attributes)
        if job.dropped:
            attributes["windlass.events.dropped"] = job.dropped
        self._export(job, job.stage, job.since, now, attributes, events=job.events)
        job.events, job.dropped = [], 0

    def _end(self, key: str, now: float, outcome: str) -> None:
        job = self._jobs.pop(key)
        attributes = {**job.attributes, "windlass.outcome": outcome}
        self._exporter.export(
            Span(
                "job",
                job.submitted,
                now,
                job.trace,
                job.root,
                attributes=attributes,
                fault="a pod of it failed" if outcome == "Failed" else "",
            )
        )

    def _export(
        self,
        job: _JobTrace,
        name: str,
        start: float,
        end: float,
        attributes: Mapping[str, Value],
        *,
        events: list[SpanEvent] | None = None,
        links: list[Link] | None = None,
        fault: str = "",
    ) -> None:
        self._exporter.export(
            Span(
                name,
                start,
                end,
                job.trace,
                parent=job.root,
                attributes=attributes,
                events=events or (),
                links=links or (),
                fault=fault,
            )
        )
