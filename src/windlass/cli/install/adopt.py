"""Taking over a cluster from Volcano or KAI Scheduler, queue by queue, and giving it back.

Order, each step to be undone at any time, none of which writes a pod:

1. Windlass is installed beside: its scheduler serves the other's scheduler name, yet touches only gangs that were
   handed over; its controllers hand over (:mod:`windlass.controllers.adoption`).
2. A queue is marked. Its gangs, those that run and those that come, are handed over one by one.
3. When all queues are marked, the other scheduler is scaled to nothing, and Windlass drops the mark from the gangs
   (``finish``).

Going back is the same in reverse. docs/decisions/0016-gang-handover-in-one-write.md says why so. What is each
scheduler's own is in :mod:`windlass.cli.install.adopt_volcano` and :mod:`windlass.cli.install.adopt_kai`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

from windlass.api.annotations import ADOPTED
from windlass.api.errors import StatusError, WindlassError
from windlass.cli import tables
from windlass.cli.install import adopt_kai, adopt_volcano, objects
from windlass.cli.install.adopt_common import QueueRow, Report, standing, title
from windlass.cli.install.objects import CRD, DEPLOYMENTS, InstallOptions
from windlass.cli.invocation import PausingClock
from windlass.client.blocking import BlockingClient
from windlass.model.cluster.ownership import KAI, VOLCANO

Json = dict[str, Any]
Tell = Callable[[str], None]
PREFLIGHTS = {VOLCANO: adopt_volcano.preflight, KAI: adopt_kai.preflight}
"""Which schedulers can be taken over from, and what looks at them. Each raises ``StatusError``, ``Unreachable``."""
LOOK_SECONDS = 0.5
PATIENCE_SECONDS = 120


def report_text(report: Report) -> str:
    """The report for people."""
    rows = [[finding.level, finding.subject, finding.words] for finding in report.findings]
    found = tables.render(["", "WHAT", "HOW IT STANDS"], rows)
    return f"{found}\n{queues_text(report)}" if report.queues else found


def queues_text(report: Report) -> str:
    """Whose each queue is, and what is in it."""
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
    header = ["QUEUE", "STATE", "WHOSE", "HANDED OVER", "PODS WAITING", "PODS RUNNING"]
    return tables.render(header, cells, right=frozenset((3, 4, 5)))


def check(report: Report, queues: Collection[str], *, finish: bool) -> None:
    """Raises ``WL-ADOPT-409`` where something stands against it, ``WL-QUEUE-404`` for a queue that is not there."""
    against = [f"{finding.subject}: {finding.words}" for finding in report.stops]
    known = {row.name for row in report.queues}
    for name in queues if not against else ():
        if name not in known:
            remedy = f"kubectl get {report.resource.qualified}"
            raise WindlassError("WL-QUEUE-404", f"there is no queue {name}", remedies=(remedy,))
    if finish:
        against += report.against
        wanted = report.below(queues)
        left = [
            row.name for row in report.queues if not row.adopted and not row.inner and row.name not in wanted
        ]
        if left:
            against.append(f"queues that are still {report.title}'s: {', '.join(left)}")
    if against:
        raise WindlassError(
            "WL-ADOPT-409",
            "this cluster cannot be taken over as it is",
            evidence="; ".join(against),
            remedies=("windlass help WL-ADOPT-409",),
        )


def check_alone(options: InstallOptions, kind: str = "") -> None:
    """Raises ``WL-ADOPT-409`` where Windlass stands beside another scheduler than that ``kind``. ``wishes``: as it is
    installed. It would otherwise decide what is not handed over, or nobody what is."""
    others = [peer for peer in options.beside if peer.partition(":")[0] != kind]
    if others:
        name = others[0].partition(":")[0]
        raise WindlassError(
            "WL-ADOPT-409",
            f"Windlass stands beside {name} in this cluster, and decides only what was handed over",
            evidence=f"windlass-scheduler runs with --beside={others[0]}",
            remedies=("windlass uninstall --adopted", f"windlass install --adopt {name}"),
        )


def check_other_schedulers(client: BlockingClient) -> None:
    """Raises ``WL-ADOPT-409`` where Volcano runs: whoever places pods, its controllers and those of Windlass would both
    work on the same jobs, gangs and queues. (KAI's are of kinds that Windlass leaves to it.)"""
    try:
        found = client.list(DEPLOYMENTS).items
    except StatusError as error:
        if error.code != 403:
            raise
        return  # who may not look may not install either
    parts = (adopt_volcano.SCHEDULER, adopt_volcano.CONTROLLERS)
    running = [d for d in found if adopt_volcano.label(d) in parts and d["spec"].get("replicas", 1)]
    if running:
        raise WindlassError(
            "WL-ADOPT-409",
            "Volcano runs in this cluster: two would work on the same jobs, gangs and queues",
            evidence="; ".join(f"{title(d)}: {standing(d)}" for d in running),
            remedies=("windlass install --adopt volcano, which puts Windlass beside it",),
        )


def found_in(client: BlockingClient) -> list[Report]:
    """Of those schedulers that have handed queues over, or were stopped; else of all that are there."""
    reports = [look(client) for look in PREFLIGHTS.values()]
    taken = [report for report in reports if report.stopped or any(row.adopted for row in report.queues)]
    return taken or [report for report in reports if report.switches]


def wishes_beside(options: InstallOptions, report: Report) -> InstallOptions:
    """What is installed while the other one runs: its scheduler names too, and its own policy unless another was
    given, or is installed."""
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


def wishes_alone(options: InstallOptions, report: Report) -> InstallOptions:
    """What is installed when the other one runs no more."""
    return replace(options, beside=(), grouped=report.grouped)


def wanted_objects(client: BlockingClient, options: InstallOptions) -> list[Json]:
    """What is applied: of the CRDs only those that the cluster does not have, as the other's are its own."""
    found = objects.objects(options)
    return [
        obj for obj in found if obj["kind"] != CRD.kind or client.find(CRD, obj["metadata"]["name"]) is None
    ]


def mark(client: BlockingClient, report: Report, queues: Collection[str], *, adopted: bool) -> None:
    """Say on queues whose they are."""
    for name in queues:
        change = {"metadata": {"annotations": {ADOPTED: "true" if adopted else None}}}
        client.patch(report.resource, name, change)


def until_handed(
    report: Report,
    queues: Collection[str],
    clock: PausingClock,
    *,
    seconds: float,
    back: bool,
    tell: Tell,
) -> None:
    """Tell of each queue as soon as all its gangs are handed over (``back``: given back).

    Raises ``WL-ADOPT-504`` after ``seconds``; what was marked stays marked, and goes on being handed over.
    """
    left, deadline = set(queues), clock.monotonic() + seconds
    while left:
        rows = [row for row in report.look() if row.name in left]
        for row in rows:
            if (row.handed if back else row.theirs) == 0:
                left.discard(row.name)
                tell(_told(row, back, report.title))
        left &= {row.name for row in rows}
        if left and clock.monotonic() > deadline:
            missing = [f"{row.name}: {row.handed} of {row.gangs} gangs" for row in rows if row.name in left]
            raise WindlassError(
                "WL-ADOPT-504",
                "not all gangs changed hands in time",
                evidence=f"after {seconds:.0f} s with Windlass: {', '.join(missing)}",
                remedies=("kubectl -n windlass-system logs deployment/windlass-controllers",),
            )
        if left:
            clock.pause(LOOK_SECONDS)


def _told(row: QueueRow, back: bool, title: str) -> str:
    whose = f"given back to {title}" if back else "handed over to Windlass"
    count = row.gangs - row.staying
    gangs = f"{count} gang{'' if count == 1 else 's'}"
    stay = f", {row.staying} stay with {title}" if row.staying and not back else ""
    return f"queue {row.name}: {gangs} {whose}{stay}; {row.waiting} pods wait, {row.running} run on untouched"


def stop(client: BlockingClient, report: Report, clock: PausingClock, *, seconds: float) -> Iterator[str]:
    """Scale the other one to nothing, and wait until none of it is left. Yields the names of what was scaled.

    Raises ``WL-ADOPT-504``."""
    for switch in report.switches:
        switch.turn_off(client)
        deadline = clock.monotonic() + seconds
        for deployment in switch.deployments:
            while (_status(client, deployment).get("replicas") or 0) > 0:
                if clock.monotonic() > deadline:
                    words = f"{title(deployment)} still has instances after {seconds:.0f} s"
                    raise WindlassError("WL-ADOPT-504", words, remedies=("kubectl get pods -A",))
                clock.pause(LOOK_SECONDS)
        yield switch.name


def start(client: BlockingClient, report: Report) -> Iterator[str]:
    """Give the other one its instances back. Yields the names of what was scaled."""
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
    "found_in",
    "mark",
    "queues_text",
    "report_text",
    "start",
    "stop",
    "until_handed",
    "wanted_objects",
    "wishes_alone",
    "wishes_beside",
]
