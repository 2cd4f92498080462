"""Status of a CustomResourceDefinition: accepted names, and its conditions.

The rules are those of the naming and establishing controllers of ``apiextensions-apiserver``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windlass.kits.timestamps import rfc3339

Json = Mapping[str, Any]
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""Finalizer that keeps a definition until its objects are gone."""
_SINGLE = (
    ("plural", "PluralConflict", "resources"),
    ("singular", "SingularConflict", "resources"),
    ("kind", "KindConflict", "kinds"),
    ("listKind", "ListKindConflict", "kinds"),
)


def taken_names(others: Iterable[Json]) -> dict[str, set[Any]]:
    """Return the names of resources and of kinds that other definitions of the group hold."""
    taken: dict[str, set[Any]] = {"resources": set(), "kinds": set()}
    for other in others:
        names = (other.get("status") or {}).get("acceptedNames") or {}
        taken["resources"] |= {names.get("plural"), names.get("singular"), *(names.get("shortNames") or ())}
        taken["kinds"] |= {names.get("kind"), names.get("listKind")}
    return taken


def settle(crd: Json, others: Iterable[Json], now: float) -> dict[str, Any]:
    """Return the status of a definition with all names that are free.

    ``others``: the other definitions of its group.
    """
    spec, status = crd["spec"], dict(crd.get("status") or {})
    wanted, held = spec["names"], status.get("acceptedNames") or {}
    if wanted != held:
        accepted, problem = _accepted(wanted, held, taken_names(others))
        status["acceptedNames"] = accepted
        good = problem is None
        reason, message = problem or ("NoConflicts", "no conflicts found")
        status["conditions"] = set_condition(
            status.get("conditions"), "NamesAccepted", good, reason, message, now
        )
    conditions = status.get("conditions") or []
    free = is_true(conditions, "NamesAccepted")
    if free and not is_true(conditions, "Established"):
        established = True, "InitialNamesAccepted", "the initial names have been accepted"
        status["conditions"] = set_condition(conditions, "Established", *established, now)
    elif not free and not any(condition["type"] == "Established" for condition in conditions):
        refused = False, "NotAccepted", "not all names are accepted"
        status["conditions"] = set_condition(conditions, "Established", *refused, now)
    return status


def _accepted(
    wanted: Json, held: Json, taken: Mapping[str, set[Any]]
) -> tuple[dict[str, Any], tuple[str, str] | None]:
    accepted = {**held}
    problem: tuple[str, str] | None = None
    for name, reason, group in _SINGLE:
        value = wanted.get(name) or ""
        if value != held.get(name) and value in taken[group]:
            problem = reason, f'"{value}" is already in use'
        else:
            accepted[name] = value
    new = [name for name in wanted.get("shortNames") or () if name not in (held.get("shortNames") or ())]
    clashes = [f'"{name}" is already in use' for name in new if name in taken["resources"]]
    if clashes:
        text = clashes[0] if len(clashes) == 1 else f"[{', '.join(clashes)}]"
        problem = "ShortNamesConflict", text
    elif wanted.get("shortNames"):
        accepted["shortNames"] = list(wanted["shortNames"])
    else:
        accepted.pop("shortNames", None)
    if wanted.get("categories"):
        accepted["categories"] = list(wanted["categories"])
    else:
        accepted.pop("categories", None)
    return accepted, problem


def begin_removal(crd: dict[str, Any], now: float) -> None:
    """Let a definition wait for the removal of its objects, in place, when its deletion starts."""
    metadata = crd["metadata"]
    if "deletionTimestamp" in metadata:
        return
    if CLEANUP not in (metadata.get("finalizers") or ()):
        metadata["finalizers"] = [*(metadata.get("finalizers") or ()), CLEANUP]
    status = crd["status"] = {**(crd.get("status") or {})}
    message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    status["conditions"] = set_condition(
        status.get("conditions"), "Terminating", True, "InstanceDeletionPending", message, now
    )


def is_true(conditions: Iterable[Json] | None, kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in conditions or ())


def set_condition(
    conditions: Iterable[Json] | None, kind: str, holds: bool, reason: str, message: str, now: float
) -> list[dict[str, Any]]:
    """Return the conditions with one replaced or added. An unchanged status keeps its time."""
    word = "True" if holds else "False"
    result = [dict(condition) for condition in conditions or ()]
    new = {
        "type": kind,
        "status": word,
        "lastTransitionTime": rfc3339(now),
        "reason": reason,
        "message": message,
    }
    for position, condition in enumerate(result):
        if condition.get("type") == kind:
            if condition.get("status") == word:
                new["lastTransitionTime"] = condition.get("lastTransitionTime", new["lastTransitionTime"])
            result[position] = new
            return result
    return [*result, new]
