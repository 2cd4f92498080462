"""``kits.garbage``."""

from __future__ import annotations

import gc

from windlass.kits import garbage


def test_collections_become_rare_and_what_lives_is_set_aside() -> None:
    before = gc.get_threshold()
    try:
        garbage.expect_long_lives()
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > 0
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def test_freed_memory_is_kept_where_the_c_library_can() -> None:
    import platform

    assert garbage.keep_freed_memory() is (platform.libc_ver()[0] == "glibc")
