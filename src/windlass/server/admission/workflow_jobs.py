"""Parallel layouts of a workflow's jobs, compared with the nodes there are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windlass.api.errors import FieldError
from windlass.api.resources import NODES
from windlass.server.admission.plugin import Review
from windlass.workflow.checks.jobs import undecided
from windlass.workflow.checks.parallel import NodeSize, node_advice, node_problems, rack_label
from windlass.workflow.jobs.groups import device_count
from windlass.workflow.jobs.resource import manifest_of
from windlass.workflow.language.errors import EvaluationError

Json = dict[str, Any]


def check(review: Review, spec: Json, path: str) -> list[FieldError]:
    """Return the layouts that no node can hold. Warn about those that wait for more nodes.

    The label of racks is written into ``placement.rackLabel`` where ``sameRack`` needs it.
    """
    found: list[FieldError] = []
    jobs = [(at, job) for at, job in _jobs(spec) if isinstance(job.get("parallel"), Mapping)]
    if not jobs:
        return found
    nodes = [_size(node) for node in review.objects.list(NODES)]
    for at, job in jobs:
        where = f"{path}.templates[{at}].job"
        try:
            manifest = manifest_of(job)
        except EvaluationError:
            continue
        if undecided(job, manifest):
            continue
        placement = job["parallel"].get("placement")
        if isinstance(placement, dict) and "sameRack" in placement.values() and (label := rack_label(nodes)):
            placement.setdefault("rackLabel", label)
        wrong = list(node_problems(job, manifest, nodes))
        found += [FieldError.invalid(f"{where}.{field}", value, text) for field, value, text in wrong]
        for text in () if wrong else node_advice(job, manifest, nodes):
            review.warn(f"advice: {where}.{text}")
    return found


def _jobs(spec: Json) -> Iterator[tuple[int, Json]]:
    for at, template in enumerate(spec.get("templates") or ()):
        if isinstance(template, dict) and isinstance(template.get("job"), dict):
            yield at, template["job"]


def _size(node: Json) -> NodeSize:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return NodeSize(node["metadata"]["name"], device_count(allocatable), node["metadata"].get("labels") or {})
