"""Queues with their amounts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.api import quantities
from windlass.api.annotations import QUEUE_SHARE
from windlass.api.errors import StatusError
from windlass.api.resources import KAI_QUEUES, NODES, QUEUES
from windlass.api.views import DEFAULT_SCHEDULER, decode_kai_queue
from windlass.cli import resources
from windlass.cli.errors import unless_forbidden
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.job_index import fetch
from windlass.cli.jobs.jobs import Job
from windlass.cli.text import natural_key
from windlass.engine.decision import QueueUsage
from windlass.engine.diagnosis.share_messages import lending
from windlass.model.queues.engine_queue import KAI, kai_queue_of, shown
from windlass.spi.objects import Queue


@dataclass(slots=True)
class VolcanoQueueShare:
    """One queue of Volcano, with amounts in engine units.

    ``key`` is unique over the queues of both APIs, ``name`` and ``parent_name`` are for
    people. ``record``: share as reported by the scheduler; empty if there is no report.
    ``borrowed``: resource → lender → units. ``amounts["waiting"]``: requests of its
    pending jobs.
    """

    obj: dict[str, Any]
    shown: str = ""
    shown_parent: str = ""
    record: dict[str, Any] = field(default_factory=dict)
    borrowed: dict[str, dict[str, int]] = field(default_factory=dict)
    amounts: dict[str, resources.Vector] = field(default_factory=dict)
    running: int = 0
    pending: int = 0

    @property
    def spec(self) -> dict[str, Any]:
        return self.obj.get("spec") or {}

    @property
    def key(self) -> str:
        return self.obj["metadata"]["name"]

    @property
    def name(self) -> str:
        return self.shown or self.key

    @property
    def full_name(self) -> str:
        """Name as kubectl prints it."""
        return f"queue.{QUEUES.group}/{self.obj['metadata']['name']}"

    @property
    def unlimited(self) -> tuple[str, ...]:
        """Resources with an unlimited deserved amount."""
        return ()

    @property
    def parent_name(self) -> str:
        return self.shown_parent or self.parent

    @property
    def borrowed_gpus(self) -> str:
        """GPUs that it holds of other queues' shares; ``-`` for none."""
        held = {name: sum(lenders.values()) for name, lenders in self.borrowed.items()}
        shown = resources.devices_text(held)
        return "-" if shown == "0" else shown

    @property
    def why(self) -> dict[str, str]:
        """Resource → reason of the fair share."""
        return dict(self.record.get("why") or {})

    @property
    def parent(self) -> str:
        return self.spec.get("parent") or ("" if self.key == "root" else "root")

    @property
    def state(self) -> str:
        return (self.obj.get("status") or {}).get("state") or "Open"

    @property
    def weight(self) -> float:
        return int(self.spec.get("weight") or 1)

    @property
    def priority(self) -> int:
        return int(self.spec.get("priority") or 0)

    def take_reported(self) -> None:
        """Take amounts from the scheduler's record, and counts from the status."""
        status = self.obj.get("status") or {}
        held, requested = (resources.vector(self.record.get(which)) for which in ("allocated", "requested"))
        self.amounts |= {"allocated": held, "requested": requested, "waiting": _excess(requested, held)}
        self.running = int(status.get("running") or 0)
        self.pending = sum(int(status.get(which) or 0) for which in ("pending", "inqueue"))

    def gpus(self, which: str) -> str:
        vector = self.amounts.get(which) or {}
        named = any(quantities.is_device(name) for name in vector)
        if which in ("capability", "guarantee", "deserved") and not named:
            return "any" if which == "deserved" and any(map(quantities.is_device, self.unlimited)) else "-"
        if which == "fair_share" and not self.record:
            return "-"
        return resources.devices_text(vector)

    def text(self, which: str) -> str:
        vector = self.amounts.get(which) or {}
        return ",".join(f"{k}={quantities.from_units(k, v)}" for k, v in sorted(vector.items())) or "-"

    def as_record(self) -> dict[str, Any]:
        quantity = {
            which: {name: quantities.from_units(name, units) for name, units in vector.items()}
            for which, vector in self.amounts.items()
        }
        return {
            "name": self.name,
            "parent": self.parent_name or None,
            "state": self.state,
            "weight": self.weight,
            "priority": self.priority,
            "reclaimable": self.spec.get("reclaimable", True),
            **quantity,
            "borrowed": {
                name: {lender: quantities.from_units(name, units) for lender, units in lenders.items()}
                for name, lenders in self.borrowed.items()
            },
            "why": self.why,
            "running": self.running,
            "pending": self.pending,
        }


class KaiQueueShare(VolcanoQueueShare):
    """One queue of KAI.

    Allocated and requested amounts are those that the scheduler reports.
    """

    @property
    def _queue(self) -> Queue:
        return kai_queue_of(decode_kai_queue(msgspec.json.encode(self.obj)))

    @property
    def key(self) -> str:
        return KAI + self.obj["metadata"]["name"]

    @property
    def full_name(self) -> str:
        return f"queue.{KAI_QUEUES.group}/{self.obj['metadata']['name']}"

    @property
    def parent(self) -> str:
        parent = self.spec.get("parentQueue")
        return KAI + parent if parent else ""

    @property
    def weight(self) -> float:
        weights = self._queue.surplus_weights
        return next((weights[name] for name in weights if quantities.is_device(name)), 1)

    @property
    def priority(self) -> int:
        return self._queue.priority

    @property
    def unlimited(self) -> tuple[str, ...]:
        return self._queue.unlimited

    def read(self) -> None:
        """Take the amounts from the object and from the scheduler's record."""
        queue = self._queue
        self.amounts = {
            "guarantee": {},
            "deserved": dict(queue.deserved),
            "capability": dict(queue.capability),
            "allocated": resources.vector(self.record.get("allocated")),
            "requested": resources.vector(self.record.get("requested")),
        }
        self.amounts["waiting"] = _excess(self.amounts["requested"], self.amounts["allocated"])


def gather(
    invocation: Invocation, missing: dict[str, VolcanoQueueShare] | None = None
) -> list[VolcanoQueueShare]:
    """Return all queues with allocated and pending amounts; parents include their children.

    If this user may not list the jobs of all namespaces, the amounts are those that the
    scheduler and the controllers have written on the queues.

    :param missing: receives the same for queues that jobs name but that do not exist
    """
    shares, kai = volcano_shares(invocation), _kai_queues(invocation)
    jobs = unless_forbidden(lambda: fetch(invocation, None), None)
    if jobs is None:
        for share in shares.values():
            share.take_reported()
        _add_to_ancestors(shares)
    unfinished = [job for job in jobs or () if not job.finished]
    nodes = _nodes_with_shares(invocation, unfinished)
    all_shares = {**shares, **{share.key: share for share in kai}}
    for job in unfinished:
        if invocation.target.remote and _uses_default_scheduler(job):
            continue
        _count(all_shares, job, nodes)
        if missing is not None and job.queue not in all_shares and KAI + job.queue not in all_shares:
            _count(missing | {job.queue: missing.setdefault(job.queue, _absent(job.queue))}, job, nodes)
    result = [*(share for share in shares.values() if not _is_implicit(share, shares, kai)), *kai]
    both = len({isinstance(share, KaiQueueShare) for share in result}) > 1
    for share in result:
        share.shown, share.shown_parent = shown(share.key, both), shown(share.parent, both)
        share.amounts["fair_share"] = resources.vector(share.record.get("fairShare"))
    reported = any(share.record for share in result)
    for key, lenders in lending([_usage(share) for share in result] if reported else []).items():
        share = next(share for share in result if share.key == key)
        share.borrowed = {
            name: {shown(lender, both): units for lender, units in each.items()}
            for name, each in lenders.items()
        }
    return result


def _absent(name: str) -> VolcanoQueueShare:
    """Return a queue that has only a name."""
    share = VolcanoQueueShare({"metadata": {"name": name}})
    share.amounts = {which: {} for which in ("allocated", "requested", "waiting")}
    return share


def _add_to_ancestors(shares: Mapping[str, VolcanoQueueShare]) -> None:
    """Add the counts of each queue to its ancestors.

    The status of a queue counts only its own gangs.
    """
    own = {key: (share.running, share.pending) for key, share in shares.items()}
    for key, (running, pending) in own.items():
        for share in ancestors(shares[key], shares):
            if share.key != key:
                share.running += running
                share.pending += pending


def ancestors(
    share: VolcanoQueueShare, shares: Mapping[str, VolcanoQueueShare]
) -> Iterator[VolcanoQueueShare]:
    """Yield the ancestors of a queue, the nearest first, each once.

    A queue in a cycle is an ancestor of itself.
    """
    key, seen = share.parent, set[str]()
    while key in shares and key not in seen:
        seen.add(key)
        yield shares[key]
        key = shares[key].parent


def volcano_shares(invocation: Invocation) -> dict[str, VolcanoQueueShare]:
    """Return Volcano's queues by name with their stated amounts, without allocations."""
    shares = {}
    for queue in invocation.client.list(QUEUES).items:
        spec = queue.get("spec") or {}
        share = VolcanoQueueShare(queue, record=_record(queue))
        share.amounts = {
            "guarantee": resources.vector((spec.get("guarantee") or {}).get("resource")),
            "deserved": resources.vector(spec.get("deserved")),
            "capability": quantities.bounded(resources.vector(spec.get("capability"))),
            "allocated": {},
            "requested": {},
            "waiting": {},
        }
        shares[share.key] = share
    return shares


def _kai_queues(invocation: Invocation) -> list[KaiQueueShare]:
    """Return KAI's queues, if the server knows the kind."""
    try:
        queues = [KaiQueueShare(obj, record=_record(obj)) for obj in invocation.client.list(KAI_QUEUES).items]
    except StatusError as error:
        if error.code in (
            403,
            404,
        ):  # users with rights for some kinds get 403 for kinds that are not served
            return []
        raise
    for share in queues:
        share.read()
    return queues


def _is_implicit(
    share: VolcanoQueueShare, shares: Mapping[str, VolcanoQueueShare], kai: Sequence[VolcanoQueueShare]
) -> bool:
    """Return whether Volcano's ``root`` and ``default`` exist only because they always do."""
    return bool(kai) and set(shares) <= {"root", "default"} and not share.running and not share.pending


def _record(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the share that the scheduler has recorded on the queue."""
    try:
        record = msgspec.json.decode((obj["metadata"].get("annotations") or {}).get(QUEUE_SHARE, "{}"))
    except msgspec.DecodeError:
        return {}
    return record if isinstance(record, dict) else {}


def _excess(requested: resources.Vector, held: resources.Vector) -> resources.Vector:
    return {name: units - held.get(name, 0) for name, units in requested.items() if units > held.get(name, 0)}


def _usage(share: VolcanoQueueShare) -> QueueUsage:
    which = share.amounts
    return QueueUsage(
        share.key,
        share.parent,
        which["guarantee"],
        which["deserved"],
        which["capability"],
        which["fair_share"],
        which["allocated"],
        which["requested"],
        unlimited=share.unlimited,
    )


def _nodes_with_shares(invocation: Invocation, found: Sequence[Job]) -> dict[str, Mapping[str, Any]]:
    """Return the nodes by name, which give the device memory for shares.

    Empty if no pod holds a device share, or this user may not see nodes.
    """
    held = [pod for job in found for pod in job.pods if resources.holds_resources(pod)]
    if not any(resources.shares_text(pod) for pod in held):
        return {}
    found = unless_forbidden(lambda: invocation.client.list(NODES).items, [])
    return {node["metadata"]["name"]: node for node in found}


def _uses_default_scheduler(job: Job) -> bool:
    """Return whether the cluster's own scheduler places the pods, so that they are in no queue.

    In single-node mode that scheduler is Windlass.
    """
    return bool(job.pods) and all(
        (pod["spec"].get("schedulerName") or DEFAULT_SCHEDULER) == DEFAULT_SCHEDULER for pod in job.pods
    )


def _count(shares: Mapping[str, VolcanoQueueShare], job: Job, nodes: Mapping[str, Mapping[str, Any]]) -> None:
    """Add a job to its queue and the ancestors."""
    bound = [pod for pod in job.pods if resources.holds_resources(pod)]
    held = resources.total(
        resources.effective_request(pod, nodes.get(pod["spec"]["nodeName"])) for pod in bound
    )
    requested = job.request
    waiting = _excess(requested, resources.total(map(resources.effective_request, bound)))
    name, seen = job.queue, set()
    if job.names_kai_queue and KAI + name in shares:
        name = KAI + name
    while name in shares and name not in seen:
        seen.add(name)
        share = shares[name]
        share.running += 1 if held or not (job.waiting or job.idle) else 0
        share.pending += 1 if job.waiting else 0
        if isinstance(share, KaiQueueShare):  # its amounts are those of the scheduler
            name = share.parent
            continue
        for which, vector in (("allocated", held), ("requested", requested), ("waiting", waiting)):
            share.amounts[which] = quantities.add(share.amounts[which], vector)
        name = share.parent


def depths(shares: Sequence[VolcanoQueueShare]) -> list[tuple[VolcanoQueueShare, int]]:
    """Return parents before their children, with the depth of each."""
    children: dict[str, list[VolcanoQueueShare]] = {}
    known = {share.key for share in shares}
    for share in shares:
        parent = share.parent if share.parent in known and share.parent != share.key else ""
        children.setdefault(parent, []).append(share)
    ordered: list[tuple[VolcanoQueueShare, int]] = []

    def walk(parent: str, depth: int) -> None:
        for share in sorted(children.get(parent, ()), key=lambda share: natural_key(share.name)):
            ordered.append((share, depth))
            walk(share.key, depth + 1)

    walk("", 0)
    placed = {share.key for share, _ in ordered}
    return ordered + [(share, 0) for share in shares if share.key not in placed]
