"""Admission of pods: default tolerations, QoS class, and advice about placement."""

from __future__ import annotations

from typing import Any

from windlass.api import quantities
from windlass.api.aliases import product_words
from windlass.api.defaults.pod import requests_from_limits
from windlass.api.devices.request_parser import amounts_of, annotation_words, read
from windlass.api.pod_requests import pod_requests, qos_class
from windlass.api.resources import DAEMON_SETS, DEPLOYMENTS, PODS, REPLICA_SETS, STATEFUL_SETS
from windlass.api.wire import patch_types
from windlass.server.admission.plugin import Review

TOLERATION_SECONDS = 300
_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_WORKLOADS = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS)
HOSTNAME = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def finish(review: Review) -> None:
    """Set tolerations and QoS class, and add warnings. Needs priority and limits to be set."""
    if review.resource is not PODS or not review.main:
        return
    spec = review.object.get("spec")
    if not isinstance(spec, dict):
        return
    _tolerate(spec)
    if review.creating:
        _set_gated(review.object, spec)
        _advise(review, spec)
        _warn_of_sharing(review, review.object, spec)
    if isinstance(review.object.get("status"), dict) and "qosClass" not in review.object["status"]:
        try:
            review.object["status"]["qosClass"] = qos_class(spec)
        except quantities.QuantityError:
            return  # reported by validation


def advise_template(review: Review) -> None:
    """Add the warnings about pods to a workload with a new template: its pods warn no user."""
    if review.resource not in _WORKLOADS or not review.main:
        return
    template = (review.object.get("spec") or {}).get("template") or {}
    before = ((review.old or {}).get("spec") or {}).get("template")
    owned = any(one.get("controller") for one in review.object["metadata"].get("ownerReferences") or ())
    if template == before or owned or not isinstance(template.get("spec"), dict):
        return
    spec = patch_types.copy(template["spec"])
    requests_from_limits(spec)  # as the pods will have them
    _advise(review, spec)
    _warn_of_sharing(review, template, spec)


def _tolerate(spec: dict[str, Any]) -> None:
    """Add default tolerations, as the DefaultTolerationSeconds plugin of Kubernetes.

    Pods tolerate nodes that are not ready or unreachable for five minutes.
    """
    tolerations = spec.get("tolerations") or []
    for taint in _TAINTS:
        if not any(
            t.get("key") in (taint, None, "") and t.get("effect") in ("NoExecute", None, "")
            for t in tolerations
        ):
            spec.setdefault("tolerations", []).append(
                {
                    "key": taint,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": TOLERATION_SECONDS,
                }
            )


def _set_gated(pod: dict[str, Any], spec: dict[str, Any]) -> None:
    """Set the condition ``PodScheduled`` of a new pod with scheduling gates."""
    if spec.get("schedulingGates") and isinstance(pod.get("status"), dict):
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": None,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]


def _advise(review: Review, spec: dict[str, Any]) -> None:
    for warning in product_words(spec):
        review.warn(warning)
    anti = ((spec.get("affinity") or {}).get("podAntiAffinity") or {}).get(_REQUIRED) or ()
    if any(term.get("topologyKey") == HOSTNAME for term in anti) and _wants_devices(spec):
        review.warn(
            f"advice: required anti-affinity on {HOSTNAME} spreads the pods, at most one to a host; to place "
            "pods close together use podAffinity"
        )


def _warn_of_sharing(review: Review, pod: dict[str, Any], spec: dict[str, Any]) -> None:
    """Warn about invalid device sharing requests, with which the pod would wait forever."""
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    settings = annotation_words(annotations)
    amounts = amounts_of(spec)
    if not settings and not amounts:
        return
    for problem in read(amounts, settings).problems:
        review.warn(
            f"advice: {problem.field}: {problem.message}; the pod stays pending until it is recreated without it"
        )


def _wants_devices(spec: dict[str, Any]) -> bool:
    try:
        return any(quantities.is_device(name) and units for name, units in pod_requests(spec).items())
    except quantities.QuantityError:
        return False
