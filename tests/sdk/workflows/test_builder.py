"""Workflows built in Python are those of the same YAML, and pass the checks of the admission."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import yaml

from windlass.api.errors import WindlassError
from windlass.sdk.workflows import (
    DAG,
    Artifact,
    ContainerTemplate,
    JobTemplate,
    Parameter,
    Steps,
    SuspendTemplate,
    Workflow,
    item,
    script,
)
from windlass.workflow.checks.validation import check_spec

WRITTEN = """
apiVersion: kurator.dev/v1alpha1
kind: AIGCWorkflow
metadata: {generateName: diamond-, labels: {team: media}}
spec:
  entrypoint: diamond
  arguments: {parameters: [{name: style, value: plain}]}
  onExit: tidy
  parallelism: 2
  templates:
  - name: say
    inputs: {parameters: [{name: text}, {name: n, value: '1'}], artifacts: [{name: data, path: /in}]}
    outputs: {parameters: [{name: score, valueFrom: {path: /tmp/score}, globalName: best}]}
    container:
      image: busybox
      command: [sh, -c]
      args: ["echo {{inputs.parameters.text}}"]
      resources: {limits: {nvidia.com/gpu: 2}}
    retryStrategy: {limit: 3}
    timeout: 10m
  - name: tidy
    suspend: {duration: 1s}
  - name: diamond
    dag:
      failFast: false
      tasks:
      - {name: say, template: say, arguments: {parameters: [{name: text, value: a}],
         artifacts: [{name: data, raw: {data: x}}]}}
      - {name: left, template: say, depends: say, withItems: [1, 2], arguments: {parameters: [
         {name: text, value: "{{item}}"}], artifacts: [{name: data, from: "{{tasks.say.outputs.artifacts.data}}"}]}}
      - {name: right, template: say, depends: say, when: '({{tasks.say.outputs.result}} < 90) &&
         ({{tasks.say.status}} == "a b")', arguments: {parameters: [{name: text, value: '{"a": 1}'}],
         artifacts: [{name: data, raw: {data: y}}]}}
      - {name: end, template: steps, depends: left && right}
  - name: steps
    steps:
    - [{name: tidy, template: tidy}]
    - [{name: tidy-2, template: tidy}, {name: tidy-3, template: tidy, continueOn: {failed: true}}]
"""


def built() -> Workflow:
    tidy = SuspendTemplate(name="tidy", duration="1s")
    with Workflow(
        "diamond-",
        arguments={"style": "plain"},
        on_exit=tidy,
        entrypoint="diamond",
        parallelism=2,
        labels={"team": "media"},
    ) as workflow:
        say = ContainerTemplate(
            name="say",
            image="busybox",
            command=["sh", "-c"],
            args=["echo {{inputs.parameters.text}}"],
            inputs=["text", Parameter("n", 1), Artifact("data", path="/in")],
            outputs=[Parameter("score", path="/tmp/score", global_name="best")],
            gpus=2,
            retries=3,
            timeout="10m",
        )
        workflow.add(tidy)
        with DAG("diamond", fail_fast=False):
            top = say(text="a", data="x")
            left = say(name="left", text=item, with_items=[1, 2], data=top.artifact("data"))
            right = say(name="right", text={"a": 1}, data="y", when=(top.result < 90) & (top.status == "a b"))
            with Steps("steps") as steps:
                tidy()
                with steps.parallel():
                    tidy()
                    tidy(continue_on=["failed"])
            [left, right] >> steps(name="end")
    return workflow


def test_the_manifest_is_the_one_written_by_hand() -> None:
    assert yaml.safe_load(built().to_yaml()) == yaml.safe_load(WRITTEN)


def test_what_is_built_passes_the_admission_and_mistakes_are_told() -> None:
    with Workflow("w") as workflow, DAG("main"):
        numbers = _numbers(count=2)
        _double(number=numbers.result.each, label="it's", table="raw")
    assert workflow.problems() == []
    assert check_spec(yaml.safe_load(workflow.to_yaml())["spec"]) == []
    with Workflow("w") as cyclic, DAG("main"):
        first, second = _numbers(count=1, name="a"), _numbers(count=1, name="b")
        first >> second >> first
    assert "these tasks wait for one another" in cyclic.problems()[0]
    with pytest.raises(WindlassError, match="wait for one another"):
        cyclic.submit()
    with pytest.raises(TypeError, match="has no argument 'size'"):
        cyclic.submit(size=1)
    with DAG("main"), pytest.raises(TypeError, match="numbers has no input 'cuont': its inputs are count"):
        _numbers(cuont=1)
    with pytest.raises(RuntimeError, match="outside of a graph"):
        _numbers(count=1)
    with pytest.raises(TypeError, match="join conditions with"):
        bool(numbers.result == "x")
    with pytest.raises(ValueError, match="two opening braces"):
        _braces.source()
    with Workflow("w") as unclear:
        unclear.add(_numbers)
        unclear.add(_double)
    with pytest.raises(ValueError, match="needs an entrypoint: its templates are numbers, double"):
        unclear.manifest()


@script(name="numbers")
def _numbers(count: int) -> list[int]:
    print("counting")
    return list(range(count))


@script(name="double", artifacts=[Artifact("table", path="/tmp/table")])
def _double(number: int, label: str, table: str = "") -> str:
    return f"{label} {2 * number} {table}"


@script()
def _braces() -> str:
    return f"{{{1}}}"


@pytest.mark.parametrize(
    ("template", "inputs", "printed"),
    [
        (_numbers, {"count": "3"}, "[0, 1, 2]\n"),
        (_double, {"number": "4", "label": "12"}, "12 8 /tmp/table\n"),
    ],
)
def test_functions_run_from_their_source(template: Any, inputs: dict[str, str], printed: str) -> None:
    environment = {f"WINDLASS_INPUT_{name}": value for name, value in inputs.items()}
    done = subprocess.run(
        [sys.executable, "-c", template.source()], env=environment, capture_output=True, text=True
    )
    assert done.stdout == printed, done.stderr


def test_jobs_of_any_kind_are_tasks() -> None:
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "t-"}, "spec": {}}
    with Workflow("w") as workflow, DAG("main"):
        JobTemplate(name="train", manifest=manifest, parallel={"degree": {"data": 2}})()
    template = json.loads(json.dumps(workflow.manifest()))["spec"]["templates"]
    assert {"manifest": manifest, "parallel": {"degree": {"data": 2}}} in [one.get("job") for one in template]
