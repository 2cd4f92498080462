"""Random clusters with nested queues, limits and domains, and the application of stated remedies."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from hypothesis import strategies as st
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import group, node, pod, queue
from random_plans import first_fit
from tier_configurations import config

from windlass.api.quantities import to_units
from windlass.api.queues.tree import QueueSpecs, against_children, against_parent
from windlass.api.reasons import Explanation, Reason
from windlass.cli.simulate.plan import make_engine
from windlass.engine.decision import Decision
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.snapshot import EVERY_SCHEDULER, load
from windlass.model.dryrun.dry_run import DryRun, DryRunPlan
from windlass.spi.configuration import SchedulerConfig

NOW = 1_767_268_800.0
GPU = "nvidia.com/gpu"
LIMIT_CODES = frozenset({Reason.WAITING_FOR_QUOTA, Reason.EXCEEDS_QUEUE_LIMIT})
TIERS = {
    "": None,
    "capacity": config("enqueue allocate backfill", "priority gang | predicates capacity"),
    "proportion": config("enqueue allocate backfill", "priority gang | predicates proportion"),
}
"""Name → configuration; "" for the default policy."""


@dataclass(frozen=True)
class Team:
    """A queue. ``limit`` -1 for none; ``parent`` "" for a queue at the top."""

    name: str
    parent: str
    limit: int


@dataclass(frozen=True)
class Job:
    """A gang. ``parts``: its pods are two sub-groups of half the minimum. ``near``: one rack is required."""

    name: str
    queue: str
    pods: int
    least: int
    gpus: int
    firm: bool
    parts: bool
    near: bool
    nodes: tuple[str, ...] = ()
    """Nodes of its running pods. Empty: it waits."""


@dataclass
class Scene:
    kai: bool
    tiers: str
    nodes: dict[str, tuple[int, int]]
    """Name → rack, GPUs."""
    teams: list[Team]
    jobs: list[Job] = field(default_factory=list)

    def objects(self) -> list[dict[str, Any]]:
        found = [
            node(name, gpus=gpus, labels={"rack": f"r{rack}"}) for name, (rack, gpus) in self.nodes.items()
        ]
        found += self._domains()
        found += [self._queue(team) for team in self.teams]
        for job in self.jobs:
            found += self._job(job)
        return found

    def _domains(self) -> list[dict[str, Any]]:
        if self.kai:
            levels = [{"nodeLabel": "rack"}]
            return [_object("kai.scheduler/v1alpha1", "Topology", "net", levels=levels)]
        racks: dict[int, list[dict[str, Any]]] = {}
        for name, (rack, _) in self.nodes.items():
            member = {"type": "Node", "selector": {"exactMatch": {"name": name}}}
            racks.setdefault(rack, []).append(member)
        api = "topology.volcano.sh/v1alpha1"
        return [
            _object(api, "HyperNode", f"r{rack}", tier=1, members=members) for rack, members in racks.items()
        ]

    def _queue(self, team: Team) -> dict[str, Any]:
        if self.kai:
            made = kai_queue(team.name, team.parent)
            made["spec"]["resources"]["gpu"]["limit"] = team.limit
            return made
        spec: dict[str, Any] = {"weight": 1, **({"parent": team.parent} if team.parent else {})}
        return queue(team.name, **spec, **({"capability": {GPU: team.limit}} if team.limit >= 0 else {}))

    def _job(self, job: Job) -> list[dict[str, Any]]:
        made, half = [], -(-job.least // 2)
        spec: dict[str, Any] = {}
        topology = {"topology": "net", "requiredTopologyLevel": "rack"}
        if self.kai:
            spec["preemptibility"] = "non-preemptible" if job.firm else "preemptible"
            if job.parts:
                spec["subGroups"] = [
                    {"name": part, "minMember": half} | ({"topologyConstraint": topology} if job.near else {})
                    for part in "ab"
                ]
            elif job.near:
                spec["topologyConstraint"] = topology
        else:
            wish = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}} if job.near else {}
            if job.parts:
                spec["subGroupPolicy"] = [
                    {
                        "name": part,
                        "subGroupSize": half,
                        "labelSelector": {"matchLabels": {"part": part}},
                        "matchLabelKeys": ["part"],
                        **wish,
                    }
                    for part in "ab"
                ]
            else:
                spec |= wish
        least = 2 * half if job.parts else job.least
        for i in range(job.pods):
            part = {"part": "ab"[i % 2]}
            about: dict[str, Any] = {"requests": {GPU: str(job.gpus)}}
            if job.nodes:
                about["node"] = job.nodes[i]
            if self.kai:
                labels = {"kai.scheduler/subgroup-name": part["part"]} if job.parts else {}
                made.append(kai_pod(f"{job.name}-{i}", job.name, job.queue, labels=labels, **about))
            else:
                notes = {"volcano.sh/preemptable": "false"} if job.firm else {}
                made.append(
                    pod(
                        f"{job.name}-{i}",
                        scheduler="volcano",
                        group=job.name,
                        labels=part,
                        annotations=notes,
                        **about,
                    )
                )
        if self.kai:
            return [kai_group(job.name, None if job.parts else least, job.queue, **spec), *made]
        phase = "Running" if job.nodes else "Inqueue" if not self.tiers else "Pending"
        if self.tiers:
            spec["minResources"] = {GPU: str(least * job.gpus)}
        return [group(job.name, least, queue=job.queue, phase=phase, **spec), *made]


def _object(api: str, kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Clusters of at most six nodes in racks of two, and six jobs in a tree of queues with limits."""
    kai = draw(st.booleans())
    tiers = "" if kai else draw(st.sampled_from(("", "", *TIERS)))
    nodes = {f"n{i}": (i // 2, draw(st.integers(1, 4))) for i in range(draw(st.integers(1, 6)))}
    limits = st.sampled_from((-1, -1, 2, 4, 6))
    teams = [Team("org", "" if kai else "root", draw(limits))]
    leaves = []
    for i in range(draw(st.integers(1, 3))):
        above = "org"
        if draw(st.integers(0, 3)) == 0:
            above = f"dep{i}"
            teams.append(Team(above, "org", draw(limits)))
        leaves.append(f"t{i}")
        teams.append(Team(f"t{i}", above, draw(limits)))
    if not kai:
        teams.insert(0, Team("root", "", -1))
    scene = Scene(kai, tiers, nodes, teams)
    free = {name: gpus for name, (_, gpus) in nodes.items()}
    for i in range(draw(st.integers(1, 6))):
        least, gpus = draw(st.integers(1, 6)), draw(st.integers(1, 2))
        parts = least > 1 and draw(st.integers(0, 3)) == 0
        near = draw(st.integers(0, 3)) == 0
        pods = 2 * -(-least // 2) if parts else least + draw(st.integers(0, 1))
        job = Job(f"j{i}", draw(st.sampled_from(leaves)), pods, least, gpus, draw(st.booleans()), parts, near)
        placed = first_fit(free, pods, gpus) if not (parts or near) and draw(st.booleans()) else None
        if placed:
            for name in placed:
                free[name] -= gpus
        scene.jobs.append(replace(job, nodes=tuple(placed or ())))
    return scene


class Planned:
    """A scene that was planned until nothing changes, to which a remedy can be applied."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.model = ClusterModel(EVERY_SCHEDULER)
        load(self.model, ((str(at), obj) for at, obj in enumerate(scene.objects())), strict=True)
        self.engine = make_engine(TIERS[scene.tiers] or SchedulerConfig())
        self.plan: DryRunPlan = DryRun(self.model, self.engine, NOW).run(until_stable=True)

    def waiting(self) -> list[tuple[str, Explanation]]:
        """Return group and explanation of the waiting groups."""
        return [(entry.group, entry.why) for entry in self.plan.waiting]

    def cycle(self) -> Decision:
        self.engine.apply(self.model.take(NOW))
        return self.engine.cycle(NOW)

    def admitted(self) -> set[str]:
        """Return the groups that Volcano's ``enqueue`` has admitted."""
        return set(self.engine.state.gate.admitted)

    def started(self, key: str) -> bool:
        """Return whether the group holds its minimum."""
        group = self.engine.state.groups[key]
        return group.ready() and group.active > 0

    def lower_minimum(self, key: str, least: int) -> None:
        objects = self.model.objects
        if self.scene.kai:
            view = objects.kai_groups[key.replace("kai:", "")]
            objects.upsert_kai_group(msgspec.structs.replace(view, min_member=least))
        else:
            objects.upsert_group(msgspec.structs.replace(objects.groups[key], min_member=least))

    def raise_limit(self, name: str, resource: str, amount: str) -> None:
        """Raise the limit of a queue, if the API server accepts it."""
        objects = self.model.objects
        if self.scene.kai:
            view = objects.kai_queues[name]
            assert view.limit[resource] < to_units(resource, amount)
            limit = {**view.limit, resource: to_units(resource, amount)}
            objects.upsert_kai_queue(msgspec.structs.replace(view, limit=limit))
            return
        queue, before = objects.queues[name], self._problems(name)
        assert queue.capability[resource] < to_units(resource, amount)
        capability = {**queue.capability, resource: to_units(resource, amount)}
        objects.upsert_queue(msgspec.structs.replace(queue, capability=capability))
        assert self._problems(name) <= before

    def _problems(self, name: str) -> set[str]:
        """Return the fields of a queue that the API server does not accept."""
        specs = {
            each.name: {"parent": each.parent, "capability": dict(each.capability)}
            for each in self.model.objects.queues.values()
        }
        tree = QueueSpecs(specs)
        return {problem.field for problem in (*against_parent(tree, name), *against_children(tree, name))}


MINIMUM = re.compile(r"^With \S.* (\d+) it could start now\.$")
VOLCANO = re.compile(r"windlass queue set (\S+)((?: capability\.\S+=\S+)+)")
KAI = re.compile(r"kubectl edit queues\.scheduling\.run\.ai (\S+)   \(spec\.resources\.gpu\.limit: ([^)]+)\)")


def limits_named(remedy: str) -> list[tuple[str, str, str]]:
    """Return queue, resource and amount of each limit that a remedy raises, in its order."""
    found = [(name, GPU, amount) for name, amount in KAI.findall(remedy)]
    for name, limits in VOLCANO.findall(remedy):
        for limit in limits.split():
            resource, _, amount = limit.removeprefix("capability.").partition("=")
            found.append((name, resource, amount))
    return found
