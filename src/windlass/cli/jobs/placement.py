"""GPU types of a placed job, and the nodes that were not chosen for it, with reasons.

The reasons are computed from the current cluster, as if the job's pods were pending.
Capacity that others have taken or released since the placement is seen as it is now.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from windlass.api.reasons import Reason
from windlass.api.resources import NODES, PODS
from windlass.cli.errors import unless_forbidden
from windlass.cli.invocation import Invocation
from windlass.cli.jobs import phases
from windlass.cli.jobs.jobs import FINISHED, Job, pod_phase
from windlass.cli.text import name_ranges, natural_key, plural

if TYPE_CHECKING:
    from windlass.cli.simulate.score_tables import Ranking
    from windlass.engine.placement.score_table import NodeScore, ScoreTable

MAX_NODES = 500
"""Maximum number of nodes of a cluster for which nodes are ranked without ``--scores``."""
ALLOCATING = "Allocating"
_PREPARED = (
    Reason.WAITING_FOR_VICTIMS,
    Reason.RESERVING_DEVICE,
    Reason.AWAITING_VOLUME,
    Reason.AWAITING_DEVICE,
    Reason.AWAITING_NODE_LOCK,
)
"""Reasons of jobs that have been given nodes, with capacity that is not ready yet."""
SHOWN = 8
"""Maximum number of reasons that are shown to people."""


def placement_record(invocation: Invocation, job: Job) -> dict[str, Any]:
    """Return ``phases`` of an unfinished job, and ``gpuTypes`` and ``rejectedNodes`` of one with nodes."""
    if job.finished or not job.pods:
        return {}
    nodes = unless_forbidden(lambda: invocation.client.list(NODES).items, [])
    if not nodes:
        return {}
    types = _types(invocation, job, nodes) if job.bound else {}
    record: dict[str, Any] = {"gpuTypes": types} if types else {}
    if len(nodes) <= MAX_NODES and not job.scheduler:
        ranking = unless_forbidden(lambda: _ranking(invocation, job), None)
        rejected = _rejected(job, ranking) if ranking is not None and job.bound else {}
        if job.bound:
            record["rejectedNodes"] = [{"node": node, "reason": why} for node, why in rejected.items()]
        if ranking is not None:
            record["phases"] = phases.phases_of(job, nodes, ranking.rejected)
    return record


def placement_rows(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the lines of a record for people."""
    types = ", ".join(f"{count} × {model}" for model, count in record.get("gpuTypes", {}).items())
    by_reason: dict[str, list[str]] = {}
    for entry in record.get("rejectedNodes", ()):
        by_reason.setdefault(entry["reason"], []).append(entry["node"])
    lines = [f"{name_ranges(nodes)}: {why}" for why, nodes in by_reason.items()]
    if len(lines) > SHOWN:
        lines = [*lines[:SHOWN], f"and {plural(len(lines) - SHOWN, 'more reason')}: -o json lists all nodes"]
    return [
        ("phases", "\n".join(phases.texts(record.get("phases", ())))),
        ("GPU type", types),
        ("rejected nodes", "\n".join(lines)),
    ]


def condition_of(job: Job) -> str:
    """Return the stage of a job: the phase of its group, with Allocating before Running.

    Allocating: pods have a node, or capacity is being prepared for them, and fewer than
    its minimum run. Examples: ``Pending``, ``Inqueue``, ``Allocating``, ``Running``.
    """
    phase = ((job.group or job.obj).get("status") or {}).get("phase") or job.phase
    if job.finished or phase in FINISHED:
        return job.phase
    code = job.explanation.code if job.explanation is not None else None
    running = sum(1 for pod in job.pods if pod_phase(pod) not in ("Pending", ""))
    least = int(((job.group or {}).get("spec") or {}).get("minMember") or 1)
    if (job.bound or code in _PREPARED) and running < min(least, job.members):
        return ALLOCATING
    return phase


def condition_text(job: Job) -> str:
    """Return the stage with its numbers while the job is being allocated; else empty."""
    if condition_of(job) != ALLOCATING:
        return ""
    running = sum(1 for pod in job.pods if pod_phase(pod) == "Running")
    return f"{ALLOCATING}: {job.bound} of {plural(job.desired_pods, 'pod')} on a node, {running} running"


def _types(invocation: Invocation, job: Job, nodes: list[dict[str, Any]]) -> dict[str, int]:
    """Return GPU model → number of GPUs of it that the job's pods hold."""
    from windlass.cli.nodes import device_table
    from windlass.cli.nodes.dra_devices import claims_of, slices_of

    own = [node for node in nodes if node["metadata"]["name"] in job.nodes]
    keys = {f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}" for pod in job.pods}
    claims = unless_forbidden(lambda: claims_of(invocation.client, slices_of(invocation.client)), None)
    pods = unless_forbidden(lambda: invocation.client.list(PODS).items, job.pods)
    found: Counter[str] = Counter()
    for row in device_table.rows_of(own, pods, claims):
        if any(holding.pod in keys for holding in row.holdings):
            found[row.device.model or row.device.resource] += 1
    return dict(sorted(found.items()))


def _ranking(invocation: Invocation, job: Job) -> Ranking:
    from windlass.cli.simulate import score_tables

    return score_tables.ranking_of(invocation, job)


def _rejected(job: Job, ranking: Ranking) -> dict[str, str]:
    found = {node: why for node, why in ranking.rejected.items() if node not in job.nodes}
    for table in ranking.tables:
        chosen = next((row for row in table.nodes if row.node in job.nodes), None)
        for row in table.nodes:
            if chosen is not None and row.fits and row.node not in job.nodes:
                found.setdefault(row.node, _outranked(table, row, chosen))
    return {node: found[node] for node in sorted(found, key=natural_key)}


def _outranked(table: ScoreTable, row: NodeScore, chosen: NodeScore) -> str:
    """Return why a node that takes the pod was not chosen: its total, and the decisive score."""
    totals = f"score {row.total:.1f}, {chosen.node} has {chosen.total:.1f}"
    gaps = [
        (column.weight * (theirs - own), column.title)
        for column, own, theirs in zip(table.columns, row.points, chosen.points, strict=True)
    ]
    gap, title = max(gaps, default=(0.0, ""))
    if row.total > chosen.total + 0.05:
        return f"{totals}: it would be chosen now"
    return f"{totals} ({title})" if gap > 0.05 else f"{totals}: equal, the order of names decides"
