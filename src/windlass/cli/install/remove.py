"""Deletion of the objects of :mod:`windlass.cli.install.objects` from a cluster.

As for their apply (:mod:`windlass.cli.install.deploy`), the server checks every
deletion before the first (:func:`rejections`). Objects of other owners stay. Objects that
several installations share stay while another one exists.
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
    in_namespace,
    is_managed,
    objects,
    titled,
)
from windlass.client.blocking import BlockingClient

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    """One object to delete, if it exists.

    ``written``: it is written by the processes themselves, without a label of its
    owner.
    """

    resource: Resource
    name: str
    namespace: str | None
    written: bool = False

    @property
    def title(self) -> str:
        return titled(self.resource, self.name)


def all_objects(client: BlockingClient, namespace: str, *, purge: bool, alone: bool) -> list[RemovalPlan]:
    """Return all objects to delete, the last applied first.

    Raises ``StatusError``, ``Unreachable``.

    :param purge: include the namespace if ``install`` created it, learned run times,
        and the CRDs
      with all their objects
    :param alone: no other Windlass uses the cluster-wide objects
    """
    from windlass.scheduler.estimates.run_times import NAME as LEARNED  # imports the engine

    excluded = set() if purge else {CRD, NAMESPACES}
    excluded |= set() if alone else {CRD, PRIORITY_CLASSES}
    plans = [*guard_plans(namespace), *sharing_plans(client, namespace)]
    whole = _plans(reversed(objects(InstallOptions(namespace=namespace))))
    plans += [item for item in whole if item.resource not in excluded]
    plans += [RemovalPlan(LEASES, name, namespace, written=True) for name in DEPLOYED]
    if purge:
        plans.append(RemovalPlan(CONFIG_MAPS, LEARNED, namespace, written=True))
    return plans


def guard_plans(namespace: str) -> list[RemovalPlan]:
    """Return the objects of the bind guard."""
    return list(_plans(guard_objects(namespace)))


def sharing_plans(client: BlockingClient, namespace: str) -> list[RemovalPlan]:
    """Return the objects of GPU sharing; reserved devices stay reserved.

    Raises ``StatusError`` and ``Unreachable``.
    """
    return list(_plans(in_namespace(obj, namespace) for obj in gpu_sharing.removable_objects(client)))


def _plans(wanted: Iterator[Json] | Sequence[Json]) -> Iterator[RemovalPlan]:
    for obj in wanted:
        metadata = obj["metadata"]
        yield RemovalPlan(KINDS[obj["kind"]], metadata["name"], metadata.get("namespace"))


def rejections(client: BlockingClient, plan: Sequence[RemovalPlan]) -> list[str]:
    """Return the server's messages for objects that this user may not see or delete.

    Raises ``StatusError`` and ``Unreachable``.
    """
    messages: list[str] = []
    for item in plan:
        try:
            _delete(client, item, dry_run=True)
        except StatusError as error:
            if error.code != 403:
                raise
            messages.append(error.message)
    return messages


def check_allowed(client: BlockingClient, plan: Sequence[RemovalPlan]) -> None:
    """Raise ``WL-INSTALL-403`` if a right is missing, ``StatusError`` and ``Unreachable``."""
    messages = rejections(client, plan)
    if messages:
        raise forbidden(
            f"the server rejects the deletion of {len(messages)} objects; nothing was deleted", messages
        )


def forbidden(message: str, messages: Sequence[str], *more: str) -> WindlassError:
    """Return ``WL-INSTALL-403`` with the server's messages; ``more``: remedies."""
    return WindlassError(
        "WL-INSTALL-403",
        message,
        evidence="; ".join(messages[:3]) + (f"; and {len(messages) - 3} more" if messages[3:] else ""),
        remedies=("kubectl auth can-i '*' '*' --all-namespaces", *more),
    )


def delete(client: BlockingClient, plan: Sequence[RemovalPlan], *, dry_run: bool) -> Iterator[str]:
    """Delete, and yield the titles of deleted objects.

    Raises ``StatusError`` and ``Unreachable``.
    """
    for item in plan:
        if _delete(client, item, dry_run=dry_run):
            yield item.title


def _delete(client: BlockingClient, item: RemovalPlan, *, dry_run: bool) -> bool:
    """Delete one object, and return whether it existed."""
    found = client.find(item.resource, item.name, item.namespace)
    if found is None or not (item.written or is_managed(found)):
        return False
    try:
        client.delete(item.resource, item.name, item.namespace, uid=found["metadata"]["uid"], dry_run=dry_run)
    except StatusError as error:
        if error.code != 404:
            raise
    return True
