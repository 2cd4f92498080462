"""Labels that state properties of a node's devices, and cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from windlass.api import views
from windlass.api.devices.request import GPU
from windlass.api.quantities import is_device

_COMPUTE = ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor")


def unreadable_labels(view: views.NodeObject) -> tuple[tuple[str, str], ...]:
    """Return label and value of the labels about devices that are not the numbers they should be."""
    return tuple(sorted(_unreadable(view.labels, view.allocatable)))


def _unreadable(labels: Mapping[str, str], allocatable: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for resource, units in allocatable.items():
        if not is_device(resource) or units <= 0:
            continue
        memory, vram = f"{resource}.memory", f"{resource}.vram"
        if memory in labels and not number(labels[memory]):
            yield memory, labels[memory]
        if vram in labels and not number(labels[vram].removesuffix("G")):
            yield vram, labels[vram]
    if allocatable.get(GPU, 0) > 0:
        for label in _COMPUTE:
            if label in labels and not (labels[label].isascii() and labels[label].isdigit()):
                yield label, labels[label]


def number(text: str) -> int:
    """Return a number of at most 15 ASCII digits; 0 for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
