"""AIGCJobs on their way in: alternative spellings, defaults, rejected specs, fields without effect."""

from __future__ import annotations

from typing import Any

import pytest
from memory_admission import World, queue, refused

Obj = dict[str, Any]
ROWS = '{"id": "a", "name": "cup"}\n{"id": "b", "name": "pot"}\n'
INPUT = {"source": "inline", "format": "jsonl", "idField": "id", "inline": ROWS}


@pytest.fixture
def world() -> World:
    found = World()
    found.create(queue("default"))
    return found


def job(name: str = "j", **spec: Any) -> Obj:
    head = {"apiVersion": "kurator.dev/v1alpha1", "kind": "AIGCJob"}
    return {**head, "metadata": {"name": name}, "spec": spec}


def test_default_runtime_and_copied_limit_are_told_and_written(world: World) -> None:
    resources = {"requests": {"nvidia.com/gpu": 1}, "limits": {"memory": "16Gi"}}
    reviewed = world.create(job(priorityClass="high", resources=resources, policy={"backoffLimit": 3}))
    assert reviewed.warnings == [
        "default: no template, command or model given -> built-in runtime builtin-generate is used",
        "alias: nvidia.com/gpu stands in requests only -> copied to limits (1)",
    ]
    spec = reviewed.object["spec"]
    assert spec["resources"]["limits"] == {"memory": "16Gi", "nvidia.com/gpu": 1}
    assert spec["runtimeRef"] == {"name": "builtin-generate"}
    again = world.update(reviewed.object)
    assert (again.warnings, again.object["spec"]) == ([], spec)


def test_other_spelling_of_the_priority_is_accepted(world: World) -> None:
    reviewed = world.create(job(priorityClassName="urgent", runtimeRef={"name": "noop"}, input=INPUT))
    assert reviewed.object["spec"]["priorityClass"] == "urgent"
    assert "priorityClassName" not in reviewed.object["spec"]
    assert reviewed.warnings == ["alias: priorityClassName -> priorityClass"]


def test_unknown_fields_are_kept_with_a_warning(world: World) -> None:
    reviewed = world.create(
        job(runtimeRef={"name": "noop"}, input=INPUT, colour="red", policy={"backofLimit": 1})
    )
    assert reviewed.object["spec"]["colour"] == "red"
    assert reviewed.object["spec"]["policy"] == {"backofLimit": 1}
    assert [text.split()[1] for text in reviewed.warnings] == ["spec.colour", "spec.policy.backofLimit"]


DOUBLE = {**INPUT, "inline": '{"id": "a"}\n{"id": "a"}\n'}
WRONG: list[tuple[Obj, str, str]] = [
    ({"priorityClass": "high", "priorityClassName": "low"}, "spec.priorityClassName", "keep one"),
    ({"model": {"name": "m"}}, "spec.runtimeRef.name", "a model needs a runtime"),
    ({"runtimeRef": {"name": "magic"}}, "spec.runtimeRef.name", "builtin-generate"),
    ({"runtimeRef": {"name": "process"}}, "spec.template.spec.containers[0].command", "reads rows"),
    ({"parallelism": {"min": 3, "max": 2}}, "spec.parallelism.min", "must not be above max (2)"),
    ({"minAvailable": 3}, "spec.minAvailable", "at most 1 workers"),
    (
        {"resources": {"limits": {"nvidia.com/gpu": "0.5"}}},
        "spec.resources.limits.nvidia.com/gpu",
        "gpu-memory",
    ),
    ({"shards": 2}, "spec.shards", "not supported"),
    ({"input": DOUBLE}, "spec.input.inline", "duplicate id"),
    ({"input": {**INPUT, "prompt": "Describe {title}"}}, "spec.input.prompt", "title"),
    ({"outputs": {"path": "out.jsonl"}}, "spec.outputs.path", "absolute path"),
    ({"queue": "nowhere"}, "spec.queue", "does not exist"),
    ({"input": {**INPUT, "inline": "x" * 900_001}}, "spec.input.inline", "use source: file"),
    (
        {"resources": {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}},
        "spec.resources.requests.nvidia.com/gpu",
        "must equal",
    ),
]


def test_what_cannot_run_is_rejected_before_a_gpu_is_bound(world: World) -> None:
    for spec, path, words in WRONG:
        given = {"runtimeRef": {"name": "noop"}, "input": INPUT, **spec}
        if "model" in spec:
            del given["runtimeRef"]
        text = str(refused(world.create, job(**given)))
        assert path in text, (spec, text)
        assert words in text, (spec, text)


def test_rows_of_a_running_job_cannot_be_exchanged(world: World) -> None:
    stored = world.create(job(runtimeRef={"name": "noop"}, input=INPUT)).object
    changed = {**stored, "spec": {**stored["spec"], "input": {**INPUT, "inline": '{"id": "c"}\n'}}}
    assert "immutable while the job runs" in str(refused(world.update, changed))
    world.update({**stored, "spec": {**stored["spec"], "replicas": 4}})
    suspended = world.update({**stored, "spec": {**stored["spec"], "policy": {"suspend": True}}}).object
    world.update({**changed, "spec": {**changed["spec"], "policy": suspended["spec"]["policy"]}})
