"""Container claims that name a device class instead of a claim.

In Kubernetes, a container's claim has ``name`` (and ``request``) and refers to an entry
of the pod's
``resourceClaims``. Documents in the field also use ``deviceClassName`` there, and class
names with a slash. Both are
rewritten, with a warning. This happens before field review, which does not know the
field.
"""

from __future__ import annotations

from typing import Any

from windlass.api.views.container_claims import class_name
from windlass.api.views.podshape import CLASS_TEMPLATE


def rewrite(pod: dict[str, Any]) -> list[str]:
    """Rewrite ``pod`` in place and return warnings for the client.

    Malformed claims are left to field review.
    """
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
    before = next((entry for entry in entries if isinstance(entry, dict) and entry.get("name") == name), None)
    again = before is not None and before.get("resourceClaimTemplateName") == template
    if not isinstance(known, list) or (before is not None and not again):
        return [
            f"alias: deviceClassName inside a container claim -> left out, pod.spec.resourceClaims has an entry {name}"
        ]
    if not again:
        known.append({"name": name, "resourceClaimTemplateName": template})
    warnings = [
        f"alias: deviceClassName inside a container claim -> pod.spec.resourceClaims entry {name} with a generated "
        "ResourceClaim for 1 device"
    ]
    if device_class != written:
        warnings.append(
            f"alias: device class {written} -> {device_class} (a slash is not allowed in a device class name)"
        )
    return warnings
