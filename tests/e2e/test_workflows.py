"""Workflows with real processes on one box, driven by the command line."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from single_node import Box
from workflow_kinds import BRANCHES, FUNCTION, JOBS, KINDS
from workflow_of_parts import check_end, workflow_of_parts

from windlass.api.resources import AIGC_WORKFLOWS, WORKFLOWS

Json = dict[str, Any]
GUIDE = Path(__file__).resolve().parents[2] / "docs/guides/workflows.md"

EVERYTHING = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: all}
spec:
  entrypoint: main
  onExit: bye
  templates:
  - name: main
    steps:
    - - {name: make, template: make}
      - {name: flaky, template: flaky}
      - {name: job, template: job}
    - - name: use
        template: use
        arguments:
          parameters: [{name: p, value: "{{steps.make.outputs.parameters.p}} {{steps.make.outputs.result}}"}]
          artifacts: [{name: a, from: "{{steps.make.outputs.artifacts.a}}"}]
      - {name: skipped, template: bye, when: "{{steps.flaky.outputs.exitCode}} == 9"}
    - - {name: approve, template: approve}
  - name: make
    outputs: {parameters: [{name: p, valueFrom: {path: /tmp/p}}], artifacts: [{name: a, path: /tmp/a}]}
    script:
      image: python
      command: [python3]
      source: |
        import os, sys
        open("/tmp/p", "w").write("parameter")
        os.mkdir("/tmp/a")
        open("/tmp/a/file", "w").write("artifact")
        sys.stderr.write("not a result")
        print("result")
  - name: use
    inputs: {parameters: [{name: p}], artifacts: [{name: a, path: /tmp/in}]}
    container: {image: busybox, command: [sh, -c], args: ["echo {{inputs.parameters.p}}; cat /tmp/in/file"]}
  - name: flaky
    retryStrategy: {limit: 2, expression: "asInt(lastRetry.exitCode) == 7"}
    container: {image: busybox, command: [sh, -c], args: ["test {{retries}} = 1 || exit 7"]}
  - name: job
    outputs: {parameters: [{name: phase, valueFrom: {jsonPath: .status.state.phase}}]}
    job:
      manifest:
        apiVersion: batch.volcano.sh/v1alpha1
        kind: Job
        metadata: {generateName: inner-}
        spec:
          minAvailable: 1
          tasks:
          - replicas: 1
            name: t
            template:
              spec: {restartPolicy: Never, containers: [{name: c, image: busybox, command: [echo, hello]}]}
  - name: approve
    outputs: {parameters: [{name: who, valueFrom: {supplied: {}}}]}
    suspend: {}
  - {name: bye, container: {image: busybox, command: [echo, "{{workflow.status}}"]}}
"""


@pytest.fixture(scope="module")
def box() -> Iterator[Box]:
    with Box("--gpus", "simulated:4") as one:
        yield one


def nodes(box: Box, name: str, kind: str = "workflow") -> dict[str, Json]:
    status = box.get(kind, name).get("status") or {}
    return {node["displayName"]: node for node in (status.get("nodes") or {}).values()}


def test_workflow_of_all_kinds_of_templates(box: Box) -> None:
    box.windlass("workflow", "run", "-", "--no-wait", stdin=EVERYTHING)
    box.wait_for("the suspended step", lambda: "approve" in nodes(box, "all"))
    refused = box.windlass("workflow", "resume", "all", check=False)
    assert "needs the output 'who': add -p who=VALUE" in refused.stderr
    unknown = box.windlass("workflow", "resume", "all", "-p", "who=me", "-p", "whom=me", check=False)
    assert "no suspended node has the output 'whom': the outputs are who" in unknown.stderr
    for more in ((), ("-p", "who=me")):  # without an output, only the suspension of the whole is lifted
        box.windlass("workflow", "suspend", "all")
        said = box.windlass("workflow", "resume", "all", *more).stderr
        assert ("still suspended: approve" in said) is not bool(more)
        assert "suspend" not in box.get("workflow", "all")["spec"]
    box.wait_for("the end", lambda: box.get("workflow", "all")["status"].get("finishedAt"))
    found = nodes(box, "all")
    assert {name: node["phase"] for name, node in found.items() if node["type"] == "Pod"} == {
        "make": "Succeeded", "flaky(0)": "Failed", "flaky(1)": "Succeeded", "job": "Succeeded",
        "use": "Succeeded", "all.onExit": "Succeeded",
    }  # fmt: skip
    assert found["skipped"]["phase"] == "Skipped"
    assert found["job"]["outputs"]["parameters"] == [{"name": "phase", "value": "Completed"}]
    assert found["approve"]["outputs"]["parameters"] == [{"name": "who", "value": "me"}]
    assert box.windlass("workflow", "logs", "all", "use").stdout == "parameter result\nartifact\n"
    assert box.windlass("workflow", "logs", "all", "all.onExit").stdout == "Succeeded\n"
    columns = box.kubectl("get", "wf", "all", "--no-headers").stdout.split()
    assert columns[:3] == ["all", "Succeeded", "5/6"]


def test_branch_on_a_score_after_a_parallel_job_and_a_second_attempt(box: Box) -> None:
    """F2: what succeeded is not run again, and the branch that was not taken is skipped."""
    done = box.windlass("workflow", "run", "-", stdin=BRANCHES)
    assert done.stdout.endswith("workflow media: Succeeded\n")
    items = json.loads(box.windlass("workflow", "graph", "media", "-o", "json").stdout)["items"]
    assert {one["name"]: (one["phase"], one["attempts"]) for one in items} == {
        "split": ("Succeeded", 1), "train": ("Succeeded", 1), "score": ("Succeeded", 1),
        "redo": ("Succeeded", 1), "keep": ("Skipped", 0), "publish": ("Succeeded", 2),
    }  # fmt: skip
    for command in ("show", "explain"):  # a workflow is no job, and the error tells where it is
        refused = box.windlass(command, "media", check=False)
        assert "windlass workflow show media" in refused.stderr
    picture = box.windlass("workflow", "graph", "media").stdout
    assert "keep (Skipped)" in picture
    assert "publish (2 attempts)" in picture
    name = nodes(box, "media", "aigcworkflow")["train"]["managedObject"]["name"]
    assert box.get("vcjob", name)["status"]["succeeded"] == 4
    logs = box.windlass("logs", name).stdout
    assert "rank 3 of data 2 x tensor 2" in logs
    wide = (
        BRANCHES.replace("name: media", "name: wide", 1)
        .replace("{data: 2, tensor: 2}", "{tensor: 8}")
        .replace("gpusPerReplica: 2", "")
    )
    refused = box.windlass("workflow", "run", "-", stdin=wide.replace("hybrid", "tensor"), check=False)
    assert "a tensor group of 8 GPUs fits no node: the largest has 4" in refused.stderr


def test_workflows_end_as_on_a_cluster(box: Box) -> None:
    for kind in (WORKFLOWS, AIGC_WORKFLOWS):
        body = json.dumps(workflow_of_parts(kind, f"parts-{kind.singular}"))
        box.windlass("workflow", "run", "-", "--no-wait", stdin=body)
    for kind in (WORKFLOWS, AIGC_WORKFLOWS):
        name = f"parts-{kind.singular}"

        def ended(kind: str = kind.singular, name: str = name) -> bool:
            return bool((box.get(kind, name).get("status") or {}).get("finishedAt"))

        box.wait_for("the end", ended)
        check_end(box.get(kind.singular, name)["status"])


def test_daemon_requests_container_set_function_sidecar_and_patch(box: Box) -> None:
    """The daemon serves the requests until the graph ends; the sidecar ends with its main container."""
    (box.folder / "flowfunctions.py").write_text(FUNCTION)
    done = box.windlass("workflow", "run", "-", stdin=KINDS.replace("FOLDER", str(box.folder)))
    assert done.stdout.endswith("workflow kinds: Succeeded\n")
    found = nodes(box, "kinds")
    assert {name: node["phase"] for name, node in found.items() if node["phase"] != "Succeeded"} == {
        "refused": "Failed",
        "resume(0)": "Failed",
    }
    assert (
        "received non-2xx response code: 404" in box.windlass("workflow", "logs", "kinds", "refused").stdout
    )
    assert found["call"]["outputs"]["parameters"] == [{"name": "twice", "value": "page hellopage hello"}]
    assert box.windlass("workflow", "logs", "kinds", "side").stdout == "page hellopage hello\n"
    assert box.windlass("workflow", "logs", "kinds", "resume(1)").stdout == "step 0\n"
    assert box.windlass("workflow", "logs", "kinds", "fetch").stdout.rstrip() == "page"
    box.wait_for("the end of the daemon", lambda: "kinds-server" not in box.windlass("get", "pods").stdout)


def test_jobs_of_eight_kinds_are_steps(box: Box) -> None:
    """Each knows how its kind ends. The set that serves ends with the graph; the rows decide a branch."""
    done = box.windlass("workflow", "run", "-", stdin=JOBS)
    assert done.stdout.endswith("workflow jobs: Succeeded\n"), done.stdout
    found = nodes(box, "jobs", "aigcworkflow")
    assert {name: node["phase"] for name, node in found.items() if node["phase"] != "Succeeded"} == {
        "mpi(0)": "Failed"
    }
    assert found["mpi(0)"]["message"].startswith("MPIJob mpi-0 failed: ")
    assert box.windlass("workflow", "logs", "jobs", "redo").stdout == "1 of 1, 2\n"
    name = found["serve"]["managedObject"]["name"]
    box.wait_for("the end of the service", lambda: name not in box.kubectl("get", "lws").stdout)


def test_guide_does_what_it_shows(box: Box) -> None:
    page = GUIDE.read_text()
    manifest = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0]
    (console,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    (box.folder / "captions.yaml").write_text(manifest)
    for part in console.split("$ ")[1:]:
        command, _, shown = part.partition("\n")
        printed = box.windlass(*command.split()[1:]).stdout
        pattern = "".join(".*\n" if line == "..." else re.escape(f"{line}\n") for line in shown.splitlines())
        assert re.fullmatch(pattern, printed, re.DOTALL), printed
    box.wait_for("the end", lambda: box.get("workflow", "captions")["status"]["phase"] == "Succeeded")
    before = nodes(box, "captions")
    assert before["split"]["finishedAt"] <= before["merge"]["startedAt"]  # whole seconds


def test_wrong_workflows_are_refused_with_their_field(box: Box) -> None:
    manifest = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "wrong"},
        "spec": {
            "entrypoint": "m",
            "templates": [
                {
                    "name": "m",
                    "dag": {
                        "tasks": [
                            {"name": "a", "template": "m", "depends": "b"},
                            {"name": "b", "template": "m", "depends": "a"},
                        ]
                    },
                }
            ],
        },
    }
    done = box.windlass("workflow", "run", "-", stdin=json.dumps(manifest), check=False)
    assert done.returncode == 2
    assert 'spec.templates[0].dag.tasks: Invalid value: "a -> b -> a"' in done.stderr
    missing = box.windlass("workflow", "show", "nothing", check=False)
    assert "there is no workflow nothing" in missing.stderr


def test_stopped_workflow_ends_its_processes(box: Box) -> None:
    text = """
apiVersion: kurator.dev/v1alpha1
kind: AIGCWorkflow
metadata: {name: long}
spec:
  entrypoint: m
  templates: [{name: m, container: {image: busybox, command: [sleep, "1000"]}}]
"""
    box.windlass("workflow", "run", "-", "--no-wait", stdin=text)
    box.wait_for("the process", lambda: box.get("pod", "long")["status"]["phase"] == "Running")
    box.windlass("workflow", "stop", "long")
    box.wait_for("the end", lambda: box.get("aigcworkflow", "long")["status"]["phase"] == "Failed")
    assert box.get("aigcworkflow", "long")["status"]["message"] == "Stopped with strategy 'Stop'"
    assert "long" in box.windlass("workflow", "ls").stdout


def test_subtitles_have_the_media_time_before_each_scene(box: Box) -> None:
    folder = Path(__file__).resolve().parents[2] / "examples/subtitles"
    printed = box.windlass("workflow", "run", str(folder), "--name", "film", timeout=240).stdout
    assert "workflow film: Succeeded" in printed
    assert "small  context 90-120 s" in printed
    told = box.windlass("workflow", "logs", "film", "merge").stdout
    assert "words 78 of 78 right\nspeakers 13 of 13 right" in told
    assert "13\n00:02:39,000 --> 00:02:40,350\nBRUNO: I CAN HEAR THE BELL.\n" in told
    shown = box.windlass("workflow", "show", "film").stdout
    assert re.search(r"scenes\(4:end:149\.0,id:scene-4,start:120\.0\).* context 90-120 s", shown), shown
    status = box.get("aigcworkflow", "film")["status"]
    found = list(status["nodes"].values())
    small = [node for node in found if node["displayName"] == "small"]
    (split,) = [node for node in found if node["displayName"] == "split"]
    assert len(small) == 6
    assert all(split["finishedAt"] <= node["startedAt"] for node in small)
    assert all(node["startedAt"] <= node["finishedAt"] for node in small)  # whole seconds
    assert [node["phase"] for node in found if node["displayName"] == "translate"] == ["Skipped"]
    redone = [node["phase"] for node in found if node["displayName"] == "big"]
    assert sorted(redone) == ["Skipped"] * 3 + ["Succeeded"] * 3


def test_workflow_of_many_nodes_stays_readable(box: Box) -> None:
    text = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: many}
spec:
  entrypoint: main
  templates:
  - name: main
    steps:
    - - {name: wait, template: wait, withSequence: {count: "1500"}}
    - - {name: last, template: last}
  - {name: wait, suspend: {duration: "0"}}
  - {name: last, container: {image: busybox, command: ["true"]}}
"""
    box.windlass("workflow", "run", "-", "--no-wait", stdin=text)

    def ended() -> bool:
        return box.get("workflow", "many").get("status", {}).get("phase") == "Succeeded"

    def pods() -> set[str]:
        selector = "workflows.argoproj.io/workflow=many"
        path = "jsonpath={.items[*].metadata.uid}"
        return set(box.kubectl("get", "pods", "-l", selector, "-o", path).stdout.split())

    box.wait_for("the end", ended)
    (first,) = pods()
    stored = box.kubectl("get", "workflow", "many", "-o", "json").stdout
    assert "nodes" not in json.loads(stored)["status"]
    assert len(stored) < 1_000_000
    listed = json.loads(box.windlass("workflow", "show", "many", "-o", "json").stdout)["status"]["nodes"]
    assert len(listed) == 1504
    assert (
        "more nodes: windlass workflow show many -o json" in box.windlass("workflow", "show", "many").stdout
    )
    done = box.windlass("workflow", "retry", "many", "--from", "last")
    assert done.stdout == "workflow many runs again: 1 nodes reset, 1500 kept\n"

    box.wait_for("the second end", lambda: ended() and pods().isdisjoint({first}))
    assert len(pods()) == 1
    assert "many" in box.windlass("workflow", "ls").stdout


STORING = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: storing}
spec:
  entrypoint: main
  artifactGC: {strategy: OnWorkflowDeletion}
  templates:
  - name: main
    outputs: {artifacts: [{name: a, path: /tmp/a}]}
    container: {image: busybox, command: [sh, -c, "date +%s%N > /tmp/a"]}
"""


def stored(box: Box, digest: str) -> bool:
    """Return whether a file of this digest is on the box. Folders of pods that go meanwhile are passed over."""
    return any(digest in files for _, _, files in os.walk(box.folder))


def test_deletion_by_hand_removes_stored_artifacts(box: Box) -> None:
    box.windlass("workflow", "run", "-", stdin=STORING)
    (node,) = nodes(box, "storing").values()
    digest = node["outputs"]["artifacts"][0]["store"]["sha256"]
    assert stored(box, digest)
    box.kubectl("delete", "workflow", "storing", "--wait=false")
    box.wait_for("the end of the workflow", lambda: not named(box, "storing"))
    assert not stored(box, digest)


def named(box: Box, name: str) -> list[Json]:
    return [one for one in box.items("workflow") if one["metadata"]["name"] == name]
