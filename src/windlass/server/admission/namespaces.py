"""Namespace rules for creation, deletion and administrative device access.

Objects cannot be created in absent or terminating namespaces, and some namespaces
cannot be deleted. Claims with
``adminAccess`` need a namespace with the label for it.
"""

from __future__ import annotations

from windlass.api import errors
from windlass.api.resources import NAMESPACES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from windlass.server.admission.plugin import Review

ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
UNDELETABLE = ("default", "kube-system", "kube-public")


def lifecycle(review: Review) -> None:
    """Raise 404 without the namespace, and 403 NamespaceTerminating while it is deleted."""
    if not (review.creating and review.main and review.resource.namespaced):
        return
    name = review.namespace
    namespace = review.objects.get(NAMESPACES, "", name)
    if namespace is None:
        raise errors.not_found(NAMESPACES, name)
    if namespace["metadata"].get("deletionTimestamp"):
        raise errors.forbidden(
            review.resource,
            review.name,
            f"unable to create new content in namespace {name} because it is being terminated",
            [
                {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {name} is being terminated",
                    "field": "metadata.namespace",
                }
            ],
        )


def administration(review: Review) -> None:
    """Raise 422 for a claim with ``adminAccess`` if the namespace lacks the label for it."""
    if not (
        review.creating and review.main and review.resource in (RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES)
    ):
        return
    spec = review.object.get("spec") or {}
    devices = (spec if review.resource is RESOURCE_CLAIMS else spec.get("spec") or {}).get("devices") or {}
    asking = (
        position
        for position, request in enumerate(devices.get("requests") or ())
        if (request.get("exactly") or {}).get("adminAccess")
    )
    first = next(asking, None)
    namespace = review.objects.get(NAMESPACES, "", review.namespace) or {"metadata": {}}
    if first is None or (namespace["metadata"].get("labels") or {}).get(ADMIN_ACCESS) == "true":
        return
    message = f"admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing namespace"
    path = f"spec.devices.requests[{first}].adminAccess"
    raise errors.invalid(review.resource, review.name, [errors.FieldError.forbidden(path, message)])


def undeletable(review: Review) -> None:
    if review.resource is NAMESPACES and review.name in UNDELETABLE:
        raise errors.forbidden(NAMESPACES, review.name, "this namespace may not be deleted")
