"""POST to ``status`` of a job: a report of its program (Kubeflow's KEP-2779), for every kind of job.

The report is stored with the outermost job that controls the reporting pod, so that one
record tells the progress: a TrainJob rather than its JobSet or its Job.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from windlass.api.errors import FieldError, StatusError, bad_request, failure, forbidden, invalid, not_found
from windlass.api.fields.kubeflow import FIELDS
from windlass.api.resources import (
    BATCH_JOBS,
    JOB_SETS,
    PODS,
    TRAIN_JOBS,
    VOLCANO_JOBS,
    Resource,
    by_kind,
)
from windlass.client.transport import Request, Response
from windlass.jobs.progress import ReportError, parse_report, progress_patch
from windlass.kits.timestamps import rfc3339
from windlass.server.core import Call, ServerCore, decoded
from windlass.server.presentation import responses
from windlass.server.request.routing import RequestTarget
from windlass.server.request.users import ADMIN, UserInfo
from windlass.server.verbs.update import patch

AUDIENCE = "trainer.kubeflow.org"
MAX_BYTES = 1 << 16
"""Maximum length of a report in bytes."""
RATE, BURST = 10.0, 20.0
"""Maximum number of reports in a second, and at once, for one service account."""
_DEPTH = 5
_KINDS = frozenset({TRAIN_JOBS, JOB_SETS, BATCH_JOBS, VOLCANO_JOBS, *FIELDS})
_MERGE = {"content-type": "application/merge-patch+json"}
Json = dict[str, Any]


def takes_reports(target: RequestTarget) -> bool:
    """Return whether a POST to this path is a report about a job."""
    return target.subresource == "status" and bool(target.name) and target.stored in _KINDS


async def report_progress(core: ServerCore, call: Call) -> Response:
    """Handle a report. Raises StatusError: 403, 404, 413, 422 or 429."""
    target = call.target
    if len(call.request.body) > MAX_BYTES:
        raise failure(413, "RequestEntityTooLarge", f"a report has at most {MAX_BYTES} bytes")
    if core.store.get(target.table, target.namespace, target.name) is None:
        raise not_found(target.resource, target.name)
    if not call.user.is_admin:
        _check_pod(core, call)
        _check_rate(core, call.user)
    try:
        body = msgspec.json.decode(call.request.body)
    except msgspec.DecodeError as error:
        raise bad_request(f"the report is not JSON: {error}") from None
    try:
        record = parse_report(body, rfc3339(core.clock.now()))
    except ReportError as error:
        raise invalid(
            target.resource, target.name, [FieldError(error.field, error.message, "FieldValueInvalid")]
        ) from None
    if record is None:
        return responses.json(200, {})
    await _store(core, *_outermost(core, target), record)
    return responses.json(200, {"trainerStatus": record.body()})


async def _store(core: ServerCore, resource: Resource, namespace: str, name: str, record: Any) -> None:
    subresource, change = progress_patch(resource.kind, record)
    target = RequestTarget(resource, resource, resource.qualified, namespace, name, subresource)
    request = Request("PATCH", "", headers=_MERGE, body=msgspec.json.encode(change))
    await patch(core, Call(request, target, ADMIN))


def _check_pod(core: ServerCore, call: Call) -> None:
    """Raise 403 unless the token is bound to a pod of the job and meant for reports."""
    target, user = call.target, call.user
    path = f"{AUDIENCE}/v1alpha1/namespaces/{target.namespace}/trainjobs/{target.name}/status"
    if not {AUDIENCE, path} & set(user.audiences):
        raise _refused(call, f"the token is not for the audience {AUDIENCE}")
    namespace, name, uid = (*user.pod.split("/"), "", "", "")[:3]
    pod = _stored(core, PODS, namespace, name) if user.pod else None
    if pod is None or pod["metadata"]["uid"] != uid or namespace != target.namespace:
        raise _refused(call, "the token is not bound to a pod that exists in the namespace")
    if (target.stored, target.name) not in set(_owners(core, namespace, pod)):
        raise _refused(call, f"the token is bound to pod {name}, which does not belong to the job")


def _refused(call: Call, why: str) -> StatusError:
    return forbidden(call.target.resource, call.target.name, why)


def _owners(core: ServerCore, namespace: str, obj: Json) -> Iterator[tuple[Resource, str]]:
    """Yield kind and name of the jobs that control an object, the innermost first."""
    for _ in range(_DEPTH):
        owners = obj["metadata"].get("ownerReferences") or ()
        owner = next((found for found in owners if found.get("controller")), None)
        kind = by_kind(owner["apiVersion"], owner["kind"]) if owner is not None else None
        if owner is None or kind is None:
            return
        yield kind, owner["name"]
        found = _stored(core, kind, namespace, owner["name"])
        if found is None or found["metadata"].get("uid") != owner.get("uid"):
            return
        obj = found


def _stored(core: ServerCore, resource: Resource, namespace: str, name: str) -> Json | None:
    entry = core.store.get(resource.qualified, namespace, name)
    return decoded(resource, entry) if entry is not None else None


def _outermost(core: ServerCore, target: RequestTarget) -> tuple[Resource, str, str]:
    """Return kind, namespace and name of the job that keeps the report."""
    found = (target.stored, target.name)
    job = _stored(core, target.stored, target.namespace, target.name)
    if job is not None:
        for owner in _owners(core, target.namespace, job):
            if owner[0] in _KINDS:
                found = owner
    return found[0], target.namespace, found[1]


def _check_rate(core: ServerCore, user: UserInfo) -> None:
    """Raise 429 if a service account reports too often."""
    now = core.clock.monotonic()
    tokens, since = core.report_rates.get(user.name, (BURST, now))
    tokens = min(BURST, tokens + (now - since) * RATE)
    core.report_rates[user.name] = (max(0.0, tokens - 1.0), now)
    if tokens < 1.0:
        raise failure(
            429, "TooManyRequests", f"at most {RATE:.0f} reports a second are accepted: report less often"
        )
