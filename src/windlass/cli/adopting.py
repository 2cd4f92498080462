"""Taking over a cluster from Volcano, queue by queue, and giving it back.

Order, each step to be undone at any time, none of which writes a pod:

1. Windlass is installed beside: its scheduler serves Volcano's scheduler name, yet touches only gangs that were
   handed over; its controllers only hand over (:mod:`windlass.controllers.adoption`).
2. A queue is marked. Its gangs, those that run and those that come, are handed over one by one.
3. When all queues are marked, Volcano's scheduler and controllers are scaled to nothing, and Windlass drops the mark
   from the gangs (``finish``).

Going back is the same in reverse. docs/decisions/0016-one-write-hands-a-gang-over.md says why so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from windlass.api.annotations import ADOPTED, ADOPTED_REPLICAS
from windlass.api.errors import WindlassError
from windlass.api.resources import QUEUES
from windlass.cli import installing, tables
from windlass.cli.installing import CRD, DEPLOYMENTS, Wishes
from windlass.cli.invocation import PausingClock
from windlass.cli.volcanoes import QueueRow, Report, preflight, queue_rows, title
from windlass.client.blocking import BlockingClient

Json = dict[str, Any]
Tell = Callable[[str], None]
VOLCANO = "volcano"
LOOK_SECONDS = 0.5
PATIENCE_SECONDS = 120


def report_text(report: Report) -> str:
    """The report for people."""
    rows = [[finding.level, finding.subject, finding.words] for finding in report.findings]
    return tables.render(["", "WHAT", "HOW IT STANDS"], rows) + "\n" + queues_text(report.queues)


def queues_text(rows: Sequence[QueueRow]) -> str:
    """Whose each queue is, and what is in it."""
    cells = [
        [
            row.name,
            row.state,
            "windlass" if row.adopted else VOLCANO,
            f"{row.handed}/{row.gangs}",
            str(row.waiting),
            str(row.running),
        ]
        for row in rows
    ]
    header = ["QUEUE", "STATE", "WHOSE", "HANDED OVER", "PODS WAITING", "PODS RUNNING"]
    return tables.render(header, cells, right=frozenset((3, 4, 5)))


def check(report: Report, queues: Collection[str], *, finish: bool) -> None:
    """Raises ``WL-ADOPT-409`` where something stands against it, ``WL-QUEUE-404`` for a queue that is not there."""
    against = [f"{finding.subject}: {finding.words}" for finding in report.stops]
    known = {row.name for row in report.queues}
    for name in queues:
        if name not in known:
            raise WindlassError("WL-QUEUE-404", f"there is no queue {name}", remedies=("kubectl get queues",))
    if finish:
        against += [
            f"{count} {kind}, on which only Volcano's controllers work" for kind, count in report.kept.items()
        ]
        left = [
            row.name
            for row in report.queues
            if not row.adopted and row.name not in queues and row.name != "root"
        ]
        if left:
            against.append(f"queues that are still Volcano's: {', '.join(left)}")
    if against:
        raise WindlassError(
            "WL-ADOPT-409",
            "this cluster cannot be taken over as it is",
            evidence="; ".join(against),
            remedies=("windlass help WL-ADOPT-409",),
        )


def wishes_beside(wishes: Wishes, report: Report) -> Wishes:
    """What is installed while Volcano runs: its scheduler names too, and its own policy unless another was given."""
    names = wishes.scheduler_names or ("windlass", *report.names)
    return replace(
        wishes,
        scheduler_names=names,
        beside=(VOLCANO,),
        configuration=wishes.configuration or report.configuration,
    )


def wanted_objects(client: BlockingClient, wishes: Wishes) -> list[Json]:
    """What is applied: of the CRDs only those that the cluster does not have, as Volcano's are its own."""
    found = installing.objects(wishes)
    return [
        obj for obj in found if obj["kind"] != CRD.kind or client.find(CRD, obj["metadata"]["name"]) is None
    ]


def mark(client: BlockingClient, queues: Collection[str], *, adopted: bool) -> None:
    """Say on queues whose they are."""
    for name in queues:
        client.patch(QUEUES, name, {"metadata": {"annotations": {ADOPTED: "true" if adopted else None}}})


def until_handed(
    client: BlockingClient,
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
        rows = [row for row in queue_rows(client) if row.name in left]
        for row in rows:
            if row.handed == (0 if back else row.gangs):
                left.discard(row.name)
                tell(_told(row, back))
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


def _told(row: QueueRow, back: bool) -> str:
    whose = "given back to Volcano" if back else "handed over to Windlass"
    gangs = f"{row.gangs} gang{'' if row.gangs == 1 else 's'}"
    return f"queue {row.name}: {gangs} {whose}; {row.waiting} pods wait, {row.running} run on untouched"


def stop_volcano(
    client: BlockingClient, report: Report, clock: PausingClock, *, seconds: float
) -> Iterator[str]:
    """Scale its scheduler and controllers to nothing, and wait until none is left. Yields their titles.

    Raises ``WL-ADOPT-504``."""
    for deployment in filter(None, (report.controllers, report.scheduler)):
        replicas = deployment["spec"].get("replicas", 1)
        if replicas:
            _scale(client, deployment, 0, {ADOPTED_REPLICAS: str(replicas)})
        deadline = clock.monotonic() + seconds
        while (_status(client, deployment).get("replicas") or 0) > 0:
            if clock.monotonic() > deadline:
                words = f"{title(deployment)} still has instances after {seconds:.0f} s"
                raise WindlassError("WL-ADOPT-504", words, remedies=("kubectl get pods -A",))
            clock.pause(LOOK_SECONDS)
        yield title(deployment)


def stopped(report: Report) -> bool:
    """Whether Volcano's scheduler was scaled to nothing here."""
    scheduler = report.scheduler
    return scheduler is not None and ADOPTED_REPLICAS in (scheduler["metadata"].get("annotations") or {})


def start_volcano(client: BlockingClient, report: Report) -> Iterator[str]:
    """Give its scheduler and controllers their instances back. Yields their titles."""
    for deployment in filter(None, (report.scheduler, report.controllers)):
        was = (deployment["metadata"].get("annotations") or {}).get(ADOPTED_REPLICAS)
        if was is not None:
            _scale(client, deployment, int(was), {ADOPTED_REPLICAS: None})
            yield title(deployment)


def _scale(client: BlockingClient, deployment: Json, replicas: int, notes: dict[str, str | None]) -> None:
    metadata = deployment["metadata"]
    change = {"metadata": {"annotations": notes}, "spec": {"replicas": replicas}}
    client.patch(DEPLOYMENTS, metadata["name"], change, metadata["namespace"])


def _status(client: BlockingClient, deployment: Json) -> Json:
    metadata = deployment["metadata"]
    return client.get(DEPLOYMENTS, metadata["name"], metadata["namespace"]).get("status") or {}


__all__ = [
    "Report",
    "check",
    "mark",
    "preflight",
    "queues_text",
    "report_text",
    "start_volcano",
    "stop_volcano",
    "stopped",
    "until_handed",
    "wanted_objects",
    "wishes_beside",
]
