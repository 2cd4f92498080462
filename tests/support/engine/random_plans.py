"""Random small clusters of KAI's and Volcano's queues, and a judge of what a plan does to them."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import group, node, pod, priority_class, queue

from windlass.cli.simulate.plan import make_engine
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.snapshot import EVERY_SCHEDULER, load
from windlass.model.dryrun.dry_run import DryRun, DryRunPlan
from windlass.spi.configuration import SchedulerConfig

NOW = 1_767_268_800.0
GPU = "nvidia.com/gpu"
PRIORITIES = (25, 50, 75)


@dataclass(frozen=True)
class Team:
    """A leaf queue. ``gpus``: what it deserves; ``limit`` -1 for none."""

    name: str
    kai: bool
    gpus: int
    limit: int = -1
    weight: int = 1


@dataclass(frozen=True)
class Job:
    name: str
    team: Team
    pods: int
    least: int
    gpus: int
    priority: int
    preemptible: bool
    nodes: tuple[str, ...] = ()
    """Where its pods run; empty for a job that waits."""

    @property
    def key(self) -> str:
        return f"default/{'kai:' if self.team.kai else ''}{self.name}"

    def pod(self, index: int) -> str:
        return f"default/{self.name}-{index}"


@dataclass
class Scene:
    nodes: dict[str, int]
    teams: list[Team]
    jobs: list[Job] = field(default_factory=list)

    def objects(self) -> list[dict[str, Any]]:
        found = [node(name, gpus=gpus) for name, gpus in self.nodes.items()]
        found += [priority_class(f"p{value}", value) for value in PRIORITIES]
        if any(team.kai for team in self.teams):
            found.append(kai_queue("org"))
        for team in self.teams:
            found.append(self._queue(team))
        for job in self.jobs:
            found += self._job(job)
        return found

    def _queue(self, team: Team) -> dict[str, Any]:
        if team.kai:
            made = kai_queue(team.name, "org", gpus=team.gpus, weight=team.weight)
            made["spec"]["resources"]["gpu"]["limit"] = team.limit
            return made
        spec: dict[str, Any] = {"weight": max(1, team.weight)}
        if team.gpus:
            spec["deserved"] = {GPU: team.gpus}
        if team.limit >= 0:
            spec["capability"] = {GPU: team.limit}
        return queue(team.name, **spec)

    def _job(self, job: Job) -> list[dict[str, Any]]:
        ask = {
            "requests": {GPU: str(job.gpus)},
            "priorityClassName": f"p{job.priority}",
            "priority": job.priority,
        }
        where = [{"node": name} for name in job.nodes] or [{}] * job.pods
        if job.team.kai:
            word = "preemptible" if job.preemptible else "non-preemptible"
            spec = {"priorityClassName": f"p{job.priority}", "preemptibility": word}
            pods = [
                kai_pod(f"{job.name}-{i}", job.name, job.team.name, **ask, **at) for i, at in enumerate(where)
            ]
            return [kai_group(job.name, job.least, job.team.name, **spec), *pods]
        label = {} if job.preemptible else {"labels": {"volcano.sh/preemptable": "false"}}
        pods = [
            pod(f"{job.name}-{i}", scheduler="volcano", group=job.name, **ask, **label, **at)
            for i, at in enumerate(where)
        ]
        phase = "Running" if job.nodes else "Inqueue"
        made = group(
            job.name, job.least, queue=job.team.name, phase=phase, priorityClassName=f"p{job.priority}"
        )
        if not job.preemptible:
            made["metadata"]["annotations"] = {"volcano.sh/preemptable": "false"}
        return [made, *pods]


@st.composite
def scenes(draw: st.DrawFn, *, kai: bool = True, volcano: bool = True) -> Scene:
    """Clusters of at most three nodes and seven jobs; what runs fits, and no limit is passed."""
    nodes = {f"n{i}": draw(st.integers(1, 4)) for i in range(draw(st.integers(1, 3)))}
    apis = [api for api, wanted in ((True, kai), (False, volcano)) if wanted]
    teams = [
        Team(
            f"t{i}",
            draw(st.sampled_from(apis)),
            draw(st.integers(0, 4)),
            draw(st.sampled_from((-1, -1, 2, 4))),
            draw(st.integers(0, 2)),
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    scene = Scene(nodes, teams)
    free = dict(nodes)
    held: Counter[str] = Counter()
    firm: Counter[str] = Counter()
    for i in range(draw(st.integers(1, 7))):
        team = draw(st.sampled_from(teams))
        least, extra, gpus = draw(st.integers(1, 3)), draw(st.integers(0, 1)), draw(st.integers(1, 2))
        preemptible, priority = draw(st.booleans()), draw(st.sampled_from(PRIORITIES))
        total = (least + extra) * gpus
        placed = first_fit(free, least + extra, gpus) if draw(st.booleans()) else None
        if placed and team.limit >= 0 and held[team.name] + total > team.limit:
            placed = None
        if placed and not preemptible and team.kai and firm[team.name] + total > team.gpus:
            placed = None
        if placed:
            for name in placed:
                free[name] -= gpus
            held[team.name] += total
            firm[team.name] += 0 if preemptible else total
        job = Job(f"j{i}", team, least + extra, least, gpus, priority, preemptible, tuple(placed or ()))
        scene.jobs.append(job)
    return scene


def first_fit(free: dict[str, int], pods: int, gpus: int) -> list[str] | None:
    """Return the node of each pod, the first one with room; ``None`` if they do not all fit."""
    left, found = dict(free), []
    for _ in range(pods):
        name = next((name for name in left if left[name] >= gpus), None)
        if name is None:
            return None
        left[name] -= gpus
        found.append(name)
    return found


class Planned:
    """A scene, run until stability."""

    def __init__(self, scene: Scene, config: SchedulerConfig | None = None) -> None:
        self.scene = scene
        self.model = ClusterModel(EVERY_SCHEDULER)
        load(self.model, ((str(at), obj) for at, obj in enumerate(scene.objects())), strict=True)
        self.engine = make_engine(config or SchedulerConfig())
        self.plan: DryRunPlan = DryRun(self.model, self.engine, NOW).run(until_stable=True)
        self.jobs = {job.pod(i): job for job in scene.jobs for i in range(job.pods)}

    def more(self, cycles: int) -> list[object]:
        """What further cycles would bind or evict."""
        found: list[object] = []
        for _ in range(cycles):
            self.engine.apply(self.model.take(NOW))
            decision = self.engine.cycle(NOW)
            found += [*decision.binds, *decision.evictions]
        return found

    def judge(self) -> None:
        """Replay the plan; every rule that holds for all schedulers."""
        where = {job.pod(i): name for job in self.scene.jobs for i, name in enumerate(job.nodes)}
        devices: dict[str, tuple[int, ...]] = {}
        for cycle in range(1, self.plan.cycles + 1):
            evicted = [e for e in self.plan.evictions if e.cycle == cycle]
            bound = [b for b in self.plan.binds if b.cycle == cycle]
            promised = {n.pod: n.node for n in self.plan.nominations if n.cycle == cycle}
            for bind in bound:
                assert bind.pod not in where, f"{bind.pod} is bound twice"
                where[bind.pod] = bind.node
                devices[bind.pod] = tuple(share.index for share in bind.devices)
                assert len(set(devices[bind.pod])) == self.jobs[bind.pod].gpus
            self._fits(where)
            self._devices(where, devices)
            claims = {b.pod for b in bound} | set(promised)
            for gone in evicted:
                self._allowed(gone, claims, where)
            for gone in evicted:
                assert where.pop(gone.pod) == gone.node
                devices.pop(gone.pod, None)
            future = {**where, **{p: n for p, n in promised.items() if p not in where}}
            moved = {gone.pod for gone in evicted} & set(promised)
            self._gangs({p: n for p, n in future.items() if p in where or p in moved}, cycle)
            self._limits(where)
            self._fits(future)

    def _fits(self, where: dict[str, str]) -> None:
        used: Counter[str] = Counter()
        for name, at in where.items():
            used[at] += self.jobs[name].gpus
        assert all(used[name] <= gpus for name, gpus in self.scene.nodes.items()), used

    def _devices(self, where: dict[str, str], devices: dict[str, tuple[int, ...]]) -> None:
        taken: dict[str, list[int]] = defaultdict(list)
        for name, indices in devices.items():
            if name in where:
                taken[where[name]] += indices
        assert all(len(indices) == len(set(indices)) for indices in taken.values()), taken

    def _gangs(self, where: dict[str, str], cycle: int) -> None:
        for job in self.scene.jobs:
            up = sum(job.pod(i) in where for i in range(job.pods))
            assert up == 0 or up >= job.least, f"cycle {cycle}: {job.name} holds {up} of {job.least}"

    def _limits(self, where: dict[str, str]) -> None:
        held: Counter[str] = Counter()
        for name in where:
            held[self.jobs[name].team.name] += self.jobs[name].gpus
        for team in self.scene.teams:
            assert team.limit < 0 or held[team.name] <= team.limit, f"{team.name} holds {held[team.name]}"

    def _allowed(self, gone: Any, claims: set[str], where: dict[str, str]) -> None:
        victim = self.jobs[gone.pod]
        assert victim.preemptible, f"{gone.pod} may not be evicted"
        claimer = next(job for job in self.scene.jobs if job.key == gone.preemptor)
        ready = sum(claimer.pod(i) in claims or claimer.pod(i) in where for i in range(claimer.pods))
        assert ready >= claimer.least, f"{gone.pod} was evicted for {claimer.name}, which does not fit"
        assert victim is not claimer
        if gone.action == "preempt":
            assert victim.team == claimer.team
            assert victim.priority < claimer.priority
        elif gone.action == "reclaim":
            assert victim.team != claimer.team
