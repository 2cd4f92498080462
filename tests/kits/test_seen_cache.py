from __future__ import annotations

from windlass.kits.seen_cache import PassedChecks


def test_what_was_added_is_known_and_nothing_else() -> None:
    passed = PassedChecks()
    passed.add(PassedChecks.mark(b"one"))
    assert PassedChecks.mark(b"one") in passed
    assert PassedChecks.mark(b"on") not in passed


def test_the_oldest_are_forgotten() -> None:
    passed = PassedChecks(limit=2)
    for word in (b"one", b"two", b"two", b"three"):
        passed.add(PassedChecks.mark(word))
    assert len(passed) == 2
    assert PassedChecks.mark(b"one") not in passed
    assert PassedChecks.mark(b"two") in passed
    assert PassedChecks.mark(b"three") in passed
