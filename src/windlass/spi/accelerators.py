"""What is known of accelerators by the name of their product: the public part of
:mod:`windlass.api.devices.accelerator_table`, for plugins."""

from __future__ import annotations

from windlass.api.devices.accelerator_table import TIER_LABEL, TIERS, Accelerator, known, table, tier_of

__all__ = ["TIERS", "TIER_LABEL", "Accelerator", "known", "table", "tier_of"]
