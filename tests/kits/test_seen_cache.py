from __future__ import annotations

from windlass.kits.seen_cache import Passed


def test_what_was_added_is_known_and_nothing_else() -> None:
    passed = Passed()
    passed.add(Passed.mark(b"one"))
    assert Passed.mark(b"one") in passed
    assert Passed.mark(b"on") not in passed


def test_the_oldest_are_forgotten() -> None:
    passed = Passed(limit=2)
    for word in (b"one", b"two", b"two", b"three"):
        passed.add(Passed.mark(word))
    assert len(passed) == 2
    assert Passed.mark(b"one") not in passed
    assert Passed.mark(b"two") in passed
    assert Passed.mark(b"three") in passed
