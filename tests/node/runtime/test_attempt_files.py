"""Files of an attempt: the start is in the record of the process, also that of an earlier version."""

from __future__ import annotations

import os
from pathlib import Path

from windlass.node.runtime import attempt_files


def test_start_is_added_to_the_record_of_the_process(tmp_path: Path) -> None:
    folder, own = str(tmp_path), attempt_files.identity(os.getpid())
    assert attempt_files.started_at(folder) is None
    attempt_files.write(folder, attempt_files.PROCESS, own, durable=False)
    assert attempt_files.started_at(folder) is None
    attempt_files.add_start(folder, 1_500_000_000)
    assert attempt_files.started_at(folder) == 1.5
    assert attempt_files.read(folder, attempt_files.PROCESS) == own
    assert attempt_files.is_running(attempt_files.read(folder, attempt_files.PROCESS))
    assert os.listdir(tmp_path) == [attempt_files.PROCESS]


def test_start_that_a_crash_has_cut_off_is_unknown(tmp_path: Path) -> None:
    own = attempt_files.identity(os.getpid())
    attempt_files.write(str(tmp_path), attempt_files.PROCESS, own, durable=False)
    attempt_files.add_start(str(tmp_path), 1_500_000_000)
    path = tmp_path / attempt_files.PROCESS
    whole = path.read_bytes()
    for length in range(whole.index(b"\n"), len(whole)):
        path.write_bytes(whole[:length])
        assert attempt_files.started_at(str(tmp_path)) is None
        assert attempt_files.read(str(tmp_path), attempt_files.PROCESS) == own


def test_start_of_a_supervisor_before_an_upgrade_is_read(tmp_path: Path) -> None:
    attempt_files.write(str(tmp_path), attempt_files.PROCESS, attempt_files.identity(os.getpid()))
    attempt_files.write(str(tmp_path), "started.json", {"started_at_ns": 2_500_000_000})
    assert attempt_files.started_at(str(tmp_path)) == 2.5
