"""Defaults of device requests, as ``SetDefaults_ExactDeviceRequest`` and its like write them."""

from __future__ import annotations

from typing import Any

EXACT = "ExactCount"


def claim(obj: dict[str, Any]) -> None:
    """A ResourceClaim."""
    _requests(obj.get("spec") or {})


def template(obj: dict[str, Any]) -> None:
    """A ResourceClaimTemplate."""
    _requests((obj.get("spec") or {}).get("spec") or {})


def _requests(spec: dict[str, Any]) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        for one in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if isinstance(one, dict):
                if not one.get("allocationMode"):
                    one["allocationMode"] = EXACT
                if one["allocationMode"] == EXACT and not one.get("count"):
                    one["count"] = 1
                for toleration in one.get("tolerations") or ():
                    if not toleration.get("operator"):
                        toleration["operator"] = "Equal"
