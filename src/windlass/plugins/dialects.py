"""Values of a score's attribute ``dialects``: the queue APIs for which the score applies."""

from __future__ import annotations

from windlass.spi.objects import Dialect

OWN = frozenset({Dialect.WINDLASS})
VOLCANO = frozenset({Dialect.VOLCANO})
KAI = frozenset({Dialect.KAI})
NOT_KAI = OWN | VOLCANO
"""Queue APIs that use Windlass' own scores without a configured list of policies."""
