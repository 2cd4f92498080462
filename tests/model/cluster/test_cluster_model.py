"""The model: which deltas follow from which events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kubeobjects import group, namespace, node, pod, priority_class, queue

from windlass.api import views
from windlass.engine import deltas
from windlass.engine.decision import Bind, DeviceShare
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.pods.engine_task import FOREIGN
from windlass.spi.objects import Group, QueueState, Task, TaskState


class Story:
    """A model and what it told the engine, by the engine's own reading."""

    def __init__(self, *names: str, wait_for_group: tuple[str, ...] = ()) -> None:
        self.model = ClusterModel(names or ["windlass"], wait_for_group=wait_for_group)
        self.tasks: dict[str, Task] = {}
        self.groups: dict[str, Group] = {}
        self.queues: dict[str, Any] = {}
        self.nodes: dict[str, Any] = {}
        self.log: list[deltas.Delta] = []

    def put(self, *objects: dict[str, Any]) -> Story:
        for obj in objects:
            raw = views.encode(obj)
            match obj["kind"]:
                case "Pod":
                    self.model.objects.upsert_pod(views.decode_pod(raw))
                case "Node":
                    self.model.objects.upsert_node(views.decode_node(raw))
                case "PodGroup":
                    self.model.objects.upsert_group(views.decode_pod_group(raw))
                case "Queue":
                    self.model.objects.upsert_queue(views.decode_queue(raw))
                case "PriorityClass":
                    self.model.objects.upsert_class(views.decode_priority_class(raw))
                case "Namespace":
                    self.model.objects.upsert_namespace(views.decode_namespace(raw))
        return self

    def take(self) -> list[deltas.Delta]:
        found = self.model.take()
        for delta in found:
            match delta:
                case deltas.TaskUpserted(task):
                    self.tasks[task.key] = task
                case deltas.TaskRemoved(key, uid):
                    assert self.tasks.pop(key).uid == uid
                case deltas.GroupUpserted(spec):
                    self.groups[spec.key] = spec
                case deltas.GroupRemoved(key):
                    del self.groups[key]
                case deltas.QueueUpserted(spec):
                    self.queues[spec.name] = spec
                case deltas.QueueRemoved(name):
                    del self.queues[name]
                case deltas.NodeUpserted(spec):
                    self.nodes[spec.name] = spec
                case deltas.NodeRemoved(name):
                    del self.nodes[name]
        self.log += found
        return found


def test_a_gang() -> None:
    story = Story().put(
        priority_class("high", 10_000, preemptionPolicy="Never"),
        group("g", 2, minTaskMember={"w": 2}, priorityClassName="high", minResources={"nvidia.com/gpu": 2}),
        pod("g-0", group="g", annotations={"volcano.sh/task-spec": "w", "volcano.sh/task-index": "0"}),
        pod("g-1", group="g", labels={"volcano.sh/task-spec": "w", "volcano.sh/task-index": "1"}),
    )
    story.take()
    spec = story.groups["default/g"]
    assert (spec.min_member, spec.min_task_member, spec.priority, spec.never_preempts) == (
        2,
        {"w": 2},
        10_000,
        True,
    )
    assert spec.min_resources == {"nvidia.com/gpu": 2000}
    assert not spec.admitted
    assert [(t.role, t.index, t.group) for t in story.tasks.values()] == [
        ("w", 0, "default/g"),
        ("w", 1, "default/g"),
    ]


def test_deleted_priority_class_still_applies_to_existing_pods() -> None:
    high = priority_class("high", 10_000, preemptionPolicy="Never")
    theirs = {"priorityClassName": "high", "priority": 10_000, "preemptionPolicy": "Never"}
    gang = (
        group("g", 2, priorityClassName="high"),
        pod("g-0", group="g", priorityClassName="other", priority=20_000),
        pod("g-1", group="g", **theirs),
    )
    story = Story().put(high, *gang)
    story.take()
    before = story.groups["default/g"]
    story.model.objects.remove_class("high")
    story.take()
    assert story.groups["default/g"] == before
    again = Story().put(*gang)  # a scheduler that has only just begun
    again.take()
    assert again.groups["default/g"] == before
    again.put(priority_class("high", 5))
    again.take()
    assert (again.groups["default/g"].priority, again.groups["default/g"].never_preempts) == (5, False)


def test_unknown_priority_class_counts_as_zero() -> None:
    story = Story().put(group("g", 1, priorityClassName="high"), pod("g-0", group="g", priority=7))
    story.take()
    assert (story.groups["default/g"].priority, story.groups["default/g"].never_preempts) == (0, False)


@pytest.mark.parametrize(
    ("phase", "admitted"),
    [("", False), ("Pending", False), ("Inqueue", True), ("Running", True), ("Unknown", True)],
)
def test_admission_is_read_from_the_phase(phase: str, admitted: bool) -> None:
    story = Story().put(group("g", 1, phase=phase))
    story.take()
    assert story.groups["default/g"].admitted is admitted


def test_a_pod_without_a_group_is_a_group_of_one() -> None:
    story = Story().put(pod("a", priority=7, labels={"kai.scheduler/queue": "research"}))
    story.take()
    spec = story.groups["default/pod:a"]
    assert (spec.queue, spec.priority, spec.min_member, spec.admitted) == ("research", 7, 1, True)
    story.model.objects.remove_pod("default/a")
    story.take()
    assert not story.groups
    assert not story.tasks


def test_the_queue_of_a_namespace() -> None:
    story = Story().put(
        namespace("team", annotations={"scheduling.volcano.sh/queue-name": "q"}), pod("a", namespace="team")
    )
    story.take()
    assert story.groups["team/pod:a"].queue == "q"
    story.put(namespace("team")).take()
    assert story.groups["team/pod:a"].queue == "default"


def test_pods_of_other_schedulers_only_hold_resources() -> None:
    story = Story().put(
        pod("a", scheduler="default-scheduler"), pod("b", scheduler="default-scheduler", node="n1")
    )
    story.take()
    assert list(story.tasks) == ["default/b"]
    assert story.tasks["default/b"].group == ""
    assert not story.groups
    story.put(pod("b", scheduler="default-scheduler", node="n1", phase="Succeeded")).take()
    assert not story.tasks


def test_group_of_foreign_pods_belongs_to_their_scheduler() -> None:
    story = Story().put(group("g", 2))
    story.take()
    assert set(story.groups) == {"default/g"}  # the scheduler of its pods is not known yet
    story.put(pod("a", group="g", scheduler="volcano"), pod("b", group="g", scheduler="volcano"))
    story.take()
    assert story.groups == {}
    assert not story.model.groups.known("default/g")
    assert "default/g" in story.model.take_changed()  # what was to be written on it is not written any more
    story.put(group("g", 2, phase="Inqueue"), group("h", 1))
    story.take()
    assert set(story.groups) == {"default/h"}
    story.put(pod("c", group="g"))  # one is ours: so is the gang
    story.take()
    assert set(story.groups) == {"default/g", "default/h"}
    story.model.objects.remove_pod("default/c")
    story.take()
    assert set(story.groups) == {"default/h"}
    story.model.objects.remove_pod("default/a")
    story.model.objects.remove_pod("default/b")
    story.take()
    assert story.model.groups.known("default/g")
    assert set(story.groups) == {"default/g", "default/h"}


def test_states() -> None:
    deleting = {"deletionTimestamp": "2026-01-01T12:00:00Z"}
    story = Story().put(
        pod("pending"),
        pod("bound", node="n", phase="Pending"),
        pod("running", node="n"),
        pod("releasing", node="n", metadata=deleting),
        pod("never-bound", metadata=deleting),
        pod("done", node="n", phase="Succeeded"),
        pod("broken", node="n", phase="Failed"),
        pod("gated", schedulingGates=[{"name": "wait"}]),
    )
    story.take()
    states = {key.removeprefix("default/"): task.state for key, task in story.tasks.items()}
    assert states == {
        "pending": TaskState.PENDING,
        "bound": TaskState.BOUND,
        "running": TaskState.RUNNING,
        "releasing": TaskState.RELEASING,
        "done": TaskState.SUCCEEDED,
        "broken": TaskState.FAILED,
        "gated": TaskState.PENDING,
    }
    assert story.tasks["default/gated"].gated


def test_status_updates_send_no_delta() -> None:
    story = Story().put(pod("a", node="n1"))
    story.take()
    changed = pod("a", node="n1")
    changed["status"]["podIP"] = "10.0.0.1"
    changed["metadata"]["annotations"] = {"other": "x"}
    assert story.put(changed).take() == []


def test_recreated_pod_of_the_same_name_is_another_task() -> None:
    story = Story().put(pod("a", uid="one", node="n1"))
    story.take()
    story.put(pod("a", uid="two")).take()
    assert deltas.TaskRemoved("default/a", "one") in story.log
    assert story.tasks["default/a"].uid == "two"


def test_devices_are_read_from_the_annotation() -> None:
    story = Story().put(pod("a", node="n1", annotations={"windlass.dev/devices": "3, 0,x"}))
    story.take()
    assert story.tasks["default/a"].devices == (0, 3)


def test_an_assumed_bind_outlives_late_events_about_the_unbound_pod() -> None:
    story = Story().put(pod("a", uid="u"))
    story.take()
    story.model.binds.assume(Bind("default/a", "u", "", "n1", (DeviceShare(2, "nvidia.com/gpu"),)))
    assert story.put(pod("a", uid="u", phase="Pending")).take() == []
    story.put(pod("a", uid="u", priority=5)).take()  # changed for the engine, and still not bound
    task = story.tasks["default/a"]
    assert (task.state, task.node, task.devices, task.priority) == (TaskState.ASSUMED, "n1", (2,), 5)
    assert story.model.binds.forget("default/a", "u")
    assert not story.model.binds.forget("default/a", "u")
    story.put(pod("a", uid="u", node="n1")).take()
    assert story.tasks["default/a"].state is TaskState.RUNNING


def test_queues() -> None:
    story = Story()
    story.take()
    assert set(story.queues) == {"root", "default"}  # none has been created yet
    story.put(
        queue("a", state="Closed", weight=3), queue("b", parent="a"), queue("c", state="Strange")
    ).take()
    assert set(story.queues) == {"root", "a", "b", "c"}
    assert (story.queues["a"].parent, story.queues["a"].state, story.queues["a"].weight) == (
        "root",
        QueueState.CLOSED,
        3,
    )
    assert story.queues["b"].parent == "a"
    assert story.queues["c"].state is QueueState.CLOSED
    for name in "abc":
        story.model.objects.remove_queue(name)
    story.take()
    assert set(story.queues) == {"root", "default"}


def test_nodes_with_their_devices() -> None:
    labels = {"nvidia.com/gpu.product": "H100", "nvidia.com/gpu.memory": "81559"}
    story = Story().put(
        node("n1", gpus=2, labels=labels), node("n2", gpus=0, ready="False"), node("n3", ready=None)
    )
    story.take()
    devices = story.nodes["n1"].devices
    assert [(d.index, d.resource, d.model, d.memory_mib) for d in devices] == [
        (0, "nvidia.com/gpu", "H100", 81559),
        (1, "nvidia.com/gpu", "H100", 81559),
    ]
    assert (story.nodes["n2"].ready, story.nodes["n2"].devices) == (False, ())
    assert story.nodes["n3"].ready  # no condition at all: taints alone decide
    assert story.put(node("n1", gpus=2, labels=labels)).take() == []
    story.model.objects.remove_node("n1")
    assert story.take() == [deltas.NodeRemoved("n1")]


def test_pods_of_volcano_wait_for_their_group() -> None:
    story = Story("volcano", wait_for_group=("volcano",)).put(pod("a", scheduler="volcano"))
    story.take()
    assert not story.tasks
    explanation = story.model.explanation("default/pod:a")
    assert explanation is not None
    assert explanation.code == "WaitingForMembers"
    story.put(group("podgroup-x", 1), pod("a", scheduler="volcano", group="podgroup-x")).take()
    assert story.tasks["default/a"].group == "default/podgroup-x"
    assert story.model.explanation("default/podgroup-x") is None


def test_a_missing_pod_group_is_named() -> None:
    story = Story().put(pod("a", group="nowhere"))
    story.take()
    explanation = story.model.explanation("default/nowhere")
    assert explanation is not None
    assert "PodGroup default/nowhere does not exist" in explanation.message
    story.put(group("nowhere", 1)).take()
    assert story.model.explanation("default/nowhere") is None


def test_group_with_contradictory_fields_is_held() -> None:
    story = Story().put(group("g", -1, minResources={"cpu": "lots"}))
    story.take()
    assert story.groups["default/g"].held
    explanation = story.model.explanation("default/g")
    assert explanation is not None
    assert "spec.minMember" in explanation.message
    assert "spec.minResources[cpu]" in explanation.message
    story.put(group("g", 1)).take()
    assert not story.groups["default/g"].held


def test_preemptible() -> None:
    story = Story().put(
        group("g", 1, annotations=None),
        pod("a"),
        pod("b", annotations={"volcano.sh/preemptable": "false"}),
        pod("c", labels={"volcano.sh/preemptable": "true"}),
        pod("d", annotations={"volcano.sh/preemptable": "perhaps"}),
        pod("e", labels={"kai.scheduler/preemptibility": "non-preemptible"}),
    )
    story.take()
    found = {key[-1]: task.preemptible for key, task in story.tasks.items()}
    assert found == {"a": True, "b": False, "c": True, "d": False, "e": False}


@pytest.mark.parametrize("field", ["annotations", "labels"])
def test_priority_class_protects_pods_that_state_nothing(field: str) -> None:
    """D10: ``volcano.sh/preemptable: "false"`` on a PriorityClass. The nearest statement counts."""
    keep = priority_class("keep", 100)
    keep["metadata"][field] = {"volcano.sh/preemptable": "false"}
    of_class = {"priorityClassName": "keep", "priority": 100}
    yes = {"volcano.sh/preemptable": "true"}
    stated = group("h", 1, priorityClassName="keep")
    stated["metadata"]["annotations"] = yes
    story = Story().put(
        keep,
        priority_class("plain", 100),
        group("g", 1, priorityClassName="keep"),
        stated,
        pod("a", **of_class),
        pod("b", annotations=yes, **of_class),
        pod("c", priorityClassName="plain", priority=100),
        pod("d", group="g", **of_class),
        pod("e", group="h", **of_class),
    )
    story.take()
    assert {key[-1]: task.preemptible for key, task in story.tasks.items()} == {
        "a": False,
        "b": True,
        "c": True,
        "d": False,
        "e": True,
    }
    found = {key: one.preemptible for key, one in story.groups.items()}
    assert (found["default/g"], found["default/h"], found["default/pod:a"]) == (False, True, False)
    story.put(priority_class("keep", 100)).take()
    assert all(task.preemptible for task in story.tasks.values())
    assert story.groups["default/g"].preemptible


def test_a_pod_that_was_created_again_keeps_its_age() -> None:
    """F44: it counts from its first creation in the order of its queue, never from later."""
    since = {"windlass.dev/queued-since": "2020-01-01T00:00:00Z"}
    later = {"windlass.dev/queued-since": "2999-01-01T00:00:00Z"}
    plain = group("g", 1)
    stated = group("h", 1)
    stated["metadata"]["annotations"] = since
    story = Story().put(plain, stated, pod("a"), pod("b", annotations=since), pod("c", annotations=later))
    story.take()
    created = {key.removeprefix("default/"): one.created for key, one in story.groups.items()}
    assert created["h"] == created["pod:b"] == 1577836800.0
    assert created["g"] > created["h"]
    assert created["pod:c"] == created["pod:a"]


def test_members_and_changed_groups() -> None:
    story = Story().put(group("g", 2), pod("g-0", group="g"), pod("g-1", group="g", node="n"))
    story.take()
    assert story.model.take_changed() == ["default/g"]
    found = story.model.groups.members("default/g")
    assert (found.pending, found.running, found.scheduled, found.total) == (1, 1, 1, 2)
    assert story.model.blocked("default/g")
    story.model.binds.assume(Bind("default/g-0", "uid-default-g-0", "", "n"))
    assert not story.model.blocked("default/g")
    story.model.objects.remove_pod("default/g-1")
    story.take()
    assert story.model.take_changed() == ["default/g"]


@pytest.mark.parametrize(
    ("told", "decided", "since"),
    [("12:00:03Z", 3.7, 3.7), ("12:00:04Z", 3.7, 4.0), ("12:00:03Z", 2.7, 3.0), ("12:00:03Z", 0.0, 3.0)],
    ids=["that second", "later", "a second later", "unknown"],
)
def test_pod_does_not_start_before_its_decision(told: str, decided: float, since: float) -> None:
    """Objects tell whole seconds, rounded down."""
    noon = 1_767_268_800.0
    story = Story().put(pod("a"))
    story.take()
    bind = Bind("default/a", "uid-default-a", "", "n")
    story.model.binds.assume(bind, noon + decided if decided else 0.0)
    story.put(pod("a", node="n", phase="Pending"))
    assert story.model.binds.forget(bind.task, bind.uid)
    story.take()
    assert story.tasks["default/a"].started is None
    runs = pod("a", node="n")
    runs["status"]["startTime"] = f"2026-01-01T{told}"
    story.put(runs).take()
    assert story.tasks["default/a"].started == noon + since
    story.model.resend()
    story.take()
    assert story.tasks["default/a"].started == noon + since, "of another engine, too"
    story.model.objects.remove_pod("default/a")
    runs["metadata"]["uid"] = "another"
    story.put(runs).take()
    assert story.tasks["default/a"].started == noon + int(told[6:8]), "another pod of its name"


def test_after_a_failed_bind_the_reported_start_counts() -> None:
    story = Story().put(pod("a"))
    story.take()
    bind = Bind("default/a", "uid-default-a", "", "n")
    story.model.binds.assume(bind, 1_767_268_803.7)
    story.model.binds.forget(bind.task, bind.uid)
    runs = pod("a", node="m")
    runs["status"]["startTime"] = "2026-01-01T12:00:03Z"
    story.put(runs).take()
    assert story.tasks["default/a"].started == 1_767_268_803.0


_names = st.sampled_from(["a", "b", "c"])
_events = st.one_of(
    st.builds(
        lambda name, scheduler, group_name, where, phase, uid, deleted, affinity: pod(
            name,
            uid=f"{name}{uid}",
            scheduler=scheduler,
            group=group_name,
            node=where,
            phase=phase,
            labels={"app": name},
            metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"} if deleted else {},
            **affinity,
        ),
        _names,
        st.sampled_from(["windlass", "volcano", "other"]),
        st.sampled_from(["", "g", "h"]),
        st.sampled_from(["", "n1", "n2"]),
        st.sampled_from(["", "Pending", "Running", "Succeeded", "Failed"]),
        st.integers(0, 1),
        st.booleans(),
        st.sampled_from(
            [
                {},
                {"tolerations": [{"operator": "Like"}]},
                {
                    "affinity": {
                        "podAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": [
                                {
                                    "topologyKey": "k",
                                    "namespaceSelector": {},
                                    "labelSelector": {"matchLabels": {"app": "a"}},
                                }
                            ]
                        }
                    }
                },
            ]
        ),
    ),
    st.builds(group, st.sampled_from(["g", "h"]), st.integers(-1, 3)),
    st.builds(queue, st.sampled_from(["default", "root", "q"]), parent=st.sampled_from(["", "root", "q"])),
    st.builds(node, st.sampled_from(["n1", "n2"]), gpus=st.integers(0, 2)),
    st.builds(namespace, st.just("default"), st.sampled_from([{}, {"x": "y"}])),
    st.tuples(
        st.sampled_from(["pod", "group", "queue", "node"]),
        st.sampled_from(["a", "b", "g", "q", "n1", "default"]),
    ),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(_events, max_size=5), max_size=6))
def test_incremental_translation_equals_translation_from_scratch(batches: list[list[Any]]) -> None:
    """After any history the engine knows exactly what it would know of the final objects alone."""
    names, wait = ("windlass", "volcano"), ("volcano",)
    story = Story(*names, wait_for_group=wait)
    final: dict[tuple[str, str], dict[str, Any]] = {}
    for batch in batches:
        for event in batch:
            if isinstance(event, dict):
                story.put(event)
                final[event["kind"], event["metadata"]["name"]] = event
                continue
            kind, name = event
            if kind == "pod":
                story.model.objects.remove_pod(f"default/{name}")
                final.pop(("Pod", name), None)
            elif kind == "group":
                story.model.objects.remove_group(f"default/{name}")
                final.pop(("PodGroup", name), None)
            elif kind == "queue":
                story.model.objects.remove_queue(name)
                final.pop(("Queue", name), None)
            else:
                story.model.objects.remove_node(name)
                final.pop(("Node", name), None)
        story.take()
    story.take()
    fresh = Story(*names, wait_for_group=wait).put(*final.values())
    fresh.take()
    assert story.groups == fresh.groups
    assert story.queues == fresh.queues
    assert story.nodes == fresh.nodes
    # labels that were ever selected on stay part of the needs: compare all the rest
    assert {k: _plain(t) for k, t in story.tasks.items()} == {k: _plain(t) for k, t in fresh.tasks.items()}
    for key in {*story.groups, *fresh.groups}:
        assert story.model.explanation(key) == fresh.model.explanation(key)
        assert story.model.groups.members(key) == fresh.model.groups.members(key)


def _plain(task: Task) -> tuple[Any, ...]:
    needs = task.needs
    terms = [(t.selector, t.topology_key, t.namespaces) for t in needs.affinity]
    return task.uid, task.group, task.state, task.node, needs.request, needs.tolerations, terms


def test_a_static_pod_only_occupies_its_node_whatever_its_scheduler_name() -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u", "controller": True}
    story = Story().put(
        node("n1"),
        pod("static", node="n1", phase="Running", metadata={"ownerReferences": [owner]}),
        pod("plain", node="n1", phase="Running"),
    )
    story.take()
    assert story.tasks["default/static"].group == FOREIGN
    assert [spec for spec in story.groups if "static" in spec] == []
    assert story.tasks["default/plain"].group != FOREIGN
