"""Conversion of amounts for plugins: public part of :mod:`windlass.api.quantities`.

Engine units: CPU and devices in milli, memory in bytes, others 1.
"""

from __future__ import annotations

from windlass.api.quantities import from_units, is_device, scale, to_units

__all__ = ["from_units", "is_device", "scale", "to_units"]
