"""Validation of ``flow.volcano.sh``: the field that is named, and what to write instead."""

from __future__ import annotations

from typing import Any

from windlass.api import defaults
from windlass.api.resources import JOB_FLOWS, JOB_TEMPLATES
from windlass.api.validation import validate

Json = dict[str, Any]


def problems(*flows: Json) -> dict[str, str]:
    obj = {
        "apiVersion": JOB_FLOWS.api_version,
        "kind": "JobFlow",
        "metadata": {"name": "f", "namespace": "default"},
        "spec": {"flows": list(flows)},
    }
    return {error.field: error.message for error in validate(JOB_FLOWS, obj)}


def after(name: str, *targets: str, **probe: list[Json]) -> Json:
    return {"name": name, "dependsOn": {"targets": list(targets), **({"probe": probe} if probe else {})}}


def test_dependencies_of_a_flow() -> None:
    assert problems({"name": "a"}, after("b", "a"), after("c", "a", "b")) == {}
    assert problems({"name": "a"}, after("b", "x")) == {
        "spec.flows[1].dependsOn.targets[0]": 'Unsupported value: "x": supported values: "a", "b"'
    }
    assert problems(after("a", "a")) == {
        "spec.flows[0].dependsOn.targets[0]": 'Invalid value: "a": a job cannot depend on itself'
    }
    assert problems(after("a", "b"), after("b", "a")) == {
        "spec.flows": 'Invalid value: "a -> b -> a": these jobs wait for one another: remove one of the dependencies'
    }
    assert problems({"name": "a"}, {"name": "a"}) == {"spec.flows[1].name": 'Duplicate value: "a"'}


def test_probes_of_a_flow() -> None:
    path = "spec.flows[1].dependsOn"
    good = {
        "httpGetList": [{"taskName": "t", "port": 80}],
        "taskStatusList": [{"taskName": "t", "phase": "Running"}],
    }
    assert problems({"name": "a"}, after("b", "a", **good)) == {}
    bad = {"tcpSocketList": [{"port": 0}], "taskStatusList": [{"taskName": "t", "phase": "Up"}]}
    found = problems({"name": "a"}, after("b", **bad))
    assert found.keys() == {
        f"{path}.targets",
        f"{path}.probe.tcpSocketList[0].taskName",
        f"{path}.probe.tcpSocketList[0].port",
        f"{path}.probe.taskStatusList[0].phase",
    }


def test_a_template_is_checked_as_a_job() -> None:
    def found(spec: Json) -> dict[str, str]:
        obj = {
            "apiVersion": JOB_TEMPLATES.api_version,
            "kind": "JobTemplate",
            "metadata": {"name": "a", "namespace": "default"},
            "spec": spec,
        }
        defaults.apply(JOB_TEMPLATES, obj)
        return {error.field: error.message for error in validate(JOB_TEMPLATES, obj)}

    task = {"replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    assert found({"tasks": [task]}) == {}
    assert found({"tasks": [task], "minAvailable": 3}).keys() == {"spec.minAvailable"}
    assert found({"tasks": [{**task, "template": {}}]}).keys() == {"spec.tasks[0].template.spec"}
    assert found({}).keys() == {"spec.tasks"}
