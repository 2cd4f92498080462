"""Conversion of amounts for plugins: public part of :mod:`windlass.api.quantities`.

Engine units: CPU and devices in milli, memory in bytes, others 1.
"""

from __future__ import annotations

from windlass.api import quantities
from windlass.api.quantities import is_device, scale, to_units

__all__ = ["from_units", "is_device", "scale", "to_units"]


def from_units(name: str, units: int) -> str:
    """Return the text of an amount for a message: ``("cpu", 1500)`` → ``1500m``.

    Requests above the maximum of the engine are shown as *more than* it.
    """
    if units >= quantities.MAX_REQUEST:
        return f"more than {quantities.from_units(name, quantities.MAX_REQUEST)}"
    return quantities.from_units(name, units)
