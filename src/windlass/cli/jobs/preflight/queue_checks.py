"""Checks of a job's queue before it is submitted: its state, and the limits on the path to the root."""

from __future__ import annotations

from collections.abc import Mapping

from windlass.api import quantities
from windlass.api.errors import WindlassError
from windlass.api.queues import opening as queue_opening
from windlass.api.queues.opening import Queue
from windlass.api.queues.tree import ROOT
from windlass.api.resources import QUEUES
from windlass.cli import resources
from windlass.cli.errors import missing, unless_forbidden
from windlass.cli.jobs.requests.job_builder import JobRequest
from windlass.cli.text import natural_key
from windlass.client.blocking import BlockingClient


def check_queue(client: BlockingClient, request: JobRequest) -> None:
    """Check that the queue exists, is open, and may ever hold the job.

    The limits of all queues above it count, as far as this user may see them. Raises
    :class:`WindlassError`.
    """
    queue = unless_forbidden(lambda: client.find(QUEUES, request.queue), {})
    if queue == {}:
        return
    known = unless_forbidden(lambda: client.list(QUEUES).items, [queue] if queue else [])
    queues: dict[str, Queue] = {item["metadata"]["name"]: item for item in known}
    if queue is None:
        raise missing("queues", request.queue, queues)
    queues.setdefault(request.queue, queue)
    _check_leaf(queues, request)
    _check_state(queues, request.queue)
    _check_limits(queues, request)


def _check_state(queues: Mapping[str, Queue], name: str) -> None:
    queue = queues[name]
    if queue_opening.is_open(queue):
        return
    first = next(iter(queue_opening.to_open(queues, name)), name)
    above = f'the queue "{first}" above it is closed, and ' if first != name else ""
    raise WindlassError(
        "WL-QUEUE-423",
        f'queue "{name}" is {queue["status"]["state"].lower()}',
        evidence=f"{above}it accepts no new jobs; the job was not submitted",
        remedies=(queue_opening.opening_commands(queues, name), "windlass queue ls"),
    )


def _check_leaf(queues: Mapping[str, Queue], request: JobRequest) -> None:
    """Raise ``WL-QUEUE-422`` for a queue with child queues, which accepts no jobs itself."""
    parents = {name: (queue.get("spec") or {}).get("parent") or ROOT for name, queue in queues.items()}
    below = [name for name in queues if name != ROOT and name not in parents.values()]
    leaves = [name for name in below if request.queue in (*queue_opening.path_of(queues, name), ROOT)]
    if request.queue not in parents.values() and request.queue != ROOT:
        return
    leaves = sorted(leaves, key=natural_key)
    raise WindlassError(
        "WL-QUEUE-422",
        f'queue "{request.queue}" has child queues and accepts no jobs itself',
        evidence=f"queues below it: {', '.join(leaves[:8])}{' …' if len(leaves) > 8 else ''}; "
        "the job was not submitted",
        remedies=tuple(f"{request.command_line} --queue {name} -- …" for name in leaves[:3]),
    )


def _check_limits(queues: Mapping[str, Queue], request: JobRequest) -> None:
    """Raise ``WL-QUEUE-413`` if the job exceeds a limit of its queue, or of a queue above it.

    The remedy raises every limit that is too small, from the top, as a limit may not exceed that of
    the queue above.
    """
    path = [name for name in queue_opening.path_of(queues, request.queue) if name != ROOT]
    limits = {name: resources.vector((queues[name].get("spec") or {}).get("capability")) for name in path}
    total = {name: units * request.nodes for name, units in quantities.to_vector(request.request).items()}
    exceeded = [
        (name, resource)
        for name in path
        for resource, units in total.items()
        if units > limits[name].get(resource, units)
    ]
    if not exceeded:
        return
    lines = [
        f"{resource}: the job needs {quantities.from_units(resource, total[resource])}, the capability of "
        f'queue "{name}"{"" if name == request.queue else " above it"} is '
        f"{quantities.from_units(resource, limits[name][resource])}"
        for name, resource in exceeded
    ]
    raised = [
        f"windlass queue set {name} "
        + " ".join(
            f"capability.{resource}={quantities.from_units(resource, total[resource])}"
            for queue, resource in exceeded
            if queue == name
        )
        for name in reversed(dict.fromkeys(queue for queue, _ in exceeded))
    ]
    raise WindlassError(
        "WL-QUEUE-413",
        f'the job exceeds the limit of queue "{exceeded[0][0]}"',
        evidence="; ".join(lines),
        remedies=("windlass queue ls", " && ".join(raised)),
    )
