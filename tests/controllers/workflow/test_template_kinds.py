"""Templates of further kinds, artifacts by key, and results of earlier runs, at the controller."""

from __future__ import annotations

import json
from typing import Any

import yaml
from fakeapi import Crash
from workflow_world import WorkflowWorld, captured

from windlass.api import errors
from windlass.api.resources import AIGC_JOBS, POD_GROUPS, PODS, WORKFLOWS
from windlass.controllers.workflow import labels

Json = dict[str, Any]


def test_job_of_rows_gives_its_quality_as_outputs() -> None:
    """An AIGCJob needs no declaration of its outputs, and a second attempt gets a name of its own."""
    manifest = """
metadata: {name: w}
spec:
  entrypoint: main
  scheduling: {queue: night}
  templates:
  - name: main
    steps:
    - - {name: write, template: write}
    - - {name: redo, template: redo, when: "{{steps.write.outputs.parameters.score}} < 90"}
  - name: write
    retryStrategy: {limit: 1}
    job: {manifest: {apiVersion: kurator.dev/v1alpha1, kind: AIGCJob, metadata: {name: texts}, spec: {}}}
  - {name: redo, container: {image: x, command: [x]}}
"""
    world = WorkflowWorld(manifest)
    world.settle()
    world.api.change(AIGC_JOBS, "default/texts-0", status={"phase": "Failed"})
    world.settle()
    status = {"phase": "Succeeded", "quality": {"mean": 87.5}, "items": {"total": 4, "done": 4}}
    world.api.change(AIGC_JOBS, "default/texts-1", status=status)
    world.run()
    job = world.api.object(AIGC_JOBS, "default/texts-1")
    assert job is not None
    assert job["spec"]["queue"] == "night"
    outputs = world.nodes()["write"]["outputs"]["parameters"]
    assert {one["name"]: one["value"] for one in outputs} == {"score": "87.5", "total": "4", "done": "4"}
    assert world.phases()["redo"] == "Succeeded"
    assert world.pod("w[1].redo")["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] == "night"


def test_pods_of_the_first_wave_are_one_gang() -> None:
    manifest = CHAIN.replace(
        "entrypoint: main", "entrypoint: main\n  scheduling: {gang: PerWorkflow}"
    ).replace(
        "{name: first, template: gen}", "{name: first, template: gen}\n      - {name: also, template: gen}"
    )
    world = WorkflowWorld(manifest, lambda pod: (0, captured(parameter_p="v")))
    world.run()
    (group,) = world.api.objects(POD_GROUPS)
    assert (group["metadata"]["name"], group["spec"]) == ("w-first", {"minMember": 2})
    members = {
        pod["metadata"]["annotations"][labels.NODE_NAME]
        for pod in world.api.objects(PODS)
        if pod["metadata"]["annotations"].get("scheduling.k8s.io/group-name") == "w-first"
    }
    assert members == {"w.first", "w.also"}


WAVE = """
metadata: {name: w}
spec:
  entrypoint: main
  scheduling: {gang: PerWorkflow}
  templates:
  - name: main
    steps:
    - - {name: m, template: echo, withItems: [a, b, c], arguments: {parameters: [{name: x, value: "{{item}}"}]}}
  - {name: echo, inputs: {parameters: [{name: x}]}, container: {image: i, command: [true]}}
"""


def test_workflow_tells_that_its_first_wave_waits_for_a_quota() -> None:
    world, quota = WorkflowWorld(WAVE), 2

    def used_up(verb: str, resource: Any, obj: Json) -> errors.StatusError | None:
        """Refuse as a server does: also a pod that exists, once the quota is used up."""
        full = (verb, resource) == ("create", PODS) and len(world.api.objects(PODS)) >= quota
        name = obj["metadata"]["name"]
        return errors.forbidden(PODS, name, f"exceeded quota: q, limited: pods={quota}") if full else None

    world.api.reject = used_up
    for _ in range(4):
        world.look()
    text = "1 node of the first wave waits for a quota, and the wave starts as a whole: pods "
    assert world.status()["message"].startswith(text)
    assert "exceeded quota: q, limited: pods=2" in world.status()["message"]
    assert "phase" not in world.status()
    assert len(world.pods()) == 2
    quota = 3
    world.run()
    assert (world.status()["phase"], world.status().get("message")) == ("Succeeded", None)
    (group,) = world.api.objects(POD_GROUPS)
    assert group["spec"]["minMember"] == len(world.pods()) == 3


CHAIN = """
metadata: {name: w}
spec:
  entrypoint: main
  templates:
  - name: main
    dag:
      tasks:
      - {name: first, template: gen}
      - {name: last, template: use, depends: first}
  - name: gen
    outputs: {parameters: [{name: p, globalName: g, valueFrom: {path: /tmp/p}}]}
    container: {image: x, command: [gen]}
  - name: use
    container: {image: x, command: [use, "{{workflow.outputs.parameters.g}}"]}
"""


def test_outputs_are_neither_doubled_nor_lost_by_a_retry_from_a_node() -> None:
    """argo#7617; and the outputs of nodes that are kept are known to those that run again."""
    world = WorkflowWorld(CHAIN, lambda pod: (0, captured(parameter_p="v")))
    world.run()
    expected = {"parameters": [{"name": "g", "value": "v"}]}
    assert world.status()["outputs"] == expected
    for node in ("last", "first"):
        command = {labels.COMMAND: json.dumps({"action": "retry", "node": node})}
        world.api.change(WORKFLOWS, "default/w", metadata={"annotations": command})
        world.settle()
        world.api.finish_deletions()
        world.run()
        assert world.status()["outputs"] == expected, node
        assert world.pod("w.last")["spec"]["containers"][0]["command"] == ["use", "v"]


def test_workflow_that_is_submitted_again_takes_results_over() -> None:
    world = WorkflowWorld(CHAIN, lambda pod: (int("last" in str(pod)), captured(parameter_p="v")))
    world.run()
    assert world.status()["phase"] == "Failed"
    request = {labels.COMMAND: json.dumps({"action": "reuse", "of": "w"})}
    body = {"name": "w2", "annotations": request}
    world.api.put(WORKFLOWS, {"metadata": body, "spec": yaml.safe_load(CHAIN)["spec"]})
    world.play = lambda pod: (0, "")
    world.run("w2")
    assert world.status("w2")["phase"] == "Succeeded"
    assert [name for name in world.pods() if name.startswith("w2")] == ["w2.last"]
    assert world.pod("w2.last")["spec"]["containers"][0]["command"] == ["use", "v"]
    assert world.nodes("w2")["first"]["message"] == "result of workflow w"
    assert {node["id"] for node in world.nodes("w2").values()}.isdisjoint(
        node["id"] for node in world.nodes("w").values()
    )


def test_artifacts_are_found_by_the_key_they_were_stored_under() -> None:
    """key-only-artifact and map-reduce: a key, a file below a directory, and a directory of several artifacts."""
    manifest = """
metadata: {name: w}
spec:
  entrypoint: main
  templates:
  - name: main
    steps:
    - - {name: split, template: split}
    - - name: map
        template: map
        withItems: [0, 1]
        arguments: {parameters: [{name: n, value: "{{item}}"}]}
    - - {name: reduce, template: reduce}
    - - {name: never, template: never}
  - name: split
    outputs: {artifacts: [{name: parts, path: /mnt/out, s3: {key: "w/parts/"}}]}
    container: {image: x, command: [x]}
  - name: map
    inputs:
      parameters: [{name: n}]
      artifacts: [{name: a, path: /mnt/in, s3: {key: "w/parts/{{inputs.parameters.n}}.json"}}]
    outputs: {artifacts: [{name: part, path: /mnt/out, s3: {key: "w/results/{{inputs.parameters.n}}.json"}}]}
    container: {image: x, command: [x]}
  - name: reduce
    inputs: {artifacts: [{name: a, path: /mnt/in, s3: {key: w/results}}]}
    container: {image: x, command: [x]}
  - name: never
    inputs: {artifacts: [{name: a, path: /mnt/in, s3: {key: w/none}}]}
    container: {image: x, command: [x]}
"""

    def stores(pod: Json) -> tuple[int, str]:
        node = pod["metadata"]["annotations"][labels.NODE_NAME]
        digest = node.replace("(", "-").replace(")", "").replace("[", "").replace("]", "")
        return 0, captured(artifact_parts=digest, artifact_part=digest)

    world = WorkflowWorld(manifest, stores)
    world.run()

    def placed(node: str) -> list[str]:
        (container,) = world.pod(node)["spec"]["containers"]
        return next(one["value"] for one in container["env"] if one["name"] == "WINDLASS_IN").splitlines()

    assert placed("w[1].map(1:1)") == ["w0.split /mnt/in 1.json"]
    assert placed("w[2].reduce") == ["w1.map-0:0 /mnt/in/0.json", "w1.map-1:1 /mnt/in/1.json"]
    assert world.nodes()["never"]["message"].endswith(
        "no earlier node of this workflow stored the key 'w/none'"
    )


def test_outputs_of_a_container_set_are_taken_when_the_others_have_ended() -> None:
    world = WorkflowWorld("""
metadata: {name: w}
spec:
  entrypoint: m
  templates:
  - name: m
    containerSet:
      retryStrategy: {retries: 2, duration: 5s}
      containers:
      - {name: a, image: "argoproj/argosay:v2", args: [echo, hi, /work/out]}
      - {name: main, image: x, command: [x]}
      - {name: last, image: x, command: [x], dependencies: [main]}
    outputs: {parameters: [{name: p, valueFrom: {path: /work/out}}]}
""")
    world.settle()
    containers = {one["name"]: one for one in world.pod("w")["spec"]["containers"]}
    assert list(containers) == ["main", "a", "last"]
    assert containers["a"]["command"][-4:] == ["/argosay", "echo", "hi", "/work/out"]
    env = {one["name"]: one["value"] for one in containers["main"]["env"]}
    assert (env["WINDLASS_SET"], env["WINDLASS_AFTER"], env["WINDLASS_RETRIES"], env["WINDLASS_PAUSE"]) == (
        "a",
        "",
        "2",
        "5",
    )
    assert {one["name"]: one["value"] for one in containers["last"]["env"]}["WINDLASS_AFTER"] == "main"


KINDS = """
metadata: {name: w}
spec:
  entrypoint: main
  scheduling: {gang: PerWorkflow}
  templates:
  - name: main
    dag:
      tasks:
      - {name: server, template: server}
      - {name: rows, template: rows}
      - {name: set, template: set}
      - {name: use, template: set, depends: server && rows && set}
  - {name: server, daemon: true, container: {image: x, command: [x]}}
  - {name: rows, job: {manifest: {apiVersion: kurator.dev/v1alpha1, kind: AIGCJob, spec: {}}}}
  - name: set
    containerSet:
      containers: [{name: a, image: x, command: [x]}, {name: b, image: x, command: [x], dependencies: [a]}]
"""


def test_controller_that_stops_between_any_two_writes_changes_nothing() -> None:
    """With a gang of the first wave, a daemon, a job and a set of containers."""

    class DaemonWorld(WorkflowWorld):
        def end_pods(self) -> int:
            """Let the daemon become ready, the job succeed, and the other pods end."""
            for job in self.api.objects(AIGC_JOBS):
                if not job.get("status"):
                    self.api.change(
                        AIGC_JOBS, f"default/{job['metadata']['name']}", status={"phase": "Succeeded"}
                    )
            changed = 0
            for pod in self.api.objects(PODS):
                name, phase = pod["metadata"]["name"], (pod.get("status") or {}).get("phase")
                if labels.DAEMON not in pod["metadata"]["annotations"]:
                    status = {"phase": "Succeeded"}
                else:
                    ready = [{"type": "Ready", "status": "True"}]
                    status = {"phase": "Running", "podIP": "10.0.0.9", "conditions": ready}
                if phase != status["phase"] and not pod["metadata"].get("deletionTimestamp"):
                    self.api.change(PODS, f"default/{name}", status=status, spec={"nodeName": "n1"})
                    changed += 1
            return changed

    def outcome(crashes: int | None) -> tuple[Json, list[str]]:
        world = DaemonWorld(KINDS)
        world.api.crash_after = crashes
        try:
            world.run()
        except Crash:
            world.restart()
            world.run()
        world.settle()
        world.api.finish_deletions()
        created = sorted(key for verb, _, key in world.api.log if verb == "create")
        assert "w.server" not in world.pods()
        assert world.nodes()["server"]["podIP"] == "10.0.0.9"
        return world.phases() | {"": world.status()["phase"]}, created

    calm = outcome(None)
    assert calm[0][""] == "Succeeded"
    assert len(calm[1]) == 5
    for crashes in range(10):
        assert outcome(crashes) == calm, crashes


def test_workflow_reaches_no_object_beyond_its_namespace() -> None:
    """The controller has rights that the author of a workflow may not have."""
    for manifest, expected in (
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: other}}",
            "in its namespace 'default'",
        ),
        ("{apiVersion: v1, kind: Node, metadata: {name: n}}", "a Node belongs to no namespace"),
        ("{apiVersion: v1, kind: Secret, metadata: {name: s}}", "a Secret is neither read nor written"),
    ):
        for action in ("get", "delete", "create"):
            world = WorkflowWorld(
                "metadata: {name: w}\nspec:\n  entrypoint: m\n  templates:\n"
                f"  - {resource_template(action, manifest)}\n"
            )
            world.settle()
            assert world.status()["phase"] == "Error"
            assert expected in world.nodes()["w"]["message"]


def resource_template(action: str, manifest: str) -> str:
    return f"{{name: m, resource: {{action: {action}, manifest: '{manifest}'}}}}"
