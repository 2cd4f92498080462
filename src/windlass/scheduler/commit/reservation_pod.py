"""The pod that holds a card for those who share it.

It asks the kubelet for one whole card. Its first container says which one that is, in its termination message, which
the kubelet puts into the pod's status; then a second keeps the same card (a kubelet gives containers the devices of
init containers that are over) until the pod is deleted. So it needs no token and no rights at all.
"""

from __future__ import annotations

import hashlib
from typing import Any

from windlass.api import views
from windlass.api.devices.request import GPU
from windlass.model.devices.reserved_devices import NAMESPACE, reservation_annotations
from windlass.scheduler.options import ReservationPodOptions

SCHEDULER = "windlass-reservations"
"""As ``schedulerName``: nobody's, so that no scheduler looks at it."""
_TELL, _HOLD = "tell", "hold"
_SMALL = {"cpu": "10m", "memory": "64Mi"}


def name_of(node: str, index: int) -> str:
    """One name per card: nobody can hold a card twice."""
    return f"card-{index}-{hashlib.sha256(node.encode()).hexdigest()[:16]}"


def reservation_pod(node: views.NodeObject, index: int, options: ReservationPodOptions) -> dict[str, Any]:
    """Owned by its node: it goes with it, and ``kubectl drain`` does not call it nobody's."""
    spec: dict[str, Any] = {
        "nodeName": node.name,
        "schedulerName": SCHEDULER,
        "priorityClassName": "system-node-critical",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 5,
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [_container(_TELL, options)],
        "containers": [_container(_HOLD, options)],
    }
    if options.runtime_class:
        spec["runtimeClassName"] = options.runtime_class
    if options.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in options.pull_secrets]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid, "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_of(node.name, index),
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/name": "windlass", "app.kubernetes.io/component": "reservation"},
            "annotations": reservation_annotations(index),
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _container(what: str, options: ReservationPodOptions) -> dict[str, Any]:
    return {
        "name": what,
        "image": options.image,
        "imagePullPolicy": options.pull_policy,
        "args": ["reserve-device", f"--{what}"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {**_SMALL, GPU: "1"}, "limits": {"memory": "128Mi", GPU: "1"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
