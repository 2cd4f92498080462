"""Parallel layout of a ``job`` template: its degrees against the GPUs and the pods of the job."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]
DEGREES = ("data", "tensor", "pipeline", "expert")
STRATEGIES = (*DEGREES, "hybrid")
GANGS = ("PerTask", "PerWorkflow", "None")
_COUNTS = ("replicas", "parallelism", "numNodes")


@dataclass(frozen=True, slots=True)
class PodGroupSize:
    """Equal pods of a job."""

    pods: int
    gpus_per_pod: int


def groups_of(manifest: Json) -> list[PodGroupSize]:
    """Return the groups of pods that a job's manifest has, of any kind with pod templates."""
    return list(_groups(manifest.get("spec") or {}, 1))


def _groups(value: Any, factor: int) -> Iterator[PodGroupSize]:
    if isinstance(value, Mapping):
        count = next((value[field] for field in _COUNTS if isinstance(value.get(field), int)), 1)
        template = value.get("template")
        if isinstance(template, Mapping):
            containers = (template.get("spec") or {}).get("containers")
            if isinstance(containers, list):
                yield PodGroupSize(count * factor, sum(map(_gpus, containers)))
                return
        for item in value.values():
            yield from _groups(item, count * factor)
    elif isinstance(value, list):
        for item in value:
            yield from _groups(item, factor)


def _gpus(container: Json) -> int:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    found = 0
    for name, amount in amounts.items():
        if name.endswith("/gpu") or "ascend" in name.lower():
            text = str(amount)
            found += int(text) if text.isdigit() else 0
    return found


def problems_of(job: Json, manifest: Json) -> Iterator[tuple[str, Any, str]]:
    """Yield what is wrong with ``parallel`` and ``scheduling`` of a job template: field, value, message."""
    parallel, scheduling = job.get("parallel"), job.get("scheduling")
    if isinstance(scheduling, Mapping):
        gang = scheduling.get("gang")
        if gang is not None and gang not in GANGS:
            yield "scheduling.gang", gang, f"one of {', '.join(GANGS)} is needed"
    if not isinstance(parallel, Mapping):
        return
    strategy = parallel.get("strategy")
    if strategy is not None and strategy not in STRATEGIES:
        yield "parallel.strategy", strategy, f"one of {', '.join(STRATEGIES)} is needed"
    degree = parallel.get("degree") or {}
    values = {name: degree.get(name, 1) for name in DEGREES}
    wrong = {name: value for name, value in values.items() if not isinstance(value, int) or value < 1}
    for name, value in wrong.items():
        yield f"parallel.degree.{name}", value, "a whole number from 1 on is needed"
    unknown = sorted(set(degree) - set(DEGREES))
    if unknown:
        yield "parallel.degree", unknown, f"the degrees are {', '.join(DEGREES)}"
    if not wrong and not unknown:
        yield from _sizes(parallel, values, groups_of(manifest))


def _sizes(
    parallel: Json, values: dict[str, int], groups: list[PodGroupSize]
) -> Iterator[tuple[str, Any, str]]:
    world = sum(group.pods * group.gpus_per_pod for group in groups)
    product = math.prod(values.values())
    shown = " x ".join(f"{name} {value}" for name, value in values.items() if value > 1) or "1"
    if world and product != world:
        yield (
            "parallel.degree",
            product,
            f"{shown} needs {product} GPUs, and the pods of the job have {world}: change replicas or a degree",
        )
    replica = parallel.get("gpusPerReplica")
    model = product // values["data"]
    if isinstance(replica, int) and replica != model:
        yield (
            "parallel.gpusPerReplica",
            replica,
            f"the degrees without data need {model} GPUs for each replica",
        )
    for group in groups:
        if group.gpus_per_pod and group.gpus_per_pod % values["tensor"]:
            yield (
                "parallel.degree.tensor",
                values["tensor"],
                f"a tensor group of {values['tensor']} GPUs does not fit pods with {group.gpus_per_pod}: "
                "it has to be on one node",
            )
            return
