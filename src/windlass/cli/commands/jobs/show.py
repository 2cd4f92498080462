"""``windlass show``: one job on one screen."""

from __future__ import annotations

import click

from windlass.api.nodes.cpu_sets import cpus_of_pod, cpus_text
from windlass.cli import resources, tables
from windlass.cli.commands.jobs.explain import waiting_text
from windlass.cli.commands.jobs.ps import as_record
from windlass.cli.generation import contexts, progress, stages
from windlass.cli.generation.driver_reasons import with_driver
from windlass.cli.invocation import Invocation
from windlass.cli.jobs import attempts, displacements
from windlass.cli.jobs.creation_errors import note_creation_errors
from windlass.cli.jobs.events import render as event_lines
from windlass.cli.jobs.grouping import grouping_record, grouping_rows
from windlass.cli.jobs.job_index import find
from windlass.cli.jobs.jobs import Job, cause_of, pod_phase, rank_of
from windlass.cli.jobs.plugin_devices import devices_of, devices_text
from windlass.cli.jobs.reasons import brief, exit_text
from windlass.cli.options import job_argument, standard
from windlass.cli.output import wide_tables
from windlass.cli.output.formats import emit
from windlass.cli.text import natural_key, timestamp
from windlass.kits.timestamps import age, rfc3339


@click.command("show")
@job_argument()
@standard()
def command(invocation: Invocation, job: str) -> int:
    """Show one job."""
    found = find(invocation, job)
    note_creation_errors(invocation, [found], started=True)
    if invocation.structured:
        record = as_record(found)
        record["ranks"] = [_rank(pod) for pod in _sorted(found)]
        record |= displacements.as_record(found)
        record |= attempts.as_record(found, invocation.clock.now())
        record |= grouping_record(found)
        if found.waiting and found.explanation is not None and found.explanation.planned_nodes:
            record["plannedNodes"] = dict(found.explanation.planned_nodes)
        emit(invocation, record, names=[f"job/{found.name}"])
        return 0
    now = invocation.clock.now()
    out = invocation.out
    out.write(tables.pairs([*_facts(found, now), *_evictions(found, now)]))
    record = with_driver(found, found.explanation, local=not invocation.target.remote)
    if found.waiting and record is not None:
        out.line("\nWaiting")
        out.write(waiting_text(found, record, found.creation_error))
    elif found.creation_error:
        out.line(f"\nNot created\n  {found.creation_error}")
    groups = progress.group_rows(found.obj) if progress.facts(found.obj) else []
    if len(groups) > 1:
        out.line("\nGroups")
        wide_tables.show(invocation, progress.GROUP_HEADER, groups)
    stages.show(invocation, found)
    contexts.show(invocation, found)
    if found.pods:
        out.line("\nRanks")
        rows = [_row(pod, now) for pod in _sorted(found)]
        header = ["RANK", "STATE", "NODE", "GPU", "RESTARTS", "AGE", "END"]
        if any(map(cpus_text, found.pods)):
            header.insert(4, "CPUS")
            for line, pod in zip(rows, _sorted(found), strict=True):
                line.insert(4, cpus_text(pod) or "-")
        wide_tables.show(invocation, header, rows, optional=("AGE", "RESTARTS"))
    _show_attempts(invocation, found, now)
    events = event_lines(invocation, [found.obj, *(filter(None, [found.group])), *found.pods], most=12)
    if events:
        out.line("\nEvents")
        out.write(events)
    return 0


def _show_attempts(invocation: Invocation, job: Job, now: float) -> None:
    ledger = attempts.ledger_of(job)
    facts = attempts.facts(job, ledger, now)
    if not ledger.count and not facts:
        return
    invocation.out.line("\nAttempts")
    if ledger.count:
        wide_tables.show(invocation, attempts.HEADER, attempts.table(ledger, now), optional=attempts.OPTIONAL)
    if facts:
        invocation.out.write(tables.pairs(facts))


def _facts(job: Job, now: float) -> list[tuple[str, str]]:
    command = _command(job)
    end = job.finished_at
    return [
        ("Job", job.key if job.namespace != "default" else job.name),
        ("Kind", job.kind),
        ("State", f"{job.state} ({brief(job)})" if brief(job) and not job.waiting else job.state),
        ("Queue", job.queue),
        ("GPUs", job.shares or job.gpus),
        ("Pods", f"{job.desired_pods} desired, {len(job.pods)} exist, {job.bound} on a node"),
        ("Command", command),
        ("Created", f"{rfc3339(job.created)} ({age(now - job.created)} ago)"),
        (
            "Finished",
            f"{rfc3339(end)} ({age(now - end)} ago)" if end else "",
        ),
        ("Devices", _plugin_devices(job)),
        *((name.capitalize(), text) for name, text in grouping_rows(job)),
        *progress.facts(job.obj),
        ("Exit status", str(job.exit_code) if job.exit_code is not None else ""),
        ("Placeholder", "yes: the command is unknown" if job.placeholder else ""),
    ]


def _plugin_devices(job: Job, most: int = 16) -> str:
    """Return the devices of each pod with a node that are not GPUs, such as RDMA interfaces."""
    bound = [pod for pod in _sorted(job) if (pod.get("spec") or {}).get("nodeName")]  # type: ignore[attr-defined]
    lines = [
        f"{pod['metadata']['name']}: {pod['spec']['nodeName']} {text}"  # type: ignore[index]
        for pod in bound
        if (text := devices_text(pod))
    ]
    return "\n".join(lines[:most] + ([f"and {len(lines) - most} more"] if len(lines) > most else []))


def _evictions(job: Job, now: float) -> list[tuple[str, str]]:
    return [(name.capitalize(), text) for name, text in displacements.rows(job, now)]


def _command(job: Job) -> str:
    import shlex

    spec = job.obj.get("spec") or {}
    if job.definition is not None:
        roles = job.definition.roles(job.obj)
        spec = (roles[0].template.get("spec") or {}) if roles else {}
    containers = spec.get("containers") or []
    if not containers:
        return ""
    words = [*(containers[0].get("command") or ()), *(containers[0].get("args") or ())]
    return shlex.join(word.replace("$$", "$") for word in words)  # as the user typed it


def _sorted(job: Job) -> list[dict[str, object]]:
    return sorted(job.pods, key=lambda pod: natural_key(rank_of(pod)))


def _statuses(pod: dict[str, object]) -> list[dict[str, object]]:
    status: dict[str, list[dict[str, object]]] = pod.get("status") or {}  # type: ignore[assignment]
    return status.get("containerStatuses") or []


def _rank(pod: dict[str, object]) -> dict[str, object]:
    metadata: dict[str, dict[str, str]] = pod["metadata"]  # type: ignore[assignment]
    spec: dict[str, str] = pod.get("spec") or {}  # type: ignore[assignment]
    status: dict[str, str] = pod.get("status") or {}  # type: ignore[assignment]
    return {
        "rank": rank_of(pod),
        "pod": metadata["name"],
        "node": spec.get("nodeName"),
        "address": status.get("podIP"),
        "phase": pod_phase(pod),
        "devices": resources.held_text(pod) or None,
        "pluginDevices": devices_of(pod),
        "cpus": cpus_of_pod(pod) or None,
        "restarts": sum(int(str(c.get("restartCount") or 0)) for c in _statuses(pod)),
        "exitCode": _end(pod).get("exitCode"),
    }


def _end(pod: dict[str, object]) -> dict[str, object]:
    for container in _statuses(pod):
        state: dict[str, dict[str, object]] = container.get("state") or {}  # type: ignore[assignment]
        if state.get("terminated"):
            return state["terminated"]
    return {}


def _row(pod: dict[str, object], now: float) -> list[str]:
    record = _rank(pod)
    end = _end(pod)
    code = int(str(end.get("exitCode") or 0))
    metadata: dict[str, str] = pod["metadata"]  # type: ignore[assignment]
    since = timestamp(metadata.get("creationTimestamp"))
    return [
        str(record["rank"]),
        str(record["phase"]),
        str(record["node"] or "-"),
        str(record["devices"] or "-"),
        str(record["restarts"]),
        age(now - since) if since else "-",
        exit_text(code, cause_of(pod, code)) if end else "",
    ]
