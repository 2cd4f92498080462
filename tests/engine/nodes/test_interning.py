"""``engine.nodes.interning``."""

from __future__ import annotations

from windlass.engine.nodes.interning import Interner


def test_codes_are_given_in_order_and_kept() -> None:
    interner = Interner[str]("")
    assert [interner.code(v) for v in ("a", "b", "a", "")] == [1, 2, 1, 0]
    assert interner.values == ["", "a", "b"]
    assert len(interner) == 3
