"""Dictionaries that say whether something in them has changed."""

from __future__ import annotations

from windlass.kits.dicts import put_if_changed


def test_what_is_kept_already_changes_nothing() -> None:
    book: dict[str, list[int]] = {}
    first = [1]
    assert put_if_changed(book, "a", first)
    assert not put_if_changed(book, "a", [1])
    assert book["a"] is first
    assert put_if_changed(book, "a", [2])
    assert book == {"a": [2]}
