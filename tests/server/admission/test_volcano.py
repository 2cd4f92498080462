"""Queues, jobs and groups on their way in: aliases, advice, and what depends on other objects."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from memory_admission import World, job, pod, queue, refused

from windlass.api import resources

Obj = dict[str, Any]


@pytest.fixture
def world() -> World:
    return World()


def group(name: str = "g", **spec: Any) -> Obj:
    head = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup"}
    return {**head, "metadata": {"name": name}, "spec": spec}


# --- aliases and defaults of queues -------------------------------------------------------------------

DESERVED = (
    "default: deserved absent -> set equal to guarantee (newest upstream refuses guarantee above deserved, and an "
    "absent deserved counts as 0)"
)
ALIAS = "alias: guaranteed -> guarantee.resource"


def test_guaranteed_is_accepted_as_an_alias(world: World) -> None:
    reviewed = world.create(queue("q", guaranteed={"cpu": "20"}, capability={"cpu": "100"}))
    assert reviewed.warnings == [ALIAS, DESERVED]
    assert reviewed.object["spec"] == {
        "capability": {"cpu": "100"},
        "guarantee": {"resource": {"cpu": "20"}},
        "deserved": {"cpu": "20"},
        "weight": 1,
        "reclaimable": True,
    }


def test_applying_the_alias_again_changes_nothing(world: World) -> None:
    first = world.create(queue("q", guaranteed={"cpu": "20"})).object
    merged = copy.deepcopy(first)
    merged["spec"]["guaranteed"] = {"cpu": "20"}  # what a client-side apply makes of it
    again = world.update({**merged, "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"})
    assert again.object["spec"] == first["spec"]
    assert again.warnings == [ALIAS]


def test_raised_guarantee_raises_the_derived_deserved(world: World) -> None:
    first = world.create(queue("q", guaranteed={"cpu": "20"})).object
    merged = copy.deepcopy(first)
    merged["spec"]["guaranteed"] = {"cpu": "30"}
    spec = world.update({**merged, "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}).object[
        "spec"
    ]
    assert spec["guarantee"] == {"resource": {"cpu": "30"}}
    assert spec["deserved"] == {"cpu": "30"}


def test_two_different_guarantees_contradict(world: World) -> None:
    both = queue("q", guaranteed={"cpu": "1"}, guarantee={"resource": {"cpu": "2"}}, deserved={"cpu": "2"})
    error = refused(world.create, both)
    assert error.details["causes"][0]["field"] == "spec.guaranteed"
    same = queue(
        "q", guaranteed={"cpu": "1000m"}, guarantee={"resource": {"cpu": "1"}}, deserved={"cpu": "2"}
    )
    assert world.create(same).warnings == [ALIAS]


# --- the tree of queues -------------------------------------------------------------------------------


def test_parents_must_exist(world: World) -> None:
    error = refused(world.create, queue("q", parent="nope"))
    assert error.code == 422
    assert "the parent queue does not exist: create it first" in error.message


def test_queue_tree_has_no_cycle_and_limited_depth(world: World) -> None:
    parent = "root"
    for level in range(5):
        name = f"q{level}"
        world.create(queue(name, parent=parent))
        parent = name
    error = refused(world.create, queue("deep", parent="q4"))
    assert "6 levels below root, 5 are allowed" in error.message
    loop = queue("q0", parent="q3")
    assert "its own ancestor" in refused(world.update, loop).message


def test_a_queue_that_runs_work_cannot_become_a_parent(world: World) -> None:
    world.create(queue("busy"))
    stored = world.objects.get(resources.QUEUES, "", "busy")
    assert stored is not None
    world.objects.put(resources.QUEUES, {**stored, "status": {"state": "Open", "allocated": {"cpu": "4"}}})
    assert (
        "runs work itself and can have no children"
        in refused(world.create, queue("child", parent="busy")).message
    )


def test_shares_fit_into_the_parents_share(world: World) -> None:
    world.create(
        queue("dept", capability={"cpu": "10"}, deserved={"cpu": "8"}, guarantee={"resource": {"cpu": "4"}})
    )
    error = refused(world.create, queue("a", parent="dept", capability={"cpu": "11"}))
    assert "above the capability 10 of dept" in error.message
    world.create(queue("a", parent="dept", deserved={"cpu": "5"}, guarantee={"resource": {"cpu": "3"}}))
    error = refused(world.create, queue("b", parent="dept", deserved={"cpu": "4"}))
    assert "the children of dept would have 9 in sum, it has 8 itself" in error.message
    error = refused(
        world.create, queue("b", parent="dept", deserved={"cpu": "2"}, guarantee={"resource": {"cpu": "2"}})
    )
    assert error.details["causes"][0]["field"] == "spec.guarantee.resource[cpu]"
    world.create(queue("b", parent="dept", deserved={"cpu": "3"}, capability={"cpu": "3"}))
    lowered = queue("dept", capability={"cpu": "2"}, deserved={"cpu": "2"})
    causes = refused(world.update, lowered).details["causes"]
    assert {cause["field"] for cause in causes} == {"spec.capability[cpu]", "spec.deserved[cpu]"}


def test_the_root_is_the_whole_cluster(world: World) -> None:
    error = refused(world.update, queue("root", capability={"cpu": "1"}))
    assert "root is the whole cluster; set shares on the queues below it" in error.message
    world.update(queue("root", weight=1))


def test_paths_do_not_overlap(world: World) -> None:
    annotated = queue("a")
    annotated["metadata"]["annotations"] = {
        "volcano.sh/hierarchy": "root/x",
        "volcano.sh/hierarchy-weights": "1/2",
    }
    world.create(annotated)
    inner = queue("b")
    inner["metadata"]["annotations"] = {
        "volcano.sh/hierarchy": "root/x/y",
        "volcano.sh/hierarchy-weights": "1/2/3",
    }
    assert "overlaps with root/x of queue a" in refused(world.create, inner).message


def test_queue_with_children_is_not_deleted(world: World) -> None:
    for name in ("root", "default"):
        assert "always exists" in refused(world.delete, resources.QUEUES, name).message
    world.create(queue("dept"))
    world.create(queue("team", parent="dept"))
    assert "has child queues (team)" in refused(world.delete, resources.QUEUES, "dept").message
    stored = world.objects.get(resources.QUEUES, "", "team")
    assert stored is not None
    world.objects.put(resources.QUEUES, {**stored, "status": {"allocated": {"nvidia.com/gpu": "2"}}})
    assert "still holds nvidia.com/gpu 2" in refused(world.delete, resources.QUEUES, "team").message
    world.objects.put(resources.QUEUES, {**stored, "status": {"allocated": {"cpu": "0"}}})
    world.delete(resources.QUEUES, "team")
    world.delete(resources.QUEUES, "dept")


# --- jobs ---------------------------------------------------------------------------------------------


def state(world: World, name: str, word: str) -> None:
    world.objects.put(resources.QUEUES, {"metadata": {"name": name}, "spec": {}, "status": {"state": word}})


def test_work_enters_open_leaf_queues_only(world: World) -> None:
    error = refused(world.create, job(queue="nope"))
    assert (error.code, error.details["causes"][0]["field"]) == (422, "spec.queue")
    assert "create it (windlass queue create nope); or use one of: default" in error.message
    state(world, "shut", "Closed")
    assert (
        "queue shut is Closed and takes no new work: open it"
        in refused(world.create, job(queue="shut")).message
    )
    state(world, "closing", "Closing")
    assert "is Closing" in refused(world.create, job(queue="closing")).message
    assert "name a queue below it" in refused(world.create, job(queue="root")).message
    world.create(queue("dept"))
    world.create(queue("team", parent="dept"))
    assert (
        "has child queues and takes no work itself: use one of: team"
        in refused(world.create, job(queue="dept")).message
    )
    state(world, "young", "")
    world.create(job(queue="young"))  # its controller has not looked at it yet


def test_a_job_in_a_queue_that_closed_may_still_change(world: World) -> None:
    state(world, "q", "Open")
    world.create(job(queue="q"))
    state(world, "q", "Closed")
    world.update(job(queue="q", minAvailable=1))


def test_templates_without_a_restart_policy(world: World) -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    tasks = [{"name": name, "replicas": 1, "template": template} for name in ("master", "worker")]
    reviewed = world.create(job(tasks=tasks, plugins={"env": []}))
    assert reviewed.warnings == [
        "default: pod templates without restartPolicy -> OnFailure (tasks master, worker)"
    ]
    policies = [t["template"]["spec"]["restartPolicy"] for t in reviewed.object["spec"]["tasks"]]
    assert policies == ["OnFailure", "OnFailure"]


def test_templates_without_an_image(world: World) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c"}]}}
    reviewed = world.create(job(tasks=[{"name": "w", "replicas": 1, "template": template}]))
    assert reviewed.warnings == [
        "default: container c of task w has no image -> configured default image "
        "(placeholder process on the embedded box)"
    ]


def test_advice_about_plugins_is_for_more_than_one_pod(world: World) -> None:
    assert world.create(job()).warnings == [
        "advice: no plugins -> no host list and no rendezvous variables are injected (plugins.pytorch would do it)"
    ]
    single = job("one")
    single["spec"]["tasks"][0]["replicas"] = 1
    assert world.create(single).warnings == []


def test_gang_that_waits_for_later_tasks_causes_a_warning(world: World) -> None:
    def warnings(least: int | None, workers: int = 3) -> list[str]:
        made = job("w", plugins={"svc": []})
        (worker,) = made["spec"]["tasks"]
        worker["replicas"] = workers
        made["spec"]["tasks"].append({**worker, "name": "m", "replicas": 1, "dependsOn": {"name": ["w"]}})
        made["spec"].pop("minAvailable", None)
        if least is not None:
            made["spec"]["minAvailable"] = least
        return world.create(made).warnings

    (told,) = warnings(None)
    assert told.startswith(
        "advice: spec.minAvailable 4 includes pods of m, created only when other tasks run"
    )
    assert told.endswith("set spec.minAvailable: 3")
    assert warnings(3) == []


def test_event_that_is_never_raised_causes_a_warning(world: World) -> None:
    policies = [
        {"event": "PodFailed", "action": "RestartJob"},
        {"events": ["JobUpdated"], "action": "AbortJob"},
    ]
    (told,) = world.create(job("w", plugins={"svc": []}, policies=policies)).warnings
    assert told.startswith("advice: spec.policies[1]: event JobUpdated is never raised")


def test_missing_priority_class_causes_a_warning(world: World) -> None:
    assert (
        "advice: PriorityClass nope does not exist; priority 0 counts"
        in world.create(group(minMember=1, priorityClassName="nope")).warnings[0]
    )


# --- groups -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("minimum", "tasks", "words"),
    [
        (
            8,
            {"master": 1, "worker": 4},
            "advice: minMember 8 is above the sum of minTaskMember (1+4=5); both conditions hold, so three more "
            "members of any task are needed",
        ),
        (
            2,
            {"worker": 1},
            "advice: minMember 2 is above the sum of minTaskMember (1=1); both conditions hold, so one more member "
            "of any task is needed",
        ),
        (
            3,
            {"a": 2, "b": 2},
            "advice: minMember 3 is below the sum of minTaskMember (2+2=4); both conditions hold, so four members "
            "are needed",
        ),
        (40, {"a": 20}, "so 20 more members of any task are needed"),
    ],
)
def test_minima_that_differ(world: World, minimum: int, tasks: dict[str, int], words: str) -> None:
    (warning,) = world.create(group(minMember=minimum, minTaskMember=tasks)).warnings
    assert words in warning
    assert world.update(group(minMember=minimum, minTaskMember=tasks)).warnings == []


def test_equal_minima_need_no_advice(world: World) -> None:
    assert world.create(group(minMember=5, minTaskMember={"a": 1, "b": 4})).warnings == []


def test_the_namespace_names_the_queue(world: World) -> None:
    annotations = {"scheduling.volcano.sh/queue-name": "team"}
    world.objects.put(resources.NAMESPACES, {"metadata": {"name": "default", "annotations": annotations}})
    world.create(queue("team"))
    world.create(queue("other"))
    assert world.create(group("a", minMember=1)).object["spec"]["queue"] == "team"
    assert world.create(group("b", minMember=1, queue="other")).object["spec"]["queue"] == "other"


def test_group_of_a_user_needs_an_open_queue_group_of_a_controller_does_not(world: World) -> None:
    assert "does not exist" in refused(world.create, group(minMember=1, queue="nope")).message
    owned = group("owned", minMember=1, queue="nope")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
    owned["metadata"]["ownerReferences"] = [owner]
    world.create(owned)


def test_commands_need_their_target(world: World) -> None:
    command = {
        "apiVersion": "bus.volcano.sh/v1alpha1",
        "kind": "Command",
        "metadata": {"name": "c"},
        "action": "AbortJob",
        "target": {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "j"},
    }
    error = refused(world.create, command)
    assert "there is no Job j in namespace default: see kubectl get jobs.batch.volcano.sh" in error.message
    world.create(job())
    world.create(command)


# --- pods ---------------------------------------------------------------------------------------------


def placed(**affinity: Any) -> Obj:
    return pod(limits={"nvidia.com/gpu": "1"}, affinity=affinity)


def test_short_product_name_is_accepted(world: World) -> None:
    expression = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100-80GB"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    body = placed(nodeAffinity={"requiredDuringSchedulingIgnoredDuringExecution": required})
    assert world.create(body).warnings == [
        "alias: nvidia.com/gpu.product NVIDIA-H100-80GB also matches a longer product label with this prefix "
        "(real label NVIDIA-H100-80GB-HBM3) when no node has the exact value"
    ]
    expression["values"] = ["NVIDIA-L4", "NVIDIA-H100-80GB-HBM3", "MI300X"]
    body["metadata"]["name"] = "exact"
    assert world.create(body).warnings == []


def test_anti_affinity_by_host_of_device_pods_causes_a_warning(world: World) -> None:
    terms = [{"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}]
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    (warning,) = world.create(placed(podAntiAffinity=anti)).warnings
    assert warning.startswith("advice: required anti-affinity on kubernetes.io/hostname spreads the pods")
    assert world.create(pod("web", affinity={"podAntiAffinity": anti})).warnings == []
