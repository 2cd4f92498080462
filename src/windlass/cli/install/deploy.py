"""Objects of :mod:`windlass.cli.install.objects` into a cluster; :mod:`windlass.cli.install.remove` is the way out.

The server is asked about every object before the first is written (:func:`rehearse`), so that a refusal leaves
nothing half-done; what an API server that goes away leaves, the same command completes. What somebody else has made
under a name that is not Windlass' alone (:data:`~windlass.cli.install.objects.SHARED`) stays as it is, in and out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import NAMESPACES
from windlass.cli.install.objects import CRD, DEPLOYED, DEPLOYMENTS, KINDS, SHARED, is_ours, title
from windlass.cli.install.remove import RemovalPlan, forbidden, refusals
from windlass.cli.invocation import PausingClock
from windlass.client.blocking import BlockingClient

MANAGER = "windlass-install"
ESTABLISHED_SECONDS = 60.0
OTHERS = "unchanged: made by others"
_SAID = (".spec.replicas", ".image")
"""Fields that are as the user says or as they stand: who else wrote them does not matter."""
Json = dict[str, Any]


def rehearse(
    client: BlockingClient, wanted: Sequence[Json], plan: Sequence[RemovalPlan] = (), *, force: bool
) -> None:
    """Let the server check every object, and write nothing. ``leaving``: what is to go afterwards. ``force``: what
    others have set is set back.

    Raises ``WL-INSTALL-403`` (rights are missing), ``WL-INSTALL-409`` (something is being deleted, or was changed by
    others), ``StatusError``, ``Unreachable``.
    """
    refused: list[str] = []
    changed: list[str] = []
    fresh: set[tuple[str, str]] = set()
    for obj in wanted:
        resource = KINDS[obj["kind"]]
        try:
            before = _present(client, obj)
            _check_stays(before)
            if before is None:
                fresh.add((obj["kind"], obj["metadata"]["name"]))
            if not _left_alone(before, obj):
                _patch(client, obj, dry_run=True, force=force or resource is CRD)
        except StatusError as error:
            if error.code == 403:
                refused.append(error.message)
                fresh.add((obj["kind"], obj["metadata"]["name"]))
            elif error.code == 422 and resource is CRD:
                raise WindlassError(
                    "WL-INSTALL-409",
                    f"{title(obj)} cannot become that of this version; nothing was written",
                    evidence=error.message,
                    remedies=("windlass upgrade --check",),
                ) from error
            elif conflicts := _conflicts(error):
                changed += [f"{title(obj)} {words}" for words in conflicts]
            elif not (_only_overwrites(error) or (error.code == 404 and _leans_on(obj, fresh))):
                raise
    refused += refusals(client, plan)
    if refused:
        count = len(wanted) + len(plan)
        raise forbidden(
            f"the server refuses {len(refused)} of {count} objects; nothing was written",
            refused,
            "windlass install -o yaml",
        )
    if changed:
        raise WindlassError(
            "WL-INSTALL-409",
            "others have changed what windlass install sets; nothing was written",
            evidence="; ".join(changed),
            remedies=("windlass install --force-conflicts",),
        )


def _leans_on(obj: Json, fresh: Collection[tuple[str, str]]) -> bool:
    """Whether an object needs one of ``fresh``, which are to be made only now, or not for this user to see: its
    namespace, the role that a binding names (which the server looks at where the user may not bind any role)."""
    role = obj.get("roleRef") or {}
    needed = ((NAMESPACES.kind, obj["metadata"].get("namespace")), (role.get("kind"), role.get("name")))
    return any(one in fresh for one in needed)


def _present(client: BlockingClient, obj: Json) -> Json | None:
    """The object as it is in the cluster."""
    return client.find(KINDS[obj["kind"]], obj["metadata"]["name"], obj["metadata"].get("namespace"))


def _check_stays(before: Json | None) -> None:
    """Raises ``WL-INSTALL-409`` for an object that is about to vanish."""
    if before is None or not before["metadata"].get("deletionTimestamp"):
        return
    conditions = (before.get("status") or {}).get("conditions") or ()
    words = [
        c["message"] for c in conditions if c.get("status") == "True" and c["type"].endswith("Remaining")
    ]
    name = title(before)
    raise WindlassError(
        "WL-INSTALL-409",
        f"{name} is being deleted; nothing was written",
        evidence="; ".join(words) or f"since {before['metadata']['deletionTimestamp']}",
        remedies=(f"kubectl get {name} -o yaml", "windlass install, once it is gone"),
    )


def _left_alone(before: Json | None, obj: Json) -> bool:
    """Whether somebody else has made what goes by this name."""
    return before is not None and KINDS[obj["kind"]] in SHARED and not is_ours(before)


def _conflicts(error: StatusError) -> list[str]:
    """Fields that others have set to something else, and who."""
    return [
        f"{cause.get('field', '')} ({cause.get('message', '')})"
        for cause in error.details.get("causes") or ()
        if cause.get("reason") == "FieldManagerConflict" and not _said(cause.get("field", ""))
    ]


def _only_overwrites(error: StatusError) -> bool:
    """Whether all that stands against it are fields which are as the user says."""
    causes = error.details.get("causes") or ()
    return bool(causes) and all(cause.get("reason") == "FieldManagerConflict" for cause in causes)


def _said(path: str) -> bool:
    return path.endswith(_SAID) or path.startswith(".data.")


def apply(
    client: BlockingClient, wanted: Sequence[Json], *, dry_run: bool, clock: PausingClock
) -> Iterator[tuple[Json, str]]:
    """Each object and what became of it: created, configured, unchanged or, being somebody else's, :data:`OTHERS`.

    Waits until the CRDs are served before going on. Raises ``StatusError``, ``Unreachable``, :class:`WindlassError`.
    """
    pending: list[str] = []
    fresh: set[str] = set()
    for obj in wanted:
        resource, name = KINDS[obj["kind"]], obj["metadata"]["name"]
        if resource is not CRD and pending:
            _until_served(client, pending, clock)
            pending = []
        before = _present(client, obj)
        if before is not None and _left_alone(before, obj):
            yield obj, OTHERS
            continue
        if dry_run and obj["metadata"].get("namespace") in fresh:
            yield obj, "created"  # its namespace would be made only just now
            continue
        after = _patch(client, obj, dry_run=dry_run, force=True)
        if resource is NAMESPACES and before is None:
            fresh.add(name)
        if resource is CRD and not dry_run:
            pending.append(name)
        yield obj, _became(before, after)
    if pending:
        _until_served(client, pending, clock)


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


def _became(before: Json | None, after: Json) -> str:
    if before is None:
        return "created"
    same = _lasting(before) == _lasting(after)
    return "unchanged" if same else "configured"


def _lasting(obj: Json) -> Json:
    """The object without what every write or the server changes."""
    kept = {
        key: value for key, value in obj.items() if key not in ("status", "metadata", "apiVersion", "kind")
    }
    names = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp")
    return {**kept, "metadata": {k: v for k, v in obj["metadata"].items() if k not in names}}


def _until_served(client: BlockingClient, names: Sequence[str], clock: PausingClock) -> None:
    deadline = clock.monotonic() + ESTABLISHED_SECONDS
    for name in names:
        while not _condition(client.get(CRD, name), "Established"):
            if clock.monotonic() > deadline:
                raise WindlassError(
                    "WL-INSTALL-504",
                    f"the CustomResourceDefinition {name} is not served",
                    evidence=f"not Established after {ESTABLISHED_SECONDS:.0f} s",
                    remedies=(f"kubectl get crd {name} -o yaml",),
                )
            clock.pause(0.1)


def _condition(obj: Json, kind: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions)


def until_available(
    client: BlockingClient, namespace: str, clock: PausingClock, seconds: float, tell: Callable[[str], None]
) -> None:
    """Return when every Deployment has all its instances ready. Raises ``WL-INSTALL-504`` after ``seconds``."""
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
