"""Kinds of RBAC that Windlass creates in a cluster. The embedded server does not serve them."""

from __future__ import annotations

from windlass.api.resources import Resource

_GROUP = "rbac.authorization.k8s.io"
ROLES = Resource(_GROUP, "v1", "roles", "Role")
ROLE_BINDINGS = Resource(_GROUP, "v1", "rolebindings", "RoleBinding")
