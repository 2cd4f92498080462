"""``task-topology``: roles of a job together on a node, or apart, and in order."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from windlass.engine import invariants
from windlass.engine.config import EngineConfig
from windlass.engine.deltas import GroupUpserted, NodeUpserted, QueueUpserted, TaskUpserted
from windlass.engine.engine import Engine
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.engine_factory import make_engine
from windlass.model.cluster.snapshot import EVERY_SCHEDULER, load
from windlass.model.groups.task_topology import ANNOTATIONS, role_preferences
from windlass.plugins.nodes.resources import ResourcesFit
from windlass.plugins.volcano.jobs.task_topology import RoleAffinity, RoleOrder
from windlass.plugins.volcano.nodes.nodeorder import MostRequested
from windlass.spi.configuration import PluginOption, PluginTier, SchedulerConfig
from windlass.spi.objects import Dialect, Group, Needs, Node, Queue, RolePreferences, Task, TaskState

AFFINITY = "volcano.sh/task-topology-affinity"
APART = "volcano.sh/task-topology-anti-affinity"
ORDER = "volcano.sh/task-topology-task-order"


@pytest.mark.parametrize(
    ("notes", "role", "expected"),
    [
        ({AFFINITY: "ps,worker;ps,chief"}, "ps", (("chief", "worker"), (), 0)),
        ({AFFINITY: "ps,worker;ps,chief"}, "chief", (("ps",), (), 0)),
        ({AFFINITY: " worker ; "}, "worker", (("worker",), (), 0)),
        ({APART: "ps;worker,chief"}, "ps", ((), ("ps",), 0)),
        ({APART: "ps;worker,chief"}, "worker", ((), ("chief",), 0)),
        ({AFFINITY: "a,b", ORDER: "ps, a,b"}, "b", (("a",), (), 2)),
        ({AFFINITY: "a,b", ORDER: "ps"}, "a", (("b",), (), 1)),
        ({ORDER: "ps,worker"}, "worker", ((), (), 1)),
        ({AFFINITY: "a,b"}, "other", None),
        ({AFFINITY: "a,b"}, "", None),
    ],
)
def test_what_a_role_wishes(notes, role, expected):
    found = role_preferences(notes, "ns/g", role)
    assert found == (None if expected is None else RolePreferences("ns/g", role, *expected))
    assert set(notes) <= set(ANNOTATIONS)


def test_other_annotations_are_not_about_roles():
    assert "volcano.sh/preemptable" not in ANNOTATIONS


class Job:
    """One gang on equal nodes."""

    def __init__(self, nodes: int, cpu: int, policies: list[object]) -> None:
        self.engine = Engine(EngineConfig(actions=("allocate",)), [ResourcesFit(), *policies])
        amounts = {"cpu": cpu * 1000, "pods": 100}
        self.engine.apply([QueueUpserted(Queue("default"))])
        self.engine.apply([NodeUpserted(Node(f"n{at}", amounts)) for at in range(nodes)])

    def task(self, notes: dict[str, str], role: str, at: int, gang: str) -> Task:
        needs = Needs((("cpu", 1000),), dialect=Dialect.VOLCANO, roles=role_preferences(notes, gang, role))
        return Task(f"{gang}-{role}-{at}", f"{gang}{at}", gang, needs, role=role, index=at)

    def fill(self, node: str, cpu: int) -> None:
        """Let another pod use ``cpu`` of a node."""
        needs = Needs((("cpu", cpu * 1000),))
        filler = Task(f"d/{node}-filler", node, "d/filler", needs, node=node, state=TaskState.RUNNING)
        self.engine.apply([GroupUpserted(Group("d/filler", uid="f", min_member=1)), TaskUpserted(filler)])

    def run(self, notes: dict[str, str], *roles: str, gang: str = "d/g") -> dict[str, str]:
        """Place one pod for each entry of ``roles``; pod → node."""
        tasks = [self.task(notes, role, at, gang) for at, role in enumerate(roles)]
        group = Group(gang, uid=gang, admitted=True, min_member=len(tasks))
        self.engine.apply([GroupUpserted(group), *map(TaskUpserted, tasks)])
        decision = self.engine.cycle(1.0)
        invariants.check(self.engine)
        return {bind.task.removeprefix(f"{gang}-"): bind.node for bind in decision.binds}


def test_pods_of_roles_that_belong_together_share_nodes():
    job = Job(3, 4, [RoleAffinity(), RoleOrder()])
    found = job.run({AFFINITY: "ps,worker"}, "ps", "other", "other", "other", "worker")
    assert found["worker-4"] == found["ps-0"]


def test_pods_of_a_role_keep_apart_as_long_as_there_are_nodes():
    job = Job(2, 4, [RoleAffinity()])
    found = job.run({APART: "ps"}, "ps", "ps", "ps", "ps")
    assert sorted(found.values()) == ["n0", "n0", "n1", "n1"]


def test_who_finds_as_many_that_it_wants_near_as_it_wants_to_keep_off_is_not_kept_off():
    job = Job(2, 4, [RoleAffinity(), RoleOrder()])
    found = job.run({AFFINITY: "ps,worker", APART: "ps", ORDER: "worker,ps"}, "worker", "ps", "ps")
    assert len(set(found.values())) == 1
    found = Job(2, 4, [RoleAffinity(), RoleOrder()]).run(
        {AFFINITY: "ps,worker", APART: "ps"}, "worker", "ps", "ps"
    )
    assert found["ps-1"] != found["ps-2"], "a role that avoids itself is placed first"


def test_the_first_pod_goes_where_there_is_room_for_all_that_belong_to_it():
    for policies, nodes in (([RoleAffinity(10.0)], {"n1"}), ([], {"n0", "n1"})):
        job = Job(2, 4, [MostRequested(1.0), *policies, RoleOrder()])
        job.fill("n0", 2)
        found = job.run({AFFINITY: "ps,worker"}, "ps", "worker", "worker")
        assert set(found.values()) == nodes


def test_each_bucket_has_its_node():
    job = Job(4, 3, [MostRequested(1.0), RoleAffinity(10.0), RoleOrder()])
    found = job.run({AFFINITY: "ps,worker", APART: "ps"}, "ps", "ps", "ps", *["worker"] * 6)
    pods = Counter((node, name.partition("-")[0]) for name, node in found.items())
    assert sorted(pods.values()) == [1, 1, 1, 2, 2, 2]


def test_who_comes_later_joins_those_that_run():
    job = Job(2, 4, [RoleAffinity(), RoleOrder()])
    first = job.run({AFFINITY: "ps,worker"}, "ps", "worker")
    assert len(set(first.values())) == 1
    job.fill("n1", 0)
    tasks = [job.task({AFFINITY: "ps,worker"}, "worker", 7, "d/g")]
    job.engine.apply([TaskUpserted(task) for task in tasks])
    assert {bind.node for bind in job.engine.cycle(2.0).binds} == set(first.values())


def test_other_jobs_do_not_count():
    job = Job(2, 4, [RoleAffinity()])
    first = job.run({APART: "ps"}, "ps")
    assert job.run({APART: "ps"}, "ps", gang="d/h")["ps-0"] == first["ps-0"]


@pytest.mark.parametrize(("policies", "left"), [([RoleOrder()], "a-1"), ([], "b-0")])
def test_the_named_order_says_who_goes_first(policies, left):
    job = Job(1, 1, policies)
    engine = job.engine
    notes = {ORDER: "b"}
    tasks = [
        Task(
            f"d/g-{role}-{at}",
            f"u{at}",
            "d/g",
            Needs((("cpu", 1000),), dialect=Dialect.VOLCANO, roles=role_preferences(notes, "d/g", role)),
            role=role,
            index=at,
        )
        for at, role in enumerate("ba")
    ]
    engine.apply(
        [GroupUpserted(Group("d/g", uid="g", admitted=True, min_member=1)), *map(TaskUpserted, tasks)]
    )
    bound = {bind.task for bind in engine.cycle(1.0).binds}
    assert {task.key for task in tasks} - bound == {f"d/g-{left}"}


def test_classes_that_differ_in_it_share_what_is_known_of_nodes():
    needs = Needs((("cpu", 1000),), roles=RolePreferences("g", "a", ("b",)))
    assert needs.node_part() == replace(needs, roles=None)


# ---------------------------------------------------------------------- from the wire


def obj(kind: str, version: str, name: str, **rest: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": name, **rest.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def test_a_podgroups_annotations_reach_the_scores():
    group = obj(
        "PodGroup",
        "scheduling.volcano.sh/v1beta1",
        "g",
        metadata={"annotations": {APART: "ps"}},
        spec={"minMember": 2},
        status={"phase": "Inqueue"},
    )
    pods = [
        obj(
            "Pod",
            "v1",
            f"p{at}",
            metadata={"annotations": {"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": "ps"}},
            spec={
                "schedulerName": "volcano",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            },
            status={"phase": "Pending"},
        )
        for at in range(2)
    ]
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    nodes = [obj("Node", "v1", f"n{at}", status={"allocatable": amounts}) for at in range(2)]
    for names, spread in ((("gang", "binpack"), 1), (("gang", "binpack", "task-topology"), 2)):
        options = tuple(
            PluginOption(n, {}, {"task-topology.weight": 10} if n == "task-topology" else {}) for n in names
        )
        engine = make_engine(SchedulerConfig(("allocate",), (PluginTier(options),)))
        model = ClusterModel(EVERY_SCHEDULER, tiers=True)
        load(model, ((o["metadata"]["name"], o) for o in (*nodes, *pods)))
        engine.apply(model.take(0.0))
        load(model, [("g", group)])  # the group may come after its pods
        engine.apply(model.take(0.0))
        assert len({bind.node for bind in engine.cycle(0.0).binds}) == spread
