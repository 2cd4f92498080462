"""Stored artifacts are removed at the end of a workflow or with it, and none that are older."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fakeapi import Crash
from workflow_world import WorkflowWorld, captured

from windlass.api.resources import AIGC_WORKFLOWS, PODS, WORKFLOWS, Resource
from windlass.controllers.apply_effects import Failure
from windlass.controllers.workflow import labels
from windlass.controllers.workflow.collection import SCRIPT

MANIFEST = """
metadata: {{name: w}}
spec:
  entrypoint: main
  {spec}
  templates:
  - name: main
    dag:
      tasks: [{{name: a, template: make}}, {{name: b, template: keep}}]
  - name: make
    outputs: {{artifacts: [{{name: out, path: /data/x{own}}}]}}
    container: {{image: x, command: [x]}}
  - name: keep
    outputs: {{artifacts: [{{name: out, path: /data/x, globalName: result}}]}}
    container: {{image: x, command: [x]}}
"""
MADE, KEPT = "aa11", "bb22"


def play(pod: dict[str, Any]) -> tuple[int, str]:
    if "artifact-gc" in pod["metadata"]["name"]:
        return 0, ""
    digest = MADE if pod["metadata"]["annotations"][labels.NODE_NAME] == "w.a" else KEPT
    return 0, captured(**{"artifact/out": digest})


def collector(world: WorkflowWorld) -> list[str]:
    """Return the arguments of the pod that removes artifacts, without folder and time; empty without one."""
    for pod in world.api.objects(PODS):
        if "artifact-gc" in pod["metadata"]["name"]:
            return pod["spec"]["containers"][0]["command"][5:]
    return []


@pytest.mark.parametrize(
    ("spec", "own", "expected"),
    [
        ("retain: {}", "", []),
        ("retain: {until: forever}", "", []),
        ("retain: {until: success}", "", ["0", "1", MADE]),
        ("retain: {intermediate: false}", "", ["0", "1", MADE]),
        ("retain: {maxBytes: 1Ki}", "", ["1024", "0", MADE]),
        ("artifactGC: {strategy: OnWorkflowCompletion}", "", ["0", "2", MADE, KEPT]),
        ("artifactGC: {strategy: OnWorkflowCompletion}", ", artifactGC: {strategy: Never}", ["0", "1", KEPT]),
        ("activeDeadlineSeconds: 900", ", artifactGC: {strategy: OnWorkflowCompletion}", ["0", "1", MADE]),
    ],
)
def test_artifacts_at_the_end_of_a_workflow(spec: str, own: str, expected: list[str]) -> None:
    world = WorkflowWorld(MANIFEST.format(spec=spec, own=own), play)
    world.run()
    world.settle()
    assert world.status()["phase"] == "Succeeded"
    assert collector(world) == expected


def test_artifacts_are_removed_before_the_workflow_is_deleted() -> None:
    spec = "retain: {until: ttl}\n  ttlStrategy: {secondsAfterCompletion: 10}"
    for crashes in (None, 0, 1, 2):
        world = WorkflowWorld(MANIFEST.format(spec=spec, own=""), play)
        world.run()
        world.settle()
        assert collector(world) == []
        world.advance(11.0)
        world.api.crash_after = crashes
        try:
            world.settle()
        except Crash:
            world.restart()
            world.settle()
        world.api.crash_after = None
        assert sorted(collector(world)[2:]) == [MADE, KEPT]
        assert world.api.object(WORKFLOWS, "default/w") is not None
        if crashes != 2:
            world.end_pods()
        else:
            world.advance(601.0)  # the pod cannot be placed
        world.settle()
        assert world.api.object(WORKFLOWS, "default/w") is None


ON_DELETION = "artifactGC: {strategy: OnWorkflowDeletion}"
KEY = "default/w"


def held(world: WorkflowWorld) -> bool:
    return labels.ARTIFACT_GC in (world.api.object(world.kind, KEY)["metadata"].get("finalizers") or ())


def delete(world: WorkflowWorld) -> None:
    asyncio.run(world.api.delete(world.kind, "w", "default"))
    world.settle()


@pytest.mark.parametrize(
    ("spec", "own", "expected"),
    [
        ("retain: {until: ttl}", "", False),
        ("artifactGC: {strategy: Never}", "", False),
        (ON_DELETION, "", True),
        ("artifactGC: {strategy: OnWorkflowCompletion}", "", True),
        ("activeDeadlineSeconds: 900", ", artifactGC: {strategy: OnWorkflowDeletion}", True),
    ],
)
def test_finalizer_is_set_before_the_first_pod(spec: str, own: str, expected: bool) -> None:
    for crash in (None, 1):
        world = WorkflowWorld(MANIFEST.format(spec=spec, own=own), play)
        world.api.crash_after = crash
        try:
            world.settle()
        except Crash:
            assert held(world) or not expected or not world.pods()
            world.restart()
            world.settle()
        assert held(world) is expected
        assert world.pods() == ["w.a", "w.b"]


@pytest.mark.parametrize("kind", [WORKFLOWS, AIGC_WORKFLOWS])
def test_deletion_by_hand_removes_artifacts_first(kind: Resource) -> None:
    for crash in (None, 0, 1):
        world = WorkflowWorld(MANIFEST.format(spec=ON_DELETION, own=""), play, kind)
        world.run()
        world.settle()
        assert held(world)
        assert collector(world) == []
        world.api.crash_after = crash
        try:
            delete(world)
        except Crash:
            world.restart()
            world.settle()
            asyncio.run(world.api.delete(world.kind, "w", "default"))
            world.settle()
        world.api.crash_after = None
        assert sorted(collector(world)[2:]) == [MADE, KEPT]
        assert held(world)
        world.end_pods()
        world.settle()
        assert world.api.object(kind, KEY) is None


def test_finalizer_goes_once_everything_was_removed_at_the_end() -> None:
    world = WorkflowWorld(MANIFEST.format(spec="artifactGC: {strategy: OnWorkflowCompletion}", own=""), play)
    world.run()
    world.settle()
    assert held(world)
    world.end_pods()
    world.settle()
    assert not held(world)


def test_deletion_of_a_running_workflow_ends_its_pods_first() -> None:
    world = WorkflowWorld(MANIFEST.format(spec=ON_DELETION, own=""), play)
    world.settle()
    world.api.change(PODS, "default/" + world.pod("w.b")["metadata"]["name"], spec={"nodeName": "n1"})
    done = world.pod("w.a")["metadata"]["name"]
    world.api.texts[done] = captured(**{"artifact/out": MADE})
    state = {"name": "main", "state": {"terminated": {"exitCode": 0}}}
    world.api.change(PODS, f"default/{done}", status={"phase": "Succeeded", "containerStatuses": [state]})
    world.settle()
    delete(world)
    assert world.pod("w.b")["metadata"]["deletionTimestamp"]
    assert collector(world) == []  # the pod still runs, for its time of grace
    world.api.remove(PODS, "default/" + world.pod("w.b")["metadata"]["name"])
    world.settle()
    assert collector(world)[2:] == [MADE]
    world.end_pods()
    world.settle()
    assert world.api.object(WORKFLOWS, KEY) is None


def test_failed_removal_is_told_and_keeps_the_workflow_until_it_is_forced() -> None:
    fails = True

    def failing(pod: dict[str, Any]) -> tuple[int, str]:
        return (1, "") if fails and "artifact-gc" in pod["metadata"]["name"] else play(pod)

    world = WorkflowWorld(MANIFEST.format(spec=ON_DELETION, own=""), failing)
    world.run()
    delete(world)
    world.end_pods()
    world.settle()
    assert held(world)
    (told,) = [one for one in world.status()["conditions"] if one["type"] == "ArtifactGCError"]
    assert "failed: main: Error (exit code 1)" in told["message"]
    assert "forceFinalizerRemoval" in told["message"]
    world.api.change(WORKFLOWS, KEY, spec={"artifactGC": {"forceFinalizerRemoval": True}})
    world.settle()
    assert world.api.object(WORKFLOWS, KEY) is None


def test_failed_removal_is_tried_again_once_its_pod_is_deleted() -> None:
    codes = [1, 0]

    def recovering(pod: dict[str, Any]) -> tuple[int, str]:
        return (codes.pop(0), "") if "artifact-gc" in pod["metadata"]["name"] else play(pod)

    world = WorkflowWorld(MANIFEST.format(spec=ON_DELETION, own=""), recovering)
    world.run()
    delete(world)
    world.end_pods()
    world.settle()
    (pod,) = [
        one["metadata"]["name"] for one in world.api.objects(PODS) if "artifact-gc" in one["metadata"]["name"]
    ]
    world.api.remove(PODS, f"default/{pod}")
    world.settle()
    world.end_pods()
    world.settle()
    assert world.api.object(WORKFLOWS, KEY) is None


def test_workflow_goes_with_its_namespace_where_no_pod_can_be_created() -> None:
    world = WorkflowWorld(MANIFEST.format(spec=ON_DELETION, own=""), play)
    world.run()
    world.settle()
    asyncio.run(world.api.delete(WORKFLOWS, "w", "default"))
    effects = asyncio.run(world.controller.reconcile(KEY))
    (create,) = effects.creates
    text = "unable to create new content in namespace default because it is being terminated"
    world.controller.note_failures(KEY, [Failure(create, False, text, refused=True)])
    world.settle()
    assert collector(world) == []
    assert world.api.object(WORKFLOWS, KEY) is None


def test_ttl_removes_artifacts_once() -> None:
    spec = ON_DELETION + "\n  ttlStrategy: {secondsAfterCompletion: 10}"
    world = WorkflowWorld(MANIFEST.format(spec=spec, own=""), play)
    world.run()
    world.settle()
    world.advance(11.0)
    world.settle()
    assert sorted(collector(world)[2:]) == [MADE, KEPT]
    world.end_pods()
    world.settle()
    assert world.api.object(WORKFLOWS, KEY) is None


def test_files_of_other_workflows_and_those_below_the_limit_stay(tmp_path: Path) -> None:
    for at, name in enumerate(("older", "gone", "first", "second")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1000 + 100 * at, 1000 + 100 * at))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), "1050", "150", "3", "older", "gone", "missing"]
    subprocess.run([*command, "second", "first"], check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["older", "second"]
