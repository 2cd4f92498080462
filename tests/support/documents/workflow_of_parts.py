"""A workflow with a DAG, conditions, a retry, outputs and artifacts, and how it ends on any server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from windlass.api.resources import Resource

Json = dict[str, Any]
_SPEC = """
entrypoint: main
arguments: {parameters: [{name: threshold, value: "90"}]}
templates:
- name: main
  dag:
    tasks:
    - {name: split, template: split}
    - name: caption
      template: caption
      depends: split
      withParam: "{{tasks.split.outputs.result}}"
      arguments:
        parameters: [{name: scene, value: "{{item}}"}]
        artifacts: [{name: film, from: "{{tasks.split.outputs.artifacts.film}}"}]
    - {name: flaky, template: flaky, depends: split}
    - name: redo
      template: flaky
      depends: caption
      when: "{{tasks.split.outputs.parameters.score}} < {{workflow.parameters.threshold}}"
    - name: skipped
      template: flaky
      depends: caption
      when: "{{tasks.split.outputs.parameters.score}} > {{workflow.parameters.threshold}}"
- name: split
  outputs:
    parameters: [{name: score, valueFrom: {path: /tmp/score}}]
    artifacts: [{name: film, path: /tmp/film}]
  script:
    image: busybox
    command: [sh]
    source: |
      printf 87 >/tmp/score
      mkdir /tmp/film && printf 'a film' >/tmp/film/content
      echo '["one", "two"]'
- name: caption
  inputs: {parameters: [{name: scene}], artifacts: [{name: film, path: /tmp/in}]}
  outputs: {parameters: [{name: text, valueFrom: {path: /tmp/text}}]}
  container:
    image: busybox
    command: [sh, -c, 'echo "{{inputs.parameters.scene}} of $(cat /tmp/in/content)" >/tmp/text']
- name: flaky
  retryStrategy: {limit: 1}
  container: {image: busybox, command: [sh, -c, "test {{retries}} = 1"]}
"""
PHASES = {
    "split": "Succeeded", "caption(0:one)": "Succeeded", "caption(1:two)": "Succeeded",
    "flaky(0)": "Failed", "flaky(1)": "Succeeded", "redo(0)": "Failed", "redo(1)": "Succeeded", "skipped": "Skipped",
}  # fmt: skip


def workflow_of_parts(kind: Resource, name: str) -> Json:
    head = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}}
    return {**head, "spec": yaml.safe_load(_SPEC)}


def check_end(status: Json) -> None:
    """Compare the status of the workflow with how it has to end."""
    assert (status["phase"], status["progress"]) == ("Succeeded", "5/7"), status.get("message")
    nodes: Iterable[Json] = status["nodes"].values()
    found = {node["displayName"]: node for node in nodes if node["type"] in ("Pod", "Skipped")}
    assert {name: node["phase"] for name, node in found.items()} == PHASES
    texts = [found[f"caption({item})"]["outputs"]["parameters"][0]["value"] for item in ("0:one", "1:two")]
    assert texts == ["one of a film", "two of a film"]
    assert found["split"]["outputs"]["result"] == '["one", "two"]'
    assert found["flaky(0)"]["outputs"]["exitCode"] == "1"
