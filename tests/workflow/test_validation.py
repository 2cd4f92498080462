"""Specs that are refused before anything begins, with the field and the remedy."""

from __future__ import annotations

import yaml

from windlass.workflow.checks.advice import advice
from windlass.workflow.checks.validation import check_spec, find_cycle

LEAF = {"name": "leaf", "container": {"image": "x"}}
NEEDS = {"name": "needs", "inputs": {"parameters": [{"name": "p"}]}, "container": {"image": "x"}}


# ruff: noqa: E501
def problems(main: str, **spec: object) -> list[tuple[str, str]]:
    template = {"name": "main", **yaml.safe_load(main)}
    found = check_spec({"entrypoint": "main", "templates": [template, LEAF, NEEDS], **spec})
    return [(problem.path, problem.message) for problem in found]


REFUSED: dict[str, tuple[str, str] | None] = {
    "dag: {tasks: [{name: a, template: leaf, depends: b}, {name: b, template: leaf, depends: a}]}": (
        "spec.templates[0].dag.tasks",
        "these tasks wait for one another",
    ),
    "dag: {tasks: [{name: a, template: leaf, dependencies: [z]}]}": (
        "spec.templates[0].dag.tasks[0].dependencies",
        "task 'z' does not exist: the tasks are a",
    ),
    "dag: {tasks: [{name: a, template: leaf}, {name: a, template: leaf}]}": (
        "spec.templates[0].dag.tasks[1].name",
        "task name 'a' is not unique",
    ),
    "dag: {tasks: [{name: a, template: leaf}], target: zz}": ("spec.templates[0].dag.target", "'zz' does not exist"),
    "dag: {tasks: [{name: a, template: gone}]}": ("spec.templates[0].dag.tasks[0].template", "'gone' does not exist"),
    "dag: {tasks: [{name: a, template: leaf}, {name: b, template: leaf, depends: 'a.Done'}]}": (
        "spec.templates[0].dag.tasks[1].depends",
        "task result 'Done' of task 'a' is invalid",
    ),
    "dag: {tasks: [{name: a, template: leaf}, {name: b, template: leaf, depends: a, continueOn: {failed: true}}]}": (
        "spec.templates[0].dag.tasks[1].continueOn",
        "write A.Failed",
    ),
    "dag: {tasks: [{name: a, template: leaf}, {name: b, template: needs, arguments: {parameters: [{name: p, value: '{{tasks.a.outputs.result}}'}]}}]}": (
        "spec.templates[0].dag.tasks[1]",
        "task 'b' does not depend on 'a'",
    ),
    "steps: [[{name: a, template: needs}]]": (
        "spec.templates[0].steps[0][0].arguments.parameters",
        "template 'needs' needs this input",
    ),
    "steps: [[{name: a, template: leaf, when: '{{steps.b.status}} == x'}, {name: b, template: leaf}]]": (
        "spec.templates[0].steps[0][0]",
        "no earlier group has a step 'b'",
    ),
    "steps: [[{name: a, template: leaf, withItems: [1], withParam: '[]'}]]": (
        "spec.templates[0].steps[0][0]",
        "exclude one another",
    ),
    "steps: [[{name: a, template: leaf, withSequence: {start: 1}}]]": (
        "spec.templates[0].steps[0][0].withSequence",
        "needs count or end",
    ),
    "container: {image: x, args: ['{{inputs.parameters.q}}']}": ("spec.templates[0]", "no such input"),
    "container: {image: x, args: ['{{workflow.parameters.q}}']}": ("spec.templates[0]", "no such parameter"),
    "http: {url: x}": ("spec.templates[0].http", "not run"),
    "{}": ("spec.templates[0]", "needs one of"),
    "{container: {image: x}, suspend: {}}": ("spec.templates[0]", "only one is allowed"),
    "{container: {image: x}, timeout: soon}": ("spec.templates[0].timeout", "not a duration"),
    "{container: {image: x}, retryStrategy: {retryPolicy: Never}}": ("spec.templates[0].retryStrategy.retryPolicy", "Always"),
    "{container: {image: x}, retryStrategy: {expression: 'a =='}}": (
        "spec.templates[0].retryStrategy.expression",
        "not a valid expression",
    ),
    "{container: {image: x}, retryStrategy: {backoff: {factor: 2}}}": (
        "spec.templates[0].retryStrategy.backoff.duration",
        "required",
    ),
    "{container: {image: '{{item}}'}}": None,
}  # fmt: skip


def test_specs_that_are_refused() -> None:
    for main, expected in REFUSED.items():
        found = problems(main)
        if expected is None:
            assert found == [], main
            continue
        assert any(path == expected[0] and expected[1] in message for path, message in found), (main, found)


def test_entrypoint_and_hooks_are_checked() -> None:
    assert problems("container: {image: x}", entrypoint=None)[0][0] == "spec.entrypoint"
    assert (
        "'other' does not exist: the templates are leaf, main, needs"
        in problems("container: {}", entrypoint="other")[0][1]
    )
    assert problems("container: {}", onExit="gone")[0][0] == "spec.onExit"
    assert problems("container: {}", hooks={"h": {"template": "leaf"}})[0][0] == "spec.hooks[h].expression"


def test_cycles_are_named_from_their_beginning() -> None:
    assert find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert find_cycle({"a": ["b", "c"], "b": ["d"], "c": ["d"], "d": []}) == []
    assert find_cycle({str(n): [str(n + 1)] for n in range(5000)}) == []


def test_too_many_tasks_are_refused() -> None:
    tasks = [{"name": f"t{n}", "template": "leaf"} for n in range(5001)]
    found = check_spec({"entrypoint": "main", "templates": [{"name": "main", "dag": {"tasks": tasks}}, LEAF]})
    assert "use a loop" in found[0].message


def test_fields_without_effect_are_told() -> None:
    spec = {
        "entrypoint": "main",
        "archiveLogs": True,
        "retrys": 3,
        "templates": [
            {"name": "main", "steps": [[{"name": "a", "template": "leaf", "wen": "1 == 2"}]]},
            {**LEAF, "daemon": True, "successCondition": "x"},
        ],
    }
    assert list(advice(spec, "spec")) == [
        "spec.archiveLogs has no effect: logs stay with the pods",
        "spec.retrys is not a known field, and has no effect",
        "spec.templates[0].steps[0][0].wen is not a known field, and has no effect",
        "spec.templates[1].daemon has no effect: the container is run to its end like any other",
        "spec.templates[1].successCondition is not a known field, and has no effect",
    ]
    assert list(advice({"entrypoint": "leaf", "templates": [LEAF, NEEDS]}, "spec")) == []
