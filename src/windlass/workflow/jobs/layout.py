"""Parallel layout of a job: its degrees, and the topology constraints that they put on its pods.

The ranks of a job are numbered with the tensor degree fastest, then expert, pipeline and
data. Ranks of one tensor group are therefore neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.api import annotations as names
from windlass.api.nodes.topology_levels import LEVELS
from windlass.workflow.jobs.groups import PodGroupSize, groups_of, templates_of

Json = dict[str, Any]
DEGREES = ("data", "tensor", "pipeline", "expert")
STRATEGIES = (*DEGREES, "hybrid")
PLACEMENTS = (*LEVELS, "sameRack", "any")
"""Words of ``placement``. ``sameRack`` stands for ``placement.rackLabel``."""
_DEFAULTS = {"tensor": "sameNode", "pipeline": "any"}
_INDEXED = {("batch.volcano.sh", "Job"): "", ("kubeflow.org", ""): "", ("batch", "Job"): "Indexed"}
"""Kinds with numbered pods, so that neighbours can be placed together. A value is the mode that numbers them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Degrees of a job, and where its groups of ranks are placed."""

    degree: Mapping[str, int]
    placement: Mapping[str, str]
    rack_label: str = ""

    @property
    def world(self) -> int:
        return math.prod(self.degree.values())

    @property
    def tensor(self) -> int:
        return self.degree["tensor"]

    @property
    def pipeline_group(self) -> int:
        """Number of ranks of one pipeline: all its stages with their tensor groups."""
        return self.degree["tensor"] * self.degree["pipeline"]

    @property
    def shown(self) -> str:
        """Return the degrees in words, such as ``data 2 x tensor 2``."""
        return " x ".join(f"{name} {value}" for name, value in self.degree.items() if value > 1) or "1"

    def level(self, group: str) -> str:
        """Return the label of nodes within which a group is placed; empty: anywhere."""
        word = self.placement.get(group) or _DEFAULTS.get(group, "any")
        if word == "sameRack":
            return self.rack_label
        return word if "/" in word else LEVELS.get(word, "")


def layout_of(parallel: Mapping[str, Any]) -> Layout:
    """Return the layout that a valid ``parallel`` describes."""
    degree = parallel.get("degree") or {}
    placement = parallel.get("placement") or {}
    return Layout(
        {name: int(degree.get(name, 1)) for name in DEGREES},
        {key: value for key, value in placement.items() if key in DEGREES},
        str(placement.get("rackLabel") or ""),
    )


def ranks_of(groups: list[PodGroupSize]) -> tuple[int, str]:
    """Return the world size of a job and its unit: GPUs, or processes if no pod asks for GPUs."""
    gpus = sum(group.pods * group.gpus_per_pod for group in groups)
    if gpus:
        return gpus, "GPUs"
    return sum(group.pods * group.processes for group in groups), "processes"


def ranks_per_pod(group: PodGroupSize, unit: str) -> int:
    return group.gpus_per_pod if unit == "GPUs" else group.processes


def spans_pods(manifest: Mapping[str, Any], groups: list[PodGroupSize]) -> bool:
    """Return whether a group of ranks may consist of several pods: they are numbered, and of one role."""
    group = str(manifest.get("apiVersion", "")).rpartition("/")[0]
    kind = str(manifest.get("kind", ""))
    mode = _INDEXED.get((group, kind), _INDEXED.get((group, "")))
    if mode is None or len(groups) != 1:
        return False
    return not mode or (manifest.get("spec") or {}).get("completionMode") == mode


def apply_layout(manifest: Json, parallel: Mapping[str, Any]) -> None:
    """Write the topology constraints of a layout into the pods of a job, and tell its programs the degrees."""
    layout, groups = layout_of(parallel), groups_of(manifest)
    _, unit = ranks_of(groups)
    notes: dict[str, str] = {}
    if spans_pods(manifest, groups) and (per_pod := ranks_per_pod(groups[0], unit)):
        size, level = layout.tensor // per_pod, layout.level("tensor")
        if size > 1 and level:
            notes[names.PODSET_SLICE_SIZE] = str(size)
            notes[names.PODSET_SLICE_REQUIRED] = level
    if layout.degree["pipeline"] > 1 and (level := layout.level("pipeline")):
        notes[names.PODSET_PREFERRED] = level
    variables = [
        {"name": f"{name.upper()}_PARALLEL_SIZE", "value": str(value)}
        for name, value in layout.degree.items()
    ]
    for template in templates_of(manifest):
        if notes:
            metadata = template.setdefault("metadata", {})
            metadata["annotations"] = {**notes, **(metadata.get("annotations") or {})}
        for container in template["spec"]["containers"]:
            known = {entry.get("name") for entry in container.get("env") or ()}
            container["env"] = [
                *(container.get("env") or ()),
                *(entry for entry in variables if entry["name"] not in known),
            ]


def job_of_template(template: Mapping[str, Any], parallel: Mapping[str, Any]) -> Json:
    """Return the Volcano Job of a pod template: one gang of as many pods as the degrees need."""
    layout = layout_of(parallel)
    containers = (template.get("spec") or {}).get("containers") or ()
    per_pod = (
        groups_of({"spec": {"template": {"spec": {"containers": list(containers)}}}})[0].gpus_per_pod or 1
    )
    pods = max(1, -(-layout.world // per_pod))
    body = {**template, "spec": {"restartPolicy": "Never", **(template.get("spec") or {})}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {},
        "spec": {
            "minAvailable": pods,
            "schedulerName": "volcano",
            "plugins": {"svc": [], "env": []},
            "policies": [{"event": "PodFailed", "action": "AbortJob"}],
            "tasks": [{"name": "worker", "replicas": pods, "minAvailable": pods, "template": body}],
        },
    }
