"""Jobs of a trace through the engine, under a virtual clock.

Jobs arrive, run, end; nodes fail and come back. All of one moment is told to the engine at once, then it decides
until nothing more happens at that moment; its binds start jobs, its evictions stop them. A job runs once all of
its pods (of an elastic one: the least number) have their places. Pods are ready at once and gone at once; what a
restart takes and what a stop loses is said by :class:`~windlass.sim.replay.job_progress.Effort`. The owner of a pod
that is gone makes another one at the same moment.

Invariants: every job ends exactly once, or waits at the end; jobs hold on a node what the engine gave them, and
no other books are kept; equal inputs and seeds give equal outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from windlass.api.priorities import HIGH_PRIORITY
from windlass.engine.decision import Bind, Decision, Eviction
from windlass.engine.deltas import (
    Delta,
    GroupRemoved,
    GroupUpserted,
    NodeRemoved,
    NodeUpserted,
    QueueUpserted,
    TaskRemoved,
    TaskUpserted,
)
from windlass.kits import gc_tuning
from windlass.kits.rng import seeded
from windlass.sim.cluster import capacity, gpus_of, model_of
from windlass.sim.event_loop import Agenda, EventKind
from windlass.sim.jobs import WHOLE, TraceJob, in_order
from windlass.sim.replay.decide_loop import DecideLoop
from windlass.sim.replay.failures import Breakdowns, NodeFailures
from windlass.sim.replay.job_progress import Effort, JobPod, JobRun, Speeds
from windlass.sim.replay.model_loads import ModelLoads
from windlass.sim.replay.node_notices import NodeChange, SpotNotice
from windlass.sim.replay.outcome import ClusterMoment, JobSpan, ReplayOutcome
from windlass.sim.replay.policies import PolicyContext, ReplayPolicy, at_rate
from windlass.sim.replay.task_factory import NAMESPACE, TaskFactory, next_incarnation, running
from windlass.sim.replay.termination import Termination, only_parts_hold
from windlass.spi.objects import Node, Queue

STEADY, EVERY = 1000, 8
"""Number of failed starts after which the pauses of a job double, and of further ones per doubling. The pauses
vary randomly: otherwise partly started jobs could block one another for ever."""
LAST = 1500
"""After so many its owner gives it up."""
VAIN = 100
"""After so many failures of nodes in a row of which each took all that a job had done since the one before, it is given
up: where nothing is ever saved, a job that outlasts its nodes would come back for ever."""
DAY = 86_400.0
"""All nodes are up when the day of the first submission begins: a trace may count from 1970."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Options of a replay.

    ``effort``: parameters of execution. ``pod_gpus``: maximum GPUs of one pod (0: those of the largest node).
    ``time_share``: default consent of jobs to time-sharing. ``queues``: jobs use the queues of the trace, with equal
    weights unless ``terms`` states others; otherwise one queue. ``timeline``: True if the outcome has ``moments``.
    ``trial``: only test whether any job starts.
    """

    effort: Effort = field(default_factory=Effort)
    failures: NodeFailures = field(default_factory=NodeFailures)
    pod_gpus: int = 0
    seed: int = 0
    time_share: bool = True
    queues: bool = False
    terms: Mapping[str, Queue] = field(default_factory=dict)
    timeline: bool = True
    trial: bool = False
    changes: Sequence[NodeChange] = ()
    """Spot machines that end, and nodes that become slow."""


def replay(
    jobs: Sequence[TraceJob],
    nodes: Sequence[Node],
    policy: ReplayPolicy,
    options: ReplayOptions | None = None,
    progress: Callable[[int], None] | None = None,
) -> ReplayOutcome:
    """Play the jobs through. ``progress`` is told how many have ended. Raises what :meth:`DecideLoop.settle` raises."""
    return Replay(jobs, nodes, policy, options or ReplayOptions()).run(progress)


class Replay:
    """One run."""

    def __init__(
        self, jobs: Sequence[TraceJob], nodes: Sequence[Node], policy: ReplayPolicy, options: ReplayOptions
    ) -> None:
        self.options = options
        ordered = in_order(jobs)
        width = len(str(len(ordered)))
        keys = [f"{NAMESPACE}/{index:0{width}d}" for index in range(len(ordered))]
        self.runs = [
            JobRun(index, key, job) for index, (key, job) in enumerate(zip(keys, ordered, strict=True))
        ]
        self._breakdowns = Breakdowns(options.failures, seeded(f"failures {options.seed}"))
        self._jitter = seeded(f"pauses {options.seed}")
        effort = options.effort
        setting = PolicyContext(
            ordered,
            keys,
            nodes,
            options.time_share,
            effort.restart,
            effort.checkpoint_seconds,
            options.queues,
            options.trial,
        )
        self._policy = policy
        self.made = policy.make(setting)
        self.agenda = Agenda()
        cards = {node.name: gpus_of(node) for node in nodes}
        self._task_factory = TaskFactory(
            self.made, max(cards.values(), default=0), options.pod_gpus, pooled=not options.queues
        )
        self._speeds = Speeds(options.effort, {node.name: model_of(node) for node in nodes}, cards)
        self._loads = ModelLoads(cards, options.effort.model_load_seconds)
        self.outcome = ReplayOutcome([run.ended for run in self.runs], capacity_gpus=capacity(nodes))
        self._nodes = {node.name: node for node in nodes}
        self.deciding = DecideLoop(self.made.engine, self._carry_out)
        self._deltas, self._confirmed = self.deciding.changes, self.deciding.confirmed
        self._pods: dict[str, JobPod] = {}
        self._used_milli = 0
        self._down = 0.0
        """Devices of nodes that are away."""
        self._cards = cards
        self._waiting_jobs = 0
        self._waiting_milli = 0
        self._done = 0
        self._coming = len(self.runs)
        """Jobs that are still to arrive, or to come again."""
        self._wake: float | None = None
        """Time of the next cycle that the engine requested."""
        self._happenings: dict[int, Callable[[Any, float], None]] = {
            EventKind.END: self._ends,
            EventKind.REPAIR: self._repaired,
            EventKind.FAILURE: self._failed,
            EventKind.GIVE_UP: self._gives_up,
            EventKind.ARRIVAL: self._arrives,
            EventKind.COME_BACK: self._comes_back,
            EventKind.NODE_CHANGE: self._node_changes,
        }
        self._begin(ordered)

    def _begin(self, jobs: Sequence[TraceJob]) -> None:
        queues = sorted({self._task_factory.queue(job) for job in jobs})
        terms, alone = self.options.terms, len(queues) == 1
        told = [self._task_factory.terms(name, terms.get(name), alone=alone) for name in queues]
        self.made.engine.apply([QueueUpserted(queue) for queue in told])
        self.made.engine.apply([NodeUpserted(node) for node in self._nodes.values()])
        for run in self.runs:
            self.agenda.add(run.job.submit_seconds, EventKind.ARRIVAL, run)
        first = jobs[0].submit_seconds if jobs else 0.0
        frail = self._breakdowns.begin(self._nodes)
        self._standstill = Termination(self._would_start if frail else None)
        for change in self.options.changes:
            self.agenda.add(first + change.at, EventKind.NODE_CHANGE, change)
        for name in frail:
            self._plan_failure(name, first - first % DAY)

    # ------------------------------------------------------------------ the loop

    def run(self, progress: Callable[[int], None] | None = None) -> ReplayOutcome:
        """Until every job has ended, or nothing will ever happen again."""
        with gc_tuning.infrequent_collections():
            return self._run(progress)

    def _run(self, progress: Callable[[int], None] | None) -> ReplayOutcome:
        total = len(self.runs)
        while self._done < total and not self._over() and self._step():
            if progress is not None:
                progress(self._done)
        self.outcome.model_loads = self._loads.count
        return self.outcome

    def starts(self) -> bool:
        """Return whether any job is ever bound; the replay stops there."""
        while not (self.outcome.decisions or self._over()):
            if not self._step():
                break
        return self.outcome.decisions > 0

    def _step(self) -> bool:
        """Process the next event and decide; return ``False`` if no event is left."""
        wake, agenda = self._wake, self.agenda
        moment = agenda.moment()
        if moment is None or (wake is not None and wake < moment):
            moment = wake
        if moment is None:
            return False
        for kind, what in agenda.due(moment):
            self._happenings[kind](what, moment)
        if not self._deltas and (wake is None or wake > moment):
            return True
        decisions = self.outcome.decisions
        self._wake = self.deciding.settle(moment)
        still = (self.outcome.decisions == decisions and not self._used_milli) or self._parts_only
        self._standstill.note(moment, still=still and not self._coming)
        if self.options.timeline:
            self._note_moment(moment)
        return True

    def _note_moment(self, now: float) -> None:
        used, waiting = self._used_milli / WHOLE, self._waiting_milli / WHOLE
        self.outcome.moments.append(ClusterMoment(now, used, self._waiting_jobs, waiting, self._down))

    @property
    def _parts_only(self) -> bool:
        return only_parts_hold(self.made.singly, (pod.run for pod in self._pods.values()))

    def _over(self) -> bool:
        """Return whether nothing more comes of it, whatever happens to nodes. Work without devices holds none."""
        held = any(pod.node for pod in self._pods.values()) and not self._parts_only
        return self._standstill.lasts and not held and self._standstill.for_ever()

    def _would_start(self) -> bool:
        """Return whether any pending job would be bound if all nodes were up."""
        now = self.agenda.now
        waiting = [replace(run.job, submit_seconds=now) for run in self.waiting()]
        options = replace(self.options, failures=NodeFailures(), timeline=False, trial=True, changes=())
        return Replay(waiting, list(self._nodes.values()), self._policy, options).starts()

    def bring_back(self) -> None:
        """Bring all nodes up at the end, so that the remaining pending jobs can be explained."""
        self.made.engine.apply([NodeUpserted(node) for node in self._nodes.values()])
        self.made.engine.cycle(self.agenda.now)

    def waiting(self) -> list[JobRun]:
        """Return the jobs that have arrived, have not ended and are not given up."""
        return [run for run in self.runs if run.pods and not run.given_up]

    # ------------------------------------------------------------------ jobs come and go

    def _arrives(self, run: JobRun, now: float) -> None:
        self._task_factory.enrol(run, now)
        run.foretell(self._takes(run), exact=self.made.exact)
        self._coming -= 1
        self._pods.update(run.pods)
        self._waiting_jobs += 1
        self._waiting_milli += run.job.milli
        self._enter(run, now)

    def _enter(self, run: JobRun, now: float) -> None:
        """Its pods come: as a gang, or each for itself, as old as they are."""
        run.came = now
        deltas = self._deltas
        if run.group is not None:
            deltas.append(GroupUpserted(run.group))
        for pod in run.pods.values():
            if run.group is None:
                deltas.append(GroupUpserted(self._task_factory.single(pod, now)))
            deltas.append(TaskUpserted(pod.task))

    def _ends(self, what: tuple[JobRun, int], now: float) -> None:
        run, epoch = what
        if run.epoch != epoch:
            return
        run.settle(now)
        self._close_span(run, now)
        self._loads.end(run)
        run.ended.ended = now
        self.made.ended(run.key, run.job, run.spent)
        run.rate = 0.0
        run.epoch += 1
        self._used_milli -= run.milli()
        self._done += 1
        self._withdraw(run)
        if run.group is not None:
            self._deltas.append(GroupRemoved(run.key))
        for key in run.pods:
            del self._pods[key]
        run.pods.clear()

    def _withdraw(self, run: JobRun) -> None:
        for key, pod in run.pods.items():
            self._deltas.append(TaskRemoved(key))
            if run.group is None:
                self._deltas.append(GroupRemoved(pod.task.group))

    def _gives_up(self, what: tuple[JobRun, int], now: float) -> None:
        """Release a partly started job, which returns later."""
        run, tries = what
        singly = self.made.singly
        if singly is None or run.tries != tries or not 0 < run.bound < run.least:
            return
        run.ended.failed_starts += 1
        self._vacate(run, now)
        longer = min(max(0, run.ended.failed_starts - STEADY) // EVERY, 6)
        pause = singly.pause_seconds * 2.0**longer * (1.0 + (self._jitter.random() if longer else 0.0))
        if run.ended.failed_starts < LAST:
            self._coming += 1
            self.agenda.add(now + pause, EventKind.COME_BACK, run)
        else:
            self._give_up(run)

    def _give_up(self, run: JobRun) -> None:
        """It holds nothing, and never comes again."""
        run.given_up = True
        self._waiting_jobs -= 1
        self._waiting_milli -= run.job.milli
        if run.group is not None:
            self._deltas.append(GroupRemoved(run.key))

    def _comes_back(self, run: JobRun, now: float) -> None:
        self._coming -= 1
        self._enter(run, now)

    def _vacate(self, run: JobRun, now: float) -> None:
        """Remove all pods of a job and recreate them without submitting them."""
        self._close_span(run, now, held=not run.rate)
        self._used_milli -= run.milli() if run.bound else 0
        run.bound = 0
        run.tries += 1
        self._withdraw(run)
        for pod in run.pods.values():
            pod.task = next_incarnation(pod.task, run.tries)
            pod.node = ""

    # ------------------------------------------------------------------ nodes fail and come back

    def _plan_failure(self, name: str, now: float) -> None:
        self.agenda.add(self._breakdowns.next(name, now), EventKind.FAILURE, name)

    def _failed(self, name: str, now: float) -> None:
        """The node is gone."""
        self._lose(name, now)
        self._down += self._cards[name]
        self._deltas.append(NodeRemoved(name))
        self.agenda.add(now + self._breakdowns.away(name, now), EventKind.REPAIR, name)

    def _lose(self, name: str, now: float) -> None:
        """Remove the pods on a failed node; a gang stops and returns as a whole."""
        hit = dict.fromkeys(pod.run for pod in self._pods.values() if pod.node == name)
        for run in hit:
            run.settle(now)
            self._close_span(run, now, held=not run.rate)
            if run.rate:
                run.ended.failures += 1
                self._stop(run, JobRun.fail)
            self._vacate(run, now)
            if run.vain < VAIN:
                run.foretell(self._takes(run), exact=self.made.exact)
                self._enter(run, now)
            else:
                self._give_up(run)

    def _repaired(self, name: str, now: float) -> None:
        self._down -= self._cards[name]
        self._deltas.append(NodeUpserted(self._nodes[name]))
        self._plan_failure(name, now)

    # ------------------------------------------------------------------ notices of nodes

    def _node_changes(self, what: NodeChange | str, now: float) -> None:
        """Apply a notice. A name is a spot machine that is there again."""
        if isinstance(what, str):
            self._down -= self._cards[what]
            self._deltas.append(NodeUpserted(self._nodes[what]))
            return
        node = self._nodes[what.node]
        on_node = dict.fromkeys(pod.run for pod in self._pods.values() if pod.node == what.node)
        if isinstance(what, SpotNotice):
            for run in on_node:
                run.ended.spot_interruptions += 1
                self._move(run, now)
            self._deltas.append(NodeRemoved(what.node))
            self._down += self._cards[what.node]
            if what.away is not None:
                self.agenda.add(now + what.away, EventKind.NODE_CHANGE, what.node)
            return
        self._nodes[what.node] = slow = replace(node, unschedulable=True)
        self._deltas.append(NodeUpserted(slow))
        for run in on_node:
            run.settle(now)
        self._speeds.slow_down(what.node, what.factor)
        for run in on_node:
            if run.job.priority >= HIGH_PRIORITY:
                run.ended.degraded_moves += 1
                self._move(run, now)
            elif run.rate:
                self._go(run, now, self._deltas)

    def _move(self, run: JobRun, now: float) -> None:
        """Signal a job, which saves its work if it ever does, and let it wait again."""
        run.settle(now)
        self._close_span(run, now, held=not run.rate)
        if run.rate:
            saves = run.every(self.options.effort.checkpoint_seconds) is not None
            self._stop(run, lambda run, every: run.stop(0.0 if saves else every, signalled=saves))
        self._vacate(run, now)
        run.foretell(self._takes(run), exact=self.made.exact)
        self._enter(run, now)

    # ------------------------------------------------------------------ what is decided

    def _carry_out(self, decision: Decision, now: float) -> None:
        self.outcome.cycles += 1
        for eviction in decision.evictions:
            self._evicted(eviction, now)
        for bind in decision.binds:
            self._bound(bind, now)
        self.outcome.decisions += len(decision.binds) + len(decision.evictions)

    def _bound(self, bind: Bind, now: float) -> None:
        pod = self._pods[bind.task]
        run, singly = pod.run, self.made.singly
        before = 0
        if run.bound:
            run.settle(now)
            self._close_span(run, now, held=not run.rate)
            before = run.milli()
        elif run.least > 1 and singly is not None and not singly.in_turn:
            spans = (now - run.came) // singly.patience_seconds + 1
            self.agenda.add(run.came + spans * singly.patience_seconds, EventKind.GIVE_UP, (run, run.tries))
        pod.node = bind.node
        run.bound += 1
        run.span_since = now
        self._used_milli += run.milli() - before
        if run.bound >= run.least:
            self._go(run, now, self._confirmed, joined=pod)
        if self.made.confirms:
            self._confirmed.append(TaskUpserted(running(pod, now)))

    def _go(self, run: JobRun, now: float, deltas: list[Delta], joined: JobPod | None = None) -> None:
        """The job runs from now on with what it has; what there is to tell of that is added to ``deltas``.
        ``joined``: the pod that it has got now."""
        ended, restart, load = run.ended, 0.0, 0.0
        if not run.rate:
            self._waiting_jobs -= 1
            self._waiting_milli -= run.job.milli
            if ended.started is None:
                ended.started = now
            restart = self._restarts(run)
            load = self._loads.begin(run)
        elif joined is not None:
            run.joined(self._loads.join(joined))
        rate = self._speeds.rate(run)
        if run.group is not None:
            paced = at_rate(run.group, run.every(self.options.effort.checkpoint_seconds), rate)
            if paced is not run.group:
                run.group = paced
                deltas.append(GroupUpserted(paced))
        end = run.go(now, rate, restart, load)
        if run.foretell(end - now, exact=self.made.exact) and run.group is not None:
            deltas.append(GroupUpserted(run.group))
        self.agenda.add(end, EventKind.END, (run, run.epoch))

    def _restarts(self, run: JobRun) -> float:
        """Return the restart time (seconds) of the next start."""
        return self.options.effort.restart.of(run.job) if run.ran else 0.0

    def _takes(self, run: JobRun) -> float:
        """Return the maximum run time from the next start, on the slowest allowed devices."""
        return self._restarts(run) + run.left / self._speeds.slowest(run)

    def _evicted(self, eviction: Eviction, now: float) -> None:
        pod = self._pods[eviction.task]
        run = pod.run
        run.settle(now)
        self._close_span(run, now, held=not run.rate)
        before = run.milli()
        self._loads.leave(pod)
        pod.node = ""
        run.bound -= 1
        run.tries += 1
        run.span_since = now
        self._used_milli += run.milli() - before
        self._deltas.append(TaskRemoved(pod.task.key))
        pod.task = next_incarnation(pod.task, run.tries)
        self._deltas.append(TaskUpserted(pod.task))
        if run.bound >= run.least:
            self._go(run, now, self._deltas)
        elif run.rate:
            run.ended.preemptions += 1
            self._stop(run)

    def _stop(self, run: JobRun, how: Callable[[JobRun, float | None], None] = JobRun.stop) -> None:
        self._loads.end(run)
        how(run, self.options.effort.checkpoint_seconds)
        self._waiting_jobs += 1
        self._waiting_milli += run.job.milli

    # ------------------------------------------------------------------ books

    def _close_span(self, run: JobRun, now: float, *, held: bool = False) -> None:
        if run.bound and now > run.span_since:
            gpus = run.gpus()
            span = JobSpan(run.index, run.span_since, now, gpus, run.nodes(), held, run.sizes())
            self.outcome.spans.append(span)
            if held:
                self.outcome.partial_gang_gpu_seconds += gpus * (now - run.span_since)
            run.span_since = now
