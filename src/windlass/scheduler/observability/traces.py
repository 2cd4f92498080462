"""What is told of scheduling as traces: each cycle that decided something, and the life of each job.

A job's trace has its group's uid as identity. Its root span ``job`` reaches from the group's creation to its end
and is told at the end; below it lie its stages, each told when it is over:

* ``queued``: submitted, and not admitted by its queue (waiting codes as events)
* ``admitted``: its queue lets it in, and it holds less than its minimum
* ``bound``: its minimum is on nodes, and less than that runs
* ``running``: its minimum runs
* ``bind``: one pod's binding; ``evicted``: one pod's eviction, linked to the job it makes room for

A stage that begins again (an eviction, a failed start) is a span again. A cycle's span ``cycle`` is a trace of its
own with the parts ``take``, ``decide``, ``show``, ``carry out`` below it, and links to the jobs it decided on.

Nothing here waits, fails or imports a tracing library; without an exporter none of this is made. A restarted
scheduler goes on with the same traces; the stage that it finds begins for it at the moment it looks.
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
    PARTS,
    QUEUED,
    begins_queued,
    identity,
    stage_of,
)

MOST_MOMENTS = 64
"""So many events one stage keeps; what comes later is counted."""


@dataclass(slots=True)
class _Journey:
    uid: str
    trace: int
    root: int
    submitted: float
    stage: str
    since: float
    attributes: dict[str, Value]
    moments: list[SpanEvent] = field(default_factory=list)
    unsaid: int = 0
    code: str = ""
    fault: str = ""

    def note(self, moment: SpanEvent) -> None:
        if len(self.moments) < MOST_MOMENTS:
            self.moments.append(moment)
        else:
            self.unsaid += 1


class SchedulingTraces:
    """Follows the groups that are told to it. All moments are Unix seconds."""

    def __init__(self, exporter: Exporter, model: ClusterModel) -> None:
        self._exporter = exporter
        self._model = model
        self._known: dict[str, _Journey] = {}
        self._ended: dict[str, str] = {}

    # ------------------------------------------------------------------ jobs

    def group(
        self, key: str, admitted: bool, explanation: Explanation | None, members: Members, now: float
    ) -> None:
        """How a group stands. Nothing is told twice."""
        found = identity(self._model, key)
        if found is None:
            return
        uid, created, minimum = found
        journey = self._known.get(key)
        if journey is not None and journey.uid != uid:  # another object of the same name
            self.gone(key, now)
            journey = None
        stage = stage_of(admitted, minimum, members)
        if journey is None:
            if stage == ENDED or self._ended.get(key) == uid:
                return
            journey = self._known[key] = self._begin(key, uid, created or now, stage, minimum, now)
        elif stage != journey.stage:
            self._leave(journey, now)
            journey.stage, journey.since = stage, now
        self._explained(journey, explanation, now)
        if stage == ENDED:
            outcome = "Failed" if members.failed else "Succeeded"
            self._ended[key] = uid
            self._end(key, now, outcome)

    def gone(self, key: str, now: float) -> None:
        """The group and its pods are no more."""
        self._ended.pop(key, None)
        if key in self._known:
            self._leave(self._known[key], now)
            self._end(key, now, "Deleted")

    def bound(self, bind: Bind, seconds: float, now: float, fault: str = "") -> None:
        """A pod's binding came through after ``seconds``, or failed."""
        journey = self._known.get(bind.group)
        if journey is None:
            return
        attributes: dict[str, Value] = {**journey.attributes, "k8s.node.name": bind.node}
        attributes["k8s.pod.name"] = bind.task.partition("/")[2]
        attributes["k8s.pod.uid"] = bind.uid
        if bind.devices:
            attributes["windlass.devices"] = [f"{share.resource}/{share.index}" for share in bind.devices]
        self._tell(journey, "bind", now - seconds, now, attributes, fault=fault)

    def evicted(self, eviction: Eviction, now: float) -> None:
        """A pod was chosen to go."""
        journey = self._known.get(eviction.group)
        if journey is None:
            return
        attributes: dict[str, Value] = {
            **journey.attributes,
            "k8s.pod.name": eviction.task.partition("/")[2],
            "k8s.pod.uid": eviction.uid,
            "k8s.node.name": eviction.node,
            "windlass.action": eviction.action,
        }
        links = []
        if eviction.claimer:
            attributes["windlass.claimer"] = shown_key(eviction.claimer)
            claimer = self._known.get(eviction.claimer)
            if claimer is not None:
                links.append(Link(claimer.trace, {"windlass.relation": "claimer"}))
        self._tell(journey, "evicted", now, now, attributes, links=links)

    # ------------------------------------------------------------------ cycles

    def cycle(self, decision: Decision, changes: int, moments: tuple[float, ...]) -> None:
        """A cycle; ``moments``: its begin and the ends of its parts. One that decided nothing is not told."""
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
        trace = trace_id(f"{id(self)} {decision.cycle} {moments[0]!r}")
        root = root_id(trace)
        for name, begun, ended in zip(PARTS, moments, moments[1:], strict=False):
            self._exporter.tell(Span(name, begun, ended, trace, parent=root))
        links = self._links(decision)
        self._exporter.tell(
            Span("cycle", moments[0], moments[-1], trace, root, attributes=attributes, links=links)
        )
        for eviction in decision.evictions:
            self.evicted(eviction, moments[-1])

    def _links(self, decision: Decision) -> list[Link]:
        """The jobs decided on, with what was decided: bind, evict, admit or wait, and why it waits."""
        said: dict[str, dict[str, Value]] = {}
        for status in decision.groups:
            waits = status.explanation
            verdict = "wait" if waits is not None else "admit" if status.admitted else "none"
            said[status.group] = {"windlass.decision": verdict}
            if waits is not None:
                said[status.group]["windlass.reason"] = str(waits.code)
        for eviction in decision.evictions:
            said[eviction.group] = {"windlass.decision": "evict", "windlass.action": eviction.action}
        counts: dict[str, int] = {}
        for bind in decision.binds:
            counts[bind.group] = counts.get(bind.group, 0) + 1
        for group, number in counts.items():
            said[group] = {**said.get(group, {}), "windlass.decision": "bind", "windlass.binds": number}
        links = []
        for group, words in said.items():
            trace = self._trace(group)
            if trace:
                words["windlass.group"] = shown_key(group)
                links.append(Link(trace, words))
        return links

    # ------------------------------------------------------------------ inside

    def _trace(self, key: str) -> int:
        journey = self._known.get(key)
        if journey is not None:
            return journey.trace
        found = identity(self._model, key)
        return trace_id(found[0]) if found is not None else 0

    def _begin(self, key: str, uid: str, created: float, stage: str, minimum: int, now: float) -> _Journey:
        namespace, _, name = shown_key(key).partition("/")
        attributes: dict[str, Value] = {
            "k8s.namespace.name": namespace,
            "windlass.group": name,
            "windlass.group.uid": uid,
            "windlass.queue": self._model.queue_named(key),
            "windlass.gang.minimum": minimum,
        }
        trace = trace_id(uid)
        journey = _Journey(uid, trace, root_id(trace), created, stage, now, attributes)
        if begins_queued(stage, self._model.groups.get(key)):
            journey.stage, journey.since = QUEUED, created
            if stage == ADMITTED:  # in the cycle that saw it first
                self._leave(journey, now)
                journey.stage, journey.since = ADMITTED, now
        return journey

    def _explained(self, journey: _Journey, explanation: Explanation | None, now: float) -> None:
        code = str(explanation.code) if explanation is not None else ""
        if code != journey.code:
            journey.code = code
            if explanation is not None:
                words = {"windlass.reason": code, "windlass.message": explanation.message}
                journey.note(SpanEvent("waits", now, words))

    def _leave(self, journey: _Journey, now: float) -> None:
        attributes = dict(journey.attributes)
        if journey.unsaid:
            attributes["windlass.events.dropped"] = journey.unsaid
        self._tell(journey, journey.stage, journey.since, now, attributes, moments=journey.moments)
        journey.moments, journey.unsaid = [], 0

    def _end(self, key: str, now: float, outcome: str) -> None:
        journey = self._known.pop(key)
        attributes = {**journey.attributes, "windlass.outcome": outcome}
        self._exporter.tell(
            Span(
                "job",
                journey.submitted,
                now,
                journey.trace,
                journey.root,
                attributes=attributes,
                fault="a pod of it failed" if outcome == "Failed" else "",
            )
        )

    def _tell(
        self,
        journey: _Journey,
        name: str,
        begun: float,
        ended: float,
        attributes: Mapping[str, Value],
        *,
        moments: list[SpanEvent] | None = None,
        links: list[Link] | None = None,
        fault: str = "",
    ) -> None:
        self._exporter.tell(
            Span(
                name,
                begun,
                ended,
                journey.trace,
                parent=journey.root,
                attributes=attributes,
                moments=moments or (),
                links=links or (),
                fault=fault,
            )
        )
