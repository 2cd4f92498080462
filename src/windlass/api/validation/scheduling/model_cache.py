"""A ModelCache by itself: what cannot be changed, and sources that can be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.validation.collector import Collector, part

Obj = Mapping[str, Any]
SCHEMES = ("file://", "http://", "https://", "hf://")
"""Beginnings of sources that a node can fetch (:mod:`windlass.modelcache.sources`)."""


def model_cache(obj: Obj, old: Obj | None, out: Collector) -> None:
    """Check a ModelCache."""
    spec = part(obj, "spec")
    source = part(spec, "model").get("source")
    if isinstance(source, str) and not source.startswith(SCHEMES):
        out.invalid("spec.model.source", source, f"must begin with one of {', '.join(SCHEMES)}")
    if old is not None:
        for name in ("nodeName", "model"):
            if spec.get(name) != part(old, "spec").get(name):
                out.invalid(
                    f"spec.{name}",
                    spec.get(name),
                    "cannot be changed: delete the ModelCache and create another",
                )
