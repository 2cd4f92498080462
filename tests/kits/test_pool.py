"""``kits.pool``: work in processes of its own, and what becomes of it when nobody waits for it any more."""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path

import pytest
from poolwork import awaits, hearing, square

from windlass.kits.pool import in_processes


def test_the_results_are_those_of_one_process() -> None:
    assert sorted(in_processes(square, [1, 2, 3], 2)) == list(in_processes(square, [1, 2, 3], 1))


def test_ctrl_c_is_for_whoever_began_the_work() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert {heard for _, heard in in_processes(hearing, [1, 2], 2)} == {"SIG_IGN"}
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_ends_what_has_not_ended(tmp_path: Path) -> None:
    """Else that would be waited for, here for ever."""
    begun = multiprocessing.active_children()
    with pytest.raises(ValueError, match="it fails"):
        list(in_processes(awaits, [str(tmp_path / "never"), ""], 2))
    assert [one for one in multiprocessing.active_children() if one not in begun] == []
