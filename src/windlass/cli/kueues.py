"""``windlass install --adopt kueue``: queues of Kueue become queues of Windlass; its own objects stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windlass.api.annotations import QUEUE_NAME_VOLCANO
from windlass.api.errors import StatusError, WindlassError
from windlass.api.quantities import QuantityError
from windlass.api.resources import NAMESPACES, QUEUES, Resource
from windlass.cli import tables
from windlass.client.blocking import BlockingClient
from windlass.model import kueue
from windlass.model.kueue import Translation

Json = dict[str, Any]
MANAGER = "windlass-adopt-kueue"
_NAMESPACED = ("LocalQueue", "Workload")
VERSIONS = ("v1beta2", "v1beta1")


def read(client: BlockingClient) -> Translation:
    """What Kueue's objects of the cluster come to. Raises ``WL-ADOPT-409`` where there are none."""
    found = [obj for kind in kueue.KINDS for obj in _listed(client, kind)]
    if not any(obj["kind"] == "ClusterQueue" for obj in found):
        raise WindlassError(
            "WL-ADOPT-409",
            "this cluster has no ClusterQueue",
            evidence=f"none of {kueue.GROUP} in {' or '.join(VERSIONS)}",
            remedies=("kubectl get clusterqueues.kueue.x-k8s.io",),
        )
    try:
        return kueue.translate(found)
    except (QuantityError, ValueError) as error:
        raise WindlassError("WL-ADOPT-409", f"Kueue's objects cannot be read: {error}") from error


def _listed(client: BlockingClient, kind: str) -> list[Json]:
    for version in VERSIONS:
        resource = Resource(kueue.GROUP, version, f"{kind.lower()}s", kind, kind in _NAMESPACED)
        try:
            items = client.list(resource).items
        except StatusError as error:
            if error.code != 404:
                raise
            continue
        return [{"apiVersion": resource.api_version, "kind": kind, **obj} for obj in items]
    return []


def text(found: Translation) -> str:
    """The translation for people."""
    rows = []
    for queue in found.queues:
        spec = queue["spec"]
        amounts = [_amounts(spec.get(name)) for name in ("deserved", "capability")]
        guarantee = _amounts((spec.get("guarantee") or {}).get("resource"))
        rows.append([queue["metadata"]["name"], spec["parent"], str(spec["weight"]), *amounts, guarantee])
    header = ["QUEUE", "PARENT", "WEIGHT", "DESERVED", "CAPABILITY", "GUARANTEE"]
    notes = "".join(f"note: {note}\n" for note in found.notes)
    return tables.render(header, rows) + (f"\n{notes}" if notes else "")


def _amounts(given: Json | None) -> str:
    return ", ".join(f"{name} {amount}" for name, amount in (given or {}).items()) or "-"


def apply(client: BlockingClient, found: Translation, *, dry_run: bool) -> Iterator[str]:
    """Make the queues, and name the queue of namespaces that have one LocalQueue; yields what was done.

    May be repeated. A namespace that names a queue already keeps it.
    """
    for queue in found.queues:
        name = queue["metadata"]["name"]
        client.patch(QUEUES, name, queue, kind="apply", field_manager=MANAGER, force=True, dry_run=dry_run)
        yield f"queue {name} applied"
    for namespace in found.namespaces:
        name, wanted = namespace["metadata"]["name"], namespace["metadata"]["annotations"]
        present = client.find(NAMESPACES, name)
        if present is None or QUEUE_NAME_VOLCANO in (present["metadata"].get("annotations") or {}):
            continue
        client.patch(NAMESPACES, name, {"metadata": {"annotations": wanted}}, dry_run=dry_run)
        yield f"namespace {name}: queue {wanted[QUEUE_NAME_VOLCANO]}"
