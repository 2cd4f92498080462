"""Table of accelerators by product name: memory, compute capability, tier, value.

The table is ``accelerators.csv`` in the same directory; nothing else knows a model by name. ``value`` orders the
models: about what a device does in dense 16-bit arithmetic, an H100 being 100. It is no price: it says which
device to leave to others where two would serve. What a node says of itself (labels, a published record) goes
before the table.

A product label (``NVIDIA-A100-SXM4-80GB``, ``Tesla-T4``) is known by a name of the table that stands in it as
one or more whole parts between dashes; of several names the longest counts.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

TIER_LABEL = "gpu-tier"
"""Label of a node: what its accelerators are good for; set by the user or, where absent, from the product."""
TIERS = ("high-performance", "standard", "inference")


@dataclass(frozen=True, slots=True)
class Accelerator:
    """``memory_mib`` of the largest common version; ``compute``: CUDA compute capability, ``(0, 0)`` for
    other makers; ``value``: about its worth, an H100 being 100."""

    model: str
    names: tuple[str, ...]
    memory_mib: int
    compute: tuple[int, int]
    tier: str
    value: int


@cache
def table() -> tuple[Accelerator, ...]:
    """All known models, in the order of the file."""
    text = resources.files("windlass.api").joinpath("accelerators.csv").read_text(encoding="utf-8")
    found = []
    for row in csv.DictReader(text.splitlines()):
        major, _, minor = row["compute"].partition(".")
        found.append(
            Accelerator(
                row["model"],
                tuple(row["names"].split("|")),
                int(row["memory_gib"]) * 1024,
                (int(major), int(minor)) if major else (0, 0),
                row["tier"],
                int(row["value"]),
            )
        )
    return tuple(found)


@lru_cache(maxsize=4096)
def known(product: str) -> Accelerator | None:
    """The entry of a product label or a model's name; ``None`` if the table has none."""
    text = "-" + _parts(product) + "-"
    best: tuple[int, Accelerator] | None = None
    for entry in table():
        for name in entry.names:
            if f"-{name}-" in text and (best is None or len(name) > best[0]):
                best = (len(name), entry)
    return best[1] if best else None


def tier_of(product: str) -> str:
    """The tier of a product; empty if it is not known."""
    entry = known(product)
    return entry.tier if entry else ""


def _parts(product: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "-", product.upper()).strip("-")
