"""Whose placement rules a score belongs to: values of a score's attribute ``dialects``."""

from __future__ import annotations

from windlass.spi.objects import Dialect

OWN = frozenset({Dialect.WINDLASS})
VOLCANO = frozenset({Dialect.VOLCANO})
KAI = frozenset({Dialect.KAI})
NOT_KAI = OWN | VOLCANO
"""Without a configured list of policies, pods of Volcano queues follow Windlass' own scores."""
