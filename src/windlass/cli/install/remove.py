"""Objects of :mod:`windlass.cli.install.objects` out of a cluster again.

As with their way in (:mod:`windlass.cli.install.deploy`) the server is asked about every deletion before the first
(:func:`refusals`). What somebody else has made stays; so does what several installations share, while another is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import CONFIG_MAPS, LEASES, NAMESPACES, PRIORITY_CLASSES, Resource
from windlass.cli.install import gpu_sharing
from windlass.cli.install.objects import (
    CRD,
    DEPLOYED,
    KINDS,
    InstallOptions,
    guard_objects,
    is_ours,
    objects,
    placed,
    titled,
)
from windlass.client.blocking import BlockingClient

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """What is to go, if it is there. ``written``: by the processes for themselves, so it says of nobody whose it is."""

    resource: Resource
    name: str
    namespace: str | None
    written: bool = False

    @property
    def title(self) -> str:
        return titled(self.resource, self.name)


def everything(client: BlockingClient, namespace: str, *, purge: bool, alone: bool) -> list[RemovalPlan]:
    """The last applied first. ``purge``: also the namespace if ``install`` made it, what was learned, and the CRDs with
    every object of theirs. ``alone``: no other Windlass uses what is the cluster's. Raises ``StatusError``,
    ``Unreachable``."""
    from windlass.scheduler.estimates.run_times import NAME as LEARNED  # the engine comes with it

    kept = set() if purge else {CRD, NAMESPACES}
    kept |= set() if alone else {CRD, PRIORITY_CLASSES}
    found = [*of_guard(namespace), *of_sharing(client, namespace)]
    whole = _leaving(reversed(objects(InstallOptions(namespace=namespace))))
    found += [one for one in whole if one.resource not in kept]
    found += [RemovalPlan(LEASES, name, namespace, written=True) for name in DEPLOYED]
    if purge:
        found.append(RemovalPlan(CONFIG_MAPS, LEARNED, namespace, written=True))
    return found


def of_guard(namespace: str) -> list[RemovalPlan]:
    """The bind guard."""
    return list(_leaving(guard_objects(namespace)))


def of_sharing(client: BlockingClient, namespace: str) -> list[RemovalPlan]:
    """The sharing of cards: cards that are held stay so. Raises ``StatusError``, ``Unreachable``."""
    return list(_leaving(placed(obj, namespace) for obj in gpu_sharing.leaving(client)))


def _leaving(wanted: Iterator[Json] | Sequence[Json]) -> Iterator[RemovalPlan]:
    for obj in wanted:
        metadata = obj["metadata"]
        yield RemovalPlan(KINDS[obj["kind"]], metadata["name"], metadata.get("namespace"))


def refusals(client: BlockingClient, plan: Sequence[RemovalPlan]) -> list[str]:
    """What the server says of those that this user may not look at or delete. Raises ``StatusError``,
    ``Unreachable``."""
    said: list[str] = []
    for one in plan:
        try:
            _take(client, one, dry_run=True)
        except StatusError as error:
            if error.code != 403:
                raise
            said.append(error.message)
    return said


def check_allowed(client: BlockingClient, plan: Sequence[RemovalPlan]) -> None:
    """Raises ``WL-INSTALL-403`` where a right is missing, ``StatusError``, ``Unreachable``."""
    said = refusals(client, plan)
    if said:
        raise forbidden(f"the server refuses to delete {len(said)} objects; nothing was deleted", said)


def forbidden(message: str, said: Sequence[str], *more: str) -> WindlassError:
    """``WL-INSTALL-403`` with what the server ``said``; ``more``: remedies."""
    return WindlassError(
        "WL-INSTALL-403",
        message,
        evidence="; ".join(said[:3]) + (f"; and {len(said) - 3} more" if said[3:] else ""),
        remedies=("kubectl auth can-i '*' '*' --all-namespaces", *more),
    )


def delete(client: BlockingClient, plan: Sequence[RemovalPlan], *, dry_run: bool) -> Iterator[str]:
    """Titles of what is deleted. Raises ``StatusError``, ``Unreachable``."""
    for one in plan:
        if _take(client, one, dry_run=dry_run):
            yield one.title


def _take(client: BlockingClient, one: RemovalPlan, *, dry_run: bool) -> bool:
    """Whether there is something to delete."""
    found = client.find(one.resource, one.name, one.namespace)
    if found is None or not (one.written or is_ours(found)):
        return False
    try:
        client.delete(one.resource, one.name, one.namespace, uid=found["metadata"]["uid"], dry_run=dry_run)
    except StatusError as error:
        if error.code != 404:
            raise
    return True
