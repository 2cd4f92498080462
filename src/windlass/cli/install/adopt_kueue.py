"""``windlass install --adopt kueue``: queues of Kueue become queues of Windlass.

Kueue decides which jobs may start, and places no pods. A ClusterQueue is handed over in
one write: ``stopPolicy: Hold``, with the original value in an annotation. Kueue then
admits nothing more to it and lends nothing of it, while admitted workloads run to their
end. Its jobs, Workloads and pods are never written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from windlass.api.annotations import ADOPTED, ADOPTED_STOP_POLICY, QUEUE_NAME_VOLCANO
from windlass.api.errors import StatusError, WindlassError
from windlass.api.quantities import QuantityError
from windlass.api.resources import NAMESPACES, QUEUES, Resource
from windlass.cli import tables
from windlass.cli.install.adopt_common import listed
from windlass.cli.invocation import PausingClock
from windlass.client.blocking import BlockingClient
from windlass.model.queues import kueue_import
from windlass.model.queues.kueue_import import KueueImport

Json = dict[str, Any]
MANAGER = "windlass-adopt-kueue"
_NAMESPACED = ("LocalQueue", "Workload")
VERSIONS = ("v1beta2", "v1beta1")
NONE, HOLD = "None", "Hold"
POLL_SECONDS = 0.5
MAX_WRITES = 8
"""Maximum number of attempts for a write that conflicts with those of Kueue."""
Tell = Callable[[str], None]
_Change = tuple[Mapping[str, str | None], str]
"""Annotations and the stop policy to set on a ClusterQueue."""


def read(client: BlockingClient) -> KueueImport:
    """Return the translation of Kueue's objects.

    Raises ``WL-ADOPT-409`` if there are none.
    """
    items = [obj for kind in kueue_import.KINDS for obj in _listed(client, kind)]
    if not any(obj["kind"] == "ClusterQueue" for obj in items):
        raise WindlassError(
            "WL-ADOPT-409",
            "this cluster has no ClusterQueue",
            evidence=f"there are no objects of {kueue_import.GROUP} in {' or '.join(VERSIONS)}",
            remedies=("kubectl get clusterqueues.kueue.x-k8s.io",),
        )
    try:
        return kueue_import.translate(items)
    except (QuantityError, ValueError) as error:
        raise WindlassError("WL-ADOPT-409", f"Kueue's objects cannot be read: {error}") from error


def _listed(client: BlockingClient, kind: str) -> list[Json]:
    for version in VERSIONS:
        resource = _resource(kind, version)
        items = listed(client, resource)
        if items is not None:
            return [{"apiVersion": resource.api_version, "kind": kind, **obj} for obj in items]
    return []


def _resource(kind: str, version: str) -> Resource:
    return Resource(kueue_import.GROUP, version, f"{kind.lower()}s", kind, kind in _NAMESPACED)


def text(found: KueueImport) -> str:
    """Return the translation for people."""
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


def apply(client: BlockingClient, found: KueueImport, *, dry_run: bool) -> Iterator[str]:
    """Create the queues, set the queue of namespaces with one LocalQueue; yield what was done.

    May be repeated. A namespace that already names a queue keeps it. A queue of the
    same name that another client has made gets Kueue's amounts, which is reported.
    """
    for queue in found.queues:
        name = queue["metadata"]["name"]
        present = client.find(QUEUES, name)
        client.patch(QUEUES, name, queue, kind="apply", field_manager=MANAGER, force=True, dry_run=dry_run)
        existing = present is not None and not _made_here(present)
        yield f"queue {name} applied{' to an existing queue' if existing else ''}"
    for namespace in found.namespaces:
        name, wanted = namespace["metadata"]["name"], namespace["metadata"]["annotations"]
        present = client.find(NAMESPACES, name)
        if present is None or QUEUE_NAME_VOLCANO in (present["metadata"].get("annotations") or {}):
            continue
        client.patch(NAMESPACES, name, {"metadata": {"annotations": wanted}}, dry_run=dry_run)
        yield f"namespace {name}: queue {wanted[QUEUE_NAME_VOLCANO]}"


def _made_here(queue: Json) -> bool:
    return any(one.get("manager") == MANAGER for one in queue["metadata"].get("managedFields") or ())


# ---------------------------------------------------------------------- queue by queue


def queue_states(client: BlockingClient) -> str:
    """Return the table of ClusterQueues with their owner, and admitted and pending workloads."""
    cells = []
    for queue in _listed(client, "ClusterQueue"):
        metadata, status = queue["metadata"], queue.get("status") or {}
        owner = "windlass" if ADOPTED in (metadata.get("annotations") or {}) else "kueue"
        counts = [str(status.get(f"{what}Workloads") or 0) for what in ("admitted", "pending")]
        cells.append([metadata["name"], owner, _stop_policy(queue), *counts])
    header = ["CLUSTER QUEUE", "OWNER", "STOP POLICY", "ADMITTED", "PENDING"]
    return tables.render(header, cells, right=frozenset((3, 4)))


def check(client: BlockingClient, names: Collection[str]) -> None:
    """Raise ``WL-QUEUE-404`` for an unknown ClusterQueue."""
    known = {obj["metadata"]["name"] for obj in _listed(client, "ClusterQueue")} if names else ()
    for name in names:
        if name not in known:
            remedy = "kubectl get clusterqueues.kueue.x-k8s.io"
            raise WindlassError("WL-QUEUE-404", f'ClusterQueue "{name}" does not exist', remedies=(remedy,))


def held(client: BlockingClient) -> list[str]:
    """Return the ClusterQueues that were handed over."""
    found = [obj["metadata"] for obj in _listed(client, "ClusterQueue")]
    return [metadata["name"] for metadata in found if ADOPTED in (metadata.get("annotations") or {})]


def hold(client: BlockingClient, name: str, clock: PausingClock, *, seconds: float, tell: Tell) -> None:
    """Hand a ClusterQueue over, and return when Kueue has observed it.

    May be repeated. Raises ``WL-ADOPT-504``.
    """

    def taken(queue: Json) -> _Change | None:
        if ADOPTED in (queue["metadata"].get("annotations") or {}):
            return None
        was = _stop_policy(queue)
        return {ADOPTED: "true", ADOPTED_STOP_POLICY: was}, HOLD if was == NONE else was

    _write(client, name, taken)
    queue = _wait_until_observed(client, name, clock, seconds, active=False)
    status = queue.get("status") or {}
    tell(
        f"queue {name}: Kueue admits nothing more; {status.get('admittedWorkloads') or 0} running workloads are "
        f"untouched, {status.get('pendingWorkloads') or 0} pending ones stay with Kueue, and keep waiting"
    )


def release(client: BlockingClient, name: str, clock: PausingClock, *, seconds: float, tell: Tell) -> None:
    """Give a ClusterQueue back in its original state.

    Raises ``WL-ADOPT-504`` if Kueue ignores it.
    """

    def as_it_was(queue: Json) -> _Change:
        was = (queue["metadata"].get("annotations") or {}).get(ADOPTED_STOP_POLICY) or NONE
        return {ADOPTED: None, ADOPTED_STOP_POLICY: None}, was

    was = _write(client, name, as_it_was)
    if was == NONE:
        _wait_until_observed(client, name, clock, seconds, active=True)
    tell(f"queue {name}: given back to Kueue, with stopPolicy {was}")


def _cluster_queue(client: BlockingClient, name: str) -> Json:
    return next(obj for obj in _listed(client, "ClusterQueue") if obj["metadata"]["name"] == name)


def _stop_policy(queue: Json) -> str:
    return queue["spec"].get("stopPolicy") or NONE


def _write(client: BlockingClient, name: str, change: Callable[[Json], _Change | None]) -> str:
    """Write the ClusterQueue, based on the state that was read, and return its stop policy.

    If another client writes in between, read and try again.
    """
    attempts = 0
    while True:
        queue = _cluster_queue(client, name)
        new_state = change(queue)
        if new_state is None:
            return _stop_policy(queue)
        annotations, policy = new_state
        metadata = {"annotations": annotations, "resourceVersion": queue["metadata"]["resourceVersion"]}
        resource = _resource("ClusterQueue", queue["apiVersion"].rpartition("/")[2])
        attempts += 1
        try:
            client.patch(resource, name, {"metadata": metadata, "spec": {"stopPolicy": policy}})
        except StatusError as error:
            if error.code != 409 or attempts == MAX_WRITES:
                raise
        else:
            return policy


def _wait_until_observed(
    client: BlockingClient, name: str, clock: PausingClock, seconds: float, *, active: bool
) -> Json:
    """Return the ClusterQueue when its condition ``Active`` reflects the current state."""
    deadline = clock.monotonic() + seconds
    while True:
        queue = _cluster_queue(client, name)
        active_conditions = [
            c for c in (queue.get("status") or {}).get("conditions") or () if c["type"] == "Active"
        ]
        if active_conditions and _reflects(active_conditions[0], queue, active):
            return queue
        if clock.monotonic() > deadline:
            words = (
                active_conditions[0].get("message", "") if active_conditions else "it has no condition Active"
            )
            raise WindlassError(
                "WL-ADOPT-504",
                f"Kueue has not observed the change of ClusterQueue {name}",
                evidence=f"after {seconds:.0f} s: {words}",
                remedies=("kubectl -n kueue-system get pods",),
            )
        clock.pause(POLL_SECONDS)


def _reflects(condition: Json, queue: Json, active: bool) -> bool:
    """Return whether a condition says that the queue is stopped, or not (``active``).

    A queue may be inactive for other reasons.
    """
    current = condition.get("observedGeneration", 0) >= queue["metadata"].get("generation", 0)
    stopped = condition["status"] != "True" and condition.get("reason") == "Stopped"
    return current and stopped is not active
