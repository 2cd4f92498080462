"""``windlass explain``: the scheduler's own record of why a job waits, in full."""

from __future__ import annotations

from typing import Any

import click

from windlass.api.devices.numa_annotations import placement_of
from windlass.api.errors import StatusError
from windlass.api.reasons import Explanation, NearMiss, NodesRequested, Reason
from windlass.cli import resources
from windlass.cli.errors import remedy_with_target, unless_forbidden
from windlass.cli.invocation import Invocation
from windlass.cli.jobs import events
from windlass.cli.jobs.health import problems_of
from windlass.cli.jobs.job_index import find, refresh
from windlass.cli.jobs.jobs import Job, pod_phase
from windlass.cli.jobs.reasons import (
    ahead_text,
    blocker_line,
    brief,
    group_title,
    request_line,
    short_names,
    verdict,
)
from windlass.cli.options import job_argument, standard
from windlass.cli.output.formats import emit
from windlass.cli.tables import pairs
from windlass.cli.text import approximate_duration, join_words, nodes_text, plural
from windlass.kits import durations

_PATIENCE_SECONDS = 2.0
_PAUSE_SECONDS = 0.1
_FRESH_SECONDS = 10.0


@click.command("explain")
@job_argument()
@click.option("--scores", is_flag=True, help="Show how the nodes rank for its pods, score by score.")
@standard()
def command(invocation: Invocation, job: str, scores: bool) -> int:
    """Explain why a job waits, and what would help."""
    found = _judged(invocation, find(invocation, job))
    record = found.explanation if found.waiting else None
    lacking = record is not None and record.code is Reason.WAITING_FOR_MEMBERS
    not_made = _not_made(invocation, found) if lacking else ""
    if invocation.structured:
        document = as_record(found, record) | ({"notMade": not_made} if not_made else {})
        if scores:
            document |= _scores_record(invocation, found)
        emit(invocation, document, names=[f"job/{found.name}"])
        return 0
    out = invocation.out
    gpus = found.gpus
    asked = "no GPU" if gpus == "-" else "1 GPU" if gpus == "1" else f"{gpus} GPUs"
    asked = found.shares or (f"no GPU but by {found.claims}" if gpus == "-" and found.claims else asked)
    out.line(f"{found.name} ({found.kind}, queue {found.queue}, {asked}): {found.state}")
    if record is not None:
        out.write(waiting_text(found, record, not_made))
    elif found.waiting:
        late = invocation.clock.now() - found.created > UNSEEN_SECONDS
        out.write(_unexplained(found, _when_late(invocation, found) if late else ""))
    elif found.finished:
        out.write(pairs([("ended", brief(found)), ("ran on", nodes_text(found.nodes, most=20))], indent="  "))
    else:
        out.write(_running(found, problems_of(invocation, found), remote=invocation.target.remote))
    if scores:
        out.write(_scores_text(invocation, found))
    return 0


def _not_made(invocation: Invocation, job: Job) -> str:
    """Why pods that a gang lacks could not be made (a quota, a webhook), in the words of who was to make them."""
    owners = [owner for pod in job.pods for owner in pod["metadata"].get("ownerReferences") or ()]
    makers = [job.obj, *({"kind": o["kind"], "metadata": {**o, "namespace": job.namespace}} for o in owners)]
    try:
        found = [
            event
            for event in events.about_objects(invocation, makers)
            if event.get("reason") == "FailedCreate"
        ]
    except StatusError:
        return ""  # who may not see events is told the rest
    return str(found[-1].get("message") or "") if found else ""


def _scores_record(invocation: Invocation, job: Job) -> dict[str, Any]:
    from windlass.cli.simulate import score_tables
    from windlass.model.scheduler_config import described

    config, found = score_tables.table_of(invocation, job)
    return {"policy": described(config), "scores": score_tables.as_records(found)}


def _scores_text(invocation: Invocation, job: Job) -> str:
    from windlass.cli.simulate import score_tables
    from windlass.model.scheduler_config import described

    config, found = score_tables.table_of(invocation, job)
    policy = pairs([("policy", described(config))], indent="  ")
    return policy + (score_tables.as_text(found) or "  no pod of it is left to score\n")


def _judged(invocation: Invocation, job: Job) -> Job:
    """The job once the scheduler has spoken, of all of its pods: one that has just been submitted is given a moment."""
    until = invocation.clock.monotonic() + _PATIENCE_SECONDS
    fresh = invocation.clock.now() - job.created < _FRESH_SECONDS
    while fresh and job.waiting and _too_early(job.explanation) and invocation.clock.monotonic() < until:
        invocation.clock.pause(_PAUSE_SECONDS)
        job = refresh(invocation, job) or job
    return job


def _too_early(told: Explanation | None) -> bool:
    """Whether nothing is told yet, or only that pods are still to be made."""
    return told is None or told.code is Reason.WAITING_FOR_MEMBERS


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
    return base


_OF_A_BOX = "default-scheduler"
"""Windlass takes these pods, too, where it is alone."""
_OF_DOMAINS = (Reason.TOPOLOGY_PLACEMENT_FAILED, Reason.EXCEEDS_EVERY_DOMAIN)


def _nearest(miss: NearMiss) -> str:
    """``box, which lacks 2 nvidia.com/gpu``; what is no amount is told after a colon."""
    if miss.lacks[:1].isdigit():
        return f"{miss.node}, which lacks {miss.lacks}"
    return f"{miss.node}: {miss.lacks}"


def _estimate(record: Explanation) -> str:
    """``starts in ~8m (6m30s to 11m0s by 10 simulated courses)``."""
    if record.estimate_seconds is None:
        return ""
    when = (
        f"in {approximate_duration(record.estimate_seconds)}" if record.estimate_seconds else "any moment now"
    )
    band = ""
    if record.estimate_band and record.estimate_seconds:
        low, *high = map(durations.write, record.estimate_band)
        band = f"{low} to {high[0] if high else 'later'} "
    basis = f" ({band}{short_names(record.estimate_basis)})" if record.estimate_basis else ""
    return f"starts {when}{basis}"


def _asked(asked: NodesRequested, now: float) -> str:
    """How the nodes that are asked for it stand, by which request, and what is said of it."""
    number = f", attempt {asked.attempt}" if asked.attempt > 1 else ""
    by = f"by ProvisioningRequest {asked.request}{number}, {asked.class_name}" if asked.request else ""
    again = f"asked for anew in {durations.write(max(0.0, asked.retry_at - now))}" if asked.retry_at else ""
    return "\n".join(filter(None, (request_line(asked, now), asked.detail, by, again)))


def waiting_text(job: Job, record: Explanation, not_made: str = "") -> str:
    """Everything the record says, the two questions first: will it run, and what must change. ``not_made``: why pods
    that it lacks are not there."""
    place = f"#{record.position} in {job.queue}" if record.position else ""
    estimate = _estimate(record)
    changes = "\n".join(change.sentence for change in record.changes)
    nearest = _nearest(record.nearest) if record.nearest else ""
    considered = f" (of {plural(record.nodes_considered, 'node')})" if record.nodes_considered else ""
    blockers = "\n".join(blocker_line(blocker) for blocker in record.blockers)
    return pairs(
        [
            ("why", f"{record.code}: {record.message}"),
            ("not made", not_made),
            ("will it run", verdict(record)),
            ("position", ", ".join(part for part in (place, estimate) if part)),
            ("nodes asked for", _asked(record.asked, job.seen) if record.asked else ""),
            ("ahead of it", ahead_text(record)),
            (f"blockers{considered}", blockers),
            (f"nearest {'domain' if record.code in _OF_DOMAINS else 'node'}", nearest),
            ("held by", join_words(map(group_title, record.holders))),
            *((name, value) for name, value in sorted(record.extra.items())),
            ("smallest change" if len(record.changes) == 1 else "smallest changes", changes),
            ("what helps", "\n".join(r for r in record.remedies if r not in changes)),
        ],
        indent="  ",
    )


UNSEEN_SECONDS = 30.0
"""So long may it take until a scheduler that runs has looked at a job."""


def _when_late(invocation: Invocation, job: Job) -> str:
    """What to do where nobody has looked at it for long."""
    doctor = remedy_with_target("windlass doctor", invocation.surroundings.aim)
    found = f"{doctor} says whether anybody decides"
    if not job.scheduler_name:
        return found
    install = remedy_with_target("windlass install", invocation.surroundings.aim)
    if kinds := _besides(invocation):
        whose = f"{job.scheduler_name} decides what was not handed over to Windlass, which stands beside it"
        return f"{whose}\n{install} --adopt {kinds[0]} -q {job.queue}, if Windlass is to decide\n{found}"
    serve = f"--scheduler-name windlass --scheduler-name {job.scheduler_name}"
    return (
        f"schedulerName: windlass in its manifest, if nobody serves {job.scheduler_name} here\n"
        f"or have Windlass serve that name: {install} {serve} (of the chart: scheduler.names)\n{found}"
    )


def _besides(invocation: Invocation) -> list[str]:
    """Beside which schedulers Windlass stands in this cluster; none where this user may not look."""
    if not invocation.target.remote:
        return []
    from windlass.cli.install import installed_settings

    client = invocation.client
    spaces = installed_settings.others(client, "")
    found = (
        unless_forbidden(lambda at=at: installed_settings.as_installed(client, at).beside, ())
        for at in spaces
    )
    return [peer.partition(":")[0] for peers in found for peer in peers]


def _unexplained(job: Job, late: str) -> str:
    """``late``: what to do where nobody has looked at it for long."""
    unseen = f"PendingEvaluation: {job.scheduler_name or 'the scheduler'} has not looked at it yet"
    gates = (
        f"scheduling gates ({join_words(job.gates)}): whoever set them takes them away" if job.gates else ""
    )
    return pairs(
        [
            ("why", job.condition_message or unseen),
            ("held by", gates),
            ("what helps", "" if job.condition_message or gates or job.scheduler else late),
            ("phase", job.phase),
            ("pods", f"{len(job.pods)} of {job.members} exist, {job.bound} have a node"),
        ],
        indent="  ",
    )


def _running(job: Job, trouble: str, *, remote: bool) -> str:
    up = sum(1 for pod in job.pods if pod_phase(pod) == "Running")
    queue = f"its queue, {job.queue}, had the room and these nodes fitted"
    if job.scheduler and (remote or job.scheduler != _OF_A_BOX):
        queue = f"not decided here: its scheduler is {job.scheduler}"
    placeholder = "nothing said what to run, so the box runs a placeholder" if job.placeholder else ""
    return pairs(
        [
            ("runs on", nodes_text(job.nodes, most=20)),
            ("pods", f"{up} of {job.members} running"),
            ("trouble", trouble),
            ("devices", device_lines(job)),
            ("why there", queue if job.nodes else ""),
            ("note", placeholder),
        ],
        indent="  ",
    )


def device_lines(job: Job, most: int = 16) -> str:
    """Which devices each pod holds, as the scheduler wrote them into the binding."""
    lines = []
    for pod in job.pods:
        told = [f"GPU {held}"] if (held := resources.held_text(pod)) else []
        placement = placement_of(pod["metadata"].get("annotations") or {})
        if placement:
            numbers = ",".join(str(zone) for zone, _ in placement)
            told.append(f"NUMA zone{'s' if len(placement) > 1 else ''} {numbers}")
        if told:
            lines.append(f"{pod['metadata']['name']}: {pod['spec'].get('nodeName')} {', '.join(told)}")
    return "\n".join(lines[:most] + ([f"and {len(lines) - most} more"] if len(lines) > most else []))
