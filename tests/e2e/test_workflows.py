"""Workflows with real processes on one box, driven by the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from single_node import Box

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
    with Box("--gpus", "none") as one:
        yield one


def nodes(box: Box, name: str) -> dict[str, Json]:
    status = box.get("workflow", name).get("status") or {}
    return {node["displayName"]: node for node in (status.get("nodes") or {}).values()}


def test_workflow_of_all_kinds_of_templates(box: Box) -> None:
    box.windlass("workflow", "run", "-", "--no-wait", stdin=EVERYTHING)
    box.wait_for("the suspended step", lambda: "approve" in nodes(box, "all"))
    refused = box.windlass("workflow", "resume", "all", check=False)
    assert "needs the output 'who': add -p who=VALUE" in refused.stderr
    box.windlass("workflow", "resume", "all", "-p", "who=me")
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


def test_guide_does_what_it_shows(box: Box) -> None:
    page = GUIDE.read_text()
    (manifest,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (console,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    (box.folder / "captions.yaml").write_text(manifest)
    for part in console.split("$ ")[1:]:
        command, _, shown = part.partition("\n")
        printed = box.windlass(*command.split()[1:]).stdout
        pattern = "".join(".*\n" if line == "..." else re.escape(f"{line}\n") for line in shown.splitlines())
        assert re.fullmatch(pattern, printed, re.DOTALL), printed
    box.wait_for("the end", lambda: box.get("workflow", "captions")["status"]["phase"] == "Succeeded")
    before = nodes(box, "captions")
    assert before["split"]["startedAt"] < before["merge"]["startedAt"]


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
