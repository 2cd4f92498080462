"""Reviews of the own access and identity. They are answered and never stored.

Without role-based access there is one administrator, the subject of these reviews.
"""

from __future__ import annotations

from typing import Any

from windlass.api.errors import FieldError, invalid
from windlass.api.resources import Resource
from windlass.api.wire import decode, schema
from windlass.client.transport import Response
from windlass.server.core import Call, metadata_of
from windlass.server.presentation import responses
from windlass.server.request.routing import register_write_only

_CREATE = ("create",)
SELF_ACCESS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False, verbs=_CREATE
)
SELF_RULES = Resource(
    "authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", False, verbs=_CREATE
)
SELF = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False, verbs=_CREATE
)
for _resource in (SELF_ACCESS, SELF_RULES, SELF):
    register_write_only(_resource)


def review(call: Call) -> Response:
    """Handle POST of a review. Raises StatusError 400, 415, 422."""
    resource = call.target.resource
    struct = schema.for_kind(resource.group, resource.version, resource.kind)
    obj = decode.decode_kind(resource, struct, call.content_type, call.request.body)
    metadata_of(obj)
    if resource is SELF:
        obj["status"] = {"userInfo": _user(call)}
    elif resource is SELF_ACCESS:
        spec = obj.get("spec") or {}
        if bool(spec.get("resourceAttributes")) == bool(spec.get("nonResourceAttributes")):
            why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise invalid(resource, "", [FieldError.invalid("spec.resourceAttributes", spec, why)])
        obj["status"] = {"allowed": call.user.is_admin}
    else:
        obj["status"] = _rules(call)
    return responses.json(201, obj, call.form)


def _user(call: Call) -> dict[str, Any]:
    user = call.user
    return {"username": user.name, "uid": user.uid, "groups": list(user.groups)}


def _rules(call: Call) -> dict[str, Any]:
    everything: list[dict[str, Any]] = []
    paths: list[dict[str, Any]] = []
    if call.user.is_admin:
        everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        paths = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
    return {"resourceRules": everything, "nonResourceRules": paths, "incomplete": False}
