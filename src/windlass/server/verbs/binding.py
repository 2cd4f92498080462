"""POST of a Binding: assigns a pod to a node.

Labels and annotations of the Binding are merged into the pod. uid and version are
preconditions. A binding does not
change the generation, and the node need not exist.
"""

from __future__ import annotations

from typing import Any

from windlass.api.errors import StatusError, bad_request, conflict, failure, not_found
from windlass.api.resources import PODS, Resource
from windlass.api.wire import decode, schema
from windlass.client.transport import Response
from windlass.kits.timestamps import rfc3339
from windlass.server.core import Call, ServerCore, decoded, metadata_of, translated
from windlass.server.presentation import responses
from windlass.server.request.params import write_options
from windlass.store import errors as store_errors

BINDINGS = Resource("", "v1", "bindings", "Binding", verbs=("create",))


async def bind(core: ServerCore, call: Call) -> Response:
    """Handle POST to ``pods/NAME/binding`` or ``bindings``. Raises StatusError."""
    target = call.target
    options = write_options(call.params, "CreateOptions")
    binding = decode.decode_kind(
        BINDINGS, schema.for_kind("", "v1", "Binding"), call.content_type, call.request.body
    )
    metadata = metadata_of(binding)
    name = target.name or str(metadata.get("name") or "")
    if target.name and metadata.get("name") not in (None, "", target.name):
        raise bad_request("name in URL does not match name in Binding object")
    if metadata.get("namespace") not in (None, "", target.namespace):
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    node = _node(binding.get("target"))
    head = core.store.head(PODS.qualified, target.namespace, name)
    if head is None:
        raise not_found(PODS, name)
    pod = decoded(PODS, head)
    _check(pod, name, metadata, head.rv)
    _apply(pod, metadata, node, core.clock.now())
    if not options.dry_run:
        try:
            await core.store.update(PODS.qualified, target.namespace, name, pod, expected=head.rv)
        except store_errors.StoreError as error:
            raise translated(error, PODS, name)
    return responses.json(201, responses.success(201), call.form)


def _node(target: Any) -> str:
    if not isinstance(target, dict) or not target.get("name"):
        raise bad_request("target.name: Required value")
    kind = target.get("kind")
    if kind not in (None, "", "Node"):
        raise bad_request(f'target.kind: Unsupported value: "{kind}": supported values: "Node", "<empty>"')
    return str(target["name"])


def _check(pod: dict[str, Any], name: str, wanted: dict[str, Any], rv: int) -> None:
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    uid = wanted.get("uid")
    if uid and uid != metadata.get("uid"):
        raise conflict(
            PODS,
            name,
            f"StorageError: invalid object, Code: 4, Key: /registry/pods/{metadata.get('namespace')}/{name}, "
            "ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: "
            f"{uid}, UID in object meta: {metadata.get('uid')}",
        )
    version = wanted.get("resourceVersion")
    if version and str(version) != str(rv):
        raise conflict(PODS, name)
    if metadata.get("deletionTimestamp"):
        raise _refused(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        raise _refused(name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise _refused(name, f"pod {name} has non-empty .spec.schedulingGates")


def _refused(name: str, why: str) -> StatusError:
    return failure(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on pods/binding "{name}": {why}',
        {"name": name, "kind": "pods/binding"},
    )


def _apply(pod: dict[str, Any], binding: dict[str, Any], node: str, now: float) -> None:
    pod.setdefault("spec", {})["nodeName"] = node
    for part in ("annotations", "labels"):
        added = binding.get(part)
        if added:
            pod["metadata"][part] = {**(pod["metadata"].get(part) or {}), **added}
    status = pod.setdefault("status", {})
    status.pop("nominatedNodeName", None)
    set_condition(status, "PodScheduled", "True", now)


def set_condition(
    status: dict[str, Any], kind: str, value: str, now: float, reason: str = "", message: str = ""
) -> None:
    """Set a pod condition in place.

    Its transition time changes only with its status.
    """
    conditions = status.setdefault("conditions", [])
    old = next((condition for condition in conditions if condition.get("type") == kind), None)
    fresh: dict[str, Any] = {"type": kind, "status": value, "lastProbeTime": None}
    same = old is not None and old.get("status") == value
    fresh["lastTransitionTime"] = old["lastTransitionTime"] if old and same else rfc3339(now)
    if reason:
        fresh["reason"] = reason
    if message:
        fresh["message"] = message
    if old is None:
        conditions.append(fresh)
    else:
        conditions[conditions.index(old)] = fresh
