"""What ``windlass install --gpu-sharing`` adds: cards of device plug-ins are held by pods for those who share them.

The objects are those of the chart with ``gpuSharing.enabled`` (``data/install-gpu-sharing.yaml``; a test says so):
the namespace of the pods that hold cards, who may make them, that nobody drains them away, and the policy by which
containers learn their card. That it is on stands in the settings file alone, as the image of those pods; whatever else
is said there of it is the user's, and stays.

Invariant: a card that is held when this goes stays held. The namespace and its budget go when no pod is left there.
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
SPACE = assignment_annotations.RESERVATIONS
"""Where the pods are that hold cards."""
SETTINGS = "app.kubernetes.io/part-of=windlass,app.kubernetes.io/component=settings"
"""By which ConfigMaps with a settings file are found, of ``windlass install`` and of helm."""
_OURS = "ours"
_PROTECTING = frozenset({"Namespace", "NetworkPolicy", "PodDisruptionBudget"})
Json = dict[str, Any]


def objects(names: Sequence[str] = (), *, inject: bool = True) -> list[Json]:
    """As for the usual namespace. ``names``: the scheduler names whose pods are told their card, where they are not the
    usual one; ``inject``: with the policy that does so."""
    import yaml

    text = (files("windlass.cli") / "data" / "install-gpu-sharing.yaml").read_text()
    found: list[Json] = list(yaml.safe_load_all(text))
    policies = (POLICIES.kind, POLICY_BINDINGS.kind)
    for obj in found:
        if names and obj["kind"] == POLICIES.kind:
            (ours,) = (one for one in obj["spec"]["matchConditions"] if one["name"] == _OURS)
            ours["expression"] = f"object.spec.schedulerName in {json.dumps(list(names))}"
    return [obj for obj in found if inject or obj["kind"] not in policies]


def is_on(settings: str) -> bool:
    """Whether a settings file says that cards are held."""
    return bool(_section(settings).get("reservationImage"))


def switched(settings: str, image: str) -> str:
    """The settings file with cards held by pods of ``image``; empty: by none. Unchanged where it says so already."""
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
    """In which the containers see their cards; empty: the nodes' own."""
    return str(_section(settings).get("reservationRuntimeClass", "nvidia"))


def _section(settings: str) -> Json:
    import yaml

    whole = yaml.safe_load(settings) or {}
    found = whole.get("scheduler") if isinstance(whole, dict) else None
    return found if isinstance(found, dict) else {}


def can_inject(client: BlockingClient) -> bool:
    """Whether the server knows such policies (Kubernetes 1.36). Raises ``StatusError``, ``Unreachable``."""
    served = client.call(Request("GET", f"/apis/{POLICIES.api_version}"))
    return f'"{POLICIES.plural}"'.encode() in served


def held(client: BlockingClient) -> list[Json] | None:
    """The pods that hold cards; None where this user may not see them. Raises ``StatusError``, ``Unreachable``."""
    return unless_forbidden(lambda: client.list(PODS, SPACE).items, None)


def leaving(client: BlockingClient) -> list[Json]:
    """What goes when it is switched off, the last applied first: while cards are held, not what protects them."""
    kept = frozenset() if held(client) == [] else _PROTECTING
    return [obj for obj in reversed(objects()) if obj["kind"] not in kept]
