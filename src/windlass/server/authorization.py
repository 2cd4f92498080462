"""Authorization: administrators may do everything, other users read health pages.

The token of a pod lets it report the progress of its job, and Ray's autoscaler change its RayCluster
(:mod:`windlass.server.pod_rights`).
"""

from __future__ import annotations

from windlass.api.errors import StatusError, failure, forbidden
from windlass.server.core import Call, ServerCore
from windlass.server.pod_rights import is_autoscaling
from windlass.server.request.users import UserInfo

PUBLIC = ("/healthz", "/livez", "/readyz")
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "HEAD": "get"}


def check_path(user: UserInfo, method: str, path: str) -> None:
    """Raise 403 unless the user may access a path without a resource."""
    if user.is_admin or path in PUBLIC or path.startswith(tuple(f"{page}/" for page in PUBLIC)):
        return
    verb = {"GET": "get", "DELETE": "delete", **_VERBS}.get(method, method.lower())
    raise failure(403, "Forbidden", f'forbidden: User "{user.name}" cannot {verb} path "{path}"', {})


def check(core: ServerCore, call: Call) -> None:
    """Raise 403 unless the user may access the resource.

    A token that is bound to a pod lets it report progress. The handler checks the pod's job.
    """
    reports = call.user.pod and call.request.method == "POST" and call.target.subresource == "status"
    if not call.user.is_admin and not reports and not is_autoscaling(core, call, verb_of(call)):
        raise _refusal(call)


def verb_of(call: Call) -> str:
    """Return the verb of a request in terms of RBAC."""
    method, target = call.request.method, call.target
    if method == "GET":
        if target.watch or (not target.name and call.params.get("watch", "") not in ("", "0", "false")):
            return "watch"
        return "get" if target.name else "list"
    if method == "DELETE":
        return "delete" if target.name else "deletecollection"
    return _VERBS.get(method, method.lower())


def _refusal(call: Call) -> StatusError:
    target, resource = call.target, call.target.resource
    where = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    plural = f"{resource.plural}/{target.subresource}" if target.subresource else resource.plural
    why = (
        f'User "{call.user.name}" cannot {verb_of(call)} resource "{plural}" '
        f'in API group "{resource.group}" {where}'
    )
    if target.name:
        return forbidden(resource, target.name, why)
    details = {"group": resource.group} if resource.group else {}
    details["kind"] = resource.plural
    return failure(403, "Forbidden", f"{resource.qualified} is forbidden: {why}", details)
