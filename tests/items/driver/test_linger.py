"""Time for which a driver serves its final status."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.items.driver import __main__ as process


def test_final_status_waits_for_a_reader_where_no_termination_message_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "TERMINATION_LOG", str(tmp_path / "log"))
    assert process._linger_seconds({}) == process.UNREAD_SECONDS
    assert process._linger_seconds({process.LINGER: "0.5"}) == 0.5
    (tmp_path / "log").touch()
    assert process._linger_seconds({}) == 5.0
