"""Claims for devices in the words of an article: a container that names a device class, without a claim.

The real field of a container's claim is ``name`` (and ``request``); what it stands for is in the pod's
``resourceClaims``. A class name cannot hold a slash. Both are understood, and told. It has to be done before the
fields are reviewed, which knows no such field.
"""

from __future__ import annotations

from typing import Any

from windlass.api.views.podshape import CLASS_TEMPLATE, class_name


def rewrite(pod: dict[str, Any]) -> list[str]:
    """Change ``pod`` in place; the sentences for its writer. What has another shape is left to the review."""
    spec = pod.get("spec")
    warnings: list[str] = []
    if not isinstance(spec, dict):
        return warnings
    for container in spec.get("containers") or ():
        resources = container.get("resources") if isinstance(container, dict) else None
        claims = resources.get("claims") if isinstance(resources, dict) else None
        for claim in claims if isinstance(claims, list) else ():
            if isinstance(claim, dict) and isinstance(claim.get("deviceClassName"), str):
                warnings += _claim(spec, claim)
    return list(dict.fromkeys(warnings))


def _claim(spec: dict[str, Any], claim: dict[str, Any]) -> list[str]:
    written = claim.pop("deviceClassName")
    name = str(claim.get("name") or "")
    device_class = class_name(written)
    template = f"{CLASS_TEMPLATE}{device_class}"
    known = spec.setdefault("resourceClaims", [])
    entries = known if isinstance(known, list) else []
    before = next((one for one in entries if isinstance(one, dict) and one.get("name") == name), None)
    again = before is not None and before.get("resourceClaimTemplateName") == template
    if not isinstance(known, list) or (before is not None and not again):
        return [
            f"alias: deviceClassName inside a container claim -> left out, pod.spec.resourceClaims has an entry {name}"
        ]
    if not again:
        known.append({"name": name, "resourceClaimTemplateName": template})
    told = [
        f"alias: deviceClassName inside a container claim -> pod.spec.resourceClaims entry {name} with a generated "
        "ResourceClaim for 1 device"
    ]
    if device_class != written:
        told.append(
            f"alias: device class {written} -> {device_class} (a slash is not allowed in a device class name)"
        )
    return told
