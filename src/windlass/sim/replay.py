"""Jobs of a trace through the engine, under a virtual clock.

Jobs arrive, run, end; nodes fail and come back. All of one moment is told to the engine at once, then it decides
until nothing more happens at that moment; its binds start jobs, its evictions stop them. A job runs once all of
its pods (of an elastic one: the least number) have their places; its pods are ready at once, what a restart
takes is counted by :class:`~windlass.sim.world.RestartCost`. A pod that is evicted is gone at once, and its owner
makes another one.

Invariants: every job ends exactly once, or waits at the end; what jobs hold on a node is never more than it has
(the engine's books are the only ones); equal inputs and seeds give equal outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from windlass.engine.decision import Bind, Decision, Eviction
from windlass.engine.deltas import (
    Delta,
    GroupRemoved,
    GroupUpserted,
    NodeUpserted,
    QueueUpserted,
    TaskRemoved,
    TaskUpserted,
)
from windlass.kits.rng import seeded
from windlass.sim.clock import Agenda, Kind
from windlass.sim.cluster import capacity, gpus_of
from windlass.sim.jobs import WHOLE, TraceJob, in_order
from windlass.sim.outcome import Moment, Outcome, Span
from windlass.sim.policies import Made, Policy, Setting
from windlass.sim.world import JobRun, Pod, RestartCost, Shapes, next_incarnation
from windlass.spi.objects import Group, Node, Queue, Task

POOL = "default"
"""The queue of all jobs where a policy knows but one."""
ROUNDS = 1000
"""So many cycles may one moment take: more would never end."""


class ReplayError(RuntimeError):
    """The engine decides for ever at one moment, or a job can never run."""


@dataclass(frozen=True, slots=True)
class Options:
    """``checkpoint_seconds``: how often jobs save what they have done; 0: all the time; ``None``: never.
    ``time_share``: jobs that say nothing of it opted in to being suspended for their equals."""

    restart: RestartCost = field(default_factory=RestartCost)
    checkpoint_seconds: float | None = 0.0
    seed: int = 0
    time_share: bool = True
    timeline: bool = True


def replay(
    jobs: Sequence[TraceJob],
    nodes: Sequence[Node],
    policy: Policy,
    options: Options | None = None,
    progress: Callable[[int], None] | None = None,
) -> Outcome:
    """Play the jobs through. ``progress`` is told how many have ended. Raises :class:`ReplayError`."""
    return Replay(jobs, nodes, policy, options or Options()).run(progress)


class Replay:
    """One run."""

    def __init__(
        self, jobs: Sequence[TraceJob], nodes: Sequence[Node], policy: Policy, options: Options
    ) -> None:
        self.options = options
        ordered = in_order(jobs)
        width = len(str(len(ordered)))
        keys = [f"sim/{index:0{width}d}" for index in range(len(ordered))]
        self.runs = [
            JobRun(index, key, job) for index, (key, job) in enumerate(zip(keys, ordered, strict=True))
        ]
        random = seeded(options.seed)
        self.made: Made = policy.make(Setting(ordered, keys, nodes, random, options.time_share))
        self.engine = self.made.engine
        self.agenda = Agenda()
        self.shapes = Shapes(max((gpus_of(node) for node in nodes), default=0))
        self.outcome = Outcome([run.ended for run in self.runs], capacity_gpus=capacity(nodes))
        self._deltas: list[Delta] = []
        self._pods: dict[str, Pod] = {}
        self._used = 0.0
        self._waiting_jobs = 0
        self._waiting_gpus = 0.0
        self._done = 0
        queues = [POOL] if self.made.pooled else sorted({job.queue for job in ordered})
        self.engine.apply([QueueUpserted(Queue(name)) for name in queues])
        self.engine.apply([NodeUpserted(node) for node in nodes])
        for run in self.runs:
            self.agenda.add(run.job.submit_seconds, Kind.ARRIVAL, run)

    # ------------------------------------------------------------------ the loop

    def run(self, progress: Callable[[int], None] | None = None) -> Outcome:
        agenda = self.agenda
        wake: float | None = None
        total = len(self.runs)
        while self._done < total:
            moment = agenda.moment()
            if moment is None or (wake is not None and wake < moment):
                moment = wake
            if moment is None:
                break  # nothing will ever happen again: who waits, waits for ever
            before = len(self._deltas)
            for kind, what in agenda.due(moment):
                self._happens(kind, what, moment)
            if len(self._deltas) == before and (wake is None or wake > moment):
                continue
            wake = self._decide(moment)
            if self.options.timeline:
                self._note(moment)
            if progress is not None:
                progress(self._done)
        return self.outcome

    def _happens(self, kind: int, what: object, now: float) -> None:
        if kind == Kind.END:
            run, epoch = what  # type: ignore[misc]
            if run.epoch == epoch:
                self._end(run, now)
        elif kind == Kind.ARRIVAL:
            self._arrive(what, now)  # type: ignore[arg-type]
        elif kind == Kind.GIVE_UP:
            run, starts = what  # type: ignore[misc]
            if run.starts == starts and 0 < run.bound < run.least:
                self._give_up(run, now)
        elif kind == Kind.COME_BACK:
            self._enter(what, now)  # type: ignore[arg-type]

    def _decide(self, now: float) -> float | None:
        """Let the engine decide until nothing more follows at once; when it wants to be asked again."""
        engine, outcome = self.engine, self.outcome
        for _ in range(ROUNDS):
            deltas, self._deltas = self._deltas, []
            engine.apply(deltas)
            decision = engine.cycle(now)
            outcome.cycles += 1
            self._carry_out(decision, now)
            again = bool(decision.evictions) or (decision.wake_at is not None and decision.wake_at <= now)
            if not again:
                return decision.wake_at
        raise ReplayError(f"at {now:.0f} s the engine decides and decides")

    # ------------------------------------------------------------------ what happens

    def _arrive(self, run: JobRun, now: float) -> None:
        job = run.job
        made = self.made
        singly = made.singly
        sizes = self.shapes.sizes(job, singly.pod_gpus if singly is not None else 0)
        run.least = len(sizes)
        if 0 < job.min_gpus < job.gpus and singly is None:
            run.least = max(1, len(self.shapes.sizes(job, 1)[: job.min_gpus]))
            sizes = self.shapes.sizes(job, 1)
        if singly is None:
            group = Group(
                run.key,
                self._queue(job),
                job.priority,
                run.least,
                created=now,
                uid=run.key,
                admitted=True,
            )
            run.group = made.dress(group, job)
        for number, gpus in enumerate(sizes):
            key = f"{run.key}-{number}"
            group_key = run.key if singly is None else f"sim/pod:{key.removeprefix('sim/')}"
            task = Task(key, f"{key}#0", group_key, self.shapes.needs(job, gpus), index=number, created=now)
            self._pods[key] = run.pods[key] = Pod(task, run, gpus)
        self._waiting_jobs += 1
        self._waiting_gpus += job.gpus
        if singly is None:
            self._deltas.append(GroupUpserted(run.group))
            self._deltas += [TaskUpserted(pod.task) for pod in run.pods.values()]
        else:
            self._enter(run, now)

    def _enter(self, run: JobRun, now: float) -> None:
        """The pods of a job that are bound one by one come, each for itself."""
        job = run.job
        for pod in run.pods.values():
            task = pod.task
            group = Group(
                task.group, self._queue(job), job.priority, 1, created=now, uid=run.key, admitted=True
            )
            self._deltas.append(GroupUpserted(self.made.dress(group, job)))
            self._deltas.append(TaskUpserted(task))

    def _end(self, run: JobRun, now: float) -> None:
        self._settle(run, now)
        self._close_span(run, now)
        run.ended.ended = now
        run.epoch += 1
        run.rate = 0.0
        self._leave(run)
        self._used -= run.gpus()
        self._done += 1
        run.pods.clear()

    def _leave(self, run: JobRun) -> None:
        deltas, singly = self._deltas, self.made.singly is not None
        for key, pod in run.pods.items():
            deltas.append(TaskRemoved(key))
            del self._pods[key]
            if singly:
                deltas.append(GroupRemoved(pod.task.group))
        if not singly:
            deltas.append(GroupRemoved(run.key))

    def _give_up(self, run: JobRun, now: float) -> None:
        """A job of which a part waited in vain holds nothing any more, and comes again later."""
        singly = self.made.singly
        if singly is None:
            raise ReplayError("a gang is in part")
        run.ended.failed_starts += 1
        self._close_span(run, now, held=True)
        self._used -= run.gpus()
        run.bound = 0
        run.starts += 1
        for key, pod in run.pods.items():
            self._deltas.append(TaskRemoved(key))
            self._deltas.append(GroupRemoved(pod.task.group))
            pod.task = next_incarnation(pod.task, run.starts)
            pod.node = ""
        self.agenda.add(now + singly.pause_seconds, Kind.COME_BACK, run)

    def _queue(self, job: TraceJob) -> str:
        return POOL if self.made.pooled else job.queue

    # ------------------------------------------------------------------ what is decided

    def _carry_out(self, decision: Decision, now: float) -> None:
        for eviction in decision.evictions:
            self._evicted(eviction, now)
        for bind in decision.binds:
            self._bound(bind, now)
        self.outcome.decisions += len(decision.binds) + len(decision.evictions)

    def _bound(self, bind: Bind, now: float) -> None:
        pod = self._pods[bind.task]
        run = pod.run
        if run.rate or run.bound:
            self._settle(run, now)
            self._close_span(run, now, held=not run.rate)
        before = run.gpus() if run.bound else 0.0
        pod.node = bind.node
        run.bound += 1
        self._used += run.gpus() - before
        run.span_since = now
        if run.bound == 1 and run.least > 1:
            run.held_since = now
            if self.made.singly is not None:
                self.agenda.add(now + self.made.singly.patience_seconds, Kind.GIVE_UP, (run, run.starts))
        if run.bound >= run.least:
            self._go(run, now)

    def _go(self, run: JobRun, now: float) -> None:
        """The job runs from now on with what it has."""
        ended = run.ended
        if not run.rate:
            self._waiting_jobs -= 1
            self._waiting_gpus -= run.job.gpus
            if ended.started is None:
                ended.started = now
            if run.starts and self.made.singly is None:
                run.warming = self.options.restart.of(run.job.gpus)
                ended.lost_gpu_seconds += run.warming * run.gpus()
        run.rate = run.bound / len(run.pods) if run.least < len(run.pods) else 1.0
        run.since = now
        run.epoch += 1
        self.agenda.add(now + run.warming + run.left / run.rate, Kind.END, (run, run.epoch))

    def _evicted(self, eviction: Eviction, now: float) -> None:
        pod = self._pods[eviction.task]
        run = pod.run
        self._settle(run, now)
        self._close_span(run, now, held=not run.rate)
        before = run.gpus()
        pod.node = ""
        run.bound -= 1
        self._used += run.gpus() - before
        run.span_since = now
        run.starts += 1
        self._deltas.append(TaskRemoved(pod.task.key))
        pod.task = next_incarnation(pod.task, run.starts)
        self._deltas.append(TaskUpserted(pod.task))
        if run.bound >= run.least:
            self._go(run, now)
        elif run.rate:
            self._stop(run)
            run.ended.preemptions += 1

    def _stop(self, run: JobRun) -> None:
        """The job runs no more; what it has not saved is to be done again."""
        run.rate = 0.0
        run.epoch += 1
        self._waiting_jobs += 1
        self._waiting_gpus += run.job.gpus
        every = run.job.checkpoint_seconds
        every = self.options.checkpoint_seconds if every is None else every
        done = run.job.duration_seconds - run.left
        kept = 0.0 if every is None else done if every <= 0 else done // every * every
        run.ended.lost_gpu_seconds += (done - kept) * run.job.gpus * run.job.gpu_milli / WHOLE
        run.left = run.job.duration_seconds - kept

    # ------------------------------------------------------------------ books

    def _settle(self, run: JobRun, now: float) -> None:
        """Count what has been done up to now."""
        if not run.rate:
            return
        passed = now - run.since
        warm = min(run.warming, passed)
        run.warming -= warm
        run.left = max(0.0, run.left - (passed - warm) * run.rate)
        run.since = now

    def _close_span(self, run: JobRun, now: float, *, held: bool = False) -> None:
        if run.bound and now > run.span_since:
            gpus = run.gpus()
            self.outcome.spans.append(Span(run.index, run.span_since, now, gpus, run.nodes(), held))
            if held:
                self.outcome.partial_gang_gpu_seconds += gpus * (now - run.span_since)

    def _note(self, now: float) -> None:
        self.outcome.moments.append(Moment(now, self._used, self._waiting_jobs, self._waiting_gpus))
