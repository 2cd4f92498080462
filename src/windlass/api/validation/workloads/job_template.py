"""Pod template of a job, checked as the pods that are created from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.defaults import pod as pod_defaults
from windlass.api.validation.collector import Collector
from windlass.api.validation.pods import pod
from windlass.api.wire import patch_types


def job_template(
    template: object, path: str, owner: str, out: Collector, volumes: Sequence[Mapping[str, Any]] = ()
) -> Mapping[str, Any]:
    """Check a template, and return its spec with defaults; empty if there is none.

    ``owner``: word for the part of the job, such as task. ``volumes``: volumes that its
    pods get in addition.
    """
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        out.required(f"{path}.spec", f"the pod template of the {owner}")
        return {}
    filled = patch_types.copy(template)
    spec = filled["spec"]
    if volumes:
        spec["volumes"] = [*(spec.get("volumes") or ()), *patch_types.copy(list(volumes))]
    pod_defaults.template(filled)
    pod_defaults.requests_from_limits(spec)
    pod.template(filled, path, out)
    return spec
