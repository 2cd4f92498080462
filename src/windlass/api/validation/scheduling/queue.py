"""A Queue by itself: amounts that can be counted, and guarantee ≤ deserved ≤ capability."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.api.defaults.volcano import HIERARCHY, HIERARCHY_WEIGHTS
from windlass.api.validation import amounts
from windlass.api.validation.collector import Collector

Obj = Mapping[str, Any]


def queue(obj: Obj, old: Obj | None, out: Collector) -> None:
    metadata, spec = obj.get("metadata") or {}, obj.get("spec") or {}
    guarantee = (spec.get("guarantee") or {}).get("resource") or {}
    deserved, capability = spec.get("deserved") or {}, spec.get("capability") or {}
    for path, found in (
        ("spec.capability", capability),
        ("spec.deserved", deserved),
        ("spec.guarantee.resource", guarantee),
    ):
        for name, text in found.items():
            amounts.quantity(f"{path}[{name}]", name, text, out)
    if out.errors:
        return
    _within("spec.guarantee.resource", guarantee, "deserved", deserved, out, must_name=True)
    _within("spec.deserved", deserved, "capability", capability, out)
    _within("spec.guarantee.resource", guarantee, "capability", capability, out)
    if spec.get("parent") and spec["parent"] == metadata.get("name"):
        out.invalid(
            "spec.parent",
            spec["parent"],
            "a queue cannot be its own parent: name another queue, or leave it out for root",
        )
    _hierarchy(metadata.get("annotations") or {}, out)


def _within(
    path: str, smaller: Obj, word: str, larger: Obj, out: Collector, *, must_name: bool = False
) -> None:
    for name, text in smaller.items():
        low = amounts.parsed(text)
        where = f"{path}[{name}]"
        if name not in larger:
            if must_name and low:
                out.invalid(
                    where,
                    amounts.shown(text),
                    f"{word} does not name {name}, which counts as 0 there: set spec.{word}[{name}] to at least "
                    f"{amounts.shown(text)}",
                )
            continue
        high = amounts.parsed(larger[name])
        if low is not None and high is not None and low > high:
            out.invalid(
                where,
                amounts.shown(text),
                f"it is above {word} {amounts.shown(larger[name])}: lower it or raise spec.{word}[{name}]",
            )


def _hierarchy(annotations: Obj, out: Collector) -> None:
    path, weights = annotations.get(HIERARCHY), annotations.get(HIERARCHY_WEIGHTS)
    if not path and not weights:
        return
    where = f"metadata.annotations[{HIERARCHY_WEIGHTS}]"
    names, numbers = (path or "").split("/"), (weights or "").split("/")
    if len(names) != len(numbers):
        out.invalid(
            where,
            weights or "",
            f"it must have one weight for each part of {HIERARCHY} ({path or ''}): {len(names)}, not {len(numbers)}",
        )
        return
    for number in numbers:
        try:
            good = number.isascii() and float(number) > 0
        except ValueError:
            good = False
        if not good:
            out.invalid(where, weights, f"{number!r} is no weight: write numbers above 0, such as 1/2/8")
