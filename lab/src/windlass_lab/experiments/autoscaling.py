"""E13: how many GPUs serve requests, by rule.

A small simulation of its own: requests wait in one line for the first free server; a server has one GPU and serves
one request at a time; every ``TICK`` seconds a rule says how many there should be. A server that is added serves
after ``START`` seconds and is paid for from the beginning; one that is taken away finishes its request first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, inf, sqrt

from windlass.sim.jobs import TraceJob
from windlass_lab.experiments.claim import Experiment, ExperimentFinding, Figure, Goal
from windlass_lab.experiments.lab import AZURE, GENAI, Lab

TICK = 15.0
START = 22.0
"""Time (seconds) to load a base model on GenTD26's servers; used for both traces."""
LIMIT = 2.0
"""A request that waits longer is a miss."""
MOST = 4096


@dataclass(frozen=True, slots=True)
class AutoscalingState:
    """Input of a rule at a tick. ``servers``: those that serve or start. ``use``: busy part of server time since the
    last tick; ``waiting``: requests in line; ``peak``: requests a second in the busiest minute of the last ten;
    ``service``: mean seconds of service of the requests so far."""

    servers: int
    use: float
    waiting: int
    peak: float
    service: float


Rule = Callable[[AutoscalingState], int]


def doubling(state: AutoscalingState) -> int:
    """Apply the rule of the claim: double above 0.8 with requests waiting; halve below 0.3."""
    if state.use > 0.8 and state.waiting:
        return state.servers * 2
    return max(1, state.servers // 2) if state.use < 0.3 else state.servers


def square_root(reserve: float) -> Rule:
    """Return the rule of square-root staffing (Halfin and Whitt 1981).

    The number of servers is the load ``a`` of the busiest of the last ten minutes, plus ``reserve * sqrt(a)``, plus
    the servers that clear the current backlog within ``START``.
    """

    def rule(state: AutoscalingState) -> int:
        load = state.peak * state.service
        return max(1, ceil(load + reserve * sqrt(load) + state.waiting * state.service / START))

    return rule


@dataclass(frozen=True, slots=True)
class AutoscalingResult:
    """``missed``: percent of requests that waited longer than ``LIMIT``; ``gpu_hours``: paid."""

    missed: float
    gpu_hours: float


class SimulatedService:
    """One run of a rule over requests in the order they come."""

    def __init__(self, requests: Sequence[TraceJob], rule: Rule) -> None:
        self._requests = requests
        self._rule = rule
        self._free: list[float] = [0.0]
        """Heap of times at which servers become free. A starting server becomes free at the end of its start."""
        self._line: deque[TraceJob] = deque()
        self._paid = 0.0
        self._missed = 0
        self._busy = 0.0
        self._ended: tuple[int, float] = (0, 0.0)
        self._arrivals: deque[float] = deque()

    def run(self) -> AutoscalingResult:
        """Until all are served."""
        requests = self._requests
        now, at = 0.0, 0
        while at < len(requests) or self._line:
            end = now + TICK
            while at < len(requests) and requests[at].submit_seconds < end:
                self._line.append(requests[at])
                self._arrivals.append(requests[at].submit_seconds)
                at += 1
            self._serve(now, end)
            self._paid += TICK * len(self._free)
            self._scale(end)
            now = end
        return AutoscalingResult(100.0 * self._missed / len(requests), self._paid / 3600)

    def _serve(self, now: float, end: float) -> None:
        """Serve the waiting requests that start before ``end``."""
        free = self._free
        self._busy = sum(min(moment, end) - now for moment in free if moment > now)
        while self._line:
            request = self._line[0]
            begin = max(free[0], request.submit_seconds)
            if begin >= end:
                return
            heappop(free)
            self._line.popleft()
            self._missed += begin - request.submit_seconds > LIMIT
            over = begin + request.duration_seconds
            self._busy += min(over, end) - begin
            self._ended = (self._ended[0] + 1, self._ended[1] + request.duration_seconds)
            heappush(free, over)

    def _scale(self, now: float) -> None:
        arrivals = self._arrivals
        while arrivals and arrivals[0] < now - 600.0:
            arrivals.popleft()
        count, seconds = self._ended
        minutes = [0] * 10
        for moment in arrivals:
            minutes[min(9, int((now - moment) // 60.0))] += 1
        state = AutoscalingState(
            len(self._free),
            self._busy / (TICK * len(self._free)),
            len(self._line),
            max(minutes) / 60.0,
            seconds / count if count else 0.0,
        )
        wanted = min(MOST, self._rule(state))
        for _ in range(wanted - len(self._free)):
            heappush(self._free, now + START)
        idle = sorted(self._free)
        while len(idle) > wanted and idle[0] <= now:
            idle.pop(0)
        self._free = idle


RESERVES = (0.0, 1.0, 2.0, 3.0)


def serving(lab: Lab) -> ExperimentFinding:
    """E13."""
    figures: list[Figure] = []
    goals: list[Goal] = []
    for trace, name in ((AZURE, "Azure LLM, code"), (GENAI, "GenTD26")):
        jobs = sorted(lab.jobs(trace), key=lambda job: job.submit_seconds)
        seed = SimulatedService(jobs, doubling).run()
        best: tuple[float, float] = (inf, inf)
        for reserve in RESERVES:
            ours = SimulatedService(jobs, square_root(reserve)).run()
            label = f"{name}, reserve {reserve:g}"
            figures += [
                Figure(f"{label}: waited over 2 s", seed.missed, ours.missed, "%", 2),
                Figure(f"{label}: GPU-hours", seed.gpu_hours, ours.gpu_hours, "h", 1),
            ]
            if ours.missed <= seed.missed:
                best = min(best, (ours.gpu_hours, ours.missed))
        goals.append(Goal(f"{name}: no more misses at no more GPU-hours", best[0] <= seed.gpu_hours))
    return ExperimentFinding(figures, goals)


EXPERIMENTS = (
    Experiment(
        "E13",
        "replicas by rule: busier than 0.8 with requests waiting: twice as many; below 0.3: half",
        "Azure LLM inference 2023, code: 8,818 requests of an hour; GenTD26: 18,453 requests for images of 18 days",
        "one GPU a server, one request at a time; a server starts within 22 s; the rule is asked every 15 s",
        "the claim's rule",
        "square-root staffing: the load of the busiest of the last ten minutes, and a reserve of 0 to 3 times its root",
        "requests that waited longer than 2 s, against GPU-hours",
        (AZURE, GENAI),
        "A small simulation of its own, without the scheduler: Windlass does not scale replicas, it places those that"
        " an autoscaler asks for. Run times of Azure's requests are reckoned (5,000 tokens of a prompt and 30 of an"
        " answer a second), and no requests are batched.",
        serving,
    ),
)
