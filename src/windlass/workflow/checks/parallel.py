"""Parallel layout of a ``job`` template: its degrees against the pods of the job and the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.kits.printable import with_article
from windlass.workflow.jobs.groups import PodGroupSize, groups_of
from windlass.workflow.jobs.layout import (
    DEGREES,
    PLACEMENTS,
    STRATEGIES,
    Layout,
    layout_of,
    ranks_of,
    ranks_per_pod,
    spans_pods,
)

Json = Mapping[str, Any]
_FIELDS = ("strategy", "degree", "gpusPerReplica", "placement")


@dataclass(frozen=True, slots=True)
class NodeSize:
    """GPUs and labels of a node, as its pods can use them."""

    name: str
    gpus: int
    labels: Mapping[str, str]


def problems_of(job: Json, manifest: Json) -> Iterator[tuple[str, Any, str]]:
    """Yield what is wrong with ``parallel`` of a job template: field, value, message."""
    parallel = job.get("parallel")
    if parallel is None:
        return
    if not isinstance(parallel, Mapping):
        yield "parallel", parallel, f"the fields {', '.join(_FIELDS)} are needed"
        return
    found = list(_shape(parallel))
    yield from found
    if found:
        return
    layout, groups = layout_of(parallel), groups_of(manifest)
    if not groups:
        kind = manifest.get("kind")
        yield (
            "parallel",
            kind,
            f"the pods of {with_article(str(kind))} are not known, so its layout cannot be checked: leave it out",
        )
        return
    if (job.get("scheduling") or {}).get("gang") == "None":
        yield "scheduling.gang", "None", f"{layout.shown} needs all its pods at once: use PerTask"
    yield from _sizes(parallel, layout, groups, manifest)


def _shape(parallel: Json) -> Iterator[tuple[str, Any, str]]:
    strategy = parallel.get("strategy")
    if strategy is not None and strategy not in STRATEGIES:
        yield "parallel.strategy", strategy, f"one of {', '.join(STRATEGIES)} is needed"
    for field in sorted(set(parallel) - set(_FIELDS)):
        yield f"parallel.{field}", parallel[field], f"the fields are {', '.join(_FIELDS)}"
    degree = parallel.get("degree") or {}
    if not isinstance(degree, Mapping):
        yield "parallel.degree", degree, f"the degrees are {', '.join(DEGREES)}"
        return
    for name, value in degree.items():
        if name in DEGREES and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
            yield f"parallel.degree.{name}", value, "a whole number from 1 on is needed"
    unknown = sorted(set(degree) - set(DEGREES))
    if unknown:
        yield "parallel.degree", unknown, f"the degrees are {', '.join(DEGREES)}"
    used = [name for name in DEGREES if degree.get(name, 1) != 1]
    if strategy in DEGREES and (other := [name for name in used if name != strategy]):
        yield "parallel.strategy", strategy, f"the degree of {', '.join(other)} is above 1, too: use hybrid"
    placement = parallel.get("placement") or {}
    if not isinstance(placement, Mapping):
        yield "parallel.placement", placement, "a map such as {tensor: sameNode} is needed"
        return
    for name, word in placement.items():
        path = f"parallel.placement.{name}"
        if name == "rackLabel":
            continue
        if name not in ("tensor", "pipeline"):
            yield path, word, "tensor and pipeline groups can be placed"
        elif word not in PLACEMENTS and "/" not in str(word):
            yield path, word, f"one of {', '.join(PLACEMENTS)}, or a label of nodes, is needed"


def _sizes(
    parallel: Json, layout: Layout, groups: list[PodGroupSize], manifest: Json
) -> Iterator[tuple[str, Any, str]]:
    world, unit = ranks_of(groups)
    if layout.world != world:
        yield (
            "parallel.degree",
            layout.world,
            f"{layout.shown} needs {layout.world} {unit}, and the pods of the job have {world}: "
            "change replicas or a degree",
        )
    replica = parallel.get("gpusPerReplica")
    model = layout.world // layout.degree["data"]
    if replica is not None and replica != model:
        yield (
            "parallel.gpusPerReplica",
            replica,
            f"the degrees without data need {model} GPUs for each replica",
        )
    if layout.level("tensor"):
        yield from _tensor(layout, groups, manifest, unit)


def _tensor(
    layout: Layout, groups: list[PodGroupSize], manifest: Json, unit: str
) -> Iterator[tuple[str, Any, str]]:
    tensor, several = layout.tensor, spans_pods(manifest, groups)
    for group in groups:
        size = ranks_per_pod(group, unit)
        if not size or size % tensor == 0 or (several and tensor % size == 0):
            continue
        text = f"a tensor group of {tensor} {unit} does not fit pods with {size}: "
        if several:
            text += f"neither number divides the other, use {tensor} in each pod"
        else:
            text += "it has to be in one pod, unless the job has pods of one numbered role alone"
        yield "parallel.degree.tensor", tensor, text
        return


def node_problems(job: Json, manifest: Json, nodes: list[NodeSize]) -> Iterator[tuple[str, Any, str]]:
    """Yield why no node holds a pod or a tensor group of a job, with the numbers of the largest."""
    parallel = job.get("parallel")
    largest = max(nodes, key=lambda node: node.gpus, default=None)
    if not isinstance(parallel, Mapping) or largest is None or not largest.gpus:
        return
    layout, groups = layout_of(parallel), groups_of(manifest)
    _, unit = ranks_of(groups)
    if unit != "GPUs":
        return
    for group in groups:
        if group.gpus_per_pod > largest.gpus:
            text = f"a pod of {group.gpus_per_pod} GPUs fits no node: the largest, {largest.name}, has {largest.gpus}"
            yield "parallel.degree", layout.world, text
            return
    room, where = _domain(nodes, layout.level("tensor"))
    if layout.tensor > room and where:
        text = f"a tensor group of {layout.tensor} GPUs fits no {where}: the largest has {room}"
        yield "parallel.degree.tensor", layout.tensor, text


def _domain(nodes: list[NodeSize], label: str) -> tuple[int, str]:
    """Return the most GPUs of one value of a label, and the name of such a domain."""
    if not label:
        return 0, ""
    if label == "kubernetes.io/hostname":
        return max(node.gpus for node in nodes), "node"
    totals: dict[str, int] = {}
    for node in nodes:
        if value := node.labels.get(label):
            totals[value] = totals.get(value, 0) + node.gpus
    return max(totals.values(), default=0), f"group of nodes with one {label}"


def node_advice(job: Json, manifest: Json, nodes: list[NodeSize]) -> Iterator[str]:
    """Yield what the nodes there are mean for a layout that is allowed."""
    parallel = job.get("parallel")
    if not isinstance(parallel, Mapping):
        return
    layout, total = layout_of(parallel), sum(node.gpus for node in nodes)
    world, unit = ranks_of(groups_of(manifest))
    if unit == "GPUs" and world > total:
        yield f"parallel: {layout.shown} needs {world} GPUs, all nodes together have {total}: it waits for more"
    if layout.degree["pipeline"] == 1 or (layout.placement.get("pipeline") or "any") == "any":
        return
    label = layout.level("pipeline")
    if not label:
        yield "parallel.placement.pipeline has no effect: no label of nodes ends in /rack, write placement.rackLabel"
        return
    room, where = _domain(nodes, label)
    if unit == "GPUs" and layout.pipeline_group > room:
        yield (
            f"parallel.placement.pipeline: a pipeline of {layout.pipeline_group} GPUs fits no {where}, the largest has "
            f"{room}: it is spread"
        )


def rack_label(nodes: list[NodeSize]) -> str:
    """Return the label of nodes that names their rack: the most frequent one that ends in ``/rack``."""
    counts: dict[str, int] = {}
    for node in nodes:
        for label in node.labels:
            if label.rpartition("/")[2] in ("rack", "topology-rack"):
                counts[label] = counts.get(label, 0) + 1
    return max(sorted(counts), key=lambda label: counts[label], default="")
