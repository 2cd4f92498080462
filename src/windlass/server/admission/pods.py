"""Pods on their way in: tolerations that every pod gets, the QoS class, and advice about placement."""

from __future__ import annotations

from typing import Any

from windlass.api import quantities
from windlass.api.aliases import product_words
from windlass.api.devices.request_parser import amounts_of, annotation_words, read
from windlass.api.pod_requests import pod_requests, qos_class
from windlass.api.resources import PODS
from windlass.server.admission.plugin import Review

TOLERATION_SECONDS = 300
_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
HOSTNAME = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def finish(review: Review) -> None:
    """After priority and limits: what depends on the whole spec."""
    if review.resource is not PODS or not review.main:
        return
    spec = review.object.get("spec")
    if not isinstance(spec, dict):
        return
    _tolerate(spec)
    if review.creating:
        _say_gated(review.object, spec)
        _advise(review, spec)
        _advise_parts(review, spec)
    if isinstance(review.object.get("status"), dict) and "qosClass" not in review.object["status"]:
        try:
            review.object["status"]["qosClass"] = qos_class(spec)
        except quantities.QuantityError:
            return  # validation names the field


def _tolerate(spec: dict[str, Any]) -> None:
    """As the DefaultTolerationSeconds plugin: five minutes on a node that is not ready or not reachable."""
    given = spec.get("tolerations") or []
    for taint in _TAINTS:
        if not any(
            t.get("key") in (taint, None, "") and t.get("effect") in ("NoExecute", None, "") for t in given
        ):
            spec.setdefault("tolerations", []).append(
                {
                    "key": taint,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": TOLERATION_SECONDS,
                }
            )


def _say_gated(pod: dict[str, Any], spec: dict[str, Any]) -> None:
    """A pod with scheduling gates says so from the start."""
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
    for words in product_words(spec):
        review.warn(words)
    anti = ((spec.get("affinity") or {}).get("podAntiAffinity") or {}).get(_REQUIRED) or ()
    if any(term.get("topologyKey") == HOSTNAME for term in anti) and _wants_devices(spec):
        review.warn(
            f"advice: required anti-affinity on {HOSTNAME} spreads the pods, at most one to a host; to place "
            "pods close together use podAffinity"
        )


def _advise_parts(review: Review, spec: dict[str, Any]) -> None:
    """Words for parts of cards that cannot be meant: the pod would wait for ever, and says so at once."""
    notes = review.object["metadata"].get("annotations") or {}
    words = annotation_words(notes)
    amounts = amounts_of(spec)
    if not words and not amounts:
        return
    for problem in read(amounts, words).problems:
        review.warn(
            f"advice: {problem.field}: {problem.message}; the pod waits until it is made again without that"
        )


def _wants_devices(spec: dict[str, Any]) -> bool:
    try:
        return any(quantities.is_device(name) and units for name, units in pod_requests(spec).items())
    except quantities.QuantityError:
        return False
