"""DELETE: at once, gracefully, or after finalizers are removed.

The order of checks is that of kube-apiserver's registry: preconditions, grace period
(pods only), finalizers of garbage
collection by propagation policy, then remaining finalizers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from windlass.api import resources
from windlass.api.errors import FieldError, StatusError, failure, not_found
from windlass.api.resources import Resource
from windlass.api.structural import names
from windlass.api.wire import decode
from windlass.client.transport import Response
from windlass.kits.timestamps import parse_rfc3339, rfc3339
from windlass.server import object_meta
from windlass.server.core import Call, ServerCore, decoded, translated
from windlass.server.presentation import responses
from windlass.server.presentation.presenter import object_presenter
from windlass.server.request.params import dry_run, list_options, number, options_invalid
from windlass.server.verbs.read import build_filter, page_of, wait_for_version
from windlass.store import errors as store_errors
from windlass.store.records import Entry, preview

_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"
_POLICIES = ("Orphan", "Background", "Foreground")
_AT_ONCE = 200


async def delete(core: ServerCore, call: Call) -> Response:
    """Handle DELETE of one object. Raises StatusError."""
    target = call.target
    options = delete_options(call)
    entry, removed = await remove(core, call, target.name, target.namespace, options)
    resource = target.resource
    if removed and target.stored is not resources.PODS:
        details: dict[str, Any] = {"name": target.name}
        if resource.group:
            details["group"] = resource.group
        details["kind"] = resource.plural
        details["uid"] = decoded(target.stored, entry)["metadata"].get("uid", "")
        return responses.json(200, responses.success(200, details), call.form)
    status = 202 if not removed and options.get("orphanDependents") is False else 200
    return responses.body(status, object_presenter(resource).single(entry), call.form)


async def delete_collection(core: ServerCore, call: Call) -> Response:
    """Handle DELETE of a collection, and return the list of deleted objects.

    ``limit`` and ``continue`` select a page, as in a list. Without a limit, all matching objects
    are deleted. Raises StatusError.
    """
    target = call.target
    options = delete_options(call)
    selection = list_options(call.params)
    wanted = build_filter(target.resource, target.stored, target.namespace, selection)
    presenter = object_presenter(target.resource)
    removed: list[Entry] = []
    if selection.rv:
        await wait_for_version(core, selection.rv)
    page = page_of(core, target.table, wanted, selection)
    matching = [entry for entry in page.entries if wanted.matches(entry)]
    for start in range(0, len(matching), _AT_ONCE):
        outcomes = await asyncio.gather(
            *(
                _remove_one(core, call, entry.name, entry.namespace, dict(options))
                for entry in matching[start : start + _AT_ONCE]
            )
        )
        removed.extend(entry for entry in outcomes if entry is not None)
    body = [
        presenter.open_list({**page.metadata, "resourceVersion": str(core.store.rv)}),
        presenter.items(removed),
        presenter.close_list(),
    ]
    return responses.body(200, b"".join(body), call.form)


async def _remove_one(
    core: ServerCore, call: Call, name: str, namespace: str, options: dict[str, Any]
) -> Entry | None:
    try:
        entry, _ = await remove(core, call, name, namespace, options)
    except StatusError as error:
        if error.code == 404:  # deleted concurrently
            return None
        raise
    return entry


def delete_options(call: Call) -> dict[str, Any]:
    """Return the DeleteOptions of the body, or else of the query. Raises 400, 422."""
    options = decode.decode_options(call.content_type, call.request.body)
    if not call.request.body.strip():
        params = call.params
        if "gracePeriodSeconds" in params:
            options["gracePeriodSeconds"] = number(params, "gracePeriodSeconds")
        if "propagationPolicy" in params:
            options["propagationPolicy"] = params["propagationPolicy"]
        if "orphanDependents" in params:
            options["orphanDependents"] = params["orphanDependents"].lower() in ("1", "true", "t")
    if "dryRun" in call.params:
        options["dryRun"] = [call.params["dryRun"]]
    options["dryRun"] = [value for value in options.get("dryRun") or () if dry_run(value, "DeleteOptions")]
    problems = []
    policy = options.get("propagationPolicy")
    if policy is not None and options.get("orphanDependents") is not None:
        problems.append(
            FieldError.invalid(
                "propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set"
            )
        )
    if policy is not None and policy not in _POLICIES:
        problems.append(
            FieldError.not_supported(
                "propagationPolicy", policy, ("Foreground", "Background", "Orphan", "nil")
            )
        )
    if problems:
        raise options_invalid("DeleteOptions", problems)
    return options


async def remove(
    core: ServerCore, call: Call, name: str, namespace: str, options: dict[str, Any]
) -> tuple[Entry, bool]:
    """Delete one object, or start its deletion. Raises StatusError.

    Returns its last state, and whether it no longer exists.
    """
    target, resource = call.target, call.target.stored
    head = core.store.head(target.table, namespace, name)
    if head is None:
        raise not_found(target.resource, name)
    obj = decoded(resource, head)
    check_preconditions(resource, name, obj["metadata"], options.get("preconditions") or {})
    dry = bool(options.get("dryRun"))
    core.admit(call, "DELETE", None, obj, dry_run=dry, name=name)
    if resource is resources.CUSTOM_RESOURCE_DEFINITIONS:
        names.begin_removal(obj, core.clock.now())
    removed, changed = _plan(resource, obj, options, core.clock.now())
    store = core.store
    try:
        if dry:
            return preview(namespace, name, obj, head), removed
        if removed:
            last = obj if changed else None
            return await store.delete(target.table, namespace, name, expected=head.rv, last=last), True
        if changed:
            return await store.update(target.table, namespace, name, obj, expected=head.rv), False
        await store.reached(head.rv)
        return head, False
    except store_errors.StoreError as error:
        raise translated(error, target.resource, name)


def check_preconditions(
    resource: Resource, name: str, metadata: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    """Raise 409 unless uid and version match."""
    for key, words, label in (
        ("uid", ("UID", "The object might have been deleted and then recreated"), "uid"),
        ("resourceVersion", ("ResourceVersion", "The object might have been modified"), "resourceVersion"),
    ):
        expected = wanted.get(key)
        if expected and expected != metadata.get(label):
            word, guess = words
            details: dict[str, Any] = {"name": name}
            if resource.group:
                details["group"] = resource.group
            details["kind"] = resource.kind
            raise failure(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {resource.kind} "{name}": the {word} in the precondition '
                f"({expected}) does not match the {word} in record ({metadata.get(label)}). {guess}",
                details,
            )


def _plan(resource: Resource, obj: dict[str, Any], options: dict[str, Any], now: float) -> tuple[bool, bool]:
    """Change ``obj`` as its deletion requires.

    Returns whether it is removed at once, and whether it changed.
    """
    metadata = obj["metadata"]
    graceful, pending = _grace(resource, obj, options, now)
    if pending:
        return False, False
    changed = graceful
    finalizers = _finalizers(metadata.get("finalizers") or [], options)
    if finalizers != (metadata.get("finalizers") or []):
        changed = True
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
    keeps = bool(finalizers)
    if resource is resources.NAMESPACES:
        keeps = keeps or bool((obj.get("spec") or {}).get("finalizers"))
    if graceful:
        return not keeps and metadata["deletionGracePeriodSeconds"] == 0, True
    if not keeps:
        return True, changed
    if "deletionTimestamp" not in metadata:
        metadata["deletionTimestamp"] = rfc3339(now)
        metadata["deletionGracePeriodSeconds"] = 0
        if resource is resources.CUSTOM_RESOURCE_DEFINITIONS:
            metadata.pop("deletionGracePeriodSeconds")
        else:
            object_meta.bump_generation(metadata)
        changed = True
        if resource is resources.NAMESPACES:
            metadata.pop("deletionGracePeriodSeconds")
            obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return False, changed


def _grace(resource: Resource, obj: dict[str, Any], options: dict[str, Any], now: float) -> tuple[bool, bool]:
    """Set the deletion timestamp of a pod.

    Returns whether this deletion is graceful, and whether an earlier one continues
    unchanged.
    """
    if resource is not resources.PODS:
        return False, False
    metadata = obj["metadata"]
    requested = options.get("gracePeriodSeconds")
    if "deletionTimestamp" in metadata:
        present = metadata.get("deletionGracePeriodSeconds") or 0
        if present == 0:
            return False, False
        if requested is None or requested >= present:
            return False, True
        seconds = max(requested, 0) if requested >= 0 else 1
        started = parse_rfc3339(metadata["deletionTimestamp"]) - present
        metadata["deletionTimestamp"] = rfc3339(started + seconds)
        metadata["deletionGracePeriodSeconds"] = seconds
        return True, False
    spec, phase = obj.get("spec") or {}, (obj.get("status") or {}).get("phase")
    seconds = requested if requested is not None else spec.get("terminationGracePeriodSeconds", 0)
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        seconds = 0
    if seconds < 0:
        seconds = 1
    metadata["deletionTimestamp"] = rfc3339(now + seconds)
    metadata["deletionGracePeriodSeconds"] = seconds
    object_meta.bump_generation(metadata)
    return True, False


def _finalizers(present: list[str], options: Mapping[str, Any]) -> list[str]:
    """Return the finalizers of an object under deletion.

    The options determine those of garbage collection; others are kept.
    """
    policy, orphan = options.get("propagationPolicy"), options.get("orphanDependents")
    if policy is None and orphan is not None:
        policy = "Orphan" if orphan else "Background"
    if policy is None:
        return present
    wanted = {"Orphan": _ORPHAN, "Foreground": _FOREGROUND}.get(policy)
    finalizers = [f for f in present if f not in (_ORPHAN, _FOREGROUND) or f == wanted]
    if wanted and wanted not in finalizers:
        finalizers.append(wanted)
    return finalizers
