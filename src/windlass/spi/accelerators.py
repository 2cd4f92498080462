"""Known accelerators by product name: public part of :mod:`windlass.api.devices.accelerator_table`."""

from __future__ import annotations

from windlass.api.devices.accelerator_table import TIER_LABEL, TIERS, Accelerator, known, table, tier_of

__all__ = ["TIERS", "TIER_LABEL", "Accelerator", "known", "table", "tier_of"]
