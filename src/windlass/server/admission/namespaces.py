"""Namespaces: nothing is made in one that is absent or going, and a few may not be deleted."""

from __future__ import annotations

from windlass.api import errors
from windlass.api.resources import NAMESPACES
from windlass.server.admission.plugin import Review

UNDELETABLE = ("default", "kube-system", "kube-public")


def lifecycle(review: Review) -> None:
    """404 without the namespace, 403 with cause NamespaceTerminating while it is being deleted."""
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


def undeletable(review: Review) -> None:
    if review.resource is NAMESPACES and review.name in UNDELETABLE:
        raise errors.forbidden(NAMESPACES, review.name, "this namespace may not be deleted")
