"""POST of an Eviction: a deletion that disruption budgets may reject."""

from __future__ import annotations

import asyncio
from typing import Any

from windlass.api import selectors
from windlass.api.errors import bad_request, failure, not_found
from windlass.api.resources import POD_DISRUPTION_BUDGETS, PODS, Resource
from windlass.api.wire import decode, schema
from windlass.client.transport import Response
from windlass.kits.timestamps import rfc3339
from windlass.server.core import Call, ServerCore, decoded, metadata_of, translated
from windlass.server.presentation import responses
from windlass.server.request.params import dry_run
from windlass.server.request.routing import RequestTarget
from windlass.server.verbs.binding import set_condition
from windlass.server.verbs.delete import check_preconditions, remove
from windlass.store import errors as store_errors
from windlass.store.filters import StoreFilter
from windlass.store.records import Entry

EVICTIONS = Resource("policy", "v1", "evictions", "Eviction", verbs=("create",))
_DISRUPTED_LIMIT = 2_000


async def evict(core: ServerCore, call: Call) -> Response:
    """Handle POST to ``pods/NAME/eviction``.

    Raises StatusError (429 if a budget allows no disruption).
    """
    target = call.target
    body = decode.decode_kind(
        EVICTIONS, schema.for_kind("policy", "v1", "Eviction"), call.content_type, call.request.body
    )
    if metadata_of(body).get("name") not in (None, "", target.name):
        raise bad_request("name in URL does not match name in Eviction object")
    options = dict(body.get("deleteOptions") or {})
    trial = dry_run(call.params.get("dryRun"), "CreateOptions") or any(
        dry_run(value, "DeleteOptions") for value in options.get("dryRun") or ()
    )
    options["dryRun"] = ["All"] if trial else []
    head = core.head(target)
    if head is None:
        raise not_found(PODS, target.name)
    pod = decoded(PODS, head)
    # Checked here, because setting the condition changes the version.
    check_preconditions(PODS, target.name, pod["metadata"], options.pop("preconditions", None) or {})
    written: list[asyncio.Future[Entry]] = []
    try:
        if _guarded(pod):
            written += _spend_budget(core, pod, trial=trial)
        if not trial and not pod["metadata"].get("deletionTimestamp"):
            written.append(_mark(core, target, pod, head.rv))
        await remove(core, call, target.name, target.namespace, options)
    except store_errors.StoreError as error:
        raise translated(error, PODS, target.name)
    finally:
        await asyncio.gather(*written, return_exceptions=True)  # errors here were raised above, too
    return responses.json(201, responses.success(201), call.form)


def _mark(core: ServerCore, target: RequestTarget, pod: dict[str, Any], rv: int) -> asyncio.Future[Entry]:
    """Set the condition ``DisruptionTarget`` of the pod."""
    status = pod["status"] = {**(pod.get("status") or {})}
    text = "Eviction API: evicting"
    set_condition(status, "DisruptionTarget", "True", core.clock.now(), "EvictionByEvictionAPI", text)
    return core.store.update(target.table, target.namespace, target.name, pod, expected=rv)


def _guarded(pod: dict[str, Any]) -> bool:
    """Return whether budgets protect the pod.

    They do not protect pods that are finished, pending or terminating.
    """
    phase = (pod.get("status") or {}).get("phase")
    return phase not in ("Succeeded", "Failed", "Pending") and not pod["metadata"].get("deletionTimestamp")


def _spend_budget(core: ServerCore, pod: dict[str, Any], *, trial: bool) -> list[asyncio.Future[Entry]]:
    """Take one disruption off the budget of the pod, if it has one. Raises 429, 500, 403."""
    table = POD_DISRUPTION_BUDGETS.qualified
    namespace = pod["metadata"]["namespace"]
    matching = []
    for entry in core.store.heads(table, StoreFilter(namespace)):
        budget = decoded(POD_DISRUPTION_BUDGETS, entry)
        selector = selectors.from_object((budget.get("spec") or {}).get("selector"))
        if selector is not None and selector.matches(pod["metadata"].get("labels")):
            matching.append((entry, budget))
    if not matching:
        return []
    if len(matching) > 1:
        raise failure(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, "
            "which the eviction subresource does not support.",
        )
    entry, budget = matching[0]
    status = budget["status"] = {**(budget.get("status") or {})}
    if not _ready(pod) and _may_evict_unready(budget.get("spec") or {}, status):
        return []
    _check_budget(budget["metadata"], status)
    if trial:
        return []
    status["disruptionsAllowed"] -= 1
    status["disruptedPods"] = {
        **(status.get("disruptedPods") or {}),
        pod["metadata"]["name"]: rfc3339(core.clock.now()),
    }
    return [core.store.update(table, namespace, entry.name, budget, expected=entry.rv)]


def _ready(pod: dict[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions
    )


def _may_evict_unready(spec: dict[str, Any], status: dict[str, Any]) -> bool:
    """Return whether a pod that is not ready may be evicted without using the budget.

    It may with ``unhealthyPodEvictionPolicy: AlwaysAllow``, and otherwise while enough
    pods are healthy.
    """
    if spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired = status.get("desiredHealthy", 0)
    return status.get("currentHealthy", 0) >= desired > 0


def _check_budget(metadata: dict[str, Any], status: dict[str, Any]) -> None:
    name = metadata["name"]
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        text = f"The disruption budget {name} is still being processed by the server."
        cause = {"reason": "DisruptionBudget", "message": text}
        raise failure(429, "TooManyRequests", message, {"causes": [cause], "retryAfterSeconds": 10})
    if status.get("disruptionsAllowed", 0) <= 0:
        text = (
            f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy pods "
            f"and has {status.get('currentHealthy', 0)} currently"
        )
        raise failure(
            429,
            "TooManyRequests",
            message,
            {"causes": [{"reason": "DisruptionBudget", "message": text}]},
        )
    if len(status.get("disruptedPods") or {}) > _DISRUPTED_LIMIT:
        raise failure(
            403, "Forbidden", f"DisruptedPods map too big - too many evictions not confirmed by {name}"
        )
