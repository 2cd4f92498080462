"""Controller of workflows: pods, outputs, status, clean-up, and stops between any two writes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fakeapi import Crash
from workflow_world import LogApi, WorkflowWorld, captured

from windlass.api import errors
from windlass.api.resources import CONFIG_MAPS, PODS, VOLCANO_JOBS, WORKFLOWS
from windlass.controllers.workflow import labels
from windlass.controllers.workflow.observe import decode_workflow_pod

Json = dict[str, Any]
DAG = """
metadata: {name: w}
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {name: gen, template: gen}
      - {name: bad, template: bad, depends: gen}
      - name: each
        template: each
        depends: gen && bad.Failed
        withParam: "{{tasks.gen.outputs.result}}"
        arguments: {parameters: [{name: n, value: "{{item}}"}]}
      - {name: never, template: bad, depends: each.Failed}
  - {name: gen, script: {image: python, command: [python3], source: "print([1, 2, 3])"}}
  - {name: bad, retryStrategy: {limit: 1}, container: {image: x, command: ["false"]}}
  - name: each
    inputs: {parameters: [{name: n}]}
    outputs: {parameters: [{name: p, valueFrom: {path: /tmp/p}}]}
    container: {image: x, command: [echo], args: ["{{inputs.parameters.n}}"]}
"""


def play(pod: Json) -> tuple[int, str]:
    name = pod["metadata"]["annotations"][labels.NODE_NAME]
    if "gen" in name:
        return 0, "noise\n" + captured(result="[1, 2, 3]\n")
    return (1, "") if "bad" in name else (0, captured(parameter_p=name))


def test_workflow_runs_its_pods_and_tells_of_them() -> None:
    world = WorkflowWorld(DAG, play)
    world.run()
    assert world.status()["phase"] == "Succeeded"
    assert world.status()["progress"] == "4/6"
    assert world.phases()["never"] == "Omitted"
    assert world.nodes()["gen"]["outputs"] == {"exitCode": "0", "result": "[1, 2, 3]"}
    assert world.nodes()["each(1:2)"]["outputs"]["parameters"] == [{"name": "p", "value": "w.each(1:2)"}]
    assert world.nodes()["each(1:2)"]["hostNodeName"] == "n1"
    stored = world.api.object(WORKFLOWS, "default/w")
    assert stored is not None
    assert stored["metadata"]["labels"] == {labels.COMPLETED: "true", labels.PHASE: "Succeeded"}
    assert {"WorkflowRunning", "WorkflowSucceeded"} <= set(world.words.reasons())
    pod = world.pod("w.gen")
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Workflow"
    assert pod["metadata"]["annotations"][labels.SCRIPT] == "print([1, 2, 3])"
    assert pod["spec"]["containers"][0]["command"][-2:] == ["python3", "/argo/staging/script"]
    assert world.pod("w.each(0:1)")["spec"]["volumes"] == [{"name": "outputs-tmp", "emptyDir": {}}]
    plain = world.pod("w.bad(0)")["spec"]
    assert plain["containers"][0]["command"] == ["false"]
    assert "volumes" not in plain


def test_controller_that_stops_between_any_two_writes_changes_nothing() -> None:
    def outcome(crashes: int | None) -> tuple[Json, list[str], list[str]]:
        world = WorkflowWorld(DAG, play)
        world.api.crash_after = crashes
        try:
            world.run()
        except Crash:
            world.restart()
            world.run()
        created = [key for verb, _, key in world.api.log if verb == "create"]
        return world.phases() | {"": world.status()["phase"]}, world.pods(), created

    calm = outcome(None)
    assert len(calm[2]) == 6
    for crashes in range(14):
        found = outcome(crashes)
        assert (found[0], found[1], sorted(found[2])) == (calm[0], calm[1], sorted(calm[2])), crashes


def test_missing_output_is_an_error_and_its_default_is_not() -> None:
    manifest = {
        "spec": {
            "entrypoint": "m",
            "templates": [
                {
                    "name": "m",
                    "outputs": {"parameters": [{"name": "p", "valueFrom": {"path": "/tmp/p"}}]},
                    "container": {"image": "x", "command": ["x"]},
                }
            ],
        }
    }
    world = WorkflowWorld(json.loads(json.dumps(manifest)))
    world.run()
    assert world.status()["phase"] == "Error"
    assert world.nodes()["w"]["message"] == "output parameter 'p': /tmp/p does not exist after the container"
    manifest["spec"]["templates"][0]["outputs"]["parameters"][0]["valueFrom"]["default"] = "d"
    world = WorkflowWorld(manifest)
    world.run()
    assert world.nodes()["w"]["outputs"]["parameters"] == [{"name": "p", "value": "d"}]


def single(container: str = "{image: x, command: [x]}", more: str = "", spec: str = "") -> str:
    return (
        f"metadata: {{name: w}}\nspec:\n  entrypoint: m\n{spec}"
        f"  templates:\n  - name: m\n    container: {container}\n{more}"
    )


def test_pod_that_is_deleted_or_refused_makes_its_node_an_error() -> None:
    world = WorkflowWorld(single())
    world.settle()
    world.api.remove(PODS, "default/w")
    world.settle()
    assert (world.status()["phase"], world.status()["message"]) == ("Error", "pod deleted")
    world = WorkflowWorld(single())
    refusal = errors.invalid(PODS, "w", [errors.FieldError.invalid("spec.x", 1, "no")])
    world.api.reject = lambda verb, resource, obj: refusal if resource is PODS else None
    world.settle()
    assert world.status()["phase"] == "Error"
    assert "spec.x" in world.status()["message"]


def test_pod_that_the_cache_does_not_show_is_not_taken_for_a_deleted_one() -> None:
    world = WorkflowWorld(single())
    world.settle()
    cache = world.api.informer(PODS, decode=decode_workflow_pod)
    pod = cache.items["default/w"]
    cache.tell(cache.put("default/w", None), None)
    world.settle()
    assert world.phases() == {"w": "Pending"}
    cache.tell(cache.put("default/w", pod), pod)
    world.run()
    assert world.status()["phase"] == "Succeeded"


def test_invalid_spec_of_a_server_without_admission_ends_as_an_error() -> None:
    world = WorkflowWorld(single().replace("entrypoint: m", "entrypoint: other"))
    world.settle()
    assert world.status()["phase"] == "Error"
    assert world.status()["message"].startswith(
        "invalid spec: spec.entrypoint: template 'other' does not exist"
    )


def test_stop_deletes_running_pods() -> None:
    world = WorkflowWorld(single())
    world.settle()
    world.api.change(WORKFLOWS, "default/w", spec={"shutdown": "Terminate"})
    world.settle()
    assert world.status()["message"] == "Stopped with strategy 'Terminate'"
    world.api.finish_deletions()
    assert world.pods() == []


def test_resource_template_waits_for_its_conditions() -> None:
    manifest = """
metadata: {name: w}
spec:
  entrypoint: m
  templates:
  - name: m
    outputs: {parameters: [{name: phase, valueFrom: {jsonPath: "{.status.state.phase}"}}]}
    resource:
      action: create
      setOwnerReference: true
      successCondition: status.state.phase = Completed
      failureCondition: status.state.phase in (Failed, Aborted)
      manifest: |
        apiVersion: batch.volcano.sh/v1alpha1
        kind: Job
        metadata: {generateName: job-}
        spec: {minAvailable: 1}
"""
    for phase, expected in (("Completed", "Succeeded"), ("Aborted", "Failed")):
        world = WorkflowWorld(manifest)
        world.settle()
        (job,) = world.api.objects(VOLCANO_JOBS)
        assert job["metadata"]["ownerReferences"][0]["name"] == "w"
        assert world.last.requeue_after == 1.0
        world.api.change(
            VOLCANO_JOBS, f"default/{job['metadata']['name']}", status={"state": {"phase": "Running"}}
        )
        world.settle()
        assert world.nodes()["w"]["phase"] == "Running"
        world.api.change(
            VOLCANO_JOBS, f"default/{job['metadata']['name']}", status={"state": {"phase": phase}}
        )
        world.settle()
        assert world.status()["phase"] == expected
    assert world.status()["message"].startswith("failure condition")


def test_nodes_over_a_quota_wait_and_all_others_go_on() -> None:
    world = WorkflowWorld(
        """
metadata: {name: w}
spec:
  entrypoint: main
  templates:
  - name: main
    steps:
    - - {name: m, template: echo, withItems: [a, b, c], arguments: {parameters: [{name: x, value: "{{item}}"}]}}
  - name: echo
    inputs: {parameters: [{name: x}]}
    retryStrategy: {limit: 1}
    container: {image: i, command: [true]}
"""
    )
    room, create = 2, world.api.create
    refusal = "pods is forbidden: exceeded quota: q, requested: pods=1"

    async def within_quota(resource: Any, obj: Any, *rest: Any) -> Any:
        running = [
            pod for pod in world.api.objects(PODS) if pod.get("status", {}).get("phase") != "Succeeded"
        ]
        if resource is PODS and len(running) >= room:
            raise errors.StatusError({"code": 403, "reason": "Forbidden", "message": refusal})
        return await create(resource, obj, *rest)

    world.api.create = within_quota  # type: ignore[method-assign]
    world.settle()
    assert world.last.requeue_after == 2.0
    assert world.status()["message"] == f"1 node waits for a quota: {refusal}"
    assert world.status()["phase"] == "Running"
    assert len([node for node in world.nodes().values() if node["type"] == "Pod"]) == 2
    world.end_pods()
    world.run()
    assert (world.status()["phase"], world.status().get("message")) == ("Succeeded", None)
    assert len(world.pods()) == 3


def test_node_with_an_object_that_exists_goes_on_under_a_used_up_quota() -> None:
    world = WorkflowWorld(
        """
metadata: {name: w}
spec:
  entrypoint: main
  templates:
  - name: main
    steps:
    - - {name: m, template: train, withItems: [a, b]}
  - name: train
    job: {manifest: {apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {minAvailable: 1}}}
"""
    )
    refusal = "jobs is forbidden: exceeded quota: q, requested: count/jobs=1"

    def used_up(verb: str, resource: Any, obj: Any) -> errors.StatusError | None:
        full = (verb, resource) == ("create", VOLCANO_JOBS) and world.api.objects(VOLCANO_JOBS)
        return errors.forbidden(VOLCANO_JOBS, obj["metadata"]["name"], refusal) if full else None

    world.api.reject = used_up
    world.settle()
    (job,) = world.api.objects(VOLCANO_JOBS)
    assert "1 node waits for a quota" in world.status()["message"]
    key = f"default/{job['metadata']['name']}"
    world.api.change(VOLCANO_JOBS, key, status={"state": {"phase": "Completed"}})
    world.settle()
    assert sorted(world.phases().values()).count("Succeeded") == 1, world.phases()


def test_nodes_of_one_lock_and_key_run_once() -> None:
    """Nodes of two keys end at once, when the ConfigMap of the cache is not there yet."""
    manifest = """
metadata: {name: w}
spec:
  entrypoint: main
  templates:
  - name: main
    steps:
    - - name: m
        template: memo
        withItems: [a, a, a, b, b, b]
        arguments: {parameters: [{name: x, value: "{{item}}"}]}
  - name: memo
    inputs: {parameters: [{name: x}]}
    synchronization: {mutexes: [{name: "m-{{inputs.parameters.x}}"}]}
    memoize: {key: "{{inputs.parameters.x}}", cache: {configMap: {name: c}}}
    container: {image: i, command: [true]}
    outputs: {parameters: [{name: p, valueFrom: {path: /tmp/p}}]}
"""
    world = WorkflowWorld(manifest, lambda pod: (0, captured(parameter_p="v")))
    world.run()
    assert world.status()["phase"] == "Succeeded"
    assert len(world.pods()) == 2
    (cache,) = world.api.objects(CONFIG_MAPS)
    assert sorted(cache["data"]) == ["a", "b"]


def test_memoized_outputs_are_used_again() -> None:
    manifest = single(
        more="    memoize: {key: k, maxAge: 1h, cache: {configMap: {name: c}}}\n"
        "    outputs: {parameters: [{name: p, valueFrom: {path: /tmp/p}}]}\n"
    )
    world = WorkflowWorld(manifest, lambda pod: (0, captured(parameter_p="v")))
    world.run()
    assert (
        json.loads(world.api.objects(CONFIG_MAPS)[0]["data"]["k"])["outputs"]["parameters"][0]["value"] == "v"
    )
    world.add(manifest.replace("name: w", "name: w2", 1))
    world.run("w2")
    assert world.nodes("w2")["w2"]["memoizationStatus"] == {"hit": True, "key": "k", "cacheName": "c"}
    assert world.pods() == ["w"]
    world.advance(4000.0)
    world.add(manifest.replace("name: w", "name: w3", 1))
    world.run("w3")
    assert world.pods() == ["w", "w3"]


def test_mutex_lets_one_workflow_run_after_the_other() -> None:
    manifest = single(spec="  synchronization: {mutexes: [{name: m}]}\n")
    world = WorkflowWorld(manifest)
    world.add(manifest.replace("name: w", "name: w2", 1))
    world.settle("w")
    world.settle("w2")
    assert world.pods() == ["w"]
    assert world.status("w2")["message"] == "Waiting for default/Mutex/m lock. Lock status: 0/1"
    world.restart()
    world.settle("w2")
    assert world.pods() == ["w"]
    world.run("w")
    world.run("w2")
    assert world.status("w2")["phase"] == "Succeeded"
    assert "synchronization" not in world.status("w2")


def test_semaphore_takes_its_limit_from_a_config_map() -> None:
    manifest = single(more="    synchronization: {semaphores: [{configMapKeyRef: {name: c, key: k}}]}\n")
    world = WorkflowWorld(manifest)
    world.api.put(CONFIG_MAPS, {"metadata": {"name": "c"}, "data": {"k": "2"}})
    for name in ("w2", "w3"):
        world.add(manifest.replace("name: w", f"name: {name}", 1))
    for name in ("w", "w2", "w3"):
        world.settle(name)
    assert world.pods() == ["w", "w2"]
    assert world.nodes("w3")["w3"]["message"] == "Waiting for default/ConfigMap/c/k lock. Lock status: 0/2"
    for name in ("w", "w2", "w3"):
        world.run(name)
    assert world.pods() == ["w", "w2", "w3"]


def test_pods_and_the_workflow_are_removed_when_they_are_due() -> None:
    spec = "  podGC: {strategy: OnWorkflowSuccess}\n  ttlStrategy: {secondsAfterCompletion: 10}\n"
    world = WorkflowWorld(single(spec=spec))
    world.run()
    world.settle()
    world.api.finish_deletions()
    assert world.pods() == []
    assert world.last.requeue_after == 10.0
    world.advance(10.0)
    world.settle()
    assert world.api.object(WORKFLOWS, "default/w") is None


def test_pods_are_removed_after_their_delay_and_by_their_labels() -> None:
    for selector, left in (("matchLabels: {kept: never}", ["w"]), ("matchExpressions: []", [])):
        rule = f"{{strategy: OnPodCompletion, deleteDelayDuration: 20s, labelSelector: {{{selector}}}}}"
        world = WorkflowWorld(single(spec=f"  podGC: {rule}\n"))
        world.settle()
        world.end_pods(world.api.clock.now())
        world.settle()
        world.api.finish_deletions()
        assert (world.pods(), world.status()["phase"]) == (["w"], "Succeeded")
        world.advance(19.0)
        world.settle()
        world.api.finish_deletions()
        assert world.pods() == ["w"]
        world.advance(2.0)
        world.settle()
        world.api.finish_deletions()
        assert world.pods() == left


def test_pods_are_removed_while_the_workflow_runs() -> None:
    for strategy, left in (("OnPodCompletion", []), ("OnPodSuccess", ["w.bad(0)", "w.bad(1)"])):
        manifest = DAG.replace("entrypoint: main", f"entrypoint: main\n  podGC: {{strategy: {strategy}}}")
        for crashes in (None, *range(24)):
            world = WorkflowWorld(manifest, play)
            world.api.crash_after = crashes
            try:
                world.run()
            except Crash:
                world.restart()
                world.run()
            world.settle()
            assert (world.status()["phase"], world.status()["progress"]) == ("Succeeded", "4/6"), crashes
            assert world.nodes()["each(1:2)"]["outputs"]["parameters"][0]["value"] == "w.each(1:2)"
            verbs = [verb for verb, kind, _ in world.api.log if kind == "pods"]
            # The first pod is deleted before the last one is created.
            assert crashes is not None or "create" in verbs[verbs.index("delete") :]
            world.api.finish_deletions()
            assert world.pods() == left, crashes


def test_large_workflow_stays_below_a_megabyte() -> None:
    manifest = """
metadata: {name: w}
spec:
  entrypoint: main
  templates:
  - name: main
    steps:
    - - name: a-step-with-a-name
        template: leaf
        withSequence: {count: 1500}
        arguments: {parameters: [{name: n, value: "{{item}}"}]}
  - {name: leaf, inputs: {parameters: [{name: n}]}, container: {image: x, command: [x]}}
"""
    world = WorkflowWorld(manifest)
    world.run()
    status = world.status()
    assert (status["phase"], status["progress"]) == ("Succeeded", "1500/1500")
    assert "nodes" not in status
    assert len(json.dumps(status)) < 200_000
    assert len(world.nodes()) == 1502


OUTPUT = single(more="    outputs: {parameters: [{name: p, valueFrom: {path: /tmp/p}}]}\n")


def test_log_that_cannot_be_read_is_waited_for_a_minute() -> None:
    for outage, phase in ((3.0, "Succeeded"), (100.0, "Error")):
        world = WorkflowWorld(OUTPUT, lambda pod: (0, captured(parameter_p="v")))
        world.settle()
        started = world.api.clock.now()

        async def logs(
            namespace: str, name: str, world: WorkflowWorld = world, end: float = started + outage, **_: Any
        ) -> Any:
            if world.api.clock.now() < end:
                raise errors.failure(500, "InternalError", "the kubelet does not answer")
            return await LogApi.logs(world.api, namespace, name)

        world.api.logs = logs  # type: ignore[method-assign]
        world.end_pods(finished=started)
        world.settle()
        assert not world.status().get("finishedAt")
        assert world.last.requeue_after == 2.0
        for _ in range(40):
            world.advance(2.0)
            world.settle()
        assert world.status()["phase"] == phase
        message = world.nodes()["w"].get("message", "")
        assert message == (
            ""
            if phase == "Succeeded"
            else "the outputs cannot be read from the log: the kubelet does not answer"
        )


def test_pods_have_the_scheduler_of_the_cluster_unless_they_name_one() -> None:
    for spec, expected in (("", "windlass"), ("  schedulerName: other\n", "other")):
        world = WorkflowWorld(single(spec=spec))
        world.restart(scheduler="windlass")
        world.settle()
        assert world.pod("w")["spec"]["schedulerName"] == expected


def test_pod_of_a_deleted_workflow_with_the_same_name_is_waited_for() -> None:
    world = WorkflowWorld(single())
    owner = {"apiVersion": "v1", "kind": "Workflow", "name": "w", "uid": "old", "controller": True}
    metadata: Json = {"name": "w", "namespace": "default", "annotations": {labels.NODE_ID: "w"}}
    world.api.put(PODS, {"metadata": {**metadata, "ownerReferences": [owner]}})
    for _ in range(3):
        effects = asyncio.run(world.controller.reconcile("default/w"))
        outcome = asyncio.run(world.executor.perform(effects))
        assert len(outcome.failures) == 1
        world.controller.note_failures("default/w", outcome.failures)
    world.api.remove(PODS, "default/w")
    world.run()
    assert world.status()["phase"] == "Succeeded"
    other = WorkflowWorld(single())
    other.api.put(PODS, {"metadata": {**metadata, "ownerReferences": [{**owner, "kind": "AIGCWorkflow"}]}})
    other.run()
    assert (other.status()["phase"], other.nodes()["w"]["message"]) == ("Error", 'pods "w" already exists')
