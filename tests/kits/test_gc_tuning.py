"""``kits.gc_tuning``."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from windlass.kits import gc_tuning


@pytest.fixture(autouse=True)
def set_aside_again() -> Iterator[None]:
    """Set aside again what the session had set aside (``tests/conftest.py``)."""
    yield
    gc.freeze()


def test_collections_become_rare_and_what_lives_is_set_aside() -> None:
    before = gc.get_threshold()
    usual = 700
    gc.set_threshold(usual, 10, 10)  # whatever ran in this process before
    try:
        gc_tuning.tune_for_long_lived_objects()
        assert gc.get_threshold()[0] > usual
        assert gc.get_freeze_count() > 0
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class Cycle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.own = self


def test_what_was_set_aside_and_then_dropped_is_found_when_all_is_looked_at() -> None:
    gc.unfreeze()
    dropped = Cycle()
    seen = weakref.ref(dropped)
    gc_tuning.collect_again()  # nothing is set aside: nothing is done
    assert gc.get_freeze_count() == 0
    gc.freeze()
    try:
        del dropped
        gc.collect()
        assert seen() is not None
        gc_tuning.collect_again()
        assert seen() is None
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_inside_cycles_are_looked_for_only_once_there_are_very_many_objects_more() -> None:
    before = gc.get_threshold()
    looks: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        looks.append(info["generation"])

    gc.callbacks.append(note)
    try:
        with gc_tuning.infrequent_collections():
            kept = [Cycle() for _ in range(2 * before[0])]
            assert not looks
        kept += [Cycle() for _ in range(2 * before[0])]
        assert looks
    finally:
        gc.callbacks.remove(note)
    assert gc.get_threshold() == before


def test_freed_memory_is_kept_where_the_c_library_can() -> None:
    import platform

    assert gc_tuning.retain_freed_memory() is (platform.libc_ver()[0] == "glibc")
