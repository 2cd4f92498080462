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


def test_unknown_fields_inside_of_objects_are_named_with_their_path(world: World) -> None:
    stage = {"name": "a", "kind": "gpu", "runtimeRef": {"name": "noop", "urll": ""}, "output": {"max": 3}}
    reviewed = world.create(
        job(
            input={**INPUT, "promt": "D {name}", "itemSchema": {"any": {"thing": 1}}},
            stages=[stage],
            template={"spec": {"containers": [{"name": "worker"}]}},
            progressive={"startWhen": {"items": 50, "readyBatches": 1}},
            grouping={"by": "name", "perGroup": {"cup": {"paralelism": 1, "model": "m"}}},
            outputs={"path": "/data/o.jsonl", "quality": {"minimum": 3}},
            autoscale={"max": 1, "plugin": {"inline": "class A: pass", "clas": "A"}},
            model={"name": "m", "source": "file:///m", "preload": {"nodes": {"least": 1}}},
        )
    )
    unknown = [text.split()[1] for text in reviewed.warnings if "is not a field" in text]
    assert unknown == [
        "spec.input.promt",
        "spec.stages[0].runtimeRef.urll",
        "spec.stages[0].output.max",
        "spec.progressive.startWhen.items",
        "spec.outputs.quality.minimum",
        "spec.autoscale.plugin.clas",
        "spec.model.preload.nodes.least",
        "spec.grouping.perGroup.cup.paralelism",
    ]


def test_fields_that_windlass_reads_are_known(world: World) -> None:
    spec = {
        "runtimeRef": {"name": "noop", "concurrency": 2, "chunk": 1, "parameters": {"any": {"thing": 1}}},
        "input": {"source": "pvc", "pvc": {"claimName": "c", "path": "rows.csv"}, "format": "csv"},
        "outputs": {"pvc": {"claimName": "c"}, "quality": {"scorer": {"name": "length", "min": 1}}},
        "items": {"deadLetter": {"path": "/data/d.jsonl"}, "speculative": {"enabled": True}},
        "batching": {"maxBytes": "1Mi", "targetSeconds": "1m", "size": 3},
        "grouping": {"by": "name", "perGroup": {"parallelism": 2}},
    }
    assert [text for text in world.create(job(**spec)).warnings if "is not a field" in text] == []


DOUBLE = {**INPUT, "inline": '{"id": "a"}\n{"id": "a"}\n'}
WRONG: list[tuple[Obj, str, str]] = [
    ({"priorityClass": "high", "priorityClassName": "low"}, "spec.priorityClassName", "keep one"),
    ({"model": {"name": "m"}}, "spec.runtimeRef.name", "a model needs a runtime"),
    ({"model": {"name": "m", "source": "s3://b/m"}}, "spec.model.source", "begin with one of"),
    ({"model": {"name": "m", "source": "pvc://"}}, "spec.model.source", "must name a claim"),
    (
        {"model": {"name": "m", "source": "hf", "preload": {"strategy": "PVC"}}},
        "spec.model.preload.claimName",
        "set model.source to pvc://CLAIM/PATH",
    ),
    (
        {"model": {"name": "m", "source": "hf", "preload": {"strategy": "Image"}}},
        "spec.model.source",
        "oci://IMAGE",
    ),
    ({"runtimeRef": {"name": "magic"}}, "spec.runtimeRef.name", "builtin-generate"),
    ({"runtimeRef": {"name": "process"}}, "spec.template.spec.containers[0].command", "reads rows"),
    ({"parallelism": {"min": 3, "max": 2}}, "spec.parallelism.min", "must not be above max (2)"),
    ({"minAvailable": 3}, "spec.minAvailable", "at most 1 workers"),
    (
        {"resources": {"limits": {"nvidia.com/gpu": "0.5"}}},
        "spec.resources.limits.nvidia.com/gpu",
        "gpu-memory",
    ),
    ({"shards": 2, "stages": [{"name": "a"}]}, "spec.shards", "run the stage as a job of its own"),
    (
        {"shards": 2, "model": {"name": "m", "sharing": {"mode": "Server"}}},
        "sharing.mode",
        "second container",
    ),
    ({"shards": 2, "placement": {"topology": "rack"}}, "spec.placement.topology", "use one of sameNode"),
    ({"shards": 0}, "spec.shards", "greater than or equal to 1"),
    ({"input": DOUBLE}, "spec.input.inline", "duplicate id"),
    ({"input": {**INPUT, "prompt": "Describe {title}"}}, "spec.input.prompt", "title"),
    ({"outputs": {"path": "out.jsonl"}}, "spec.outputs.path", "absolute path"),
    ({"queue": "nowhere"}, "spec.queue", "does not exist"),
    ({"priorityClass": "hihg"}, "spec.priorityClass", "use one of: urgent, high, medium, low"),
    ({"priorityClassName": "hihg"}, "spec.priorityClass", "PriorityClass hihg does not exist"),
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


WRONG_STAGES: list[tuple[Any, Obj, str, str]] = [
    ([{"name": "a"}, {"name": "a"}], {}, "spec.stages[1].name", "Duplicate"),
    ([{"name": "Big_Name"}], {}, "spec.stages[0].name", "lower case"),
    ([{"name": "driver"}], {}, "spec.stages[0].name", "choose another"),
    ([{"name": "a" * 21}], {}, "spec.stages[0].name", "20 characters"),
    ([{"name": "a", "kind": "tpu"}], {}, "spec.stages[0].kind", "cpu"),
    (
        [{"name": "a", "kind": "cpu", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
        {},
        "limits",
        "kind: gpu",
    ),
    ([{"name": "a", "parallelism": {"min": 3, "max": 2}}], {}, "parallelism.min", "above max (2)"),
    ([{"name": "a", "parallelism": 0}], {}, "spec.stages[0].parallelism", "at least 1|or equal to 1"),
    ([{"name": "a", "parallelism": {"max": 10_001}}], {}, "parallelism.max", "at most 10000"),
    ([{"name": "a", "runtime": "magic"}], {}, "spec.stages[0].runtimeRef.name", "builtin-generate"),
    ([{"name": "a", "output": {"maxItems": 0}}], {}, "spec.stages[0].output.maxItems", "1"),
    ([{"name": "a"}], {"contextCache": {"enabled": True}}, "spec.contextCache", "get no context"),
    ([{"name": "a"}], {"progressive": {"gpuBind": "Soon"}}, "spec.progressive.gpuBind", "Late"),
    (
        [{"name": "a"}],
        {"progressive": {"startWhen": {"readyFraction": 2}}},
        "spec.progressive.startWhen.readyFraction",
        "at most 1",
    ),
]


def test_wrong_stages_are_rejected_with_their_path(world: World) -> None:
    for stages, more, path, words in WRONG_STAGES:
        text = str(refused(world.create, job(input=INPUT, stages=stages, **more)))
        assert path in text, (stages, text)
        assert any(word in text for word in words.split("|")), (stages, text)


def test_stages_are_accepted_and_what_has_no_effect_is_told(world: World) -> None:
    stages = [{"name": "a", "kind": "cpu", "command": ["cat"]}, {"name": "b", "kind": "gpu", "colour": 1}]
    later = {"prompt": "Say {words}"}  # a column that the first stage makes
    reviewed = world.create(
        job(input={**INPUT, **later}, stages=stages, progressive={"gpuBind": "Reserve"}, autoscale={"max": 3})
    )
    assert [text.split(":")[1].strip() for text in reviewed.warnings] == [
        "spec.stages[1].colour is not a field of AIGCJob",
    ]
    assert world.create(
        job("k", input=INPUT, runtimeRef={"name": "noop"}, progressive={"onNoGPU": "Wait"})
    ).warnings


def test_rows_of_a_running_job_cannot_be_exchanged(world: World) -> None:
    stored = world.create(job(runtimeRef={"name": "noop"}, input=INPUT)).object
    changed = {**stored, "spec": {**stored["spec"], "input": {**INPUT, "inline": '{"id": "c"}\n'}}}
    assert "immutable while the job runs" in str(refused(world.update, changed))
    world.update({**stored, "spec": {**stored["spec"], "replicas": 4}})
    suspended = world.update({**stored, "spec": {**stored["spec"], "policy": {"suspend": True}}}).object
    world.update({**changed, "spec": {**changed["spec"], "policy": suspended["spec"]["policy"]}})
