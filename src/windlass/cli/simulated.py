"""The shape of simulated nodes, from the command line; the node agent plays their pods."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from windlass.api import quantities
from windlass.api.errors import WindlassError
from windlass.api.nodes import node_object

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MEMORY_MIB = {"H100": 81_559, "H200": 143_771, "A100": 81_920, "B200": 183_359, "L40S": 46_068, "T4": 15_360}
"""Device memory as the drivers report it, by a word in the product's name; otherwise 80 GiB."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What each simulated node has."""

    gpus: int = 8
    cpu: str = "64"
    memory: str = "256Gi"
    product: str = "Simulated-GPU"
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()
    resources: dict[str, str] = field(default_factory=dict)


def node_of(name: str, shape: Shape) -> dict[str, Any]:
    """The Node, ready and with its allocatable. Raises :class:`WindlassError` on amounts that are none."""
    for resource, amount in {"cpu": shape.cpu, "memory": shape.memory, **shape.resources}.items():
        _check(resource, amount)
    return node_object(
        name,
        cpu=shape.cpu,
        memory=shape.memory,
        gpus=shape.gpus,
        product=shape.product,
        gpu_memory_mib=_memory_mib(shape.product),
        labels=shape.labels,
        taints=shape.taints,
        resources=shape.resources,
    )


def _memory_mib(product: str) -> int:
    return next((mib for word, mib in _MEMORY_MIB.items() if word in product.upper()), 81_920)


def _check(name: str, amount: str) -> None:
    try:
        units = quantities.to_units(name, amount)
    except quantities.QuantityError as error:
        raise WindlassError("WL-USE-400", f"{name}={amount}: {error}") from error
    if units < 0:
        raise WindlassError("WL-USE-400", f"{name}={amount} is less than nothing")


def parse_label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise WindlassError("WL-USE-400", f"--label {text!r} is not KEY=VALUE", remedies=("--label zone=a",))
    return key, value


def parse_resource(text: str) -> tuple[str, str]:
    name, equals, amount = text.partition("=")
    if not equals or not name or not amount:
        raise WindlassError(
            "WL-USE-400", f"--resource {text!r} is not NAME=AMOUNT", remedies=("--resource rdma/roce_v2=1",)
        )
    return name, amount


def parse_taint(text: str) -> dict[str, str]:
    """``key=value:Effect`` or ``key:Effect``."""
    found = re.fullmatch(r"([^=:]+)(?:=([^:]*))?:(\w+)", text)
    if found is None or found[3] not in _EFFECTS:
        raise WindlassError(
            "WL-USE-400",
            f"--taint {text!r} is not KEY=VALUE:EFFECT",
            evidence=f"effects: {', '.join(_EFFECTS)}",
            remedies=("--taint dedicated=gpu:NoSchedule",),
        )
    taint = {"key": found[1], "effect": found[3]}
    return taint | {"value": found[2]} if found[2] else taint
