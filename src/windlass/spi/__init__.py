"""Stable plugin surface: Protocols and frozen types that a plugin may import."""

from __future__ import annotations

from windlass.spi import renamed

renamed.find_old_modules()
