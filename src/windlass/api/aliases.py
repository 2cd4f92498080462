"""Accepted alternative spellings, described in text.

The embedded server returns these texts as warnings. On a real cluster, controllers write them on the objects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windlass.api import quantities
from windlass.api.devices.resource_names import ALIYUN

Json = dict[str, Any]
PRODUCT = "nvidia.com/gpu.product"
GUARANTEED = "alias: guaranteed -> guarantee.resource"
GUARANTEED_TWICE = "spec.guarantee.resource is given too, with other amounts; keep only guarantee.resource"
DESERVED = (
    "default: deserved absent -> set equal to guarantee (newest upstream refuses guarantee above "
    "deserved, and an absent deserved counts as 0)"
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PRODUCTS = (
    "NVIDIA-H100-80GB-HBM3",
    "NVIDIA-H100-PCIe",
    "NVIDIA-H100-NVL",
    "NVIDIA-H200",
    "NVIDIA-H200-NVL",
    "NVIDIA-H800",
    "NVIDIA-H20",
    "NVIDIA-B200",
    "NVIDIA-GB200",
    "NVIDIA-GH200-480GB",
    "NVIDIA-A100-SXM4-80GB",
    "NVIDIA-A100-SXM4-40GB",
    "NVIDIA-A100-80GB-PCIe",
    "NVIDIA-A100-PCIE-40GB",
    "NVIDIA-A800-SXM4-80GB",
    "NVIDIA-A40",
    "NVIDIA-A30",
    "NVIDIA-A10",
    "NVIDIA-A10G",
    "NVIDIA-L40S",
    "NVIDIA-L40",
    "NVIDIA-L4",
    "Tesla-T4",
    "Tesla-V100-SXM2-32GB",
    "Tesla-V100-SXM2-16GB",
    "Tesla-V100-PCIE-32GB",
    "Tesla-V100-PCIE-16GB",
    "Tesla-P100-PCIE-16GB",
)
"""Values of that label as GPU feature discovery writes them."""


def same_amounts(left: Any, right: Any) -> bool:
    """Return whether two resource lists mean the same."""
    if not isinstance(left, dict) or not isinstance(right, dict) or left.keys() != right.keys():
        return False
    try:
        return all(quantities.parse(str(left[name])) == quantities.parse(str(right[name])) for name in left)
    except quantities.QuantityError:
        return left == right


def pod_words(spec: Json) -> Iterator[str]:
    """Yield a text for each alternative spelling in the spec of a pod."""
    yield from card_words(spec)
    yield from product_words(spec)


def card_words(spec: Json) -> Iterator[str]:
    """Vocabularies that elsewhere need their vendor's device plug-in."""
    for container in spec.get("containers") or ():
        amounts = container.get("resources") or {}
        limits = {**(amounts.get("requests") or {}), **(amounts.get("limits") or {})}
        memory = limits.get(ALIYUN.memory)
        if memory is None:
            continue
        cards = str(limits.get(ALIYUN.number, "1"))
        what = "one shared GPU" if cards == "1" else f"{cards} shared GPUs together"
        yield (
            f"alias: {ALIYUN.memory} {memory} -> {memory} GiB of the memory of {what} "
            "(no vendor device plug-in needed)"
        )


def product_words(spec: Json) -> Iterator[str]:
    """Names of devices that mean others too."""
    for value in _product_values(spec):
        longer = [p for p in PRODUCTS if p.startswith(value) and p != value]
        if longer and value not in PRODUCTS:
            yield (
                f"alias: {PRODUCT} {value} also matches a longer product label with this prefix "
                f"(real label {longer[0]}) when no node has the exact value"
            )


def _product_values(spec: Json) -> Iterator[str]:
    selected = (spec.get("nodeSelector") or {}).get(PRODUCT)
    if selected:
        yield selected
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for expression in term.get("matchExpressions") or ():
            if expression.get("key") == PRODUCT and expression.get("operator") == "In":
                yield from expression.get("values") or ()
