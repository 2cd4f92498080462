"""What a card of each well-known model has, by the names people use: for simulated cards and for labels.

Real cards are asked (NVML); nothing here overrides what a driver says. Memory in MiB as drivers report it.
MIG placements: starts and sizes on the card's memory axis, usable memory and SMs per instance, as real cards
list them (they cannot be computed from the profile's name: ``1g.18gb`` is 16 GiB).
"""

from __future__ import annotations

from dataclasses import dataclass

from windlass.api.accelerator_table import tier_of as tier_of
from windlass.api.cards import ProfilePlacement

NVIDIA, AMD, GAUDI, ASCEND = "nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "huawei.com/Ascend910"
HIGH, STANDARD, INFERENCE = "high-performance", "standard", "inference"

_SEVEN = tuple(range(7))
_PLACES: tuple[tuple[tuple[int, ...], int, int, int], ...] = (
    (_SEVEN, 1, 1, 7),
    (_SEVEN, 1, 1, 1),
    ((0, 2, 4, 6), 2, 1, 4),
    ((0, 2, 4), 2, 2, 3),
    ((0, 4), 4, 3, 2),
    ((0,), 4, 4, 1),
    ((0,), 8, 7, 1),
)
"""(starts, size, compute slices, most at once) of 1g, 1g+me, 1g of double memory, 2g, 3g, 4g, 7g."""
_AMPERE = (14, 14, 14, 28, 42, 56, 98)
_HOPPER = (16, 16, 26, 32, 60, 64, 132)


def _seven(
    names: str, memory: tuple[int, ...], multiprocessors: tuple[int, ...]
) -> tuple[ProfilePlacement, ...]:
    """The geometry that A100, H100 and H200 share; ``memory``: of 1g, of 2 slices, of 4, of all."""
    single, double, half, whole = memory
    usable = (single, single, double, double, half, half, whole)
    rows = zip(names.split(), _PLACES, usable, multiprocessors, strict=True)
    return tuple(
        ProfilePlacement(name, starts, size, compute, mib, sms, most)
        for name, (starts, size, compute, most), mib, sms in rows
    )


_A100_40 = _seven(
    "1g.5gb 1g.5gb+me 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", (4864, 9856, 19968, 40192), _AMPERE
)
_A100_80 = _seven(
    "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", (9856, 19968, 40192, 80384), _AMPERE
)
_H100_80 = _seven(
    "1g.10gb 1g.10gb+me 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", (9984, 20096, 40448, 81152), _HOPPER
)
_H200_141 = _seven(
    "1g.18gb 1g.18gb+me 1g.35gb 2g.35gb 3g.71gb 4g.71gb 7g.141gb", (16384, 33280, 71424, 143360), _HOPPER
)
_A30 = (
    ProfilePlacement("1g.6gb", (0, 1, 2, 3), 1, 1, 5952, 14, 4),
    ProfilePlacement("2g.12gb", (0, 2), 2, 2, 12032, 28, 2),
    ProfilePlacement("4g.24gb", (0,), 4, 4, 24192, 56, 1),
)


@dataclass(frozen=True, slots=True)
class Model:
    """``product`` is the label's value, with dashes for spaces. ``compute``: CUDA capability, ``""`` elsewhere.

    ``tier`` is the class of work that the model is meant for, where it is clear; ``links``: cards of one
    machine reach one another by NVLink (or its like).
    """

    product: str
    memory_mib: int
    compute: str = ""
    resource: str = NVIDIA
    tier: str = ""
    placements: tuple[ProfilePlacement, ...] = ()
    links: bool = False


MODELS: dict[str, Model] = {
    "H100-80GB": Model("NVIDIA-H100-80GB-HBM3", 81559, "9.0", tier=HIGH, placements=_H100_80, links=True),
    "H100-PCIE": Model("NVIDIA-H100-PCIe", 81559, "9.0", tier=HIGH, placements=_H100_80),
    "H200": Model("NVIDIA-H200", 143771, "9.0", tier=HIGH, placements=_H200_141, links=True),
    "B200": Model("NVIDIA-B200", 183359, "10.0", tier=HIGH, links=True),
    "A100-40GB": Model("NVIDIA-A100-SXM4-40GB", 40960, "8.0", tier=HIGH, placements=_A100_40, links=True),
    "A100-80GB": Model("NVIDIA-A100-SXM4-80GB", 81920, "8.0", tier=HIGH, placements=_A100_80, links=True),
    "A30": Model("NVIDIA-A30", 24576, "8.0", placements=_A30),
    "A40": Model("NVIDIA-A40", 46068, "8.6", tier=STANDARD),
    "A10": Model("NVIDIA-A10", 23028, "8.6"),
    "V100-16GB": Model("Tesla-V100-SXM2-16GB", 16384, "7.0", tier=STANDARD, links=True),
    "V100-32GB": Model("Tesla-V100-SXM2-32GB", 32768, "7.0", tier=STANDARD, links=True),
    "T4": Model("Tesla-T4", 15360, "7.5", tier=INFERENCE),
    "L4": Model("NVIDIA-L4", 23034, "8.9", tier=INFERENCE),
    "L40S": Model("NVIDIA-L40S", 46068, "8.9"),
    "RTX4090": Model("NVIDIA-GeForce-RTX-4090", 24564, "8.9"),
    "MI300X": Model("AMD-Instinct-MI300X", 196592, resource=AMD, tier=HIGH, links=True),
    "GAUDI2": Model("Gaudi2", 98304, resource=GAUDI, links=True),
    "GAUDI3": Model("Gaudi3", 131072, resource=GAUDI, links=True),
    "ASCEND910B": Model("Ascend910B", 65536, resource=ASCEND, links=True),
}
"""By short name, in upper case. ``H100``, ``A100`` and ``V100`` stand for the 80, 80 and 32 GB ones."""
_SHORT = {"H100": "H100-80GB", "A100": "A100-80GB", "V100": "V100-32GB", "ASCEND910": "ASCEND910B"}


def find_model(name: str) -> Model | None:
    """By short name (``H100-80GB``, ``t4``) or product (``NVIDIA-H100-80GB-HBM3``); None for others."""
    wanted = name.strip().upper().replace(" ", "-")
    short = _SHORT.get(wanted, wanted)
    if short in MODELS:
        return MODELS[short]
    exact = next((model for model in MODELS.values() if model.product.upper() == wanted), None)
    if exact is not None:
        return exact
    return next(
        (model for key, model in MODELS.items() if wanted.startswith((key, f"NVIDIA-{key}", f"TESLA-{key}"))),
        None,
    )


_TYPES = ("H100", "H200", "B200", "GB200", "A100", "A30", "A40", "A10", "V100", "L40S", "L40", "T4", "L4")


def short_type(product: str) -> str:
    """``NVIDIA-A100-SXM4-80GB`` → ``A100``; ``""`` where no word of the product is a model's short name."""
    words = product.upper().replace("-", " ").split()
    return next((word for word in words if word in _TYPES or word == "MI300X"), "")
