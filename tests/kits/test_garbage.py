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
