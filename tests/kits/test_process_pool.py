"""``kits.process_pool``: work in processes of its own, and what becomes of it when nobody waits for it any more."""

from __future__ import annotations

import multiprocessing
import signal
from pathlib import Path

import pytest
from process_pool_functions import awaits, goes_on, hearing, square

from windlass.kits.process_pool import map_in_processes, report_progress


def test_the_results_are_those_of_one_process() -> None:
    assert sorted(map_in_processes(square, [1, 2, 3], 2)) == list(map_in_processes(square, [1, 2, 3], 1))


def test_ctrl_c_is_for_whoever_began_the_work() -> None:
    before = signal.getsignal(signal.SIGINT)
    assert {heard for _, heard in map_in_processes(hearing, [1, 2], 2)} == {"SIG_IGN"}
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_ends_what_has_not_ended(tmp_path: Path) -> None:
    """Else that would be waited for, here for ever."""
    begun = multiprocessing.active_children()
    with pytest.raises(ValueError, match="it fails"):
        list(map_in_processes(awaits, [str(tmp_path / "never"), ""], 2))
    assert [one for one in multiprocessing.active_children() if one not in begun] == []


def test_how_far_all_are_together_is_told_while_they_work(tmp_path: Path) -> None:
    file = tmp_path / "on"
    heard: list[int] = []

    def tell(done: int) -> None:
        heard.append(done)
        if done == 6:
            file.touch()  # else they would wait for ever

    assert len(list(map_in_processes(goes_on, [str(file)] * 2, 2, tell))) == 2
    assert heard == sorted(heard)
    assert heard[-1] == 6


def test_outside_of_such_a_process_nobody_hears_how_far_work_is() -> None:
    heard: list[int] = []
    report_progress(5)
    assert list(map_in_processes(square, [3], 4, heard.append)) == [(3, 9)]
    assert heard == []
