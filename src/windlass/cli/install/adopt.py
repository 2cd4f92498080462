"""Adoption of a cluster from Volcano or KAI Scheduler, queue by queue, and the way back.

Each step can be undone at any time, and none writes a pod:

1. Windlass is installed next to the other scheduler. It serves the same scheduler name,
   but schedules only gangs that were handed over. Its controllers hand over
   (:mod:`windlass.controllers.adoption`).
2. A queue is marked. Its gangs, running and new ones, are handed over one by one.
3. When all queues are marked, the other scheduler is scaled to zero, and Windlass
   removes the mark from the gangs (``finish``).

The way back is the same in reverse. The reasons are in
docs/decisions/0016-gang-handover-in-one-write.md. Parts that differ by scheduler are in
:mod:`windlass.cli.install.adopt_volcano` and :mod:`windlass.cli.install.adopt_kai`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

from windlass.api.annotations import ADOPTED
from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import DEPLOYMENTS
from windlass.cli import tables
from windlass.cli.install import adopt_kai, adopt_volcano, objects
from windlass.cli.install.adopt_common import QueueRow, Report, state_text, title
from windlass.cli.install.objects import CRD, InstallOptions
from windlass.cli.invocation import PausingClock
from windlass.client.blocking import BlockingClient
from windlass.model.cluster.ownership import KAI, VOLCANO

Json = dict[str, Any]
Tell = Callable[[str], None]
PREFLIGHTS = {VOLCANO: adopt_volcano.preflight, KAI: adopt_kai.preflight}
"""Preflight check for each scheduler. Each raises ``StatusError`` and ``Unreachable``.
"""
POLL_SECONDS = 0.5
TIMEOUT_SECONDS = 120


def report_text(report: Report) -> str:
    """Return the report for people."""
    rows = [[finding.level, finding.subject, finding.text] for finding in report.findings]
    found = tables.render(["", "SUBJECT", "STATE"], rows)
    return f"{found}\n{queues_text(report)}" if report.queues else found


def queues_text(report: Report) -> str:
    """Return the table of queues with the scheduler of each, and its contents."""
    cells = [
        [
            row.name,
            row.state,
            "windlass" if row.adopted else report.kind,
            f"{row.handed}/{row.gangs}",
            str(row.waiting),
            str(row.running),
        ]
        for row in report.queues
    ]
    header = ["QUEUE", "STATE", "SCHEDULER", "HANDED OVER", "PENDING PODS", "RUNNING PODS"]
    return tables.render(header, cells, right=frozenset((3, 4, 5)))


def check(report: Report, queues: Collection[str], *, finish: bool) -> None:
    """Raise ``WL-ADOPT-409`` for an obstacle, and ``WL-QUEUE-404`` for an unknown queue."""
    obstacles = [f"{finding.subject}: {finding.text}" for finding in report.stops]
    known = {row.name for row in report.queues}
    for name in queues if not obstacles else ():
        if name not in known:
            remedy = f"kubectl get {report.resource.qualified}"
            raise WindlassError("WL-QUEUE-404", f'queue "{name}" does not exist', remedies=(remedy,))
    if finish:
        obstacles += report.against
        wanted = report.below(queues)
        remaining = [
            row.name for row in report.queues if not row.adopted and not row.inner and row.name not in wanted
        ]
        if remaining:
            obstacles.append(f"queues that still belong to {report.title}: {', '.join(remaining)}")
    if obstacles:
        raise WindlassError(
            "WL-ADOPT-409",
            "this cluster cannot be adopted in its current state",
            evidence="; ".join(obstacles),
            remedies=("windlass help WL-ADOPT-409",),
        )


def check_alone(options: InstallOptions, kind: str = "") -> None:
    """Raise ``WL-ADOPT-409`` if Windlass is installed next to a scheduler other than ``kind``.

    Otherwise Windlass would schedule what was not handed over, or no scheduler what
    was.

    :param options: as installed
    """
    others = [peer for peer in options.beside if peer.partition(":")[0] != kind]
    if others:
        name = others[0].partition(":")[0]
        raise WindlassError(
            "WL-ADOPT-409",
            f"Windlass is installed next to {name} in this cluster, and schedules only what was handed over",
            evidence=f"windlass-scheduler runs with `--beside={others[0]}`",
            remedies=("windlass uninstall --adopted", f"windlass install --adopt {name}"),
        )


def check_other_schedulers(client: BlockingClient) -> None:
    """Raise ``WL-ADOPT-409`` if Volcano runs.

    Its controllers and those of Windlass would work on the same jobs, gangs and queues.
    (KAI's controllers work on kinds that Windlass leaves to them.)
    """
    try:
        found = client.list(DEPLOYMENTS).items
    except StatusError as error:
        if error.code != 403:
            raise
        return  # users without this right cannot install either
    parts = (adopt_volcano.SCHEDULER, adopt_volcano.CONTROLLERS)
    running = [d for d in found if adopt_volcano.label(d) in parts and d["spec"].get("replicas", 1)]
    if running:
        raise WindlassError(
            "WL-ADOPT-409",
            "Volcano runs in this cluster: two schedulers would work on the same jobs, gangs and queues",
            evidence="; ".join(f"{title(d)}: {state_text(d)}" for d in running),
            remedies=("windlass install --adopt volcano   (installs Windlass next to it)",),
        )


def reports_of(client: BlockingClient) -> list[Report]:
    """Return reports on schedulers that handed queues over or were stopped; else on all present."""
    reports = [look(client) for look in PREFLIGHTS.values()]
    taken = [report for report in reports if report.stopped or any(row.adopted for row in report.queues)]
    return taken or [report for report in reports if report.switches]


def options_next_to(options: InstallOptions, report: Report) -> InstallOptions:
    """Return the options while the other scheduler runs.

    They include its scheduler names, and its policy unless another one is given or
    installed.
    """
    import yaml

    names = dict.fromkeys((*(options.scheduler_names or ("windlass",)), *report.names))
    own = options.configuration if yaml.safe_load(options.configuration or "{}") else ""
    return replace(
        options,
        scheduler_names=tuple(names),
        beside=(str(report.peer),),
        grouped=(),
        configuration=own or report.configuration,
    )


def options_alone(options: InstallOptions, report: Report) -> InstallOptions:
    """Return the options when the other scheduler no longer runs."""
    return replace(options, beside=(), grouped=report.grouped)


def wanted_objects(client: BlockingClient, options: InstallOptions) -> list[Json]:
    """Return the objects to apply, with only the missing CRDs, as others have another owner."""
    all_objects = objects.objects(options)
    return [
        obj
        for obj in all_objects
        if obj["kind"] != CRD.kind or client.find(CRD, obj["metadata"]["name"]) is None
    ]


def mark(client: BlockingClient, report: Report, queues: Collection[str], *, adopted: bool) -> None:
    """Mark queues as adopted, or remove the mark."""
    for name in queues:
        change = {"metadata": {"annotations": {ADOPTED: "true" if adopted else None}}}
        client.patch(report.resource, name, change)


def wait_until_handed_over(
    report: Report,
    queues: Collection[str],
    clock: PausingClock,
    *,
    seconds: float,
    back: bool,
    tell: Tell,
) -> None:
    """Report each queue as soon as all its gangs are handed over (``back``: given back).

    Raises ``WL-ADOPT-504`` after ``seconds``. The marks stay, and the handover
    continues.
    """
    left, deadline = set(queues), clock.monotonic() + seconds
    while left:
        rows = [row for row in report.look() if row.name in left]
        for row in rows:
            if (row.handed if back else row.remaining) == 0:
                left.discard(row.name)
                tell(_handover_text(row, back, report.title))
        left &= {row.name for row in rows}
        if left and clock.monotonic() > deadline:
            missing = [f"{row.name}: {row.handed} of {row.gangs} gangs" for row in rows if row.name in left]
            raise WindlassError(
                "WL-ADOPT-504",
                "not all gangs were handed over in time",
                evidence=f"handed over after {seconds:.0f} s: {', '.join(missing)}",
                remedies=("kubectl -n windlass-system logs deployment/windlass-controllers",),
            )
        if left:
            clock.pause(POLL_SECONDS)


def _handover_text(row: QueueRow, back: bool, title: str) -> str:
    change = f"given back to {title}" if back else "handed over to Windlass"
    count = row.gangs - row.staying
    gangs = f"{count} gang{'' if count == 1 else 's'}"
    stay = f", {row.staying} stay with {title}" if row.staying and not back else ""
    return f"queue {row.name}: {gangs} {change}{stay}; {row.waiting} pending pods, {row.running} running pods untouched"


def stop(client: BlockingClient, report: Report, clock: PausingClock, *, seconds: float) -> Iterator[str]:
    """Scale the other scheduler to zero, wait for its end, and yield what was scaled.

    Raises ``WL-ADOPT-504``.
    """
    for switch in report.switches:
        switch.turn_off(client)
        deadline = clock.monotonic() + seconds
        for deployment in switch.deployments:
            while (_status(client, deployment).get("replicas") or 0) > 0:
                if clock.monotonic() > deadline:
                    words = f"{title(deployment)} still has instances after {seconds:.0f} s"
                    raise WindlassError("WL-ADOPT-504", words, remedies=("kubectl get pods -A",))
                clock.pause(POLL_SECONDS)
        yield switch.name


def start(client: BlockingClient, report: Report) -> Iterator[str]:
    """Restore the instances of the other scheduler, and yield what was scaled."""
    for switch in reversed(report.switches):
        if switch.off:
            switch.turn_on(client)
            yield switch.name


def _status(client: BlockingClient, deployment: Json) -> Json:
    metadata = deployment["metadata"]
    return client.get(DEPLOYMENTS, metadata["name"], metadata["namespace"]).get("status") or {}


__all__ = [
    "PREFLIGHTS",
    "Report",
    "check",
    "check_alone",
    "mark",
    "options_alone",
    "options_next_to",
    "queues_text",
    "report_text",
    "reports_of",
    "start",
    "stop",
    "wait_until_handed_over",
    "wanted_objects",
]
