"""The simulator and the live scheduler decide the same: one trace, played by the replay and through the service.

The service runs on a fake API with a clock that this test moves from one moment of the trace to the next: jobs come as
PodGroups with pods, pods that are bound run at once, and end when the trace says so. What is compared: who starts in
which order and when, and on how many nodes with how many pods on each.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import replace
from math import ceil
from random import Random
from typing import Any

import pytest
from kubeobjects import group, node, pod, queue
from schedapi import Running, SchedulerApi

from windlass.api.resources import POD_GROUPS, PODS
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339
from windlass.model.engines import make_engine
from windlass.sim.cluster import make_nodes, parse
from windlass.sim.jobs import TraceJob, pod_sizes
from windlass.sim.outcome import Outcome
from windlass.sim.policies import Made, Policy
from windlass.sim.replay import Options, replay
from windlass.spi.configuration import SchedulerConfig
from windlass.spi.objects import Dialect, Group

Shape = tuple[tuple[int, int], ...]
"""How many nodes have how many of its pods: ((pods, nodes), …)."""
Start = tuple[float, str, Shape]
NODES, LARGEST = 4, 8
EARLY = 0.05


def trace(seed: int, count: int = 24) -> list[TraceJob]:
    """Whole seconds, no two of a moment."""
    rng = Random(seed)
    moments = sorted(rng.sample(range(1, 2400), count))
    sizes = [1, 1, 2, 4, 8, 8, 16, 24]
    return [
        TraceJob(f"job-{at:02d}", float(moment), float(rng.randrange(100, 900)), rng.choice(sizes))
        for at, moment in enumerate(moments)
    ]


def shape(nodes: list[str]) -> Shape:
    return tuple(sorted(Counter(Counter(nodes).values()).items()))


def live_policy(config: SchedulerConfig) -> Policy:
    """What the scheduler decides by when it is configured so."""
    return Policy(
        "live",
        "",
        lambda _: Made(make_engine(config), dialect=Dialect.WINDLASS, confirms=True, dress=said),
    )


def said(group: Group, job: TraceJob) -> Group:
    """With the run time as its owner states it."""
    return replace(group, run_estimate=job.duration_seconds)


def simulated(jobs: list[TraceJob], config: SchedulerConfig) -> list[Start]:
    nodes = make_nodes(parse(f"{NODES}x{LARGEST}"))
    outcome: Outcome = replay(jobs, nodes, live_policy(config), Options(time_share=False))
    first: dict[int, Any] = {}
    for span in outcome.spans:
        if not span.held:
            first.setdefault(span.job, span)
    return sorted(
        (span.start, outcome.jobs[at].job.id, shape(list(span.nodes))) for at, span in first.items()
    )


class Life:
    """The trace through the service. Moments are seconds since its begin."""

    def __init__(self, api: SchedulerApi, running: Running, jobs: list[TraceJob]) -> None:
        self.api = api
        self.running = running
        self.origin = ceil(api.clock.now()) + 1.0
        """A whole second, as objects tell no others."""
        self.jobs = {job.id: job for job in jobs}
        self.events = [(job.submit_seconds, 1, job.id) for job in jobs]
        heapq.heapify(self.events)
        self.started: list[Start] = []
        self.waiting: dict[str, list[str]] = {}

    async def play(self) -> list[Start]:
        moment = 0.0
        while self.events:
            following = self.events[0][0]
            await self._until(following)
            moment = following
            while self.events and self.events[0][0] == moment:
                _, kind, name = heapq.heappop(self.events)
                if kind:
                    self._arrives(name)
                else:
                    self._ends(name)
            await self._settle(moment)
        return sorted(self.started)

    async def _until(self, moment: float) -> None:
        """Moments that the scheduler itself has set (a reservation, a pause) come in between. What happens at the
        moment does so a little before it, so that nobody is seen to outlive what was said of him."""
        while (left := self.origin + moment - EARLY - self.api.clock.now()) > 1e-6:
            await self.api.clock.advance(max(0.0, left - 0.001))
            await self.running.settle(0.001)

    async def _settle(self, moment: float) -> None:
        """Time stands still at the moment, but for the debounce."""
        for _ in range(4):
            await self.running.settle(0.02)
            self._look(moment)

    def _arrives(self, name: str) -> None:
        job = self.jobs[name]
        made = group(name, len(pod_sizes(job, LARGEST)))
        made["metadata"]["creationTimestamp"] = rfc3339(self.origin + job.submit_seconds)
        made["metadata"]["annotations"] = {"windlass.dev/run-estimate": f"{job.duration_seconds:g}s"}
        made["metadata"]["uid"] = f"uid-{name}"
        pods = []
        for at, gpus in enumerate(pod_sizes(job, LARGEST)):
            one = pod(f"{name}-{at}", group=name, requests={"nvidia.com/gpu": str(gpus)})
            one["metadata"]["creationTimestamp"] = made["metadata"]["creationTimestamp"]
            pods.append(one)
        self.waiting[name] = [one["metadata"]["name"] for one in pods]
        self.api.add(made, *pods)

    def _look(self, moment: float) -> None:
        """Bound pods run at once; a gang that is whole has started."""
        for name, pods in list(self.waiting.items()):
            places = [self.api.node_of(one) for one in pods]
            if not all(places):
                continue
            begun = rfc3339(self.origin + moment)
            for one in pods:
                self.api.change(PODS, f"default/{one}", status={"phase": "Running", "startTime": begun})
            del self.waiting[name]
            self.started.append((moment, name, shape(places)))
            heapq.heappush(self.events, (moment + self.jobs[name].duration_seconds, 0, name))

    def _ends(self, name: str) -> None:
        for at in range(len(pod_sizes(self.jobs[name], LARGEST))):
            self.api.remove(PODS, f"default/{name}-{at}")
        self.api.remove(POD_GROUPS, f"default/{name}")


async def lived(clock: FakeClock, jobs: list[TraceJob], config: SchedulerConfig) -> list[Start]:
    api = SchedulerApi(clock)
    api.add(queue("root"), queue("default"))
    api.add(*[node(f"node-{at:04d}", gpus=LARGEST, cpu="100000", memory="1000Ti") for at in range(NODES)])
    async with Running(api, policy=config) as running:
        return await Life(api, running, jobs).play()


@pytest.mark.parametrize("backfill", ["easy", "conservative", "none", "strict"])
async def test_a_live_run_and_the_simulator_give_the_same_decisions(
    fake_clock: FakeClock, backfill: str
) -> None:
    config = SchedulerConfig(
        actions=("allocate",), configurations={"backfill": {"reservations": backfill, "learned": "false"}}
    )
    jobs = trace(1)
    expected = simulated(jobs, config)
    found = await lived(fake_clock, jobs, config)
    assert len(expected) == len(jobs)
    assert sum(start > jobs[int(name[4:])].submit_seconds for start, name, _ in expected) >= 5, "some wait"
    assert found == expected


@pytest.mark.parametrize("seed", [1, 2])
async def test_so_they_do_as_installed(fake_clock: FakeClock, seed: int) -> None:
    jobs = trace(seed)
    expected = simulated(jobs, SchedulerConfig())
    found = await lived(fake_clock, jobs, SchedulerConfig())
    assert found == expected


async def test_a_difference_would_be_seen(fake_clock: FakeClock) -> None:
    """The comparison can fail: strict order and backfill start jobs at other times."""
    jobs = trace(1)
    strict = SchedulerConfig(configurations={"backfill": {"reservations": "strict"}})
    assert simulated(jobs, strict) != simulated(jobs, SchedulerConfig())
