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
    "steps: [[{name: a, template: leaf, contextCache: {window: 30s}}]]": (
        "spec.templates[0].steps[0][0].contextCache",
        "the task has no loop over segments: add withParam",
    ),
    "dag: {tasks: [{name: a, template: leaf, withItems: [], contextCache: {mode: Output}}]}": (
        "spec.templates[0].dag.tasks[0].contextCache.mode",
        "for a chain of results use an AIGCJob",
    ),
    "dag: {tasks: [{name: a, template: leaf, withItems: [], contextCache: {window: long}}]}": (
        "spec.templates[0].dag.tasks[0].contextCache.window",
        "a duration such as 30s is needed",
    ),
    "steps: [[{name: a, template: leaf, withSequence: {start: 1}}]]": (
        "spec.templates[0].steps[0][0].withSequence",
        "needs count or end",
    ),
    "container: {image: x, args: ['{{inputs.parameters.q}}']}": ("spec.templates[0]", "no input 'q': its parameters are none"),
    "container: {image: x, args: ['{{workflow.parameters.q}}']}": ("spec.templates[0]", "no parameter 'q': add it"),
    "plugin: {hello: {}}": None,
    "plugin: {hello: {}, other: {}}": ("spec.templates[0].plugin", "the name of one plugin is needed"),
    "http: {method: GET}": ("spec.templates[0].http.url", "address of the request is needed"),
    "http: {url: x, successCondition: 'a =='}": ("spec.templates[0].http.successCondition", "not a valid expression"),
    "container: {image: x, command: [x]}\ninputs: {artifacts: [{name: a, path: /a, gcs: {bucket: b, key: k}}]}": (
        "spec.templates[0].inputs.artifacts[0].gcs", "fetched from http, s3, git"),
    "container: {image: x, command: [x]}\ninputs: {artifacts: [{name: a, path: /a, s3: {bucket: b, key: k}}]}": (
        "spec.templates[0].inputs.artifacts[0].s3.endpoint", "is needed"),
    "container: {image: x, command: [x]}\ninputs: {artifacts: [{name: a, path: /a, http: {url: 'http://x/{{workflow.name}}'}}]}": None,
    "container: {image: x, command: [x]}\ninputs: {artifacts: [{name: a, path: /a, http: {url: 'file:///etc/x'}}]}": (
        "spec.templates[0].inputs.artifacts[0].http.url", "begins with http:// or https://"),
    "container: {image: x, command: [x]}\noutputs: {artifacts: [{name: a, path: /a, http: {url: 'ftp://x'}}]}": (
        "spec.templates[0].outputs.artifacts[0].http.url", "begins with http:// or https://"),
    "function: {entryPoint: captions}": ("spec.templates[0].function.entryPoint", "MODULE:FUNCTION"),
    "containerSet: {containers: [{name: a, command: [x], dependencies: [b]}]}": (
        "spec.templates[0].containerSet.containers[0].dependencies", "the set has no container 'b'"),
    "containerSet: {containers: [{name: a, dependencies: [b]}, {name: b}]}": (
        "spec.templates[0].containerSet.containers[1].command", "needs a command"),
    "containerSet: {containers: [{name: a, command: [x], dependencies: [b]}, {name: b, command: [x], dependencies: [a]}]}": (
        "spec.templates[0].containerSet.containers", "wait for one another"),
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
    "steps: [[{name: a, template: leaf, when: '1 <> (2'}]]": ("spec.templates[0].steps[0][0].when", "a value is missing before '>'"),
    "steps: [[{name: a, template: leaf, when: '{{workflow.name}} == (2'}]]": ("spec.templates[0].steps[0][0].when", "')' is missing"),
    "steps: [[{name: a, template: leaf, when: \"'{{workflow.name}}' <> 'a'\"}]]": (
        "spec.templates[0].steps[0][0].when", "a value is missing"),
    "steps: [[{name: a, template: leaf, when: word}]]": ("spec.templates[0].steps[0][0].when", "a comparison is needed"),
    "steps: [[{name: a, template: leaf, when: '{{workflow.name}} {{workflow.uid}} 2'}]]": None,
    "steps: [[{name: a, template: leaf, when: '(1 == {{workflow.name}}'}]]": None,
    "steps: [[{name: a, template: leaf, when: '{{workflow.name}}'}]]": None,
    "container: {image: x, args: ['{{=1 +}}']}": ("spec.templates[0]", "a value is missing at the end"),
    "steps: [[{name: false, template: leaf}]]": ("spec.templates[0].steps[0][0].name", "write it in quotes"),
    "dag: {tasks: [{name: 1, template: leaf}]}": ("spec.templates[0].dag.tasks[0].name", "write it in quotes"),
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
    named = problems("container: {image: x}", arguments={"parameters": [{"name": False, "value": "1"}]})
    assert named[0][0] == "spec.arguments.parameters[0].name"
    assert 'such as name: "n"' in named[0][1]
    assert problems("container: {}", podGC={"strategy": "Never"})[0][0] == "spec.podGC.strategy"
    assert "is not a duration" in problems("container: {}", podGC={"deleteDelayDuration": "soon"})[0][1]
    assert "0 s or more" in problems("container: {}", podGC={"deleteDelayDuration": "-5s"})[0][1]
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
        "executor": {"serviceAccountName": "x"},
        "retrys": 3,
        "templates": [
            {"name": "main", "steps": [[{"name": "a", "template": "leaf", "wen": "1 == 2"}]]},
            {**LEAF, "metrics": {"a": 1}, "successCondition": "x"},
        ],
    }
    assert list(advice(spec, "spec")) == [
        "spec.executor has no effect: no executor runs next to the containers",
        "spec.retrys is not a known field, and has no effect",
        "spec.templates[0].steps[0][0].wen is not a known field, and has no effect",
        "spec.templates[1].metrics has no effect: custom metrics of templates are not published",
        "spec.templates[1].successCondition is not a known field, and has no effect",
    ]
    assert list(advice({"entrypoint": "leaf", "templates": [LEAF, NEEDS]}, "spec")) == []
