"""Workflows written in Python: the same YAML as an AIGCWorkflow, printed or submitted.

::

    from windlass.sdk.workflows import DAG, Workflow, script

    @script()
    def split(scenes: int) -> list:
        return list(range(scenes))

    @script()
    def caption(scene: int) -> str:
        return f"scene {scene}"

    with Workflow("captions") as workflow:
        with DAG("main"):
            scenes = split(scenes=3)
            texts = caption(scene=scenes.result.each)

    print(workflow.to_yaml())
    run = workflow.submit()
    run.wait()
    print(run.result("caption"))

A task waits for the tasks that its arguments name. ``a >> b`` adds an order without data.
"""

from __future__ import annotations

from windlass.sdk.workflows.graphs import DAG, GraphTask, Steps
from windlass.sdk.workflows.handle import WorkflowFailed, WorkflowRun
from windlass.sdk.workflows.scripts import ScriptTemplate, script
from windlass.sdk.workflows.templates import (
    Artifact,
    ContainerTemplate,
    JobTemplate,
    Parameter,
    ResourceTemplate,
    SuspendTemplate,
)
from windlass.sdk.workflows.values import When, item
from windlass.sdk.workflows.workflow import Workflow

__all__ = [
    "DAG",
    "Artifact",
    "ContainerTemplate",
    "GraphTask",
    "JobTemplate",
    "Parameter",
    "ResourceTemplate",
    "ScriptTemplate",
    "Steps",
    "SuspendTemplate",
    "When",
    "Workflow",
    "WorkflowFailed",
    "WorkflowRun",
    "item",
    "script",
]
