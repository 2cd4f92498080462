"""Apply of the objects of :mod:`windlass.cli.install.objects` to a cluster.

:mod:`windlass.cli.install.remove` deletes them again. The server checks every object
before the first is written (:func:`rehearse`), so that a rejection changes nothing.
After a failure of the API server, the same command completes the work. Objects of other
owners under names that are not exclusive to Windlass
(:data:`~windlass.cli.install.objects.SHARED`) stay unchanged, also on removal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import DEPLOYMENTS, NAMESPACES
from windlass.cli.install.objects import CRD, DEPLOYED, KINDS, SHARED, is_managed, title
from windlass.cli.install.remove import RemovalPlan, forbidden, rejections
from windlass.cli.invocation import PausingClock
from windlass.client.blocking import BlockingClient

MANAGER = "windlass-install"
ESTABLISHED_SECONDS = 60.0
OTHERS = "unchanged: another owner"
_USER_FIELDS = (".spec.replicas", ".image")
"""Fields that follow the user or the current state, so that other managers do not matter.
"""
Json = dict[str, Any]


def rehearse(
    client: BlockingClient, wanted: Sequence[Json], plan: Sequence[RemovalPlan] = (), *, force: bool
) -> None:
    """Let the server check every object, without writing.

    Raises ``WL-INSTALL-403`` (rights are missing), ``WL-INSTALL-409`` (an object is
    being deleted, or was changed by another client), ``StatusError`` and
    ``Unreachable``.

    :param plan: objects to delete afterwards
    :param force: overwrite changes of other clients
    """
    rejected: list[str] = []
    changed: list[str] = []
    fresh: set[tuple[str, str]] = set()
    for obj in wanted:
        resource = KINDS[obj["kind"]]
        try:
            before = _current(client, obj)
            _check_not_deleted(before)
            if before is None:
                fresh.add((obj["kind"], obj["metadata"]["name"]))
            if not _has_other_owner(before, obj):
                _patch(client, obj, dry_run=True, force=force or resource is CRD)
        except StatusError as error:
            if error.code == 403:
                rejected.append(error.message)
                fresh.add((obj["kind"], obj["metadata"]["name"]))
            elif error.code == 422 and resource is CRD:
                raise WindlassError(
                    "WL-INSTALL-409",
                    f"{title(obj)} cannot be updated to this version; nothing was written",
                    evidence=error.message,
                    remedies=("windlass upgrade --check",),
                ) from error
            elif conflicts := _conflicts(error):
                changed += [f"{title(obj)} {words}" for words in conflicts]
            elif not (_only_overwrites(error) or (error.code == 404 and _needs(obj, fresh))):
                raise
    rejected += rejections(client, plan)
    if rejected:
        count = len(wanted) + len(plan)
        raise forbidden(
            f"the server rejects {len(rejected)} of {count} objects; nothing was written",
            rejected,
            "windlass install -o yaml",
        )
    if changed:
        raise WindlassError(
            "WL-INSTALL-409",
            "other clients have changed fields that windlass install sets; nothing was written",
            evidence="; ".join(changed),
            remedies=("windlass install --force-conflicts   (overwrites these changes)",),
        )


def _needs(obj: Json, fresh: Collection[tuple[str, str]]) -> bool:
    """Return whether an object needs one of ``fresh``.

    These are objects that do not exist yet, or that this user may not see. An object
    needs its namespace, and a binding needs its role (which the server checks for users
    that may not bind any role).
    """
    role = obj.get("roleRef") or {}
    needed = ((NAMESPACES.kind, obj["metadata"].get("namespace")), (role.get("kind"), role.get("name")))
    return any(reference in fresh for reference in needed)


def _current(client: BlockingClient, obj: Json) -> Json | None:
    """Return the current object in the cluster."""
    return client.find(KINDS[obj["kind"]], obj["metadata"]["name"], obj["metadata"].get("namespace"))


def _check_not_deleted(before: Json | None) -> None:
    """Raise ``WL-INSTALL-409`` for an object that is being deleted."""
    if before is None or not before["metadata"].get("deletionTimestamp"):
        return
    conditions = (before.get("status") or {}).get("conditions") or ()
    # A namespace says what remains in it, a CRD why its objects have not gone yet.
    words = [
        c["message"]
        for c in conditions
        if c["type"] == "Terminating" or (c.get("status") == "True" and c["type"].endswith("Remaining"))
    ]
    name = title(before)
    raise WindlassError(
        "WL-INSTALL-409",
        f"{name} is being deleted; nothing was written",
        evidence="; ".join(words) or f"since {before['metadata']['deletionTimestamp']}",
        remedies=(f"kubectl get {name} -o yaml", "windlass install   (after its deletion)"),
    )


def _has_other_owner(before: Json | None, obj: Json) -> bool:
    """Return whether an object of this name has another owner."""
    return before is not None and KINDS[obj["kind"]] in SHARED and not is_managed(before)


def _conflicts(error: StatusError) -> list[str]:
    """Return the fields that other managers have changed, with the managers."""
    return [
        f"{cause.get('field', '')} ({cause.get('message', '')})"
        for cause in error.details.get("causes") or ()
        if cause.get("reason") == "FieldManagerConflict" and not _is_user_field(cause.get("field", ""))
    ]


def _only_overwrites(error: StatusError) -> bool:
    """Return whether all conflicts are in fields that follow the user."""
    causes = error.details.get("causes") or ()
    return bool(causes) and all(cause.get("reason") == "FieldManagerConflict" for cause in causes)


def _is_user_field(path: str) -> bool:
    return path.endswith(_USER_FIELDS) or path.startswith(".data.")


def apply(
    client: BlockingClient, wanted: Sequence[Json], *, dry_run: bool, clock: PausingClock
) -> Iterator[tuple[Json, str]]:
    """Yield each object and its result: created, configured, unchanged, or :data:`OTHERS`.

    Waits until the CRDs are served before it continues. Raises ``StatusError``,
    ``Unreachable`` and :class:`WindlassError`.
    """
    pending: list[str] = []
    fresh: set[str] = set()
    for obj in wanted:
        resource, name = KINDS[obj["kind"]], obj["metadata"]["name"]
        if resource is not CRD and pending:
            _wait_until_served(client, pending, clock)
            pending = []
        before = _current(client, obj)
        if before is not None and _has_other_owner(before, obj):
            yield obj, OTHERS
            continue
        if dry_run and obj["metadata"].get("namespace") in fresh:
            yield obj, "created"  # its namespace does not exist yet
            continue
        after = _patch(client, obj, dry_run=dry_run, force=True)
        if resource is NAMESPACES and before is None:
            fresh.add(name)
        if resource is CRD and not dry_run:
            pending.append(name)
        yield obj, _result(before, after)
    if pending:
        _wait_until_served(client, pending, clock)


def _patch(client: BlockingClient, obj: Json, *, dry_run: bool, force: bool) -> Json:
    metadata = obj["metadata"]
    return client.patch(
        KINDS[obj["kind"]],
        metadata["name"],
        obj,
        metadata.get("namespace"),
        kind="apply",
        field_manager=MANAGER,
        force=force,
        dry_run=dry_run,
    )


def _result(before: Json | None, after: Json) -> str:
    if before is None:
        return "created"
    same = _without_volatile(before) == _without_volatile(after)
    return "unchanged" if same else "configured"


def _without_volatile(obj: Json) -> Json:
    """Return the object without fields that every write or the server changes."""
    fields = {
        key: value for key, value in obj.items() if key not in ("status", "metadata", "apiVersion", "kind")
    }
    names = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
    return {**fields, "metadata": {k: v for k, v in obj["metadata"].items() if k not in names}}


def _wait_until_served(client: BlockingClient, names: Sequence[str], clock: PausingClock) -> None:
    deadline = clock.monotonic() + ESTABLISHED_SECONDS
    for name in names:
        while not _condition(client.get(CRD, name), "Established"):
            if clock.monotonic() > deadline:
                raise WindlassError(
                    "WL-INSTALL-504",
                    f"CustomResourceDefinition {name} is not served",
                    evidence=f"not Established after {ESTABLISHED_SECONDS:.0f} s",
                    remedies=(f"kubectl get crd {name} -o yaml",),
                )
            clock.pause(0.1)


def _condition(obj: Json, kind: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions)


def wait_until_available(
    client: BlockingClient, namespace: str, clock: PausingClock, seconds: float, tell: Callable[[str], None]
) -> None:
    """Return when every Deployment has all its instances ready.

    Raises ``WL-INSTALL-504`` after ``seconds``.
    """
    deadline = clock.monotonic() + seconds
    for name in DEPLOYED:
        while not _rolled_out(found := client.get(DEPLOYMENTS, name, namespace)):
            if clock.monotonic() > deadline:
                status = found.get("status") or {}
                raise WindlassError(
                    "WL-INSTALL-504",
                    f"deployment {namespace}/{name} is not available",
                    evidence=f"{status.get('readyReplicas') or 0} of {found['spec']['replicas']} ready "
                    f"after {seconds:.0f} s",
                    remedies=(f"kubectl -n {namespace} describe pods -l app.kubernetes.io/name=windlass",),
                )
            clock.pause(0.5)
        tell(name)


def _rolled_out(deployment: Json) -> bool:
    status, wanted = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
    seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 0)
    return seen and (status.get("updatedReplicas") or 0) == wanted == (status.get("readyReplicas") or 0)
