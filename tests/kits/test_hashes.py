"""Hashes that names of other programs contain."""

from __future__ import annotations

from windlass.kits.hashes import fnv32a


def test_fnv_has_the_published_values() -> None:
    assert [fnv32a(text) for text in ("", "a", "foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]
