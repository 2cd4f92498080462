"""Changes of the number of workers of an AIGCJob: its bounds, what the nodes hold, and what decides afterwards."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.fields import aigc
from windlass.cli.generation.shards import of_pods
from windlass.cli.text import plural
from windlass.jobs.aigc.autoscale import autoscale_of
from windlass.jobs.aigc.node_capacity import worker_capacity

Object = Mapping[str, Any]


def size_patch(spec: Object, workers: int) -> dict[str, Any]:
    """Return the change of a spec. A fixed number moves both of its bounds, where it has them."""
    patch: dict[str, Any] = {"replicas": workers}
    bounds = aigc.part(spec, "parallelism")
    if not aigc.part(spec, "autoscale") and bounds.get("max"):
        least, most = aigc.worker_bounds(spec)
        if least == most:
            patch["parallelism"] = {name: workers for name in ("min", "max") if bounds.get(name)}
    if int(spec.get("minAvailable") or 1) > workers:
        patch["minAvailable"] = workers
    return patch


def refused_size(
    job: str, spec: Object, workers: int, nodes: Sequence[Object]
) -> tuple[str, list[str]] | None:
    """Return why a job cannot have a number of workers, with commands that help; ``None`` if it can.

    ``nodes``: of the cluster; empty if they cannot be read.
    """
    if workers < 1:
        why = "a generation job has at least 1 worker. A suspended job has none, and keeps its finished rows"
        return why, [f"windlass suspend {job}"]
    beyond = _beyond_nodes(job, spec, workers, nodes)
    return _beyond_bounds(job, spec, workers, can_move=beyond is None) or beyond


def _beyond_bounds(job: str, spec: Object, workers: int, *, can_move: bool) -> tuple[str, list[str]] | None:
    """Return that the spec excludes a number. ``can_move``: whether a changed bound would help."""
    least, most = aigc.worker_bounds(spec)
    scales, bounds = bool(aigc.part(spec, "autoscale")), aigc.part(spec, "parallelism")
    fixed = not scales and (least == most or not bounds.get("max"))
    too_many = workers > most and not fixed
    too_few = workers < least and not (fixed and bounds.get("max"))
    if not too_many and not too_few:
        return None
    name, nearest = ("max", most) if too_many else ("min", least)
    field = "parallelism" if bounds.get(name) or not scales else "autoscale"
    patch = json.dumps({"spec": {field: {name: workers}}}, separators=(",", ":"))
    allowed = f"at least {least}" if fixed else f"{least} to {most}"
    why = f"spec.{field}.{name} is {nearest}: the job may have {allowed} workers, not {workers}"
    moved = [f"kubectl patch aigcjob {job} --type merge -p '{patch}'"] if can_move else []
    return why, [f"windlass scale {job} {nearest}", *moved]


def _beyond_nodes(
    job: str, spec: Object, workers: int, nodes: Sequence[Object]
) -> tuple[str, list[str]] | None:
    """Return that all nodes together, without other work, hold fewer workers."""
    found = worker_capacity(spec, nodes)
    if found is None or spec.get("stages") or workers <= found.workers:
        return None
    most = found.workers
    why = (
        f"the nodes of the cluster hold at most {most} of its workers, even without other work: {found.limit}"
    )
    return why, [*([f"windlass scale {job} {most}"] if most else []), "windlass node ls"]


def size_result(job: str, obj: Object, wanted: Object) -> str:
    """Return what the new size means: the number asked for, the number that runs, and what decides next."""
    count, shards = aigc.worker_count(wanted), aigc.shards_of(wanted)
    status = aigc.part(aigc.part(obj, "status"), "workers")
    running = int(status.get("running") or 0)
    size = of_pods(count, shards) if shards > 1 else plural(count, "worker")
    least, most = aigc.worker_bounds(wanted)
    scale = autoscale_of(wanted)
    if scale is not None:
        by = scale.plugin.shown if scale.plugin is not None else scale.metric
        return (
            f"is asked for {size}, and {running} {'runs' if running == 1 else 'run'} now. Its autoscaler ({by}) "
            f"decides the next number, between {least} and {most}: windlass explain {job}"
        )
    minimum = min(int(wanted.get("minAvailable") or least), count)
    if minimum < count:
        return (
            f"is asked for {size}, and {running} {'runs' if running == 1 else 'run'} now. {_starts(minimum)}"
        )
    return f"is asked for {size}, and {running} {'runs' if running == 1 else 'run'} now"


def _starts(minimum: int) -> str:
    if minimum == 1:
        return "Each starts as soon as there is room for it"
    return f"{minimum} start together, and each further one as soon as there is room for it"
