"""Pod that reserves a whole device for the pods that share it.

It requests one whole device from the kubelet. Its first container reports the device in
its termination message, which the kubelet copies into the pod's status. The second
container then keeps the same device until the pod is deleted, since a kubelet reassigns
the devices of finished init containers to the pod's containers. The pod needs no token
and no rights.
"""

from __future__ import annotations

import hashlib
from typing import Any

from windlass.api import views
from windlass.api.devices.request import GPU
from windlass.model.devices.reserved_devices import NAMESPACE, reservation_annotations
from windlass.scheduler.options import ReservationPodOptions

SCHEDULER = "windlass-reservations"
"""The pod's ``schedulerName``. No scheduler serves it."""
_REPORT, _HOLD = "tell", "hold"
_SMALL = {"cpu": "10m", "memory": "64Mi"}


def name_of(node: str, index: int) -> str:
    """Return the pod's name.

    There is one per device, so no device is reserved twice.
    """
    return f"card-{index}-{hashlib.sha256(node.encode()).hexdigest()[:16]}"


def reservation_pod(node: views.NodeObject, index: int, options: ReservationPodOptions) -> dict[str, Any]:
    """Return the pod that reserves device ``index`` of a node.

    The node owns it: the pod is deleted with the node, and ``kubectl drain`` does not
    refuse it as a pod without a controller.
    """
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
        "initContainers": [_container(_REPORT, options)],
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


def _container(name: str, options: ReservationPodOptions) -> dict[str, Any]:
    return {
        "name": name,
        "image": options.image,
        "imagePullPolicy": options.pull_policy,
        "args": ["reserve-device", f"--{name}"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {**_SMALL, GPU: "1"}, "limits": {"memory": "128Mi", GPU: "1"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
