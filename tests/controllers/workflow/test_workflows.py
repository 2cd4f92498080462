"""Controller of workflows: pods, outputs, status, clean-up, and stops between any two writes."""

from __future__ import annotations

import json
from typing import Any

from fakeapi import Crash
from workflow_world import WorkflowWorld, captured

from windlass.api import errors
from windlass.api.resources import CONFIG_MAPS, PODS, VOLCANO_JOBS, WORKFLOWS
from windlass.controllers.workflow import labels

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
