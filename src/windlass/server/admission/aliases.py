"""Accepted alternative spellings and filled gaps, each with a warning.

The first word of a warning is its kind: ``alias`` (another spelling), ``default`` (a
missing value was set), or
``advice`` (stored as written, but possibly not what the author intended). Silent
defaults of Kubernetes and Volcano
are in :mod:`windlass.api.defaults`.
"""

from __future__ import annotations

from typing import Any

from windlass.api import errors
from windlass.api.aliases import DESERVED, GUARANTEED, GUARANTEED_TWICE, card_words, same_amounts
from windlass.api.errors import FieldError
from windlass.api.resources import PODS, QUEUES, RESOURCE_QUOTAS, VOLCANO_JOBS
from windlass.api.wire.field_values import canonical_quantity
from windlass.jobs.kubeflow.advice import advice
from windlass.jobs.kubeflow.job import read_job
from windlass.jobs.kubeflow.kinds import KINDS
from windlass.server.admission.plugin import Review


def normalise(review: Review) -> None:
    if not review.main:
        return
    if review.resource is QUEUES:
        _queue(review)
    elif review.resource is PODS and review.creating:
        _pod_images(review)
        _pod_devices(review)
    elif review.resource is VOLCANO_JOBS:
        _job(review)
    elif review.resource is RESOURCE_QUOTAS and review.creating:
        _quota(review)
    elif review.resource in KINDS:
        _kubeflow_job(review)


# --- Queue --------------------------------------------------------------------------------------------


def _queue(review: Review) -> None:
    spec = review.object.get("spec")
    if not isinstance(spec, dict):
        return
    if "guaranteed" in spec:
        _guaranteed(review, spec)
    guarantee = (spec.get("guarantee") or {}).get("resource")
    if guarantee and _deserved_follows(review, spec):
        spec["deserved"] = dict(guarantee)
        review.warn(DESERVED)


def _guaranteed(review: Review, spec: dict[str, Any]) -> None:
    alias = spec.pop("guaranteed")
    guarantee = spec.get("guarantee")
    resource = guarantee.get("resource") if isinstance(guarantee, dict) else None
    before = (((review.old or {}).get("spec") or {}).get("guarantee") or {}).get("resource")
    if resource and not same_amounts(resource, alias) and resource != before:
        raise errors.invalid(
            QUEUES,
            review.name,
            [
                FieldError.invalid("spec.guaranteed", "guaranteed", GUARANTEED_TWICE),
            ],
        )
    spec["guarantee"] = {"resource": alias}
    review.warn(GUARANTEED)


def _deserved_follows(review: Review, spec: dict[str, Any]) -> bool:
    """Return whether the client left ``deserved`` unset, now and when it was last derived."""
    if "deserved" not in spec:
        return True
    old = (review.old or {}).get("spec") or {}
    before = (old.get("guarantee") or {}).get("resource")
    untouched = spec["deserved"] == old.get("deserved")
    now = spec["guarantee"]["resource"]
    return (
        bool(before)
        and untouched
        and same_amounts(old.get("deserved"), before)
        and not same_amounts(now, before)
    )


# --- pods and templates -------------------------------------------------------------------------------


def _pod_images(review: Review) -> None:
    for container in _without_image(review.object.get("spec")):
        review.warn(_image_warning(container, f"Pod {review.name}"))
        container["image"] = review.options.default_image


def _pod_devices(review: Review) -> None:
    """Warn about vendor annotations and resources that elsewhere need a device plugin."""
    spec = review.object.get("spec")
    for warning in card_words(spec) if isinstance(spec, dict) else ():
        review.warn(warning)


def _without_image(spec: Any) -> list[dict[str, Any]]:
    if not isinstance(spec, dict):
        return []
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    return [container for container in containers if not container.get("image")]


def _image_warning(container: dict[str, Any], owner: str) -> str:
    return (
        f"default: container {container.get('name', '')} of {owner} has no image -> configured default image "
        "(placeholder process on the embedded box)"
    )


def _job(review: Review) -> None:
    spec = review.object.get("spec")
    tasks = spec.get("tasks") if isinstance(spec, dict) else None
    without_policy: list[str] = []
    for index, task in enumerate(tasks or ()):
        template = task.get("template")
        pod = template.get("spec") if isinstance(template, dict) else None
        if not isinstance(pod, dict):
            continue
        name = task.get("name") or f"default{index}"
        if not pod.get("restartPolicy"):
            pod["restartPolicy"] = "OnFailure"
            without_policy.append(name)
        for container in _without_image(pod):
            review.warn(_image_warning(container, f"task {name}"))
            container["image"] = review.options.default_image
    if without_policy:
        review.warn(
            "default: pod templates without restartPolicy -> OnFailure "
            f"({'tasks' if len(without_policy) > 1 else 'task'} {', '.join(without_policy)})"
        )


def _kubeflow_job(review: Review) -> None:
    before = (review.old or {}).get("spec")
    if before is not None and before == review.object.get("spec"):
        return  # a write to metadata alone
    try:
        found = advice(read_job(KINDS[review.resource], review.object))
    except (ValueError, TypeError, KeyError, AttributeError, AssertionError):
        return  # the validation names what is wrong
    for text in found:
        review.warn(text)


# --- ResourceQuota ------------------------------------------------------------------------------------


def _quota(review: Review) -> None:
    hard = (review.object.get("spec") or {}).get("hard") or {}
    for name in hard:
        if not (name.startswith("limits.") and "/" in name):
            continue
        request = f"requests.{name.removeprefix('limits.')}"
        cap = (
            f"the cap is {request} {_shown(hard[request])}" if request in hard else f"set {request} to cap it"
        )
        review.warn(
            f"advice: {name} is kept but not counted (request equals limit for extended resources); {cap}"
        )


def _shown(quantity: Any) -> str:
    try:
        return canonical_quantity(quantity)
    except ValueError:
        return str(quantity)
