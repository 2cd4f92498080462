"""Objects of ``windlass install --gpu-sharing``: reservation pods for device plugins.

The objects are those of the chart with ``gpuSharing.enabled``
(``data/install-gpu-sharing.yaml``, compared by a test). They are the namespace of the
reservation pods, the rights to create them, their protection from drains, and the
policy by which containers get their device. The feature is enabled in the settings file
alone, by the image of these pods. Other settings of the feature belong to the user, and
stay.

Invariant: a device that is reserved when the feature is disabled stays reserved. The
namespace and its budget are deleted when no pod is left there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from windlass.api.devices import assignment_annotations
from windlass.api.resources import PODS, Resource
from windlass.cli.errors import unless_forbidden
from windlass.client.blocking import BlockingClient
from windlass.client.transport import Request

_ADMISSION = "admissionregistration.k8s.io"
POLICIES = Resource(
    _ADMISSION, "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", namespaced=False
)
POLICY_BINDINGS = Resource(
    _ADMISSION, "v1", "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", namespaced=False
)
RUNTIME_CLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False)
RESERVATION_NAMESPACE = assignment_annotations.RESERVATIONS
"""Namespace of the reservation pods."""
SETTINGS = "app.kubernetes.io/part-of=windlass,app.kubernetes.io/component=settings"
"""Labels of ConfigMaps with a settings file, of ``windlass install`` and of helm."""
_OURS = "ours"
_PROTECTING = frozenset({"Namespace", "NetworkPolicy", "PodDisruptionBudget"})
Json = dict[str, Any]


def objects(names: Sequence[str] = (), *, inject: bool = True) -> list[Json]:
    """Return the objects for the usual namespace.

    :param names: scheduler names of the pods that get their device, if they are not the
        default
    :param inject: include the policy that gives it to them
    """
    import yaml

    text = (files("windlass.cli") / "data" / "install-gpu-sharing.yaml").read_text()
    items: list[Json] = list(yaml.safe_load_all(text))
    policies = (POLICIES.kind, POLICY_BINDINGS.kind)
    for obj in items:
        if names and obj["kind"] == POLICIES.kind:
            (condition,) = (entry for entry in obj["spec"]["matchConditions"] if entry["name"] == _OURS)
            condition["expression"] = f"object.spec.schedulerName in {json.dumps(list(names))}"
    return [obj for obj in items if inject or obj["kind"] not in policies]


def is_on(settings: str) -> bool:
    """Return whether a settings file enables reservation pods."""
    return bool(_section(settings).get("reservationImage"))


def with_image(settings: str, image: str) -> str:
    """Return the settings file with reservation pods of ``image``; empty: disabled.

    Unchanged if it already says so.
    """
    import yaml

    if _section(settings).get("reservationImage", "") == image:
        return settings
    whole = yaml.safe_load(settings) or {}
    section = {key: value for key, value in _section(settings).items() if key != "reservationImage"}
    if image:
        section["reservationImage"] = image
    if section:
        whole["scheduler"] = section
    else:
        whole.pop("scheduler", None)
    return yaml.safe_dump(whole, sort_keys=False)


def runtime_class(settings: str) -> str:
    """Return the runtime class in which containers see their devices; empty: that of the node."""
    return str(_section(settings).get("reservationRuntimeClass", "nvidia"))


def _section(settings: str) -> Json:
    import yaml

    whole = yaml.safe_load(settings) or {}
    section = whole.get("scheduler") if isinstance(whole, dict) else None
    return section if isinstance(section, dict) else {}


def can_inject(client: BlockingClient) -> bool:
    """Return whether the server has such policies (Kubernetes 1.36).

    Raises ``StatusError`` and ``Unreachable``.
    """
    served = client.call(Request("GET", f"/apis/{POLICIES.api_version}"))
    return f'"{POLICIES.plural}"'.encode() in served


def reservation_pods(client: BlockingClient) -> list[Json] | None:
    """Return the reservation pods; ``None`` if this user may not see them.

    Raises ``StatusError`` and ``Unreachable``.
    """
    return unless_forbidden(lambda: client.list(PODS, RESERVATION_NAMESPACE).items, None)


def removable_objects(client: BlockingClient) -> list[Json]:
    """Return the objects to delete when the feature is disabled, the last applied first.

    Objects that protect reservation pods stay while there are any.
    """
    protected = frozenset() if reservation_pods(client) == [] else _PROTECTING
    return [obj for obj in reversed(objects()) if obj["kind"] not in protected]
