"""POST of a TokenRequest: a token of a service account, bound to a pod or not."""

from __future__ import annotations

from windlass.api.errors import FieldError, StatusError, failure, invalid, not_found
from windlass.api.resources import PODS, SERVICE_ACCOUNTS, Resource
from windlass.api.wire import decode, schema
from windlass.client.transport import Response
from windlass.kits.timestamps import rfc3339
from windlass.server.auth.pod_tokens import DEFAULT_AUDIENCE, DEFAULT_SECONDS, MIN_SECONDS
from windlass.server.core import Call, ServerCore, decoded
from windlass.server.presentation import responses

TOKEN_REQUESTS = Resource("authentication.k8s.io", "v1", "tokenrequests", "TokenRequest", verbs=("create",))


async def request_token(core: ServerCore, call: Call) -> Response:
    """Handle POST to ``serviceaccounts/NAME/token``. Raises StatusError."""
    target = call.target
    body = decode.decode_kind(
        TOKEN_REQUESTS,
        schema.for_kind("authentication.k8s.io", "v1", "TokenRequest"),
        call.content_type,
        call.request.body,
    )
    if core.tokens is None:
        raise failure(501, "NotImplemented", "this server issues no tokens")
    is_default = target.name == "default"  # every namespace has it, whether or not it is stored
    if not is_default and core.store.get(SERVICE_ACCOUNTS.qualified, target.namespace, target.name) is None:
        raise not_found(SERVICE_ACCOUNTS, target.name)
    spec = dict(body.get("spec") or {})
    seconds = spec.get("expirationSeconds")
    seconds = DEFAULT_SECONDS if seconds is None else int(seconds)
    if seconds < MIN_SECONDS:
        why = "may not specify a duration less than 10 minutes"
        raise invalid(
            TOKEN_REQUESTS, target.name, [FieldError.invalid("spec.expirationSeconds", seconds, why)]
        )
    pod = _bound_pod(core, call, spec.get("boundObjectRef") or {})
    spec["audiences"] = list(spec.get("audiences") or (DEFAULT_AUDIENCE,))
    spec["expirationSeconds"] = seconds
    token, expiry = core.tokens.issue(target.namespace, target.name, spec["audiences"], seconds, pod)
    answer = {
        "kind": TOKEN_REQUESTS.kind,
        "apiVersion": TOKEN_REQUESTS.api_version,
        "metadata": {"name": target.name, "namespace": target.namespace},
        "spec": spec,
        "status": {"token": token, "expirationTimestamp": rfc3339(expiry)},
    }
    return responses.json(201, answer)


def _bound_pod(core: ServerCore, call: Call, reference: dict[str, str]) -> dict[str, str] | None:
    """Return name and uid of the pod that a token is bound to. Raises StatusError."""
    if not reference:
        return None
    if reference.get("kind") != PODS.kind:
        raise _wrong_reference("kind", reference.get("kind"), "only a Pod can be bound here: use kind Pod")
    name = str(reference.get("name") or "")
    entry = core.store.get(PODS.qualified, call.target.namespace, name)
    if entry is None:
        raise not_found(PODS, name)
    uid = str(decoded(PODS, entry)["metadata"]["uid"])
    if reference.get("uid") not in (None, "", uid):
        raise _wrong_reference("uid", reference.get("uid"), f"the pod has the UID {uid}")
    return {"name": name, "uid": uid}


def _wrong_reference(field: str, value: object, why: str) -> StatusError:
    error = FieldError.invalid(f"spec.boundObjectRef.{field}", value, why)
    return invalid(TOKEN_REQUESTS, "", [error])
