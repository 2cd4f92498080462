"""``windlass explain``: the scheduler's full explanation of why a job waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from windlass.api.devices.numa_annotations import placement_of
from windlass.api.reasons import Explanation, NearMiss, NodesRequested, Reason
from windlass.api.resources import AIGC_JOBS
from windlass.cli import resources
from windlass.cli.errors import WindlassError, remedy_with_target, unless_forbidden
from windlass.cli.generation import scaling_rows, stage_reasons
from windlass.cli.generation.driver_reasons import with_driver
from windlass.cli.generation.shards import named_shards, shard_workers
from windlass.cli.invocation import Invocation
from windlass.cli.jobs import displacements
from windlass.cli.jobs.creation_errors import creation_remedies, note_creation_errors
from windlass.cli.jobs.grouping import grouping_record, grouping_rows
from windlass.cli.jobs.health import problems_of
from windlass.cli.jobs.job_index import find, refresh
from windlass.cli.jobs.jobs import Job, end_message, pod_phase
from windlass.cli.jobs.placement import condition_of, condition_text, placement_record, placement_rows
from windlass.cli.jobs.rdma import network_record, network_text
from windlass.cli.jobs.reasons import (
    ahead_text,
    blocker_line,
    brief,
    group_title,
    last_error,
    request_line,
    short_names,
    verdict,
    waiting_pods,
)
from windlass.cli.options import job_argument, standard
from windlass.cli.output.formats import emit
from windlass.cli.tables import pairs
from windlass.cli.text import approximate_duration, condition, join_words, nodes_text, plural
from windlass.kits import durations

_EXPLANATION_TIMEOUT_SECONDS = 2.0
_PAUSE_SECONDS = 0.1
_FRESH_SECONDS = 10.0


@click.command("explain")
@job_argument()
@click.option("--scores", is_flag=True, help="Show the ranking of nodes for its pods, score by score.")
@click.option(
    "--with",
    "metrics",
    metavar="METRIC=VALUE",
    multiple=True,
    help="Number of workers that an AIGCJob would have with this value. May be repeated.",
)
@standard()
def command(invocation: Invocation, job: str, scores: bool, metrics: tuple[str, ...]) -> int:
    """Explain why a job waits, and what would help."""
    named = _named(invocation, job, only_jobs=scores or bool(metrics))
    if named is None:
        return 0
    found = _with_explanation(invocation, named)
    if metrics:
        from windlass.cli.generation import scaling_trial  # on use: it decides as the controller does

        return scaling_trial.show(invocation, found, metrics)
    local = not invocation.target.remote
    record = with_driver(found, found.explanation if found.waiting else None, local=local)
    note_creation_errors(invocation, [found], started=True)
    creation_error = found.creation_error
    network = network_record(invocation, found)
    stages = stage_reasons.waiting_stages(invocation, found)
    if invocation.structured:
        document = as_record(found, record) | ({"notMade": creation_error} if creation_error else {})
        document |= {"network": network} if network else {}
        document |= {"waitingStages": [stage.record() for stage in stages]} if stages else {}
        document |= {"message": _message(found)} if _message(found) else {}
        document["condition"] = condition_of(found)
        document |= grouping_record(found)
        document |= placement_record(invocation, found) | _evictions_record(invocation, found)
        if scores:
            document |= _scores_record(invocation, found)
        if record_of_scaling := (found.obj.get("status") or {}).get("scaling"):
            document["scaling"] = record_of_scaling
        emit(invocation, document, names=[f"job/{found.name}"])
        return 0
    out = invocation.out
    gpus = found.gpus
    request = "no GPU" if gpus == "-" else "1 GPU" if gpus == "1" else f"{gpus} GPUs"
    request = found.shares or (f"GPUs only by {found.claims}" if gpus == "-" and found.claims else request)
    out.line(f"{found.name} ({found.kind}, queue {found.queue}, {request}): {found.state}")
    heads = [("condition", condition_text(found)), ("message", _message(found)), *grouping_rows(found)]
    out.write(pairs(heads, indent="  "))
    if record is not None:
        out.write(waiting_text(found, record, creation_error))
    elif found.waiting:
        late = invocation.clock.now() - found.created > EVALUATION_TIMEOUT_SECONDS
        out.write(_unexplained(found, _unevaluated_remedy(invocation, found) if late else ""))
    elif found.finished:
        failed = found.first_failure if found.exit_code else None
        why = end_message(*failed) if failed is not None else ""
        facts = [("ended", brief(found)), ("reason", why), ("ran on", nodes_text(found.nodes, most=20))]
        out.write(pairs(facts, indent="  "))
    else:
        problems = problems_of(invocation, found)
        out.write(_running(found, problems, stages, remote=not local))
    out.write(pairs(stage_reasons.rows(invocation, stages), indent="  "))
    if network is not None and not found.finished:
        out.write(pairs([("network", network_text(network))], indent="  "))
    out.write(pairs(placement_rows(placement_record(invocation, found)), indent="  "))
    if found.resource is AIGC_JOBS:
        out.write(pairs(scaling_rows.explained(found.obj.get("status") or {}), indent="  "))
    out.write(_evictions_text(invocation, found))
    if scores:
        out.write(_scores_text(invocation, found))
    return 0


def _named(invocation: Invocation, name: str, *, only_jobs: bool) -> Job | None:
    """Return the job; ``None`` if it is a stage without a PodGroup, which is explained here."""
    try:
        return find(invocation, name)
    except WindlassError as error:
        if only_jobs or error.code != "WL-JOB-404":
            raise
        stage_reasons.explain_stage(invocation, name, error)
        return None


def _message(job: Job) -> str:
    """Return why the last attempt of an AIGCJob failed, or what its driver waits for."""
    return str((job.obj.get("status") or {}).get("message") or "") if job.resource is AIGC_JOBS else ""


def _evictions_record(invocation: Invocation, job: Job) -> dict[str, Any]:
    record = displacements.as_record(job)
    return record if job.finished else record | {"eviction": displacements.protection_record(invocation, job)}


def _evictions_text(invocation: Invocation, job: Job) -> str:
    """Return the evictions of the job and for it, and the rule by which it may be evicted."""
    rule = "" if job.finished else displacements.protection_text(invocation, job)
    return pairs([*displacements.rows(job, invocation.clock.now()), ("eviction", rule)], indent="  ")


def _scores_record(invocation: Invocation, job: Job) -> dict[str, Any]:
    from windlass.cli.simulate import score_tables
    from windlass.model.scheduler_config import described

    found = score_tables.ranking_of(invocation, job)
    return {"policy": described(found.config), "scores": score_tables.as_records(found.tables)}


def _scores_text(invocation: Invocation, job: Job) -> str:
    from windlass.cli.simulate import score_tables
    from windlass.model.scheduler_config import described

    found = score_tables.ranking_of(invocation, job)
    policy = pairs([("policy", described(found.config))], indent="  ")
    return policy + (score_tables.as_text(found.tables) or "  it has no unfinished pods to score\n")


def _with_explanation(invocation: Invocation, job: Job) -> Job:
    """Return the job with an explanation that covers all of its pods.

    For a job that was just submitted, this waits a short time.
    """
    until = invocation.clock.monotonic() + _EXPLANATION_TIMEOUT_SECONDS
    fresh = invocation.clock.now() - job.created < _FRESH_SECONDS
    while fresh and job.waiting and _too_early(job.explanation) and invocation.clock.monotonic() < until:
        invocation.clock.pause(_PAUSE_SECONDS)
        job = refresh(invocation, job) or job
    return job


def _too_early(explanation: Explanation | None) -> bool:
    """Return whether there is no explanation yet, or only that pods are missing."""
    return explanation is None or explanation.code is Reason.WAITING_FOR_MEMBERS


def as_record(job: Job, record: Explanation | None) -> dict[str, Any]:
    base: dict[str, Any] = {
        "job": job.name,
        "namespace": job.namespace,
        "kind": job.kind,
        "queue": job.queue,
        "state": job.state,
        "nodes": job.nodes,
        "summary": brief(job),
    }
    if record is not None:
        base["explanation"] = record.as_dict()
        base["willItRun"] = record.waiting_helps
        if record.planned_nodes:
            base["plannedNodes"] = dict(record.planned_nodes)
    return base


_DEFAULT_SCHEDULER = "default-scheduler"
"""Scheduler name that Windlass also serves in single-node mode."""
_DOMAIN_REASONS = (Reason.TOPOLOGY_PLACEMENT_FAILED, Reason.EXCEEDS_EVERY_DOMAIN)


def _nearest(miss: NearMiss) -> str:
    """Return the nearest node: ``gpu1, which lacks 2 nvidia.com/gpu``.

    A text that is not an amount follows a colon.
    """
    if miss.lacks[:1].isdigit():
        return f"{miss.node}, which lacks {miss.lacks}"
    return f"{miss.node}: {miss.lacks}"


def _estimate(record: Explanation) -> str:
    """Return the estimate: ``starts in ~8m (6m30s to 11m0s by 10 simulated courses)``."""
    if record.estimate_seconds is None:
        return ""
    when = f"in {approximate_duration(record.estimate_seconds)}" if record.estimate_seconds else "soon"
    band = ""
    if record.estimate_band and record.estimate_seconds:
        low, *high = map(durations.write, record.estimate_band)
        band = f"{low} to {high[0] if high else 'later'} "
    basis = f" ({band}{short_names(record.estimate_basis)})" if record.estimate_basis else ""
    return f"starts {when}{basis}"


def _requested_nodes(requested: NodesRequested, now: float) -> str:
    """Return the state of the nodes that were requested for the job."""
    number = f", attempt {requested.attempt}" if requested.attempt > 1 else ""
    by = (
        f"by ProvisioningRequest {requested.request}{number}, {requested.class_name}"
        if requested.request
        else ""
    )
    retry = (
        f"next request in {durations.write(max(0.0, requested.retry_at - now))}" if requested.retry_at else ""
    )
    return "\n".join(filter(None, (request_line(requested, now), requested.detail, by, retry)))


def waiting_text(job: Job, record: Explanation, creation_error: str = "") -> str:
    """Return all of the explanation, with the main facts first.

    ``not_made``: reason why missing pods do not exist.
    """
    position = f"#{record.position} in {job.queue}" if record.position else ""
    estimate = _estimate(record)
    changes = "\n".join(change.sentence for change in record.changes)
    nearest = _nearest(record.nearest) if record.nearest else ""
    considered = f" (of {plural(record.nodes_considered, 'node')})" if record.nodes_considered else ""
    blockers = "\n".join(blocker_line(blocker) for blocker in record.blockers)
    remedies = creation_remedies(creation_error, job.namespace) if creation_error else record.remedies
    remedies = [named_shards(job.obj, remedy) for remedy in remedies]
    return pairs(
        [
            ("why", f"{record.code}: {record.message}"),
            ("not created", creation_error),
            ("will it run", verdict(record)),
            ("position", ", ".join(part for part in (position, estimate) if part)),
            ("planned nodes", nodes_text(record.planned_nodes, most=20)),
            ("nodes requested", _requested_nodes(record.asked, job.seen) if record.asked else ""),
            ("ahead of it", ahead_text(record)),
            (f"blockers{considered}", blockers),
            (f"nearest {'domain' if record.code in _DOMAIN_REASONS else 'node'}", nearest),
            ("held by", join_words(map(group_title, record.holders))),
            *((name, value) for name, value in sorted(record.extra.items())),
            ("smallest change" if len(record.changes) == 1 else "smallest changes", changes),
            ("what helps", "\n".join(r for r in remedies if r not in changes)),
        ],
        indent="  ",
    )


EVALUATION_TIMEOUT_SECONDS = 30.0
"""Time in seconds after which a running scheduler should have evaluated a job."""


def _unevaluated_remedy(invocation: Invocation, job: Job) -> str:
    """Return what to do if no scheduler has evaluated the job for long."""
    doctor = remedy_with_target("windlass doctor", invocation.context.target_flags)
    check = f"{doctor}   (checks whether a scheduler runs)"
    if not job.scheduler_name:
        return check
    install = remedy_with_target("windlass install", invocation.context.target_flags)
    if kinds := _adopted_schedulers(invocation):
        other = f"{job.scheduler_name} schedules this job, as it was not handed over to Windlass"
        return f"{other}\n{install} --adopt {kinds[0]} -q {job.queue}   (to hand it over)\n{check}"
    serve = f"--scheduler-name windlass --scheduler-name {job.scheduler_name}"
    return (
        f"set schedulerName: windlass in the manifest, if no scheduler serves {job.scheduler_name}\n"
        f"or let Windlass serve that name: {install} {serve}   (setting scheduler.names of the chart)\n{check}"
    )


def _adopted_schedulers(invocation: Invocation) -> list[str]:
    """Return the schedulers next to which Windlass is installed; none if this user may not look."""
    if not invocation.target.remote:
        return []
    from windlass.cli.install import installed_settings

    client = invocation.client
    namespaces = installed_settings.others(client, "")
    adopted = (
        unless_forbidden(lambda at=at: installed_settings.as_installed(client, at).beside, ())
        for at in namespaces
    )
    return [peer.partition(":")[0] for peers in adopted for peer in peers]


def _unexplained(job: Job, late: str) -> str:
    """Return the text for a job without an explanation.

    ``late``: what to do if no scheduler has evaluated it for long.
    """
    unevaluated = f"PendingEvaluation: {job.scheduler_name or 'the scheduler'} has not evaluated it yet"
    if job.creation_error:
        unevaluated = "PendingEvaluation: objects that it needs could not be created"
    gates = f"scheduling gates ({join_words(job.gates)}), which their controller removes" if job.gates else ""
    return pairs(
        [
            ("why", job.condition_message or unevaluated),
            ("not created", job.creation_error),
            ("held by", gates),
            (
                "what helps",
                "" if job.condition_message or gates or job.scheduler or job.creation_error else late,
            ),
            ("phase", job.phase),
            ("pods", f"{len(job.pods)} of {job.desired_pods} exist, {job.bound} have a node"),
            ("workers", f"{workers} run" if (workers := shard_workers(job.obj)) else ""),
        ],
        indent="  ",
    )


def _running(job: Job, problems: str, stages: Sequence[stage_reasons.WaitingStage], *, remote: bool) -> str:
    up = sum(1 for pod in job.pods if pod_phase(pod) == "Running")
    queue = f"queue {job.queue} had enough capacity, and the pods fit on these nodes"
    if job.scheduler and (remote or job.scheduler != _DEFAULT_SCHEDULER):
        queue = f"its scheduler is {job.scheduler}, not Windlass"
    failure = str((condition(job.obj, "ReplicaFailure") or {}).get("message") or "") or job.creation_error
    placeholder = "the command is unknown, so a placeholder runs" if job.placeholder else ""
    reason, message = last_error(job)
    return pairs(
        [
            ("runs on", nodes_text(job.nodes, most=20)),
            ("pods", f"{up} of {job.desired_pods} running"),
            ("workers", f"{workers} run" if (workers := shard_workers(job.obj)) else ""),
            ("waiting", waiting_pods(job, apart=[stage.name for stage in stages])),
            ("not created", failure),
            ("what helps", "\n".join(creation_remedies(failure, job.namespace)) if failure else ""),
            ("problems", problems),
            ("last error", f"{reason}: {message}" if reason else ""),
            ("devices", device_lines(job)),
            ("why there", queue if job.nodes else ""),
            ("note", placeholder),
        ],
        indent="  ",
    )


def device_lines(job: Job, most: int = 16) -> str:
    """Return the devices of each pod, as the scheduler wrote them into the binding."""
    lines = []
    for pod in job.pods:
        parts = [f"GPU {held}"] if (held := resources.held_text(pod)) else []
        placement = placement_of(pod["metadata"].get("annotations") or {})
        if placement:
            numbers = ",".join(str(zone) for zone, _ in placement)
            parts.append(f"NUMA node{'s' if len(placement) > 1 else ''} {numbers}")
        if parts:
            lines.append(f"{pod['metadata']['name']}: {pod['spec'].get('nodeName')} {', '.join(parts)}")
    return "\n".join(lines[:most] + ([f"and {len(lines) - most} more"] if len(lines) > most else []))
