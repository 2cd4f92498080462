from __future__ import annotations

import pytest

from windlass.kits.run_command import capture


def test_both_outputs_and_the_exit_status() -> None:
    done = capture(["sh", "-c", "echo out; echo $WORD >&2; exit 3"], extra_env={"WORD": "err"})
    assert (done.returncode, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_standard_input_is_empty() -> None:
    assert capture(["cat"]).stdout == b""


def test_a_signal_is_a_negative_status() -> None:
    assert capture(["sh", "-c", "kill -TERM $$"]).returncode == -15


def test_what_takes_too_long_is_killed() -> None:
    with pytest.raises(TimeoutError, match=r"sleep took more than 0\.05 s"):
        capture(["sleep", "60"], timeout_seconds=0.05)


def test_what_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        capture(["windlass-no-such-program"])
