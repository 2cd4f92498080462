"""Defaults of CustomResourceDefinitions, as in ``apiextensions-apiserver``."""

from __future__ import annotations

from typing import Any


def definition(obj: dict[str, Any]) -> None:
    spec = obj.get("spec") or {}
    names = spec.get("names") or {}
    kind = names.get("kind") or ""
    if not names.get("singular"):
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"
    if not spec.get("conversion"):
        spec["conversion"] = {"strategy": "None"}
    client = ((spec["conversion"].get("webhook") or {}).get("clientConfig") or {}).get("service")
    if client is not None:
        client.setdefault("port", 443)
