"""How a policy reads and writes amounts: the public part of ``api.quantities``, for plugins.

Engine units: CPU and devices in milli, memory in bytes, others 1.
"""

from __future__ import annotations

from windlass.api.quantities import from_units, is_device, scale, to_units

__all__ = ["from_units", "is_device", "scale", "to_units"]
